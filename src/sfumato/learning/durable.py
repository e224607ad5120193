"""What a crash of the machine must not undo."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_folder"]


def sync_folder(folder: Path) -> None:
    """Returns when the names of the files in ``folder`` are on disk.

    To sync a new file is not enough: after a power loss it may be whole, and have no name.
    """
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
