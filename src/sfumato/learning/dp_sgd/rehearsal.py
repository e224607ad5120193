"""The rehearsal: the whole loop on made-up data, before anything private is read or spent.

A private gradient is only as good as three facts about the model, and none of them can be read off
its code: every trainable parameter's use was seen; each example's gradient depends on that example
alone; the loss is one number an example. So the loop is first run on a few made-up rows:

1. a batch of a telling size, to learn where each function holds its batch;
2. a batch of three, whose per-example gradients are formed the fast way;
3. the first of the three with two copies of itself in the others' places;
4. each of the three alone, whose gradient autograd forms in its own way;
5. the three in a crowd as large as a physical batch, everyone else's numbers being NaN; then
   everyone else being copies of the first, behind the three and before them;
6. on several ranks, the three where other ranks have other rows;
7. the three once more, also under coins by which rare things happen
   (:mod:`~sfumato.learning.crafted_coins`); and if the model draws, eight, each with a coin of its
   own, then without one of them;
8. the three, of which one or two hold numbers that made-up rows do not, then in a crowd of all
   classes and in one of few (:mod:`~sfumato.learning.dp_sgd.strange_rows`);
9. three that end in zeros, then with one that is full; and where a data set's items may be longer
   or shorter, three as they are, then with one of them longer or shorter.

The first example's loss and gradient in 2 and 3 must agree to the last digits, because the same
arithmetic is done (else examples are mixed, however little). Those of 2 and 4 must agree but for
rounding (else examples are mixed by their number, or a gradient is wrong). NaN spreads through
means, maxima and small coefficients alike: in 5 it must not reach the three, at the size that
will be trained with. 6 must be as 2 (else examples are mixed across ranks: see
:mod:`~sfumato.learning.dp_sgd.distributed.strangers`), and so must 7 (else the model remembers).
In 8 those that stay must stay, too. In 9 the others' losses and gradients must agree but for
rounding: else padding counts, or how long others are, and one long row would move everybody's
gradient. A model that masks padding passes; so does one behind a collate that pads to a declared
length, as :class:`~sfumato.learning.dp_sgd.padding.PadTo` does.
In the graph of 2 every way to a parameter must lead through a recorded call (else a use was not
seen). No buffer may change. Made-up rows hold nothing of the data but its shapes, so the outcome
is the same for every table.
Randomness inside the model (dropout) is held still meanwhile; in 5 at three levels, in case it
decides who is mixed with whom. Parameters that are all zero hold other numbers meanwhile: behind a
last layer at zero nothing could be compared (:mod:`~sfumato.learning.dp_sgd.zeros`).

What no rehearsal can see: a model that turns to mixing later, on a condition of its own (at a
length beyond all that were tried, say).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from sfumato.learning.crafted_coins import RARE
from sfumato.learning.dp_sgd.company import Company
from sfumato.learning.dp_sgd.distributed import Alone, Ranks, agreement
from sfumato.learning.dp_sgd.distributed.strangers import casts, strange
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.layout import AmbiguousLayout, telling_sizes
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.lookups import Looked
from sfumato.learning.dp_sgd.made_up import NAN, extreme
from sfumato.learning.dp_sgd.other_coins import Draws
from sfumato.learning.dp_sgd.recording import Recorder
from sfumato.learning.dp_sgd.refusals import (
    compare_first,
    compare_gradients,
    compare_losses,
    compare_padded,
    refuse_batch_norm,
    refuse_memory,
    refuse_mixing,
    refuse_unseen,
    require_finite,
)
from sfumato.learning.dp_sgd.stepping import as_training_error
from sfumato.learning.dp_sgd.stillness import LEVELS, HoldStill
from sfumato.learning.dp_sgd.strange_rows import companies_of_classes, strangers
from sfumato.learning.secret_coins import ModelCoins

__all__ = ["noted", "rehearse"]

_ALONE = 3
_MANY = 8  # units with coins of their own
_PICTURES = 4  # dimensions of several; a class for each point has one less


@contextlib.contextmanager
def noted(rehearsing: bool) -> Generator[None]:
    """Says of an error in a rehearsal that it is one."""
    try:
        yield
    except Exception as error:
        if rehearsing and not getattr(error, "__notes__", None):
            error.add_note(NOTE)
        raise


NOTE = (
    "raised in the rehearsal, on made-up rows: nothing private was read, nothing was charged. "
    "Floating-point inputs are random, some of them NaN, infinite or very large on purpose; whole "
    "numbers are 0 or 1, and where none is looked up, others. Give "
    "a few public, plausible rows as example=; use losses of logits; leave validation of values "
    "out (validate_args=False). Rows of a data set may be longer or shorter than the first: where "
    "the model cannot take that, pad and cut them by collate=sf.PadTo(length). With fit, the loss "
    "is called as loss(model, *batch)"
)


Turn = Generator[Any, Tensor, Tensor]


def rehearse(
    recorder: Recorder,
    imitate: Callable[[int], Any],
    copies: int,
    crowd: int,
    ranks: Ranks | None = None,
    companies: Iterable[Company] = (),
    several: bool = False,
    looked: Callable[[], Mapping[int, Looked]] = dict,
    caught: bool = False,
) -> Generator[Any, Tensor, None]:
    """Yields made-up batches, is sent their losses, and raises if the model cannot be trained.

    Whoever plays it does so inside of :func:`~sfumato.learning.dp_sgd.zeros.none_at_zero`.

    Args:
        recorder: of the model; its tape learns where batches are.
        imitate: makes a batch of so many rows up.
        copies: rows of one unit.
        crowd: units in the largest physical batch.
        ranks: who else rehearses at the same time; None for nobody.
        companies: rows in company of other lengths.
        several: whether a row that comes may move others to another physical batch.
        looked: what is known, after the first turn, of the batch's parts by their numbers.
        caught: whether whoever plays it catches what losses raise, and passes over the turn.

    Raises:
        TrainingError: naming what is wrong, and the remedy.
    """
    model = recorder.model
    refuse_batch_norm(model)
    _require_rows(imitate(_ALONE * copies), _ALONE * copies)
    before = {name: b.detach().clone() for name, b in model.named_buffers()}
    recorder.tape.on_call = still = HoldStill(model)
    try:
        # In TF32, convolutions of three rows and of one differ too much.
        with full_precision(), _no_draws_but_torchs(model):
            yield from _learn(recorder, imitate, copies)
            if still.draws is not None:
                still.draws.refuse("the model", several)
                still.draws = None
            rehearsal = _Rehearsal(recorder, still, imitate(_ALONE * copies), copies)
            yield from rehearsal.play(imitate, crowd, ranks or Alone())
            if still.drew:
                yield from rehearsal.with_own_coins(imitate)
            yield from rehearsal.among_strangers(looked(), caught)
            if crowd > _ALONE:
                yield from rehearsal.among_classes(imitate, crowd, looked(), caught)
            for company in companies:
                yield from _among_lengths(recorder, still, company, copies)
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


def _require_rows(batch: Any, rows: int) -> None:
    for leaf in pytree.tree_leaves(batch):
        if not isinstance(leaf, Tensor) or leaf.shape[:1] != (rows,):
            kind = type(leaf).__name__
            shape = f" of shape {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else ""
            raise TrainingError(
                f"every part of a batch must be a tensor with one row for each example, got a "
                f"{kind}{shape}: leave it out in collate, or give each example its own"
            )


class _Rehearsal:
    """The turns after the first, on one batch of three units."""

    def __init__(self, recorder: Recorder, still: HoldStill, batch: Any, copies: int) -> None:
        self._recorder, self._tape, self._still = recorder, recorder.tape, still
        self._batch, self._copies, self._rows = batch, copies, _ALONE * copies

    def play(
        self, imitate: Callable[[int], Any], crowd: int, ranks: Ranks
    ) -> Generator[Any, Tensor, None]:
        """All turns."""
        self._recorder.expect(self._rows, _ALONE)
        losses = yield self._batch
        require_finite(losses)
        refuse_unseen(self._tape, losses)
        self._losses = losses.detach().clone()
        self._gradients = _fast(self._tape, losses)
        require_finite(*self._gradients.values())
        yield from self._with_itself()
        yield from self._alone()
        if crowd > _ALONE:
            yield from self._in_a_crowd(imitate, crowd)
        yield from self._among_ranks(ranks)
        yield from self._again()

    def _with_itself(self) -> Generator[Any, Tensor, None]:
        copies, coarse = self._copies, self._still.coarse
        self._recorder.expect(self._rows, _ALONE)
        losses = yield pytree.tree_map(lambda leaf: _repeated(leaf, copies), self._batch)
        compare_first(
            self._losses[:copies], losses.detach()[:copies], self._losses, self._still.coarse
        )
        own, again = _first(self._gradients), _first(_fast(self._tape, losses))
        compare_first(own, again, own, coarse)

    def _alone(self) -> Generator[Any, Tensor, None]:
        for unit in range(_ALONE):
            rows = slice(unit * self._copies, (unit + 1) * self._copies)
            self._recorder.expect(self._copies, 1)
            losses = yield pytree.tree_map(lambda leaf, rows=rows: leaf[rows], self._batch)
            with as_training_error():
                self._tape.raise_deferred()
            coarse = self._still.coarse
            compare_losses(self._losses[rows], losses.detach(), coarse)
            slow = _slow(self._tape, losses)
            require_finite(*slow.values())
            self._tape.clear()
            compare_gradients({n: g[unit] for n, g in self._gradients.items()}, slow, coarse)

    def _in_a_crowd(
        self, imitate: Callable[[int], Any], crowd: int
    ) -> Generator[Any, Tensor, None]:
        company = imitate((crowd - _ALONE) * self._copies)
        usual = self._losses
        # NaN, and bytes as large as they can be; then one unit less, in case the model looks how
        # many there are. (Large numbers may make a loss raise, and fit leaves such rows out.)
        for level, units in (*((level, crowd) for level in LEVELS), (LEVELS[0], crowd - 1)):
            others = (units - _ALONE) * self._copies
            batch = pytree.tree_map(
                lambda leaf, other, rows=others: torch.cat(
                    [leaf, extreme(other[:rows], NAN, dims=_PICTURES)]
                ),
                self._batch,
                company,
            )
            self._still.level = level
            self._recorder.expect(units * self._copies, units)
            losses = yield batch
            own = losses.detach()[: self._rows]
            first = _of_first(self._tape, losses)
            if not all(bool(t.isfinite().all()) for t in (own, *first.values())):
                refuse_mixing()
            if level == LEVELS[0]:
                usual = own.clone() if units == crowd else usual
                compare_losses(self._losses, own, self._still.coarse)
                expected = {name: g[0] for name, g in self._gradients.items()}
                compare_gradients(first, expected, self._still.coarse)
        self._still.level = LEVELS[0]
        yield from self._among_copies(crowd, usual)

    def _among_copies(self, crowd: int, usual: Tensor) -> Generator[Any, Tensor, None]:
        """First in a queue of copies, then last: places may be few."""
        rows, extra, copies = self._rows, crowd - _ALONE, self._copies
        for last in (False, True):
            self._recorder.expect(crowd * copies, crowd)
            losses = yield pytree.tree_map(
                lambda leaf, last=last: _queue(leaf, copies, extra, last), self._batch
            )
            self._tape.clear()
            found = losses.detach()
            if last:
                compare_losses(self._losses, found[-rows:], self._still.coarse)
            else:
                compare_first(usual, found[:rows], self._losses, self._still.coarse)

    def _among_ranks(self, ranks: Ranks) -> Generator[Any, Tensor, None]:
        """While other ranks have other rows. All hear of a refusal before the next turn."""
        for stranger in casts(ranks.rank, ranks.count):
            self._recorder.expect(self._rows, _ALONE)
            losses = yield strange(self._batch) if stranger else self._batch
            with agreement.telling(ranks):
                found = _fast(self._tape, losses)  # a stranger's, too: others may wait for it
                if not stranger:
                    coarse, own = self._still.coarse, self._losses
                    compare_first(own, losses.detach(), own, coarse)
                    own = _in_one_row(self._gradients)
                    compare_first(own, _in_one_row(found), own, coarse)
            agreement.require_all_well(ranks)

    def _again(self) -> Generator[Any, Tensor, None]:
        self._recorder.expect(self._rows, _ALONE)
        losses = yield self._batch
        self._tape.clear()
        refuse_memory(self._losses, losses.detach(), self._still.coarse)
        for level in RARE:  # in case something happens rarely
            self._recorder.expect(self._rows, _ALONE, level=level)
            losses = yield self._batch
            self._tape.clear()
            refuse_memory(self._losses, losses.detach(), self._still.coarse)

    def with_own_coins(self, imitate: Callable[[int], Any]) -> Generator[Any, Tensor, None]:
        """Each row has its own random number, and one unit less leaves the others theirs.

        Else what is drawn for a row follows from what was drawn for all: their mean, the largest,
        the first one's.
        """
        batch = imitate(_MANY * self._copies)
        unit = torch.arange(_MANY * self._copies) // self._copies
        values = torch.where(unit % 2 == 0, 0.1, 0.9) + 1e-3 * torch.arange(len(unit)) / len(unit)
        usual: Tensor | None = None
        try:
            for gone in (None, 0, 1, _MANY - 1):
                kept = (unit != (-1 if gone is None else gone)).nonzero()[:, 0]
                self._still.by_row = values[kept]
                self._recorder.expect(len(kept), len(kept) // self._copies)
                losses = yield pytree.tree_map(
                    lambda leaf, kept=kept: leaf[kept.to(leaf.device)], batch
                )
                self._tape.clear()
                usual = losses.detach().clone() if usual is None else usual
                chosen = usual[kept.to(usual.device)]
                compare_first(chosen, losses.detach(), chosen, self._still.coarse)
        finally:
            self._still.by_row = None

    def among_strangers(
        self, looked: Mapping[int, Looked], caught: bool
    ) -> Generator[Any, Tensor, None]:
        """Beside rows of numbers that made-up rows do not have."""
        for trial in strangers(self._batch, self._copies, looked, caught):
            usual = self._losses, self._gradients
            if trial.usual is not None:
                usual = yield from self._maybe(trial.usual, caught)
            other = None if usual is None else (yield from self._maybe(trial.batch, caught))
            if usual is None or other is None:
                continue
            coarse, chosen = self._still.coarse, list(trial.units)
            one, two = (each[0].reshape(_ALONE, -1)[chosen] for each in (usual, other))
            compare_first(one, two, one, coarse)
            one, two = (
                _in_one_row({n: g[chosen] for n, g in each[1].items()}) for each in (usual, other)
            )
            compare_first(one, two, one, coarse)

    def among_classes(
        self, imitate: Callable[[int], Any], crowd: int, looked: Mapping[int, Looked], caught: bool
    ) -> Generator[Any, Tensor | None, None]:
        """In a crowd of all classes, and of one for the most part."""
        company = imitate((crowd - _ALONE) * self._copies)
        for others in companies_of_classes(company, self._copies, looked, caught):
            self._recorder.expect(crowd * self._copies, crowd, may_raise=caught)
            losses = yield pytree.tree_map(lambda *each: torch.cat(each), self._batch, others)
            self._tape.clear()
            if losses is not None:
                compare_losses(self._losses, losses.detach()[: self._rows], self._still.coarse)

    def _maybe(
        self, batch: Any, caught: bool
    ) -> Generator[Any, Tensor | None, tuple[Tensor, dict[str, Tensor]] | None]:
        """Losses and gradients of a batch, or None if its losses raise."""
        self._recorder.expect(self._rows, _ALONE, may_raise=caught)
        losses = yield batch
        if losses is None:
            return None
        return losses.detach().clone(), _fast(self._tape, losses)


def _among_lengths(
    recorder: Recorder, still: HoldStill, company: Company, copies: int
) -> Generator[Any, Tensor, None]:
    """Some units as they are, then in company of another length."""
    found = list[tuple[Tensor, dict[str, Tensor]]]()
    for batch in (company.usual, company.other):
        _require_rows(batch, _ALONE * copies)
        recorder.expect(_ALONE * copies, _ALONE)
        losses = yield batch
        by_unit = losses.detach().reshape(_ALONE, copies)
        found.append((by_unit.clone(), _fast(recorder.tape, losses)))
    (losses, gradients), (other_losses, others) = found
    if not all(bool(t.isfinite().all()) for t in (losses, *gradients.values())):
        return  # rows as short as these have no loss
    for unit in company.units:
        compare_padded({"": losses[unit]}, {"": other_losses[unit]}, still.coarse)
        compare_padded(
            {name: g[unit] for name, g in gradients.items()},
            {name: g[unit] for name, g in others.items()},
            still.coarse,
        )


@contextlib.contextmanager
def _no_draws_but_torchs(model: nn.Module) -> Generator[None]:
    """Raises if NumPy or Python draw in a forward pass: that cannot be held still and checked."""
    before: list[dict[str, int | None]] = []

    def enter(module: nn.Module, args: Any) -> None:
        before.append(ModelCoins.drawn_since())

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        known = before.pop()
        for whose, count in ModelCoins.drawn_since().items():
            if known.get(whose) != count:
                raise TrainingError(
                    f"{whose} draws in the model's forward pass, which cannot be checked: draw "
                    "with torch's functions there, a number for each row"
                )

    hooks = model.register_forward_pre_hook(enter), model.register_forward_hook(leave)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _learn(recorder: Recorder, imitate: Callable[[int], Any], copies: int) -> Turn:
    tape = recorder.tape
    example = pytree.tree_leaves(imitate(1))
    lengths = {n for leaf in example if isinstance(leaf, Tensor) for n in leaf.shape[1:]}
    lengths |= {n for p in tape.parameters.values() for n in p.shape}
    last: Exception | None = None
    for size in telling_sizes(lengths):
        tape.sites.clear()
        if isinstance(tape.on_call, HoldStill):
            tape.on_call.draws = Draws(size)
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


def _slow(tape: Tape, losses: Tensor) -> dict[str, Tensor]:
    with as_training_error():
        found = tape.run_backward(losses.sum(), list(tape.leaves.values()))
    dense = (g if g is None or g.layout == torch.strided else g.to_dense() for g in found)
    return {n: g for n, g in zip(tape.leaves, dense, strict=True) if g is not None}


def _same(one: Tensor, two: Tensor | None) -> bool:
    return two is not None and one.shape == two.shape and torch.equal(one, two)


def _repeated(leaf: Tensor, copies: int) -> Tensor:
    """The first unit's rows in everybody's place."""
    return torch.cat([leaf[:copies]] * _ALONE)


def _queue(leaf: Tensor, copies: int, extra: int, last: bool) -> Tensor:
    """The rows before or after so many copies of the first unit's."""
    company = [leaf[:copies]] * extra
    return torch.cat([*company, leaf] if last else [leaf, *company])


def _first(gradients: Mapping[str, Tensor]) -> Tensor:
    """The first unit's, in one row."""
    return _in_one_row({name: gradient[0] for name, gradient in gradients.items()})


def _in_one_row(gradients: Mapping[str, Tensor]) -> Tensor:
    parts = [gradients[name].flatten() for name in sorted(gradients)]
    return torch.cat(parts) if parts else torch.zeros(0)
