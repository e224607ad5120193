"""What has no exact gradient of its own is refused, with the reason."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.gradients.uses import NotCovered


def refused(harness, model, shape, message, make=torch.randn):
    with pytest.raises(NotCovered, match=message):
        harness.learn(model, lambda b: make(b, *shape))


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_in_training(harness, affine):
    layer = nn.BatchNorm1d(6)
    layer.weight.requires_grad_(affine)
    refused(harness, layer, (6, 5), "batch normalisation mixes the examples.*GroupNorm")
    refused(harness, nn.BatchNorm2d(6, track_running_stats=False), (6, 5, 4), "mixes the examples")
    bare = nn.BatchNorm1d(6, track_running_stats=False).eval()
    refused(harness, bare, (6, 5), "mixes the examples")


def test_running_statistics_of_instances(harness):
    layer = nn.InstanceNorm1d(6, affine=True, track_running_stats=True)
    refused(harness, layer, (6, 5), "running statistics")


def _tokens(*shape):
    return torch.randint(0, 6, shape)


def test_embeddings_that_edit_or_mix(harness):
    refused(harness, nn.Embedding(6, 4, max_norm=1.0), (5,), "max_norm", _tokens)
    frequent = nn.Embedding(6, 4, scale_grad_by_freq=True)
    refused(harness, frequent, (5,), "scale_grad_by_freq", _tokens)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_packed_sequences(harness, kind):
    def forward(m, x):
        lengths = torch.full((len(x),), 3)
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        return pad_packed_sequence(m.r(packed)[0], batch_first=True)[0]

    model = harness.calls(forward, r=kind(6, 4, batch_first=True))
    refused(harness, model, (5, 6), "packed sequences.*pad them")


def test_a_parameter_along_the_batch(harness):
    model = harness.calls(lambda m, x: x + m.w[: len(x)], w=(50, 6))
    refused(harness, model, (6,), "out of a parameter alone")


def test_a_parameter_as_long_as_the_batch(harness):
    """No telling size, but the size of the batch itself: the parameter's own part an example."""
    model = harness.calls(lambda m, x: x * m.w, w=(13, 6))
    tape = Tape(dict(model.named_parameters()))
    with tape.recording(13, 13, learning=True):
        total = model(torch.randn(13, 6)).sum()
    with pytest.raises(NotCovered, match="lies along the batch"):
        tape.gradients(total)


@pytest.mark.parametrize(
    "change",
    [
        lambda y, w: y.mul_(w),
        lambda y, w: y.div_(w),
        lambda y, w: y.__imul__(w),
        lambda y, w: y.__itruediv__(w),
        lambda y, w: y.addcmul_(y, w),
        lambda y, w: y.copy_(w),
        lambda y, w: y.pow_(w),
    ],
)
def test_products_in_place(harness, change):
    def forward(m, x):
        y = x.sin()
        return change(y, m.w) * 1

    refused(harness, harness.calls(forward, w=(6,)), (6,), "in place")


def test_an_activation_changed_after_its_use(harness):
    def forward(m, x):
        y = x * 1
        out = m.a(y)
        y.add_(1)
        return out

    for layer in (nn.Linear(6, 6), nn.LayerNorm(6), nn.Conv1d(5, 5, 1), nn.PReLU()):
        refused(harness, harness.calls(forward, a=layer), (5, 6), "modified in place")


def test_attention_without_a_batch(harness):
    def forward(m, x):
        return m.a(x, x, x)[0].unsqueeze(0)

    refused(
        harness,
        harness.calls(forward, a=nn.MultiheadAttention(6, 2)),
        (6,),
        "time, batch, features",
    )


def test_sparse_gradients_of_what_is_no_example(harness):
    model = harness.calls(lambda m, x: x + m.e(torch.arange(5)), e=nn.Embedding(5, 6, sparse=True))
    refused(harness, model, (5, 6), "embedding of parameters cannot be traced back")


def test_a_function_that_cannot_be_run_for_one_example(harness):
    """A shape that holds the batch's size: with one row it means another thing."""

    def forward(m, x):
        return torch.stack([m.w] * len(x)) * x

    refused(
        harness,
        harness.calls(forward, w=(6,)),
        (6,),
        "stack makes a batch out of a parameter alone",
    )
    several = harness.calls(lambda m, x: m.w.repeat(len(x), 1).unflatten(0, (-1, 2)) * x, w=(2, 6))
    refused(harness, several, (2, 6), "several rows is repeated along the batch")


def test_a_structure_that_depends_on_the_data(harness):
    def forward(m, x):
        return m.a(x) if x[0, 0] < 10 else m.b(x)

    model = harness.calls(forward, a=nn.Linear(6, 6), b=nn.Linear(6, 6))
    tape = harness.learn(model, lambda b: torch.randn(b, 6))
    with pytest.raises(NotCovered, match="not called in the check before training"):
        harness.record(tape, model, torch.randn(3, 6) + 100)


def test_a_refusal_leaves_the_tape_usable(harness):
    model = nn.Sequential(nn.Linear(6, 4))
    tape = harness.learn(model, lambda b: torch.randn(b, 6))
    with tape.recording(3, 3):
        total = (torch.randn(3, 6) @ model[0].weight.T).sum()
    with pytest.raises(NotCovered):
        tape.gradients(total)
    x = torch.randn(3, 6)
    harness.compare(harness.record(tape, model, x), harness.loop(model, x))


def test_a_batch_that_is_lost(harness):
    """An average over the batch mixes examples, however it is used later."""
    model = harness.calls(lambda m, x: x * (m.w * x.mean(0)), w=(6,))
    assert_refused_or_unseen(harness, model, (6,))


def assert_refused_or_unseen(harness, model, shape):
    """Refused by the tape where it can see it; the rehearsal compares gradients for the rest."""
    try:
        tape = harness.learn(model, lambda b: torch.randn(b, *shape))
    except NotCovered as error:
        assert "mixed" in str(error)  # noqa: PT017
        return
    x = torch.randn(4, *shape)
    fast = harness.record(tape, model, x)
    with pytest.raises(AssertionError):
        harness.compare(fast, harness.loop(model, x))


def test_a_product_that_sums_over_the_batch(harness):
    model = harness.calls(lambda m, x: x + torch.einsum("bi,i->i", x, m.w), w=(6,))
    refused(harness, model, (6,), "einsum of 'w' loses the batch: examples are mixed")


def test_writing_a_parameter_into_a_tensor(harness):
    def fills(m, x):
        out = x.clone()
        out[:, 0] = m.w
        return out

    refused(harness, harness.calls(fills, w=(1,)), (6,), "'w' is written into")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.mul_(2), "mul_ changes 'w"),
        (lambda w: w.__setitem__(0, 0.0), "is written into"),
        (lambda w: w.__iadd__(1), "add_ changes 'w"),
    ],
)
def test_changing_what_was_made_of_a_parameter(harness, change, message):
    def forward(m, x):
        w = m.w * 1
        change(w)
        return x * w

    refused(harness, harness.calls(forward, w=(6,)), (6,), message)


def test_a_sequence_without_a_batch(harness):
    """Two dimensions are one unbatched sequence to an LSTM: refused, and quickly."""
    model = harness.calls(lambda m, x: m.r(x)[0], r=nn.LSTM(6, 4))
    with pytest.raises((NotCovered, RuntimeError, IndexError, AssertionError)):
        harness(model, lambda b: torch.randn(b, 6))


def test_a_parameter_on_either_side_of_an_operator(harness):
    """The same function with the parameter first and second: two places, both known."""
    harness(harness.calls(lambda m, x: (m.w - x) * (x - m.w), w=(6,)), lambda b: torch.randn(b, 6))
