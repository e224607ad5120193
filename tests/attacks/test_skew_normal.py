"""The skew normal law: recovered from samples, and right in its far tail."""

import json
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr
from scipy.stats import skewnorm

from sfumato.attacks.skew_normal import SkewNormal


def law(location=0.0, scale=1.0, shape=0.0):
    return SkewNormal(location, scale, shape, 0.0, 1.0)


@given(z=st.floats(-300, 5))
def test_without_skew_it_is_the_normal_law_in_any_tail(z):
    assert law().log2_below(z) == pytest.approx(log_ndtr(z) / math.log(2), rel=1e-7)


@pytest.mark.parametrize("shape", [-4.0, -0.7, 0.5, 3.0, 25.0])
@pytest.mark.parametrize("z", [-12.0, -3.0, 0.02, 1.5])
def test_shares_below_against_integration_with_many_digits(shape, z):
    def density(t):
        return 2 * mpmath.npdf(t) * mpmath.ncdf(shape * t)

    with mpmath.workdps(20):
        steps = [z - 40, z - 20, z - 10, z - 5, z - 2, z - 1, z - 0.3, z - 0.1, z - 0.03, z]
        exact = mpmath.log(mpmath.quad(density, steps), 2)
    assert law(shape=shape).log2_below(z) == pytest.approx(float(exact), rel=1e-6)
    assert law(5.0, 2.0, shape).log2_below(5 + 2 * z) == pytest.approx(float(exact), rel=1e-6)


@pytest.mark.parametrize("shape", [-5.0, 2.0, 8.0])
def test_parameters_are_recovered(shape):
    drawn = skewnorm.rvs(shape, 40.0, 3.0, 10_000, random_state=np.random.default_rng(1))
    found = SkewNormal.fit(drawn)
    assert found.location == pytest.approx(40, abs=0.2)
    assert found.scale == pytest.approx(3, rel=0.05)
    assert found.shape == pytest.approx(shape, rel=0.15)
    assert found.distance < 0.015
    assert found.p_value > 1e-3


def test_the_test_of_fit_is_a_fair_one():
    """Of samples of the law itself, p is below 0.2 about as often as it says, and not more."""
    random = np.random.default_rng(2)
    p = [
        SkewNormal.fit(skewnorm.rvs(2.0, size=400, random_state=random)).p_value for _ in range(100)
    ]
    # The half that was fitted adds its own error, so that p is small somewhat more often.
    assert 0.05 <= np.mean(np.array(p) < 0.2) <= 0.5
    assert np.mean(np.array(p) < 1e-3) <= 0.05


def test_other_laws_are_found_out():
    random = np.random.default_rng(3)
    two_heaps = random.normal(0, 1, 2000) + 6 * (random.random(2000) < 0.5)
    for sample in (two_heaps, random.standard_cauchy(2000), random.integers(0, 4, 2000)):
        assert SkewNormal.fit(sample).p_value < 1e-4


def test_text_and_record():
    found = law(1.0, 2.0, 3.0)
    assert json.loads(json.dumps(found.to_dict()))["shape"] == 3.0
    assert "location 1, scale 2, shape 3" in str(found)


def test_bad_samples_are_refused():
    for sample in (np.ones(100), np.arange(10), np.append(np.arange(30.0), np.inf)):
        with pytest.raises(ValueError, match="sample must be"):
            SkewNormal.fit(sample)
    with pytest.raises(ValueError, match="value must be"):
        law().log2_below(math.inf)
