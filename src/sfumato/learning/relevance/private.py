"""Private relevance: which inputs matter on average, by one Laplace release.

    >>> way = PrivateRelevance(epsilon=0.075, neighbours="replace-one")
    >>> way.guarantee
    Guarantee: epsilon 0.075, delta 0, replace one record
    >>> round(way.scale / 60_000, 6)  # of the noise on the mean over MNIST's 60,000 records
    0.000444

Formal guarantee. The network's weights do not depend on the records (or were released under a
guarantee of their own, which composes with this one), so one record's relevance R_i is a function
of that record alone. It is scaled to R_i / max(1, ||R_i||_1), so the sum over records moves by at
most 1 in L1 if a record is added, removed or left out, and by at most 2 if one is replaced. Laplace
noise of scale 1 / epsilon, or 2 / epsilon, on each number makes the sum epsilon-DP. The mean under
replacements is that sum divided by n, which is public then: sensitivity 2 / n and noise 2 / (n
epsilon) per input, whatever the number of inputs.

Rounding. Scaled relevance is cut towards zero to multiples of 2^-30, so ||R_i||_1 <= 1 holds for up
to 2^22 inputs (more are refused), and whole numbers of 2^-30 are added without rounding or
overflow, however many records there are. The sum is held to +-2^23, where every multiple of 2^-30
is a floating-point number; holding brings no two sums further apart. Relevance that is not finite
counts as 0.
What is assumed: a record's relevance, computed in double precision in batches of one shape, is a
function of the record alone. Products of matrices may be rounded by a row's place in a batch, and a
record that is removed moves others to other places; what differs is about 1e-17, far below the cut,
but that it never crosses one is not proved. Replacing a record moves no other.

Reference: Phan, Wu, Hu and Dou, "Adaptive Laplace mechanism: differential privacy preservation in
deep learning", ICDM 2017, arXiv:1709.05750, lemma 1, where each input is bounded by itself (2 d / n
for d inputs) and the network was trained on the same records without privacy;
:mod:`sfumato.learning.adaptive_laplace.printed` says what that leads to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core import validation
from sfumato.core.events import Event, LaplaceEvent, compose
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.relevance.known import KnownModel, checked_model
from sfumato.learning.relevance.propagation import input_relevance
from sfumato.learning.relevance.rules import EpsilonRule, RelevanceRule
from sfumato.mechanisms.laplace import Laplace

__all__ = [
    "PrivateRelevance", "RelevanceRelease", "check_inputs", "relevance_sum", "scaled_relevance",
]  # fmt: skip

_STEPS = 2.0**30
_MOST_INPUTS = 2**22
_LARGEST = 2**53  # steps; sums are held within, where every whole number is a float
_JUST_BELOW = 1 - 2.0**-30  # more than the rounding of a norm of 2^22 numbers
_DEFAULT = EpsilonRule()
_Told = Callable[[int, int], object]


@final
@dataclass(frozen=True, eq=False)
class RelevanceRelease:
    """Noisy relevance of each input. Public.

    Attributes:
        total: (*shape) the noisy sum over records of their scaled relevance.
        mean: the same over the public number of records; None where there is none.
        event: what it amounts to, with the network's training if that was private.
        private: False if seeded test coins made the noise.
    """

    total: NDArray[np.float64]
    mean: NDArray[np.float64] | None
    event: Event
    private: bool


@final
@dataclass(frozen=True)
class PrivateRelevance:
    """One release of the relevance of each input. All fields are public.

    Attributes:
        epsilon: of the release.
        neighbours: "replace-one" (sensitivity 2), or "add-remove" and "zero-out" (1).
        unit: whose data one record is.
        rule: how layers share relevance.
        public_size: n where it is public, to divide by; needed for a mean.
    """

    epsilon: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    unit: str = "record"
    rule: RelevanceRule = _DEFAULT
    public_size: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        validation.name("unit", self.unit)
        if self.public_size is not None:
            validation.count("public_size", self.public_size)
        self._mechanism(1)

    @property
    def sensitivity(self) -> Sensitivity:
        """Of the sum, in L1."""
        bound = 2.0 if self.neighbours is Neighbours.REPLACE_ONE else 1.0
        return Sensitivity(bound, Norm.L1, self.neighbours, self.unit)

    def _mechanism(self, inputs: int) -> Laplace:
        known = self.sensitivity
        wide = Sensitivity(known.bound, known.norm, known.neighbours, known.unit, inputs)
        return Laplace.calibrate(wide, epsilon=self.epsilon)

    @cached_property
    def scale(self) -> float:
        """Of the noise on each number of the sum."""
        return self._mechanism(1).scale

    @property
    def event(self) -> LaplaceEvent:
        """Of the release itself."""
        return self._mechanism(1).event

    @property
    def guarantee(self) -> Guarantee:
        """Of the release itself."""
        return Guarantee(self.epsilon, 0.0, self.neighbours, self.unit)

    def event_with(self, model: KnownModel) -> Event:
        """With what the network's training released."""
        known = checked_model(model)
        return self.event if known.event is None else compose(known.event, self.event)

    def release(
        self,
        model: KnownModel,
        inputs: Tensor,
        *,
        coins: Coins = SYSTEM,
        told: _Told = lambda done, total: None,
    ) -> RelevanceRelease:
        """Computes relevance, and releases its noisy sum.

        Args:
            model: the network, and where it comes from.
            inputs: (n, *shape) private.
            coins: where noise comes from; seeded in tests only.
            told: how far it is.
        """
        event = self.event_with(model)
        total = relevance_sum(model, inputs, self.rule, told)
        noisy = self._mechanism(prod(total.shape)).perturb(total, coins=coins)
        mean = None if self.public_size is None else noisy / self.public_size
        return RelevanceRelease(noisy, mean, event, coins.private)


def check_inputs(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape; raises for more inputs than lengths can be told exactly of."""
    if prod(shape) > _MOST_INPUTS:
        validation.fail("inputs", f"{_MOST_INPUTS} numbers a record at most", prod(shape))
    return shape


def relevance_sum(
    model: KnownModel,
    inputs: Tensor,
    rule: RelevanceRule | str = _DEFAULT,
    told: _Told = lambda done, total: None,
) -> NDArray[np.float64]:
    """(*shape) the sum over records of their scaled relevance, exactly, held to +-2^23. Private.

    Raises:
        ValueError: for more than 2^22 inputs, whose lengths could not be told exactly.
    """
    shape = check_inputs(tuple(inputs.shape[1:]))
    found = np.zeros(shape, dtype=object)  # Python's whole numbers, which have no largest
    done = 0
    for part in input_relevance(checked_model(model).module, inputs, rule):
        found = found + step_sum(part)
        done += len(part)
        told(done, len(inputs))
    return np.clip(found, -_LARGEST, _LARGEST).astype(np.float64) / _STEPS


def step_sum(values: Tensor) -> NDArray[np.object_]:
    """(*shape) the sum over a batch of scaled relevance, in steps of 2^-30, as whole numbers."""
    steps = (scaled_relevance(values) * _STEPS).to(torch.int64).sum(0)  # below 2^63 for 2^33 rows
    return steps.cpu().numpy().astype(object)


def scaled_relevance(values: Tensor) -> Tensor:
    """R / max(1, ||R||_1) of each record, in multiples of 2^-30, towards zero.

    >>> scaled_relevance(torch.tensor([[0.25, -0.5], [3.0, -1.0], [float("nan"), 1.0]])).tolist()
    [[0.2499999..., -0.4999999...], [0.7499999..., -0.2499999...], [0.0, 0.0]]
    """
    rows = values.to(torch.float64).flatten(1)
    norms = torch.linalg.vector_norm(rows, ord=1, dim=1, keepdim=True)
    shorter = (rows / norms.clamp(min=1.0)).masked_fill(~norms.isfinite(), 0.0)
    return ((shorter * (_JUST_BELOW * _STEPS)).trunc() / _STEPS).reshape(values.shape)
