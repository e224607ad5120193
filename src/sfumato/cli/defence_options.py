"""Defences as they are written on the command line: ``clip=1+noise=0.01``, ``dp-sgd=8``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sfumato.core import validation

if TYPE_CHECKING:
    from sfumato.attacks.gradients.defences import Defence

__all__ = ["DEFENCES", "parsed_defences"]

DEFENCES = (
    "none, noise=DEVIATION, clip=NORM, prune=SHARE, dropout=SHARE, local=STEPS[@RATE], "
    "dp-sgd=EPSILON[@CLIP] for this one update; several joined by +"
)


def parsed_defences(text: str, delta: float) -> tuple[Defence, ...]:
    """What ``text`` says, in its order.

    Args:
        text: such as "clip=1+noise=0.01", or "none".
        delta: of "dp-sgd=EPSILON".

    Raises:
        ValueError: for anything that is not in :data:`DEFENCES`.
    """
    if text.strip() == "none":
        return ()
    return tuple(_one(part.strip(), delta) for part in text.split("+"))


def _one(text: str, delta: float) -> Defence:
    from sfumato.attacks.gradients import defences as known
    from sfumato.core.gaussian_profile import least_multiplier

    def private(epsilon: float, clip: float = 1.0) -> Defence:
        found = least_multiplier(validation.positive("dp-sgd", epsilon), delta)
        return known.PrivateSteps(clip, found)

    makers: dict[str, Callable[..., Defence]] = {
        "noise": known.GaussianNoise, "clip": known.Clipping, "prune": known.Pruning,
        "dropout": known.Dropout, "dp-sgd": private,
        "local": lambda steps, rate=0.1: known.LocalSteps(int(steps), rate),
    }  # fmt: skip
    name, _, values = text.partition("=")
    numbers = _numbers(values)
    most = 2 if name in ("local", "dp-sgd") else 1
    if name not in makers or numbers is None or not 1 <= len(numbers) <= most:
        validation.fail("defence", f"of {DEFENCES}", text)
    return makers[name](*numbers)


def _numbers(values: str) -> list[float] | None:
    try:
        return [float(value) for value in values.split("@")]
    except ValueError:
        return None
