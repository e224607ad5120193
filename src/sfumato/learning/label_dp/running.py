"""What runs on private labels share, classes or numbers: journal, charge, record.

In this order: what is made of public inputs; the charge; labels are told, each once; models learn
from what was told; the record is committed in the ledger; only then are model and record in the
folder. Whatever is told of a label, and whatever is learnt from it, is the business of a kind of
run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

import torch
from numpy.typing import NDArray
from torch import nn

from sfumato.core.events import Event
from sfumato.core.randomness import Coins
from sfumato.core.records import Record, versions
from sfumato.data import Dataset
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.label_dp import randomising
from sfumato.learning.label_dp.charging import LabelCharge
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.number_recipe import NumberRecipe
from sfumato.learning.label_dp.ordering import digest_of
from sfumato.learning.label_dp.public_rows import PublicRows
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.recording import result_facts
from sfumato.learning.recipes.observing import Observer
from sfumato.learning.runs.folder import RunFolder

__all__ = ["LabelRun", "LabelTrained", "Learnt", "Setting"]

_Recipe = TypeVar("_Recipe", LabelRecipe, NumberRecipe)


@final
@dataclass(frozen=True)
class LabelTrained:
    """What came out.

    Attributes:
        model: from inputs in [0, 1], channels first, to logits, or to numbers; features included.
        record: public.
        accuracy: on the test set if it is public; None otherwise, where there is none, and where
            labels are numbers.
        folder: of the run.
        errors: the same of numbers.
    """

    model: nn.Module
    record: Record
    accuracy: float | None
    folder: RunFolder
    errors: NumberErrors | None = None


@final
@dataclass(frozen=True)
class Setting:
    """Where and how a run is computed.

    Attributes:
        folder: of the run.
        observer: who is told how far it is.
        device: where tensors go.
        coins: where randomness comes from.
        pace: half precision, compilation, clock.
    """

    folder: RunFolder
    observer: Observer
    device: str
    coins: Coins
    pace: Mapping[str, Any]

    def told(self, what: str) -> Callable[[int, int], None]:
        """Who is told how far something is."""
        return lambda done, total: self.observer.preparing(what, done, total)


@final
@dataclass(frozen=True)
class Learnt:
    """A model, and what is public about how it was made."""

    model: nn.Module
    facts: dict[str, Any]


class LabelRun(ABC, Generic[_Recipe]):
    """One run; what is in its folder is not made again.

    Args:
        recipe: how.
        data: of ``data.train`` the labels are private, the inputs public.
        setting: where.

    Raises:
        ValueError: for parameters that cannot be, before any label is read or paid for.
    """

    parts: list[NDArray[Any]]
    public: PublicRows

    def __init__(self, recipe: _Recipe, data: Dataset, setting: Setting) -> None:
        self.recipe, self.data, self.setting = recipe, data, setting
        torch.zeros(1, device=setting.device)  # or says why not

    @property
    @abstractmethod
    def event(self) -> Event:
        """What all that is told of labels amounts to, known beforehand."""

    @abstractmethod
    def prepare(self) -> dict[str, Any]:
        """Makes what takes inputs alone and might fail; facts about it. Nothing is charged yet."""

    @abstractmethod
    def learn(self, journal: LabelJournal) -> Learnt:
        """Tells all labels that are left, and learns from them."""

    @abstractmethod
    def measure(self, model: nn.Module) -> float | NumberErrors | None:
        """Accuracy or errors on the test set; None without one."""

    def finish(self, charge: LabelCharge) -> LabelTrained:
        """All that is left of it."""
        recipe, folder, event = self.recipe, self.setting.folder, self.event
        journal = LabelJournal(
            folder.curator / "reports.jsonl", self._facts(charge), self.setting.coins.private
        )
        try:
            prepared = self.prepare()
            charge.make(event, recipe.to_dict(), journal)
            learnt = self.learn(journal)
        finally:
            journal.close()
        found, model = self.measure(learnt.model), learnt.model.cpu()
        record = Record("label-dp", {"recipe": recipe.to_dict()}, event, recipe.guarantee)
        record.software = versions("numpy", "torch")
        record.private = record.private and journal.private
        public, kept = result_facts(self.data, found)
        record.facts |= learnt.facts | prepared | public
        folder.write_curator("results.json", kept)
        charge.finish(record.to_dict())  # first: what a copy of the run told is not published
        folder.write_model(model.state_dict())
        folder.write_record(record.to_dict())
        return self._trained(model, record, found)

    def _trained(
        self, model: nn.Module, record: Record, found: float | NumberErrors | None
    ) -> LabelTrained:
        shown = found if self.data.test_is_public else None
        errors = shown if isinstance(shown, NumberErrors) else None
        accuracy = shown if isinstance(shown, float) else None
        return LabelTrained(model, record, accuracy, self.setting.folder, errors)

    def _facts(self, charge: LabelCharge) -> dict[str, Any]:
        """What a journal is about: the recipe, the budget, the inputs, which rows a piece has."""
        return {
            "recipe": self.recipe.to_dict(),
            "charged": charge.charged,
            "inputs": digest_of(self.public.ordered),
            "piece": randomising.PIECE,
            "rows": digest_of(self.public.order, *self.parts),
        }
