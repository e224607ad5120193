"""Inputs with noise of their own, drawn once: an epsilon shared by relevance.

    >>> told = NoisyInputs(epsilon=2.0, shares=(1.5, 0.5), lower=0.0, upper=1.0)
    >>> told.scales.round(4).tolist()  # range d / (beta_j epsilon)
    [0.6667, 2.0]
    >>> told.guarantee
    Guarantee: epsilon 2, delta 0, replace one record

Formal guarantee. Each input is cut to its declared range, and gets Laplace noise of scale b_j =
range_j d / (beta_j epsilon), once. Replacing a record moves input j by range_j at most, and sum_j
range_j / b_j = epsilon sum_j beta_j / d = epsilon: all of its noisy inputs together are epsilon-DP,
given the shares. No other record's are touched, so this is also local: whoever collects them need
not be trusted. Anything may be computed from them, as often as one likes.

Computed as y_j = c_j (x_j - lower_j) / range_j with c_j = beta_j / d cut to multiples of 2^-40, so
that sum c_j <= 1 exactly; then Laplace noise of scale 1 / epsilon at an L1 sensitivity of 1, by the
exact sampler; then back. The noise is on a grid of a millionth of its scale, which costs nothing.

Reference: Phan et al., arXiv:1709.05750, section 4.2, corrected (see
:mod:`~sfumato.learning.adaptive_laplace.printed`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.events import LaplaceEvent
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.private_values import as_floats

__all__ = ["NoisyInputs"]

_STEPS = 2.0**40
_ROWS = 2048  # at a time
_UNEVEN = 1e-6  # by how much shares may miss their sum


@final
@dataclass(frozen=True, eq=False)
class NoisyInputs:
    """How each record's inputs are told. All fields are public.

    Attributes:
        epsilon: of one record's inputs.
        shares: beta, of each of d inputs; not negative, adding up to d.
        lower, upper: the declared range, a number or one for each input.
        unit: whose data one record is.
    """

    epsilon: float
    shares: ArrayLike
    lower: ArrayLike = 0.0
    upper: ArrayLike = 1.0
    unit: str = "record"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", validation.positive("epsilon", self.epsilon))
        shares = np.array(self.shares, dtype=np.float64).ravel()
        if not shares.size or not np.isfinite(shares).all() or shares.min() < 0:
            validation.fail("shares", "numbers, 0 or above, one for each input", self.shares)
        if abs(shares.sum() / shares.size - 1) > _UNEVEN:
            wanted = f"such that they add up to {shares.size}, the number of inputs"
            validation.fail("shares", wanted, float(shares.sum()))
        object.__setattr__(self, "shares", shares)
        for name in ("lower", "upper"):
            side = np.broadcast_to(np.asarray(getattr(self, name), dtype=np.float64), shares.shape)
            object.__setattr__(self, name, side)
        if not np.isfinite(self._range).all() or self._range.min() <= 0:
            validation.fail("lower", "below upper, both finite", (self.lower, self.upper))
        validation.name("unit", self.unit)
        self._mechanism  # noqa: B018  # says what is wrong before there is a row

    @property
    def inputs(self) -> int:
        """How many a record has: d."""
        return len(np.asarray(self.shares))

    @cached_property
    def _range(self) -> NDArray[np.float64]:
        return np.asarray(self.upper) - np.asarray(self.lower)

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """The c of each input: beta_j / d, cut so that they add up to 1 at most, exactly."""
        shares = np.asarray(self.shares)
        cut = np.floor(shares / (shares.sum() * (1 + 2.0**-40)) * _STEPS) / _STEPS
        if cut.sum() > 1:  # multiples of 2^-40 below 2^12: exact
            raise ArithmeticError("shares add up to more than all of epsilon")
        return cut

    @property
    def scales(self) -> NDArray[np.float64]:
        """Of each input's noise, in its own units: b; infinite for one whose share is 0."""
        c = self.weights
        noise = self._range * self._mechanism.scale
        return np.divide(noise, c, out=np.full_like(c, np.inf), where=c > 0)

    @cached_property
    def _mechanism(self) -> Laplace:
        moved = Sensitivity(1.0, Norm.L1, Neighbours.REPLACE_ONE, self.unit, self.inputs)
        return Laplace.calibrate(moved, epsilon=self.epsilon)

    @property
    def event(self) -> LaplaceEvent:
        """One record's inputs."""
        return self._mechanism.event

    @property
    def guarantee(self) -> Guarantee:
        """Pure; also local."""
        return Guarantee(self.epsilon, 0.0, Neighbours.REPLACE_ONE, self.unit)

    def perturb(
        self,
        values: NDArray[Any],
        *,
        coins: Coins = SYSTEM,
        told: Callable[[int, int], object] = lambda done, total: None,
    ) -> NDArray[np.float32]:
        """(n, d) noisy inputs of private (n, d) values.

        What is outside its range is moved to its end, what is no number to the lower one. An input
        whose share is 0 is not told: the middle of its range stands for it.

        Raises:
            ValueError: if the values have another number of columns.
        """
        if values.ndim != 2 or values.shape[1] != self.inputs:
            validation.fail("values", f"rows of {self.inputs} numbers", tuple(values.shape[1:]))
        found = np.empty(values.shape, dtype=np.float32)
        for at in range(0, len(values), _ROWS):
            part = self._weighted(values[at : at + _ROWS])
            found[at : at + _ROWS] = self._back(self._mechanism.perturb(part, coins=coins))
            told(min(at + _ROWS, len(values)), len(values))
        return found

    def _weighted(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Multiples of 2^-40 from 0 to c."""
        rows = as_floats(values)  # NaN for what is no number: text, None, anything
        rows = np.clip(np.where(np.isnan(rows), self.lower, rows), self.lower, self.upper)
        shares = np.clip((rows - self.lower) / self._range, 0.0, 1.0)
        return np.floor(shares * (self.weights * _STEPS)) / _STEPS

    def _back(self, noisy: NDArray[np.float64]) -> NDArray[np.float64]:
        c = self.weights
        spread = np.divide(self._range, c, out=np.zeros_like(c), where=c > 0)
        start = np.where(c > 0, self.lower, np.asarray(self.lower) + self._range / 2)
        limit = float(np.finfo(np.float32).max)
        return np.clip(start + spread * noisy, -limit, limit)
