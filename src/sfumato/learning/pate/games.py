"""PATE as a game for an audit: what is released on one table of votes, or on its neighbour.

The auditor makes up the votes: near ties, on which one teacher matters most. Everything after the
votes is as in a run: the same checks, the same noise, the same end when the plan is used up, and
the same student.

    >>> from sfumato.core.randomness import SeededCoins
    >>> from sfumato.learning.pate import AnswerPlan, GaussianMax
    >>> plan = AnswerPlan(GaussianMax(1.0), answers=2)
    >>> released_labels(np.array([[5, 95], [90, 10], [3, 97]]), plan, SeededCoins(1))
    [1, 0]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.pate.aggregators import Aggregator, Opinion
from sfumato.learning.pate.answering import Answering, NoMoreAnswers
from sfumato.learning.pate.ballots import Ballots
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.students import Student, logits_of

__all__ = ["released_labels", "single_answers", "student_probabilities", "vote_splits"]

_SPLITS = 20


def released_labels(
    votes: NDArray[np.int64],
    plan: AnswerPlan,
    coins: Coins = SYSTEM,
    opinion: Opinion | None = None,
) -> list[int | None]:
    """The teachers' answers to one question after another, until the plan is used up.

    Args:
        votes: (questions, classes) counts.
        plan: what may be released.
        coins: where noise comes from.
        opinion: what an interactive aggregator is told of the student, the same each time.

    Returns:
        A label, or None for no answer by the teachers, for each question that was asked.
    """
    answering = Answering(Ballots(votes), plan, coins=coins)
    found: list[int | None] = []
    for question in range(len(votes)):
        try:
            answer = answering.ask(question, opinion)
        except NoMoreAnswers:
            break
        found.append(answer.label if answer.by == "teachers" else None)
    return found


def single_answers(
    votes: tuple[int, ...],
    aggregator: Aggregator,
    number: int,
    coins: Coins = SYSTEM,
    opinion: Opinion | None = None,
) -> list[int | None]:
    """So many independent answers to one question, each with noise of its own."""
    table = np.tile(np.array(votes, dtype=np.int64), (validation.count("number", number), 1))
    return released_labels(table, AnswerPlan(aggregator, number), coins, opinion)


def student_probabilities(
    student: Student, inputs: Tensor, labels: list[int | None]
) -> NDArray[np.float64] | None:
    """What a student that learnt from released labels says of the inputs asked about.

    Args:
        student: how it learns; with one seed, so that nothing but the labels makes a difference.
        inputs: (questions, *shape), public.
        labels: from :func:`released_labels`.

    Returns:
        (questions, classes); None if there was no label to learn from.
    """
    known = [place for place, label in enumerate(labels) if label is not None]
    if not known:
        return None
    answers = np.array([labels[place] for place in known], dtype=np.int64)
    model = student.fit(None, inputs[known], answers, seed=0)
    return logits_of(model, inputs).double().softmax(dim=1).numpy()


def vote_splits(teachers: int) -> list[tuple[int, int]]:
    """Votes for two classes, from a tie to all for the first."""
    number = validation.at_least("teachers", teachers, 2)
    firsts = np.unique(np.rint(np.geomspace(1, number // 2 + 1, _SPLITS)).astype(int)) - 1
    return [(number - number // 2 + int(more), number // 2 - int(more)) for more in firsts]
