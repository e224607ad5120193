"""A record's label, told once: by randomised response, or as a noisy one-hot vector.

    >>> told = NoisyLabels(epsilon=2.0, classes=10)
    >>> told.guarantee, round(told.contrast, 4)
    (Guarantee: epsilon 2, delta 0, replace one record, 0.3898)

The unit is the record's: to replace a record may replace its label, and nothing else here changes.
That is not label privacy, which says nothing of inputs; here both are told with noise, and their
epsilons add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.label_dp.alibi import NoisyOneHot
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.private_values import as_codes
from sfumato.mechanisms.randomized_response import RandomizedResponse

__all__ = ["LABEL_WAYS", "NoisyLabels"]

LABEL_WAYS = ("response", "one-hot")
"""k-ary randomised response, or e_y + Lap(2 / epsilon) on each number."""


@final
@dataclass(frozen=True)
class NoisyLabels:
    """How each record's label is told. All fields are public.

    Formal guarantee: epsilon-DP for replacing one record, and local. Randomised response keeps a
    label with e^epsilon times the probability of any other; a one-hot vector moves by 2 in L1.

    Attributes:
        epsilon: of one label.
        classes: how many; a label that is none of them counts as the first.
        way: see :data:`LABEL_WAYS`.
        unit: whose data one record is.
    """

    epsilon: float
    classes: int
    way: str = "response"
    unit: str = "record"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        validation.at_least("classes", self.classes, 2)
        if self.way not in LABEL_WAYS:
            validation.fail("labels", f"one of {', '.join(LABEL_WAYS)}", self.way)
        self.event  # noqa: B018  # says what is wrong before there is a label

    @cached_property
    def _response(self) -> RandomizedResponse:
        return RandomizedResponse(self.epsilon, self.classes, unit=self.unit)

    @cached_property
    def _laplace(self) -> Laplace:
        moved = Sensitivity(2.0, Norm.L1, Neighbours.REPLACE_ONE, self.unit, self.classes)
        return Laplace.calibrate(moved, epsilon=self.epsilon)

    @property
    def event(self) -> Event:
        """One label."""
        return self._response.event if self.way == "response" else self._laplace.event

    @property
    def guarantee(self) -> Guarantee:
        """Pure; also local."""
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    @property
    def contrast(self) -> float:
        """Of randomised response: how much likelier a true report is than a given false one."""
        return self._response.keep - self._response.switch

    def perturb(self, labels: NDArray[Any], *, coins: Coins = SYSTEM) -> NDArray[Any]:
        """(n,) classes, or (n, classes) noisy vectors, of private labels."""
        if self.way == "response":
            return self._response.perturb(labels, coins=coins)
        codes = as_codes(labels, self.classes, 0)
        return self._laplace.perturb(np.eye(self.classes)[codes], coins=coins)

    def likelihood(self, reports: NDArray[Any]) -> NDArray[np.float64]:
        """(n, classes) of each report, were the label this class; up to a factor."""
        if self.way == "one-hot":
            return NoisyOneHot(self.epsilon, self.classes).likelihood(reports)
        same = np.arange(self.classes) == np.asarray(reports)[:, None]
        return np.where(same, self._response.keep, self._response.switch)

    def unbiased(self, reports: NDArray[Any]) -> NDArray[np.float64]:
        """(n, classes) numbers whose expectation is the true label's one-hot vector."""
        if self.way == "one-hot":
            return np.asarray(reports, dtype=np.float64)
        same = np.arange(self.classes) == np.asarray(reports)[:, None]
        return (same - self._response.switch) / self.contrast
