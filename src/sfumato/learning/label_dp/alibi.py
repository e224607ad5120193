"""ALIBI: a label as a vector with Laplace noise, drawn once, and what it says given a prior.

The label becomes its one-hot vector e_y. To replace a label moves two numbers by one each, so
o = e_y + Lap(2 / eps) on each number is epsilon-DP. By Bayes, with a prior p on the classes,

    Pr[y = k | o]  proportional to  p_k exp(-||o - e_k||_1 / b),  b = 2 / eps,

where ||o - e_k||_1 is |o_k - 1| - |o_k| and a term that all k share. The prior may be a model's
guess and may improve while the model learns: noise is drawn once, the rest is post-processing.

    >>> import numpy as np
    >>> noisy = NoisyOneHot(epsilon=8.0, classes=3)
    >>> noisy.scale, noisy.guarantee()
    (0.25, Guarantee: epsilon 8, delta 0, replace one label)
    >>> told = np.array([[0.1, 0.9, -0.2]])
    >>> noisy.posterior(np.full((1, 3), 1 / 3), told).round(3).tolist()
    [[0.002, 0.998, 0.001]]

Reference: Malek Esmaeili, Mironov, Prasad, Shilov and Tramèr, "Antipodes of label differential
privacy: PATE and ALIBI", arXiv:2106.03408, section 4. (Their code's Gaussian branch divides the
squared distance by 2 sigma; it should be by 2 sigma^2.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.label_dp.top_k import LABEL, checked_unit
from sfumato.learning.label_dp.with_prior import checked_prior
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.private_values import as_codes

__all__ = ["NoisyOneHot"]


@final
@dataclass(frozen=True)
class NoisyOneHot:
    """One-hot vectors of labels with Laplace noise of scale 2 / epsilon on each number.

    Formal guarantee: epsilon-DP for replacing one label by another, by the Laplace mechanism at an
    L1 sensitivity of 2. If each label is told once, this is the guarantee of all of them together.

    Attributes:
        epsilon: the guarantee.
        classes: how many there are, at least 2.
        default: the public class that stands for a label that is none.
        unit: "label", and nothing else.
    """

    epsilon: float
    classes: int
    default: int = 0
    unit: str = LABEL

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        object.__setattr__(self, "classes", validation.at_least("classes", self.classes, 2))
        if validation.at_least("default", self.default, 0) >= self.classes:
            validation.fail("default", f"a class below {self.classes}", self.default)
        checked_unit(self.unit)

    @cached_property
    def _mechanism(self) -> Laplace:
        moved = Sensitivity(2.0, Norm.L1, Neighbours.REPLACE_ONE, self.unit, self.classes)
        return Laplace.calibrate(moved, epsilon=self.epsilon)

    @property
    def scale(self) -> float:
        """Of the noise: b = 2 / epsilon."""
        return self._mechanism.scale

    @property
    def event(self) -> LaplaceEvent:
        """One label's vector."""
        return self._mechanism.event

    def guarantee(self, delta: float = 0.0) -> Guarantee:
        """Pure epsilon-DP, whatever ``delta`` is asked for."""
        validation.delta("delta", delta)
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def perturb(self, labels: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """(labels, classes): each private label's noisy vector."""
        codes = as_codes(labels, self.classes, self.default)
        return self._mechanism.perturb(np.eye(self.classes)[codes], coins=coins)

    def log_likelihood(self, told: ArrayLike) -> NDArray[np.float64]:
        """(labels, classes): of each noisy vector, were the label this class; up to a constant."""
        o = np.asarray(told, dtype=np.float64)
        if o.ndim != 2 or o.shape[1] != self.classes:
            validation.fail("told", f"(labels, {self.classes}) numbers", o.shape)
        return (np.abs(o) - np.abs(o - 1)) / self.scale

    def likelihood(self, told: ArrayLike) -> NDArray[np.float64]:
        """The same as factors, the largest of each label being 1."""
        found = self.log_likelihood(told)
        return np.exp(found - found.max(axis=1, keepdims=True))

    def posterior(self, prior: ArrayLike, told: ArrayLike) -> NDArray[np.float64]:
        """(labels, classes): the probability of each class, given the prior and what was told."""
        joint = checked_prior(prior) * self.likelihood(told)
        return joint / np.maximum(joint.sum(axis=1, keepdims=True), np.finfo(float).tiny)
