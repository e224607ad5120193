"""A recipe: everything about a run of PATE, before any private row is read.

    >>> from sfumato.learning.pate import GaussianMax
    >>> from sfumato.learning.pate.students import make_student
    >>> recipe = PateRecipe(AnswerPlan(GaussianMax(40.0), answers=100), make_student("supervised"))
    >>> PateRecipe.from_dict(recipe.to_dict()) == recipe
    True

All of it is public, and none of it may be chosen by looking at private rows: ``origin`` says where
the choice comes from, and the record repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from sfumato.core import validation
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.students import Student
from sfumato.learning.pate.teachers import recipe_names
from sfumato.learning.recipes.recipe import NOT_STATED

__all__ = ["OWN", "RULES", "PateRecipe"]

RULES = ("random", "spread", "centres")
"""Ways to choose what to ask about, none of which looks at a label."""

OWN = "own"
"""The kind of teachers that are not trained here: their votes are brought along."""


def checked_teachers(number: int) -> int:
    """How many teachers there are: two or more.

    Raises:
        ValueError: for fewer.
    """
    if validation.count("teachers", number) < 2:
        validation.fail("teachers", "at least 2: one alone has no one to hide behind", number)
    return number


@final
@dataclass(frozen=True)
class PateRecipe:
    """How to train a student by the answers of teachers.

    Attributes:
        plan: how many questions and answers, how noisy.
        student: how it learns.
        teachers: how many there are.
        kind: what they are: "linear", "cnn-small", "pate-cnn"; or :data:`OWN`.
        rule: how questions are chosen among public inputs: see :data:`RULES`.
        rounds: in how many turns an interactive aggregator is asked; the student learns between.
        test_rows: so many of the public test set are kept to test on, the last ones; the others
            are the student's inputs. None where the student has inputs of its own, and all are
            tested on.
        seed: of first weights, orders and choices; privacy does not rest on it.
        origin: where the hyper-parameters come from.
    """

    plan: AnswerPlan
    student: Student
    teachers: int = 250
    kind: str = "linear"
    rule: str = "spread"
    rounds: int = 1
    test_rows: int | None = 1000
    seed: int = 0
    origin: str = NOT_STATED

    def __post_init__(self) -> None:
        checked_teachers(self.teachers)
        kinds = (*recipe_names(), OWN)
        if self.kind not in kinds:
            validation.fail("kind of teachers", f"one of {', '.join(kinds)}", self.kind)
        if self.rule not in RULES:
            validation.fail("rule", f"one of {', '.join(RULES)}", self.rule)
        validation.count("rounds", self.rounds)
        validation.at_least("seed", self.seed, 0)
        if self.test_rows is not None:
            validation.count("test_rows", self.test_rows)
        asked = getattr(self.plan.aggregator, "teachers", self.teachers)
        if asked != self.teachers:
            validation.fail("teachers", f"{asked}, as the interactive aggregator", self.teachers)
        if self.rounds > 1 and not self.plan.aggregator.needs_opinion:
            validation.fail(
                "rounds", "1, unless the aggregator asks the student (interactive)", self.rounds
            )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {"plan": self.plan.to_dict(), "student": self.student.to_dict()} | plain

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PateRecipe:
        """The inverse of :meth:`to_dict`."""
        given = dict(data)
        plan = AnswerPlan.from_dict(given.pop("plan"))
        return cls(plan, Student.from_dict(given.pop("student")), **given)


_PLAIN = ("teachers", "kind", "rule", "rounds", "test_rows", "seed", "origin")
