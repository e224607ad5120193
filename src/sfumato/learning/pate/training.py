"""From private rows to a student: teachers, votes, answers, student, record. Resumable throughout.

    data = load_dataset("mnist")
    trained = train_pate(recipe, data, out="runs/pate")
    trained.accuracy, trained.record.guarantee

=========  ======================  ==============================================================
stage      in the run's folder     if it is cut off
=========  ======================  ==============================================================
teachers   curator/teachers/       goes on from the last checkpoint
votes      curator/votes-N         counted again
answers    curator/answers.jsonl   what was answered stays, what was begun counts as used
student    curator/student-N/      goes on from the last checkpoint
=========  ======================  ==============================================================

Teachers of one's own are not trained here; their votes are copied into the run's folder.

What leaves is what was answered, within the plan, and the student, which is made of answers and
public inputs. Teachers, votes and everything measured of them are the curator's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record
from sfumato.data import Dataset
from sfumato.learning.ensembles import Ensemble
from sfumato.learning.ensembles.stacking import untrained
from sfumato.learning.pate.answering import Answer, Answering, NoMoreAnswers, check_budget
from sfumato.learning.pate.ballots import Ballots
from sfumato.learning.pate.dealing import dealt
from sfumato.learning.pate.privacy import curator_view
from sfumato.learning.pate.public_inputs import PublicInputs, public_inputs
from sfumato.learning.pate.recipe import OWN, PateRecipe
from sfumato.learning.pate.recording import public_facts
from sfumato.learning.pate.students import choose, choose_uncertain, logits_of
from sfumato.learning.pate.students.spreading import public_features
from sfumato.learning.pate.teachers import (
    Parts,
    checked_votes,
    kept_salt,
    teacher_recipe,
    train_teachers,
    votes_of,
)
from sfumato.learning.recipes.inputs import input_shape, inputs_of, labels_of
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger
from sfumato.ledger.errors import BudgetExceeded

__all__ = ["PateTrained", "check_data", "train_pate"]


@final
@dataclass(frozen=True)
class PateTrained:
    """What came out.

    Attributes:
        model: the student, from inputs in [0, 1], channels first, to logits.
        record: public.
        accuracy: on public rows that the student never saw; None where there are none.
        answers: what was released.
        folder: of the run.
    """

    model: nn.Module
    record: Record
    accuracy: float | None
    answers: tuple[Answer, ...]
    folder: RunFolder


def train_pate(
    recipe: PateRecipe,
    data: Dataset,
    *,
    out: str | Path,
    unlabelled: NDArray[Any] | None = None,
    votes: NDArray[Any] | None = None,
    resume: bool = False,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    half: bool = False,
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> PateTrained:
    """Trains teachers on private rows and a student on their noisy answers.

    Args:
        recipe: how.
        data: ``data.train`` is private and taught; ``data.test``, if it is public, is what the
            student sees and is tested on.
        out: the run's folder, new or empty.
        unlabelled: public inputs for the student, in the data set's shape, instead of its test set.
        votes: of teachers of one's own (``recipe.kind`` is "own"), on every public input: (inputs,
            classes) counts. No private row is then read here, and whoever gives them vouches that
            one unit more or less changes one teacher only.
        resume: go on with the run in ``out``.
        ledger: each check and each answer is charged there first.
        dataset: whose budget.
        analyst: in whose name.
        device: such as "cuda".
        half: teachers compute in bfloat16.
        observer: who is told how far it is.
        request: what was asked for, kept for whoever resumes.
        coins: where noise and the assignment's salt come from; seeded in tests only.

    Raises:
        ValueError: for parameters that cannot be, before any row is read.
        BudgetExceeded: if the ledger does not even pay for the first question.
    """
    folder = RunFolder(out)
    book = Ledger(ledger, create=False) if isinstance(ledger, (str, Path)) else ledger
    check_data(recipe, data, charged=book is not None)
    public = public_inputs(recipe, data, unlabelled)
    own = _own_votes(recipe, public, len(data.classes), votes)
    run = _Run(recipe, data, public, folder, observer or Shown(), device, half, coins, own)
    if not resume:
        check_budget(recipe.plan, book, dataset, analyst)
        folder.begin({"pate": recipe.to_dict()} | dict(request or {}))
    elif folder.finished:
        raise ValueError(f"the run in {folder.path} came to its end: there is nothing to resume")
    elif folder.request().get("pate") != recipe.to_dict():
        raise ValueError(f"the run in {folder.path} began with another recipe: go on with that one")
    return run.finish(book, dataset, analyst)


def check_data(recipe: PateRecipe, data: Dataset, *, charged: bool) -> None:
    """Raises unless the guarantee can be that of such data, charged to a ledger or not."""
    if recipe.kind != OWN:  # whoever brings teachers says whom a part holds as a whole
        _check_unit(recipe, data)
    if charged:
        _refuse_first_rows(data)


def _check_unit(recipe: PateRecipe, data: Dataset) -> None:
    if data.owners is None and recipe.plan.unit != "record":
        raise ValueError(
            f"unit must be 'record' where rows have no owners, got {recipe.plan.unit!r}: declare "
            "the column that says whose each row is, so that all of one's rows go to one teacher"
        )


def _refuse_first_rows(data: Dataset) -> None:
    if data.rows is not None:
        raise ValueError(
            "rows must be left out with a ledger: adding or removing one record of the whole moves "
            "another into the first rows. Or keep those rows in a file of their own, with a budget "
            "of its own"
        )


def _own_votes(
    recipe: PateRecipe, public: PublicInputs, classes: int, votes: NDArray[Any] | None
) -> NDArray[np.int64] | None:
    """Of teachers of one's own; a bad cell raises nothing, a table of another shape does."""
    if (votes is None) == (recipe.kind == OWN):
        raise ValueError(
            "votes must be given for teachers of one's own (kind 'own'; --teacher-labels FILE), "
            f"and for no others, got {'none' if votes is None else 'some'} for {recipe.kind!r}"
        )
    if votes is None:
        return None
    if votes.shape != (len(public.inputs), classes):
        wanted = f"a row for each of the {len(public.inputs)} public inputs, {classes} classes wide"
        validation.fail("votes", wanted, votes.shape)
    return checked_votes(votes, recipe.teachers)


class _Run:
    """One run, stage by stage; what is in its folder is not made again."""

    def __init__(
        self,
        recipe: PateRecipe,
        data: Dataset,
        public: PublicInputs,
        folder: RunFolder,
        observer: Observer,
        device: str,
        half: bool,
        coins: Coins,
        own_votes: NDArray[np.int64] | None,
    ) -> None:
        self.recipe, self.data, self.public, self.folder = recipe, data, public, folder
        self.observer, self.device, self.half, self.coins = observer, device, half, coins
        self.classes, self.refused, self._own_votes = len(data.classes), False, own_votes
        self._opinion_of: dict[int, NDArray[np.float64]] = {}
        shape = input_shape(data.shape)
        own = own_votes is not None
        self._kind = None if own else teacher_recipe(recipe.kind, shape, self.classes)
        if recipe.student.classes != self.classes:
            validation.fail("classes of the student", f"{self.classes}", recipe.student.classes)
        untrained(lambda: recipe.student.network(shape))  # or says why not, before anything is read

    @cached_property
    def pool(self) -> Tensor:
        """The public inputs, as models take them."""
        return inputs_of(self.public.inputs, self.data.bounds)

    def finish(self, ledger: Ledger | None, dataset: str, analyst: str) -> PateTrained:
        """All stages that are left."""
        nothing = Ballots(np.zeros((0, self.classes), dtype=np.int64))
        answering = Answering(
            nothing, self.recipe.plan, ledger=ledger, dataset=dataset, analyst=analyst,
            journal=self.folder.curator / "answers.jsonl", coins=self.coins,
        )  # fmt: skip
        student = self._taught(answering)
        accuracy = self._accuracy(student, *self.public.tested)
        record = self._record(answering, accuracy)
        opinions = self._opinion_of if self._interactive else None
        published = None
        try:
            published = answering.publish_cost(self.recipe.teachers, opinions)
        except BudgetExceeded:
            record.facts["stopped_by_the_ledger"] = True
        if published is not None:
            record.private = record.private and published.private
            epsilon = published.epsilon(self.recipe.plan.delta)
            record.facts["data_dependent"] = published.to_dict() | {"epsilon": epsilon}
        self.folder.write_curator("results.json", self._for_the_curator(answering, student))
        self.folder.write_model(student.state_dict())
        self.folder.write_record(record.to_dict())
        return PateTrained(student, record, accuracy, answering.answers, self.folder)

    # --- teachers and votes: the curator's ------------------------------------------------------

    def _ballots(self, number: int, questions: Tensor) -> Ballots:
        """The teachers' votes on a round's questions."""
        file = self.folder.curator / f"votes-{number}"
        if file.exists():
            return Ballots.load(file)
        asked = questions.numpy()
        if self._own_votes is not None:
            votes = self._own_votes[asked]
        else:
            votes = votes_of(self._teachers, self.pool[questions], self.classes)
        made = Ballots(votes, asked)
        made.save(file)
        return made

    @cached_property
    def _teachers(self) -> Ensemble:
        assert self._kind is not None
        inputs, labels = self.data.train
        known = labels_of(labels, self.classes).numpy()
        return train_teachers(
            self._kind, inputs_of(inputs, self.data.bounds), known,
            self._parts(), device=self.device, half=self.half, seed=self.recipe.seed,
            folder=self.folder.curator / "teachers", progress=self._told("teachers"),
        )  # fmt: skip

    def _parts(self) -> Parts:
        salt = kept_salt(self.folder.curator / "salt", self.coins)
        return dealt(self.data, self.recipe.teachers, salt)

    def _told(self, what: str) -> Callable[[int, int], None]:
        return lambda done, total: self.observer.preparing(what, done, total)

    # --- answers and the student: released ------------------------------------------------------

    def _taught(self, answering: Answering) -> nn.Module:
        """The student after the last round of questions."""
        rounds, most = self.recipe.rounds, self.recipe.plan.most_questions
        asked = torch.zeros(0, dtype=torch.int64)
        student: nn.Module | None = None
        for number in range(rounds):
            count = most * (number + 1) // rounds - len(asked)
            chosen = self._chosen(count, asked, student)
            answering.also(self._ballots(number, chosen))
            self._ask(answering, chosen, student)
            asked = torch.cat([asked, chosen])
            student = self._student(answering, number, set(asked.tolist()))
        assert student is not None
        return student

    def _chosen(self, count: int, asked: Tensor, student: nn.Module | None) -> Tensor:
        """By what is public alone."""
        if student is not None:
            return choose_uncertain(count, self.pool, student, asked=asked)
        rule, seed = self.recipe.rule, self.recipe.seed
        seen = self.pool if rule == "random" else public_features(self.pool)
        return choose(rule, count, seen, asked=asked, seed=seed)

    def _ask(self, answering: Answering, chosen: Tensor, student: nn.Module | None) -> None:
        """Until the plan is used up, or the ledger refuses: then with what was answered."""
        if self._interactive:
            self._opinion_of |= zip(chosen.tolist(), self._opinions(chosen, student), strict=True)
        for place, question in enumerate(chosen.tolist()):
            try:
                answering.ask(question, self._opinion_of.get(question))
            except NoMoreAnswers:
                break
            except BudgetExceeded:
                self.refused = True
                if not answering.answers:
                    raise
                break
            self.observer.preparing("questions", place + 1, len(chosen))

    @property
    def _interactive(self) -> bool:
        return self.recipe.plan.aggregator.needs_opinion

    def _opinions(self, chosen: Tensor, student: nn.Module | None) -> NDArray[np.float64]:
        """The student's probabilities; before it has learnt anything, all the same."""
        if student is None:
            return np.full((len(chosen), self.classes), 1 / self.classes)
        logits = logits_of(student, self.pool[chosen])
        return logits.double().softmax(dim=1).cpu().numpy()

    def _student(self, answering: Answering, number: int, asked: set[int]) -> nn.Module:
        """By the answers to what was asked up to this round."""
        told = [answer for answer in answering.answers if answer.question in asked]
        known = [(answer.question, answer.label) for answer in told if answer.label is not None]
        if not known:
            raise ValueError(
                "no question was answered, so there is nothing to learn from: what was asked is "
                "used up. Begin anew with a lower threshold, more questions or more teachers"
            )
        questions, labels = (torch.tensor(column) for column in zip(*known, strict=True))
        return self.recipe.student.fit(
            self.pool, self.pool[questions], labels, device=self.device, seed=self.recipe.seed,
            folder=self.folder.curator / f"student-{number}", progress=self._told("student"),
        )  # fmt: skip

    def _accuracy(
        self, student: nn.Module, inputs: NDArray[Any], labels: NDArray[np.int64]
    ) -> float | None:
        """None without any rows to test on."""
        if not len(labels):
            return None
        found = logits_of(student, inputs_of(inputs, self.data.bounds))
        wanted = labels_of(labels, self.classes)
        return float((found.argmax(1).cpu() == wanted).double().mean())

    # --- what is said ---------------------------------------------------------------------------

    def _record(self, answering: Answering, accuracy: float | None) -> Record:
        record = answering.record()
        record.parameters = {"plan": self.recipe.plan.to_dict(), "recipe": self.recipe.to_dict()}
        record.facts |= public_facts(self.recipe, self.data, self.public, accuracy)
        record.facts["stopped_by_the_ledger"] = self.refused
        return record

    def _for_the_curator(self, answering: Answering, student: nn.Module) -> dict[str, Any]:
        """How far teachers agreed, and what answers cost for these votes: not to be published.

        With the accuracy on test rows that are private, where there are any.
        """
        if not answering.answers:
            return {}
        answered = [answer.by == "teachers" for answer in answering.answers]
        opinions = None
        if self._interactive:
            opinions = np.stack([self._opinion_of[answer.question] for answer in answering.answers])
        plan = self.recipe.plan
        delta = plan.delta or _NO_DELTA
        view = curator_view(
            answering.curator_votes(), plan.aggregator, delta, answered=answered, opinions=opinions
        ).to_dict()
        accuracy = None
        if not self.data.test_is_public:
            accuracy = self._accuracy(student, *self.data.test)
        return view if accuracy is None else view | {"accuracy": accuracy}


_NO_DELTA = 1e-5  # data-dependent costs are stated at some delta, also where a plan is pure
