"""PATE: noise on the votes of models that saw a part each."""

from __future__ import annotations

from typing import final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.methods import QUICK, Group, Method, Payer, Training
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.features import ScatteringFeatures
from sfumato.learning.pate.aggregators import GaussianMax
from sfumato.learning.pate.lending import borrow_teachers, forget_half_borrowed
from sfumato.learning.pate.plan import AnswerPlan
from sfumato.learning.pate.privacy import least_noise
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.students import Student, make_student
from sfumato.learning.pate.training import train_pate
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.runs.folder import RunFolder

__all__ = ["Teachers"]

_MOST, _ROWS = 250, 100  # teachers at most, and records of each at least
_FEWEST = 10
_ANSWERS = 250
_STEPS = {"supervised": 300, "fixmatch": 600}


@final
class Teachers(Method):
    """A student of the noisy answers of many linear teachers."""

    name, group = "pate", Group.TEACHERS
    about = "noise on votes of teachers, each of a part of the records"

    def against(self, task: Task, payer: Payer) -> str | None:
        """For many records, and public inputs that a student may ask about."""
        if not task.data.test_is_public:
            return (
                "its student needs public inputs without labels, and the test rows are not public: "
                "train it by itself (sfumato train pate --unlabelled FILE)"
            )
        if len(task.data.test.labels) < 4 * _FEWEST:
            return f"its student needs {4 * _FEWEST} public test rows or more"
        if task.size < _FEWEST * _ROWS:
            return f"{_FEWEST} teachers of {_ROWS} records each are the least it takes"
        if task.data.owners is None and task.unit != "record":
            return f"rows have no owners, so that it protects a record and no {task.unit}"
        if task.pictures and not _scatters(task):
            return "its teachers need images whose height and width are multiples of 4"
        return None

    def relation(self, task: Task) -> Neighbours:
        """One unit more or less changes one teacher."""
        return Neighbours.ADD_REMOVE

    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """By the plan of the answers."""
        return self._plan(task, epsilon).guarantee

    def train(self, task: Task, how: Training) -> None:
        """Teachers, answers, student."""
        recipe = PateRecipe(
            self._plan(task, how.epsilon), _student(task), teachers=_teachers(task),
            test_rows=None, seed=how.seed, origin=QUICK,
        )  # fmt: skip
        forget_half_borrowed(RunFolder(how.out))
        resume = how.resume or _lent(recipe, how)
        train_pate(
            recipe, task.data, unlabelled=task.inputs, resume=resume,
            **how.payer.of_records(), **how.common,
        )  # fmt: skip

    def _plan(self, task: Task, epsilon: float | None) -> AnswerPlan:
        assert epsilon is not None
        answers = min(_ANSWERS, len(_inputs(task)))
        sigma = least_noise(GaussianMax, answers, epsilon, task.delta)
        return AnswerPlan(GaussianMax(sigma), answers, delta=task.delta, unit=task.unit)


def _lent(recipe: PateRecipe, how: Training) -> bool:
    """Takes the teachers of a finished run beside it, which differs in epsilon alone.

    Why that is sound is in :mod:`~sfumato.learning.pate.lending`. With a ledger each run begins by
    itself, with its own look at the budget.
    """
    if how.payer.ledger is not None:
        return False
    beside = sorted(how.out.parent.glob(f"pate-epsilon-*-run-{how.seed + 1}"))
    lender = next((one for one in map(RunFolder, beside) if one.finished), None)
    if lender is None:
        return False
    folder = RunFolder(how.out)
    folder.begin({"pate": recipe.to_dict()})
    borrow_teachers(lender, folder)
    return True


def _inputs(task: Task) -> range:
    """Places of the student's inputs; half of the public test rows where they are not split yet."""
    return range(len(task.data.test.labels) // 2 if task.inputs is None else len(task.inputs))


def _teachers(task: Task) -> int:
    return min(_MOST, task.size // _ROWS)


def _student(task: Task) -> Student:
    """For images one that learns from all of its inputs, also from those it did not ask about."""
    name = "fixmatch" if task.pictures else "supervised"
    return make_student(name, classes=len(task.data.classes), steps=_STEPS[name])


def _scatters(task: Task) -> bool:
    try:
        ScatteringFeatures().out_shape(input_shape(task.data.shape))
    except ValueError:
        return False
    return True
