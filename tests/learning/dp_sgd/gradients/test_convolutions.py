"""Convolutions, plain and transposed, in one, two and three dimensions."""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients.convolution import Convolution, Geometry, resolve_padding

# torch says that even kernels with padding="same" need a copy: the user's choice, not ours.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")

PLAIN = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
LENGTHS = {1: (10,), 2: (9, 8), 3: (5, 6, 5)}


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel_size": 1},
        {"kernel_size": 2, "stride": 2},
        {"stride": 2, "padding": 1},
        {"stride": 3, "padding": 2, "dilation": 2},
        {"groups": 2},
        {"groups": 4},
        {"groups": 2, "stride": 2, "padding": 1, "dilation": 2, "bias": False},
        {"padding": "same"},
        {"padding": "valid"},
        {"kernel_size": 2, "padding": "same"},
        {"kernel_size": 4, "padding": "same"},
        {"kernel_size": 2, "padding": "same", "dilation": 3, "groups": 2},
        {"padding": 1, "padding_mode": "reflect"},
        {"padding": 1, "padding_mode": "circular"},
        {"padding": 1, "padding_mode": "replicate", "stride": 2},
        {"kernel_size": 4, "padding": "same", "padding_mode": "circular"},
        {"padding": 4},
    ],
    ids=str,
)
def test_plain(harness, dims, options):
    model = PLAIN[dims](4, 8, **{"kernel_size": 3, **options})
    harness(model, lambda b: torch.randn(b, 4, *LENGTHS[dims]), sizes=(3, 1))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel_size": 1},
        {"stride": 2},
        {"stride": 2, "padding": 1, "output_padding": 1},
        {"stride": 3, "padding": 2, "output_padding": 2, "bias": False},
        {"dilation": 2, "output_padding": 1},
        {"dilation": 3, "output_padding": 2, "padding": 2},
        {"groups": 2},
        {"groups": 4, "stride": 2, "dilation": 2, "padding": 1},
        {"padding": 1, "kernel_size": 2},
    ],
    ids=str,
)
def test_transposed(harness, dims, options):
    model = TRANSPOSED[dims](4, 8, **{"kernel_size": 3, **options})
    harness(model, lambda b: torch.randn(b, 4, *(n - 3 for n in LENGTHS[dims])), sizes=(3, 1))


@pytest.mark.parametrize("multiplier", [1, 3])
def test_depthwise(harness, multiplier):
    model = nn.Conv2d(4, 4 * multiplier, 3, padding=1, groups=4)
    harness(model, lambda b: torch.randn(b, 4, 6, 5), sizes=(3,))


def test_kernels_of_unequal_sides(harness):
    model = nn.Sequential(
        nn.Conv2d(3, 4, (2, 5), stride=(2, 1), padding=(0, 3), dilation=(3, 1)),
        nn.Tanh(),
        nn.ConvTranspose2d(4, 2, (1, 3), stride=(1, 2), padding=(0, 1), output_padding=(0, 1)),
    )
    harness(model, lambda b: torch.randn(b, 3, 9, 7))


def test_a_batch_stored_channels_last(harness):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 4, 3, groups=2, stride=2))
    harness(
        model.to(memory_format=torch.channels_last),
        lambda b: torch.randn(b, 3, 8, 9).to(memory_format=torch.channels_last),
    )


@pytest.mark.parametrize("copies", [1, 3])
def test_frames_folded_into_the_batch(harness, copies):
    def loss(model, x):
        return model(x.flatten(0, 1)).sin().unflatten(0, (len(x), 2)).flatten(1).sum(1)

    harness(nn.Conv2d(3, 4, 3), lambda b: torch.randn(b, 2, 3, 6, 5), loss, copies=copies)


def test_functions_with_arguments_in_any_form(harness):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.randn(4, 3, 3, 3)), nn.Parameter(torch.randn(4))

        def forward(self, x):
            once = torch.conv2d(x, self.w, self.b, (2,), (1,), [1], 1)
            return once, F.conv2d(x, self.w, padding=[1, 0], bias=self.b)

    harness(Own(), lambda b: torch.randn(b, 3, 6, 5))


def test_more_examples_than_fit_in_the_cache(harness, monkeypatch):
    monkeypatch.setattr("sfumato.learning.dp_sgd.gradients.convolution._CACHE_CPU", 2000)
    harness(nn.Conv2d(3, 4, 3, groups=1), lambda b: torch.randn(b, 3, 6, 5), sizes=(7,))


def _pairs(low, high):
    return st.tuples(st.integers(low, high), st.integers(low, high))


@given(
    st.data(),
    st.sampled_from([1, 2]),
    st.integers(1, 3),
    st.tuples(_pairs(1, 3), _pairs(1, 3), _pairs(1, 3)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), _pairs(3, 8)),
)
@settings(max_examples=40)
def test_every_geometry(data, groups, copies, walk, sizes):
    kernel, stride, dilation = walk
    ins, outs, lengths = sizes
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = data.draw(
        st.one_of(_pairs(0, 3), st.just("same") if max(stride) == 1 else _pairs(0, 3))
    )
    pads = resolve_padding(padding, kernel, dilation)
    assume(all(n + a + b >= s for n, (a, b), s in zip(lengths, pads, spans, strict=True)))
    inputs = torch.randn(2 * copies, ins * groups, *lengths)
    weight = torch.randn(outs * groups, ins, *kernel, requires_grad=True)
    out = F.conv2d(inputs, weight, None, stride, padding, dilation, groups)
    grad = torch.randn_like(out)
    piece = Convolution(inputs, grad, 2, Geometry(kernel, stride, pads, dilation, groups))
    true = torch.stack(
        [
            torch.autograd.grad(out[rows], weight, grad[rows], retain_graph=True)[0]
            for rows in (slice(0, copies), slice(copies, None))
        ]
    )
    weights = torch.tensor([0.3, 0.7])
    squares = true.flatten(1).square().sum(1)
    torch.testing.assert_close(piece.written(), true, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(piece.squared_norms(), squares, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(
        piece.weighted_sum(weights), 0.3 * true[0] + 0.7 * true[1], rtol=1e-10, atol=1e-10
    )
