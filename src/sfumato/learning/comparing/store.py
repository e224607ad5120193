"""A comparison's folder: what is done stays done.

====================  =========================================================================
``results.jsonl``     what is compared, then a line for each run that came to its end
``runs/NAME/``        the folder of each run, as ``sfumato train`` leaves it
====================  =========================================================================

All of it is the curator's: only the owner may open it. (Of each run the public part may be shown,
the run's own folder says which.) A folder is for one process at a time.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from sfumato.core.guarantee import Guarantee
from sfumato.learning.comparing.cells import Cell
from sfumato.learning.durable import JsonLines
from sfumato.learning.runs.folder import RunFolder

__all__ = ["Result", "Store", "accuracy_in", "clear_unfinished"]

_RESULTS, _RUNS = "results.jsonl", "runs"


@final
@dataclass(frozen=True)
class Result:
    """What came out of one run.

    Attributes:
        cell: which.
        guarantee: as its record states it.
        accuracy: on the test rows; None where there are none.
        seconds: that it took, and of processors.
    """

    cell: Cell
    guarantee: Guarantee
    accuracy: float | None
    seconds: float
    processor_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return self.cell.to_dict() | {
            "guarantee": self.guarantee.to_dict(), "accuracy": self.accuracy,
            "seconds": self.seconds, "processor_seconds": self.processor_seconds,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Result:
        """The inverse of :meth:`to_dict`."""
        given = dict(data)
        cell = Cell(*(given.pop(name) for name in ("method", "epsilon", "repeat")))
        return cls(cell, Guarantee.from_dict(given.pop("guarantee")), **given)


@final
class Store:
    """The folder, while it is open.

    Args:
        path: new, empty, or one in which the same task was compared.
        asked: all that a run's result depends on besides its cell, JSON-ready.

    Raises:
        ValueError: if the folder holds anything else, or is in use; then nothing is changed.
    """

    def __init__(self, path: Path, asked: dict[str, Any]) -> None:
        self.path = path
        wanted = json.loads(json.dumps(asked))
        _require_free(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.chmod(0o700)
        busy = f"out must not be in use, but another process is at work in {path}: wait for it"
        self._lines = JsonLines(path / _RESULTS, busy)
        entries = [entry for entry in self._lines.entries if entry is not None]
        if not entries:
            self._lines.write({"compared": wanted})
        elif entries[0].get("compared") != wanted:
            self._lines.close()
            raise ValueError(
                f"out must be new, or hold a comparison of the same task, but the one in {path} "
                f"has {_differences(entries[0].get('compared', {}), wanted)}: give another folder"
            )
        found = [Result.from_dict(entry) for entry in entries[1:]]
        self.results = {result.cell: result for result in found}

    def keep(self, result: Result) -> None:
        """Writes it down; when this returns, it is on disk."""
        self._lines.write(result.to_dict())
        self.results[result.cell] = result

    def folder(self, cell: Cell) -> Path:
        """Of a run."""
        return self.path / _RUNS / cell.key

    def close(self) -> None:
        """Lets others have it."""
        self._lines.close()


def accuracy_in(folder: RunFolder) -> float | None:
    """Of a finished run, from its public record, or from what its curator was told."""
    told = folder.record()["facts"].get("accuracy")
    if told is not None or not (folder.curator / "results.json").exists():
        return told
    own = folder.read_curator("results.json")
    curve = own.get("curve") or [{}]
    return own.get("accuracy", curve[-1].get("accuracy"))


def clear_unfinished(path: Path, goes_on: bool) -> bool:
    """Whether a run in this folder is to be gone on with; removes one that cannot be."""
    folder = RunFolder(path)
    if not path.exists() or (folder.begun and goes_on):
        return path.exists()
    shutil.rmtree(path)
    return False


def _require_free(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise ValueError(f"out must be a folder, but {path} is a file: give another name")
    if not (path / _RESULTS).exists() and any(path.iterdir()):
        raise ValueError(
            f"out must be a new or empty folder, or hold a comparison to go on with, but {path} "
            "holds other things: give another folder"
        )


def _differences(there: dict[str, Any], wanted: dict[str, Any]) -> str:
    names = [name for name in wanted if there.get(name) != wanted[name]]
    plain = [name for name in names if name != "examples"]
    said = [f"{name} {there.get(name)} instead of {wanted[name]}" for name in plain]
    return " and ".join(said) or "other examples"
