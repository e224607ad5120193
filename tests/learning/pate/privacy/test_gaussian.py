from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import optimize, special

from sfumato.learning.pate.privacy.gaussian import (
    _conditions,
    gaussian_bound,
    gaussian_independent,
    gaussian_log_q,
    gaussian_rdp,
    gaussian_winning,
)

ORDERS = np.array([1.25, 2.0, 4.0, 8.5, 10.0, 25.0, 64.0])
VOTES = st.lists(st.integers(0, 30), min_size=2, max_size=4).filter(lambda votes: sum(votes) > 0)


def test_known_votes(exact) -> None:
    for votes, log_q, cost, digit in (
        (exact.spread, -4.36973, 0.00355399, 5e-9),
        (exact.agreed, -9.11547, 5.3411e-5, 5e-10),
    ):
        assert gaussian_log_q(votes, 40, grid=0.0)[0] == pytest.approx(log_q, abs=5e-6)
        assert gaussian_rdp(votes, 40, [10], grid=0.0)[0, 0] == pytest.approx(cost, abs=digit)
        # The samplers' own grid costs less than one part in 100,000.
        assert cost < gaussian_rdp(votes, 40, [10])[0, 0] < cost * (1 + 1e-5)
    assert gaussian_independent(40, [10])[0] == pytest.approx(0.00625, rel=1e-12)


def test_theorem_6_as_written() -> None:
    """In plain arithmetic with its conditions, at every order and many q."""
    sigma = 7.0
    for q in np.geomspace(1e-12, 0.4, 60):
        mu2 = sigma * math.sqrt(math.log(1 / q))
        mu1, eps2 = mu2 + 1, mu2 / sigma**2
        eps1 = mu1 / sigma**2
        for order, found in zip(
            ORDERS, gaussian_bound([math.log(q)], sigma, ORDERS)[0], strict=True
        ):
            limit = math.exp((mu2 - 1) * eps2) / (mu1 * mu2 / ((mu1 - 1) * (mu2 - 1))) ** mu2
            expected = order / sigma**2
            if mu2 > 1 and order <= mu1 and q <= limit:
                a = (1 - q) / (1 - (q * math.exp(eps2)) ** (1 - 1 / mu2))
                b = math.exp(eps1) / q ** (1 / (mu1 - 1))
                s = (1 - q) * a ** (order - 1) + q * b ** (order - 1)
                expected = min(expected, math.log(s) / (order - 1))
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-14)


@pytest.mark.parametrize("sigma", [0.5, 2.0, 40.0])
def test_second_condition_is_exact(sigma) -> None:
    """With mu_2^2 = sigma^2 ln 1/q it reads 2 mu_2 - 1 >= sigma^2 ln((mu_2 + 1) / (mu_2 - 1))."""

    def slack(mu: float) -> float:
        return 2 * mu - 1 - sigma**2 * math.log((mu + 1) / (mu - 1))

    edge = float(optimize.brentq(slack, 1 + 1e-12, 500))
    mu = np.array([edge * (1 - 1e-6), edge * (1 + 1e-6)])
    assert _conditions(-((mu / sigma) ** 2), mu, sigma).tolist() == [False, True]


@settings(max_examples=60, deadline=None)
@given(VOTES, st.sampled_from([0.8, 2.0, 5.0]), st.sampled_from([1.5, 3.0, 8.0, 20.0]))
def test_cost_is_above_the_true_divergence(exact, votes, sigma, order) -> None:
    bound = gaussian_rdp(votes, sigma, [order], grid=0.0)[0, 0]
    own = exact.log_law(votes, sigma)
    for moved in exact.neighbours(votes):
        true = exact.divergence(own, exact.log_law(moved, sigma), order)
        assert true <= bound * (1 + 1e-9) + 1e-11


def test_the_bound_would_fail_a_tenth_lower(exact) -> None:
    """Small noise, an order near the largest allowed: within 6 % of the truth."""
    votes, sigma, order = [30, 2, 2], 1.0, 10.0
    bound = gaussian_rdp(votes, sigma, [order], grid=0.0)[0, 0]
    own = exact.log_law(votes, sigma)
    true = max(
        exact.divergence(own, exact.log_law(moved, sigma), order)
        for moved in exact.neighbours(votes)
    )
    assert 0.9 * bound < true <= bound < order / sigma**2


def test_the_other_direction_is_not_bounded(exact) -> None:
    """What the module says it does not promise, and that the data-independent bound does."""
    votes, sigma, order = [10, 2, 0], 1.0, 2.0
    own = exact.log_law(votes, sigma)
    backward = max(
        exact.divergence(exact.log_law(moved, sigma), own, order)
        for moved in exact.neighbours(votes)
    )
    assert gaussian_rdp(votes, sigma, [order])[0, 0] == pytest.approx(1.3506e-4, rel=1e-3)
    assert backward == pytest.approx(0.01568, rel=1e-3)
    assert backward < order / sigma**2


@given(VOTES, st.sampled_from([0.5, 3.0, 40.0]))
def test_q_bounds_the_chance_of_another_answer(exact, votes, sigma) -> None:
    first = int(np.argmax(votes))
    missed = -np.expm1(exact.log_law(votes, sigma)[first])
    assert missed <= math.exp(gaussian_log_q(votes, sigma, grid=0.0)[0]) + 1e-9
    assert gaussian_winning(votes, sigma)[0] == pytest.approx(1 - missed, abs=1e-6)


@given(VOTES, st.sampled_from([0.25, 0.5, 1.0]))
def test_q_holds_for_noise_on_a_coarse_grid(votes, grid) -> None:
    """The law of rounded noise with ties to the first, computed on the grid itself."""
    sigma = 2.0
    first = int(np.argmax(votes))
    low, high = min(votes) - 12 * sigma, max(votes) + 12 * sigma
    cells = np.arange(math.floor(low / grid), math.ceil(high / grid) + 1) * grid
    ends = [special.ndtr((cells + grid / 2 - count) / sigma) for count in votes]
    starts = [special.ndtr((cells - grid / 2 - count) / sigma) for count in votes]
    wins = ends[first] - starts[first]
    for j in range(len(votes)):
        if j != first:
            # An earlier class wins a tie against the first one, a later one loses it.
            wins = wins * (starts[j] if j < first else ends[j])
    missed = 1 - wins.sum()
    assert missed <= math.exp(gaussian_log_q(votes, sigma, grid=grid)[0]) + 1e-9


def test_rounding_really_costs_up_to_a_grid_step() -> None:
    """With a tie broken against the first class, the ideal bound is too low on a coarse grid."""
    sigma, grid, gap = 1.0, 1.0, 4
    cells = np.arange(-12, 18) * grid
    first = special.ndtr((cells + 0.5 - gap) / sigma) - special.ndtr((cells - 0.5 - gap) / sigma)
    missed = 1 - (first * special.ndtr((cells - 0.5) / sigma)).sum()
    assert missed > math.exp(gaussian_log_q([0, gap], sigma, grid=0.0)[0])
    assert missed <= math.exp(gaussian_log_q([0, gap], sigma, grid=grid)[0])


@given(st.floats(-1e6, 0), st.floats(0.3, 300))
def test_never_above_the_independent_cost_nor_below_0(log_q, sigma) -> None:
    found = gaussian_bound([log_q], sigma, ORDERS)[0]
    assert (found >= 0).all()
    assert (found <= gaussian_independent(sigma, ORDERS)).all()


@given(VOTES, st.permutations(range(4)))
def test_order_of_classes_does_not_matter(votes, order) -> None:
    moved = [votes[i] for i in order if i < len(votes)]
    assume(len(moved) == len(votes))
    assert gaussian_log_q(moved, 3.0)[0] == gaussian_log_q(votes, 3.0)[0]


def test_far_tails_do_not_underflow_and_many_rows_are_one_call() -> None:
    assert gaussian_log_q([100_000, 0], 40)[0] < -1e6
    assert gaussian_rdp([100_000, 0], 40, [2])[0, 0] == 0
    votes = np.random.default_rng(1).multinomial(250, [0.7] + [0.3 / 9] * 9, size=10_000)
    costs = gaussian_rdp(votes, 40, ORDERS)
    assert costs.shape == (10_000, len(ORDERS))
    assert costs[17] == pytest.approx(gaussian_rdp(votes[17], 40, ORDERS)[0])
    assert np.isfinite(gaussian_rdp([[math.nan, -1, math.inf]], 40, ORDERS)).all()
    assert gaussian_bound([-math.inf], 40, [2.0])[0, 0] == 0


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="sigma must be"):
        gaussian_rdp([1, 2], -1, [2])
    with pytest.raises(ValueError, match="grid must be"):
        gaussian_log_q([1, 2], 1, grid=-1.0)
