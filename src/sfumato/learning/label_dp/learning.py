"""From reports to what a network learns: which rows, which targets, and the first guess.

Everything here reads reports, which were released, and models made of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from sfumato.learning.label_dp.least_squares import least_squares_scores
from sfumato.learning.label_dp.randomising import Reports
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.targets import best_sharpness, debiased_targets, soft_targets
from sfumato.learning.label_dp.with_prior import best_sets

__all__ = ["Known", "first_prior", "gathered", "learnt_targets"]


@final
@dataclass(frozen=True, eq=False)
class Known:
    """All reports so far, of one stage after the other.

    Attributes:
        rows: (n,) their numbers in the training set.
        told: (n,) classes, or (n, classes) noisy vectors.
        likelihood: (n, classes).
        fresh: (n,) whether a report is of the last stage.
        device: where targets go.
    """

    rows: Tensor
    told: Tensor
    likelihood: Tensor
    fresh: Tensor
    device: str

    @property
    def classes(self) -> int:
        """How many."""
        return self.likelihood.shape[1]


def gathered(stages: Sequence[Reports], device: str) -> Known:
    """The reports of all stages so far."""
    joined = (
        torch.from_numpy(np.concatenate([getattr(stage, name) for stage in stages]))
        for name in ("rows", "told", "likelihood")
    )
    rows, told, likelihood = joined
    if not len(rows):
        raise ValueError(
            "no label has a report: all of them were being randomised when the run was cut off, "
            "and are told. Begin anew, with a budget of its own"
        )
    last = torch.zeros(len(rows), dtype=torch.bool)
    last[len(rows) - len(stages[-1].rows) :] = True
    return Known(rows, told, likelihood, last, device)


def learnt_targets(
    recipe: LabelRecipe, known: Known, logits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Which reports are learnt from, and their targets.

    *Hard*: a report is its class. With a model of the stages before (``logits``), reports of those
    stages that RR-with-prior would not have made under that model are dropped, as in the authors'
    code: they are most probably lies. *Soft*: the posterior with the model's prior, sharpened or
    softened to suit the reports; without a model an even prior. *Debiased*: unbiased.

    Args:
        recipe: how.
        known: the reports.
        logits: (n, classes) of the newest model; None if there is none.

    Returns:
        Places among the reports, on the CPU, and (places, classes) targets, on the device.
    """
    everyone = torch.arange(len(known.rows))
    if recipe.targets == "debiased":
        return everyone, _unbiased(recipe, known)
    if recipe.targets == "hard":
        kept = everyone if logits is None else everyone[_believable(recipe, known, logits)]
        targets = np.eye(known.classes)[known.told.numpy()]
        return kept, _placed(targets, known)[kept.to(known.device)]
    prior = np.full(known.likelihood.shape, 1 / known.classes)
    if logits is not None:
        factor = best_sharpness(logits.cpu(), known.likelihood)
        prior = (factor * logits.double()).softmax(dim=1).cpu().numpy()
    return everyone, _placed(soft_targets(prior, known.likelihood.numpy()), known)


def first_prior(recipe: LabelRecipe, known: Known, features: Tensor) -> Tensor:
    """(n, classes): least squares of unbiased targets on features, for the same rows."""
    return least_squares_scores(features, _unbiased(recipe, known), features)


def _unbiased(recipe: LabelRecipe, known: Known) -> Tensor:
    """A noisy one-hot vector is unbiased as it is."""
    if recipe.mechanism == "alibi":
        return known.told.to(known.device, torch.float32)
    targets = debiased_targets(known.told.numpy(), recipe.epsilon, known.classes)
    return _placed(targets, known)


def _believable(recipe: LabelRecipe, known: Known, logits: Tensor) -> Tensor:
    prior = (logits.double() / recipe.temperature).softmax(dim=1).cpu().numpy()
    sets = best_sets(prior, recipe.epsilon).sets
    inside = sets[np.arange(len(sets)), known.told.numpy()]
    return torch.from_numpy(inside) | known.fresh


def _placed(targets: np.ndarray, known: Known) -> Tensor:
    return torch.from_numpy(targets).to(known.device, torch.float32)
