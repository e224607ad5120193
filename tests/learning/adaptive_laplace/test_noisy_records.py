"""What is told of a record: sensitivities that are met and never passed, scales, and audits."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.randomness import SeededCoins
from sfumato.learning.adaptive_laplace import NoisyInputs, NoisyLabels
from sfumato.learning.adaptive_laplace.budget import best_label_share, split_epsilon
from sfumato.learning.adaptive_laplace.games import record_game
from sfumato.learning.adaptive_laplace.recipe import AdaptiveLaplaceRecipe
from sfumato.learning.relevance import feature_shares

RECORD = st.lists(st.floats(), min_size=3, max_size=3)


# --- inputs ---------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=3), RECORD, RECORD)
def test_one_record_moves_what_is_noised_by_one_at_most(relevance, first, second):
    told = NoisyInputs(2.0, feature_shares(relevance), lower=-1.0, upper=(1.0, 2.0, 30.0))
    one, other = (told._weighted(np.array([row])) for row in (first, second))
    assert np.abs(one - other).sum() <= 1


def test_and_may_move_it_that_far():
    told = NoisyInputs(2.0, feature_shares(np.arange(784.0)))
    ends = [told._weighted(np.full((1, 784), x)) for x in (0.0, 1.0)]
    assert np.abs(ends[0] - ends[1]).sum() == pytest.approx(1, abs=1e-8)
    assert (1 / told.scales).sum() == pytest.approx(2.0)


def test_noise_has_the_scale_that_is_said():
    told = NoisyInputs(4.0, (1.5, 1.0, 0.5), lower=(0, 0, -5), upper=(1, 10, 5))
    assert told.scales.tolist() == pytest.approx([3 / 6, 30 / 4, 30 / 2])
    values = np.tile([[0.5, 3.0, -2.0]], (40_000, 1))
    noise = told.perturb(values, coins=SeededCoins(1)) - values
    assert np.abs(noise).mean(0).tolist() == pytest.approx(told.scales.tolist(), rel=0.03)
    assert np.abs(noise.mean(0) / told.scales).max() < 0.03
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.03
    assert account(told.event, 0.0).epsilon == pytest.approx(4.0)


def test_equal_shares_of_mnist_are_noise_of_784():
    assert NoisyInputs(1.0, np.ones(784)).scales.tolist() == pytest.approx([784.0] * 784)


def test_what_is_no_number_or_outside_is_moved_silently():
    told = NoisyInputs(1e9, (1.0, 1.0), lower=2.0, upper=4.0)
    rows = np.array([[np.nan, np.inf], [-np.inf, 7.0], [3.0, 2.5]])
    found = told.perturb(rows, coins=SeededCoins(1))
    assert found == pytest.approx(np.array([[2, 4], [2, 4], [3, 2.5]]), abs=1e-4)


def test_cells_of_any_kind_become_declared_numbers():
    told = NoisyInputs(1e9, (1.0, 1.0), lower=2.0, upper=4.0)
    cells = [[None, "3"], ["x", 2.5], [Fraction(7, 2), 10**400], [object(), np.float32(3)]]
    found = told.perturb(np.array(cells, dtype=object), coins=SeededCoins(1))
    wanted = [[2, 2], [2, 2.5], [3.5, 2], [2, 3]]
    assert found == pytest.approx(np.array(wanted), abs=1e-4)
    text = told.perturb(np.array([["3", "x"]]), coins=SeededCoins(1))
    assert text == pytest.approx(np.array([[2, 2]]), abs=1e-4)


def test_an_input_without_a_share_is_not_told():
    told = NoisyInputs(1.0, (2.0, 0.0))
    found = told.perturb(np.random.default_rng(1).random((50, 2)), coins=SeededCoins(1))
    assert (found[:, 1] == 0.5).all()
    assert told.scales[1] == math.inf


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"shares": (1.0, 1.2)}, "add up to 2"),
        ({"shares": (3.0, -1.0)}, "0 or above"),
        ({"shares": (1.0, math.nan)}, "0 or above"),
        ({"lower": 1.0}, "below upper"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_numbers_that_cannot_be_are_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        NoisyInputs(**({"epsilon": 1.0, "shares": (1.0, 1.0)} | changes))
    with pytest.raises(ValueError, match="rows of 2 numbers"):
        NoisyInputs(1.0, (1.0, 1.0)).perturb(np.zeros((1, 3)))


# --- labels ---------------------------------------------------------------------------------------


def test_randomised_response_keeps_and_switches_as_it_should():
    told = NoisyLabels(2.0, 10)
    reports = told.perturb(np.full(40_000, 3), coins=SeededCoins(1))
    assert np.mean(reports == 3) == pytest.approx(0.450853, rel=0.03)
    assert told.contrast == pytest.approx(0.450853 - (1 - 0.450853) / 9, rel=1e-5)
    assert told.event.unit_name == "record"
    assert account(told.event, 0.0).epsilon == pytest.approx(2.0)


@pytest.mark.parametrize("way", ["response", "one-hot"])
def test_reports_are_unbiased_and_say_what_is_likely(way):
    told = NoisyLabels(3.0, 4, way)
    reports = told.perturb(np.full(40_000, 2), coins=SeededCoins(1))
    assert told.unbiased(reports).mean(0).tolist() == pytest.approx([0, 0, 1, 0], abs=0.03)
    likelihood = told.likelihood(reports)
    posterior = likelihood / likelihood.sum(1, keepdims=True)
    assert posterior.mean(0).argmax() == 2
    none = told.perturb(np.array([-1, 7, 2]), coins=SeededCoins(5))
    first = told.perturb(np.array([0, 0, 2]), coins=SeededCoins(5))
    assert np.array_equal(none, first)


def test_noisy_vectors_have_a_scale_of_two_over_epsilon():
    told = NoisyLabels(0.5, 4, "one-hot")
    reports = told.perturb(np.zeros(20_000, int), coins=SeededCoins(1))
    assert np.abs(reports - np.eye(4)[0]).mean() == pytest.approx(4.0, rel=0.03)
    assert account(told.event, 0.0).epsilon == pytest.approx(0.5)
    with pytest.raises(ValueError, match="labels must be one of"):
        NoisyLabels(1.0, 3, "loud")


# --- the budget -----------------------------------------------------------------------------------


@given(
    st.floats(1e-3, 1e3), st.integers(2, 1000), st.floats(0, 0.9),
    st.none() | st.floats(0.01, 0.99),
)  # fmt: skip
def test_parts_never_add_up_to_more(epsilon, classes, relevance, labels):
    parts = split_epsilon(epsilon, classes, relevance, labels)
    assert sum(map(Fraction, parts)) <= Fraction(epsilon)
    assert sum(parts) == pytest.approx(epsilon)
    assert parts.relevance == pytest.approx(relevance * epsilon)


def test_the_best_share_is_the_best():
    def worth(epsilon, classes, share):
        e = math.exp(share * epsilon)
        return (1 - share) * (e - 1) / (e + classes - 1)

    for epsilon in (0.5, 4.0, 20.0):
        best = worth(epsilon, 10, best_label_share(epsilon, 10))
        assert all(best >= worth(epsilon, 10, s / 50) for s in range(1, 50))


def test_a_recipe_says_what_all_three_cost_together():
    recipe = AdaptiveLaplaceRecipe(3.0, relevance_share=0.2, label_share=0.25)
    parts = recipe.parts(10)
    assert parts == pytest.approx((0.6, 1.8, 0.6))
    whole = account(recipe.event(10), 0.0)
    assert whole.epsilon == pytest.approx(3.0)
    assert whole.neighbours == "replace-one"
    assert recipe.local_guarantee(10).epsilon == pytest.approx(2.4)
    without = AdaptiveLaplaceRecipe(3.0, relevance_share=0.0)
    assert without.relevance() is None
    assert account(without.event(10), 0.0).epsilon == pytest.approx(3.0)


# --- audits ---------------------------------------------------------------------------------------


def found(draw, records, claim, samples=20_000):
    return audit_mechanism(draw, [records], claim=claim, samples=samples, confidence=0.999)


def test_what_is_told_shows_no_more_than_it_claims_and_nearly_that_much():
    game = record_game(epsilon=1.0, coins=SeededCoins(2))
    shown = found(game.draw, game.records, game.guarantee)
    assert not shown.refuted
    assert shown.epsilon > 0.6


def test_half_the_noise_is_caught():
    game = record_game(epsilon=2.0, coins=SeededCoins(2))
    claim = record_game(epsilon=1.0).guarantee
    assert found(game.draw, game.records, claim).refuted
