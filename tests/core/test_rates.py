"""Clopper-Pearson limits: exact against the binomial law, and covering."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.core.rates import lower_rate, rate_interval, upper_rate


@given(st.integers(1, 400), st.data(), st.sampled_from([0.05, 0.005, 1e-6]))
def test_limits_solve_the_binomial_tails(trials, data, alpha):
    successes = data.draw(st.integers(0, trials))
    low, high = lower_rate(successes, trials, alpha), upper_rate(successes, trials, alpha)
    assert 0 <= low <= successes / trials <= high <= 1
    if successes > 0:
        assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(alpha, rel=1e-6)
    if successes < trials:
        assert stats.binom.cdf(successes, trials, high) == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.5])
def test_limits_cover_exactly(rate):
    """Summed over the binomial law: the true rate is missed at most at the nominal rate."""
    trials, alpha = 120, 0.05
    law = stats.binom.pmf(np.arange(trials + 1), trials, rate)
    missed = sum(p for k, p in enumerate(law) if lower_rate(k, trials, alpha) > rate)
    assert 0 < missed <= alpha


def test_an_interval_shares_its_error():
    limits = lower_rate(3, 10, 0.05), upper_rate(3, 10, 0.05)
    assert rate_interval(3, 10, 0.9) == pytest.approx(limits)


@pytest.mark.parametrize(
    ("counts", "message"),
    [((5, 4, 0.1), "between 0 and trials = 4"), ((0, 0, 0.1), "trials"), ((1, 2, 1.5), "alpha")],
)
def test_mistakes(counts, message):
    with pytest.raises(ValueError, match=message):
        lower_rate(*counts)
