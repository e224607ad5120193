"""Planning: how many teachers, which noise, how many answers for an epsilon. No data is read.

What answers cost, whatever the votes, is an event and any accountant turns it into epsilon:

    >>> from sfumato.learning.pate.aggregators import ConfidentMax, GaussianMax
    >>> epsilon_after(GaussianMax(sigma=40), answers=286, delta=1e-5).epsilon < 2.5
    True
    >>> most_answers(GaussianMax(sigma=40), epsilon=2, delta=1e-5)
    201
    >>> least_noise(GaussianMax, answers=200, epsilon=2, delta=1e-5)
    39.877

How useful the answers will be depends on how far teachers agree, which is private. A plan assumes
it: shares of the votes for a few typical questions, guessed or taken from public data.

    >>> assumed = [[0.9, 0.05, 0.05], [0.5, 0.3, 0.2]]
    >>> best = explore([(250, ConfidentMax(sigma=40, threshold=200, sigma_check=150))], assumed,
    ...                epsilon=2, delta=1e-5)[0]
    >>> best.answers, round(best.answered_share, 2), round(best.plurality, 2)
    (160, 0.44, 0.92)

``epsilon`` is what a budget is charged and holds for all data. ``epsilon_if_assumed`` is the
data-dependent epsilon if the real votes were the assumed ones: how much less the same answers would
say of such data, by RDP. It is a forecast, not a guarantee.

Reference: Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson, "Scalable private learning
with PATE", arXiv:1802.08908.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from sfumato.accounting import Accountant, account, calibrate
from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import epsilon_from_rdp
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.privacy.assumed import Assumed, as_assumed
from sfumato.learning.pate.privacy.costs import (
    answer_costs,
    check_costs,
    passing,
    run_event,
    winning,
)

__all__ = [
    "Forecast",
    "PlannedCost",
    "epsilon_after",
    "explore",
    "least_noise",
    "most_answers",
    "planned_cost",
    "questions_for",
]

_MOST_ANSWERS = 10**8


def epsilon_after(
    aggregator: Aggregator,
    answers: int,
    delta: float,
    *,
    questions: int | None = None,
    accountant: Accountant | str = Accountant.PLD,
    unit: str = "record",
) -> Guarantee:
    """What so many answers (and checks, one for each question) promise, whatever the votes."""
    event = run_event(aggregator, answers, questions, unit)
    return account(event, delta, accountant=accountant)


def most_answers(
    aggregator: Aggregator,
    epsilon: float,
    delta: float,
    *,
    questions_per_answer: float = 1.0,
    accountant: Accountant | str = Accountant.PLD,
) -> int:
    """The most answers within ``epsilon``, whatever the votes; 0 if not even one fits.

    Args:
        aggregator: how votes become answers.
        epsilon: the whole budget.
        delta: its delta.
        questions_per_answer: how many questions are checked for one that is answered, 1 or above.
        accountant: which theorem; "rdp" is a ledger's currency.
    """
    epsilon = validation.positive("epsilon", epsilon)
    ratio = validation.positive("questions_per_answer", questions_per_answer)
    if ratio < 1:
        validation.fail("questions_per_answer", "1 or above", questions_per_answer)

    def fits(answers: int) -> bool:
        found = epsilon_after(
            aggregator, answers, delta, questions=questions_for(answers, ratio),
            accountant=accountant,
        )  # fmt: skip
        return found.epsilon <= epsilon

    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= _MOST_ANSWERS and fits(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def questions_for(answers: int, questions_per_answer: float) -> int:
    """How many are asked for so many answers; never fewer."""
    return max(answers, math.ceil(answers * min(questions_per_answer, 1e9)))


@final
@dataclass(frozen=True)
class PlannedCost:
    """Epsilon against the number of answers, whatever the votes. Public.

    Attributes:
        aggregator: how votes become answers, as a dictionary.
        answers: after so many answers ...
        questions: ... to so many questions ...
        epsilons: ... epsilon for all data.
        delta: of it.
        accountant: by which theorem.
    """

    aggregator: dict[str, Any]
    answers: tuple[int, ...]
    questions: tuple[int, ...]
    epsilons: tuple[float, ...]
    delta: float
    accountant: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def planned_cost(
    aggregator: Aggregator,
    answers: int,
    delta: float,
    *,
    questions_per_answer: float = 1.0,
    accountant: Accountant | str = Accountant.PLD,
    points: int = 25,
) -> PlannedCost:
    """What answers cost as they are given, up to so many.

    Args:
        aggregator: how votes become answers.
        answers: the last point.
        delta: of the epsilons.
        questions_per_answer: how many questions are checked for one that is answered.
        accountant: which theorem.
        points: at how many numbers of answers.

    >>> from sfumato.learning.pate.aggregators import GaussianMax
    >>> cost = planned_cost(GaussianMax(sigma=40), 300, 1e-5, points=3)
    >>> cost.answers, [round(epsilon, 2) for epsilon in cost.epsilons]
    ((1, 150, 300), [0.11, 1.7, 2.5])
    """
    last = validation.count("answers", answers)
    some = np.linspace(1, last, min(validation.count("points", points), last))
    at = np.unique(some.astype(int)).tolist()
    asked = [questions_for(number, questions_per_answer) for number in at]
    found = [
        epsilon_after(aggregator, number, delta, questions=questions, accountant=accountant)
        for number, questions in zip(at, asked, strict=True)
    ]
    return PlannedCost(
        aggregator.to_dict(),
        tuple(at),
        tuple(asked),
        tuple(one.epsilon for one in found),
        delta,
        str(accountant),
    )


def least_noise(
    make: Callable[[float], Aggregator],
    answers: int,
    epsilon: float,
    delta: float,
    *,
    questions: int | None = None,
    accountant: Accountant | str = Accountant.PLD,
) -> float:
    """The least x at which so many answers of ``make(x)`` cost ``epsilon`` or less.

    Args:
        make: from the noise to an aggregator: a sigma, or a scale as in
            ``lambda scale: LaplaceMax(1 / scale)``; more x must mean more noise.
        answers: how many.
        epsilon: the whole budget.
        delta: its delta.
        questions: how many are checked.
        accountant: which theorem.

    Raises:
        ValueError: if no noise does, such as when the checks alone cost more.
    """
    return calibrate(
        lambda x: run_event(make(x), answers, questions), epsilon, delta, accountant=accountant
    )


@final
@dataclass(frozen=True)
class Forecast:
    """What one choice of teachers and noise would give, if teachers agreed as assumed.

    Attributes:
        teachers: how many.
        aggregator: how votes become answers, as a dictionary.
        answers: the most that the budget allows.
        questions: how many are asked for them, about.
        answered_share: of the questions, about.
        plurality: probability that an answer is the class with most votes.
        right: probability that an answer is right, about: that of the class with most votes, and
            that this one is right; None where the latter is not assumed.
        epsilon: for all data, of these answers and questions.
        epsilon_if_assumed: data-dependent, if votes were as assumed. A forecast.
        delta: of both.
    """

    teachers: int
    aggregator: dict[str, Any]
    answers: int
    questions: int
    answered_share: float
    plurality: float
    right: float | None
    epsilon: float
    epsilon_if_assumed: float
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


def explore(
    options: Iterable[tuple[int, Aggregator]],
    agreement: ArrayLike | Assumed | Callable[[int], ArrayLike | Assumed],
    epsilon: float,
    delta: float,
    *,
    opinions: ArrayLike | None = None,
    answers: int | None = None,
    most_questions: int | None = None,
    accountant: Accountant | str = Accountant.RDP,
) -> list[Forecast]:
    """A forecast for each choice of teachers and noise, in the order given.

    Args:
        options: pairs of a number of teachers and an aggregator.
        agreement: (kinds of question, classes) assumed shares of the votes, all kinds equally
            frequent; or a function from the number of teachers to them, as more teachers have fewer
            rows each and agree less, such as :func:`~.assumed.mnist_agreement`.
        epsilon: the whole budget.
        delta: its delta.
        opinions: (kinds of question, classes) the student's assumed probabilities, for interactive
            answers.
        answers: no more than these, even if more fit.
        most_questions: how many questions there are; no limit by default.
        accountant: which theorem; a ledger's by default.
    """
    assumed = agreement if callable(agreement) else lambda _: agreement
    limits = (answers, most_questions)
    return [
        _forecast(
            validation.count("teachers", teachers),
            aggregator,
            as_assumed(assumed(teachers)),
            opinions,
            (validation.positive("epsilon", epsilon), delta),
            limits,
            accountant,
        )
        for teachers, aggregator in options
    ]


def _forecast(
    teachers: int,
    aggregator: Aggregator,
    assumed: Assumed,
    opinions: ArrayLike | None,
    budget: tuple[float, float],
    limits: tuple[int | None, int | None],
    accountant: Accountant | str,
) -> Forecast:
    votes, (epsilon, delta) = teachers * assumed.shares, budget
    passes = passing(aggregator, votes, opinions)
    share = float(passes.mean())
    weights = passes / max(passes.sum(), 1e-300)
    ratio = 1 / max(share, 1e-9)
    answers = most_answers(
        aggregator, epsilon, delta, questions_per_answer=ratio, accountant=accountant
    )
    wanted, most_questions = limits
    if wanted is not None:
        answers = min(answers, validation.count("answers", wanted))
    if most_questions is not None:
        answers = min(answers, int(validation.count("most_questions", most_questions) * share))
    asked = questions_for(answers, ratio) if answers else 0
    spent, forecast = 0.0, 0.0
    if answers:
        found = epsilon_after(aggregator, answers, delta, questions=asked, accountant=accountant)
        spent = found.epsilon
        each = weights @ answer_costs(aggregator, votes, DEFAULT_ORDERS)
        check = check_costs(aggregator, votes, DEFAULT_ORDERS, opinions).mean(axis=0)
        forecast = epsilon_from_rdp(DEFAULT_ORDERS, answers * each + asked * check, delta)
    wins = winning(aggregator, votes)
    return Forecast(
        teachers,
        aggregator.to_dict(),
        answers,
        asked,
        share,
        float(weights @ wins),
        None if assumed.right is None else float(weights @ (wins * assumed.right)),
        spent,
        forecast,
        delta,
    )
