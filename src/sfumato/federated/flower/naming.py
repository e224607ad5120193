"""Functions by name: ``module:function``, as a deployment's files say them.

>>> named("math:sqrt")(9.0)
3.0
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from sfumato.core import validation

__all__ = ["check_name", "named"]


def check_name(argument: str, text: str) -> str:
    """The name, if it has the form of one."""
    module, _, function = text.partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        validation.fail(argument, "of the form 'module:function'", text)
    return text


def named(text: str) -> Callable[..., Any]:
    """What is called so.

    Raises:
        ValueError: if it is not of that form, or names nothing that can be called.
        ImportError: if there is no such module.
    """
    module, _, function = check_name("name", text).partition(":")
    found = getattr(importlib.import_module(module), function, None)
    if not callable(found):
        validation.fail("name", "that of a function in its module", text)
    return found
