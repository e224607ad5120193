from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.learning.pate.privacy.confident import check_rdp
from sfumato.learning.pate.privacy.gaussian import gaussian_bound, gaussian_rdp
from sfumato.learning.pate.privacy.local import Answers, Checks, _taken, check_conditions, drops

VOTES = st.lists(st.integers(0, 12), min_size=2, max_size=4).filter(lambda v: 0 < sum(v) <= 14)


def balls(exact, votes: list[int], radius: int) -> list[set[tuple[int, ...]]]:
    """All votes within 0, 1, ... steps."""
    reached = [{tuple(votes)}]
    for _ in range(radius):
        wider = set(reached[-1])
        for each in reached[-1]:
            wider |= {tuple(moved) for moved in exact.neighbours(list(each))}
        reached.append(wider)
    return reached


def test_known_local_sensitivities() -> None:
    part = Answers([[10, 0, 0]], 0.5, 0.0)
    found = [part.changes(1.5, d) for d in range(4)]
    assert found[0] == pytest.approx(3.135e-17, abs=5e-21)
    assert found[1] == pytest.approx(1.6018e-8, abs=5e-13)
    assert found[2] == pytest.approx(5.9068e-3, abs=5e-8)
    # The fourth known value, 5.9998, is the plateau when the data-independent bound is taken for
    # all ln q above -(1 + 1/sigma)^2 = -9 rather than by the theorem's own condition.
    curve = drops(0.5, 1.5, 2)
    leads = np.linspace(0, 5, 500_001)
    from sfumato.learning.pate.privacy.gaussian import log_beaten

    edge = leads[np.argmax(math.log(2) + log_beaten(2 * leads, 0.5) <= -9)]
    assert 1.5 / 0.5**2 - curve.cost(np.array([edge + 1]))[0] == pytest.approx(5.9998, abs=5e-5)
    assert found[3] == pytest.approx(3.3959, abs=5e-5)


def test_the_cost_falls_with_the_lead() -> None:
    """The steps of the proof that rest on numbers, and the cost itself near its conditions."""
    mu = 1 + np.geomspace(1e-9, 1.55, 100_001)
    least = np.log((mu + 1) / (mu - 1)) / (2 * mu - 1)  # of 1 / sigma^2, by the theorem's condition
    assert (np.exp((2 * mu + 1) * least) * -np.expm1(-((mu - 1) ** 2) * least)).min() > 1.3
    mu = np.geomspace(2.55, 1e6, 100_001)
    q = np.exp(-2 * mu / (2 * mu - 1))
    assert (q + np.exp(-2 * (mu - 1) ** 2 / (mu * (2 * mu - 1)))).max() < 1
    rng = np.random.default_rng(1)
    for sigma, order in zip(
        np.exp(rng.uniform(-2, 5, 200)), 1 + np.exp(rng.uniform(-3, 5, 200)), strict=True
    ):
        mu = np.geomspace(1 + 1e-6, 50 * max(1, order, sigma), 20_001)
        cost = gaussian_bound(-((mu / sigma) ** 2), sigma, [order])[:, 0]
        assert (np.diff(cost) <= 1e-12 * cost[:-1] + 1e-300).all(), (sigma, order)


def test_known_conditions() -> None:
    assert check_conditions(20, 10, 25) == (True, False)
    assert check_conditions(30, 10, 25) == (True, True)


@settings(max_examples=40, deadline=None)
@given(
    VOTES,
    st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    st.sampled_from([1.5, 3.0, 6.0]),
    st.sampled_from([0.0, 2.0**-4]),
)
def test_bound_holds_for_all_neighbours_at_every_distance(exact, votes, sigma, order, grid) -> None:
    """Brute force over all votes within 3 steps and all their neighbours."""
    part = Answers([votes], sigma, grid)

    reached = balls(exact, votes, 4)
    every = sorted(reached[-1])
    costs = gaussian_rdp(np.array(every), sigma, [order], grid=grid)[:, 0]
    cost = dict(zip(every, costs, strict=True))
    assert part.cost(order) == pytest.approx(cost[tuple(votes)], rel=1e-9, abs=1e-300)
    for distance in range(4):
        true = max(
            abs(cost[each] - cost[tuple(moved)])
            for each in reached[distance]
            for moved in exact.neighbours(list(each))
        )
        assert part.changes(order, distance) >= true * (1 - 1e-9) - 1e-15


@settings(max_examples=20, deadline=None)
@given(VOTES, st.sampled_from([0.5, 2.0]), st.sampled_from([1.5, 4.0]))
def test_bounds_nest_between_neighbours(exact, votes, sigma, order) -> None:
    """L(d) of votes is at most L(d + 1) of any neighbour: what makes the maximum smooth."""
    part = Answers([votes], sigma)
    for moved in exact.neighbours(votes):
        other = Answers([moved], sigma)
        for distance in range(5):
            assert part.changes(order, distance) <= other.changes(order, distance + 1) * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(VOTES, st.sampled_from([0.5, 2.0]))
def test_reachable_leads_are_the_ends_of_what_brute_force_finds(exact, votes, sigma) -> None:
    part = Answers([votes], sigma, 0.0)
    for distance, ball in enumerate(balls(exact, votes, 3)):
        leads = Answers([list(each) for each in ball], sigma, 0.0).reach(0)[0]
        low, high = part.reach(distance)
        assert high[0] == pytest.approx(leads.max(), abs=1e-6)
        assert low[0] <= leads.min() + 1e-6
        if math.isfinite(low[0]):
            assert low[0] == pytest.approx(leads.min(), abs=1e-6)


@given(VOTES, st.sampled_from([0.3, 1.0, 5.0]))
def test_a_step_moves_the_lead_by_at_most_1(exact, votes, sigma) -> None:
    own = Answers([votes], sigma).reach(0)[0][0]
    for moved in exact.neighbours(votes):
        assert abs(Answers([moved], sigma).reach(0)[0][0] - own) <= 1 + 1e-6


@given(
    st.integers(0, 30), st.floats(0, 30), st.sampled_from([0.7, 2.0]), st.sampled_from([1.5, 5.0])
)
def test_checks_by_brute_force(top, threshold, sigma, order) -> None:
    part = Checks([top], threshold, sigma)

    def cost(number: int) -> float:
        return float(check_rdp([number], threshold, sigma, [order])[0, 0])

    assert part.cost(order) == pytest.approx(cost(top), rel=1e-9, abs=1e-300)
    for distance in range(4):
        true = max(
            abs(cost(number) - cost(number + step))
            for number in range(top - distance, top + distance + 1)
            for step in (-1, 1)
        )
        assert part.changes(order, distance) >= true * (1 - 1e-9) - 1e-15


def test_where_the_papers_second_condition_fails_the_peak_is_found() -> None:
    curve = drops(20.0, 25.0, 9)
    leads = np.linspace(-2, 400, 200_001)
    brute = curve.drop(leads)
    assert curve.largest >= brute.max()
    assert curve.largest == pytest.approx(brute.max(), rel=1e-3)
    # It does not lie where the data-independent bound takes over.
    takes_over = leads[curve.cost(leads) >= 25 / 400].max()
    assert leads[brute.argmax()] > takes_over + 0.5
    low, high = leads[:-200:1000], leads[200::1000][: len(leads[:-200:1000])]
    for a, b, found in zip(low, high, curve.most(low, high), strict=True):
        inside = leads[(leads >= a) & (leads <= b)]
        true = np.maximum(curve.drop(inside), curve.drop(inside - 1)).max()
        assert found >= true * (1 - 1e-9)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=5), st.integers(0, 20))
def test_votes_are_taken_from_the_largest(counts, distance) -> None:
    left = sorted(counts, reverse=True)
    found = _taken(np.array([left], dtype=float), distance)[0]
    for _ in range(distance):
        left.sort(reverse=True)
        left[0] = max(left[0] - 1, 0)
    assert sorted(found.tolist()) == sorted(left)


def test_questions_add_and_repeated_ones_count(exact) -> None:
    both = Answers([exact.spread, exact.agreed, exact.spread], 40)
    single = [Answers([votes], 40) for votes in (exact.spread, exact.agreed)]
    assert both.questions == 3
    for distance in (0, 7):
        expected = 2 * single[0].changes(10, distance) + single[1].changes(10, distance)
        assert both.changes(10, distance) == pytest.approx(expected)
        assert both.changes(10, distance) <= both.most_change(10)
    odd = Answers([[math.nan, 3.0, -1.0]], 40)
    assert odd.cost(10) == Answers([[0, 3, 0]], 40).cost(10)
    assert Answers(np.zeros((0, 3)), 40).cost(10) == 0
