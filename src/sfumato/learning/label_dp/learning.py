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

from sfumato.learning.label_dp.least_squares import (
    least_squares_scores,
    out_of_fold_scores,
)
from sfumato.learning.label_dp.randomising import Reports
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.targets import best_sharpness, debiased_targets, soft_targets
from sfumato.learning.label_dp.with_prior import best_sets

__all__ = ["Known", "first_prior", "gathered", "later_prior", "learnt_targets"]


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

    def part(self, rows: Tensor) -> Known:
        """Some of the reports, by their places."""
        return Known(
            self.rows[rows], self.told[rows], self.likelihood[rows], self.fresh[rows], self.device
        )


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
    return everyone, _posterior(known, logits)


def first_prior(recipe: LabelRecipe, known: Known, features: Tensor) -> Tensor:
    """(n, classes): least squares of unbiased targets on features, for the same rows.

    With several folds they are out of fold: a row's scores are a function of the reports of other
    folds, so the posterior counts each report once, and sharpness is found on rows that the fit has
    not seen. Unbiased targets vary much, posteriors little: so the rows of other folds first have
    posteriors, with scores that are out of fold among themselves, and these are what is fitted.
    """
    unbiased, folds, seed = _unbiased(recipe, known), recipe.folds, recipe.seed
    if folds == 1:
        return least_squares_scores(features, unbiased, features)

    def posteriors(rows: Tensor) -> Tensor:
        there = rows.to(known.device)
        scores = out_of_fold_scores(features[there], unbiased[there], folds, seed + 1)
        return _posterior(known.part(rows), scores)

    return out_of_fold_scores(features, unbiased, folds, seed, posteriors)


def later_prior(recipe: LabelRecipe, known: Known, logits: Tensor, features: Tensor) -> Tensor:
    """(n, classes): by the last stage's model, for rows whose reports it was not trained on.

    With one fold its logits are taken for all rows. With several, other rows' scores come from
    least squares of posteriors, out of fold: what the model thinks of rows it was trained on holds
    their reports already, and of other rows hardly anything of them.

    Args:
        recipe: how.
        known: the reports.
        logits: (n, classes) of the last stage's model.
        features: (n, d).
    """
    if recipe.folds == 1:
        return logits
    fresh = known.fresh
    logits = _sharpness(logits, known, fresh) * logits
    posterior = _soft(known, logits)
    scores = out_of_fold_scores(features, posterior, recipe.folds, recipe.seed)
    scores = _sharpness(scores, known, ~fresh) * scores
    return torch.where(fresh.to(logits.device)[:, None], logits, scores)


def _sharpness(logits: Tensor, known: Known, rows: Tensor) -> float:
    """By the reports of some rows; 1 if there are none."""
    if not bool(rows.any()):
        return 1.0
    return best_sharpness(logits.cpu()[rows], known.likelihood[rows])


def _posterior(known: Known, logits: Tensor | None) -> Tensor:
    """With the prior that is sharpened or softened to suit the reports; or with an even one."""
    if logits is None:
        return _soft(known, torch.zeros(known.likelihood.shape))
    return _soft(known, best_sharpness(logits.cpu(), known.likelihood) * logits.double())


def _soft(known: Known, logits: Tensor) -> Tensor:
    prior = logits.double().softmax(dim=1).cpu().numpy()
    return _placed(soft_targets(prior, known.likelihood.numpy()), known)


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
