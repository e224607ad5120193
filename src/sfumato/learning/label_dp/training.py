"""From private labels to a model: reports, networks, record. Resumable throughout.

    data = load_dataset("mnist")
    trained = train_label_dp(label_preset(data, epsilon=2.0), data, out="runs/labels")
    trained.accuracy, trained.record.guarantee

    wages = load_dataset("wages.csv", read_declaration("wages.toml"))  # which has label_bounds
    trained = train_label_dp(number_preset(wages, epsilon=3.0), wages, out="runs/wages")
    trained.errors, trained.record.guarantee

Inputs are public, labels private. In each stage some labels, chosen by a public seed, are
randomised once, within what the last stage's model thinks possible; then networks learn from all
reports so far. (Of numbers see :mod:`~sfumato.learning.label_dp.number_runs`.)

=========  ========================  ============================================================
stage      in the run's folder       if it is cut off
=========  ========================  ============================================================
order      curator/order             drawn once; a function of the inputs but for equal ones
features   curator/features          computed once
body       curator/pretraining/,     goes on from the last checkpoint; then it is
           curator/pretrained.*      kept, and nothing was charged yet
sets       curator/sets-N            computed once, before the stage's labels are read
reports    curator/reports.jsonl     what was reported stays, what was begun is lost
networks   curator/network-N-M/      go on from the last checkpoint
=========  ========================  ============================================================

What leaves is made of reports and public inputs. Reference: Ghazi et al., arXiv:2102.06062,
algorithm 3 (LP-MST), where stage t's prior is the model of stage t - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.data import Dataset
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.features import transform
from sfumato.learning.label_dp.charging import LabelCharge
from sfumato.learning.label_dp.fitting import Clock, fit_network, logits_of
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.learning import (
    Known,
    first_prior,
    gathered,
    later_prior,
    learnt_targets,
)
from sfumato.learning.label_dp.number_recipe import NumberRecipe
from sfumato.learning.label_dp.number_runs import NumberRun
from sfumato.learning.label_dp.public_inputs import PublicInputs
from sfumato.learning.label_dp.randomising import (
    Reports,
    check_mechanism,
    randomise_stage,
    split,
)
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.recording import pretraining_record, public_facts
from sfumato.learning.label_dp.running import LabelRun, LabelTrained, Learnt, Setting
from sfumato.learning.label_dp.top_k import Sets
from sfumato.learning.label_dp.with_prior import best_sets
from sfumato.learning.recipes.inputs import inputs_of, labels_of
from sfumato.learning.recipes.observing import Observer, Shown
from sfumato.learning.recipes.preparing import check_arrays
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Ledger

__all__ = ["LabelTrained", "check_data", "train_label_dp"]


def train_label_dp(
    recipe: LabelRecipe | NumberRecipe,
    data: Dataset,
    *,
    out: str | Path,
    resume: bool = False,
    ledger: Ledger | str | Path | None = None,
    dataset: str = "",
    analyst: str = "",
    device: str = "cpu",
    half: bool = False,
    compile: bool = False,
    minutes: float | None = None,
    pretrained: str | Path | None = None,
    observer: Observer | None = None,
    request: Mapping[str, Any] | None = None,
    coins: Coins = SYSTEM,
) -> LabelTrained:
    """Randomises each label once, and trains a model on the reports.

    Args:
        recipe: how; of labels that are numbers, a :class:`NumberRecipe`.
        data: of ``data.train`` the labels are private, the inputs public. In which order the rows
            come does not matter; of the first rows of one's own data that could not be said.
        out: the run's folder, new or empty.
        resume: go on with the run in ``out``.
        ledger: charged once, before any label is read.
        dataset: whose budget of labels.
        analyst: in whose name.
        device: such as "cuda".
        half: networks compute in bfloat16.
        compile: their operations are joined first, which pays for long runs on a GPU.
        minutes: stop after so many, to be gone on with.
        pretrained: a body that another run on the same inputs has pre-trained with the same
            settings, its ``curator/pretrained.safetensors``; None to pre-train one where the recipe
            says so.
        observer: who is told how far it is.
        request: what was asked for, kept for whoever resumes.
        coins: where reports' randomness comes from; seeded in tests only.

    Raises:
        ValueError: for parameters that cannot be, before any label is read or paid for.
        LedgerError: if the budget protects somebody else, or ``out`` is a copy of a run that went
            on elsewhere.
        BudgetExceeded: if it does not pay; nothing is spent.
        OutOfTime: after ``minutes``.
    """
    folder = RunFolder(out)
    book = Ledger(ledger, create=False) if isinstance(ledger, (str, Path)) else ledger
    check_data(data)
    charge = LabelCharge(book, dataset, analyst)
    pace = {"half": half, "compile": compile, "clock": Clock(minutes)}
    setting = Setting(folder, observer or Shown(), device, coins, pace)
    run = _run(recipe, data, setting, None if pretrained is None else Path(pretrained))
    if not resume:
        charge.check_room(run.event)
        folder.begin({"label_dp": recipe.to_dict()} | dict(request or {}))
    elif folder.finished:
        raise ValueError(f"the run in {folder.path} came to its end: there is nothing to resume")
    elif folder.request().get("label_dp") != recipe.to_dict():
        raise ValueError(f"the run in {folder.path} began with another recipe: go on with that one")
    return run.finish(charge)


def _run(
    recipe: LabelRecipe | NumberRecipe, data: Dataset, setting: Setting, pretrained: Path | None
) -> _ClassRun | NumberRun:
    if isinstance(recipe, LabelRecipe):
        return _ClassRun(recipe, data, setting, pretrained)
    if pretrained is not None:
        validation.fail("pretrained", "left out where labels are numbers", str(pretrained))
    return NumberRun(recipe, data, setting)


def check_data(data: Dataset) -> None:
    """Raises unless labels of such data can be private by themselves; no label is read."""
    check_arrays(data)
    if data.owners is not None:
        raise ValueError(
            "rows must have no owners: label privacy protects one label, and an owner of several "
            "rows has several. Declare no owner, and state the guarantee for a group of labels, or "
            "train with dp-sgd, which protects owners"
        )
    if data.rows is not None and not data.citation:
        raise ValueError(
            "rows must be left out with data of one's own: which rows are the first may go by "
            "their labels, as in a folder for each class. Make a smaller data set by the inputs"
        )
    if not len(data.train.labels):
        raise ValueError("train must have rows: the number of labels is public, and there are none")


@final
class _ClassRun(LabelRun[LabelRecipe]):
    """One run, stage by stage; what is in its folder is not made again."""

    def __init__(
        self, recipe: LabelRecipe, data: Dataset, setting: Setting, pretrained: Path | None
    ) -> None:
        super().__init__(recipe, data, setting)
        self.device, self.coins, self.pace = setting.device, setting.coins, setting.pace
        self.folder, self.classes = setting.folder, len(data.classes)
        self.inputs = self.public = PublicInputs(
            recipe, data, self.folder, self.device, self.coins, self.pace, setting.told, pretrained
        )
        self.parts = split(len(data.train.labels), recipe.shares, recipe.seed)
        if min(map(len, self.parts)) < 2:
            found = tuple(map(len, self.parts))
            validation.fail("shares", "such that every stage has two labels or more", found)
        check_mechanism(recipe, self.classes)
        self.inputs.check()  # or says why not, before anything is read

    @property
    def event(self) -> Event:
        """One report of each label."""
        return self.recipe.event(self.classes)

    def prepare(self) -> dict[str, Any]:
        """A body, of inputs alone: what can fail does so before the charge."""
        pretrained = self.inputs.pretrained
        if pretrained is not None and self.recipe.start == "least-squares":
            _ = self.inputs.probes
        return pretraining_record(self.recipe, self.data, pretrained)

    def learn(self, journal: LabelJournal) -> Learnt:
        """All stages that are left."""
        network, found = self._stages(journal)
        model = nn.Sequential(self.inputs.features.to(self.device), network).eval()
        recipe = self.recipe
        return Learnt(model, public_facts(self.data, found, recipe.features, recipe.origin))

    def measure(self, model: nn.Module) -> float | None:
        """Accuracy on the test set; None without one."""
        inputs, labels = self.data.test
        if not len(labels):
            return None
        found = transform(model, inputs_of(inputs, self.data.bounds)).argmax(dim=1)
        return float((found == labels_of(labels, self.classes)).double().mean())

    # --- stages ---------------------------------------------------------------------------------

    def _stages(self, journal: LabelJournal) -> tuple[nn.Module, list[Reports]]:
        """The last network, and all reports."""
        found: list[Reports] = []
        network: nn.Module | None = None
        for stage, rows in enumerate(self.parts):
            sets = self._sets(stage, torch.from_numpy(rows), network)
            reports = randomise_stage(
                self.recipe, stage, rows, sets, self.data.train.labels, journal, self.coins,
                self.setting.told("labels"), self.inputs.order,
            )  # fmt: skip
            found.append(reports)
            network = self._taught(stage, gathered(found, self.device), network)
        assert network is not None
        return network, found

    def _sets(self, stage: int, rows: Tensor, network: nn.Module | None) -> Sets:
        """Which classes may be reported: all at first, then by the last stage's model."""
        if network is None:
            return np.ones((len(rows), self.classes), dtype=np.bool_)
        name = f"sets-{stage}"
        stored = self.folder.read_curator_tensors(name)
        if stored is None:
            logits = self._logits(network, rows) / self.recipe.temperature
            prior = logits.double().softmax(dim=1).cpu().numpy()
            made = torch.from_numpy(best_sets(prior, self.recipe.epsilon).sets)
            self.folder.write_curator_tensors(name, {"sets": made})
            return made.numpy()
        return stored["sets"].numpy()

    def _taught(self, stage: int, known: Known, last: nn.Module | None) -> nn.Module:
        """The stage's own network, or the last of several that follow each other."""
        recipe = self.recipe
        if recipe.targets != "soft":
            logits = None if last is None else self._logits(last, known.rows)
            kept, targets = learnt_targets(recipe, known, logits)
            return self._fitted(stage, 0, known.rows[kept], targets)
        logits = self._first_logits(stage, known, last)
        network: nn.Module | None = None
        for number in range(1, recipe.rounds + 1):
            kept, targets = learnt_targets(recipe, known, logits)
            network = self._fitted(stage, number, known.rows[kept], targets)
            if number < recipe.rounds:
                logits = self._logits(network, known.rows)
        assert network is not None
        return network

    def _first_logits(self, stage: int, known: Known, last: nn.Module | None) -> Tensor:
        """Of the last stage's model; at first by least squares, or by a network of its own."""
        squares = self.recipe.start == "least-squares"
        if last is not None:
            logits = self._logits(last, known.rows)
            return (
                later_prior(self.recipe, known, logits, self._probes(known)) if squares else logits
            )
        if squares:
            return first_prior(self.recipe, known, self._probes(known))
        _, targets = learnt_targets(self.recipe, known, None)
        return self._logits(self._fitted(stage, 0, known.rows, targets), known.rows)

    def _probes(self, known: Known) -> Tensor:
        return self.inputs.probes[known.rows.to(self.device)]

    def _fitted(self, stage: int, number: int, rows: Tensor, targets: Tensor) -> nn.Module:
        return fit_network(
            self.inputs.network, self.inputs.rows[rows.to(self.device)], targets, self.recipe,
            mixup=self.recipe.mixup[stage], seed=derived_seed(self.recipe.seed, stage, number),
            folder=self.folder.curator / f"network-{stage}-{number}",
            told=self.setting.told(f"network {stage + 1}.{number}"), **self.pace,
        )  # fmt: skip

    def _logits(self, network: nn.Module, rows: Tensor) -> Tensor:
        return logits_of(network, self.inputs.rows[rows.to(self.device)], self.pace["half"])
