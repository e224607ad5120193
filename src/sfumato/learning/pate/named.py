"""Aggregators by name, with what is usual for what is not said, and of equal noise side by side.

>>> aggregator_called("confident", noise=40, teachers=250)
ConfidentMax(sigma=40, threshold=150.0, sigma_check=160.0)
>>> [one.kind for one in of_equal_noise(40, teachers=250)]
['lnmax', 'gnmax', 'confident']
"""

from __future__ import annotations

import math

from sfumato.core import validation
from sfumato.learning.pate.aggregators import (
    Aggregator,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)

__all__ = ["AGGREGATORS", "CHECK_RATIO", "SHARE", "aggregator_called", "of_equal_noise", "spread"]

AGGREGATORS = ("lnmax", "gnmax", "confident", "interactive")
CHECK_RATIO = 4.0
"""A check's noise over an answer's, where it is not said."""
SHARE = 0.6
"""The share of the teachers who must agree, where it is not said."""


def aggregator_called(
    name: str,
    noise: float,
    teachers: int,
    *,
    threshold: float | None = None,
    sigma_check: float | None = None,
) -> Aggregator:
    """The aggregator of that name.

    Args:
        name: one of :data:`AGGREGATORS`.
        noise: of answers: sigma, or for lnmax the scale 1 / gamma.
        teachers: how many.
        threshold: votes it takes to pass a check; by default :data:`SHARE` of the teachers.
        sigma_check: noise of checks; by default :data:`CHECK_RATIO` times that of answers.
    """
    if name not in AGGREGATORS:
        validation.fail("aggregator", f"one of {', '.join(AGGREGATORS)}", name)
    if name == "lnmax":
        return LaplaceMax(1 / validation.positive("noise", noise))
    if name == "gnmax":
        return GaussianMax(noise)
    votes = SHARE * teachers if threshold is None else threshold
    check = CHECK_RATIO * noise if sigma_check is None else sigma_check
    if name == "confident":
        return ConfidentMax(noise, votes, check)
    return InteractiveMax(noise, votes, check, teachers)


def spread(aggregator: Aggregator) -> float:
    """The standard deviation of the noise on each count of an answer."""
    if isinstance(aggregator, LaplaceMax):
        return math.sqrt(2) / aggregator.gamma
    if isinstance(aggregator, GaussianMax | ConfidentMax | InteractiveMax):
        return aggregator.sigma
    raise ValueError(f"the noise of {aggregator.kind!r} answers is not known")


def of_equal_noise(
    sigma: float, teachers: int, *, sigma_check: float | None = None
) -> list[Aggregator]:
    """LNMax, GNMax and Confident-GNMax whose noisy counts have one standard deviation."""
    scale = {"lnmax": sigma / math.sqrt(2)}
    return [
        aggregator_called(name, scale.get(name, sigma), teachers, sigma_check=sigma_check)
        for name in AGGREGATORS[:3]
    ]
