"""Privacy loss distributions: numerically exact composition, and the default accountant.

The privacy loss of a pair of output distributions P, Q is ln(P(o)/Q(o)) for o drawn from P. Losses
of composed releases add, so their distributions convolve (by FFT), and

    delta(eps) = E[(1 - e^(eps - loss))_+].

Every discretisation here is pessimistic: the curve it stands for lies on or above the true one
(Doroshenko et al., "Connect the dots", arXiv:2207.04380), so an epsilon can be too large, by a
little, and never too small. Tails cut from a convolution count as infinite loss, and so does what
its rounding may have moved, by the bound in :mod:`.convolution`.

Amplification by sampling. For a pair (P, Q) with profile delta, the sampled pair
((1 - q) Q + q P, Q) has delta'(eps') = q delta(eps) at e^eps' = 1 + q (e^eps - 1). It dominates
Poisson sampling when a record is removed (its mirror image when one is added). At eps' >= 0, and
mirrored below, it also dominates sampling without replacement under replace-one: with P, Q the pair
of a replaced record, advanced joint convexity gives H(mu_D || mu_D') <= q [(1 - b) H(mu_1 || mu_0)
+ b H(mu_1 || mu_1')], and samples with and without the record differ in one replacement too (Balle,
Barthe and Gaboardi, arXiv:1807.01647, theorems 2 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, singledispatch

import numpy as np
from numpy.typing import NDArray

from sfumato.accounting import dpa
from sfumato.accounting.atoms import (
    Atom,
    FixedSizeAtom,
    Multiset,
    ParallelAtom,
    PoissonAtom,
    flatten,
    pure_epsilon,
)
from sfumato.accounting.convolution import STEP, convolved, repeated
from sfumato.accounting.dpa import GRID, Floats, LossMasses, Pld, Profile
from sfumato.accounting.gaussian_losses import gaussian_losses
from sfumato.accounting.rdp import atom_rdp
from sfumato.accounting.support import UnsupportedError
from sfumato.accounting.theorems import amplify
from sfumato.core.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    EpsilonDeltaEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    LaplaceEvent,
    Leaf,
    NotPrivateEvent,
    RandomizedResponseEvent,
    promises_nothing,
)
from sfumato.core.gaussian_profile import composed_multiplier
from sfumato.core.neighbours import Neighbours

__all__ = ["SMALLEST_DELTA", "LossDistribution", "loss_distribution"]

SMALLEST_DELTA = 1e-12
"""Below this, rounding in the FFT is no longer small beside delta."""

_MOST_CELLS = 1 << 22
_FEW = 1000
_FINEST = 2e-6
_WIDEST = 100.0
_TAIL = 1e-15
_REACH = 10.0
"""Standard deviations of a discrete Gaussian that are kept; 1e-23 beyond."""
_HOPELESS = 1e-6
"""Probability of a finite loss below which none is reported."""


class LossDistribution:
    """The composed privacy loss of an event, in both directions."""

    def __init__(self, directions: Sequence[LossMasses], rounding: float = 0.0) -> None:
        self.directions = list(directions)
        self.rounding = rounding
        """About what was charged to delta for floating point: no smaller one can be resolved."""

    @property
    def grid(self) -> float:
        """Spacing of the losses."""
        return self.directions[0].grid

    def delta(self, epsilon: float | Floats) -> Floats:
        """Delta at one epsilon or many: the larger of the two directions."""
        at = np.atleast_1d(np.asarray(epsilon, dtype=float))
        return np.max([delta_at(direction, at) for direction in self.directions], axis=0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon whose delta is at most ``delta``; ``inf`` if there is none."""
        return max(epsilon_at(direction, delta) for direction in self.directions)


@lru_cache(maxsize=16)
def loss_distribution(
    event: Event, neighbours: Neighbours, grid: float | None = None
) -> LossDistribution:
    """The privacy loss distribution of ``event``, on the finest grid up to 1e-4 that fits.

    Raises:
        UnsupportedError: where a part of the event is known by its RDP alone.
    """
    atoms = flatten(event, neighbours)
    if promises_nothing(event):  # no grid has room for a loss that is always infinite
        return LossDistribution(dpa.masses(dpa.nothing_left(grid or GRID)))
    directions = dpa.masses(compose_atoms(atoms, grid or choose_grid(atoms)))
    return LossDistribution(directions, STEP * sum(count for _, count in atoms))


def choose_grid(atoms: Multiset, fineness: float = 10.0, coarsest: float = GRID) -> float:
    """The spacing of losses: ``coarsest``, finer for many small steps, wider where memory ends.

    Connecting the dots inflates epsilon by about (spacing / deviation of one step's loss)^2 / 10,
    so a fixed spacing, however small, is wrong for steps whose losses are smaller still. A wider
    spacing stays an upper bound.
    """
    sizes = [(count, _second_order(atom)) for atom, count in merged(atoms)]
    deviations = [math.sqrt(size) for count, size in sizes if count > 1 and size > 0]
    fine = min([coarsest, *(deviation / fineness for deviation in deviations)])
    total = sum(count * size for count, size in sizes)
    reach = max([total + 15 * math.sqrt(total), *(_span(atom) for atom, _ in atoms)])
    grid = max(fine, 2 * reach / _MOST_CELLS, _FINEST)
    if grid > _WIDEST:
        raise UnsupportedError("an epsilon beyond a hundred million has no use")
    return grid


def _span(atom: Atom) -> float:
    """About the largest loss of one release, which must fit on the grid by itself."""
    if isinstance(atom, ParallelAtom):
        return max(_span(inner) for part in atom.stays | atom.moves for inner, _ in part)
    if isinstance(atom, PoissonAtom):
        whole = _span(atom.leaf.stretched((1 + atom.replace) * atom.records))
        return amplify(whole, atom.sample_rate)
    if isinstance(atom, FixedSizeAtom):
        return _span(atom.leaf)
    if isinstance(atom, GaussianEvent | DiscreteGaussianEvent):
        rho = float(atom_rdp(atom, (2.0,)).values[0]) / 2
        return rho + 15 * math.sqrt(2 * rho)
    return (atom.epsilon if isinstance(atom, EpsilonDeltaEvent) else pure_epsilon(atom)) or 0.0


def _second_order(atom: Atom) -> float:
    """RDP at order 2: about the variance of one loss, and at least its mean."""
    if isinstance(atom, EpsilonDeltaEvent):  # its finite losses
        atom = replace(atom, delta=0.0)
    try:
        size = float(atom_rdp(atom, (2.0,)).values[0])
    except UnsupportedError:
        return 0.0
    if math.isinf(size) and isinstance(atom, PoissonAtom):
        return _second_order(atom.leaf.stretched(2 * atom.records))
    return size


def merged(atoms: Multiset) -> list[tuple[Atom, int]]:
    """The atoms with all plain Gaussians as one: their squared signal-to-noise ratios add."""
    gaussians = [(atom, n) for atom, n in atoms if isinstance(atom, GaussianEvent)]
    others = [(atom, n) for atom, n in atoms if not isinstance(atom, GaussianEvent)]
    if gaussians:
        noise = composed_multiplier((atom.noise_multiplier, n) for atom, n in gaussians)
        others.append((GaussianEvent(noise), 1))
    return others


def compose_atoms(atoms: Multiset, grid: float) -> Pld:
    """The distribution of all atoms together."""
    total, survival = dpa.identity(grid), 0.0
    for atom, count in sorted(merged(atoms), key=repr):
        one = atom_pld(atom, grid)
        infinite = min(dpa.infinite_mass(one), 1 - 1e-16)
        survival += count * math.log1p(-infinite)
        if survival < math.log(_HOPELESS):
            return dpa.nothing_left(grid)
        total = _together(total, _times(one, count))
    return total


def _together(first: Pld, second: Pld) -> Pld:
    """Two releases, direction by direction."""
    pairs = [dpa.masses(first), dpa.masses(second)]
    sides = [
        [pair[min(side, len(pair) - 1)] for pair in pairs]
        for side in range(max(len(pair) for pair in pairs))
    ]
    return dpa.from_masses([convolved(one, other, _TAIL) for one, other in sides])


def _times(distribution: Pld, count: int) -> Pld:
    if count == 1:
        return distribution
    return dpa.from_masses([repeated(m, count, _TAIL) for m in dpa.masses(distribution)])


# --- reading a distribution ---------------------------------------------------------------------


def delta_at(masses: LossMasses, epsilons: Floats) -> Floats:
    """E[(1 - e^(eps - loss))_+] at each of ``epsilons``, in one pass over the losses."""
    losses, upper, lower = _tails(masses)
    first = np.searchsorted(losses, epsilons, side="right")
    with np.errstate(over="ignore", invalid="ignore"):
        covered = np.exp(epsilons) * lower[first]
    # Where e^eps overflows or e^-loss vanishes, nothing is taken off: pessimistic.
    covered = np.where(np.isfinite(covered), covered, 0.0)
    return np.clip(upper[first] - covered, 0.0, 1.0)


def epsilon_at(masses: LossMasses, delta: float) -> float:
    """The least epsilon >= 0 with delta(epsilon) <= ``delta``."""
    if masses.infinite > delta:
        return math.inf
    losses, upper, lower = _tails(masses)
    low_enough = delta_at(masses, losses) <= delta
    # delta falls as epsilon grows: i is the first loss at which it is low enough.
    i = int(np.argmax(low_enough)) if low_enough.any() else len(losses) - 1
    most = max(0.0, float(losses[i]))
    if upper[i] <= delta:
        return most if i else 0.0
    if lower[i] <= 0 or most > 700:
        return most
    least = max(0.0, float(losses[i - 1])) if i else 0.0
    return min(max(least, math.log((upper[i] - delta) / lower[i])), most)


def _tails(masses: LossMasses) -> tuple[Floats, Floats, Floats]:
    """Losses, and from each on upwards: sum of p (with infinity), and sum of p e^-loss.

    Rounded up and down, by what sums of so many numbers may be off.
    """
    losses, probs = masses.losses, np.maximum(masses.probs, 0.0)
    shrunk = probs * np.exp(-np.clip(losses, -700.0, 745.0))
    error = summing_error(int(np.count_nonzero(probs)))
    upper = np.append(np.cumsum(probs[::-1])[::-1] * (1 + error), 0.0) + masses.infinite
    lower = np.append(np.cumsum(shrunk[::-1])[::-1] * (1 - error), 0.0)
    return losses, upper, lower


def summing_error(cells: int) -> float:
    """The relative error of a running sum of so many numbers that are not negative.

    Each addition errs by u = 2^-53 of what is then the sum, at most (Higham, section 4.2); eight
    more for an exponential and for products. None for a few losses, whose sums are exact enough to
    meet a delta that is stated.
    """
    return (cells + 8) * 2.0**-53 if cells > _FEW else 0.0


# --- one atom -----------------------------------------------------------------------------------


@singledispatch
def atom_pld(atom: Atom, grid: float) -> Pld:
    """The privacy loss distribution of one atom."""
    name = getattr(atom, "kind", type(atom).__name__)
    raise UnsupportedError(f"a {name} release is known by its RDP alone")


@atom_pld.register
def _(atom: GaussianEvent, grid: float) -> Pld:
    return _gaussian(atom.noise_multiplier, 1.0, False, grid)


@atom_pld.register
def _(atom: LaplaceEvent, grid: float) -> Pld:
    return dpa.laplace(atom.noise_multiplier, grid)


@atom_pld.register
def _(atom: DiscreteLaplaceEvent, grid: float) -> Pld:
    """Losses +eps and -eps in the tails, and those of the integers in between."""
    steps, scale = atom.sensitivity, atom.scale
    if steps > _MOST_CELLS:
        return _two_point(steps / scale, 0.0, grid)
    between = np.arange(1, steps)
    decay = math.exp(-1 / scale)
    tail = 1 / (1 + decay)
    probs = np.exp(-between / scale) * math.tanh(0.5 / scale)
    losses = np.concatenate([[steps], steps - 2 * between, [-steps]]) / scale
    probs = np.concatenate([[tail], probs, [tail * math.exp(-steps / scale)]])
    return dpa.from_losses((losses, probs, 0.0), grid=grid)


@atom_pld.register
def _(atom: DiscreteGaussianEvent, grid: float) -> Pld:
    if atom.sigma > 1e5:
        raise UnsupportedError(
            f"a discrete Gaussian of sigma {atom.sigma:g} has too wide a support"
        )
    reach = math.ceil(_REACH * atom.sigma) + 1
    at = np.arange(-reach, reach + 1)
    probs = np.exp(-((at / atom.sigma) ** 2) / 2)
    steps = atom.sensitivity / atom.sigma
    losses = steps * (steps / 2 - at / atom.sigma)
    return dpa.from_losses((losses, probs / math.fsum(probs), _TAIL), grid=grid)


@atom_pld.register
def _(atom: EpsilonDeltaEvent, grid: float) -> Pld:
    return _two_point(atom.epsilon, atom.delta, grid)


@atom_pld.register
def _(atom: NotPrivateEvent, grid: float) -> Pld:
    return dpa.nothing_left(grid)


@atom_pld.register
def _(atom: RandomizedResponseEvent, grid: float) -> Pld:
    """Losses +eps, -eps and, with more than two categories, 0."""
    log_total = float(np.logaddexp(atom.epsilon, math.log(atom.categories - 1)))
    up, down = math.exp(atom.epsilon - log_total), math.exp(-log_total)
    losses = np.array([atom.epsilon, 0.0, -atom.epsilon])
    probs = np.array([up, (atom.categories - 2) * down, down])
    return dpa.from_losses((losses, probs, 0.0), grid=grid)


@atom_pld.register
def _(atom: ExponentialEvent, grid: float) -> Pld:
    """Bounded range: delta(x) = (e^(eps/2) - e^(x/2))^2 / (e^eps - 1) for |x| <= eps.

    Losses confined to [t - eps, t] are dominated by the two-point pair on the ends, whose curve is
    (e^eps - e^t)(1 - e^(x - t)) / (e^eps - 1). Which t holds is unknown, so take the worst at every
    x, t = (eps + x)/2; the result is convex in e^x and hence itself the curve of a pair.
    """
    eps = atom.epsilon

    def profile(at: Floats) -> Floats:
        # Divided through by e^eps, so that nothing overflows.
        inside = np.minimum(at - eps, 0.0) / 2
        curve = np.expm1(inside) ** 2 / -math.expm1(-eps)
        return np.where(at <= -eps, -np.expm1(at), curve)

    edge = math.ceil(eps / grid)
    return dpa.from_profiles((np.arange(-edge, edge + 1), profile), grid=grid)


@atom_pld.register
def _(atom: PoissonAtom, grid: float) -> Pld:
    leaf, q = atom.leaf, atom.sample_rate
    if isinstance(leaf, GaussianEvent) and (atom.records == 1 or not atom.replace):
        return _gaussian(leaf.noise_multiplier, q, atom.replace, grid, atom.records)
    if atom.replace or atom.records > 1:
        raise UnsupportedError(
            f"a Poisson-sampled {leaf.kind} release has no loss distribution for "
            f"{'a replaced unit' if atom.replace else 'an added unit'} of {atom.records} records"
        )
    if isinstance(leaf, LaplaceEvent):
        return dpa.laplace(leaf.noise_multiplier, grid, q)
    return _sampled(leaf, q, grid)


@atom_pld.register
def _(atom: FixedSizeAtom, grid: float) -> Pld:
    """As a removal from a Poisson sample at eps >= 0, mirrored below."""
    removal = PoissonAtom(atom.leaf, atom.sample_rate, records=1, replace=False)
    return dpa.from_masses([_symmetric(dpa.masses(atom_pld(removal, grid))[0])])


@atom_pld.register
def _(atom: ParallelAtom, grid: float) -> Pld:
    if atom.spread:
        raise UnsupportedError(
            "a unit whose records may lie in several parts, of different kinds or several at once, "
            "is accounted by RDP"
        )
    options = [compose_atoms(part, grid) for part in atom.stays]
    if atom.moves:
        moved = _worst([compose_atoms(part, grid) for part in atom.moves], grid)
        there, *back = dpa.masses(moved)
        options.append(dpa.from_masses([convolved(there, back[0] if back else there, _TAIL)]))
    return _times(_worst(options, grid), atom.groups)


def _two_point(epsilon: float, delta: float, grid: float) -> Pld:
    """The worst (epsilon, delta)-DP pair: Kairouz, Oh and Viswanath, arXiv:1311.0776, section 3.

    Loss infinite with probability delta, else +epsilon or -epsilon with odds e^epsilon.
    """
    odds = math.exp(-epsilon)
    probs = (1 - delta) * np.array([1.0, odds]) / (1 + odds)
    return dpa.from_losses((np.array([epsilon, -epsilon]), probs, delta), grid=grid)


def _gaussian(
    noise_multiplier: float, sample_rate: float, replace: bool, grid: float, records: int = 1
) -> Pld:
    return dpa.from_masses(gaussian_losses(noise_multiplier, sample_rate, replace, grid, records))


# --- curves -------------------------------------------------------------------------------------


@lru_cache(maxsize=32)
def _sampled(leaf: Leaf, q: float, grid: float) -> Pld:
    """A Poisson-sampled leaf: P' = (1 - q) Q + q P against Q, from the losses of P against Q.

    A loss l becomes ln(1 - q + q e^l); its mass under Q stays. What Q alone can reach has loss
    ln(1 - q), what P alone can reach stays infinite.
    """
    (own,) = dpa.masses(atom_pld(leaf, grid))
    losses = own.losses
    grown = np.log1p(q * np.expm1(np.minimum(losses, 30.0)))
    far = losses + np.log(q + (1 - q) * np.exp(-np.maximum(losses, 30.0)))
    new = np.where(losses > 30, far, grown)
    with np.errstate(divide="ignore"):
        log_below = np.log(np.maximum(own.probs, 0.0)) - losses
    below, above = np.exp(log_below), np.exp(log_below + new)
    alone = max(0.0, 1 - float(below.sum()))
    new = np.append(new, math.log1p(-q))
    removed = (new, np.append(above, (1 - q) * alone), q * own.infinite)
    added = (-new, np.append(below, alone), 0.0)
    return dpa.from_losses(removed, added, grid=grid)


def _symmetric(removed: LossMasses) -> LossMasses:
    """The pair whose curve is that of ``removed`` at eps >= 0 and its mirror image below."""
    losses, probs = removed.losses, np.maximum(removed.probs, 0.0)
    above = probs[losses > 0]
    below = above * np.exp(-losses[losses > 0])
    middle = max(0.0, 1 - removed.infinite - float(above.sum()) - float(below.sum()))
    first = int(np.count_nonzero(losses <= 0)) + removed.lowest  # the cell of above[0]
    gap = np.zeros(first - 1)
    both = np.concatenate([below[::-1], gap, [middle], gap, above])
    return LossMasses(-(first + len(above) - 1), both, removed.infinite, removed.grid)


def _worst(options: Sequence[Pld], grid: float) -> Pld:
    """A distribution whose curve is the pointwise maximum of the options' curves."""
    if len(options) == 1:
        return options[0]
    pairs = [dpa.masses(option) for option in options]
    sides = [
        _maximum([pair[min(side, len(pair) - 1)] for pair in pairs])
        for side in range(max(len(pair) for pair in pairs))
    ]
    return dpa.from_profiles(*sides, grid=grid)


def _maximum(masses: Sequence[LossMasses]) -> tuple[NDArray[np.int64], Profile]:
    lowest = min(m.lowest for m in masses)
    highest = max(m.lowest + len(m.probs) - 1 for m in masses)
    points = np.arange(lowest, highest + 1)
    return points, lambda at: np.max([delta_at(m, at) for m in masses], axis=0)
