from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from sfumato.learning.pate.privacy.confident import (
    check_independent,
    check_rdp,
    checked_independent,
    checked_rdp,
    compared,
    log_passing,
)
from sfumato.learning.pate.privacy.gaussian import gaussian_rdp

CLASSIC = np.concatenate([np.arange(2, 100, 0.5), np.arange(100, 500, 1.0)])


def classic(values: np.ndarray, delta: float) -> tuple[float, float]:
    """Mironov's first conversion, at the paper's orders."""
    every = values + math.log(1 / delta) / (CLASSIC - 1)
    return float(every.min()), float(CLASSIC[every.argmin()])


def exact_check(top: float, moved: float, threshold: float, sigma: float, order: float) -> float:
    terms = [
        order * special.log_ndtr(s * (top - threshold) / sigma)
        + (1 - order) * special.log_ndtr(s * (moved - threshold) / sigma)
        for s in (1, -1)
    ]
    return float(special.logsumexp(terms)) / (order - 1)


def test_chance_of_an_answer() -> None:
    passes, fails = log_passing(180, 200, 150)
    assert math.exp(passes) == pytest.approx(0.446965, abs=5e-7)
    assert math.exp(passes) + math.exp(fails) == pytest.approx(1)


def test_published_runs_at_their_data_independent_cost() -> None:
    mnist = classic(checked_independent(640, 286, 150, 40, CLASSIC), 1e-5)
    assert (round(mnist[0], 4), mnist[1]) == (3.1753, 8.5)
    svhn = classic(checked_independent(8500, 3098, 200, 40, CLASSIC), 1e-6)
    assert (round(svhn[0], 3), svhn[1]) == (12.675, 3.5)


@given(
    st.integers(0, 60),
    st.floats(-20, 80),
    st.sampled_from([1.0, 3.0, 10.0]),
    st.sampled_from([1.5, 4.0, 12.0]),
)
def test_check_cost_is_above_the_true_divergence(top, threshold, sigma, order) -> None:
    bound = check_rdp([top], threshold, sigma, [order], grid=0.0)[0, 0]
    assert bound <= order / (2 * sigma**2) * (1 + 1e-12)
    for moved in (top - 1, top + 1, top + 0.3):
        assert exact_check(top, moved, threshold, sigma, order) <= bound * (1 + 1e-9) + 1e-12


def test_check_cost_at_the_threshold_is_tight_for_the_numbers_themselves() -> None:
    """Sensitivity 1, not sqrt 2: the noisy number's divergence is exactly this."""
    order, sigma = 4.0, 1.5
    x = np.linspace(-30, 30, 60_001)
    p = -((x / sigma) ** 2) / 2 - math.log(sigma * math.sqrt(2 * math.pi))
    q = -(((x - 1) / sigma) ** 2) / 2 - math.log(sigma * math.sqrt(2 * math.pi))
    true = math.log(np.trapezoid(np.exp(order * p + (1 - order) * q), x)) / (order - 1)
    assert check_independent(sigma, [order])[0] == pytest.approx(true, rel=1e-9)


def test_a_sure_check_costs_less() -> None:
    near = check_rdp([200], 200, 150, [10])[0, 0]
    assert near == check_independent(150, [10])[0]
    sure = check_rdp([5000], 200, 150, [10])[0, 0]
    assert sure < 1e-6 * near


@given(st.lists(st.integers(0, 20), min_size=3, max_size=3), st.integers(0, 2), st.integers(0, 2))
def test_compared_number_moves_by_at_most_1(votes, source, target) -> None:
    opinions = np.array([[0.7, 0.2, 0.1]])
    moved = list(votes)
    if moved[source] > 0:
        moved[source] -= 1
        moved[target] += 1
    for student in (None, opinions):
        teachers = None if student is None else 30
        before, after = compared(votes, student, teachers), compared(moved, student, teachers)
        assert abs(before[0] - after[0]) <= 1 + 1e-12


def test_interactive_compares_with_the_student() -> None:
    assert compared([[80, 15, 5]], [[0.5, 0.3, 0.2]], 100)[0] == pytest.approx(30)
    assert compared([[80, 15, 5]])[0] == 80
    with pytest.raises(ValueError, match="opinions must be"):
        compared([[80, 15, 5]], [[0.5, 0.5]], 100)


def test_total_counts_what_was_answered(exact) -> None:
    votes, orders = [exact.spread, exact.agreed, exact.spread], [2.0, 10.0]
    parameters = {"threshold": 200, "sigma_check": 150, "sigma": 40, "orders": orders}
    tops = [180, 240, 180]
    checks = check_rdp(tops, 200, 150, orders).sum(axis=0)
    total = checked_rdp(votes, [True, True, False], **parameters)
    assert total == pytest.approx(checks + gaussian_rdp(votes[:2], 40, orders).sum(axis=0))
    assert checked_rdp(votes, [False] * 3, **parameters) == pytest.approx(checks)
    assert (total <= checked_independent(3, 2, 150, 40, orders)).all()
    with pytest.raises(ValueError, match="answered must be"):
        checked_rdp(votes, [True], **parameters)
