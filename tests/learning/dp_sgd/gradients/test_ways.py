"""Ghost norms and written gradients: the choice between them, and rounding to the safe side."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.learning.dp_sgd.gradients.convolution import Convolution, Geometry
from sfumato.learning.dp_sgd.gradients.cost import prefer_ghost
from sfumato.learning.dp_sgd.gradients.pieces import Direct, Outer, Piece, Stacked, Tied, combine


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("units", "places", "rows", "columns", "ghost"),
    [
        (8, 1, 1, 1, True),  # an outer product: nothing to write out
        (8, 1, 4096, 4096, True),
        (8, 16, 4096, 4096, True),  # short texts, wide layers
        (64, 128, 50257, 768, True),  # a vocabulary
        (8, 1024, 4, 27, False),  # a first convolution: many pixels, a small kernel
        (8, 50176, 64, 147, False),
        (8, 4096, 64, 64, False),
        (8, 2, 1, 1, False),
        (64, 2**15, 64, 64, False),  # Gram matrices that fill the memory
        (64, 16, 2**20, 2**20, True),  # gradients that fill the memory
        (2**20, 2**10, 2**9, 2**9, False),  # both would: the lesser evil
        (2**20, 2**9, 2**10, 2**10, True),
    ],
)
def test_known_extremes(units, places, rows, columns, ghost, device):
    assert prefer_ghost(units, places, rows, columns, device) is ghost


def test_an_empty_batch_has_a_way():
    assert prefer_ghost(0, 1, 4, 4)
    assert not prefer_ghost(0, 100, 4, 4)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["factors", "named"])
def test_settling_changes_the_form_alone(kind, transposed):
    right = torch.randn(3, 5, 4)
    left = torch.randn(3, 5, 6) if kind == "factors" else torch.randint(0, 6, (3, 5))
    outer = Outer(left, right, (6, 4), transposed)
    written = outer.written()
    assert written.shape == ((3, 4, 6) if transposed else (3, 6, 4))
    for piece in (outer, outer.turned().turned(), outer.settle()):
        torch.testing.assert_close(piece.written(), written)
        torch.testing.assert_close(piece.squared_norms(), written.flatten(1).square().sum(1))
        torch.testing.assert_close(piece.weighted_sum(torch.ones(3)), written.sum(0))
    torch.testing.assert_close(outer.turned().written(), written.mT)
    torch.testing.assert_close(outer.turned().weighted_sum(torch.ones(3)), written.sum(0).mT)


def test_combining_every_two_forms():
    """The sum of any two uses is the sum of their gradients, whatever forms they take."""
    units, shape = 3, (6, 4)

    def forms() -> list[Piece]:
        named = torch.randint(0, 6, (units, 5))
        tall = torch.randint(0, 4, (units, 5))
        return [
            Direct(torch.randn(units, *shape)),
            Outer(torch.randn(units, 5, 6), torch.randn(units, 5, 4), shape),
            Outer(torch.randn(units, 2, 4), torch.randn(units, 2, 6), (4, 6)).turned(),
            Outer(torch.randn(units, 2, 4), torch.randn(units, 2, 6), (4, 6), transposed=True),
            Outer(named, torch.randn(units, 5, 4), shape),
            Outer(tall, torch.randn(units, 5, 6), (4, 6)).turned(),
            Stacked([Direct(torch.randn(units, 3, 4)) for _ in range(2)]),
        ]

    for one in forms():
        for two in forms():
            for pieces in ([one, two], [two, one], [one, two, two]):
                expected = torch.stack([p.written() for p in pieces]).sum(0)
                for piece in (combine(pieces), combine(pieces).settle()):
                    torch.testing.assert_close(piece.written(), expected)
                    squares = expected.flatten(1).square().sum(1)
                    torch.testing.assert_close(piece.squared_norms(), squares)
                    torch.testing.assert_close(
                        piece.weighted_sum(torch.ones(units)), expected.sum(0)
                    )


# --- no gradient passes for shorter than it is ---------------------------------------------------


def _check_safe(piece: Piece, true: torch.Tensor) -> None:
    computed = piece.squared_norms().double().sqrt()
    norms = true.flatten(1).norm(dim=1)
    finite = computed.isfinite()
    assert (computed[finite] >= norms[finite] * (1 - 1e-5) - 1e-15).all(), (computed, norms)


def _cancelling(generator, places, width, scale, spread):
    """Places in nearly opposite pairs, of sizes many powers of ten apart."""
    half = torch.randn(2, places, width, generator=generator, dtype=torch.float64)
    sizes = torch.rand(2, places, 1, generator=generator, dtype=torch.float64) * spread
    half = half * 10.0**sizes * 10.0**scale
    nudge = 1 + 1e-6 * torch.randn(2, places, width, generator=generator, dtype=torch.float64)
    return half.float(), (half * nudge).float()


SCALES = {
    "seed": st.integers(0, 10**6),
    "places": st.integers(1, 20),
    "widths": st.tuples(st.integers(1, 40), st.integers(1, 40)),
    "scales": st.tuples(st.integers(-25, 16), st.integers(-25, 16)),
    "spread": st.integers(0, 4),
}


@given(**SCALES)
@settings(max_examples=80)
def test_factors_are_safe(seed, places, widths, scales, spread):
    g = torch.Generator().manual_seed(seed)
    left, again = _cancelling(g, places, widths[0], scales[0], spread)
    right, _ = _cancelling(g, places, widths[1], scales[1], spread)
    factors = torch.cat([left, again], 1), torch.cat([right, -right], 1)
    true = torch.bmm(factors[0].double().mT, factors[1].double())
    _check_safe(Outer(*factors, widths), true)
    _check_safe(Direct(true.float()), true.float().double())
    single = Outer(left[:, :1], right[:, :1], widths)
    _check_safe(single, torch.bmm(left[:, :1].double().mT, right[:, :1].double()))


@given(**SCALES)
@settings(max_examples=80)
def test_named_and_tied_factors_are_safe(seed, places, widths, scales, spread):
    g = torch.Generator().manual_seed(seed)
    rows, columns = widths
    right, again = _cancelling(g, places, columns, scales[1], spread)
    named = torch.randint(0, rows, (2, places), generator=g)
    embedding = Outer(named.repeat(1, 2), torch.cat([right, -again], 1), widths)
    true = Outer(embedding.left, embedding.right.double(), widths).written()
    _check_safe(embedding, true)
    # A head that takes back what the embedding adds, up to rounding.
    one_hot = torch.nn.functional.one_hot(embedding.left, rows).float()
    head = Outer(one_hot, -embedding.right * (1 + 2.0**-20), widths)
    tied = Tied(embedding, head)
    both = true + Outer(head.left.double(), head.right.double(), widths).written()
    _check_safe(tied, both)


@given(
    seed=st.integers(0, 10**6),
    groups=st.sampled_from([1, 2]),
    scales=st.tuples(st.integers(-12, 15), st.integers(-12, 15)),
)
@settings(max_examples=40)
def test_convolutions_are_safe(seed, groups, scales):
    g = torch.Generator().manual_seed(seed)
    half = torch.randn(2, 2 * groups, 6, 3, generator=g, dtype=torch.float32) * 10.0 ** scales[0]
    back = torch.randn(2, 3 * groups, 6, 3, generator=g, dtype=torch.float32) * 10.0 ** scales[1]
    inputs, outputs = torch.cat([half, half], 3), torch.cat([back, -back * (1 + 2.0**-18)], 3)
    geometry = Geometry((3, 1), (1, 1), ((1, 1), (0, 0)), (1, 1), groups)
    piece = Convolution(inputs, outputs, 2, geometry)
    true = Convolution(inputs.double(), outputs.double(), 2, geometry).written()
    _check_safe(piece, true)


@pytest.fixture(params=[False, True], ids=["gradual", "flushed"])
def _underflow(request):
    """What becomes of numbers below the smallest normal one; accelerators make them 0."""
    changed = request.param and torch.set_flush_denormal(True)
    yield
    if changed:
        torch.set_flush_denormal(False)


@pytest.mark.usefixtures("_underflow")
@pytest.mark.parametrize("places", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("size", [1e-24, 0.9e-19])
def test_squares_too_small_for_the_format_are_not_lost(size, places, turned):
    """Such squares are 0 in float32; the gradient's norm, times 1e18, is not."""
    small = torch.full((2, places, 4), size, dtype=torch.float32)
    large = torch.full((2, places, 5), 1e18, dtype=torch.float32)
    factors = (large, small) if turned else (small, large)
    true = torch.bmm(factors[0].double().mT, factors[1].double())
    assert true.abs().min() > 0
    _check_safe(Outer(*factors, true.shape[1:]), true)


def test_the_slack_is_small_where_nothing_cancels():
    left, right = torch.rand(4, 50, 30).float(), torch.rand(4, 50, 20).float()
    true = torch.bmm(left.double().mT, right.double()).flatten(1).norm(dim=1)
    computed = Outer(left, right, (30, 20)).squared_norms().double().sqrt()
    assert ((computed / true - 1).abs() < 1e-5).all()
