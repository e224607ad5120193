# ruff: noqa: NPY002 - NumPy's global generator is what is tried
"""Training loops made of parts: one row more moves a clipped sum by C at most, or none runs.

A loop runs one step without noise on all rows, on the neighbour's rows, and on all rows again, each
time with fresh coins and the same public seeds. If the two runs on the same rows have the same sum,
nothing secret was drawn, and what was drawn is known to whoever knows the script: then the sums of
neighbours may be C apart at most. Otherwise secret draws stand in between. Then errors, records and
charges are compared, and the loop runs twice more with one set of coins and an ordinary row in the
place of the one that comes and goes: whatever was drawn, the sums may be 2 C apart at most.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.random as legacy
import torch
from hypothesis import strategies as st
from tests.neighbours import loop_parts as parts
from tests.neighbours import loop_rows
from tests.neighbours.harness import Case, Outcome, UnusableError, differences, done
from torch import Tensor

__all__ = ["LoopCase", "loop_cases"]

Numbered = list[tuple[int, loop_rows.Row]]
_FOUND_BY_READING = ("how often read", "with the next")
_UNTOUCHED = 1000  # the budget before anything is charged
_SAME = 1e-4  # rounding: rows come in another order each time
_ROOM = 1e-3
_COARSE = 0.05  # in bfloat16 others' gradients are rounded otherwise in a batch of another size


class _Unhashable:
    """What nothing can be told of."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no equality")


_OWNERS: dict[str, Any] = {
    "none": None, "nan": float("nan"), "a number": 7, "a fraction": 0.5, "huge": 10**400,
    "bytes": b"\xff", "a surrogate": "\udcff", "a list": [1], "an object": _Unhashable(),
    "a complex number": 1j, "as another's": "p0",
}  # fmt: skip


class _NoNoise:
    """Keeps sums as they are."""

    name, private = "none", False

    def __init__(self) -> None:
        self.sums: list[Tensor] = []

    def normal(self, like: Tensor, std: float) -> Tensor:
        self.sums.append(like.detach().double().flatten().clone())
        return torch.zeros_like(like)


@dataclass(frozen=True)
class LoopCase(Case):
    """A loop, its rows, and the one that comes and goes.

    Attributes:
        rows: kind of rows.
        count: of them.
        odd: what is odd about the row that comes and goes; "" if nothing.
        place: its number.
        items: whether rows come as a data set; else as tensors.
        change: what the data set does to a row.
        collate: how a batch is made.
        augment: what is done to it.
        dropout: what is drawn in the model.
        norm: normalisation.
        fill: what is done about missing values.
        middle: what is done to features.
        loss: which.
        batch: rows of a physical batch, or None.
        seed: what the script seeds all generators with.
        optimizer: by name.
        own_loop: whether the loop is the user's, or ``fit``'s.
        per_owner: rows that each owner has, who then comes and goes with all of hers; 0 for none.
        of_owner: the most rows of an owner in a lot.
        owner: what the owner that comes and goes is called by; "" for a number as the others'.
        copies: differently augmented copies of each row.
        schedule: of the learning rate, by name.
        precision: of the passes.
        workers: processes that read rows.
        clip: how rows are clipped.
        device: where the model is.
    """

    kind: ClassVar[str] = "loops"
    rows: str = "numbers"
    count: int = 8
    odd: str = ""
    place: int = 0
    items: bool = False
    change: str = "none"
    collate: str = "none"
    augment: str = "none"
    dropout: str = "none"
    norm: str = "none"
    fill: str = "none"
    middle: str = "none"
    loss: str = "each"
    batch: int | None = None
    seed: int = 0
    optimizer: str = "SGD"
    own_loop: bool = False
    per_owner: int = 0
    of_owner: int = 1
    owner: str = ""
    copies: int = 1
    schedule: str = ""
    precision: str = ""
    workers: int = 0
    clip: str = "flat"
    device: str = "cpu"

    def broken(self) -> list[str]:
        """Another error, or sums that are too far apart."""
        every = [*enumerate(self._table())]
        gone = {self.place}
        if self.per_owner:
            gone = {i for i, _ in every if i // self.per_owner == self.place // self.per_owner}
        left = [row for row in every if row[0] not in gone]
        if not left:
            raise UnusableError("no row is left, and nothing tells what one looks like")
        one, two = self._outcome(every), self._outcome(left)
        if self.items and one.error.startswith("TrainingError") and one.shape == _UNTOUCHED:
            # Refused for what the first rows look like: which reason is named may depend on them.
            one.error, two.error = (e.partition(":")[0] for e in (one.error, two.error))
        if self.change in _FOUND_BY_READING and _UNTOUCHED in (one.shape, two.shape):
            return []  # docs/training.md: the first rows are read for it, and need not show it
        found = differences(one, two)
        if found or one.error or one.numbers is None or two.numbers is None:
            return found
        moved = float((one.numbers - two.numbers).norm())
        if moved <= 1 + (_COARSE if self.precision == "autocast" else _ROOM):
            return []
        again = self._outcome(every)
        if again.numbers is None or float((one.numbers - again.numbers).norm()) > _SAME:
            return self._with_another(every)
        return [f"sums of neighbours are {moved:.3f} C apart, and draw nothing that is secret"]

    def _with_another(self, every: Numbered) -> list[str]:
        """What breaks where one row is another, and secret draws are the same."""
        generator = torch.Generator().manual_seed(8)
        other = list(every)
        other[self.place] = self.place, loop_rows.ROWS[self.rows.partition(",")[0]](generator)
        one, again, two = (self._outcome(rows, coins=3) for rows in (every, every, other))
        if one.numbers is None or again.numbers is None or two.numbers is None:
            return []  # another error is found without coins
        if float((one.numbers - again.numbers).norm()) > _SAME:
            return []  # draws that even these coins do not repeat
        moved = float((one.numbers - two.numbers).norm())
        room = _COARSE if self.precision == "autocast" else _ROOM
        return [] if moved <= 2 + room else [f"sums are {moved:.3f} C apart for another row"]

    def _table(self) -> list[loop_rows.Row]:
        generator = torch.Generator().manual_seed(5)
        kind = self.rows.partition(",")[0]
        rows = [loop_rows.ROWS[kind](generator) for _ in range(self.count)]
        if self.odd:
            rows[self.place] = loop_rows.odd_row(kind, self.odd, generator)
        return rows

    def _outcome(self, rows: Numbered, coins: int | None = None) -> Outcome:
        folder = Path(tempfile.mkdtemp(prefix="pair"))
        try:
            return done(lambda out: self._train(out, rows, folder), [str(folder)], coins)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _train(self, outcome: Outcome, numbered: Numbered, folder: Path) -> None:
        import sfumato as sf

        rows = [row for _, row in numbered]

        torch.manual_seed(self.seed)
        legacy.seed(self.seed)
        random.seed(self.seed)
        parts.OWN.manual_seed(1)
        model = parts.network(
            self.rows, self.norm, parts.FILLS[self.fill], parts.MIDDLES[self.middle],
            parts.DROPOUTS[self.dropout],
        )  # fmt: skip
        model.precision = self.precision
        model.to(self.device)
        if self.precision == "double":
            model.double()
        ledger = sf.Ledger(folder / "ledger.db", create=True)
        unit = "owner" if self.per_owner else "record"
        ledger.create("rows", sf.Budget(_UNTOUCHED, 1e-3), unit=unit)
        noise, options = _NoNoise(), self._options()
        if self.per_owner:
            options["owners"] = self._owners([i // self.per_owner for i, _ in numbered])
            options["rows_per_owner"] = self.of_owner
        data: Any = loop_rows.Items(rows, loop_rows.CHANGES[self.change])
        if not self.items:
            data = tuple(torch.stack(each).to(self.device) for each in zip(*rows, strict=True))
        optimizer = getattr(torch.optim, self.optimizer)(model.parameters(), lr=0.1)
        if self.schedule:
            options["scheduler"] = parts.SCHEDULES[self.schedule](optimizer)
        try:
            trainer = sf.DPSGD(
                model, optimizer, data, public_size=self.count, lot_size=self.count, steps=1,
                noise_multiplier=1.0, delta=1e-5, noise=noise, progress=False, ledger=ledger,
                dataset="rows", **options,
            )  # fmt: skip
            each, device = parts.LOSSES[self.loss], self.device
            if self.own_loop:
                for x, y in trainer:
                    trainer.backward(each(model(x.to(device)), y.to(device)))
            else:
                trainer.fit(lambda model, x, y: each(model(x.to(device)), y.to(device)))
            outcome.numbers = torch.cat(noise.sums) if noise.sums else None
        finally:
            outcome.shape = ledger.status("rows").left

    def _owners(self, numbers: list[int]) -> Any:
        if not self.owner:
            return np.array(numbers)
        odd = _OWNERS[self.owner]
        mine = self.place // self.per_owner
        found = np.empty(len(numbers), object)
        for i, number in enumerate(numbers):
            found[i] = odd if number == mine else f"p{number}"
        return found

    def _options(self) -> dict[str, Any]:
        import sfumato as sf

        options: dict[str, Any] = {}
        if self.items and loop_rows.COLLATES[self.collate] is not None:
            options["collate"] = loop_rows.COLLATES[self.collate]
        if self.augment != "none":
            options["augment"] = parts.AUGMENTS[self.augment]
            options["augmentations"] = self.copies
        if self.batch is not None:
            options["batch_size"] = self.batch
        if self.items and self.workers:
            options["workers"] = self.workers
        if self.clip != "flat":
            options["clip"] = {"automatic": sf.Automatic, "per layer": sf.PerLayer}[self.clip](1.0)
        return options


@st.composite
def loop_cases(draw: st.DrawFn, device: str = "cpu") -> LoopCase:
    """Any loop; most have one odd part at most."""
    kinds = [*loop_rows.ROWS, "words, last", "words, masked"]
    rows = draw(st.sampled_from(kinds))
    words = rows.startswith("words")
    items = words or draw(st.booleans())
    chosen: dict[str, Any] = {}
    pools: dict[str, Any] = {
        "dropout": list(parts.DROPOUTS),
        "middle": list(parts.MIDDLES),
        "loss": list(parts.LOSSES),
        "norm": ["none", "layer", "group", "batch"],
        "fill": list(parts.FILLS),
        "batch": [None, 3],
        "optimizer": ["SGD", "Adam", "AdamW"],
        "own_loop": [False, True],
        "per_owner": [1, 2, 3],
        "schedule": sorted(parts.SCHEDULES),
        "precision": ["double", "autocast"],
        "clip": ["automatic", "per layer"],
    }
    if words:
        pools["collate"] = [name for name in loop_rows.COLLATES if name != "none"]
        chosen["collate"] = "by hand"
    else:
        pools["augment"] = list(parts.AUGMENTS)
        if items:
            pools["change"] = list(loop_rows.CHANGES)
    for name in draw(st.lists(st.sampled_from(sorted(pools)), max_size=3, unique=True)):
        chosen[name] = draw(st.sampled_from(pools[name]))
    if chosen.get("per_owner"):
        chosen["of_owner"] = draw(st.sampled_from([1, chosen["per_owner"]]))
        chosen["owner"] = draw(st.sampled_from(["", "", *_OWNERS]))
    if chosen.get("augment"):
        chosen["copies"] = draw(st.sampled_from([1, 1, 2]))
    if items and draw(st.integers(0, 9)) == 0:
        chosen["workers"] = 1
    count = draw(st.integers(2, 24))
    odds = ["", "nan", "inf", "huge", "small", "mark", "cell", "ignored"]
    # What a loss raises ends one's own loop, and on a GPU all work: docs/threat-model.md.
    if not chosen.get("own_loop") and device == "cpu":
        odds.append("label")
    odd = draw(st.sampled_from(odds))
    return LoopCase(
        rows, count, odd, draw(st.integers(0, count - 1)), items,
        seed=draw(st.sampled_from([0, 42])), device=device, **chosen,
    )  # fmt: skip
