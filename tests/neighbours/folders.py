"""Folders of runs, copied, cut off, put back and gone on with in any order.

The law: in all places together no more lots are run than were charged, whatever was done to the
folders meanwhile; and who was refused is not accepted later without anything having changed.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from hypothesis import strategies as st
from tests.neighbours.harness import Case
from torch import nn
from torch.nn import functional as F

__all__ = ["FolderCase", "World", "folder_cases"]

STEPS = 12
_X = torch.randn(30, 4, generator=torch.Generator().manual_seed(1))
_Y = (_X[:, 0] > 0).long()


class _CutOffError(BaseException):
    """The process was killed."""


@dataclass(frozen=True)
class FolderCase(Case):
    """What is done to one run's folder, and to copies of it.

    Attributes:
        every: after how many steps a checkpoint is written.
        deeds: pairs of a verb and a place, or two places; ``run`` has a number of steps.
    """

    kind: ClassVar[str] = "folders"
    every: int
    deeds: tuple[tuple[Any, ...], ...]

    def broken(self) -> list[str]:
        """More lots than were charged."""
        home = Path(tempfile.mkdtemp(prefix="pair"))
        try:
            return self._live(home)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def _live(self, home: Path) -> list[str]:
        import sfumato as sf

        ledger = sf.Ledger(home / "ledger.db", create=True)
        ledger.create("rows", sf.Budget(1e4, 1e-2), unit="record")
        world = World(home, ledger, self.every)
        for deed in self.deeds:
            world.do(*deed)
        charged = STEPS * world.charges()
        if world.run <= charged:
            return []
        return [f"{world.run} lots were run, {charged} charged"]


class World:
    """Places with folders, and one ledger."""

    def __init__(self, home: Path, ledger: Any, every: int) -> None:
        self.home, self.ledger, self.every, self.run = home, ledger, every, 0

    def charges(self) -> int:
        """How many runs are paid for."""
        entries = [e.to_dict() for e in self.ledger.history("rows")]
        return sum(entry["kind"] == "reserve" for entry in entries)

    def do(self, verb: str, place: str, *rest: Any) -> None:
        """One deed; what cannot be done is not done."""
        folder = self.home / place
        if rest[0] == place:
            return
        if verb == "run":
            self._go_on(folder, rest[0])
        elif verb == "copy" and folder.exists():
            target = self.home / rest[0]
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
        elif verb == "move" and folder.exists():
            target = self.home / rest[0]
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
        elif verb in ("lose", "cut", "empty") and folder.exists():
            self._damage(folder, verb, rest[0])
        elif verb == "mix" and folder.exists() and (self.home / rest[0]).exists():
            self._mix(folder, self.home / rest[0], rest[1])

    def _files(self, folder: Path) -> list[Path]:
        return sorted(p for p in folder.rglob("*") if p.is_file())

    def _damage(self, folder: Path, verb: str, which: int) -> None:
        files = self._files(folder)
        if not files:
            return
        path = files[which % len(files)]
        if verb == "lose":
            path.unlink()
        elif verb == "empty":
            path.write_bytes(b"")
        else:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def _mix(self, folder: Path, other: Path, seed: int) -> None:
        """Some files of one folder take the place of the other's."""
        chosen = random.Random(seed)
        for path in self._files(other):
            if chosen.random() < 0.5:
                target = folder / path.relative_to(other)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)

    def _go_on(self, folder: Path, steps: int) -> None:
        begun = folder.exists()
        with contextlib.suppress(Exception, _CutOffError):
            for _ in itertools.islice(self._steps(folder, begun), steps):
                pass

    def _steps(self, folder: Path, begun: bool) -> Iterator[None]:
        import sfumato as sf

        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        trainer = sf.DPSGD(
            model, optimizer, (_X, _Y), public_size=30, lot_size=10, steps=STEPS,
            noise_multiplier=5.0, delta=1e-5, checkpoints=folder, checkpoint_every=self.every,
            progress=False, ledger=self.ledger, dataset="rows",
        )  # fmt: skip
        if begun:
            trainer.resume()
        for x, y in trainer:
            trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
            if not trainer.rehearsing:
                self.run += 1
                yield


@st.composite
def folder_cases(draw: st.DrawFn) -> FolderCase:
    """A run is begun; then anything happens."""
    places = st.sampled_from(["a", "b", "c"])
    few = st.integers(1, 9)
    deed = st.one_of(
        st.tuples(st.just("run"), places, few),
        st.tuples(st.just("run"), places, few),
        st.tuples(st.just("copy"), places, places),
        st.tuples(st.just("move"), places, places),
        st.tuples(st.sampled_from(["lose", "cut", "empty"]), places, st.integers(0, 20)),
        st.tuples(st.just("mix"), places, places, st.integers(0, 50)),
    )
    deeds = draw(st.lists(deed, min_size=3, max_size=9))
    return FolderCase(draw(st.sampled_from([1, 1, 2, 5])), (("run", "a", draw(few)), *deeds))
