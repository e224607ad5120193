"""The best of a random number of runs: dp-accounting's figures, and selected outcomes exactly."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

from sfumato.accounting import Trials, account, selected_curve
from sfumato.accounting.dpa import DEFAULT_ORDERS
from sfumato.accounting.rdp import rdp_vector
from sfumato.accounting.selected_curve import _delta
from sfumato.core.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    NotPrivateEvent,
    RdpCurveEvent,
    dp_sgd,
    event_from_dict,
)
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins

LAWS = [Trials(10), Trials(10, 0), Trials(3, 2.5), Trials(100, 1), Trials(10, math.inf)]


def generating(trials, x):
    """E[x^K]."""
    if trials.poisson:
        return np.exp(trials.mean * (x - 1))
    gamma, eta = trials.gamma, trials.shape
    if eta == 0:
        return np.log1p(-(1 - gamma) * x) / math.log(gamma)
    return ((1 - (1 - gamma) * x) ** -eta - 1) / (gamma**-eta - 1)


@pytest.mark.parametrize("trials", LAWS)
@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.7, 0.01, 1000), (0.8, 0.05, 200)])
def test_the_figures_of_dp_accounting(trials, sigma, rate, steps):
    mine = selected_curve(dp_sgd(sigma, rate, steps), trials)
    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    runs = dp_event.SelfComposedDpEvent(step, steps)
    peer = rdp.RdpAccountant(orders=list(mine.orders))
    peer.compose(dp_event.RepeatAndSelectDpEvent(runs, trials.mean, trials.shape))
    found = account(mine, 1e-5, accountant="rdp").epsilon
    assert found == pytest.approx(peer.get_epsilon(1e-5), rel=1e-6)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**6), st.sampled_from(LAWS), st.floats(0.05, 1.5))
def test_selected_outcomes_are_never_further_apart(seed, trials, spread):
    """Outcomes in the order of their score; the best of K has E[F^K] for distribution function."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(6, 2.0)) + 1e-3
    q = p * np.exp(spread * rng.uniform(-1, 1, 6))
    p, q = p / p.sum(), q / q.sum()

    def between(one, other, order):
        return float(logsumexp(order * np.log(one) + (1 - order) * np.log(other))) / (order - 1)

    def best(law):
        below = generating(trials, np.concatenate([[0.0], np.cumsum(law)]))
        found = np.diff(below)
        return np.append(found, below[0]) if trials.poisson else found  # the last: no run at all

    orders = tuple(order for order in DEFAULT_ORDERS if order <= 64)
    values = [max(between(p, q, a), between(q, p, a), 0.0) for a in orders]
    event = RdpCurveEvent(orders, tuple(np.maximum.accumulate(values).tolist()))
    curve = selected_curve(event, trials)
    one, other = best(p), best(q)
    for order, value in zip(curve.orders, curve.values, strict=True):
        if order >= 1.1:
            worst = max(between(one, other, order), between(other, one, order))
            assert worst <= value + 1e-9, order


@pytest.mark.parametrize("trials", LAWS)
def test_the_number_of_runs_has_its_law(trials):
    coins = SeededCoins(3)
    drawn = np.array([trials.draw(coins) for _ in range(20_000)])
    assert drawn.min() >= (0 if trials.poisson else 1)
    # E[x^K] at three places tells the law: each is a mean of numbers between 0 and 1.
    for x in (0.3, 0.8, 0.97):
        found = np.mean(x**drawn)
        assert abs(found - generating(trials, np.array(x))) < 5 * 0.5 / math.sqrt(len(drawn))
    sure = stats.norm.ppf(1 - 1e-7) * drawn.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - trials.mean) < sure


def test_it_costs_more_than_one_run_and_far_less_than_all_of_them():
    one = dp_sgd(1.7, 0.01, 1000)
    single = account(one, 1e-5).epsilon
    ten = account(selected_curve(one, Trials(10)), 1e-5).epsilon
    hundred = account(selected_curve(one, Trials(100)), 1e-5).epsilon
    assert single < ten < hundred < 3.5 * single
    assert hundred < account(dp_sgd(1.7, 0.01, 100_000), 1e-5).epsilon


def test_relation_unit_and_json_are_kept():
    event = GaussianEvent(3.0, Neighbours.ZERO_OUT, "client")
    curve = selected_curve(event, Trials(5))
    assert (curve.relation, curve.unit_name) == (Neighbours.ZERO_OUT, "client")
    assert event_from_dict(curve.to_dict()) == curve
    assert np.all(np.diff(curve.values) >= 0)


def test_pure_runs_of_a_geometric_number_cost_three():
    """3 epsilon by Liu and Talwar; by RDP, up to what the largest order leaves."""
    curve = selected_curve(LaplaceEvent(10.0), Trials(4))
    largest = rdp_vector(curve, Neighbours.ADD_REMOVE, DEFAULT_ORDERS).values[-1]
    assert 0.1 < largest < 3 * 0.1 + 0.02


@pytest.mark.parametrize(
    ("mean", "shape", "said"),
    [(1.0, 1, "mean"), (0, 1, "mean"), (math.nan, 1, "mean"), (1e9, 1, "mean"),
     (5, -0.5, "shape"), (5, math.nan, "shape")],
)  # fmt: skip
def test_laws_that_there_are_not(mean, shape, said):
    with pytest.raises(ValueError, match=said):
        Trials(mean, shape)


@pytest.mark.parametrize("event", [EpsilonDeltaEvent(1.0, 1e-6), NotPrivateEvent()])
def test_runs_without_an_rdp_are_refused(event):
    with pytest.raises(ValueError, match="event must be"):
        selected_curve(event, Trials(5))


def test_a_divergence_beyond_all_numbers_proves_nothing_and_is_no_error():
    assert _delta(np.array([2.0, 8.0]), np.array([1e4, 1e5]), 0.0) == 1.0
    assert _delta(np.array([2.0, 8.0]), np.array([0.1, 0.4]), 5.0) < 1e-5
