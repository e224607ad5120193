"""Randomised response among very many categories: a small RDP is not lost in rounding."""

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import DiscreteLaplaceEvent, RandomizedResponseEvent, repeat
from sfumato.core.neighbours import Neighbours


def exact(epsilon, categories, order):
    with mpmath.workdps(60):
        e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
        excess = (1 - mpmath.exp(-(a - 1) * e)) * (mpmath.exp(a * e) - 1)
        return mpmath.log1p(excess / (mpmath.exp(e) + categories - 1)) / (a - 1)


@given(
    epsilon=st.floats(1e-8, 300),
    categories=st.integers(2, 10**16),
    order=st.floats(1.01, 1e4),
)
def test_the_rdp_is_never_understated_and_hardly_overstated(epsilon, categories, order):
    event = RandomizedResponseEvent(epsilon, categories)
    (value,) = rdp_vector(event, Neighbours.REPLACE_ONE, (order,)).values
    truth = exact(epsilon, categories, order)
    assert truth <= value <= truth * (1 + 1e-12)


def test_a_case_that_was_understated_sevenfold():
    event = RandomizedResponseEvent(1.01534, 731_532_125_711_664)
    vector = rdp_vector(repeat(event, 10**15), Neighbours.REPLACE_ONE, (1.5, 2.0, 8.0))
    for order, value in zip(vector.orders, vector.values, strict=True):
        truth = 10**15 * exact(1.01534, 731_532_125_711_664, order)
        assert float(value) == pytest.approx(float(truth), rel=1e-10)


@given(scale=st.floats(0.05, 1e6), order=st.floats(1.05, 200))
def test_discrete_laplace_noise_is_never_understated(scale, order):
    (value,) = rdp_vector(DiscreteLaplaceEvent(scale), Neighbours.ADD_REMOVE, (order,)).values
    with mpmath.workdps(60):
        t, a = 1 / mpmath.mpf(scale), mpmath.mpf(order)
        tails = (mpmath.exp(t * (a - 1)) + mpmath.exp(-t * a)) / (1 - mpmath.exp(-t))
        truth = mpmath.log(tails * mpmath.tanh(t / 2)) / (a - 1)
    assert value >= truth
