"""Differences of success: limits that cover as often as they say."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from sfumato.attacks.attribute_success import AttributeResult, Successes, difference_interval
from sfumato.core.rates import lower_rate, upper_rate


@pytest.mark.parametrize(("one", "two"), [(0.6, 0.5), (0.95, 0.9), (0.5, 0.05)])
def test_limits_of_a_difference_cover_the_truth(one, two):
    random, n, m = np.random.default_rng(1), 120, 80
    rounds = 3000
    a, b = random.binomial(n, one, rounds), random.binomial(m, two, rounds)
    limits = np.array(
        [difference_interval(int(x), n, int(y), m, 0.9) for x, y in zip(a, b, strict=True)]
    )
    covered = ((limits[:, 0] <= one - two) & (one - two <= limits[:, 1])).mean()
    assert 0.9 <= covered <= 0.945  # Clopper and Pearson's limits are a little wide


@given(
    n=st.integers(1, 200),
    m=st.integers(1, 200),
    x=st.floats(0, 1),
    y=st.floats(0, 1),
)
def test_limits_enclose_the_difference_and_turn_with_it(n, m, x, y):
    a, b = round(x * n), round(y * m)
    low, high = difference_interval(a, n, b, m)
    assert -1 <= low <= a / n - b / m <= high <= 1
    assert difference_interval(b, m, a, n) == pytest.approx((-high, -low))


def test_limits_by_hand():
    """56 of 70 against 48 of 80, the limits of each rate from the beta law."""
    low1, high1 = beta.ppf(0.025, 56, 15), beta.ppf(0.975, 57, 14)
    low2, high2 = beta.ppf(0.025, 48, 33), beta.ppf(0.975, 49, 32)
    lower = 0.2 - math.sqrt((0.8 - low1) ** 2 + (high2 - 0.6) ** 2)
    upper = 0.2 + math.sqrt((high1 - 0.8) ** 2 + (0.6 - low2) ** 2)
    assert difference_interval(56, 70, 48, 80) == pytest.approx((lower, upper))
    top = upper_rate(0, 50, 0.025)
    assert difference_interval(0, 50, 0, 50) == pytest.approx((-top, top))


def test_the_gain_counts_people_for_whom_one_guess_alone_is_right():
    found = Successes(people=100, right=60, imputed=50, both=45)
    assert found.gain == pytest.approx(0.1)
    low, high = found.gain_interval
    assert low == pytest.approx(lower_rate(15, 100, 0.0125) - upper_rate(5, 100, 0.0125))
    assert high == pytest.approx(upper_rate(15, 100, 0.0125) - lower_rate(5, 100, 0.0125))


def test_limits_of_a_gain_cover_the_truth():
    """Shares of people: both right 0.3, the model alone 0.25, the prior alone 0.1, none 0.35."""
    random = np.random.default_rng(2)
    drawn = random.multinomial(150, [0.3, 0.25, 0.1, 0.35], 2000)
    covered = []
    for both, model, prior, _ in drawn.tolist():
        low, high = Successes(150, both + model, both + prior, both, confidence=0.9).gain_interval
        covered.append(low <= 0.15 <= high)
    assert np.mean(covered) >= 0.9


def test_the_result_says_all_three_and_that_it_is_for_the_curator():
    inside = Successes(people=200, right=150, imputed=100, both=90)
    outside = Successes(people=100, right=55, imputed=50, both=45)
    result = AttributeResult(inside, outside, queries=900)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["channel"] == data["members"]["channel"] == "curator"
    assert data["advantage"] == pytest.approx(0.2)
    assert (data["members"]["success"], data["members"]["imputation"]) == (0.75, 0.5)
    assert data["members"]["gain"] == pytest.approx(0.25)
    assert data["members"]["mean_error"] is None
    assert data["advantage_interval"] == list(difference_interval(150, 200, 55, 100))
    assert data["members"]["gain_interval"] == list(inside.gain_interval)
    assert data["confidence"] == data["members"]["confidence"] == 0.95
    surer = AttributeResult(inside, outside, queries=900, confidence=0.999)
    assert surer.advantage_interval == difference_interval(150, 200, 55, 100, 0.999)
    assert str(surer).endswith("99.9%)")
    for bad in (
        lambda: Successes(2, 1, 1, 1, confidence=1),
        lambda: AttributeResult(inside, outside, 1, 0),
    ):
        with pytest.raises(ValueError, match="confidence must be"):
            bad()
    assert "75.0% of 200 members (50.0% without the model)" in str(result)
