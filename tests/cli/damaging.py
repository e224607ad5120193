"""Files of run folders, damaged and edited, and the commands that read them.

Every place of a JSON file is left out, or gets a value of another kind; binaries and journals are
cut, and bytes of them changed. What a command says of it is read as of any line that is typed.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["READERS", "Damage", "damages", "furnish_runs"]

_PICTURES = "--data pictures.npz --declared pictures.toml --test tested.npz"
READERS = {
    "run": (
        f"attack membership --run run {_PICTURES} --shadows 0",
        f"train dp-sgd {_PICTURES} --like run --dry-run",
        "report run --json",
    ),
    "cut": ("train resume cut --no-progress",),
    "table": ("attack membership --run table --test others.csv --shadows 0", "report table --json"),
    "labels": ("train votes labels",),
    "scores.npy": ("attack exposure --scores scores.npy --canaries canaries.csv --exact",),
}
"""What reads each folder, or file."""

_VALUES = (None, True, -1, 0, 0.5, 3, "x", "", [], {}, [[]], [None], {"a": 1}, 10**30, [1, "x"])
_DROPPED = object()


@dataclass(frozen=True)
class Damage:
    """One file that is damaged in one way.

    Attributes:
        folder: that a command reads.
        file: in it; empty where the folder is a file.
        place: in JSON, the keys on the way; in other files, a number of bytes.
        value: what stands there then; ``None`` for a cut, in files that are no JSON.
    """

    folder: str
    file: str
    place: tuple[Any, ...]
    value: Any

    def __str__(self) -> str:
        what = "dropped" if self.value is _DROPPED else repr(self.value)
        return f"{self.folder}/{self.file} {list(self.place)}: {what}"

    def do(self, room: Path) -> None:
        """Damages the file in ``room``."""
        path = room / self.folder / self.file if self.file else room / self.folder
        if path.suffix == ".json":
            held = json.loads(path.read_text())
            around = held
            for key in self.place[:-1]:
                around = around[key]
            if not self.place:
                held = self.value
            elif self.value is _DROPPED:
                del around[self.place[-1]]
            else:
                around[self.place[-1]] = self.value
            path.write_text(json.dumps(held))
            return
        data = path.read_bytes()
        at = self.place[0]
        path.write_bytes(data[:at] + (b"" if self.value is None else self.value + data[at + 1 :]))


def furnish_runs(folder: Path) -> None:
    """Beside the furnished folders: a run that was cut off, and numbers in a NumPy file."""
    import numpy as np

    shutil.copytree(folder / "run", folder / "cut")
    (folder / "cut" / "record.json").unlink()
    np.save(folder / "scores.npy", np.linspace(0, 1, 9))
    (folder / "canaries.csv").write_text("canary,surprise\na,1\n")


def damages(room: Path, count: int, seed: int) -> Iterator[Damage]:
    """Damages of all files that the commands read, drawn by the seed."""
    chance = random.Random(seed)
    files = [
        (folder, str(path.relative_to(room / folder)) if path != room / folder else "")
        for folder in READERS
        for path in sorted([room / folder, *(room / folder).rglob("*")])
        if path.is_file() and path.suffix in (".json", ".jsonl", ".safetensors", ".npy", ".npz")
    ]
    for _ in range(count):
        folder, file = chance.choice(files)
        path = room / folder / file if file else room / folder
        if path.suffix == ".json":
            place = chance.choice([*_places(json.loads(path.read_text()))])
            value = chance.choice([_DROPPED, *_VALUES] if place else _VALUES)
            yield Damage(folder, file, place, value)
            continue
        size = path.stat().st_size
        at = chance.choice([chance.randrange(size), chance.randrange(min(size, 200))])
        byte = bytes([chance.randrange(256)])
        yield Damage(folder, file, (at,), chance.choice([None, byte, b" ", b"}", b"\n"]))


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _places(part, (*above, key))
