"""Worst-case neighbours of this package's mechanisms, and what their exact laws show.

A mechanism declares how far one neighbour step moves its input; the pairs here move it that far.
Where a law is known it needs no sampling:

    >>> from sfumato.core import Sensitivity
    >>> from sfumato.mechanisms.laplace import Laplace
    >>> worst_pairs(Laplace(2.0, Sensitivity(1.0)))
    ((0.0, 1.0),)
    >>> print(audit_law(Laplace(2.0, Sensitivity(1.0))))
    at least epsilon 0.4999 at delta 0 (exact): consistent with the claimed epsilon 0.5

======================================  ==========================================================
mechanism                               the pair
======================================  ==========================================================
Laplace, Gaussian and their whole kin   one coordinate moves by the sensitivity; the discrete
                                        Gaussian and Skellam on several numbers also by several
LocalLaplace                            the lower and the upper end of the range
RandomizedResponse                      two different answers
Exponential, PermuteAndFlip,            two candidates, one of which gains Delta while the other
ReportNoisyMax                          loses it (stands still if monotone), at several distances
SparseVector                            values that gain Delta and should stay below, then values
                                        that lose it (stand still if monotone) and should not
======================================  ==========================================================

The laws are those of the outputs as they are released: rounded to the grid, and seen through a few
thousand cells of neighbouring grid points, which never raises epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import ive, ndtr

from sfumato.audit.exact import at_delta, audit_finite
from sfumato.audit.findings import Finding
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.mechanisms.additive import Additive
from sfumato.mechanisms.base import Mechanism
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.discrete_gaussian_law import log_normaliser
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.local import LocalLaplace
from sfumato.mechanisms.noisy_max import ReportNoisyMax
from sfumato.mechanisms.permute_and_flip import PermuteAndFlip
from sfumato.mechanisms.private_values import as_codes
from sfumato.mechanisms.randomized_response import RandomizedResponse
from sfumato.mechanisms.selection import Selection
from sfumato.mechanisms.skellam import Skellam
from sfumato.mechanisms.sparse_vector import SparseVector

__all__ = ["Laws", "Pair", "audit_law", "claim_of", "exact_laws", "plain", "worst_pairs"]

Pair = tuple[Any, Any]
"""Two neighbouring inputs of a mechanism."""

_Floats = NDArray[np.float64]
_ACCURACY = 1e-9  # relative, of the probabilities computed here: far more than their error
_CELLS = 8192
_REACH = 10.0  # standard scales beyond both inputs; what lies further is one cell
_MOST_TERMS = 2**22
_LONGEST = 64  # entries of an input that a record shows


@dataclass(frozen=True, eq=False)
class Laws:
    """The probabilities of the same outcomes on both inputs of a pair, to a relative 1e-9."""

    p: _Floats
    q: _Floats


def worst_pairs(mechanism: Mechanism, *, exact: bool = False) -> tuple[Pair, ...]:
    """Neighbouring inputs on which ``mechanism`` comes near to what it claims.

    Args:
        mechanism: one of this package.
        exact: for :func:`exact_laws`: adds pairs whose telling outputs are too rare for sampling,
            and moves one coordinate only.

    Raises:
        ValueError: for a mechanism that is not known here.
    """
    return tuple(_entry(mechanism).pairs(mechanism, exact))


def exact_laws(mechanism: Mechanism, pair: Pair) -> Laws:
    """The laws of ``mechanism``'s output on both inputs of ``pair``.

    Raises:
        ValueError: where there is no law to compute: for an unknown mechanism, inputs that differ
            in several coordinates, or noise so large that its sums have too many terms.
    """
    return _entry(mechanism).laws(mechanism, pair)


def audit_law(
    mechanism: Mechanism,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    pairs: Iterable[Pair] | None = None,
) -> Finding:
    """What ``mechanism``'s exact law shows about epsilon, on the worst of some pairs.

    Args:
        mechanism: one of this package.
        delta: at which; by default the claim's, or the one that the mechanism states.
        claim: by default the mechanism's own guarantee at ``delta``.
        pairs: the neighbours to try; by default :func:`worst_pairs` for exact laws.
    """
    at, promised = claim_of(mechanism, delta, claim)
    tried = list(worst_pairs(mechanism, exact=True) if pairs is None else pairs)
    if not tried:
        validation.fail("pairs", "at least one pair of neighbouring inputs", tried)

    def finding(pair: Pair) -> Finding:
        laws = exact_laws(mechanism, pair)
        facts = {"mechanism": repr(mechanism), "pair": plain(pair), "pairs_tried": len(tried)}
        return audit_finite(
            laws.p, laws.q, delta=at, claim=promised, accuracy=_ACCURACY, facts=facts
        )

    return max(map(finding, tried), key=lambda found: found.epsilon)


def claim_of(
    mechanism: Mechanism, delta: float | None, claim: Guarantee | None
) -> tuple[float, Guarantee]:
    """The delta of an audit of ``mechanism``, and what it promises there unless told."""
    if delta is None and claim is None:
        delta = float(getattr(mechanism, "delta", 0.0))
    at = at_delta(delta, claim)
    return at, mechanism.guarantee(at) if claim is None else claim


def plain(value: Any) -> Any:
    """``value`` for a record: arrays and tuples as lists, if short; other numbers as floats."""
    if isinstance(value, np.ndarray | np.generic):
        array = cast(NDArray[Any], value)
        return plain(array.tolist()) if array.size <= _LONGEST else f"array of shape {array.shape}"
    if isinstance(value, list | tuple):
        parts = cast(list[Any], value)
        return [plain(p) for p in parts] if len(parts) <= _LONGEST else f"{len(parts)} entries"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return float(value) if isinstance(value, Fraction) else repr(value)


def _first_moves(mechanism: Additive, exact: bool) -> list[Pair]:
    """One coordinate moves by the whole sensitivity."""
    known = mechanism.sensitivity
    if known.dimension == 1:
        return [(0.0, known.bound)]
    moved = np.zeros(known.dimension)
    moved[0] = known.bound
    return [(np.zeros(known.dimension), moved)]


def _first_whole_moves(
    mechanism: DiscreteLaplace | DiscreteGaussian | Skellam, exact: bool
) -> list[Pair]:
    """One coordinate moves, by whole numbers; several where an L2 bound leaves room for them."""
    known = mechanism.sensitivity
    step = math.floor(known.bound)
    if known.dimension == 1:
        return [(0, step)]
    steps = [step] + [0] * (known.dimension - 1)
    one = isinstance(mechanism, DiscreteLaplace) or getattr(mechanism, "one_coordinate", False)
    if not one and not exact:
        rest = math.floor(Fraction(known.bound) ** 2)
        for place in range(known.dimension):
            steps[place] = math.isqrt(rest)
            rest -= steps[place] ** 2
    return [(np.zeros(known.dimension, np.int64), np.array(steps, np.int64))]


def _ends(mechanism: LocalLaplace, exact: bool) -> list[Pair]:
    return [(mechanism.lower, mechanism.upper)]


def _answers(mechanism: RandomizedResponse, exact: bool) -> list[Pair]:
    return [(0, 1)]


def _rivals(mechanism: Selection, exact: bool) -> list[Pair]:
    """(0, (k + 1) Delta) against (Delta, k Delta); (0, k Delta) against (Delta, k Delta).

    The second if monotone. The first candidate is e^(-k Delta / u) times as likely as the other, u
    the score that makes a factor e: the rarer it is, the nearer its ratio comes to e^epsilon, and
    the more draws it takes to see.
    """
    step = _exact(mechanism.sensitivity.bound)
    unit = (1 if mechanism.monotone else 2) / mechanism.epsilon
    depths = (1.2, 2.3, 12.0) if exact else (1.2, 2.3)
    behind = sorted({1, *(min(max(1, round(unit * depth)), 2**40) for depth in depths)})
    lost = 0 if mechanism.monotone else 1
    return [([0, (k + lost) * step], [step, k * step]) for k in behind]


def _streams(mechanism: SparseVector, exact: bool) -> list[Pair]:
    """Values that should stay below and gain Delta, then values that should not and lose it.

    On the first stream the answers "below ... below, above ... above" are likelier than on the
    second: the gains cost up to eps1 together, each loss up to eps2 / c.
    """
    step, threshold = _exact(mechanism.sensitivity.bound), _exact(mechanism.threshold)
    unit = max(1, round(1 / mechanism.epsilon))
    lost = 0 if mechanism.monotone else 1
    many = mechanism.positives
    shapes = [(8, -unit, 2 * unit), (4, 0, 2 * unit)] + ([(12, 4 * unit, -unit)] if exact else [])

    def stream(below: int, low: int, high: int) -> list[Any]:
        return [threshold + low * step] * below + [threshold + high * step] * many

    return [(stream(n, u, v), stream(n, u + 1, v - lost)) for n, u, v in shapes]


def _exact(value: float) -> Any:
    """``value`` as a whole number or a fraction, so that sums of it are exact."""
    exact = Fraction(value)
    return int(exact) if exact.denominator == 1 else exact


def _cells(pair: Pair, scale: float, step: float, cdf: Callable[[_Floats], _Floats]) -> Laws:
    """Noise on one coordinate, rounded to multiples of ``step``, by cells of these.

    Args:
        pair: inputs that differ in one coordinate.
        scale: of the noise.
        step: of the outputs' grid.
        cdf: of the noise, which is symmetric; accurate in its lower tail. It is taken half-way
            between grid points.
    """
    a, b = _moving(pair)
    low, high = min(a, b) - _REACH * scale, max(a, b) + _REACH * scale
    edges = (np.unique(np.round(np.linspace(low, high, _CELLS) / step)) + 0.5) * step

    def law(centre: float) -> _Floats:
        # Above the centre by symmetry, where differences of the lower tail keep their digits.
        ends = np.concatenate([[-np.inf], edges - centre, [np.inf]])
        left, right = ends[:-1], ends[1:]
        above = left >= 0
        start, stop = np.where(above, -right, left), np.where(above, -left, right)
        return np.maximum(cdf(stop) - cdf(start), 0.0)

    return Laws(law(a), law(b))


def _moving(pair: Pair) -> tuple[float, float]:
    """The one coordinate in which two inputs differ."""
    a, b = (np.ravel(np.asarray(side, np.float64)) for side in pair)
    moved = np.flatnonzero(a != b)
    if len(a) != len(b) or len(moved) != 1:
        validation.fail("pair", "two inputs that differ in one coordinate, for a law", plain(pair))
    return float(a[moved[0]]), float(b[moved[0]])


def _laplace_law(mechanism: Laplace, pair: Pair) -> Laws:
    def cdf(x: _Floats) -> _Floats:
        tail = np.exp(-np.abs(x) / mechanism.scale) / 2
        return np.where(x < 0, tail, 1 - tail)

    return _cells(pair, mechanism.scale, mechanism.resolution, cdf)


def _local_law(mechanism: LocalLaplace, pair: Pair) -> Laws:
    a, b = (min(max(float(side), mechanism.lower), mechanism.upper) for side in pair)
    return _laplace_law(mechanism.noise, (a, b))


def _gaussian_law(mechanism: Gaussian, pair: Pair) -> Laws:
    def cdf(x: _Floats) -> _Floats:
        return ndtr(x / mechanism.sigma)

    return _cells(pair, mechanism.sigma, mechanism.resolution, cdf)


def _discrete_laplace_law(mechanism: DiscreteLaplace, pair: Pair) -> Laws:
    def cdf(x: _Floats) -> _Floats:
        return _whole_below(x + 0.5, mechanism.scale)

    return _cells(pair, max(mechanism.scale, 1.0), 1.0, cdf)


def _whole_below(x: _Floats, scale: float) -> _Floats:
    """Pr[Y < x] of discrete Laplace noise, for whole x: p^(1-x) / (1+p), or 1 - p^x / (1+p)."""
    tail = np.exp(-np.where(x <= 0, 1 - x, x) / scale) / (1 + math.exp(-1 / scale))
    return np.where(x <= 0, tail, 1 - tail)


def _discrete_gaussian_law(mechanism: DiscreteGaussian, pair: Pair) -> Laws:
    sigma = mechanism.sigma

    def weights(k: _Floats) -> _Floats:
        return np.exp(-0.5 * (k / sigma) ** 2 - log_normaliser(sigma))

    return _whole_law(pair, sigma, weights)


def _skellam_law(mechanism: Skellam, pair: Pair) -> Laws:
    def weights(k: _Floats) -> _Floats:
        return np.asarray(ive(np.abs(k), mechanism.variance), np.float64)

    return _whole_law(pair, mechanism.standard_deviation, weights)


def _whole_law(pair: Pair, sigma: float, weights: Callable[[_Floats], _Floats]) -> Laws:
    """Whole noise of standard deviation ``sigma`` with Pr[Y = k] = ``weights(k)``."""
    reach = math.ceil(1.5 * _REACH * sigma) + 40
    _few_terms(2 * reach)
    k = np.arange(-reach, reach + 1, dtype=np.float64)
    below = np.concatenate([[0.0], np.cumsum(weights(k))])

    def cdf(x: _Floats) -> _Floats:
        return below[np.clip(np.floor(x) + reach + 1, 0, len(k)).astype(np.int64)]

    return _cells(pair, max(sigma, 1.0), 1.0, cdf)


def _response_law(mechanism: RandomizedResponse, pair: Pair) -> Laws:
    """The first answer, the second, or another."""
    answers = as_codes(list(pair), mechanism.categories, mechanism.default).tolist()
    if answers[0] == answers[1]:
        validation.fail("pair", "two different answers", plain(pair))
    rest = (mechanism.categories - 2) * mechanism.switch
    keep, switch = mechanism.keep, mechanism.switch
    return Laws(np.array([keep, switch, rest]), np.array([switch, keep, rest]))


def _selection_law(mechanism: Selection, pair: Pair) -> Laws:
    return Laws(*(np.asarray(mechanism.probabilities(scores)) for scores in pair))


def _session_law(mechanism: SparseVector, pair: Pair) -> Laws:
    """Where the answers first differ from "below" for all but the last c values, "above" for those.

    The probability of each at a threshold's noise r, summed over r. For c = 1 these are all the
    sequences of answers there are; for more, what follows is left out of sight.
    """
    scale = mechanism.threshold_scale
    farthest = max(abs(mechanism.level(value)) for values in pair for value in values)
    reach = math.ceil(45 * scale) + farthest
    _few_terms(2 * reach)
    noise = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-np.abs(noise) / scale) * math.tanh(0.5 / scale)

    def law(values: Sequence[Any]) -> _Floats:
        found: list[float] = []
        so_far = weights
        for number, value in enumerate(values):
            needed = noise - float(mechanism.level(value))
            below = _whole_below(needed, mechanism.query_scale)
            above = _whole_below(1 - needed, mechanism.query_scale)
            last = number >= len(values) - mechanism.positives
            expected, other = (above, below) if last else (below, above)
            found.append(float((so_far * other).sum()))
            so_far = so_far * expected
        return np.array([*found, float(so_far.sum())])

    return Laws(law(pair[0]), law(pair[1]))


def _few_terms(terms: int) -> None:
    if terms > _MOST_TERMS:
        validation.fail("noise", f"smaller for its law: at most {_MOST_TERMS} terms", terms)


@dataclass(frozen=True)
class _Entry:
    pairs: Callable[[Any, bool], Iterable[Pair]]
    laws: Callable[[Any, Pair], Laws]


_TABLE: dict[type[Any], _Entry] = {
    Laplace: _Entry(_first_moves, _laplace_law),
    Gaussian: _Entry(_first_moves, _gaussian_law),
    DiscreteLaplace: _Entry(_first_whole_moves, _discrete_laplace_law),
    DiscreteGaussian: _Entry(_first_whole_moves, _discrete_gaussian_law),
    Skellam: _Entry(_first_whole_moves, _skellam_law),
    LocalLaplace: _Entry(_ends, _local_law),
    RandomizedResponse: _Entry(_answers, _response_law),
    Exponential: _Entry(_rivals, _selection_law),
    PermuteAndFlip: _Entry(_rivals, _selection_law),
    ReportNoisyMax: _Entry(_rivals, _selection_law),
    SparseVector: _Entry(_streams, _session_law),
}


def _entry(mechanism: object) -> _Entry:
    entry = _TABLE.get(type(mechanism))
    if entry is None:
        names = ", ".join(sorted(known.__name__ for known in _TABLE))
        validation.fail("mechanism", f"one of {names}; give pairs for any other", mechanism)
    return entry
