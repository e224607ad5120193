"""What a network learns from reports: hard, debiased or soft labels.

All losses here are cross-entropy, which is linear in its target t: loss = -sum_k t_k log p_k. So a
way to learn from reports is a way to make targets of them.

*Debiased*. With randomised response among K classes and a report v,

    l~(v) = ((e^eps + K - 1) l(v) - sum_k l(k)) / (e^eps - 1)

has the expectation l(y) for every label y: unbiased, but not bounded below. It is cross-entropy
with the target ((e^eps + K - 1) e_v - 1) / (e^eps - 1), whose numbers add up to 1.

    >>> debiased_targets([0], epsilon=1.0, classes=3).round(4).tolist()
    [[2.164, -0.582, -0.582]]

*Soft*. With a model's prior p and the likelihood of the report under each class, the posterior:

    >>> soft_targets([[0.9, 0.1]], [[0.2, 0.8]]).round(4).tolist()
    [[0.6923, 0.3077]]

Guarantee: reports were released; everything here is post-processing and costs nothing.

Reference: Natarajan, Dhillon, Ravikumar and Tewari, "Learning with noisy labels" (2013), lemma 1;
for soft labels arXiv:2106.03408.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.label_dp.with_prior import checked_prior

__all__ = [
    "best_sharpness", "cross_entropy", "debiased_loss", "debiased_targets", "soft_targets",
]  # fmt: skip

_LEAST = 1e-6  # of a prior: no report may be impossible


def debiased_targets(reports: ArrayLike, epsilon: float, classes: int) -> NDArray[np.float64]:
    """(reports, classes): targets whose cross-entropy is that of the true labels on average."""
    epsilon = validation.positive("epsilon", epsilon)
    lie = math.exp(-epsilon)
    told = np.eye(validation.at_least("classes", classes, 2))[np.asarray(reports, dtype=np.int64)]
    return ((1 + (classes - 1) * lie) * told - lie) / (1 - lie)


def soft_targets(prior: ArrayLike, likelihood: ArrayLike) -> NDArray[np.float64]:
    """(reports, classes): the posterior, proportional to prior times likelihood.

    Args:
        prior: what a model takes each class for; a little of each is added.
        likelihood: of the report under each class, up to a factor of each report's own.
    """
    p = checked_prior(prior)
    joint = (p + _LEAST) * np.asarray(likelihood, dtype=np.float64)
    return joint / joint.sum(axis=1, keepdims=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean over examples of -sum_k t_k log p_k, in single precision."""
    return -(targets * F.log_softmax(logits.float(), dim=1)).sum(dim=1).mean()


def debiased_loss(logits: Tensor, reports: Tensor, epsilon: float) -> Tensor:
    """The debiased cross-entropy of reports by randomised response among all classes."""
    targets = debiased_targets(reports.cpu().numpy(), epsilon, logits.shape[1])
    return cross_entropy(logits, torch.from_numpy(targets).to(logits.device, torch.float32))


def best_sharpness(logits: Tensor, likelihood: Tensor) -> float:
    """The factor on ``logits`` under which the reports are most probable.

    Of models that are over- or under-confident the posterior would believe too much or too little.
    The best of factors from 1/16 to 16 is found by the reports alone, so this costs nothing.

    Args:
        logits: (reports, classes) of the model.
        likelihood: of each report under each class.
    """
    factors = [2.0 ** (step / 4) for step in range(-16, 17)]

    def score(factor: float) -> float:
        told = (F.softmax(factor * logits.double(), dim=1) * likelihood).sum(dim=1)
        return float(told.clamp(min=1e-30).log().mean())

    return max(factors, key=score)
