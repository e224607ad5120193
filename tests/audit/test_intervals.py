"""What counts say of epsilon and mu."""

import math

import pytest
from scipy import stats

from sfumato.audit.intervals import (
    epsilon_from_counts,
    epsilon_from_rates,
    gaussian_epsilon_from_counts,
    mu_from_counts,
)
from sfumato.core.gaussian_profile import gaussian_epsilon


def test_epsilon_of_an_event():
    assert epsilon_from_rates(0.5, 0.1, 0.0) == pytest.approx(math.log(5))
    assert epsilon_from_rates(0.5, 0.1, 0.1) == pytest.approx(math.log(4))
    assert epsilon_from_rates(0.1, 0.5, 0.0) == 0
    assert epsilon_from_rates(1e-6, 0.0, 1e-5) == 0
    assert epsilon_from_rates(0.5, 0.0, 1e-5) == math.inf


@pytest.mark.parametrize(("inside", "outside"), [((90, 100), (10, 100)), ((40, 50), (0, 30))])
def test_each_of_two_counts_has_half_of_the_error_probability(inside, outside):
    """Both limits hold at once with the confidence, whatever the two probabilities."""
    confidence = 0.9
    low = stats.beta.ppf(0.05, inside[0], inside[1] - inside[0] + 1)
    high = stats.beta.ppf(0.95, outside[0] + 1, outside[1] - outside[0])
    found = epsilon_from_counts(inside, outside, 0.01, confidence)
    assert found == pytest.approx(math.log((low - 0.01) / high), rel=1e-9)
    mu = stats.norm.ppf(low) - stats.norm.ppf(high)
    assert mu_from_counts(inside, outside, confidence) == pytest.approx(mu, rel=1e-9)


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
