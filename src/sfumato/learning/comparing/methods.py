"""What a method is to a comparison: when it suits, what it would promise, how it is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, final

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.recipes.observing import Shown

__all__ = ["QUICK", "QUICK_DEFAULTS", "Group", "Method", "Payer", "Training"]

QUICK = "sfumato's quick settings for comparisons, looked at on MNIST's public test set"
"""Where hyper-parameters come from, for records."""
QUICK_DEFAULTS = f"{QUICK}; else the method's defaults, chosen on MNIST and digits"
"""The same, of methods that have defaults of their own."""


class Group(StrEnum):
    """Where noise goes."""

    INPUT = "input"
    OBJECTIVE = "objective"
    OUTPUT = "output"
    GRADIENT = "gradient"
    TEACHERS = "teachers"
    LABELS = "labels"
    NONE = "none"


@final
@dataclass(frozen=True)
class Payer:
    """Whose budgets are charged.

    Attributes:
        ledger: its address; None charges nobody.
        dataset: whose budget of records.
        labels: whose budget of labels, which is another one.
        analyst: in whose name.
    """

    ledger: str | None = None
    dataset: str = ""
    labels: str = ""
    analyst: str = ""

    @property
    def accounts(self) -> list[str] | None:
        """Of records and of labels; None where nobody pays."""
        return None if self.ledger is None else [self.dataset, self.labels]

    def of_records(self) -> dict[str, Any]:
        """As functions that train take it."""
        return {"ledger": self.ledger, "dataset": self.dataset, "analyst": self.analyst}

    def of_labels(self) -> dict[str, Any]:
        """The same for labels."""
        return {"ledger": self.ledger, "dataset": self.labels, "analyst": self.analyst}


@final
@dataclass(frozen=True)
class Training:
    """How one run is trained: at which epsilon, where, and at whose cost.

    Attributes:
        epsilon: of the run; None for none.
        seed: public, of first weights; noise never has one.
        out: the run's folder.
        resume: go on with what is there.
        payer: who is charged.
        device: such as "cuda".
    """

    epsilon: float | None
    seed: int
    out: Path
    resume: bool = False
    payer: Payer = Payer()
    device: str = "cpu"

    @property
    def common(self) -> dict[str, Any]:
        """Arguments that all functions that train take."""
        return {"out": self.out, "device": self.device, "observer": Shown(False)}


class Method(ABC):
    """One way to a private model.

    Attributes:
        name: in tables and options.
        group: where its noise goes.
        about: in a few words.
        goes_on: whether a run that was cut off goes on; if not, it begins anew.
    """

    name: str
    group: Group
    about: str
    goes_on: ClassVar[bool] = True

    @abstractmethod
    def against(self, task: Task, payer: Payer) -> str | None:
        """Why it is left out, from public facts alone; None if it suits."""

    def relation(self, task: Task) -> Neighbours:
        """That of its guarantee."""
        return task.neighbours

    @abstractmethod
    def promised(self, task: Task, epsilon: float | None) -> Guarantee:
        """What a run would promise; reads no row.

        Raises:
            ValueError: if there can be no such run.
        """

    @abstractmethod
    def train(self, task: Task, how: Training) -> None:
        """Fills the run's folder."""
