"""The rehearsal: the whole loop on made-up data, before anything private is read or spent.

A private gradient is only as good as three facts about the model, and none of them can be read off
its code: every trainable parameter's use was seen; each example's gradient depends on that example
alone; the loss is one number an example. So the loop is first run on a few made-up rows:

1. a batch of a telling size, to learn where each function holds its batch;
2. a batch of three, whose per-example gradients are formed the fast way;
3. the first of the three with two copies of itself in the others' places;
4. each of the three alone, whose gradient autograd forms in its own way;
5. the three in a crowd as large as a physical batch, everyone else's numbers being NaN;
6. the three once more.

The first example's loss and gradient in 2 and 3 must agree to the last digits, because the same
arithmetic is done (else examples are mixed, however little). Those of 2 and 4 must agree but for
rounding (else examples are mixed by their number, or a gradient is wrong). NaN spreads through
means, maxima and small coefficients alike: in 5 it must not reach the three, at the size that
will be trained with. 6 must be as 2 (else the model remembers). In the graph of 2 every way to a
parameter must lead through a recorded call (else a use was not seen). No buffer may change.
Made-up rows hold nothing of the data but its shapes, so the outcome is the same for every table.
Randomness inside the model (dropout) is held still meanwhile; in 5 at three levels, in case it
decides who is mixed with whom.

What no rehearsal can see: a model that turns to mixing later, on a condition of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.layout import AmbiguousLayout, telling_sizes
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.gradients.uses import function_name
from sfumato.learning.dp_sgd.recording import Recorder
from sfumato.learning.dp_sgd.stepping import as_training_error

__all__ = ["refuse_batch_norm", "rehearse"]

_ALONE = 3
_TOLERANCE = {torch.float64: 1e-7, torch.float32: 2e-3}
_COARSE = 5e-2
_LAST_DIGITS = {torch.float64: 1e-11, torch.float32: 1e-5}
_LEVELS = (0.5, 0.01, 0.99)
_UNIFORM = {"rand", "rand_like", "uniform_"}
_COIN = {"bernoulli", "bernoulli_"}
_STILL = {
    "randn": 0.3, "randn_like": 0.3, "normal": 0.3, "normal_": 0.3, "randint": 0,
    "randint_like": 0, "random_": 0, "exponential_": 1.0,
}  # fmt: skip


def refuse_batch_norm(model: nn.Module) -> None:
    """Raises if a batch normalisation would mix examples; the commonest case, named at once."""
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.training:
            channels = module.num_features
            raise TrainingError(
                f"{name or 'the model'} is a {type(module).__name__}, which mixes the examples of "
                f"a batch: replace it by nn.GroupNorm({_groups(channels)}, {channels}), or put it "
                "in eval mode with statistics of public data"
            )


def _groups(channels: int) -> int:
    return max(g for g in range(1, min(32, channels) + 1) if channels % g == 0)


class HoldStill:
    """Randomness inside a model, replaced by constants.

    Attributes:
        coarse: whether a function ran in mixed precision.
        level: what uniform numbers are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._devices = {p.device.type for p in model.parameters()}
        self.coarse = False
        self.level = _LEVELS[0]

    def __call__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the tape calls instead of ``func``, or NotImplemented."""
        self.coarse = self.coarse or any(map(torch.is_autocast_enabled, self._devices))
        name = function_name(func)
        if "dropout" in name and args and isinstance(args[0], Tensor):
            return args[0]
        if name == "scaled_dot_product_attention":
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs = {**kwargs, "dropout_p": 0.0}
            return func(*args, **kwargs)
        if name in _UNIFORM:
            return func(*args, **kwargs).fill_(self.level)
        if name in _COIN:
            return func(*args, **kwargs).fill_(float(self.level < 0.75))
        if name in _STILL:
            return func(*args, **kwargs).fill_(_STILL[name])
        return NotImplemented


Turn = Generator[Any, Tensor, Tensor]


def rehearse(
    recorder: Recorder, imitate: Callable[[int], Any], copies: int, crowd: int
) -> Generator[Any, Tensor, None]:
    """Yields made-up batches, is sent their losses, and raises if the model cannot be trained.

    Args:
        recorder: of the model; its tape learns where batches are.
        imitate: makes a batch of so many rows up.
        copies: rows of one unit.
        crowd: units in the largest physical batch.

    Raises:
        TrainingError: naming what is wrong, and the remedy.
    """
    model = recorder.model
    refuse_batch_norm(model)
    before = {name: b.detach().clone() for name, b in model.named_buffers()}
    recorder.tape.on_call = still = HoldStill(model)
    try:
        yield from _learn(recorder, imitate, copies)
        yield from _Rehearsal(recorder, still, imitate(_ALONE * copies), copies).play(
            imitate, crowd
        )
        changed = [n for n, b in model.named_buffers() if not _same(b, before.get(n))]
    finally:
        recorder.tape.on_call = None
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in before and buffer.shape == before[name].shape:
                    buffer.copy_(before[name])
    if changed:
        raise TrainingError(
            f"buffer {changed[0]!r} changes when the model runs: it would carry private data into "
            "the model without noise. Use a layer without running statistics"
        )


class _Rehearsal:
    """The turns after the first, on one batch of three units."""

    def __init__(self, recorder: Recorder, still: HoldStill, batch: Any, copies: int) -> None:
        self._recorder, self._tape, self._still = recorder, recorder.tape, still
        self._batch, self._copies, self._rows = batch, copies, _ALONE * copies

    def play(self, imitate: Callable[[int], Any], crowd: int) -> Generator[Any, Tensor, None]:
        """All turns."""
        self._recorder.expect(self._rows, _ALONE)
        losses = yield self._batch
        _require_finite(losses)
        _refuse_unseen(self._tape, losses)
        self._losses = losses.detach().clone()
        self._gradients = _fast(self._tape, losses)
        _require_finite(*self._gradients.values())
        yield from self._with_itself()
        yield from self._alone()
        if crowd > _ALONE:
            yield from self._in_a_crowd(imitate, crowd)
        yield from self._again()

    def _with_itself(self) -> Generator[Any, Tensor, None]:
        copies, coarse = self._copies, self._still.coarse
        self._recorder.expect(self._rows, _ALONE)
        losses = yield pytree.tree_map(lambda leaf: _repeated(leaf, copies), self._batch)
        _compare_first(
            self._losses[:copies], losses.detach()[:copies], self._losses, self._still.coarse
        )
        own, again = _first(self._gradients), _first(_fast(self._tape, losses))
        _compare_first(own, again, own, coarse)

    def _alone(self) -> Generator[Any, Tensor, None]:
        for unit in range(_ALONE):
            rows = slice(unit * self._copies, (unit + 1) * self._copies)
            self._recorder.expect(self._copies, 1)
            losses = yield pytree.tree_map(lambda leaf, rows=rows: leaf[rows], self._batch)
            with as_training_error():
                self._tape.raise_deferred()
            coarse = self._still.coarse
            _compare_losses(self._losses[rows], losses.detach(), coarse)
            slow = _slow(self._tape.parameters, losses)
            _require_finite(*slow.values())
            self._tape.clear()
            _compare_gradients({n: g[unit] for n, g in self._gradients.items()}, slow, coarse)

    def _in_a_crowd(
        self, imitate: Callable[[int], Any], crowd: int
    ) -> Generator[Any, Tensor, None]:
        company = imitate((crowd - _ALONE) * self._copies)
        batch = pytree.tree_map(_joined, self._batch, company)
        for level in _LEVELS:
            self._still.level = level
            self._recorder.expect(crowd * self._copies, crowd)
            losses = yield batch
            own = losses.detach()[: self._rows]
            first = _of_first(self._tape, losses)
            if not all(bool(t.isfinite().all()) for t in (own, *first.values())):
                _refuse_mixing()
            if level == _LEVELS[0]:
                _compare_losses(self._losses, own, self._still.coarse)
                expected = {name: g[0] for name, g in self._gradients.items()}
                _compare_gradients(first, expected, self._still.coarse)
        self._still.level = _LEVELS[0]

    def _again(self) -> Generator[Any, Tensor, None]:
        self._recorder.expect(self._rows, _ALONE)
        losses = yield self._batch
        self._tape.clear()
        room = _COARSE if self._still.coarse else _LAST_DIGITS.get(losses.dtype, _COARSE)
        if not torch.allclose(self._losses, losses.detach(), rtol=room, atol=room):
            raise TrainingError(
                "the model gives another loss to the same rows when they come again: it keeps "
                "something of the batches it saw, which would leave without noise, or draws "
                "random numbers outside its forward pass"
            )


def _learn(recorder: Recorder, imitate: Callable[[int], Any], copies: int) -> Turn:
    tape = recorder.tape
    example = pytree.tree_leaves(imitate(1))
    lengths = {n for leaf in example if isinstance(leaf, Tensor) for n in leaf.shape[1:]}
    lengths |= {n for p in tape.parameters.values() for n in p.shape}
    last: Exception | None = None
    for size in telling_sizes(lengths):
        tape.sites.clear()
        recorder.expect(size * copies, size, learning=True)
        losses = yield imitate(size * copies)
        try:
            _fast(tape, losses)
        except AmbiguousLayout as error:
            last = error
            continue
        return losses
    raise TrainingError(
        f"cannot tell which dimension holds the batch ({last}): give the model inputs of other "
        "lengths"
    )


def _fast(tape: Tape, losses: Tensor) -> dict[str, Tensor]:
    with as_training_error():
        found = tape.gradients(losses.sum())
        return {name: piece.written().clone() for name, piece in found.pieces.items()}


def _of_first(tape: Tape, losses: Tensor) -> dict[str, Tensor]:
    """The first unit's gradients alone, formed as a lot's sum is."""
    with as_training_error():
        found = tape.gradients(losses.sum())
        only = torch.zeros(found.units, device=losses.device)
        only[0] = 1
        return {name: piece.weighted_sum(only) for name, piece in found.pieces.items()}


def _slow(parameters: Mapping[str, Tensor], losses: Tensor) -> dict[str, Tensor]:
    with as_training_error():
        found = torch.autograd.grad(losses.sum(), list(parameters.values()), allow_unused=True)
    return {n: g for n, g in zip(parameters, found, strict=True) if g is not None}


def _same(one: Tensor, two: Tensor | None) -> bool:
    return two is not None and one.shape == two.shape and torch.equal(one, two)


def _room(dtype: torch.dtype, coarse: bool) -> float:
    return _COARSE if coarse else _TOLERANCE.get(dtype, _COARSE)


def _compare_losses(together: Tensor, alone: Tensor, coarse: bool) -> None:
    _require_finite(alone)
    room = _room(alone.dtype, coarse)
    if not torch.allclose(together, alone, rtol=room, atol=room * float(alone.abs().max())):
        _refuse_mixing()


def _require_finite(*found: Tensor) -> None:
    if not all(bool(numbers.isfinite().all()) for numbers in found):
        raise TrainingError(
            "the losses or gradients of made-up rows are not finite, so that the model cannot be "
            "checked: give a few plausible, public rows as example="
        )


def _refuse_mixing() -> NoReturn:
    raise TrainingError(
        "an example's loss depends on the other examples of its batch (batch normalisation, "
        "attention across the batch, a contrastive loss, or randomness outside the model): "
        "each example's loss must be a function of that example alone"
    )


def _repeated(leaf: Any, copies: int) -> Any:
    """The first unit's rows in everybody's place."""
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return leaf
    return torch.cat([leaf[:copies]] * _ALONE)


def _joined(leaf: Any, company: Any) -> Any:
    """The rows, then the company's, whose numbers become NaN."""
    if not isinstance(leaf, Tensor) or not leaf.ndim:
        return leaf
    if company.is_floating_point():
        company = torch.full_like(company, torch.nan)
    return torch.cat([leaf, company])


def _first(gradients: Mapping[str, Tensor]) -> Tensor:
    """The first unit's, in one row."""
    parts = [gradients[name][0].flatten() for name in sorted(gradients)]
    return torch.cat(parts) if parts else torch.zeros(0)


def _compare_first(before: Tensor, after: Tensor, scale: Tensor, coarse: bool) -> None:
    room = _COARSE if coarse else _LAST_DIGITS.get(before.dtype, _COARSE)
    largest = float(scale.abs().max()) if scale.numel() else 0.0
    same = before.shape == after.shape
    if not same or not torch.allclose(before, after, rtol=room, atol=room * largest):
        _refuse_mixing()


def _refuse_unseen(tape: Tape, losses: Tensor) -> None:
    """Raises if a parameter enters the losses by a way that was not recorded."""
    names = {id(p): name for name, p in tape.parameters.items()}
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


def _compare_gradients(
    fast: Mapping[str, Tensor], slow: Mapping[str, Tensor], coarse: bool
) -> None:
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
        "gradient depends on others. Use it inside forward, use the optimizer's weight_decay, or "
        "freeze it"
    )
