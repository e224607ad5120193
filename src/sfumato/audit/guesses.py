"""One training run, many canaries: how many guesses may be right by chance?

Each of m canaries is included or not by a fair coin. The auditor sees the result, says of r of them
"in" or "out", and v guesses are right. If training is private, v cannot be too large.

*Pure and approximate DP* (Steinke, Nasr and Jagielski, arXiv:2305.08846, theorem 5.2). For an
(epsilon, delta)-DP run, with q = e^epsilon / (1 + e^epsilon) and f(v) = Pr[Binomial(r, q) >= v],

    Pr[at least v right] <= f(v) + 2 m delta max over 1 <= i <= v of (f(v - i) - f(v)) / i.

*f-DP* (Mahloujifar, Melis and Chaudhuri, arXiv:2410.22235). The same question for a whole trade-off
curve f. If at least v of r guesses were right with probability tau, then r_v = tau v / m and
h_v = tau (r - v) / m, and going down from i = v - 1 to 0,

    h_i = max(h_{i+1}, fbar^-1(r_{i+1})),    r_i = r_{i+1} + i / (r - i) (h_i - h_{i+1}),

with fbar(x) = 1 - f(x), would have to stay below r_0 + h_0 < r / m; where they do not, tau was too
large for f. It sees more than the first bound, because a curve says more than one pair of numbers,
but what it bounds is the parameter of an assumed *family* of curves (Gaussian here).

r and the rule that makes the guesses must be fixed before the coins are looked at. Trying several
and keeping the best is corrected for by :mod:`~sfumato.audit.one_run`, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, ndtr, ndtri

from sfumato.core import validation
from sfumato.core.gaussian_profile import gaussian_epsilon

__all__ = ["epsilon_from_guesses", "gaussian_from_guesses", "guessing_p_value", "mu_from_guesses"]

_LARGEST = 60.0  # epsilons and mus beyond it are not told apart
_STEPS = 60  # of bisection
_DOWN = 1 - 1e-9  # an accountant rounds up, a lower bound must not


def _at_least(successes: NDArray[np.int64], trials: int, rate: float) -> NDArray[np.float64]:
    """Pr[Binomial(trials, rate) >= successes], elementwise."""
    inner = np.clip(successes, 1, trials)
    found = betainc(inner, trials - inner + 1.0, rate)
    return np.where(successes <= 0, 1.0, np.where(successes > trials, 0.0, found))


def guessing_p_value(
    correct: int, guesses: int, canaries: int, epsilon: float, delta: float
) -> float:
    """The most likely that so many guesses are right under (epsilon, delta)-DP.

    >>> round(guessing_p_value(60, 60, 1000, 4.0, 0.0), 4)
    0.3366
    """
    _checked(correct, guesses, canaries)
    rate = 1 / (1 + math.exp(-validation.non_negative("epsilon", epsilon)))
    chance = float(_at_least(np.array(correct), guesses, rate))
    if delta == 0 or correct == 0:
        return chance
    steps = np.arange(1, correct + 1)
    slope = float(np.max((_at_least(correct - steps, guesses, rate) - chance) / steps))
    return min(1.0, chance + 2 * canaries * validation.delta("delta", delta) * slope)


def epsilon_from_guesses(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """The largest epsilon that so many right guesses rule out, or 0.

    >>> round(epsilon_from_guesses(700, 1000, 1000, 0.0, 0.95), 3)
    0.732
    """
    alpha = 1 - validation.open_probability("confidence", confidence)
    return _largest(
        lambda epsilon: guessing_p_value(correct, guesses, canaries, epsilon, delta) < alpha
    )


def mu_from_guesses(correct: int, guesses: int, canaries: int, confidence: float) -> float:
    """The largest mu such that so many right guesses rule out mu-Gaussian DP, or 0."""
    _checked(correct, guesses, canaries)
    alpha = 1 - validation.open_probability("confidence", confidence)
    return _largest(lambda mu: _too_good(correct, guesses, canaries, alpha, mu))


def gaussian_from_guesses(
    correct: int, guesses: int, canaries: int, delta: float, confidence: float
) -> float:
    """Epsilon at ``delta`` of :func:`mu_from_guesses`: a bound if the curve is Gaussian."""
    mu = mu_from_guesses(correct, guesses, canaries, confidence)
    return _DOWN * gaussian_epsilon(1 / mu, delta) if mu > 0 else 0.0


def _too_good(correct: int, guesses: int, canaries: int, alpha: float, mu: float) -> bool:
    """Whether mu-GDP makes ``correct`` of ``guesses`` less likely than ``alpha``."""
    right = alpha * correct / canaries
    wrong = alpha * (guesses - correct) / canaries
    for i in range(correct - 1, -1, -1):
        more = max(wrong, _inverse(right, mu))
        right += i / (guesses - i) * (more - wrong)
        wrong = more
    return right + wrong >= guesses / canaries


def _inverse(x: float, mu: float) -> float:
    """The least false alarm rate at which Gaussian noise lets a test have power x."""
    return float(ndtr(ndtri(x) - mu)) if 0 < x < 1 else float(x >= 1)


def _largest(ruled_out: Callable[[float], bool]) -> float:
    """The largest parameter that is ruled out, by bisection from below, or 0."""
    low, high = 0.0, _LARGEST
    if not ruled_out(low):
        return 0.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if ruled_out(middle) else (low, middle)
        if high - low < 1e-6:
            break
    return low


def _checked(correct: int, guesses: int, canaries: int) -> None:
    validation.count("canaries", canaries)
    if not 0 < guesses <= canaries:
        validation.fail("guesses", f"between 1 and canaries = {canaries}", guesses)
    if not 0 <= correct <= guesses:
        validation.fail("correct", f"between 0 and guesses = {guesses}", correct)
