"""How many teachers, which noise, how many answers for an epsilon? Choices, from assumptions.

Two ways to ask. With the number of answers given, the least noise that epsilon allows is the same
for any number of teachers: few drown in it, too many have too few rows to be right. Without, each
number of teachers gets as much noise as its answers bear, and answers as many as epsilon allows.

    >>> from sfumato.learning.pate.named import aggregator_called
    >>> from sfumato.learning.pate.privacy.assumed import two_classes
    >>> def gnmax(sigma):
    ...     return aggregator_called("gnmax", sigma, teachers=250)
    >>> assumed = two_classes([0.9, 0.8])
    >>> found = for_answers(gnmax, 250, assumed, answers=200, epsilon=2, delta=1e-5)
    >>> round(found.aggregator["sigma"], 1), found.answers, round(found.plurality, 4)
    (39.9, 200, 0.9979)
    >>> found = for_certainty(gnmax, 250, assumed, sure=0.95, epsilon=2, delta=1e-5)
    >>> round(found.aggregator["sigma"]), found.answers, round(found.plurality, 2)
    (73, 670, 0.95)

No data is read: everything but the assumption is public, and the assumption must be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sfumato.accounting import Accountant, calibrate
from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.privacy.assumed import Assumed
from sfumato.learning.pate.privacy.costs import passing, run_event, winning
from sfumato.learning.pate.privacy.planning import Forecast, explore, questions_for

__all__ = ["best_of", "chance", "for_answers", "for_certainty"]

Make = Callable[[float], Aggregator]
"""From noise (a sigma, or a Laplace scale) to an aggregator; more must be more noise."""


def chance(forecast: Forecast) -> float:
    """That an answer is right; that it is the plurality's where nothing more is assumed."""
    return forecast.plurality if forecast.right is None else forecast.right


def for_answers(
    make: Make,
    teachers: int,
    assumed: Assumed,
    *,
    answers: int,
    epsilon: float,
    delta: float,
    accountant: Accountant | str = Accountant.PLD,
) -> Forecast:
    """With the least noise at which so many answers cost ``epsilon`` or less.

    Questions are as many as it takes for the answers, if votes are as assumed.

    Raises:
        ValueError: if no noise does.
    """
    votes, answers = teachers * assumed.shares, validation.count("answers", answers)

    def event(noise: float) -> Event:
        aggregator = make(noise)
        share = float(passing(aggregator, votes).mean())
        return run_event(aggregator, answers, questions_for(answers, 1 / max(share, 1e-9)))

    noise = calibrate(event, epsilon, delta, accountant=accountant)
    return explore(
        [(teachers, make(noise))], assumed, epsilon, delta, answers=answers, accountant=accountant
    )[0]


def for_certainty(
    make: Make,
    teachers: int,
    assumed: Assumed,
    *,
    sure: float,
    epsilon: float,
    delta: float,
    accountant: Accountant | str = Accountant.PLD,
) -> Forecast | None:
    """With the most noise at which answers are right with probability ``sure``; None if none is.

    "Right" as :func:`chance` has it.
    """
    sure = validation.open_probability("sure", sure)
    votes = teachers * assumed.shares

    def enough(noise: float) -> bool:
        return _chance(make(noise), votes, assumed) >= sure

    tried = np.geomspace(1e-3, 10.0, 60) * teachers
    fine = [place for place, noise in enumerate(tried) if enough(noise)]
    if not fine:
        return None
    low, high = tried[fine[-1]], tried[min(fine[-1] + 1, len(tried) - 1)]
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    aggregator = make(_rounded_down(low))
    return explore([(teachers, aggregator)], assumed, epsilon, delta, accountant=accountant)[0]


def _chance(aggregator: Aggregator, votes: np.ndarray, assumed: Assumed) -> float:
    passes = passing(aggregator, votes)
    right = winning(aggregator, votes) * (1.0 if assumed.right is None else assumed.right)
    return float(passes @ right / max(passes.sum(), 1e-300))


def _rounded_down(noise: float) -> float:
    """To three digits."""
    step = 10.0 ** (math.floor(math.log10(noise)) - 2)
    return round(math.floor(noise / step) * step, 12)


def best_of(forecasts: Sequence[Forecast | None], by_answers: bool) -> int | None:
    """The place of the choice with the most answers, or with the surest; None if there is none.

    Args:
        forecasts: to choose from; None for what cannot be.
        by_answers: the most answers, and of as many the surest; otherwise the surest alone.
    """
    possible = [(place, one) for place, one in enumerate(forecasts) if one and one.answers]
    if not possible:
        return None
    if by_answers:
        return max(possible, key=lambda pair: (pair[1].answers, chance(pair[1])))[0]
    return max(possible, key=lambda pair: chance(pair[1]))[0]
