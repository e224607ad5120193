import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from sfumato.mechanisms.sampling import precise
from sfumato.mechanisms.sampling.lazy import RELATIVE

precisions = st.integers(min_value=1, max_value=300)
non_negative = st.fractions(min_value=0, max_value=400, max_denominator=10**12)


def contains(bounds: tuple[int, int], value: object, prec: int, width: int = 4) -> bool:
    low, high = bounds
    scaled = value * mpmath.mpf(2) ** prec  # type: ignore[operator]
    return low <= scaled <= high and high - low <= width


@settings(max_examples=300, deadline=None)
@given(x=non_negative, prec=precisions)
def test_exp_bounds_hold(x, prec):
    with mpmath.workprec(1500):
        value = mpmath.exp(-mpmath.mpf(x.numerator) / x.denominator)
        assert contains(precise.exp_bounds(x, prec), value, prec)


@settings(max_examples=300, deadline=None)
@given(
    x=st.fractions(min_value=0, max_value=30, max_denominator=10**12),
    prec=precisions,
)
def test_normal_tail_bounds_hold(x, prec):
    with mpmath.workprec(2500):
        z = mpmath.mpf(x.numerator) / x.denominator
        value = mpmath.erfc(z / mpmath.sqrt(2)) / 2
        assert contains(precise.normal_tail_bounds(x, prec), value, prec)


@settings(max_examples=300, deadline=None)
@given(x=st.fractions(min_value=Fraction(1, 10**40), max_value=10**6), prec=precisions)
def test_log_bounds_hold(x, prec):
    low, high = precise.log_bounds(x, prec)
    with mpmath.workprec(1500):
        value = mpmath.log(mpmath.mpf(x.numerator) / x.denominator)
        low_, high_ = (mpmath.mpf(b.numerator) / b.denominator for b in (low, high))
        assert low_ <= value <= high_
    assert high - low <= Fraction(4, 1 << prec)


@given(x=st.fractions(min_value=0, max_value=1), prec=precisions)
def test_rational_bounds_are_floor_and_ceiling(x, prec):
    low, high = precise.rational_bounds(x, prec)
    assert low == math.floor(x * 2**prec)
    assert high == math.ceil(x * 2**prec)


def test_certain_events_are_certain():
    assert precise.exp_bounds(Fraction(0), 64) == (1 << 64, 1 << 64)
    assert precise.exp_bounds(Fraction(10) ** 300, 64) == (0, 1)
    assert precise.normal_tail_bounds(Fraction(10) ** 6, 64) == (0, 1)
    assert precise.log_bounds(Fraction(1), 64) == (0, 0)


def tail_points(count: int) -> np.ndarray:
    """Probabilities in (0, 1/2], evenly spread in their logarithm and near both ends."""
    spread = np.exp2(-np.linspace(1, 64, count))
    return np.concatenate([spread, 0.5 - spread[spread < 0.25], np.linspace(0.001, 0.499, count)])


@pytest.mark.parametrize("name", ["log", "log1p", "exp"])
def test_numpy_is_as_precise_as_the_filters_assume(name):
    q = tail_points(1000)
    function, reference = getattr(np, name), getattr(mpmath, name)
    points = {"log": q, "log1p": -q, "exp": np.concatenate([-q, np.log(q) * 16])}[name]
    with mpmath.workprec(200):
        for x, y in zip(points.tolist(), function(points).tolist(), strict=True):
            exact = reference(mpmath.mpf(x))
            assert abs(y - exact) <= RELATIVE / 1000 * abs(exact)


def test_ndtri_is_as_precise_as_the_filters_assume():
    """Relative to z, and to 2^-45 near z = 0; in fact a thousand times better than assumed."""
    q = tail_points(1000)
    with mpmath.workprec(200):
        for tail, z in zip(q.tolist(), (-ndtri(q)).tolist(), strict=True):
            density = mpmath.npdf(z)
            off = (mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2 - mpmath.mpf(tail)) / density
            assert abs(off) <= RELATIVE / 500 * abs(z) + mpmath.mpf(2) ** -52
