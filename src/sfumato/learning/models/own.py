"""Models of one's own, by the name of a function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from sfumato.core import validation

__all__ = ["make_own", "names_function"]


def names_function(name: str) -> bool:
    """Whether it reads ``"package.module:function"``."""
    module, colon, function = name.partition(":")
    return bool(colon) and function.isidentifier() and all(map(str.isidentifier, module.split(".")))


def make_own(name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> nn.Module:
    """What the function returns, which must be a module."""
    made = _function(name)(shape=shape, classes=classes, **options)
    if not isinstance(made, nn.Module):
        validation.fail("model", f"a function that returns an nn.Module ({name})", type(made))
    return made


def _function(name: str) -> Callable[..., Any]:
    """The function, also of a module in the folder one is in."""
    module, _, function = name.partition(":")
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        found = getattr(import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and misses another
        raise ValueError(f"model must name a module that can be imported, got {name!r}") from None
    finally:
        sys.path.remove(here)
    if not callable(found):
        validation.fail("model", f"'module:function', and {module} has that function", name)
    return found
