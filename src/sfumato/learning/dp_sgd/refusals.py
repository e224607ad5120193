"""What a rehearsal refuses: how far numbers may be apart, and what is said where they are.

The same arithmetic on the same rows must agree to the last digits (:func:`compare_first`); another
order of it but for rounding (:func:`compare_losses`, :func:`compare_gradients`); there is more room
where a function ran in mixed precision (``coarse``). All numbers are of made-up rows: no error
depends on a private one. What each check is for, and what none of them can see, is said in
:mod:`~sfumato.learning.dp_sgd.rehearsal`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.modules.batchnorm import _BatchNorm

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.tape import Tape

__all__ = [
    "compare_first",
    "compare_gradients",
    "compare_losses",
    "compare_padded",
    "refuse_batch_norm",
    "refuse_memory",
    "refuse_mixing",
    "refuse_unseen",
    "require_finite",
]

_TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3}
_COARSE = 5e-2
_PADDED = {torch.float64: 1e-9, torch.float32: 2e-4}
_LAST_DIGITS = {torch.float64: 1e-11, torch.float32: 1e-5}


def refuse_batch_norm(model: nn.Module) -> None:
    """Raises if a batch normalisation would mix examples; the commonest case, named at once."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            raise TrainingError(
                f"{name!r} is a {type(module).__name__}, which mixes the examples of a batch: "
                f"replace it by nn.{_instead(module)}, or put it in eval mode with statistics of "
                "public data"
            )


def _instead(module: _BatchNorm) -> str:
    channels = module.num_features
    if isinstance(module, nn.BatchNorm1d):
        return f"LayerNorm({channels}) (after a convolution: nn.GroupNorm(1, {channels}))"
    groups = max(g for g in range(1, max(2, min(32, channels // 2) + 1)) if channels % g == 0)
    return f"GroupNorm({groups}, {channels})"


def _last_digits(dtype: torch.dtype, coarse: bool) -> float:
    return _COARSE if coarse else _LAST_DIGITS.get(dtype, _COARSE)


def _room(dtype: torch.dtype, coarse: bool) -> float:
    return _COARSE if coarse else _TOLERANCE.get(dtype, _COARSE)


def compare_losses(together: Tensor, alone: Tensor, coarse: bool) -> None:
    """Raises if losses differ by more than rounding."""
    require_finite(alone)
    room = _room(alone.dtype, coarse)
    if not torch.allclose(together, alone, rtol=room, atol=room * float(alone.abs().max())):
        refuse_mixing()


def require_finite(*found: Tensor) -> None:
    """Raises if a number is infinite or NaN: nothing could then be compared."""
    if not all(bool(numbers.isfinite().all()) for numbers in found):
        raise TrainingError(
            "the losses or gradients of made-up rows are not finite, so that the model cannot be "
            "checked: give a few plausible, public rows as example="
        )


def refuse_mixing() -> NoReturn:
    """Says that examples are mixed."""
    raise TrainingError(
        "an example's loss depends on the other examples of its batch or of another rank's (batch "
        "normalisation, attention across the batch, a contrastive or an averaged loss, an "
        "all_reduce or all_gather in the model or the loss), on other rows than the batch handed "
        "out, or on numbers drawn outside of the model (draw those of inputs in augment=, others, "
        "such as time steps or masks, in the model's forward): each example's loss must be a "
        "function of that example alone"
    )


def compare_first(before: Tensor, after: Tensor, scale: Tensor, coarse: bool) -> None:
    """Raises if numbers of the same rows differ in more than the last digits of ``scale``.

    NaN is the same as NaN.
    """
    room = _last_digits(before.dtype, coarse)
    finite = scale[scale.isfinite()].abs()
    room_beside = room * float(finite.max()) if finite.numel() else 0.0
    same = before.shape == after.shape
    if not same or not torch.allclose(before, after, room, room_beside, equal_nan=True):
        refuse_mixing()


def compare_padded(usual: Mapping[str, Tensor], other: Mapping[str, Tensor], coarse: bool) -> None:
    """Raises if a unit's losses or gradients move when other rows are longer or shorter.

    Args:
        usual: the unit's losses, or its gradients by name.
        other: the same in company of another length.
        coarse: whether a function ran in mixed precision.
    """
    require_finite(*usual.values(), *other.values())
    scale = max((float(t.abs().max()) for t in usual.values() if t.numel()), default=0.0)
    for name in {**usual, **other}:
        one = usual[name] if name in usual else torch.zeros_like(other[name])
        two = other[name] if name in other else torch.zeros_like(one)
        room = _COARSE if coarse else _PADDED.get(one.dtype, _COARSE)
        if not torch.allclose(one, two, rtol=room, atol=room * scale):
            raise TrainingError(
                "a row's loss or gradient changes when a longer or shorter row comes into its "
                "batch: collate pads rows to the longest or cuts them to the shortest, or the loss "
                "counts others' lengths, so that one row would move everybody's gradient. Pad and "
                "cut every row to a declared length, as collate=sf.PadTo(length) does (where rows "
                "are filled up by PrivateTrainer: pad_to_max_length=True), and let the model leave "
                "padding out by a mask, or by each row's own length"
            )


def refuse_memory(before: Tensor, again: Tensor, coarse: bool) -> None:
    """Raises if the same rows' losses are others when they come again."""
    room = _last_digits(again.dtype, coarse)
    if not torch.allclose(before, again, rtol=room, atol=room):
        raise TrainingError(
            "the model gives another loss to the same rows when they come again: it keeps "
            "something of the batches it saw, which would leave without noise, or draws "
            "random numbers outside its forward pass"
        )


def refuse_unseen(tape: Tape, losses: Tensor) -> None:
    """Raises if a parameter enters the losses by a way that was not recorded."""
    names = {id(p): name for name, p in tape.leaves.items()}
    recorded = tape.recorded()  # what lies beyond is accounted for
    for node in _nodes(losses, recorded):
        name = names.get(id(getattr(node, "variable", None)))
        if name is not None:
            _refuse_gradient(name)
    if any(type(node).__name__ == "CheckpointFunctionBackward" for node in _nodes(losses, set())):
        raise TrainingError(
            "a part of the model is hidden by a checkpoint: call it with use_reentrant=False"
        )


def _nodes(losses: Tensor, stop: set[Node]) -> Iterator[Node]:
    """The graph of ``losses``, up to before the nodes in ``stop``."""
    met, ways = set(stop), [losses.grad_fn]
    while ways:
        node = ways.pop()
        if node is not None and node not in met:
            met.add(node)
            yield node
            ways.extend(following for following, _ in node.next_functions)


def compare_gradients(fast: Mapping[str, Tensor], slow: Mapping[str, Tensor], coarse: bool) -> None:
    """Raises if an example's gradients, formed in two ways, differ by more than rounding."""
    scale = max((float(g.abs().max()) for g in slow.values() if g.numel()), default=0.0)
    wrong = []
    for name in {**slow, **fast}:
        one = slow[name] if name in slow else torch.zeros_like(fast[name])
        two = fast[name] if name in fast else torch.zeros_like(one)
        room = _room(one.dtype, coarse)
        if not torch.allclose(one.to(two.dtype), two, rtol=room, atol=room * scale):
            wrong.append(name)
    if wrong:
        _refuse_gradient(wrong[0])


def _refuse_gradient(name: str) -> NoReturn:
    raise TrainingError(
        f"the per-example gradient of {name!r} could not be confirmed: it is used outside the "
        "model's forward pass (a penalty on the weights, a head of its own), or one example's "
        "gradient depends on others. Call the model itself, model(...), put what else uses its "
        "parameters into its forward, use the optimizer's weight_decay, or freeze it"
    )
