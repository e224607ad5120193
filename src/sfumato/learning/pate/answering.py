"""Asking the teachers: every question is written down and charged before its votes are read.

The order of things, for one question:

1. if there is a check: a turn of the run (:mod:`sfumato.learning.journal`), on disk and then in the
   ledger, together with the check's cost; the check; its outcome, on disk;
2. if it passed: likewise a turn with the answer's cost; the answer; on disk. Only then is it
   returned.

A process that is killed in between leaves a question without an outcome. Its noise may have been
seen by whoever killed it, so it counts as asked and answered, and is not asked again: noise is
never drawn twice for one charge. What was on disk is returned as it was, at no cost.

Formal guarantee. At most the plan's questions are asked and at most its answers given, in this
process and in all that go on with its folder, so that everything returned has the guarantee of
:class:`~sfumato.learning.pate.plan.AnswerPlan`; with a ledger also in those that go on with copies
of the folder, as only one of them can. With a ledger each answer that came about is
charged besides, by its cost that does not depend on the votes, and a question that does not fit
is refused before the votes are read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.learning.pate.aggregators import Opinion, checked_opinion
from sfumato.learning.pate.ballots import Ballots
from sfumato.learning.pate.journal import Answer, Journal
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.privacy.smooth import PublishedCost
from sfumato.learning.pate.publishing import parts_of
from sfumato.ledger import Ledger, Spending, Turn
from sfumato.ledger.errors import BudgetExceeded, LedgerError

__all__ = ["Answer", "Answering", "NoMoreAnswers", "check_budget"]

_Noting = Callable[[Any], Any]
_Accept = Callable[[Turn], Spending | None]


class NoMoreAnswers(RuntimeError):  # noqa: N818  # as StopIteration: nothing is wrong
    """The plan's questions or answers are used up."""


@final
class Answering:
    """Questions to teachers, within a plan and a budget.

    Args:
        ballots: the votes, question by question. Private.
        plan: what may be released at most.
        ledger: charged before each check and each answer; None charges nobody.
        dataset: whose budget.
        analyst: in whose name.
        journal: a file that keeps all questions and answers, for whoever goes on with them.
        coins: where noise comes from.
    """

    def __init__(
        self,
        ballots: Ballots,
        plan: AnswerPlan,
        *,
        ledger: Ledger | None = None,
        dataset: str = "",
        analyst: str = "",
        journal: str | Path | None = None,
        coins: Coins = SYSTEM,
    ) -> None:
        self.plan, self.coins = plan, coins
        self._ballots, self._ledger = ballots, ledger
        self._dataset, self._analyst = dataset, analyst
        if ledger is not None:
            _check_unit(plan, ledger, dataset)
        charged = None if ledger is None else dataset
        path = None if journal is None else Path(journal)
        self._journal = Journal(path, plan, charged, coins.private)
        self._kept = path is not None
        if ledger is not None and self._kept:
            self._journal.run.charge_to(ledger, dataset, each=True)
            try:
                self._journal.run.agree()
            except BaseException:
                self._journal.run.close()
                raise
        self._lock = threading.RLock()

    @property
    def asked(self) -> int:
        """How many questions were asked, those without an outcome included."""
        return len(self._journal.begun)

    @property
    def answered(self) -> int:
        """How many answers may have been seen."""
        return self._journal.answered

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All that came of questions so far, in order."""
        return tuple(self._journal.answers.values())

    def __repr__(self) -> str:
        return (
            f"Answering({self.answered} of {self.plan.answers} answers, {self.asked} of "
            f"{self.plan.most_questions} questions)"
        )

    def also(self, ballots: Ballots) -> None:
        """Takes votes on further questions."""
        with self._lock:
            self._ballots = self._ballots.and_those(ballots)

    def ask(self, question: int, opinion: Opinion | None = None) -> Answer:
        """One question; asked before, its answer is what it was, and costs nothing.

        Args:
            question: the number of the input.
            opinion: the student's own probabilities, where the aggregator compares them.

        Raises:
            NoMoreAnswers: if the plan is used up.
            BudgetExceeded: if the ledger refuses, before the votes are read for what it refused; a
                check that passed stays charged.
        """
        with self._lock:
            return self._ask(question, opinion)

    def _ask(self, question: int, opinion: Opinion | None) -> Answer:
        number = validation.at_least("question", question, 0)
        if number not in self._ballots:
            validation.fail("question", f"one of the {len(self._ballots)} voted on", question)
        known = self._journal.answers.get(number)
        if known is not None:
            return known
        if number in self._journal.begun:
            return Answer(number, None, "nobody")  # cut off: its outcome is lost
        self._require_room()
        return self._asked_anew(number, opinion)

    def ask_all(self, questions: NDArray[np.integer] | list[int]) -> Iterator[Answer]:
        """One after the other, until the plan is used up."""
        for question in questions:
            try:
                yield self.ask(int(question))
            except NoMoreAnswers:
                return

    def publish_cost(
        self, teachers: int, opinions: Mapping[int, Opinion] | None = None
    ) -> PublishedCost | None:
        """What the answers cost for these data, sanitised, once; None if the plan has no such.

        Questions that were begun and lost count as answered. Asked again, it is what it was; if a
        process was killed while it was drawn, it is lost, and None.

        Args:
            teachers: their public number.
            opinions: what the student thought of each question, for interactive answers.
        """
        with self._lock:
            return self._publish(teachers, opinions)

    def _publish(
        self, teachers: int, opinions: Mapping[int, Opinion] | None
    ) -> PublishedCost | None:
        sanitiser = self.plan.sanitiser
        if sanitiser is None or self._journal.publishing:
            return self._journal.published
        asked = list(self._journal.begun)
        answered = np.array([self._journal.begun[question] for question in asked], dtype=bool)
        thought = None if opinions is None else np.stack([opinions[q] for q in asked])
        event = sanitiser.event(self.plan.unit)
        with self._charged(self._journal.publish, event, -1, "cost") as note:
            votes = np.stack([self._ballots.of(question) for question in asked])
            parts = parts_of(self.plan.aggregator, votes, answered, thought)
            found = sanitiser.publish(parts, teachers, self.coins)
            note(asdict(found))
        return self._journal.keep(found)

    def curator_votes(self) -> NDArray[np.int64]:
        """The votes on all questions with an outcome, in their order: for the owner alone."""
        rows = [self._ballots.of(answer.question) for answer in self.answers]
        return np.array(rows, dtype=np.int64).reshape(len(rows), self._ballots.classes)

    def record(self) -> Record:
        """The public record of everything released so far."""
        teachers = sum(answer.by == "teachers" for answer in self.answers)
        facts = {
            "questions": self.asked,
            "answers": teachers,
            "confirmed": sum(answer.by == "student" for answer in self.answers),
            "lost": self.asked - len(self.answers),
        }
        made = Record("pate", self.plan.to_dict(), self.plan.event, self.plan.guarantee)
        made.facts |= facts
        made.private = made.private and self._journal.private
        return made

    def _require_room(self) -> None:
        plan = self.plan
        self._journal.run.require_own_process()
        if self.asked >= plan.most_questions:
            raise NoMoreAnswers(f"all {plan.most_questions} questions of the plan were asked")
        if self.answered >= plan.answers:
            raise NoMoreAnswers(f"all {plan.answers} answers of the plan were given")

    def _asked_anew(self, question: int, opinion: Opinion | None) -> Answer:
        aggregator, unit = self.plan.aggregator, self.plan.unit
        if aggregator.needs_opinion:
            opinion = checked_opinion(opinion, self._ballots.classes)
        check = aggregator.check_event(unit)

        def begin(accept: _Accept) -> Spending | None:
            return self._journal.begin(question, accept)

        if check is not None:
            with self._charged(begin, check, question, "check") as note:
                passed = note(aggregator.passes(self._ballots.of(question), opinion, self.coins))
            if not passed:
                own = aggregator.own_answer(opinion)
                by = "nobody" if own is None else "student"
                return self._journal.finish(Answer(question, own, by))
        with self._charged(begin, aggregator.answer_event(unit), question, "answer") as note:
            label = note(aggregator.answer(self._ballots.of(question), self.coins))
        return self._journal.finish(Answer(question, label, "teachers"))

    @contextlib.contextmanager
    def _charged(
        self, turn: Callable[[_Accept], Spending | None], event: Event, question: int, what: str
    ) -> Iterator[_Noting]:
        """Takes a turn and charges before the block; writes down what it noted after it."""
        spent = turn(lambda turn: self._spend(turn, event, question, what))
        if spent is None:
            yield lambda outcome: outcome
            return
        noted: list[Any] = []

        def note(outcome: Any) -> Any:
            noted.append(outcome)
            return outcome

        with spent:
            yield note
            spent.commit(noted[0])

    def _spend(self, turn: Turn, event: Event, question: int, what: str) -> Spending | None:
        if self._ledger is None:
            return None
        request = {"pate": self._journal.run.run, "question": question, "what": what}
        return self._ledger.spend(
            self._dataset, event, analyst=self._analyst, request=request, label=f"pate {what}",
            turn=turn if self._kept else None,
        )  # fmt: skip


def check_budget(plan: AnswerPlan, ledger: Ledger | None, dataset: str, analyst: str = "") -> None:
    """Says early what would be refused later: a budget for another unit, or one that is spent.

    Raises:
        LedgerError: if the budget protects someone else.
        BudgetExceeded: if it does not pay for one check and one answer. Nothing is spent.
    """
    if ledger is None:
        return
    _check_unit(plan, ledger, dataset)
    check = plan.aggregator.check_event(plan.unit)
    answer = plan.aggregator.answer_event(plan.unit)
    found = ledger.preview(dataset, [answer] if check is None else [check, answer], analyst=analyst)
    if not found.passes:
        raise BudgetExceeded(
            f"the budget of {dataset!r} has no room for a single answer. Nothing was spent; ask "
            "with more noise, or open a larger budget",
            dataset,
            "the dataset",
        )


def _check_unit(plan: AnswerPlan, ledger: Ledger, dataset: str) -> None:
    terms = ledger.terms(dataset)
    if terms.unit != plan.unit:
        raise LedgerError(
            f"the budget of {dataset!r} protects one {terms.unit}, the plan one {plan.unit}: give "
            f"each {terms.unit} to one teacher, and make the plan with unit={terms.unit!r}"
        )
