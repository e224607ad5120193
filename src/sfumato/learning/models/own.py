"""Models of one's own, by the name of a function."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from sfumato.core import validation
from sfumato.core.functions import function_named

__all__ = ["make_own"]


def make_own(name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> nn.Module:
    """What the function returns, which must be a module."""
    function = function_named("model", name)
    try:
        inspect.signature(function).bind(shape=shape, classes=classes, **options)
    except TypeError as error:
        raise ValueError(
            f"model must be a function that takes shape, classes and its options by name, got "
            f"{name!r}: {error}. Write one that returns an nn.Module, and give its options by "
            "their names (--model-option NAME=VALUE)"
        ) from None
    except ValueError:  # one that is not written in Python says nothing of what it takes
        pass
    made = function(shape=shape, classes=classes, **options)
    if not isinstance(made, nn.Module):
        validation.fail("model", f"a function that returns an nn.Module ({name})", type(made))
    return made
