"""Who called: the user's own code, or a library's."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["called_by_a_library", "caller", "is_installed", "is_own_affair"]

_BETWEEN = frozenset(  # where calls are looked at, and where Python's own begin
    {
        __name__,
        "random",
        "sfumato.learning.dp_sgd.numpy_seeds",
        "sfumato.learning.dp_sgd.other_coins",
    }
)
_BESIDE = ("torch", "sfumato")  # which draw what is no row's, and copy states
_IMPORTING = "importlib._bootstrap"


def _callers() -> Iterator[str]:
    """The modules of all that called, the innermost first."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name not in _BETWEEN:
            yield name
        frame = frame.f_back


def caller() -> str:
    """The module of whoever called."""
    return next(_callers(), "")


def called_by_a_library() -> bool:
    """Whose own draws (the order of a public data loader, say) are its own affair."""
    return is_installed(caller().partition(".")[0])


def is_own_affair() -> bool:
    """Whether a NumPy generator is made for no row: by torch, or by a library's import.

    Other libraries make generators from the seeds that they are given.
    """
    if caller().partition(".")[0] in _BESIDE:
        return True
    for name in _callers():
        if name == _IMPORTING:
            return True
        if not is_installed(name.partition(".")[0]):
            return False
    return False


@functools.cache
def is_installed(package: str) -> bool:
    """Whether it came with Python or an installer, so that it is not the user's own."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if package in sys.stdlib_module_names or package == "sfumato":
        return True
    return file is not None and bool({"site-packages", "dist-packages"} & set(Path(file).parts))
