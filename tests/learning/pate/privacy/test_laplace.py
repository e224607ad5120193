from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting.rdp import rdp_vector
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.core.neighbours import Neighbours
from sfumato.learning.pate.privacy.laplace import (
    laplace_bound,
    laplace_independent,
    laplace_log_moments,
    laplace_log_q,
    laplace_rdp,
    laplace_winning,
    pure_log_moments,
)

GAMMA = 0.05
MOMENTS = np.arange(1, 33)
SMALL = st.lists(st.integers(0, 40), min_size=2, max_size=4).filter(lambda votes: sum(votes) > 0)


def classic(moments: np.ndarray, delta: float) -> tuple[float, int]:
    """The first paper's conversion, and at which l."""
    every = (moments + math.log(1 / delta)) / np.arange(1, len(moments) + 1)
    return float(every.min()), int(every.argmin()) + 1


def test_data_independent_epsilon_of_the_first_paper_with_the_right_factor() -> None:
    each = pure_log_moments(GAMMA, MOMENTS)
    epsilon, at = classic(100 * each, 1e-5)
    assert (round(epsilon, 4), at) == (5.3026, 5)
    assert round(classic(1000 * each, 1e-5)[0], 3) == 20.756
    # Strong composition in the k eps^2 form, for comparison: eps = 2 gamma.
    k, eps = 100, 2 * GAMMA
    assert eps * math.sqrt(2 * k * math.log(1e5)) + k * eps**2 == pytest.approx(5.7985, abs=5e-5)


def test_q_and_moments_of_known_votes(exact) -> None:
    assert math.exp(laplace_log_q(exact.spread, GAMMA)[0]) == pytest.approx(0.00491733, abs=5e-9)
    assert math.exp(laplace_log_q(exact.agreed, GAMMA)[0]) == pytest.approx(2.04772e-4, abs=5e-10)
    moments = laplace_log_moments(exact.spread, GAMMA, np.arange(1, 9))[0]
    assert moments[7] == pytest.approx(0.010122, abs=5e-7)
    epsilon, at = classic(100 * moments, 1e-5)
    assert (round(epsilon, 4), at) == (1.5656, 8)


def test_moments_beyond_8_break_the_floor(exact) -> None:
    long = laplace_log_moments(exact.agreed, GAMMA, MOMENTS)[0]
    assert classic(long[:8], 1e-5)[0] >= math.log(1e5) / 8
    assert classic(long, 1e-5)[0] < math.log(1e5) / 8


def test_independent_curve_is_the_least_of_its_bounds() -> None:
    orders = np.array([1.5, 2, 4, 8, 16, 64])
    found = laplace_independent(GAMMA, orders)
    pure = rdp_vector(EpsilonDeltaEvent(2 * GAMMA), Neighbours.ADD_REMOVE, tuple(orders)).values
    assert (found <= pure).all()
    assert (pure <= 2 * GAMMA**2 * orders * (1 + 1e-12)).all()
    assert (found <= 2 * GAMMA).all()
    # Two counts that move by 1 each: about alpha gamma^2 while that is small.
    assert found[1] == pytest.approx(2 * GAMMA**2, rel=0.05)


def test_independent_curve_bounds_noisy_counts_exactly() -> None:
    order, gamma = 3.0, 0.7
    x = np.linspace(-60, 60, 240_001)
    one = np.exp(-gamma * np.abs(x)) * gamma / 2
    other = np.exp(-gamma * np.abs(x - 1)) * gamma / 2
    single = math.log(np.trapezoid(one**order * other ** (1 - order), x)) / (order - 1)
    assert laplace_independent(gamma, [order])[0] == pytest.approx(2 * single, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(SMALL, st.sampled_from([0.2, 0.5, 1.0]), st.sampled_from([1.5, 3.0, 9.0]))
def test_data_dependent_cost_is_above_the_true_divergence(exact, votes, gamma, order) -> None:
    bound = laplace_rdp(votes, gamma, [order])[0, 0]
    own = exact.log_law(votes, 1 / gamma, "laplace")
    for moved in exact.neighbours(votes):
        other = exact.log_law(moved, 1 / gamma, "laplace")
        assert exact.divergence(own, other, order) <= bound * (1 + 1e-3) + 1e-7


def test_condition_on_q_is_exact() -> None:
    edge = -math.log(math.exp(2 * GAMMA) + 1)
    inside = laplace_bound([edge - 1e-9], GAMMA, [2.0])[0, 0]
    outside = laplace_bound([edge + 1e-9], GAMMA, [2.0])[0, 0]
    assert outside == laplace_independent(GAMMA, [2.0])[0]
    assert inside <= outside


@given(SMALL)
def test_q_bounds_the_chance_of_another_answer(votes) -> None:
    q = math.exp(laplace_log_q(votes, 0.3)[0])
    assert 1 - laplace_winning(votes, 0.3)[0] <= q + 1e-4


def test_ties_and_grids(exact) -> None:
    assert math.exp(laplace_log_q([5, 5], GAMMA)[0]) == pytest.approx(0.5)
    assert laplace_log_q([5, 5], GAMMA, grid=1.0)[0] > math.log(0.5)
    assert laplace_log_q(exact.spread, GAMMA, grid=1.0)[0] == pytest.approx(
        laplace_log_q([179, 30, 20, 10, 10, 0, 0, 0, 0, 0], GAMMA)[0]
    )


def test_private_oddities_are_no_errors_and_parameters_are() -> None:
    assert np.isfinite(laplace_rdp([[math.nan, 3, -2], [math.inf, 0, 0]], GAMMA, [2, 9])).all()
    with pytest.raises(ValueError, match="gamma must be"):
        laplace_rdp([1, 2], 0.0, [2])
    with pytest.raises(ValueError, match="orders must be"):
        laplace_rdp([1, 2], 0.1, [1.0])
    with pytest.raises(ValueError, match="votes must be"):
        laplace_rdp([3], 0.1, [2.0])
