"""Functions that are run as several simpler ones while a tape records: attention and recurrence.

Each computes what torch's own function computes, from functions that have rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.learning.dp_sgd.gradients.uses import NotCovered

__all__ = ["DECOMPOSED"]

DECOMPOSED: dict[str, Callable[..., Any]] = {}
"""By torch's name of the function."""


def _decomposes(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        DECOMPOSED[name] = function
        return function

    return register


# --- attention ----------------------------------------------------------------------------------


@_decomposes("multi_head_attention_forward")
def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """``F.multi_head_attention_forward`` on (time, batch, features)."""
    if query.ndim != 3 or static_k is not None or static_v is not None:
        raise NotCovered("multi-head attention is known for (time, batch, features) only")
    packed = None if use_separate_proj_weight else in_proj_weight
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    q, k, v = _project(query, key, value, packed, weights, in_proj_bias)
    if bias_k is not None and bias_v is not None:
        batch = k.shape[1]
        k = torch.cat([k, bias_k.expand(1, batch, -1)])
        v = torch.cat([v, bias_v.expand(1, batch, -1)])
    if add_zero_attn:
        k, v = (torch.cat([t, t.new_zeros(1, *t.shape[1:])]) for t in (k, v))
    # As torch does: with the hint alone to go by, the mask itself is not read.
    causal = is_causal and key_padding_mask is None and not need_weights
    mask = None if causal else _mask(attn_mask, key_padding_mask, q, k, num_heads)
    q, k, v = (t.unflatten(2, (num_heads, -1)).permute(1, 2, 0, 3) for t in (q, k, v))
    drop = dropout_p if training else 0.0
    if not need_weights:
        mixed = F.scaled_dot_product_attention(q, k, v, mask, drop, is_causal=causal)
        scores = None
    else:
        logits = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
        scores = torch.softmax(logits if mask is None else logits + mask, -1)
        scores = F.dropout(scores, drop) if drop else scores
        mixed = scores @ v
        scores = scores.mean(1) if average_attn_weights else scores
    joined = mixed.permute(2, 0, 1, 3).flatten(2)
    return F.linear(joined, out_proj_weight, out_proj_bias), scores


def _project(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    packed: Tensor | None,
    weights: Sequence[Tensor | None],
    bias: Tensor | None,
) -> Sequence[Tensor]:
    if packed is not None and query is key and key is value:
        return F.linear(query, packed, bias).chunk(3, -1)
    parts = weights if packed is None else packed.chunk(3)
    shifts = (None, None, None) if bias is None else bias.chunk(3)
    inputs = (query, key, value)
    return [
        F.linear(x, w, b)  # type: ignore[arg-type]
        for x, w, b in zip(inputs, parts, shifts, strict=True)
    ]


def _mask(
    attn_mask: Tensor | None, padding: Tensor | None, q: Tensor, k: Tensor, heads: int
) -> Tensor | None:
    """Both masks as numbers to add, for (batch, heads, targets, sources)."""
    batch, sources = k.shape[1], k.shape[0]

    def as_numbers(mask: Tensor) -> Tensor:
        if mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=q.dtype).masked_fill(mask, -math.inf)
        return F.pad(mask.to(q.dtype), (0, sources - mask.shape[-1]))

    total = None
    if attn_mask is not None:
        total = as_numbers(attn_mask)
        total = total if total.ndim == 2 else total.view(batch, heads, *total.shape[1:])
    if padding is not None:
        hidden = as_numbers(padding).view(batch, 1, 1, sources)
        total = hidden if total is None else total + hidden
    return total


# --- recurrence ---------------------------------------------------------------------------------

Step = Callable[..., tuple[Tensor, ...]]


def _lstm_step(
    x: Tensor, state: tuple[Tensor, ...], w_h: Tensor, b_h: Tensor | None, w_r: Tensor | None
) -> tuple[Tensor, ...]:
    h, c = state
    i, f, g, o = (x + F.linear(h, w_h, b_h)).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    h = torch.sigmoid(o) * torch.tanh(c)
    return (h if w_r is None else F.linear(h, w_r)), c


def _gru_step(
    x: Tensor, state: tuple[Tensor, ...], w_h: Tensor, b_h: Tensor | None, w_r: Tensor | None
) -> tuple[Tensor, ...]:
    (h,) = state
    xr, xz, xn = x.chunk(3, -1)
    hr, hz, hn = F.linear(h, w_h, b_h).chunk(3, -1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return ((1 - z) * n + z * h,)


def _plain_step(squash: Callable[[Tensor], Tensor]) -> Step:
    def step(
        x: Tensor, state: tuple[Tensor, ...], w_h: Tensor, b_h: Tensor | None, w_r: Tensor | None
    ) -> tuple[Tensor, ...]:
        return (squash(x + F.linear(state[0], w_h, b_h)),)

    return step


_STEPS: dict[str, Step] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "rnn_tanh": _plain_step(torch.tanh),
    "rnn_relu": _plain_step(torch.relu),
}


def _unroll(
    step: Step, x: Tensor, state: tuple[Tensor, ...], weights: Sequence[Any], back: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction over (time, batch, features)."""
    w_i, w_h, b_i, b_h, w_r = weights
    projected = F.linear(x, w_i, b_i)
    outputs: list[Tensor] = []
    times = range(len(x) - 1, -1, -1) if back else range(len(x))
    for t in times:
        state = step(projected[t], state, w_h, b_h, w_r)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if back else outputs), state


def _recurrent(name: str) -> Callable[..., Any]:
    step = _STEPS[name]

    def run(
        input: Tensor,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        if not isinstance(has_biases, bool):
            raise NotCovered("packed sequences fold examples of different length: pad them instead")
        states = tuple(hx) if name == "lstm" else (hx,)
        x = input.transpose(0, 1) if batch_first else input
        directions = 2 if bidirectional else 1
        width = len(params) // (num_layers * directions)
        final: list[tuple[Tensor, ...]] = []
        for layer in range(num_layers):
            outputs: list[Tensor] = []
            for direction in range(directions):
                at = layer * directions + direction
                own = list(params[at * width : (at + 1) * width])
                weights = _five(own, has_biases)
                start = tuple(s[at] for s in states)
                out, end = _unroll(step, x, start, weights, back=direction == 1)
                outputs.append(out)
                final.append(end)
            x = torch.cat(outputs, -1) if bidirectional else outputs[0]
            if dropout and train and layer < num_layers - 1:
                x = F.dropout(x, dropout)
        out = x.transpose(0, 1) if batch_first else x
        return (out, *(torch.stack(parts) for parts in zip(*final, strict=True)))

    return run


def _five(own: list[Any], has_biases: bool) -> list[Any]:
    """Input and recurrent weights, their biases, and a projection: None where there is none."""
    matrices, rest = own[:2], own[2:]
    biases = rest[:2] if has_biases else [None, None]
    projection = rest[len(biases) if has_biases else 0 :]
    return [*matrices, *biases, projection[0] if projection else None]


def _cell(name: str) -> Callable[..., Any]:
    step = _STEPS[name]

    def run(
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        states = tuple(hx) if name == "lstm" else (hx,)
        after = step(F.linear(input, w_ih, b_ih), states, w_hh, b_hh, None)
        return after if name == "lstm" else after[0]

    return run


for _name in _STEPS:
    DECOMPOSED[_name] = _recurrent(_name)
    DECOMPOSED[f"{_name}_cell"] = _cell(_name)
