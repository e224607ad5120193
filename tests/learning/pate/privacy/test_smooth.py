from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from sfumato.accounting import account
from sfumato.accounting.rdp import epsilon_from_rdp
from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate.privacy.local import Answers, Checks
from sfumato.learning.pate.privacy.smooth import (
    PublishedCost,
    Sanitiser,
    choose_sanitiser,
    printed_cost,
    smooth_sensitivity,
)

VOTES = st.lists(st.integers(0, 12), min_size=3, max_size=3).filter(lambda v: 0 < sum(v) <= 14)


def gaussian_divergence(shift: float, ratio: float, sigma: float, order: float) -> float:
    """D(N(0, sigma^2) || N(shift, (ratio sigma)^2)) by quadrature."""
    x = np.linspace(-400 * sigma, 400 * sigma, 400_001)
    p = -((x / sigma) ** 2) / 2 - math.log(sigma)
    q = -(((x - shift) / (ratio * sigma)) ** 2) / 2 - math.log(ratio * sigma)
    norm = math.log(x[1] - x[0]) - math.log(2 * math.pi) / 2
    return float(special.logsumexp(order * p + (1 - order) * q) + norm) / (order - 1)


def test_printed_cost() -> None:
    assert printed_cost([10], 0.02, 20)[0] == pytest.approx(0.0766217, abs=5e-8)
    assert printed_cost([25], 0.02, 20)[0] == math.inf


@pytest.mark.parametrize("confidence", [0.5, 0.999])
@pytest.mark.parametrize(("order", "beta", "sigma"), [(10, 0.02, 20), (10, 0.045, 3), (3, 0.1, 2)])
def test_cost_is_the_divergence_at_its_worst(order, beta, sigma, confidence) -> None:
    """All ratios of smooth sensitivities and the farthest means they allow, by quadrature."""
    release = Sanitiser(order, beta, sigma, confidence)
    found = []
    for ratio in np.exp(np.linspace(-beta, beta, 9)):
        least, difference = min(1, ratio), abs(1 - ratio)
        shift = least + release.margin * difference
        found.append(gaussian_divergence(shift, ratio, sigma, order))
    cost = release.cost([order])[0]
    assert max(found) <= cost * (1 + 1e-9)
    assert max(found) == pytest.approx(cost, rel=1e-6)  # attained: a tenth less would be wrong


def test_printed_cost_is_too_low_near_the_end_of_its_range() -> None:
    order, beta, sigma = 10, 0.04, 2
    true = gaussian_divergence(math.exp(-beta), math.exp(-beta), sigma, order)
    assert true == pytest.approx(Sanitiser(order, beta, sigma, 0.5).cost([order])[0], rel=1e-6)
    assert true > 1.5 * printed_cost([order], beta, sigma)[0]


def test_margin_grows_the_first_term_by_its_factor_squared() -> None:
    plain, sure = Sanitiser(10, 0.02, 20, 0.5), Sanitiser(10, 0.02, 20, 0.999)
    factor = 1 + sure.margin * math.expm1(0.02)
    scale = Sanitiser(10, 0.02, 1e9, 0.5).cost([10])[0]  # the second term alone
    first = plain.cost([10])[0] - scale
    assert sure.cost([10])[0] - scale == pytest.approx(first * factor**2, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(VOTES, st.sampled_from([0.05, 0.3]), st.sampled_from([0.7, 2.0]))
def test_smooth_sensitivity_is_smooth_and_large_enough(exact, votes, beta, sigma) -> None:
    order, teachers = 2.0, sum(votes)

    def parts(counts: list[int]) -> list[Answers | Checks]:
        return [Answers([counts, counts], sigma), Checks([max(counts)], 6, sigma)]

    def cost(counts: list[int]) -> float:
        return sum(part.cost(order) for part in parts(counts))

    own = smooth_sensitivity(parts(votes), order, beta, teachers)
    for moved in exact.neighbours(votes):
        other = smooth_sensitivity(parts(moved), order, beta, teachers)
        assert own <= other * math.exp(beta) * (1 + 1e-9)
        assert other <= own * math.exp(beta) * (1 + 1e-9)
        assert abs(cost(votes) - cost(moved)) <= min(own, other) * (1 + 1e-9) + 1e-15


def test_smooth_sensitivity_is_the_discounted_maximum(exact) -> None:
    part = Answers([exact.spread, exact.agreed], 40)
    every = [math.exp(-0.03 * d) * part.changes(10, d) for d in range(251)]
    assert smooth_sensitivity([part], 10, 0.03, 250) == pytest.approx(max(every), rel=1e-12)


def test_published_number_has_the_stated_law_and_is_an_upper_bound() -> None:
    parts = [Answers([[22, 2, 1], [24, 1, 0]], 4), Checks([22, 24, 9], 20, 5)]
    release = Sanitiser(4, 0.1, 6)
    spread = smooth_sensitivity(parts, 4, 0.1, 25)
    true = sum(part.cost(4) for part in parts)
    grid, coins = release._grid(parts), SeededCoins(5)
    draws = np.array([release._noised(true, spread + grid, grid, coins) for _ in range(2000)])
    assert release.publish(parts, 25, SeededCoins(5)).value == draws[0]
    noise = (draws - true) / (release.sigma * spread)
    assert noise.mean() == pytest.approx(special.ndtri(0.999), abs=0.1)
    assert noise.std() == pytest.approx(1, abs=0.06)
    assert (draws >= true).mean() > 0.995


def confident_law(votes, threshold: float, sigma_check: float, sigma: float):
    """The exact law of one question with two classes: not answered, the first, the second."""
    passes = special.ndtr((max(votes) - threshold) / sigma_check)
    first = special.ndtr((votes[0] - votes[1]) / (sigma * math.sqrt(2)))
    return np.array([1 - passes, passes * first, passes * (1 - first)])


@pytest.mark.parametrize(
    ("votes", "threshold", "sigma_check", "sigma"),
    [((8, 7), 8.0, 200.0, 1.5), ((13, 2), 11.0, 3.0, 2.0), ((9, 6), 14.0, 2.0, 1.0)],
)
def test_a_reading_of_a_run_with_checks_holds_as_stated_and_as_no_more(
    votes, threshold, sigma_check, sigma
) -> None:
    """Two questions on the same votes, by exact laws: the sum of what came about, run by run."""
    order = 3.0
    checks = Checks([float(max(votes))], threshold, sigma_check).cost(order)
    answer = Answers([votes], sigma).cost(order)
    reading = np.add.outer(*[np.array([checks, checks + answer, checks + answer])] * 2)
    worst = 0.0
    for moved in ((votes[0] - 1, votes[1] + 1), (votes[0] + 1, votes[1] - 1)):
        p, q = (np.multiply.outer(*[confident_law(v, threshold, sigma_check, sigma)] * 2)
                for v in (votes, moved))  # fmt: skip
        assert (p**order * q ** (1 - order) * np.exp(-(order - 1) * reading)).sum() <= 1 + 1e-12
        for level, r in itertools.product((1e-3, 0.1, 0.3), np.unique(reading)):
            epsilon = epsilon_from_rdp((order,), np.array([r]), level)
            assert np.maximum(p - math.exp(epsilon) * q, 0)[reading <= r].sum() <= level
        divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
        worst = max(worst, divergence)
    if threshold == max(votes):  # the mechanism's RDP is more than a run without answers reads
        assert worst > 100 * reading[0, 0]


def test_what_a_published_number_is_said_to_be_follows_from_its_parts() -> None:
    release = Sanitiser(4, 0.1, 6)
    answers, checks = Answers([[22, 2, 1]], 4), Checks([22, 24, 9], 20, 5)
    for parts, checked in (([answers], False), ([checks], True), ([checks, answers], True)):
        found = release.publish(parts, 25, SeededCoins(1))
        assert found.checked is checked
        meaning = found.to_dict()["meaning"]
        assert ("not the RDP of the mechanism" in meaning) is checked
        assert ("at least the RDP at order 4 of answers to these" in meaning) is not checked
    assert PublishedCost(4.0, 1.0, 0.999, 0.1).checked  # what older records do not say


def test_published_record_and_event() -> None:
    release = Sanitiser(10, 0.02, 20)
    found = release.publish([Answers([[200, 30, 20]], 40)], 250, SeededCoins(1))
    assert not found.private
    data = json.loads(json.dumps(found.to_dict()))
    assert data["own_cost"] == pytest.approx(0.105318, abs=5e-7)
    assert "not what a budget is charged" in data["meaning"]
    published = PublishedCost(10.0, 1.0, 0.999, 0.1)
    expected = 1.1 + math.log1p(-1 / 10) - math.log(1e-5 * 10) / 9
    assert published.epsilon(1e-5) == pytest.approx(expected)
    event = release.event("person")
    assert not event.data_dependent
    assert event.values[event.orders.index(10.0)] == pytest.approx(found.own_cost)
    assert account(event, 1e-5).epsilon < 2


def test_published_number_is_on_a_public_grid_whatever_the_votes(exact) -> None:
    """The grid depends on the number of questions alone, so low bits tell nothing."""
    release = Sanitiser(10, 0.02, 20)
    for votes in (exact.spread, exact.agreed, [25] * 10):
        part = Answers([votes] * 50, 40)
        grid = release._grid([part])
        assert grid == release._grid([Answers([[250] + [0] * 9] * 50, 40)])
        value = release.publish([part], 250, SeededCoins(2)).value
        assert value / grid == round(value / grid)
    odd = [Answers(np.zeros((0, 4)), 40), Checks([math.nan, math.inf], 200, 150)]
    assert math.isfinite(release.publish(odd, 250).value)
    assert "240" not in repr(Answers([exact.agreed], 40))  # votes are private: not in a log


def test_chosen_parameters_are_better_than_others(exact) -> None:
    parts = [Answers(np.tile(exact.agreed, (300, 1)), 40)]
    best = choose_sanitiser(parts, 250, 8)

    def total(release: Sanitiser) -> float:
        spread = smooth_sensitivity(parts, 8, release.beta, 250)
        return release.margin * spread + float(release.cost([8])[0])

    for beta, sigma in ((0.02, 20), (0.01, 5), (0.05, 10), (0.03, 40)):
        assert total(best) <= total(Sanitiser(8, beta, sigma)) * 1.001


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match=r"beta must be below 0\.0526803 for order 10"):
        Sanitiser(10, 0.06, 20)
    with pytest.raises(ValueError, match=r"confidence must be at least 0\.5"):
        Sanitiser(10, 0.02, 20, 0.3)
    with pytest.raises(ValueError, match="teachers must be"):
        smooth_sensitivity([], 10, 0.1, 0)


def test_smoothness_holds_beyond_the_last_vote():
    """Checks go on changing where all votes have been turned: the public bound takes over there."""
    from sfumato.learning.pate.aggregators import ConfidentMax
    from sfumato.learning.pate.publishing import parts_of

    aggregator, beta = ConfidentMax(4.0, 2, 2.0), 0.01
    answered = np.ones(2, dtype=bool)
    found = [
        smooth_sensitivity(parts_of(aggregator, np.array([votes] * 2), answered), 5.0, beta, 2)
        for votes in ([0, 0, 2], [1, 0, 1])
    ]
    assert max(found) <= math.exp(beta) * min(found) * (1 + 1e-12)
