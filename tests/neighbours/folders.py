"""Folders of runs, copied, cut off, put back and gone on with in any order.

The law: in all places together no more lots are run than were charged, whatever was done to the
folders meanwhile; and who was refused is not accepted later without anything having changed.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from tests.neighbours.harness import Case
from tests.runs import RUNS, CutOff

__all__ = ["FolderCase", "World", "folder_cases"]


@dataclass(frozen=True)
class FolderCase(Case):
    """What is done to one run's folder, and to copies of it.

    Attributes:
        run: what kind of run it is.
        deeds: pairs of a verb and a place, or two places; ``run`` has a number of lots.
    """

    kind: ClassVar[str] = "folders"
    run: str
    deeds: tuple[tuple[Any, ...], ...]

    def broken(self) -> list[str]:
        """More lots than were charged."""
        home = Path(tempfile.mkdtemp(prefix="pair"))
        try:
            with pytest.MonkeyPatch.context() as patch:
                return self._live(home, patch)
        finally:
            shutil.rmtree(home, ignore_errors=True)

    def traits(self) -> frozenset[str]:
        """The kind of run and what was done to its folders."""
        return frozenset({self.run, *(deed[0] for deed in self.deeds)})

    def _live(self, home: Path, patch: pytest.MonkeyPatch) -> list[str]:
        world = World(home, RUNS[self.run](home, patch))
        try:
            for deed in self.deeds:
                world.do(*deed)
            run, charged = world.run.run, world.paid()
            sound = world.run.ledger.verify("people").ok
        finally:
            world.run.ledger.close()
        found = [] if run <= charged else [f"{run} lots were run, {charged} charged"]
        return found if sound else [*found, "the ledger is not sound"]


class World:
    """Places with folders, and one ledger."""

    def __init__(self, home: Path, run: Any) -> None:
        self.home, self.run = home, run

    def paid(self) -> int:
        """How many lots are paid for."""
        entries = [e.to_dict() for e in self.run.ledger.history("people")]
        charges = sum(entry["kind"] in ("reserve", "spend") for entry in entries)
        return charges * (self.run.lots if self.run.whole else 1)

    def do(self, verb: str, place: str, *rest: Any) -> None:
        """One deed; what cannot be done is not done."""
        folder = self.home / place
        if rest[0] == place:
            return
        if verb == "run":
            with contextlib.suppress(Exception, CutOff):
                self.run.go_on(place, rest[0])
        elif verb == "copy" and folder.exists():
            target = self.home / rest[0]
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(folder, target)
        elif verb == "move" and folder.exists():
            target = self.home / rest[0]
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
        elif verb in ("lose", "cut", "empty", "edit") and folder.exists():
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
        data = path.read_bytes()
        if verb == "lose":
            path.unlink()
        elif verb == "edit":
            place = which * 7919 % max(1, len(data))
            path.write_bytes(data[:place] + b"7" + data[place + 1 :])
        else:
            path.write_bytes(data[: len(data) // 2] if verb == "cut" else b"")

    def _mix(self, folder: Path, other: Path, seed: int) -> None:
        """Some files of one folder take the place of the other's."""
        chosen = random.Random(seed)
        for path in self._files(other):
            if chosen.random() < 0.5:
                target = folder / path.relative_to(other)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)


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
        st.tuples(st.sampled_from(["lose", "cut", "empty", "edit"]), places, st.integers(0, 20)),
        st.tuples(st.just("mix"), places, places, st.integers(0, 50)),
    )
    deeds = draw(st.lists(deed, min_size=3, max_size=9))
    return FolderCase(draw(st.sampled_from(sorted(RUNS))), (("run", "a", draw(few)), *deeds))
