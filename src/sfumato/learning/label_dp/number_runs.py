"""A run whose labels are numbers: a noisy histogram, bins, one report of each label, a model.

=========  ========================  ============================================================
stage      in the run's folder       if it is cut off
=========  ========================  ============================================================
order      curator/order             drawn once; a function of the inputs but for equal ones
features   curator/features          computed once
histogram  curator/reports.jsonl     once begun it is there or lost; then bins are for an even prior
bins       curator/bins.json         made once, before a label is told by them
reports    curator/reports.jsonl     what was reported stays, what was begun is lost
network    curator/network-0-0/      goes on from the last checkpoint
=========  ========================  ============================================================

Formal guarantee: epsilon-DP for replacing one label by another, delta 0, inputs being public
(:mod:`~sfumato.learning.label_dp.number_labels`); models are post-processing. Reference: Ghazi et
al., "Regression with label differential privacy", arXiv:2212.06074.
"""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.data import Dataset
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.label_dp.bins import BinnedResponse
from sfumato.learning.label_dp.fitting import fit_network, squared_error
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.label_dp.learning import gathered
from sfumato.learning.label_dp.number_labels import (
    BinnedLabels,
    Response,
    bins_of_run,
    noisy_prior,
)
from sfumato.learning.label_dp.number_models import NumberModel, number_network
from sfumato.learning.label_dp.number_recipe import NO_NETWORK, NumberRecipe
from sfumato.learning.label_dp.public_rows import PublicRows
from sfumato.learning.label_dp.randomising import Reports, randomise_stage, split
from sfumato.learning.label_dp.recording import bin_facts, public_facts
from sfumato.learning.label_dp.running import LabelRun, Learnt, Setting
from sfumato.learning.recipes.inputs import inputs_of

__all__ = ["NumberRun"]

_BATCH = 1024  # test rows at a time
_EVEN, _GUESS = "even: no histogram was asked for", "a public guess"
_HISTOGRAM = "a noisy histogram of the labels, part of epsilon"
_LOST = "even: the histogram was lost when the run was cut off, and is paid for"


@final
class NumberRun(LabelRun[NumberRecipe]):
    """One run; what is in its folder is not made again."""

    def __init__(self, recipe: NumberRecipe, data: Dataset, setting: Setting) -> None:
        if data.target_bounds is None:
            raise ValueError(
                "recipe must be one for classes where labels are classes (label_preset), got one "
                "for numbers: declare label_bounds instead of classes for a label that is a number"
            )
        super().__init__(recipe, data, setting)
        self.bounds = data.target_bounds
        self.public = PublicRows(
            recipe, data, setting.folder, setting.device, setting.coins, setting.told
        )
        self.parts = split(len(data.train.labels), recipe.shares, recipe.seed)
        if len(data.train.labels) < 2:
            validation.fail("train", "two rows or more", len(data.train.labels))
        self.public.check()
        with torch.random.fork_rng():
            number_network(recipe, self.public.size)  # or says why not, before anything is read

    @property
    def event(self) -> Event:
        """The histogram, and one report of each label."""
        return self.recipe.event

    def prepare(self) -> dict[str, Any]:
        """Features of the public inputs."""
        _ = self.public.rows
        return {}

    def learn(self, journal: LabelJournal) -> Learnt:
        """Tells all labels that are left, and learns from them."""
        prior = self._prior(journal)
        bins = bins_of_run(self.recipe, prior, self.setting.folder)
        reports = self._reports(bins, journal)
        recipe = self.recipe
        facts = public_facts(self.data, [reports], recipe.features, recipe.origin)
        facts |= {"prior": self._prior_said(prior), "bins": bin_facts(bins, self.bounds)}
        model = nn.Sequential(
            self.public.features.to(self.setting.device), self._fitted(reports, bins)
        )
        return Learnt(model.eval(), facts)

    @torch.no_grad()
    def measure(self, model: nn.Module) -> NumberErrors | None:
        """Errors on the test set; None without one."""
        inputs, labels = self.data.test
        if not len(labels):
            return None
        rows = inputs_of(inputs, self.data.bounds).split(_BATCH)
        found = torch.cat([model(part.to(self.setting.device)).cpu() for part in rows])
        return NumberErrors.of(found.numpy(), labels, self.bounds)

    # --- labels ---------------------------------------------------------------------------------

    def _prior(self, journal: LabelJournal) -> np.ndarray[Any, np.dtype[np.float64]] | None:
        """The noisy histogram; None if it was lost, or there is to be none."""
        if not self.recipe.histogram_share:
            return None
        labels, coins = self.data.train.labels, self.setting.coins
        return noisy_prior(self.recipe, labels, self.bounds, journal, coins)

    def _prior_said(self, prior: object) -> str:
        if not self.recipe.histogram_share:
            return _GUESS if self.recipe.prior else _EVEN
        return _LOST if prior is None else _HISTOGRAM

    def _reports(self, bins: BinnedResponse, journal: LabelJournal) -> Reports:
        (rows,) = self.parts
        sets = np.ones((len(rows), len(bins.values)), dtype=np.bool_)
        return randomise_stage(
            Response(bins.epsilon), 0, rows, sets,
            BinnedLabels(self.data.train.labels, self.bounds, bins), journal, self.setting.coins,
            self.setting.told("labels"), self.public.order,
        )  # fmt: skip

    # --- models ---------------------------------------------------------------------------------

    def _fitted(self, reports: Reports, bins: BinnedResponse) -> NumberModel:
        """Least squares of unbiased reports on features, and a network on what they leave."""
        known, device = gathered([reports], self.setting.device), self.setting.device
        values = np.array(bins.values)[known.told.numpy()]
        targets = torch.from_numpy(bins.unbiased(values)).to(device, torch.float32)
        rows = self.public.rows[known.rows.to(device)]
        model = NumberModel(math.prod(self.public.size), self.bounds).to(device)
        model.fit(rows, targets, self.recipe.seed)
        if self.recipe.network != NO_NETWORK:
            model.network = self._network(rows, targets - model.linear(rows))
        return model

    def _network(self, rows: Tensor, targets: Tensor) -> nn.Module:
        recipe, setting = self.recipe, self.setting

        def fresh() -> nn.Module:
            made = number_network(recipe, self.public.size)
            assert made is not None
            return made

        return fit_network(
            fresh, rows, targets[:, None], recipe, mixup=0.0, seed=derived_seed(recipe.seed, 0, 0),
            folder=setting.folder.curator / "network-0-0", told=setting.told("network"),
            loss=squared_error, **setting.pace,
        )  # fmt: skip
