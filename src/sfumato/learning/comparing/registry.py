"""The methods there are: a new one is a file, and a line here."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.core import validation
from sfumato.learning.comparing.codes import PrivateCodes
from sfumato.learning.comparing.functional_network import FunctionalNetwork
from sfumato.learning.comparing.gradient import Convolutional, LinearSteps, WithoutPrivacy
from sfumato.learning.comparing.labels import PrivateLabels
from sfumato.learning.comparing.linear import Linear
from sfumato.learning.comparing.methods import Group, Method
from sfumato.learning.comparing.noisy_records import NoisyRecords
from sfumato.learning.comparing.teachers import Teachers

__all__ = ["all_methods", "method_called", "method_names", "methods_called"]

_METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Linear("input", Group.INPUT, "noise on every row, by itself"),
        NoisyRecords(),
        Linear("objective", Group.OBJECTIVE, "a random tilt of what is minimised"),
        Linear("functional", Group.OBJECTIVE, "noise on the coefficients of a quadratic"),
        FunctionalNetwork(),
        PrivateCodes(),
        Linear("output", Group.OUTPUT, "noise on the minimiser"),
        Linear("sgd", Group.OUTPUT, "noise on the last weights of plain descent"),
        LinearSteps(),
        Convolutional(),
        Teachers(),
        PrivateLabels(),
        WithoutPrivacy(),
    )
}


def method_names() -> tuple[str, ...]:
    """By where their noise goes.

    >>> method_names()[:3], method_names()[-1]
    (('erm-input', 'adaptive-laplace', 'erm-objective'), 'plain')
    """
    return tuple(_METHODS)


def all_methods() -> tuple[Method, ...]:
    """In the same order."""
    return tuple(_METHODS.values())


def method_called(name: str) -> Method:
    """The method of this name.

    Raises:
        ValueError: if there is none.
    """
    if name not in _METHODS:
        validation.fail("method", f"one of {', '.join(_METHODS)}", name)
    return _METHODS[name]


def methods_called(names: Sequence[str] | None) -> tuple[Method, ...]:
    """Those of these names, in the usual order; all for None.

    Raises:
        ValueError: for an unknown name, or none at all.
    """
    if names is None:
        return all_methods()
    if not names:
        raise ValueError(f"methods must be some of {', '.join(_METHODS)}, got none")
    wanted = {method_called(name).name for name in names}
    return tuple(method for method in all_methods() if method.name in wanted)
