"""The journal of questions and answers: each on disk before anything goes on.

One JSON object a line. A line that was torn says nothing: what it would have said was told to no
one. A question that was begun and has no outcome counts as answered. What reads votes is a turn of
the run (:mod:`sfumato.learning.journal`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar, cast, final

from sfumato.learning.journal import RunJournal
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.privacy.smooth import PublishedCost
from sfumato.ledger import BudgetExceeded, Turn

__all__ = ["Answer", "Journal"]

_T = TypeVar("_T")


@final
@dataclass(frozen=True)
class Answer:
    """What came of one question; all of it is released.

    Attributes:
        question: which input it was about.
        label: the class, or None for no answer.
        by: "teachers", "student" (its own answer, confirmed) or "nobody".
    """

    question: int
    label: int | None
    by: str


@final
class Journal:
    """Questions and outcomes, each on disk before anything goes on.

    Attributes:
        run: the journal that this one is a part of.
    """

    def __init__(
        self, path: Path | None, plan: AnswerPlan, charged: str | None, private: bool
    ) -> None:
        self.begun: dict[int, bool] = {}  # question: whether its answer may have been seen
        self.answers: dict[int, Answer] = {}
        self.publishing, self.published = False, cast("PublishedCost | None", None)
        self.private = private
        self._undo: Callable[[], object] = lambda: None
        first = {"plan": plan.to_dict(), "charged": charged, "private": private}
        self.run = RunJournal(
            path,
            f"journal must not be in use, but another process asks by {path}: end it first",
            first,
        )  # two would each give the plan's answers
        self._require_same(path, first)
        for entry in self.run.others:
            self._take(entry)
        if not self.run.is_new:
            self.run.write({"private": private})

    @property
    def answered(self) -> int:
        """Answers that may have been seen; a question without any outcome counts."""
        return sum(self.begun.values())

    def _require_same(self, path: Path | None, wanted: dict[str, Any]) -> None:
        found = self.run.first
        if found.get("plan") != wanted["plan"]:
            self.run.close()
            raise ValueError(
                f"{path} must hold answers of this plan, but holds those of another: go on with "
                "the plan it began with, or begin anew with another file"
            )
        if found["charged"] != wanted["charged"]:
            self.run.close()
            raise ValueError(
                f"{path} began with the budget of {found['charged']!r}, not of "
                f"{wanted['charged']!r}: go on with the ledger and the dataset it began with"
            )
        self.private = self.private and found["private"]

    def _take(self, entry: dict[str, Any] | None) -> None:
        if entry is None:
            return  # torn: what it says was never told to anyone, and the question stands as begun
        if "private" in entry:
            self.private = self.private and entry["private"]
        elif "begin" in entry:
            self._undo = self._began(entry["begin"])
        elif "publish" in entry:
            self._undo = self._publishes(entry["publish"])
        elif "again" in entry:
            self._undo = lambda: None
        elif "withdrawn" in entry:
            self._undo()
        else:
            answer = Answer(**entry)
            self.answers[answer.question] = answer
            self.begun[answer.question] = answer.by == "teachers"

    def _began(self, question: int) -> Callable[[], object]:
        """Notes it; what is returned undoes that."""
        if question in self.begun:
            return lambda: None
        self.begun[question] = True
        return lambda: self.begun.pop(question)

    def _publishes(self, stored: Mapping[str, Any] | None) -> Callable[[], object]:
        def undo() -> None:
            self.publishing = False

        self.publishing = True
        self.published = None if stored is None else PublishedCost(**stored)
        if self.published is not None:
            self.private = self.private and self.published.private
        return undo

    def begin(self, question: int, accept: Callable[[Turn], _T]) -> _T:
        """Its votes may be read from now on, for a check or for an answer.

        Args:
            question: which.
            accept: has the ledger take the turn in, and charges it.
        """
        what = "again" if question in self.begun else "begin"
        return self._turn({what: question}, self._began(question), accept)

    def publish(self, accept: Callable[[Turn], _T]) -> _T:
        """The data-dependent cost may be drawn from now on."""
        return self._turn({"publish": None}, self._publishes(None), accept)

    def _turn(
        self, what: dict[str, Any], undo: Callable[[], object], accept: Callable[[Turn], _T]
    ) -> _T:
        try:
            return self.run.take(self.run.lots + 1, accept, what)
        except BudgetExceeded:
            undo()
            raise

    def keep(self, found: PublishedCost) -> PublishedCost:
        """The published cost, on disk."""
        self._publishes(asdict(found))
        self.run.write({"publish": asdict(found)})
        return found

    def finish(self, answer: Answer) -> Answer:
        """The same answer, on disk."""
        self.run.write(asdict(answer))
        self.answers[answer.question] = answer
        self.begun[answer.question] = answer.by == "teachers"
        return answer
