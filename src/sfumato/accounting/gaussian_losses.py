"""The privacy loss distribution of Gaussian noise, sampled or not, on a grid of losses.

The pairs, in units of the noise's standard deviation sigma (the noise multiplier):

* one record removed from a Poisson sample: P = (1 - q) N(0) + q N(1) against Q = N(0);
* one record added: the same pair the other way round;
* k records of one unit removed or added: sum_j Bin(k, q)_j N(j) in place of P;
* one record replaced: (1 - q) N(0) + q N(1) against (1 - q) N(0) + q N(-1).

With q = 1 the first two coincide and the last is plain noise at twice the distance.

*Why these are the worst cases* (Kahane's interpolation). Let the unit's records contribute x_1 to
x_k, of length at most 1, and what replaces them y_1 to y_k, in any dimension. Given which other
records are sampled, the output is a mixture of normals N(x_S) with weights w_S over the sets S that
are sampled, x_S being the sum over S, against one of N(y_T); and the hockey-stick divergence is
jointly convex, so it is enough to fix the others. With N(0), the normal about what the others sum
up to, as the base, it is

    E f(sum_S w_S e^(X_S - Var X_S / 2) - e^eps sum_T w_T e^(Y_T - Var Y_T / 2)),    f = max(0, .),

with jointly normal X_S and Y_T of mean 0 and covariances <x_S, x_S'> / sigma^2, and so on. Let the
covariances move along a line. The derivative of E f is half the sum over pairs of terms of the two
coefficients, times how fast their covariance moves, times the mean of the two exponentials times
f'' (by integration by parts; f smoothed). As f is convex, E f grows where covariances of terms of
the same sign grow, and those of opposite sign fall. Now <x_S, x_S'> <= |S| |S'|, and <x_S, y_T> >=
-|S| |T|: the end of the line is x_i = 1, y_i = -1 in one dimension. So a unit's records are worst
lined up, and their substitutes opposite to them. Without substitutes (or without records) the other
side is the constant e^eps, which is the same for all x: added and removed are covered as well.
(Kahane, "Sur le chaos multiplicatif", 1985, has the inequality for coefficients of one sign.)

The loss increases with x in each, so a cell of losses is an interval of x, whose mass under P and
under Q is a difference of normal distribution functions. Each cell's mass goes to its two ends in
the one way that keeps both masses (Doroshenko et al., arXiv:2207.04380, section 3); that is the
tightest pessimistic choice, and here keeps its relative precision far into the tails, where
differences of delta(epsilon) would not: at small q and millions of steps, this is what decides the
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special, stats

from sfumato.accounting.dpa import Floats, LossMasses

__all__ = ["gaussian_losses"]

_REACH = 10.0
"""Standard deviations kept on either side; 1e-23 beyond, charged as infinite loss."""

_MOST_NOISE = 1e50
"""More counts as this much, whose square does not overflow."""

Component = tuple[float, float]
"""Weight and centre of one normal component."""


def gaussian_losses(
    noise_multiplier: float, sample_rate: float, replace: bool, grid: float, records: int = 1
) -> list[LossMasses]:
    """The loss masses of one release: one entry if symmetric, else (removed, added)."""
    sigma, q = min(noise_multiplier, _MOST_NOISE), sample_rate
    null: list[Component] = [(1.0, 0.0)]
    present = _present(q, records)
    if replace:
        assert records == 1
        mirrored = [(weight, -centre) for weight, centre in present]
        return [_discretise(present, mirrored, sigma, grid, _replaced_inverse(sigma, q))]
    inverse = _removed_inverse(sigma, q) if records == 1 else _bisected(present, null, sigma)
    removed = _discretise(present, null, sigma, grid, inverse)
    if q == 1:
        return [removed]
    added = _discretise(null, present, sigma, grid, lambda loss: -inverse(-loss), flipped=True)
    return [removed, added]


def _present(q: float, records: int) -> list[Component]:
    """How far the unit's sampled records move the sum."""
    weights = np.asarray(stats.binom.pmf(np.arange(records + 1), records, q)).tolist()
    return [(weight, float(j)) for j, weight in enumerate(weights) if weight > 0]


def _bisected(
    upper: list[Component], lower: list[Component], sigma: float
) -> Callable[[Floats], Floats]:
    """X at which ln(upper/lower), increasing in x, is a given loss; -inf where it is larger."""

    def log_ratio(x: Floats) -> Floats:
        return _log_density(upper, x, sigma) - _log_density(lower, x, sigma)

    def inverse(loss: Floats) -> Floats:
        edge = 4 * _REACH * sigma + 4 * max(centre for _, centre in upper)
        low, high = np.full_like(loss, -edge), np.full_like(loss, edge)
        unreached = log_ratio(low) > loss
        for _ in range(70):
            middle = (low + high) / 2
            below = log_ratio(middle) < loss
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.where(unreached, -math.inf, high)

    return inverse


def _removed_inverse(sigma: float, q: float) -> Callable[[Floats], Floats]:
    """X at which ln(1 - q + q e^((2x - 1)/(2 sigma^2))) is a given loss; -inf below ln(1 - q)."""

    def inverse(loss: Floats) -> Floats:
        # e^loss - (1 - q), kept exact near 0 and free of overflow far out.
        grown = np.where(
            loss > 30, loss, np.log(np.maximum(np.expm1(np.minimum(loss, 30.0)) + q, 0))
        )
        return sigma**2 * (grown - math.log(q)) + 0.5

    return inverse


def _replaced_inverse(sigma: float, q: float) -> Callable[[Floats], Floats]:
    """X at which the two mixtures' log ratio is a given loss.

    With u = e^(x/sigma^2), c = q e^(-1/(2 sigma^2)) and r = e^loss, c u^2 - (1-q)(r-1) u - r c = 0.
    """
    log_c = math.log(q) - 1 / (2 * sigma**2)

    def at_positive(loss: Floats) -> Floats:
        # u = e^loss (b + sqrt(b^2 + s^2)) / c with both terms positive, so no cancellation; the
        # larger of b and s is taken out, so no underflow.
        with np.errstate(divide="ignore"):
            log_b = np.log((1 - q) / 2 * -np.expm1(-loss))
        log_s = log_c - loss / 2
        most = np.maximum(log_b, log_s)
        b, s = np.exp(log_b - most), np.exp(log_s - most)
        return sigma**2 * (loss + most + np.log(b + np.hypot(b, s)) - log_c)

    return lambda loss: np.sign(loss) * at_positive(np.abs(loss))


def _discretise(
    upper: list[Component],
    lower: list[Component],
    sigma: float,
    grid: float,
    inverse: Callable[[Floats], Floats],
    flipped: bool = False,
) -> LossMasses:
    """Masses at grid points of ln(upper/lower) under ``upper``.

    ``flipped``: the loss falls as x grows, so x is mirrored first.
    """
    if flipped:
        upper = [(weight, -centre) for weight, centre in upper]
        lower = [(weight, -centre) for weight, centre in lower]
    first, last = _range(upper, lower, sigma)
    lowest = math.floor(first / grid)
    highest = max(math.ceil(last / grid), lowest + 1)
    losses = np.arange(lowest, highest + 1, dtype=np.float64) * grid
    with np.errstate(divide="ignore"):
        x = inverse(losses)
    p, p_below, p_above = _cells(upper, x, sigma)
    q, _, _ = _cells(lower, x, sigma)
    # Of a cell's mass p, the share b goes to the upper end so that P and Q mass are both kept.
    with np.errstate(over="ignore", invalid="ignore"):
        b = (p - q * np.exp(losses[:-1])) / -math.expm1(-grid)
    b = np.clip(np.where(np.isfinite(b), b, p), 0.0, p)
    probs = np.append(p - b, 0.0) + np.append(0.0, b)
    probs[0] += p_below
    return LossMasses(lowest, probs, p_above, grid)


def _range(upper: list[Component], lower: list[Component], sigma: float) -> tuple[float, float]:
    """The losses between which all but a vanishing part of ``upper``'s mass lies."""
    centres = [centre for _, centre in upper]
    ends = np.array([min(centres) - _REACH * sigma, max(centres) + _REACH * sigma])
    losses = _log_density(upper, ends, sigma) - _log_density(lower, ends, sigma)
    return float(losses[0]), float(losses[1])


def _log_density(mixture: list[Component], x: Floats, sigma: float) -> Floats:
    terms = [math.log(w) - ((x - c) / sigma) ** 2 / 2 for w, c in mixture]
    return np.logaddexp.reduce(terms, axis=0)


def _cells(mixture: list[Component], x: Floats, sigma: float) -> tuple[Floats, float, float]:
    """The mixture's mass between neighbouring ``x``, below the first and above the last.

    Each component is differenced on its own small side, where it is not swamped by 1.
    """
    cells, below, above = np.zeros(len(x) - 1), 0.0, 0.0
    for weight, centre in mixture:
        z = (x - centre) / sigma
        left, right = special.ndtr(z), special.ndtr(-z)
        cells += weight * np.where(z[1:] <= 0, np.diff(left), -np.diff(right))
        below += weight * float(left[0])
        above += weight * float(right[-1])
    return np.maximum(cells, 0.0), below, above
