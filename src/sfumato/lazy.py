"""Names of a package that are loaded when they are first used.

    __getattr__ = loader(__name__, {"Adaptive": "clipping", ...})

What is light can so be had without what its neighbours need, and a missing extra is told as such
(:mod:`~sfumato.extras`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from sfumato.extras import needed_for

__all__ = ["homes", "loader"]


def homes(names: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, for the names of each module in one text."""
    return {name: module for module, text in names.items() for name in text.split()}


def loader(package: str, home_of: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``package``, whose names are in these modules of it."""

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        with needed_for(f"{package}.{name}"):
            value = getattr(import_module(f"{package}.{home_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
