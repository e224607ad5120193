"""One aggregator's costs and chances for given votes: which formula belongs to which.

Whatever is computed here from real votes is private. From assumed votes it is planning.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

import numpy as np
from numpy.typing import ArrayLike

from sfumato.core import validation
from sfumato.core.events import Event, compose, repeat
from sfumato.learning.pate.aggregators import (
    Aggregator,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)
from sfumato.learning.pate.privacy.confident import check_rdp, compared, log_passing
from sfumato.learning.pate.privacy.gaussian import gaussian_rdp, gaussian_winning
from sfumato.learning.pate.privacy.laplace import laplace_rdp, laplace_winning
from sfumato.learning.pate.privacy.votes import Floats, as_counts, as_orders

__all__ = ["answer_costs", "check_costs", "passing", "run_event", "winning"]


def run_event(
    aggregator: Aggregator, answers: int, questions: int | None = None, unit: str = "record"
) -> Event:
    """What so many answers to so many questions amount to, whatever the votes.

    Args:
        aggregator: how votes become answers.
        answers: how many.
        questions: how many were checked; as many as answers by default. Without checks it has no
            cost.
        unit: whose data one neighbour step changes.
    """
    answers = validation.count("answers", answers)
    asked = answers if questions is None else validation.at_least("questions", questions, answers)
    given = repeat(aggregator.answer_event(unit), answers)
    check = aggregator.check_event(unit)
    return given if check is None else compose(repeat(check, asked), given)


@singledispatch
def answer_costs(
    aggregator: Aggregator, votes: ArrayLike, orders: Sequence[float] | Floats
) -> Floats:
    """(questions, orders): the data-dependent RDP of an answer to each question."""
    raise ValueError(f"no data-dependent cost is known for {aggregator.kind!r} answers")


@answer_costs.register
def _(aggregator: LaplaceMax, votes: ArrayLike, orders: Sequence[float] | Floats) -> Floats:
    return laplace_rdp(votes, aggregator.gamma, orders)


@answer_costs.register
def _(
    aggregator: GaussianMax | ConfidentMax | InteractiveMax,
    votes: ArrayLike,
    orders: Sequence[float] | Floats,
) -> Floats:
    return gaussian_rdp(votes, aggregator.sigma, orders)


def check_costs(
    aggregator: Aggregator,
    votes: ArrayLike,
    orders: Sequence[float] | Floats,
    opinions: ArrayLike | None = None,
) -> Floats:
    """(questions, orders): the data-dependent RDP of each check; 0 where there are none."""
    if not isinstance(aggregator, ConfidentMax | InteractiveMax):
        return np.zeros((len(as_counts(votes)), len(as_orders(orders))))
    top = _compared(aggregator, votes, opinions)
    return check_rdp(top, aggregator.threshold, aggregator.sigma_check, orders)


def passing(aggregator: Aggregator, votes: ArrayLike, opinions: ArrayLike | None = None) -> Floats:
    """Pr[the check passes] for each question; 1 where there is none."""
    if not isinstance(aggregator, ConfidentMax | InteractiveMax):
        return np.ones(len(as_counts(votes)))
    top = _compared(aggregator, votes, opinions)
    return np.exp(log_passing(top, aggregator.threshold, aggregator.sigma_check)[0])


def _compared(
    aggregator: ConfidentMax | InteractiveMax, votes: ArrayLike, opinions: ArrayLike | None
) -> Floats:
    if isinstance(aggregator, ConfidentMax):
        return compared(votes)
    if opinions is None:
        raise ValueError(
            "opinions must be given for interactive answers: the student's probabilities, with "
            "which the votes are compared"
        )
    return compared(votes, opinions, aggregator.teachers)


def winning(aggregator: Aggregator, votes: ArrayLike) -> Floats:
    """Pr[an answer is the class with most votes] for each question."""
    if isinstance(aggregator, LaplaceMax):
        return laplace_winning(votes, aggregator.gamma)
    if isinstance(aggregator, GaussianMax | ConfidentMax | InteractiveMax):
        return gaussian_winning(votes, aggregator.sigma)
    raise ValueError(f"the law of {aggregator.kind!r} answers is not known")
