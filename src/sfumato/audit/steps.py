"""The audit of one step, which sees what audits of whole runs cannot: a wrong constant.

One run of five thousand canaries shows some 2.5 of a true epsilon of 4, so noise that is a fifth
too small goes unnoticed. But one *step* can be taken thousands of times. Each game has a place of
its own in the step's output (a coordinate), into which a canary pushes with all its clip norm, or
does not; the noise there is the step's only defence, and

    with the canary   N(C, (m C)^2),      without   N(0, (m C)^2),      m the noise multiplier,

which is 1/m-Gaussian DP. Clopper and Pearson's limits on hits and false alarms bound that 1/m from
below. Several steps in a row make a vector for each game, which sees noise that was used twice: a
linear discriminant is learned on a third of the games, the threshold on another, and the last third
counts.

Games must be independent, as they are where noise is; noise that is not is itself a fault.

    >>> from sfumato.core.randomness import SeededCoins
    >>> rng = np.random.default_rng(1)
    >>> def step(included):  # claims multiplier 1, adds noise of 0.8
    ...     return included[:, None] + 0.8 * rng.standard_normal((len(included), 1))
    >>> found = audit_step(step, multiplier=1.0, games=30_000, coins=SeededCoins(1))
    >>> found.verdict.value
    'refuted'
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.audit.findings import GAUSSIAN_NOISE, Finding
from sfumato.audit.intervals import gaussian_epsilon_from_counts, mu_from_counts
from sfumato.audit.repeated import split_threshold
from sfumato.core import validation
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins, fair_coins

__all__ = ["Step", "audit_step"]

Step = Callable[[NDArray[np.bool_]], ArrayLike]
"""Takes steps with the canaries that are included; for each game what its place shows, a row."""

_RIDGE = 1e-6


def audit_step(
    step: Step,
    *,
    multiplier: float,
    games: int = 30_000,
    times: int = 1,
    delta: float = 1e-5,
    neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
    confidence: float = 0.99,
    coins: Coins = SYSTEM,
) -> Finding:
    """Whether steps are as noisy as they claim to be.

    Args:
        step: see :data:`Step`.
        multiplier: the claimed noise over what a canary adds, of all steps of a call together: m
            for one step, m / sqrt(k) for a canary in each of k steps, m / k for k canaries at once.
        games: how many a call plays.
        times: how many calls.
        delta: at which epsilon is stated.
        neighbours: what a canary's presence changes.
        confidence: of the whole procedure.
        coins: which canaries are in.
    """
    claimed = validation.positive("multiplier", multiplier)
    count = validation.at_least("games", games, 100)
    bits, seen = list[NDArray[np.bool_]](), list[NDArray[np.float64]]()
    for _ in range(validation.count("times", times)):
        included = fair_coins(count, coins)
        shown = np.asarray(step(included.copy()), np.float64)
        if shown.ndim != 2 or len(shown) != count:
            validation.fail("step", f"to return {count} rows", shown.shape)
        bits.append(included)
        seen.append(shown)
    included, shown = np.concatenate(bits), np.concatenate(seen)
    learn = np.arange(len(included)) % 3 == 0
    direction = _discriminant(shown[learn & included], shown[learn & ~included])
    scores = shown @ direction
    threshold, inside, outside = split_threshold(
        scores[~learn & included], scores[~learn & ~included]
    )
    hits = int((inside > threshold).sum()), len(inside)
    alarms = int((outside > threshold).sum()), len(outside)
    claim = Guarantee(
        gaussian_epsilon(claimed, delta), delta, Neighbours.parse(neighbours), "record", "gaussian"
    )
    mu = mu_from_counts(hits, alarms, confidence)
    facts = {
        "games": len(included), "hits": list(hits), "false_alarms": list(alarms),
        "claimed_multiplier": claimed, "multiplier_at_most": 1 / mu if mu > 0 else None,
        "direction": (direction / np.abs(direction).max()).round(4).tolist(),
    }  # fmt: skip
    epsilon = gaussian_epsilon_from_counts(hits, alarms, delta, confidence)
    return Finding(epsilon, delta, confidence, "step", claim, facts, assumption=GAUSSIAN_NOISE)


def _discriminant(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fisher's linear discriminant: the pooled covariance's inverse times the means' difference."""
    centred = np.concatenate([inside - inside.mean(0), outside - outside.mean(0)])
    covariance = centred.T @ centred / len(centred)
    ridge = _RIDGE * max(float(np.trace(covariance)) / len(covariance), 1e-300)
    inverse = np.linalg.inv(covariance + ridge * np.eye(len(covariance)))
    found = np.asarray(inverse @ (inside.mean(0) - outside.mean(0)), np.float64)
    return found if np.abs(found).max() > 0 else np.ones_like(found)
