"""Limits for a rate from counts, with a confidence that holds for every sample size.

Clopper and Pearson's limits are exact: if k of n independent trials succeed, the true rate is above
``lower_rate(k, n, alpha)`` with probability at least 1 - alpha, and the same for ``upper_rate``
(C. J. Clopper and E. S. Pearson, Biometrika 26 (1934)).

    >>> round(lower_rate(9, 10, 0.05), 4), round(upper_rate(0, 100, 0.05), 4)
    (0.6058, 0.0295)
"""

from __future__ import annotations

from sfumato.core import validation

__all__ = ["lower_rate", "rate_interval", "upper_rate"]


def lower_rate(successes: int, trials: int, alpha: float) -> float:
    """The rate is above this but for probability ``alpha``."""
    from scipy.special import betaincinv

    _counts(successes, trials, alpha)
    if successes == 0:
        return 0.0
    return float(betaincinv(successes, trials - successes + 1, alpha))


def upper_rate(successes: int, trials: int, alpha: float) -> float:
    """The rate is below this but for probability ``alpha``."""
    from scipy.special import betaincinv

    _counts(successes, trials, alpha)
    if successes == trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, 1 - alpha))


def rate_interval(successes: int, trials: int, confidence: float) -> tuple[float, float]:
    """The rate lies between these two with at least this confidence."""
    alpha = (1 - validation.open_probability("confidence", confidence)) / 2
    return lower_rate(successes, trials, alpha), upper_rate(successes, trials, alpha)


def _counts(successes: int, trials: int, alpha: float) -> None:
    validation.count("trials", trials)
    if not 0 <= successes <= trials:
        validation.fail("successes", f"between 0 and trials = {trials}", successes)
    validation.open_probability("alpha", alpha)
