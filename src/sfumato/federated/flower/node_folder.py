"""A participant's folder while she takes part: one process has it, from before it writes there.

Without that a second start would write its plan over that of the first, which would read it at its
next message and take part in another federation than its owner joined.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as ward, NodeFolder(ward):
    ...     NodeFolder(ward)
    Traceback (most recent call last):
    BlockingIOError: ... is in use: one process at a time
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Self, final

from sfumato.federated.flower.state import lock_folder

__all__ = ["NodeFolder"]


@final
class NodeFolder:
    """Takes a folder, or does nothing to it.

    Args:
        folder: made if it is not there.
        files: where in it the node's files go.

    Raises:
        BlockingIOError: if another process has it.
    """

    def __init__(self, folder: str | Path, files: str = ".") -> None:
        self.path = Path(folder).resolve()
        self.files = self.path / files
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.handle = lock_folder(self.path)

    def prepare(self) -> Path:
        """Where the node's files go: now there, and for the owner alone."""
        self.files.mkdir(mode=0o700, exist_ok=True)
        self.files.chmod(0o700)
        return self.files

    def hand_on(self) -> None:
        """Whatever this process turns into has the folder, too."""
        os.set_inheritable(self.handle, True)

    def close(self) -> None:
        """Lets others have it, unless a process that was started with it lives on."""
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
