"""Clopper-Pearson limits and what follows: exact against the binomial law, and covering."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sfumato.audit.intervals import (
    epsilon_from_counts,
    epsilon_from_rates,
    gaussian_epsilon_from_counts,
    lower_rate,
    mu_from_counts,
    upper_rate,
)
from sfumato.core.gaussian_profile import gaussian_epsilon


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


def test_epsilon_of_an_event():
    assert epsilon_from_rates(0.5, 0.1, 0.0) == pytest.approx(math.log(5))
    assert epsilon_from_rates(0.5, 0.1, 0.1) == pytest.approx(math.log(4))
    assert epsilon_from_rates(0.1, 0.5, 0.0) == 0
    assert epsilon_from_rates(1e-6, 0.0, 1e-5) == 0
    assert epsilon_from_rates(0.5, 0.0, 1e-5) == math.inf


def test_counts_say_less_than_rates_and_more_with_more_trials():
    bounds = [
        epsilon_from_counts((n // 2, n), (n // 10, n), 0.0, 0.99) for n in (100, 10**4, 10**7)
    ]
    assert bounds == sorted(bounds)
    assert bounds[-1] < math.log(5)
    assert bounds[-1] == pytest.approx(math.log(5), abs=0.01)


def test_mu_is_refuted_only_where_it_is_larger():
    n = 10**7
    power, alarms = stats.norm.sf(0.3 - 1.0), stats.norm.sf(0.3)
    counts = (round(n * power), n), (round(n * alarms), n)
    mu = mu_from_counts(*counts, 0.99)
    assert mu < 1
    assert mu == pytest.approx(1, abs=5e-3)
    epsilon = gaussian_epsilon_from_counts(*counts, 1e-5, 0.99)
    assert epsilon == pytest.approx(gaussian_epsilon(1.0, 1e-5), abs=0.03)
    assert mu_from_counts((50, 100), (50, 100), 0.9) == 0
    assert gaussian_epsilon_from_counts((50, 100), (60, 100), 1e-5, 0.9) == 0


@pytest.mark.parametrize(
    ("counts", "message"),
    [((5, 4, 0.1), "between 0 and trials = 4"), ((0, 0, 0.1), "trials"), ((1, 2, 1.5), "alpha")],
)
def test_mistakes(counts, message):
    with pytest.raises(ValueError, match=message):
        lower_rate(*counts)
