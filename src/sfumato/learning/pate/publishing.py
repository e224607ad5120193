"""Publishing what answers cost for these data: which parts there are, and how much noise.

The data-dependent cost of a run is private. A plan may include one release of it, by
:class:`~sfumato.learning.pate.privacy.Sanitiser`, whose own cost is part of the plan's guarantee
and is charged like any other. How much noise that takes is chosen beforehand, for votes that are
assumed and not for the real ones:

    >>> from sfumato.learning.pate.aggregators import GaussianMax
    >>> chosen = sanitiser_for(GaussianMax(40.0), answers=30, questions=30, teachers=250,
    ...                        classes=10, delta=1e-5)
    >>> chosen.order
    20.0

The published number speaks of these data only, and of this run where checks decide what is answered
(:mod:`~sfumato.learning.pate.privacy.smooth`). What holds for all data is the plan's guarantee.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.learning.pate.aggregators import Aggregator, ConfidentMax, GaussianMax, InteractiveMax
from sfumato.learning.pate.privacy.confident import compared
from sfumato.learning.pate.privacy.local import Answers, Checks, Part
from sfumato.learning.pate.privacy.smooth import (
    PublishedCost,
    Sanitiser,
    choose_sanitiser,
    smooth_sensitivity,
)

__all__ = ["ASSUMED", "assumed_votes", "parts_of", "sanitiser_for"]

ASSUMED = ((1.0, 0.5), (0.97, 0.25), (0.8, 0.15), (0.6, 0.1))
"""Shares of the teachers who agree, and in which share of the questions: a guess, and public."""

_ORDERS = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 14.0, 20.0)


def parts_of(
    aggregator: Aggregator,
    votes: NDArray[np.int64],
    answered: NDArray[np.bool_],
    opinions: NDArray[np.float64] | None = None,
) -> list[Part]:
    """The checks and the answers of a run.

    Args:
        aggregator: how votes became answers; with Gaussian noise.
        votes: (questions, classes) counts. Private.
        answered: which questions were answered.
        opinions: the student's probabilities, for interactive answers.

    Raises:
        ValueError: for Laplace noise, whose cost has no such release.
    """
    if not isinstance(aggregator, (GaussianMax, ConfidentMax, InteractiveMax)):
        validation.fail(
            "aggregator", "one with Gaussian noise, to publish its cost", aggregator.kind
        )
    parts: list[Part] = [Answers(votes[answered], aggregator.sigma)] if answered.any() else []
    if isinstance(aggregator, GaussianMax):
        return parts
    teachers = aggregator.teachers if isinstance(aggregator, InteractiveMax) else None
    top = compared(votes, None if teachers is None else opinions, teachers)
    return [Checks(top, aggregator.threshold, aggregator.sigma_check), *parts]


def assumed_votes(questions: int, teachers: int, classes: int) -> NDArray[np.int64]:
    """So many questions' votes, as :data:`ASSUMED` has them; the rest goes to one other class."""
    tops = np.concatenate(
        [np.full(max(1, round(part * questions)), share) for share, part in ASSUMED]
    )
    votes = np.zeros((len(tops), max(2, classes)), dtype=np.int64)
    votes[:, 0] = np.rint(tops * teachers)
    votes[:, 1] = teachers - votes[:, 0]
    return votes


def sanitiser_for(
    aggregator: Aggregator,
    answers: int,
    questions: int,
    teachers: int,
    classes: int,
    delta: float,
    confidence: float = 0.999,
) -> Sanitiser:
    """The one whose published epsilon would be least, if votes were as assumed."""
    votes = assumed_votes(questions, teachers, classes)
    answered = np.arange(len(votes)) < answers
    opinions = None
    if isinstance(aggregator, InteractiveMax):
        opinions = np.full(votes.shape, 1 / votes.shape[1])
    parts = parts_of(aggregator, votes, answered, opinions)

    def epsilon(chosen: Sanitiser) -> float:
        order = chosen.order
        spread = smooth_sensitivity(parts, order, chosen.beta, teachers)
        value = sum(part.cost(order) for part in parts) + chosen.margin * spread
        own = float(chosen.cost([order])[0])
        return PublishedCost(order, value, confidence, own).epsilon(delta)

    found = [choose_sanitiser(parts, teachers, order, confidence) for order in _ORDERS]
    return min(found, key=epsilon)
