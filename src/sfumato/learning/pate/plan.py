"""What a run of PATE may release at most, fixed before any teacher votes.

    >>> from sfumato.learning.pate.aggregators import ConfidentMax
    >>> plan = AnswerPlan(ConfidentMax(sigma=40, threshold=200, sigma_check=150), answers=286,
    ...                   questions=640, delta=1e-5)
    >>> plan.guarantee
    Guarantee: epsilon 2.543, delta 1e-05, add or remove one record

Formal guarantee. At most ``questions`` questions are asked and at most ``answers`` of them are
answered, whatever the votes. So the whole is a composition that is known beforehand: so many
checks, and so many answers, each free to depend on those before it. How many were answered in the
end is part of what is released, and the guarantee does not depend on it. (To charge the answers
that came about, and to stop by them, is a filter's task: the ledger's.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, final

from sfumato.core import validation
from sfumato.core.events import Event, compose
from sfumato.core.guarantee import Guarantee
from sfumato.learning.pate.aggregators import Aggregator
from sfumato.learning.pate.privacy.costs import run_event
from sfumato.learning.pate.privacy.smooth import Sanitiser

__all__ = ["AnswerPlan"]


@final
@dataclass(frozen=True)
class AnswerPlan:
    """How many questions, how many answers, and how they are made noisy.

    Attributes:
        aggregator: from votes to answers.
        answers: at most so many.
        questions: at most so many are asked; by default as many as answers, which is all there is
            to it where every question is answered.
        delta: of the guarantee.
        unit: what lies in one teacher's part as a whole: "record", "person".
        sanitiser: also publishes, once, what the answers cost for these data; at a cost of its own,
            which is part of the guarantee. See :mod:`~sfumato.learning.pate.publishing`.
    """

    aggregator: Aggregator
    answers: int
    questions: int | None = None
    delta: float = 1e-5
    unit: str = "record"
    sanitiser: Sanitiser | None = None

    def __post_init__(self) -> None:
        answers = validation.count("answers", self.answers)
        validation.delta("delta", self.delta)
        validation.name("unit", self.unit)
        if self.questions is None:
            object.__setattr__(self, "questions", answers)
        if validation.count("questions", self.questions) < answers:
            validation.fail(
                "questions", f"at least as many as the {answers} answers", self.questions
            )
        if self.sanitiser is not None and self.aggregator.kind == "lnmax":
            validation.fail("sanitiser", "None for Laplace noise: it has no such release", "one")

    @property
    def most_questions(self) -> int:
        """At most so many are asked."""
        assert self.questions is not None
        return self.questions

    @property
    def event(self) -> Event:
        """All of it, at its worst."""
        asked = run_event(self.aggregator, self.answers, self.questions, self.unit)
        if self.sanitiser is None:
            return asked
        return compose(asked, self.sanitiser.event(self.unit))

    @cached_property
    def guarantee(self) -> Guarantee:
        """What that promises."""
        from sfumato.accounting import account

        return account(self.event, self.delta)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "aggregator": self.aggregator.to_dict(),
            "answers": self.answers,
            "questions": self.questions,
            "delta": self.delta,
            "unit": self.unit,
            "sanitiser": None if self.sanitiser is None else asdict(self.sanitiser),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AnswerPlan:
        """The inverse of :meth:`to_dict`."""
        given = dict(data)
        aggregator = Aggregator.from_dict(given.pop("aggregator"))
        stored = given.pop("sanitiser", None)
        return cls(aggregator, **given, sanitiser=None if stored is None else Sanitiser(**stored))
