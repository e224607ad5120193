"""Models of one's own, by the name of a function."""

from __future__ import annotations

from typing import Any

from torch import nn

from sfumato.core import validation
from sfumato.core.functions import function_named

__all__ = ["make_own"]


def make_own(name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> nn.Module:
    """What the function returns, which must be a module."""
    made = function_named("model", name)(shape=shape, classes=classes, **options)
    if not isinstance(made, nn.Module):
        validation.fail("model", f"a function that returns an nn.Module ({name})", type(made))
    return made
