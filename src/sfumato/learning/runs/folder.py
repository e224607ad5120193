"""The folder of one training run.

=========================  =========================================================================
``record.json``            the public record: method, recipe, event, guarantee, public facts
``model.safetensors``      the trained weights, feature map included
``learning-curve.png``     accuracy on public data and epsilon against steps, where there is any
``curator/``               for the owner's eyes: the request, checkpoints, losses, private results
=========================  =========================================================================

The first three may be shown to anybody: they hold only what was charged for, or what is public. Of
a run without privacy all of it, the folder itself included, is for the owner alone. A folder is
whole (:attr:`RunFolder.finished`) once ``record.json`` is there, which is written last. Nothing in
it is ever unpickled.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from safetensors.torch import load_file, save
from torch import Tensor

from sfumato.core.json_files import as_written, read_json
from sfumato.learning.durable import write_whole

__all__ = ["RunFolder"]

_RECORD, _MODEL, _CURVE = "record.json", "model.safetensors", "learning-curve.png"
_CURATOR, _REQUEST, _PRIVATE = "curator", "request.json", "private"


@final
class RunFolder:
    """Reads and writes a run's files, each whole or not at all.

    Args:
        path: of the folder; :meth:`begin` creates it.
        public: whether the record and the model may be shown. If not, nobody but the owner may
            open the folder, and the request says so to whoever finds a run that was cut off.
    """

    def __init__(self, path: str | Path, *, public: bool = True) -> None:
        self.path, self._public = Path(path), public
        self._made: list[Path] = []  # folders that begin() made, the innermost first

    @property
    def curator(self) -> Path:
        """What was read from private data without being charged, for its owner alone."""
        return self.path / _CURATOR

    @property
    def checkpoints(self) -> Path:
        """Where a run that was cut off goes on from."""
        return self.curator / "checkpoints"

    @property
    def curve(self) -> Path:
        """The learning curve, as a picture."""
        return self.path / _CURVE

    @property
    def model_file(self) -> Path:
        """The trained weights."""
        return self.path / _MODEL

    @property
    def record_file(self) -> Path:
        """The public record."""
        return self.path / _RECORD

    @property
    def begun(self) -> bool:
        """Whether it holds a run, finished or not."""
        return (self.curator / _REQUEST).exists() or self.finished

    @property
    def finished(self) -> bool:
        """Whether it holds a run that came to its end."""
        return self.record_file.exists()

    @property
    def without_privacy(self) -> bool:
        """Whether it holds a run without privacy, finished or not, as its request says."""
        asked = (self.curator / _REQUEST).exists()
        return asked and _object(self.curator / _REQUEST).get(_PRIVATE) is False

    # --- the request ----------------------------------------------------------------------------

    def require_new(self) -> None:
        """Raises unless the folder can take a run.

        Raises:
            ValueError: if it holds a run already, or other things.
        """
        if self.finished:
            raise ValueError(
                f"out must be a new folder, but {self.path} holds a finished run: give another"
            )
        if self.without_privacy:
            raise ValueError(
                f"out must be a new folder, but {self.path} holds a run without privacy that was "
                "cut off, or is still at work. Nothing was charged for it, and it cannot be gone "
                f"on with: remove it (rm -r {shlex.quote(str(self.path))}), or give another folder"
            )
        if self.begun:
            raise ValueError(
                f"out must be a new folder, but {self.path} holds a run that was cut off: go on "
                f"with it (sfumato train resume {self.path}), or give another"
            )
        if self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise ValueError(f"out must be a new or empty folder, but {self.path} is neither")

    def begin(self, request: Mapping[str, Any]) -> None:
        """Makes the folder and keeps what was asked for, so that it can be gone on with.

        Raises:
            ValueError: if the folder cannot take a run, or the request is no JSON; nothing is made.
        """
        self.require_new()
        text = _json(dict(request) | ({} if self._public else {_PRIVATE: False}))
        self._made = [p for p in (self.path, *self.path.parents) if not p.exists()]
        self.path.mkdir(parents=True, exist_ok=True)
        if not self._public:
            self.path.chmod(0o700)
        self.curator.mkdir(mode=0o700)
        self.curator.chmod(0o700)
        write_whole(self.curator / _REQUEST, text)

    def abandon(self) -> None:
        """Undoes :meth:`begin` for a run that came to nothing: no row read, nothing charged."""
        shutil.rmtree(self.curator, ignore_errors=True)
        if not self._public and not self.finished:
            self.model_file.unlink(missing_ok=True)
        for path in self._made:
            with contextlib.suppress(OSError):  # another run may have begun beside it
                path.rmdir()

    def request(self) -> dict[str, Any]:
        """What was asked for.

        Raises:
            ValueError: if there is no run.
        """
        if not (self.curator / _REQUEST).exists():
            raise ValueError(f"{self.path} must hold a run, but has no {_CURATOR}/{_REQUEST}")
        return _object(self.curator / _REQUEST)

    @property
    def request_file(self) -> Path:
        """What was asked for."""
        return self.curator / _REQUEST

    # --- files ----------------------------------------------------------------------------------

    def write_record(self, record: Mapping[str, Any]) -> None:
        """The last of a run's files."""
        write_whole(self.record_file, _json(record), public=self._public)

    def record(self) -> dict[str, Any]:
        """The public record.

        Raises:
            ValueError: if the run did not come to its end.
        """
        if not self.finished:
            raise ValueError(f"{self.path} must hold a finished run, but has no {_RECORD}")
        return _object(self.record_file)

    def write_model(self, tensors: Mapping[str, Tensor]) -> None:
        """The trained weights."""
        write_whole(self.model_file, _packed(tensors), public=self._public)

    def model(self) -> dict[str, Tensor]:
        """The trained weights, on the CPU.

        Raises:
            ValueError: if the file is damaged.
        """
        return _tensors(self.model_file)

    def write_curator(self, name: str, value: Any) -> None:
        """JSON, for the owner."""
        write_whole(self.curator / name, _json(value))

    def read_curator(self, name: str) -> Any:
        """What :meth:`write_curator` wrote."""
        return read_json(self.curator / name)

    def write_curator_tensors(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Safetensors, for the owner."""
        write_whole(self.curator / name, _packed(tensors))

    def read_curator_tensors(self, name: str) -> dict[str, Tensor] | None:
        """What :meth:`write_curator_tensors` wrote, or None."""
        path = self.curator / name
        return _tensors(path) if path.exists() else None


def _object(path: Path) -> dict[str, Any]:
    found = read_json(path)
    if not isinstance(found, dict):
        raise ValueError(f"{path} must hold a JSON object, but does not: restore it from a copy")
    return found


def _tensors(path: Path) -> dict[str, Tensor]:
    with as_written(path):
        return load_file(path)


def _json(value: Any) -> bytes:
    try:
        return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"what a run's folder keeps must be JSON: {error}") from None


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    return save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})
