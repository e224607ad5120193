"""Checkpoints of a run: what it takes to go on, and a journal of what may already have happened.

A folder holds one run, readable by its owner only:

=================================  =================================================================
``plan.json``                      the digest of the plan; another plan's run is refused
``journal.jsonl``                  which lots may have been read, durable *before* they are
``checkpoint-<n>.safetensors``     step, weights, optimizer state and facts; the last two are kept
``checkpoint-<n>.part-<k>...``     the rest of its tensors, if files are to be small
=================================  =================================================================

Formal guarantees
- A checkpoint holds no coins: no noise key, no generator, no sampler's state.
- After a crash at any instant, power loss included, ``started`` is at least the number of lots for
  which :meth:`Checkpoints.note_started` returned, and the newest checkpoint for which
  :meth:`Checkpoints.save` returned can be read, or a newer one.
- Nothing is unpickled: tensors in the safetensors format, everything else in JSON.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> run = Checkpoints(folder, digest="abc")
    >>> for step in range(3):
    ...     run.note_started(step)
    >>> run.save(Checkpoint(2, {"weight": torch.zeros(4)}, {"note": "after two steps"}))
    >>> again = Checkpoints(folder, digest="abc")
    >>> again.load().step, again.started
    (2, 3)
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.charging import RunCharge
from sfumato.learning.dp_sgd.checkpoint_parts import divided, joined
from sfumato.learning.dp_sgd.optimizer_state import (
    flatten_state,
    load_weights,
    restore_state,
    weights_of,
)
from sfumato.learning.dp_sgd.started import StartedSteps
from sfumato.learning.durable import create, replace_durably
from sfumato.learning.journal import RunJournal

__all__ = [
    "MOST_BYTES",
    "Checkpoint",
    "Checkpoints",
    "flatten_state",
    "load_weights",
    "restore_state",
    "weights_of",
]

MOST_BYTES = 15 * 2**20
"""Of the tensors in one file of a small checkpoint; facts and names come on top."""

_FORMAT, _FORMATS = "2", ("1", "2")  # the first one's journal is another file
_PLAN = "plan.json"
_NAME = re.compile(r"checkpoint-(\d+)\.safetensors")
_KEPT = 2
_DAMAGE = (SafetensorError, ValueError, KeyError, TypeError, OSError)


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on.

    Attributes:
        step: how many steps are in the weights.
        tensors: by any name; moved to the CPU when saved, and there when loaded.
        facts: JSON: the plan and what :func:`flatten_state` gave. Tuples come back as lists.
    """

    step: int
    tensors: dict[str, Tensor]
    facts: dict[str, Any]


@final
class Checkpoints:
    """The folder of one run, which any number of processes may read, and one at a time write.

    Args:
        folder: created if need be, then for the owner only.
        digest: of the training plan.
        small: no file above :data:`MOST_BYTES`, by and large; a checkpoint is then several files.

    Raises:
        ValueError: if the folder holds another plan's run, or other things.
    """

    def __init__(self, folder: str | Path, digest: str, small: bool = False) -> None:
        self.folder, self._small = Path(folder), small
        self.digest = validation.name("digest", digest)
        _prepare(self.folder, self.digest)
        self._damaged: set[Path] = set()
        self._steps = StartedSteps(self.folder)
        known, told = self._steps.started, self._told_by_checkpoints()
        if told > known:
            warnings.warn(
                f"the journal in {self.folder} knows of {known} started steps, a "
                f"checkpoint of {told}: it was cut or replaced; the larger number counts",
                stacklevel=2,
            )
        self._steps.at_least(told)

    # --- what may have happened -----------------------------------------------------------------

    @property
    def started(self) -> int:
        """How many steps may have been started in all; 0 for a new folder.

        At least the number of calls of :meth:`note_started`, each repetition counted, and at least
        one more than the furthest step that it was called with.
        """
        return self._steps.started

    @property
    def journal(self) -> RunJournal:
        """The run's, once the folder was acquired."""
        return self._steps.journal

    def acquire(self) -> None:
        """Makes this the one that writes, and reads again what others wrote in the meantime.

        Raises:
            ValueError: if another trainer is at work in the folder.
        """
        self._steps.open(self._old_entry())
        self._steps.at_least(self._told_by_checkpoints())

    def charge_to(self, charge: RunCharge, steps: int) -> None:
        """From now on the ledger takes the run's turns in, too."""
        self._steps.charge_to(charge, steps)

    def note_started(self, step: int) -> None:
        """Writes down, durably, that the lot of ``step`` (the first is 0) is about to be read.

        Raises:
            WentOnElsewhere: if a copy of the folder went on: the lot must not be read.
        """
        step = validation.at_least("step", step, 0)
        self.acquire()
        self._steps.note(step)

    def _told_by_checkpoints(self) -> int:
        """What the newest readable checkpoint knew of: a journal may be lost."""
        return int((self._newest_header() or {"started": "0"})["started"])

    def _old_entry(self) -> int | None:
        """The charge of a run that the first version began; None for others."""
        header = self._newest_header()
        if header is None or header["format"] != "1":
            return None
        return json.loads(header["facts"])["charge"]["entry"]

    def _newest_header(self) -> dict[str, str] | None:
        for path in reversed(self._files()):
            with contextlib.suppress(*_DAMAGE):
                header = _header(path)
                if int(header["started"]) >= 0 and header["format"] in _FORMATS:
                    return header
        return None

    def close(self) -> None:
        """Lets another process write. The process's end does the same."""
        self._steps.close()

    # --- checkpoints ----------------------------------------------------------------------------

    def _files(self) -> list[Path]:
        """The oldest first."""
        found = [path for path in self.folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(found, key=_number)

    def save(self, checkpoint: Checkpoint) -> None:
        """Makes ``checkpoint`` the newest, durably; a crash before the end leaves the older ones.

        Raises:
            ValueError: if a tensor or a fact cannot be stored, or if another process is writing to
                the folder.
        """
        _require_plain(checkpoint.facts, "facts")
        header = {
            "format": _FORMAT,
            "digest": self.digest,
            "step": str(validation.at_least("step", checkpoint.step, 0)),
            "facts": json.dumps(checkpoint.facts),
        }
        tensors = _storable(checkpoint.tensors)
        self.acquire()
        header["started"] = str(self.started)
        groups, cut = divided(tensors, MOST_BYTES) if self._small else ([tensors], {})
        if self._small:
            header |= {"parts": str(len(groups) - 1), "cut": json.dumps(cut)}
        header["sha256"] = _seal(header, tensors)
        number = max(map(_number, self._files()), default=0) + 1
        target = self.folder / f"checkpoint-{number:08d}.safetensors"
        for part, group in enumerate(groups[1:], 1):
            self._write(_part(target, part), group)
        self._write(target, groups[0], header)  # last: a checkpoint is there once this file is
        self._drop_older()

    def _write(
        self, target: Path, tensors: dict[str, Tensor], header: dict[str, str] | None = None
    ) -> None:
        unfinished = self.folder / f".{target.name}.new"
        file = create(unfinished)
        try:
            save_file(tensors, unfinished, metadata=header)
        except BaseException:
            os.close(file)
            raise
        replace_durably(file, unfinished, target)

    def drop_all(self) -> None:
        """Of a run that was not paid for, and read nothing."""
        for path in self.folder.glob("checkpoint-*.safetensors"):
            path.unlink(missing_ok=True)

    def _drop_older(self) -> None:
        good = [path for path in self._files() if path not in self._damaged]
        for path in (*self._damaged, *good[:-_KEPT], *self.folder.glob(".*.new")):
            path.unlink(missing_ok=True)
        self._damaged.clear()
        kept = {path.stem for path in self._files()}
        for path in self.folder.glob("checkpoint-*.part-*.safetensors"):
            if path.name.partition(".")[0] not in kept:
                path.unlink(missing_ok=True)

    def load(self) -> Checkpoint | None:
        """The newest checkpoint that is whole, or None if there never was one.

        Each is checked against its own SHA-256. A damaged one is passed over with a warning.

        Raises:
            ValueError: if there are checkpoints, and all of them are damaged.
        """
        files = self._files()
        for path in reversed(files):
            try:
                return self._read(path)
            except _DAMAGE as error:
                self._damaged.add(path)
                warnings.warn(f"{path} is damaged and passed over: {error}", stacklevel=2)
        if not files:
            return None
        raise ValueError(
            f"folder must hold a readable checkpoint, but all {len(files)} in {self.folder} are "
            "damaged: restore them from a copy, or start again in a new folder and count the "
            f"{self.started} steps that may have run as spent"
        )

    def _read(self, path: Path) -> Checkpoint:
        header = _header(path)
        tensors = _tensors(path)
        if "parts" in header:
            more = [_tensors(_part(path, k + 1)) for k in range(int(header["parts"]))]
            tensors = joined([tensors, *more], json.loads(header["cut"]))
        if header.pop("sha256") != _seal(header, tensors):
            raise ValueError("its contents do not have the hash that it states")
        if header["format"] not in _FORMATS or header["digest"] != self.digest:
            raise ValueError("it was made by another version, or for another plan")
        return Checkpoint(int(header["step"]), tensors, json.loads(header["facts"]))


def _prepare(folder: Path, digest: str) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:  # two that begin at once: one writes the plan, the other one compares
        fcntl.flock(held, fcntl.LOCK_EX)
        _write_or_compare_plan(folder, digest)
    finally:
        os.close(held)


def _write_or_compare_plan(folder: Path, digest: str) -> None:
    plan, unfinished = folder / _PLAN, folder / f".{_PLAN}.new"
    if plan.exists():
        try:
            found = json.loads(plan.read_text())["digest"]
        except (ValueError, KeyError, TypeError):
            found = None
        if found != digest:
            raise ValueError(
                f"folder must be new or hold this plan's run, but {folder} holds a run of another "
                "plan: give this one a folder of its own, or resume with the plan as it was"
            )
        return
    if any(path != unfinished for path in folder.iterdir()):
        raise ValueError(
            f"folder must be new, empty or hold this plan's run, but {folder} holds other things: "
            "give the run a folder of its own"
        )
    folder.chmod(0o700)
    text = json.dumps({"format": _FORMAT, "digest": digest})
    replace_durably(create(unfinished, text.encode()), unfinished, plan)


def _number(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1])


def _part(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}.part-{number}{path.suffix}")


def _tensors(path: Path) -> dict[str, Tensor]:
    with safe_open(path, framework="pt", device="cpu") as file:
        # Copies: what was checked must not change when the file does.
        return {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118


def _header(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt", device="cpu") as file:
        return dict(file.metadata() or {})


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, dense, and none in another's memory."""
    ready: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        plain = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta
        if not plain or tensor.dtype is torch.complex128 or name == "__metadata__":
            raise ValueError(
                f"tensors must be dense, of a type and name that safetensors stores, got {name!r} "
                f"({tensor.dtype}, {tensor.layout}, on {tensor.device}): convert or rename it"
            )
        stored = tensor.detach().cpu().contiguous()
        place = stored.untyped_storage().data_ptr()
        ready[name] = stored.clone() if place in taken else stored
        taken.add(place)
    return ready


def _seal(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """A hash of everything that a checkpoint holds."""
    seal = hashlib.sha256()
    shapes = {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()}
    seal.update(json.dumps([dict(header), shapes], sort_keys=True).encode())
    for name in sorted(tensors):
        seal.update(memoryview(tensors[name].reshape(-1).view(torch.uint8).numpy()))  # type: ignore
    return seal.hexdigest()


def _require_plain(value: object, path: str) -> None:
    if value is None or isinstance(value, (bool, int, float, str)):
        return
    if isinstance(value, (list, tuple)):
        for i, entry in enumerate(value):
            _require_plain(entry, f"{path}[{i}]")
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        for key, entry in value.items():
            _require_plain(entry, f"{path}[{key!r}]")
    else:
        raise ValueError(
            f"{path} must be JSON (numbers, words, lists, dictionaries with words as keys), got a "
            f"{type(value).__qualname__}: convert it, or use flatten_state"
        )
