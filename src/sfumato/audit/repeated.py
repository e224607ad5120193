"""Audits by repetition: the same game played often, with and without one canary.

Many runs see more than one run with many canaries, because canaries do not get in each other's way,
and cost as many trainings. Two runs are enough where every *step* shows a score of its own: the
steps are the repetitions (Nasr et al., "Tight auditing of differentially private machine learning",
arXiv:2302.07956).

    >>> rng = np.random.default_rng(1)
    >>> inside, outside = rng.standard_normal(4000) + 1, rng.standard_normal(4000)
    >>> print(audit_games(inside, outside, delta=1e-5))
    at least epsilon 1.633 at delta 1e-05 (0.95 confidence)
    >>> print(audit_games(inside, outside, delta=1e-5, analysis="gaussian"))
    at least epsilon 3.824 at delta 1e-05, if the noise is Gaussian (0.95 confidence)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri
from scipy.stats import mannwhitneyu

from sfumato.audit.findings import GAUSSIAN_NOISE, Finding, require_gaussian, stated_delta
from sfumato.audit.intervals import (
    Rates,
    epsilon_from_counts,
    gaussian_epsilon_from_counts,
    mu_from_counts,
)
from sfumato.audit.one_run import ALL_EQUAL, WRONG_WAY, Analysis, as_scores, refuse_nan
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
    analysis: Analysis | str = Analysis.GUESSES,
) -> Finding:
    """A lower bound from scores of independent games, those with the canary and those without.

    The games are of two data sets that are neighbours in the claim's relation: it is for whoever
    plays them to see that what is there without the canary is what the claim speaks of.

    Args:
        inside: scores of games in which the canary was there, higher where that is more likely.
        outside: scores of the others.
        delta: at which; by default the claim's.
        claim: what one game promises.
        confidence: of the whole procedure.
        threshold: above which the auditor says "in", a number fixed in advance. By default half of
            the games choose it, and only the other half counts.
        analysis: GUESSES bounds epsilon at ``delta`` whatever the mechanism; GAUSSIAN bounds mu and
            takes noise to be Gaussian, which the finding says. It refutes claims of Gaussian noise,
            gives epsilon for curves that are Gaussian, and needs a ``delta`` above 0.

    Raises:
        ValueError: for a GAUSSIAN analysis at delta 0, which no claim of Gaussian noise is at.
    """
    ins, outs = _scores("inside", inside), _scores("outside", outside)
    how = validation.choice("analysis", analysis, Analysis)
    at = stated_delta(delta, claim)
    if how is Analysis.GAUSSIAN:
        require_gaussian(at, "take analysis='guesses'")
    if threshold is not None:
        threshold = validation.finite("threshold", threshold)
    else:
        threshold, ins, outs = split_threshold(ins, outs, how)
    hits: Rates = (int((ins > threshold).sum()), len(ins))
    alarms: Rates = (int((outs > threshold).sum()), len(outs))
    bound = gaussian_epsilon_from_counts if how is Analysis.GAUSSIAN else epsilon_from_counts
    facts = {
        "hits": list(hits), "false_alarms": list(alarms), "threshold": float(threshold),
        "mu_at_least": mu_from_counts(hits, alarms, confidence), "analysis": how.value,
    }  # fmt: skip
    return Finding(
        bound(hits, alarms, at, confidence), at, confidence, f"repeated games, {how.value}", claim,
        facts,
        assumption=GAUSSIAN_NOISE if how is Analysis.GAUSSIAN else "",
        most=bound((hits[1], hits[1]), (0, alarms[1]), at, confidence),
        remark=_remark(ins, outs, confidence),
    )  # fmt: skip


def _remark(inside: NDArray[np.float64], outside: NDArray[np.float64], confidence: float) -> str:
    if max(inside.max(), outside.max()) == min(inside.min(), outside.min()):
        return ALL_EQUAL
    wrong = mannwhitneyu(outside, inside, alternative="greater").pvalue
    return WRONG_WAY if wrong < 1 - confidence else ""


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
        delta: at which, above 0; by default the claim's.
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
        analysis=Analysis.GAUSSIAN,
    )  # fmt: skip
    mu = each.facts["mu_at_least"]
    epsilon = account(dp_sgd(1 / mu, sample_rate, steps), at).epsilon if mu > 0 else 0.0
    facts = {
        **each.facts, "steps": steps, "sample_rate": sample_rate,
        "multiplier_at_most": 1 / mu if mu > 0 else None,
    }  # fmt: skip
    return Finding(
        epsilon, at, confidence, "two runs, step by step", claim, facts,
        assumption="steps are independent and their noise is Gaussian", remark=each.remark,
    )  # fmt: skip


def split_threshold(
    inside: NDArray[np.float64],
    outside: NDArray[np.float64],
    analysis: Analysis = Analysis.GAUSSIAN,
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """A threshold from every second game, and the games that did not choose it.

    The one that tells apart best: where g(TPR) - g(FPR), less five standard errors of it, is
    largest, with g the normal quantile or, for GUESSES, the logarithm. (With fewer, luck at rare
    rates would often be taken for power.)
    """
    learn_in, learn_out = np.sort(inside[::2]), np.sort(outside[::2])
    tried = np.quantile(np.concatenate([learn_in, learn_out]), np.linspace(0.02, 0.98, 97))
    rates = [
        (len(side) - np.searchsorted(side, tried, side="right") + 0.5) / (len(side) + 1)
        for side in (learn_in, learn_out)
    ]
    power, alarms = (np.clip(rate, 1e-12, 1 - 1e-12) for rate in rates)
    if analysis is Analysis.GAUSSIAN:
        shown, slopes = ndtri(power) - ndtri(alarms), (_slope(power), _slope(alarms))
    else:
        shown, slopes = np.log(power) - np.log(alarms), (1 / power, 1 / alarms)
    error = sum(
        slope**2 * rate * (1 - rate) / len(side)
        for slope, rate, side in zip(slopes, (power, alarms), (learn_in, learn_out), strict=True)
    )
    best = int(np.argmax(shown - 5 * np.sqrt(error)))
    return float(tried[best]), inside[1::2], outside[1::2]


def _slope(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of Phi^-1."""
    return np.sqrt(2 * np.pi) * np.exp(ndtri(rate) ** 2 / 2)


def _scores(name: str, values: ArrayLike) -> NDArray[np.float64]:
    found = as_scores(name, values)
    if found.ndim != 1 or len(found) < 4:
        validation.fail(name, "one score for each of at least four games", found.shape)
    refuse_nan(name, found)
    return found
