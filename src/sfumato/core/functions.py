"""Functions of the user's own, by name: ``"package.module:function"``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from sfumato.core import validation

__all__ = ["function_named", "names_function"]


def names_function(text: str) -> bool:
    """Whether it reads as the name of a function.

    >>> names_function("clinic.scans:read"), names_function("runs/a:b"), names_function("cnn")
    (True, False, False)
    """
    module, colon, function = text.partition(":")
    return bool(colon) and function.isidentifier() and all(map(str.isidentifier, module.split(".")))


def function_named(argument: str, text: str) -> Callable[..., Any]:
    """The function, also of a module in the folder one is in.

    Args:
        argument: what it was given as, for errors.
        text: its name.

    Raises:
        ValueError: if there is no such module, or no such function in it.
    """
    module, _, name = text.partition(":")
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        found = getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and misses another
        raise ValueError(
            f"{argument} must name a module that can be imported, got {text!r}"
        ) from None
    finally:
        sys.path.remove(here)
    if not callable(found):
        validation.fail(argument, f"'module:function', and {module} has that function", text)
    return found
