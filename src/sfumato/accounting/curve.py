"""Epsilon after every so many steps, for progress bars and plots, at the price of one account.

The privacy loss of t equal steps is the t-fold convolution of one step's, and the Fourier transform
of one step is taken once: t steps are its t-th power, transformed back. All points share one circle
of cells that holds the window of each of them; what would wrap around is bounded by Chernoff's
inequality, for every number of steps by itself, and charged as infinite loss, as rounding is
(:mod:`.convolution`). So no point falls below the exact value.
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
from sfumato.accounting.convolution import (
    STEP,
    circle_size,
    log_sizes,
    power,
    rounding,
    transform,
    window,
)
from sfumato.accounting.dpa import Floats, LossMasses
from sfumato.accounting.pld import (
    SMALLEST_DELTA,
    atom_pld,
    choose_grid,
    compose_atoms,
    summing_error,
)
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
        One epsilon for each entry of ``steps``; never below the exact value, and never less for
        more steps.

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
    return _never_falling(
        counts, np.minimum(pure, _numeric_curve(step, prelude, counts, delta, relation))
    )


def _never_falling(counts: NDArray[np.int64], bounds: Floats) -> Floats:
    """Each point's bound, or that of a point with more steps if it is smaller.

    The first n of m steps are a post-processing of all m, so that what bounds m steps bounds n. The
    bounds themselves are numeric, and may be a little larger for fewer steps.
    """
    order = np.argsort(counts, kind="stable")
    found = np.empty(len(counts))
    found[order] = np.minimum.accumulate(bounds[order][::-1])[::-1]
    return found


def _numeric_curve(
    step: Event, prelude: Event, counts: NDArray[np.int64], delta: float, relation: Neighbours
) -> Floats:
    """By PLD, and by RDP where that has no loss distribution or cannot resolve delta."""
    one, base = flatten(step, relation), flatten(prelude, relation)
    curve: Floats | None = None
    if delta >= SMALLEST_DELTA:
        with contextlib.suppress(UnsupportedError):
            curve = _pld_curve(one, base, counts, delta)
    if curve is not None and delta >= 100 * STEP * int(counts.max()):
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
    pairs = [
        (step_sides[min(side, len(step_sides) - 1)], base_sides[min(side, len(base_sides) - 1)])
        for side in range(sides)
    ]
    # Where infinite losses alone are more than delta, there is nothing to sum up.
    lost = np.max([_infinite(step, start, counts) for step, start in pairs], axis=0)
    live = lost <= delta
    found = np.full(len(counts), math.inf)
    if live.all():
        return np.max([_powers(step, start, counts, delta) for step, start in pairs], axis=0)
    if live.any():  # on the grid that is fit for the largest of those that are left
        found[live] = _pld_curve(one, base, counts[live], delta)
    return found


def _infinite(step: LossMasses, start: LossMasses, counts: NDArray[np.int64]) -> Floats:
    """The probability of an infinite loss after each number of steps."""
    if step.infinite >= 1 or start.infinite >= 1:
        never = np.full(len(counts), 1.0)
        return never if start.infinite >= 1 else np.where(counts > 0, never, start.infinite)
    return -np.expm1(counts * math.log1p(-step.infinite) + math.log1p(-start.infinite))


def _single(one: Multiset, grid: float) -> dpa.Pld:
    if len(one) == 1:
        ((atom, count),) = one
        if count == 1:
            return atom_pld(atom, grid)
    return compose_atoms(one, grid)


def _powers(step: LossMasses, start: LossMasses, counts: NDArray[np.int64], delta: float) -> Floats:
    """Epsilon for ``start`` and n times ``step``, for every n of ``counts``, in one direction."""
    if step.infinite >= 1:  # no steps at all, or _pld_curve would have stopped
        step = LossMasses(0, np.ones(1), 0.0, step.grid)
    low, high = window(step, start, counts, _TAIL)
    size = circle_size(high - low + 1)
    one, reached_power = transform(step, size), transform(start, size)
    sizes = log_sizes(one, size)
    lost = _infinite(step, start, counts)
    read = _Reader(low, size, step.grid, delta)
    epsilons, reached, leaps = np.zeros(len(counts)), 0, dict[int, NDArray[np.complex128]]()
    for i in np.argsort(counts):
        n = int(counts[i])
        if n > reached:  # counts are mostly evenly spaced: the same few leaps serve all of them
            if n - reached not in leaps:
                leaps[n - reached] = power(one, n - reached)
            reached_power, reached = reached_power * leaps[n - reached], n
        infinite = float(lost[i]) + 2 * _TAIL + rounding(sizes, n, size)
        epsilons[i] = read.epsilon(fft.irfft(reached_power, size), infinite)
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
        self.error = summing_error(len(positive))

    def epsilon(self, circle: Floats, infinite: float) -> float:
        """As :func:`sfumato.accounting.pld.epsilon_at`, for epsilon >= 0."""
        if infinite > self.delta:
            return math.inf
        probs = np.maximum(circle[self.order], 0.0)
        upper = np.cumsum(probs) * (1 + self.error) + infinite
        lower = np.cumsum(probs * self.shrink) * (1 - self.error)
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
