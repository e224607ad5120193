"""Epsilon after every so many steps, for progress bars and plots, at the price of one account.

The privacy loss of t equal steps is the t-fold convolution of one step's, and the Fourier transform
of one step is taken once: t steps are its t-th power, transformed back. All points share one grid
wide enough for the last of them; what would wrap around is bounded by Chernoff's inequality and
charged as infinite loss, so that no point falls below the exact value.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from sfumato.accounting import dpa
from sfumato.accounting.account import refuse_data_dependent, resolve_relation
from sfumato.accounting.atoms import Atom, Multiset, flatten, pure_total
from sfumato.accounting.convolution import ROUNDING, bound, mean, variance, wrap
from sfumato.accounting.dpa import Floats, LossMasses
from sfumato.accounting.pld import SMALLEST_DELTA, atom_pld, choose_grid, compose_atoms
from sfumato.accounting.rdp import rdp_vector
from sfumato.accounting.support import UnsupportedError
from sfumato.core import validation
from sfumato.core.events import ComposedEvent, Event, GaussianEvent, promises_nothing
from sfumato.core.gaussian_profile import composed_multiplier, gaussian_epsilon
from sfumato.core.neighbours import Neighbours

__all__ = ["epsilon_curve"]

_FINENESS = 9.0  # coarser than one account's: epsilon comes out about 0.1 % too large
_COARSEST = 1e-3
_TAIL = 1e-14


def epsilon_curve(
    step: Event,
    steps: Sequence[int],
    delta: float,
    neighbours: Neighbours | str | None = None,
    before: Event | None = None,
) -> Floats:
    """Epsilon at ``delta`` after each of ``steps`` repetitions of ``step``.

    Args:
        step: one step's event.
        steps: how many steps at each point, in any order, 0 allowed.
        delta: the delta of every point.
        neighbours: the relation; by default the event's own.
        before: what was released before the first step (a private PCA, say).

    Returns:
        One epsilon for each entry of ``steps``; never below the exact value.

    Example:
        >>> from sfumato.core.events import dp_sgd
        >>> step = dp_sgd(noise_multiplier=1.1, sample_rate=0.00427, steps=1)
        >>> [round(float(e), 2) for e in epsilon_curve(step, [1000, 14063], delta=1e-5)]
        [0.6, 2.39]
    """
    delta = validation.open_probability("delta", delta)
    counts = np.array([validation.at_least("steps", n, 0) for n in steps], dtype=np.int64)
    everything = step if before is None else ComposedEvent((step, before))
    refuse_data_dependent(everything)
    prelude = ComposedEvent() if before is None else before
    relation = resolve_relation(everything, neighbours)
    one, base = flatten(step, relation), flatten(prelude, relation)
    if len(counts) == 0:
        return np.zeros(0)
    if promises_nothing(prelude):
        return np.full(len(counts), math.inf)
    if promises_nothing(step):
        start = epsilon_curve(ComposedEvent(), [1], delta, relation, before)
        return np.where(counts > 0, math.inf, start)
    exact = _gaussian_curve(one, base, counts, delta)
    if exact is not None:
        return exact
    each, first = pure_total(one), pure_total(base)
    pure = counts * each + first if each is not None and first is not None else math.inf
    return np.minimum(pure, _numeric_curve(step, prelude, counts, delta, relation))


def _numeric_curve(
    step: Event, prelude: Event, counts: NDArray[np.int64], delta: float, relation: Neighbours
) -> Floats:
    """By PLD, and by RDP where that has no loss distribution or cannot resolve delta."""
    one, base = flatten(step, relation), flatten(prelude, relation)
    curve: Floats | None = None
    if delta >= SMALLEST_DELTA:
        with contextlib.suppress(UnsupportedError):
            curve = _pld_curve(one, base, counts, delta)
    if curve is not None and delta >= 100 * ROUNDING * int(counts.max()):
        return curve
    try:
        vector, offset = rdp_vector(step, relation), rdp_vector(prelude, relation)
    except UnsupportedError:
        if curve is None:
            raise
        return curve
    rough = np.array([vector.times(int(n)).plus(offset).epsilon(delta) for n in counts])
    return rough if curve is None else np.minimum(curve, rough)


def _gaussian_curve(
    one: Multiset, base: Multiset, counts: NDArray[np.int64], delta: float
) -> Floats | None:
    """Plain Gaussians compose in closed form: squared signal-to-noise ratios add."""
    step = [(a.noise_multiplier, n) for a, n in one if isinstance(a, GaussianEvent)]
    start = [(a.noise_multiplier, n) for a, n in base if isinstance(a, GaussianEvent)]
    if len(step) < len(one) or len(start) < len(base):
        return None
    noises = [composed_multiplier(start + [(m, n * t) for m, n in step]) for t in counts.tolist()]
    return np.array([gaussian_epsilon(m, delta) if m < math.inf else 0.0 for m in noises])


def _pld_curve(one: Multiset, base: Multiset, counts: NDArray[np.int64], delta: float) -> Floats:
    most = int(counts.max())
    repeated: list[tuple[Atom, int]] = [(atom, n * max(most, 1)) for atom, n in one]
    grid = choose_grid(frozenset(repeated), _FINENESS, _COARSEST)
    step_sides = dpa.masses(_single(one, grid))
    base_sides = dpa.masses(compose_atoms(base, grid))
    sides = max(len(step_sides), len(base_sides))
    worst = np.zeros(len(counts))
    for side in range(sides):
        step = step_sides[min(side, len(step_sides) - 1)]
        start = base_sides[min(side, len(base_sides) - 1)]
        worst = np.maximum(worst, _powers(step, start, counts, delta))
    return worst


def _single(one: Multiset, grid: float) -> dpa.Pld:
    if len(one) == 1:
        ((atom, count),) = one
        if count == 1:
            return atom_pld(atom, grid)
    return compose_atoms(one, grid)


def _powers(step: LossMasses, start: LossMasses, counts: NDArray[np.int64], delta: float) -> Floats:
    """Epsilon for ``start`` and n times ``step``, for every n of ``counts``, in one direction."""
    if step.infinite >= 1 or start.infinite >= 1:
        return np.full(len(counts), math.inf)
    low, high = _window(step, start, counts)
    size = fft.next_fast_len(high - low + 1, real=True)
    one = fft.rfft(wrap(step.probs, step.lowest, size))
    power = fft.rfft(wrap(start.probs, start.lowest, size))
    survive_step, survive_start = math.log1p(-step.infinite), math.log1p(-start.infinite)
    read = _Reader(low, size, step.grid, delta)
    epsilons, reached, leaps = np.zeros(len(counts)), 0, dict[int, NDArray[np.complex128]]()
    for i in np.argsort(counts):
        n = int(counts[i])
        if n > reached:  # counts are mostly evenly spaced: the same few leaps serve all of them
            if n - reached not in leaps:
                leaps[n - reached] = one ** (n - reached)
            power, reached = power * leaps[n - reached], n
        lost = 2 * _TAIL + n * ROUNDING
        infinite = -math.expm1(n * survive_step + survive_start) + lost
        epsilons[i] = read.epsilon(fft.irfft(power, size), infinite)
    return epsilons


class _Reader:
    """Reads epsilon off a circle of probabilities; what every point shares is computed once."""

    def __init__(self, low: int, size: int, grid: float, delta: float) -> None:
        positive = np.arange(max(low, 0), low + size)
        self.order = (positive % size)[::-1]
        self.losses = (positive * grid)[::-1]
        self.shrink = np.exp(-np.minimum(self.losses, 745.0))
        self.grow = np.exp(np.minimum(self.losses, 700.0))
        self.delta = delta

    def epsilon(self, circle: Floats, infinite: float) -> float:
        """As :func:`sfumato.accounting.pld.epsilon_at`, for epsilon >= 0."""
        if infinite > self.delta:
            return math.inf
        probs = np.maximum(circle[self.order], 0.0)
        upper = np.cumsum(probs) + infinite
        lower = np.cumsum(probs * self.shrink)
        # From the largest loss down, the first at which delta is exceeded: epsilon is just above.
        exceeded = upper - self.grow * lower > self.delta
        if not exceeded.any():
            return self._root(upper[-1], lower[-1], 0.0, float(self.losses[-1]))
        i = max(int(np.argmax(exceeded)), 1)
        return self._root(upper[i - 1], lower[i - 1], self.losses[i], self.losses[i - 1])

    def _root(self, upper: float, lower: float, least: float, most: float) -> float:
        """Where upper - e^eps lower is delta, between ``least`` and ``most``."""
        if upper <= self.delta:
            return 0.0 if least == 0 else most
        if lower <= 0 or most > 700:
            return most
        return float(min(max(least, math.log((upper - self.delta) / lower)), most))


def _window(step: LossMasses, start: LossMasses, counts: NDArray[np.int64]) -> tuple[int, int]:
    """Cells that hold all but _TAIL of the mass above and below, for every count."""
    fewest, most = int(counts.min()), int(counts.max())
    # The loss drifts up as n and spreads as sqrt(n), so its lower end may be lowest in between.
    drift = max(mean(step), 1e-100)
    turning = -2 * math.log(_TAIL) * variance(step) / (2 * drift) ** 2
    lows = [0]
    for n in {fewest, most, int(min(max(turning, fewest), most))}:
        lows.append(math.floor(bound(step, start, n, _TAIL, upper=False)))
    return min(lows), max(1, math.ceil(bound(step, start, most, _TAIL, upper=True)))
