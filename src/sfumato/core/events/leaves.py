"""Leaves: single releases, one class for each kind of noise or knowledge."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from sfumato.core import validation
from sfumato.core.events.base import Event
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours


@dataclass(frozen=True)
class Leaf(Event, ABC):
    """A single release, with the relation and unit of its declared sensitivity."""

    @property
    def relation(self) -> Neighbours:
        """The relation its sensitivity was declared for."""
        return self.neighbours  # type: ignore[attr-defined, no-any-return]

    @property
    def unit_name(self) -> str:
        """The unit its sensitivity was declared for."""
        return self.unit  # type: ignore[attr-defined, no-any-return]

    def __post_init__(self) -> None:
        self._store(neighbours=Neighbours.parse(self.relation))
        validation.name("unit", self.unit_name)
        self._check()

    @abstractmethod
    def _check(self) -> None:
        """Validates the event's own fields, and stores them as plain Python numbers."""

    @abstractmethod
    def stretched(self, steps: int) -> Leaf:
        """An event that bounds what this one says of data sets ``steps`` neighbour steps apart."""


@dataclass(frozen=True)
class GaussianEvent(Leaf):
    """Gaussian noise of standard deviation ``noise_multiplier`` times the L2 sensitivity.

    Also any post-processing of it, such as rounding to a grid.
    """

    kind: ClassVar[str] = "gaussian"
    noise_multiplier: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(noise_multiplier=validation.positive("noise_multiplier", self.noise_multiplier))

    def stretched(self, steps: int) -> Self:
        """``steps`` times the distance (triangle inequality)."""
        return replace(self, noise_multiplier=self.noise_multiplier / steps)


@dataclass(frozen=True)
class LaplaceEvent(Leaf):
    """Laplace noise of scale ``noise_multiplier`` times the L1 sensitivity: pure DP.

    epsilon is 1 / noise_multiplier. In k dimensions one coordinate that moves by the whole
    sensitivity is the worst case: for log-concave noise with density p, min(p(z - mu), alpha p(z))
    is log-concave in (z, mu), so is its integral over z (Prékopa), so the hockey-stick divergence
    is quasi-convex in the shift mu and greatest at a corner of the L1 ball.
    """

    kind: ClassVar[str] = "laplace"
    noise_multiplier: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(noise_multiplier=validation.positive("noise_multiplier", self.noise_multiplier))

    def stretched(self, steps: int) -> Self:
        """``steps`` times the distance (triangle inequality)."""
        return replace(self, noise_multiplier=self.noise_multiplier / steps)


@dataclass(frozen=True)
class DiscreteLaplaceEvent(Leaf):
    """Noise with Pr[k] ~ e^(-|k|/scale) on an integer that moves by at most ``sensitivity``.

    A move by less is no worse. Noise p is log-concave, so p(x - s) / p(x) grows with x for s >= 0
    (monotone likelihood ratio), and the best test of s against 0, at any e^eps, is "x >= t" for
    some t. With that t, Pr[s + Y >= t] - e^eps Pr[Y >= t] grows with s; so does the largest over t.
    Moves down are mirror images.

    For one number, or for several of which one step moves only one (a histogram under add/remove).
    Where several move, use ``EpsilonDeltaEvent(sensitivity / scale)``; so do several steps here,
    which may move different ones.
    """

    kind: ClassVar[str] = "discrete-laplace"
    scale: float
    sensitivity: int = 1
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(
            scale=validation.positive("scale", self.scale),
            sensitivity=validation.count("sensitivity", self.sensitivity),
        )

    def stretched(self, steps: int) -> Leaf:
        """Pure DP at ``steps`` times the distance, opaque beyond one step."""
        if steps == 1:
            return self
        epsilon = self.sensitivity * steps / self.scale
        return EpsilonDeltaEvent(epsilon, 0.0, self.neighbours, self.unit)


@dataclass(frozen=True)
class DiscreteGaussianEvent(Leaf):
    """Noise with Pr[k] ~ e^(-k^2/(2 sigma^2)) on an integer that moves by at most ``sensitivity``.

    A move by less is no worse: this noise is log-concave, as :class:`DiscreteLaplaceEvent`'s is.

    For one number, or for several of which one step moves only one. Where several move, use
    ``ZcdpEvent(l2_sensitivity**2 / (2 * sigma**2))``, which holds in any dimension (Canonne, Kamath
    and Steinke, arXiv:2004.00010, theorem 4); so do several steps here, which may move different
    ones.
    """

    kind: ClassVar[str] = "discrete-gaussian"
    sigma: float
    sensitivity: int = 1
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(
            sigma=validation.positive("sigma", self.sigma),
            sensitivity=validation.count("sensitivity", self.sensitivity),
        )

    def stretched(self, steps: int) -> Leaf:
        """ZCDP at ``steps`` times the distance, beyond one step."""
        if steps == 1:
            return self
        rho = (self.sensitivity * steps / self.sigma) ** 2 / 2
        return ZcdpEvent(rho, self.neighbours, self.unit)


@dataclass(frozen=True)
class EpsilonDeltaEvent(Leaf):
    """Anything known only to be (epsilon, delta)-DP: opaque, and composed at its worst."""

    kind: ClassVar[str] = "epsilon-delta"
    epsilon: float
    delta: float = 0.0
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(
            epsilon=validation.non_negative("epsilon", self.epsilon),
            delta=validation.delta("delta", self.delta),
        )

    def stretched(self, steps: int) -> Self:
        """Group privacy."""
        group = Guarantee(self.epsilon, self.delta, self.neighbours).for_group(steps)
        return replace(self, epsilon=group.epsilon, delta=group.delta)


@dataclass(frozen=True)
class NotPrivateEvent(Leaf):
    """Anything released without protection: it promises nothing, at any distance.

    Its epsilon is infinite under every accountant and every relation, alone and composed with
    anything else. No budget pays for it.
    """

    kind: ClassVar[str] = "not-private"
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        """There is nothing else to check."""

    def stretched(self, steps: int) -> Self:
        """Nothing, still."""
        return self


@dataclass(frozen=True)
class ExponentialEvent(Leaf):
    """A choice by the exponential mechanism, or any release of ``epsilon``-bounded range.

    Bounded range (Durfee and Rogers, arXiv:1905.04273): over all outputs the privacy loss of one
    pair of neighbours spans an interval no longer than epsilon. It implies epsilon-DP and composes
    about as well as epsilon/2 would: each release is (epsilon^2 / 8)-zCDP (Cesar and Rogers,
    arXiv:2004.07223, lemma 3.4).
    """

    kind: ClassVar[str] = "exponential"
    epsilon: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(epsilon=validation.positive("epsilon", self.epsilon))

    def stretched(self, steps: int) -> Self:
        """The spans of successive steps add."""
        return replace(self, epsilon=self.epsilon * steps)


@dataclass(frozen=True)
class RandomizedResponseEvent(Leaf):
    """One unit's answer among k ``categories``, kept with probability e^eps / (e^eps + k - 1)."""

    kind: ClassVar[str] = "randomized-response"
    epsilon: float
    categories: int = 2
    neighbours: Neighbours = Neighbours.REPLACE_ONE
    unit: str = "record"

    def _check(self) -> None:
        self._store(
            epsilon=validation.positive("epsilon", self.epsilon),
            categories=validation.at_least("categories", self.categories, 2),
        )
        if self.neighbours is not Neighbours.REPLACE_ONE:
            validation.fail(
                "neighbours",
                "'replace-one' for randomised response (every unit answers)",
                self.neighbours.value,
            )

    @classmethod
    def from_noise_parameter(cls, noise_parameter: float, categories: int = 2) -> Self:
        """From the probability of answering uniformly at random: e^eps = 1 + k (1 - p) / p."""
        p = validation.open_probability("noise_parameter", noise_parameter)
        k = validation.at_least("categories", categories, 2)
        return cls(math.log1p(k * (1 - p) / p), k)

    def stretched(self, steps: int) -> Leaf:
        """Group privacy, opaque beyond one step."""
        if steps == 1:
            return self
        return EpsilonDeltaEvent(self.epsilon * steps, 0.0, self.neighbours, self.unit)


@dataclass(frozen=True)
class ZcdpEvent(Leaf):
    """Anything known to be ``rho``-zero-concentrated DP: RDP at most rho alpha at every order."""

    kind: ClassVar[str] = "zcdp"
    rho: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(rho=validation.positive("rho", self.rho))

    def stretched(self, steps: int) -> Self:
        """k^2 rho (Bun and Steinke, arXiv:1605.02065, proposition 1.9)."""
        return replace(self, rho=self.rho * steps**2)


@dataclass(frozen=True)
class RdpCurveEvent(Leaf):
    """Anything known by its RDP at some orders.

    ``data_dependent`` says that the curve was read off the data. Such a curve is itself private:
    accountants refuse it unless told that the result stays with the curator.
    """

    kind: ClassVar[str] = "rdp-curve"
    orders: tuple[float, ...]
    values: tuple[float, ...]
    data_dependent: bool = False
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"

    def _check(self) -> None:
        self._store(
            orders=tuple(validation.finite("orders", order) for order in self.orders),
            values=tuple(validation.non_negative("values", value) for value in self.values),
            data_dependent=bool(self.data_dependent),
        )
        if not self.orders or len(self.orders) != len(self.values):
            validation.fail("orders and values", "two non-empty lists of one length", self.orders)
        if any(b <= a for a, b in zip(self.orders, self.orders[1:], strict=False)):
            validation.fail("orders", "strictly increasing", self.orders)
        if not all(order > 1 for order in self.orders):
            validation.fail("orders", "finite and above 1", self.orders)

    @classmethod
    def of_whole_orders(
        cls,
        value: Callable[[int], float],
        largest: int,
        neighbours: Neighbours = Neighbours.ADD_REMOVE,
        unit: str = "record",
    ) -> Self:
        """From theorems for whole orders: ``value(order)`` for 2 .. ``largest``.

        (alpha - 1) D_alpha is convex in alpha and 0 at 1, so between two whole orders the chord
        bounds it. Orders are kept in tenths up to 4, quarters up to 11, ones up to 64 and by about
        a twentieth beyond.
        """
        largest = validation.at_least("largest", largest, 2)
        kept = {order / 10 for order in range(20, 40)} | {order / 4 for order in range(16, 44)}
        kept |= {float(order) for order in range(11, 64)} | {float(largest)}
        beyond = 64.0
        while beyond < largest:
            kept.add(beyond)
            beyond = float(math.ceil(beyond * 1.05))
        orders = sorted(order for order in kept if order <= largest)
        values = tuple(_on_the_chord(value, order) for order in orders)
        return cls(tuple(orders), values, False, neighbours, unit)

    def stretched(self, steps: int) -> Self:
        """(alpha, v) gives (alpha / 2^c, 3^c v) for 2^c >= steps, alpha >= 2^(c+1).

        Mironov, "Rényi differential privacy", arXiv:1702.07476, proposition 2.
        """
        doublings = (steps - 1).bit_length()
        kept = [
            (order / 2**doublings, value * 3**doublings)
            for order, value in zip(self.orders, self.values, strict=True)
            if doublings == 0 or order >= 2 ** (doublings + 1)
        ]
        if not kept:
            raise ValueError(f"orders must reach {2 ** (doublings + 1)} for groups of {steps}")
        orders, values = zip(*kept, strict=True)
        return replace(self, orders=orders, values=values)


def _on_the_chord(value: Callable[[int], float], order: float) -> float:
    """The RDP at ``order`` from those at the whole orders on either side."""
    low = math.floor(order)
    share = order - low
    if share == 0:
        return value(low)
    moment = (1 - share) * (low - 1) * value(low) + share * low * value(low + 1)
    return moment / (order - 1) * (1 + 1e-14)
