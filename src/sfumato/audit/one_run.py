"""Audit one training run by its canaries' scores.

    >>> rng = np.random.default_rng(1)
    >>> included = rng.random(1000) < 0.5
    >>> scores = 1.5 * included + rng.standard_normal(1000)  # higher for what was trained on
    >>> print(audit_scores(scores, included, delta=1e-5, guesses=100))
    at least epsilon 2.71 at delta 1e-05 (0.95 confidence)

How many guesses to make must not depend on the coins. With a claim it is computed from the claim:
what would be best if training were exactly as private as promised. Without one, ten numbers are
tried, each at a tenth of the error probability. (To keep the best of a grid uncorrected, as some
tools do, reports epsilon > 0 for half of all runs in which nothing was learned.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr, ndtr

from sfumato.audit.findings import GAUSSIAN_NOISE, Finding, require_gaussian, stated_delta
from sfumato.audit.guesses import epsilon_from_guesses, gaussian_from_guesses
from sfumato.core import validation
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours

__all__ = [
    "ALL_EQUAL",
    "WRONG_WAY",
    "Analysis",
    "as_scores",
    "audit_scores",
    "planned_guesses",
    "refuse_nan",
    "require_relation",
]

ALL_EQUAL = "all scores are equal and tell nothing"
WRONG_WAY = (
    "the scores point the wrong way (higher where a canary was out): something was told, and an "
    "audit with their signs turned, of new runs, would show it"
)
_UNFAIR = 1e-9  # fair coins fall as unevenly as this once in so many times
_WHOLE = 2.0**53  # beyond it doubles do not hold every whole number
_FRACTIONS = tuple(2.0**-k for k in range(10))
_Bound = Callable[[int, int, int, float, float], float]


class Analysis(StrEnum):
    """How right guesses become epsilon.

    GUESSES holds for every (epsilon, delta)-DP run (Steinke, Nasr and Jagielski 2023). GAUSSIAN is
    tighter; it refutes mu-Gaussian DP, and bounds epsilon where the trade-off curve is nearly
    Gaussian, as after many steps of DP-SGD (Mahloujifar, Melis and Chaudhuri 2024). A finding says
    that it takes noise to be Gaussian.
    """

    GUESSES = "guesses"
    GAUSSIAN = "gaussian"


_BOUNDS: dict[Analysis, _Bound] = {
    Analysis.GUESSES: epsilon_from_guesses,
    Analysis.GAUSSIAN: gaussian_from_guesses,
}


def audit_scores(
    scores: ArrayLike,
    included: ArrayLike,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    confidence: float = 0.95,
    guesses: int | None = None,
    analysis: Analysis | str = Analysis.GUESSES,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
) -> Finding:
    """A lower bound on epsilon from one run.

    Args:
        scores: one for each canary, higher where inclusion is more likely.
        included: the coins, fair and independent, that decided. Coins that cannot have been fair
            are refused: no bound follows from them.
        delta: at which; by default the claim's.
        claim: what training promises for a canary, that is for one unit.
        confidence: of the whole procedure.
        guesses: how many in all, half "in" for the highest and half "out" for the lowest scores;
            fixed in advance. By default as the module says.
        analysis: see :class:`Analysis`.
        neighbours: what is there instead of a canary that is out: nothing (add-remove), a blank
            (zero-out) or another unit (replace-one). The claim must be for that relation.

    Raises:
        ValueError: for a claim of another relation, and for a GAUSSIAN analysis at delta 0.
    """
    values, bits = _checked(scores, included)
    how = validation.choice("analysis", analysis, Analysis)
    at = stated_delta(delta, claim)
    require_relation(claim, neighbours)
    if how is Analysis.GAUSSIAN:
        require_gaussian(at, "take analysis='guesses'")
    validation.open_probability("confidence", confidence)
    count = len(values)
    if guesses is not None:
        tried = [validation.at_least("guesses", guesses, 2)]
    elif claim is not None:
        tried = [planned_guesses(count, claim.epsilon, at, confidence, how)]
    else:
        tried = sorted({max(2, round(count * part)) for part in _FRACTIONS})
    if tried[-1] > count:
        validation.fail("guesses", f"at most the number of canaries, {count}", guesses)
    level = 1 - (1 - confidence) / len(tried)
    found = [
        (_BOUNDS[how](right, made, count, at, level), made, right)
        for made, right in (_right(values, bits, number) for number in tried)
    ]
    epsilon, made, right = max(found)
    most = max(_most(how, number // 2 * 2, count, at, level) for number in tried)
    facts = {
        "canaries": count, "guesses": made, "right": right, "analysis": how.value,
        "numbers_of_guesses_tried": len(tried),
    }  # fmt: skip
    return Finding(
        epsilon, at, confidence, f"one run, {how.value}", claim, facts,
        assumption=GAUSSIAN_NOISE if how is Analysis.GAUSSIAN else "", most=most,
        remark=_remark(values, found, count, level),
    )  # fmt: skip


def _remark(
    values: NDArray[np.float64], found: list[tuple[float, int, int]], count: int, level: float
) -> str:
    if values.min() == values.max():
        return ALL_EQUAL
    wrong = (
        epsilon_from_guesses(made - right, made, count, 0.0, level) for _, made, right in found
    )
    return WRONG_WAY if max(wrong) > 0 else ""


@lru_cache(maxsize=1024)
def _most(how: Analysis, made: int, canaries: int, delta: float, confidence: float) -> float:
    """The bound if all guesses were right."""
    return _BOUNDS[how](made, made, canaries, delta, confidence)


def require_relation(claim: Guarantee | None, neighbours: Neighbours | str) -> None:
    """Refuses a claim of another relation than that of canaries which are in or out.

    Raises:
        ValueError: naming both.
    """
    relation = Neighbours.parse(neighbours)
    if claim is not None and claim.neighbours is not relation:
        raise ValueError(
            f"claim must be for {relation.value} neighbours, the relation of canaries that are in "
            f"or out here, got {claim.neighbours.value}: claim what holds for that, or say with "
            "neighbours= what is there instead of a canary that is out"
        )


def _right(values: NDArray[np.float64], bits: NDArray[np.bool_], number: int) -> tuple[int, int]:
    """How many guesses are made, and right: the highest in, the lowest out."""
    half = number // 2
    order = np.argsort(values, kind="stable")
    return 2 * half, int(bits[order[-half:]].sum() + (~bits[order[:half]]).sum())


@lru_cache(maxsize=256)
def planned_guesses(
    canaries: int, epsilon: float, delta: float, confidence: float, analysis: Analysis
) -> int:
    """How many guesses would show most if the run were Gaussian and exactly (epsilon, delta).

    The score of an included canary is then N(mu, 1), of another N(0, 1). Of those numbers with
    which a false claim could be refuted, by guesses that are all right, if there are any.

    >>> planned_guesses(5000, 4.0, 1e-5, 0.95, Analysis.GUESSES)
    210
    """
    if not 0 < epsilon < math.inf or delta == 0:
        return max(2, canaries // 10)
    mu, bound = 1 / least_multiplier(epsilon, delta), _BOUNDS[analysis]
    best = (False, 0.0, max(2, canaries // 10))
    for threshold in (mu / 2 + tenths / 10 for tenths in range(45)):
        high, low = float(ndtr(mu - threshold)), float(ndtr(-threshold))
        made = 2 * round(canaries * (high + low) / 4)
        if made < 2:
            break
        right = math.floor(made * high / (high + low))
        refutes = bound(made, made, canaries, delta, confidence) > epsilon
        best = max(best, (refutes, bound(right, made, canaries, delta, confidence), made))
    return best[2]


def _checked(
    scores: ArrayLike, included: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    values = as_scores("scores", scores)
    bits = np.asarray(included)
    if values.ndim != 1 or len(values) < 2:
        validation.fail("scores", "one number for each of at least two canaries", values.shape)
    if bits.shape != values.shape or bits.dtype != np.bool_:
        validation.fail("included", f"{len(values)} booleans", f"{bits.dtype} of {bits.shape}")
    refuse_nan("scores", values)
    heads = int(bits.sum())
    if 2 * bdtr(min(heads, len(bits) - heads), len(bits), 0.5) < _UNFAIR:
        told = f"{heads} of {len(bits)} True"
        validation.fail("included", "fair and independent coins, one for each canary", told)
    return values, bits


def as_scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Scores as doubles; whole numbers that these do not tell apart are refused."""
    given = np.asarray(values)
    with np.errstate(over="ignore"):
        found = given.astype(np.float64)
    if given.dtype.kind in "iuO" and bool((np.abs(found) > _WHOLE).any()):
        told = "whole numbers beyond 2^53"
        validation.fail(name, "numbers that doubles tell apart (subtract a constant)", told)
    return found


def refuse_nan(name: str, values: NDArray[np.float64]) -> None:
    """A score that is no number says nothing, and must not read as if nothing leaked."""
    missing = int(np.isnan(values).sum())
    if missing:
        told = f"NaN in {missing} of {len(values)}"
        validation.fail(name, "numbers (did training diverge?)", told)
