"""Audits by repetition: the same game played often, with and without one canary.

Many runs see more than one run with many canaries, because canaries do not get in each other's way,
and cost as many trainings. Two runs are enough where every *step* shows a score of its own: the
steps are the repetitions (Nasr et al., "Tight auditing of differentially private machine learning",
arXiv:2302.07956).

    >>> rng = np.random.default_rng(1)
    >>> print(audit_games(rng.standard_normal(4000) + 1, rng.standard_normal(4000), delta=1e-5))
    at least epsilon 3.824 at delta 1e-05 (0.95 confidence)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from sfumato.audit.findings import Finding, stated_delta
from sfumato.audit.intervals import (
    Rates,
    epsilon_from_counts,
    gaussian_epsilon_from_counts,
    mu_from_counts,
)
from sfumato.audit.one_run import Analysis, refuse_nan
from sfumato.core import validation
from sfumato.core.guarantee import Guarantee

__all__ = ["audit_games", "audit_two_runs", "split_threshold"]


def audit_games(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    delta: float | None = None,
    claim: Guarantee | None = None,
    confidence: float = 0.95,
    threshold: float | None = None,
    analysis: Analysis | str = Analysis.GAUSSIAN,
) -> Finding:
    """A lower bound from scores of independent games, those with the canary and those without.

    Args:
        inside: scores of games in which the canary was there, higher where that is more likely.
        outside: scores of the others.
        delta: at which; by default the claim's.
        claim: what one game promises.
        confidence: of the whole procedure.
        threshold: above which the auditor says "in", fixed in advance. By default half of the games
            choose it, and only the other half counts.
        analysis: GUESSES bounds epsilon at ``delta`` without assumptions; GAUSSIAN bounds mu, which
            refutes claims of Gaussian noise, and gives epsilon for curves that are Gaussian.
    """
    ins, outs = _scores("inside", inside), _scores("outside", outside)
    how = validation.choice("analysis", analysis, Analysis)
    at = stated_delta(delta, claim)
    if threshold is None:
        threshold, ins, outs = split_threshold(ins, outs)
    hits: Rates = (int((ins > threshold).sum()), len(ins))
    alarms: Rates = (int((outs > threshold).sum()), len(outs))
    bound = gaussian_epsilon_from_counts if how is Analysis.GAUSSIAN else epsilon_from_counts
    facts = {
        "hits": list(hits), "false_alarms": list(alarms), "threshold": float(threshold),
        "mu_at_least": mu_from_counts(hits, alarms, confidence), "analysis": how.value,
    }  # fmt: skip
    epsilon = bound(hits, alarms, at, confidence)
    return Finding(epsilon, at, confidence, f"repeated games, {how.value}", claim, facts)


def audit_two_runs(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    sample_rate: float,
    delta: float | None = None,
    claim: Guarantee | None = None,
    confidence: float = 0.95,
    threshold: float | None = None,
) -> Finding:
    """A lower bound for a whole run of sampled steps from what each step of two runs shows.

    Every step is a game: in one run the canary is in each lot, in the other in none. Their scores
    bound the noise of a step from above; the accountant says what a run of as many steps with that
    noise costs, when lots are sampled. That is what training gives away if its steps are Gaussian,
    independent and alike, as DP-SGD's are.

    Args:
        inside: a score for each step of the run with the canary.
        outside: of the run without.
        sample_rate: of the run that the claim is about.
        delta: at which; by default the claim's.
        claim: what that run promises.
        confidence: of the whole procedure.
        threshold: see :func:`audit_games`.

    Reference: Nasr et al., arXiv:2302.07956, section 5.
    """
    from sfumato.accounting import account
    from sfumato.core.events import dp_sgd

    at, steps = stated_delta(delta, claim), len(_scores("inside", inside))
    each = audit_games(
        inside, outside, delta=at, confidence=confidence, threshold=threshold,
    )  # fmt: skip
    mu = each.facts["mu_at_least"]
    epsilon = account(dp_sgd(1 / mu, sample_rate, steps), at).epsilon if mu > 0 else 0.0
    facts = {
        **each.facts, "steps": steps, "sample_rate": sample_rate,
        "multiplier_at_most": 1 / mu if mu > 0 else None,
    }  # fmt: skip
    return Finding(epsilon, at, confidence, "two runs, step by step", claim, facts)


def split_threshold(
    inside: NDArray[np.float64], outside: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """A threshold from every second game, and the games that did not choose it.

    The one that tells apart best: where Phi^-1(TPR) - Phi^-1(FPR), less five standard errors of it,
    is largest. (With fewer, luck at rare rates would often be taken for power.)
    """
    learn_in, learn_out = np.sort(inside[::2]), np.sort(outside[::2])
    tried = np.quantile(np.concatenate([learn_in, learn_out]), np.linspace(0.02, 0.98, 97))
    rates = [
        (len(side) - np.searchsorted(side, tried, side="right") + 0.5) / (len(side) + 1)
        for side in (learn_in, learn_out)
    ]
    power, alarms = (np.clip(rate, 1e-12, 1 - 1e-12) for rate in rates)
    error = np.sqrt(_variance(power, len(learn_in)) + _variance(alarms, len(learn_out)))
    shown = ndtri(power) - ndtri(alarms) - 5 * error
    return float(tried[int(np.argmax(shown))]), inside[1::2], outside[1::2]


def _variance(rate: NDArray[np.float64], trials: int) -> NDArray[np.float64]:
    """Of Phi^-1 of an estimated rate, to first order."""
    density = np.exp(-(ndtri(rate) ** 2) / 2) / np.sqrt(2 * np.pi)
    return rate * (1 - rate) / trials / density**2


def _scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    found = np.asarray(values, np.float64)
    if found.ndim != 1 or len(found) < 4:
        validation.fail(name, "one score for each of at least four games", found.shape)
    refuse_nan(name, found)
    return found
