"""Aggregators: what they answer how often, what one teacher can change, what it is charged."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.accounting import account
from sfumato.core.events import repeat
from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate.aggregators import (
    Aggregator,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
    expected_votes,
)
from sfumato.mechanisms.noisy_max import _laplace_law

VOTES = np.array([30, 22, 8])
EACH = {
    "lnmax": LaplaceMax(0.1),
    "gnmax": GaussianMax(12.0),
    "confident": ConfidentMax(12.0, 25, 20.0),
    "interactive": InteractiveMax(12.0, 25, 20.0, 60),
}


def gaussian_law(votes, sigma):
    """Pr[j wins], by quadrature."""
    x = np.linspace(votes.min() - 9 * sigma, votes.max() + 9 * sigma, 40_001)
    found = []
    for j, count in enumerate(votes):
        others = [stats.norm.cdf(x, n, sigma) for i, n in enumerate(votes) if i != j]
        found.append(np.trapezoid(stats.norm.pdf(x, count, sigma) * np.prod(others, axis=0), x))
    return np.array(found)


@pytest.mark.parametrize("kind", EACH)
def test_winners_come_as_often_as_the_law_says(kind):
    aggregator, draws = EACH[kind], 6000
    coins = SeededCoins(3)
    found = np.bincount([aggregator.answer(VOTES, coins) for _ in range(draws)], minlength=3)
    law = gaussian_law(VOTES, 12.0) if kind != "lnmax" else _laplace_law(0.1 * (VOTES - 30.0))
    spread = np.sqrt(draws * law * (1 - law))
    assert (np.abs(found - draws * law) <= 4.5 * spread).all()
    wrong = gaussian_law(VOTES, 13.2) if kind != "lnmax" else _laplace_law(0.11 * (VOTES - 30.0))
    assert (np.abs(found - draws * wrong) > 2.5 * spread).any()  # it would show


def test_checks_pass_as_often_as_published_parameters_say():
    votes = np.array([180, 30, 20, 10, 10, 0, 0, 0, 0, 0])
    aggregator, draws, coins = ConfidentMax(40.0, 200, 150.0), 40_000, SeededCoins(1)
    passed = sum(aggregator.passes(votes, None, coins) for _ in range(draws))
    assert abs(passed / draws - 0.446965) < 4.5 * math.sqrt(0.25 / draws)


def test_an_interactive_check_compares_with_the_student():
    votes = np.array([240, 5, 5])
    aggregator = InteractiveMax(40.0, threshold=100, sigma_check=1e-3, teachers=250, sure=0.8)
    agrees, differs = np.array([0.96, 0.02, 0.02]), np.array([0.3, 0.6, 0.1])
    assert not aggregator.passes(votes, agrees, SeededCoins(1))  # 240 - 240 = 0 votes more
    assert aggregator.passes(votes, differs, SeededCoins(1))  # 240 - 75 = 165
    assert aggregator.own_answer(agrees) == 0
    assert aggregator.own_answer(differs) is None
    with pytest.raises(ValueError, match="opinion must be given"):
        aggregator.passes(votes, None, SeededCoins(1))
    for bad in ([0.5, 0.5], [2.0**60, 0.0, 0.0], [-0.1, 0.5, 0.5], [math.nan, 0.5, 0.5]):
        with pytest.raises(ValueError, match="3 probabilities"):
            aggregator.passes(votes, np.array(bad), SeededCoins(1))
    with pytest.raises(ValueError, match="at most 2147483648"):
        InteractiveMax(40.0, threshold=100, sigma_check=1.0, teachers=2**60)


def test_votes_less_expected_ones_are_exact():
    """However many teachers are said to be, one vote moves the difference by 1."""
    opinion = np.array([1.0, 0.3, 1 / 3])
    expected = expected_votes(opinion, 2**31)
    for vote in (0, 1, 191, 2**31 - 1):
        votes = np.array([vote, 5, 5])
        moved = (votes + np.array([1, 0, 0]) - expected) - (votes - expected)
        assert moved.tolist() == [1, 0, 0]


@given(st.floats(0, 1), st.integers(0, 2**31), st.integers(1, 2**31))
@example(0.4 / 3 / 2**31, 2**30, 2**31)  # from one power of two to the next: doubles get coarser
@example(1e-9 / 7, 2**30, 2**31)
def test_one_vote_moves_any_difference_by_exactly_one(probability, vote, teachers):
    (expected,) = expected_votes(np.array([probability]), teachers)
    assert (vote + 1 - expected) - (vote - expected) == 1
    assert abs(expected - probability * teachers) <= 2.0**-21


# --- what one teacher can change ----------------------------------------------------------------

counts = st.lists(st.integers(0, 30), min_size=2, max_size=5).map(np.array)


@given(counts, st.data())
def test_one_teacher_moves_what_costs_are_made_for(votes, data):
    """A vote goes from one class to another; a teacher that was not there votes."""
    source = data.draw(st.sampled_from(np.flatnonzero(votes).tolist() or [-1]))
    target = data.draw(st.integers(0, len(votes) - 1))
    other = votes.copy()
    other[target] += 1
    if source >= 0:
        other[source] -= 1
    assert np.abs(votes - other).sum() <= 2
    assert np.linalg.norm(votes - other) <= math.sqrt(2)
    assert abs(int(votes.max()) - int(other.max())) <= 1
    opinion = np.array(
        data.draw(st.lists(st.floats(0, 1), min_size=len(votes), max_size=len(votes)))
    )
    assert abs((votes - 9 * opinion).max() - (other - 9 * opinion).max()) <= 1 + 1e-9


@given(st.floats(1e-3, 1e6))
def test_what_is_charged_is_not_above_the_noise_in_real_numbers(size):
    """Not by one unit in the last place: two votes are sqrt 2 apart, in L2."""
    charged = GaussianMax(size).answer_event("record").noise_multiplier
    assert 2 * Fraction(charged) ** 2 <= Fraction(size) ** 2
    assert charged == pytest.approx(size / math.sqrt(2), rel=1e-15)


@settings(max_examples=100, deadline=None)
@given(counts, st.data(), st.floats(0.02, 1.0))
def test_laplace_answers_are_as_private_as_they_say(votes, data, gamma):
    source = data.draw(st.sampled_from(np.flatnonzero(votes).tolist() or [0]))
    other = votes.copy()
    other[source] -= 1
    other[data.draw(st.integers(0, len(votes) - 1))] += 1
    laws = [_laplace_law(gamma * (v - v.max()).astype(float)) for v in (votes, other)]
    loss = np.abs(np.log(laws[0]) - np.log(laws[1])).max()
    assert loss <= account(LaplaceMax(gamma).answer_event("record"), 0.0).epsilon + 1e-6


def test_two_gamma_is_needed():
    """Half of it, as the first paper's text has it, is refuted by two classes."""
    gamma = 0.05
    laws = [_laplace_law(gamma * np.array([0.0, -d])) for d in (500.0, 502.0)]
    assert np.log(laws[0][1] / laws[1][1]) > 1.9 * gamma


@pytest.mark.parametrize("votes", [[20, 20], [25, 20, 5], [40, 1]])
def test_gaussian_answers_are_as_private_as_they_say(votes):
    sigma = 3.0
    votes = np.array(votes)
    other = votes + np.array([-1, 1, *[0] * (len(votes) - 2)])
    laws = [gaussian_law(v, sigma) for v in (votes, other)]
    event = GaussianMax(sigma).answer_event("record")
    for delta in (1e-3, 1e-2, 0.05):
        epsilon = account(event, delta).epsilon
        for p, q in (laws, laws[::-1]):
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= delta + 1e-9


def test_costs():
    """Rényi's of the second paper: alpha / sigma^2 an answer, alpha / (2 sigma_check^2) a check."""
    confident = ConfidentMax(40.0, 200, 150.0)
    assert confident.answer_event("person").noise_multiplier == pytest.approx(40 / math.sqrt(2))
    assert confident.check_event("person").noise_multiplier == 150
    assert confident.check_event("person").unit == "person"
    assert GaussianMax(40.0).check_event("record") is None
    assert account(LaplaceMax(0.05).answer_event("record"), 0.0).epsilon == pytest.approx(0.1)
    composed = [
        repeat(confident.check_event("record"), 640),
        repeat(GaussianMax(40.0).answer_event("record"), 286),
    ]
    assert account(composed, 1e-5, accountant="rdp").epsilon <= 3.1753


@pytest.mark.parametrize("kind", EACH)
def test_json_and_back(kind):
    assert Aggregator.from_dict(EACH[kind].to_dict()) == EACH[kind]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LaplaceMax(0.0), "gamma"),
        (lambda: GaussianMax(-1.0), "sigma"),
        (lambda: ConfidentMax(40.0, math.nan, 150.0), "threshold"),
        (lambda: ConfidentMax(40.0, 200, 0.0), "sigma_check"),
        (lambda: InteractiveMax(40.0, 200, 150.0, 0), "teachers"),
        (lambda: InteractiveMax(40.0, 200, 150.0, 10, sure=1.0), "sure"),
        (lambda: Aggregator.from_dict({"kind": "median"}), "kind must be one of"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()
