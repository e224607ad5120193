"""What a participant remembers from one message to the next: names and bytes.

In a deployment this is a private folder (:class:`FolderState`): what was stored there is on the
disk before the answer leaves, so a participant who is killed and started again knows what she has
already answered. In a simulation it is a record that Flower carries along (:class:`RecordState`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with FolderState(folder) as state:
    ...         state["round"] = b"3"
    ...     with FolderState(folder) as state:
    ...         dict(state)
    {'round': b'3'}
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, final
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from flwr.app import Context

__all__ = ["FolderState", "RecordState", "lock_folder"]

_SUFFIX = ".state"


def lock_folder(folder: Path) -> int:
    """Takes a folder for this process; it is free again when all copies of the handle are closed.

    Raises:
        BlockingIOError: if another process has it.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BlockingIOError(f"{folder} is in use: one process at a time") from None
    return handle


@final
class FolderState(MutableMapping[str, bytes]):
    """Names and bytes in a folder of which only the owner can read.

    Each value is a file of mode 0600 in a folder of mode 0700. Setting one is atomic and durable:
    written beside, flushed to the disk, renamed over the old one, the folder flushed. Only one
    process has the folder at a time.

    Args:
        folder: made if it is not there.

    Raises:
        BlockingIOError: if another process has it.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.chmod(0o700)
        self._handle = lock_folder(self._folder)

    def close(self) -> None:
        """Lets others have it. Closing twice does no harm."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _path(self, name: str) -> Path:
        return self._folder / (quote(name, safe="") + _SUFFIX)

    def __getitem__(self, name: str) -> bytes:
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: bytes) -> None:
        path = self._path(name)
        beside = path.with_suffix(".new")
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(value)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        os.fsync(self._handle)

    def __delitem__(self, name: str) -> None:
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise KeyError(name) from None
        os.fsync(self._handle)

    def __iter__(self) -> Iterator[str]:
        files = sorted(self._folder.glob(f"*{_SUFFIX}"))
        return iter([unquote(path.name[: -len(_SUFFIX)]) for path in files])

    def __len__(self) -> int:
        return len(list(iter(self)))


@final
class RecordState(MutableMapping[str, bytes]):
    """Names and bytes in a record of Flower's context: kept as long as the node's process.

    Args:
        context: the node's, in one run.
    """

    def __init__(self, context: Context) -> None:
        from flwr.app import ConfigRecord

        kept = context.state.get("sfumato")
        if not isinstance(kept, ConfigRecord):
            kept = ConfigRecord()
            context.state["sfumato"] = kept
        self._record = kept

    def __getitem__(self, name: str) -> bytes:
        value = self._record[name]
        assert isinstance(value, bytes)  # nothing else is ever put there
        return value

    def __setitem__(self, name: str, value: bytes) -> None:
        self._record[name] = value

    def __delitem__(self, name: str) -> None:
        del self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._record))

    def __len__(self) -> int:
        return len(self._record)
