"""Multi-head attention: the same numbers as torch's own, and every example's gradients."""

import pytest
import torch
from torch import nn

WIDTH, HEADS, TARGETS, SOURCES = 8, 2, 5, 7


class Attend(nn.Module):
    """Attention whose inputs come batch first, whatever the layer wants."""

    def __init__(self, cross=False, call=None, **options):
        super().__init__()
        self.layer = nn.MultiheadAttention(WIDTH, HEADS, **options)
        self.cross, self.call = cross, call or {}
        with torch.no_grad():
            for p in self.layer.parameters():
                p.add_(0.2 * torch.randn_like(p))  # biases begin at 0

    def forward(self, query, memory):
        if self.cross:
            key = memory[..., : self.layer.kdim]
            value = memory.flip(-1)[..., : self.layer.vdim]
        else:
            key = value = query
        call = {k: v(query) if callable(v) else v for k, v in self.call.items()}
        if self.layer.batch_first:
            return self.layer(query, key, value, **call)
        turned = {id(t): t.transpose(0, 1) for t in (query, key, value)}
        out, scores = self.layer(*(turned[id(t)] for t in (query, key, value)), **call)
        return out.transpose(0, 1), scores


def make(batch):
    return torch.randn(batch, TARGETS, WIDTH), torch.randn(batch, SOURCES, WIDTH)


def check(harness, model):
    inputs = make(4)
    tape = harness.learn(model, make)
    with tape.recording(4, 4):
        seen = model(*inputs)
    tape.clear()
    for ours, own in zip(seen, model(*inputs), strict=True):
        assert (ours is None) == (own is None)
        if own is not None:
            torch.testing.assert_close(ours, own, rtol=1e-12, atol=1e-12)
    harness(model, make, sizes=(3,))


def triangle(rows, columns):
    return torch.ones(rows, columns, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"cross": True},
        {"cross": True, "kdim": 3, "vdim": 6},
        {"cross": True, "kdim": 3, "vdim": 6, "bias": False},
        {"cross": True, "add_bias_kv": True, "add_zero_attn": True},
    ],
    ids=str,
)
def test_kinds(harness, options, need_weights, batch_first):
    check(harness, Attend(call={"need_weights": need_weights}, batch_first=batch_first, **options))


def _per_head(query):
    """Another mask for every example, the same whoever else is in the batch."""
    mask = query[:, :, :1] + query[:, :, 1].unsqueeze(1) > 0.5
    mask = mask & ~torch.eye(TARGETS, dtype=torch.bool)
    return torch.stack([mask, mask.mT], 1).flatten(0, 1)


MASKS = {
    "bool": {"attn_mask": triangle(TARGETS, TARGETS)},
    "float": {"attn_mask": lambda q: torch.linspace(-1, 1, TARGETS**2).view(TARGETS, TARGETS)},
    "causal": {"attn_mask": triangle(TARGETS, TARGETS), "is_causal": True},
    "per head": {"attn_mask": _per_head},
    "per head, float": {"attn_mask": lambda q: _per_head(q).to(q.dtype) * -0.7},
    "padding": {"key_padding_mask": lambda q: (q[..., 0] > 0.8) & (torch.arange(TARGETS) > 0)},
    "padding, float": {"key_padding_mask": lambda q: q[..., 0].detach() * 0.5},
    "both": {
        "attn_mask": triangle(TARGETS, TARGETS),
        "key_padding_mask": lambda q: (q[..., 0] > 0.8) & (torch.arange(TARGETS) > 0),
    },
    "both, per head": {
        "attn_mask": lambda q: _per_head(q).to(q.dtype) * -0.7,
        "key_padding_mask": lambda q: q[..., 0] * 0.5,
    },
    "every head's scores": {"average_attn_weights": False},
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("extra", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_masks(harness, mask, extra, need_weights):
    call = {"need_weights": need_weights, **mask}
    check(harness, Attend(call=call, batch_first=True, **extra))


def test_dropout_is_applied(harness):
    model = Attend(dropout=0.5, batch_first=True)
    tape = harness.learn(model, make)
    inputs = make(4)
    with tape.recording(4, 4):
        one, two = model(*inputs)[0], model(*inputs)[0]
    assert not torch.equal(one, two)
    with tape.recording(4, 4):
        one, two = model.eval()(*inputs)[0], model(*inputs)[0]
    assert torch.equal(one, two)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_torch_transformers(harness, training, norm_first):
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, 12, **options)
    decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, 12, activation="gelu", **options)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False)
            self.decoder = nn.TransformerDecoder(decoder, 1, norm=nn.LayerNorm(WIDTH))

        def forward(self, query, memory):
            mask = nn.Transformer.generate_square_subsequent_mask(TARGETS)
            return self.decoder(query, self.encoder(memory), mask, tgt_is_causal=True)

    harness(Both().train(training), make, sizes=(3,), ways=(None, True))
