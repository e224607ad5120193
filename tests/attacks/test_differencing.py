"""Differencing: exact answers give a person away; private ones leave what epsilon allows."""

import json
import math

import numpy as np
import pytest

from sfumato.attacks.differencing import (
    Filter,
    Guesses,
    best_accuracy,
    count_attack,
    play,
    sum_attack,
)
from sfumato.core import Neighbours, SeededCoins, Sensitivity
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.laplace import Laplace

PERSON = {"age": 35, "town": "Pisa"}


def table(ill=1, salary=31_000, n=500):
    """Many people, the last of whom alone is 35 and lives in Pisa."""
    random = np.random.default_rng(1)
    return {
        "age": np.append(random.integers(36, 90, n), 35),
        "town": np.append(random.choice(["Pisa", "Lucca"], n), "Pisa"),
        "ill": np.append(random.integers(0, 2, n), ill),
        "salary": np.append(random.integers(10_000, 50_000, n), salary),
    }


def counts(data):
    return lambda who: who.mask(data).sum()


def sums(data):
    return lambda who: data["salary"][who.mask(data)].sum()


@pytest.mark.parametrize("ill", [0, 1])
def test_two_exact_counts_give_her_secret_away(ill):
    found = count_attack(counts(table(ill)), PERSON, {"ill": 1})
    assert found.difference == ill
    assert found.holds == bool(ill)
    assert found.everyone > 200
    assert found.questions == ("ill = 1", "ill = 1 AND NOT (age = 35 AND town = 'Pisa')")


def test_without_a_secret_the_facts_are_seen_to_fit_one_person():
    assert count_attack(counts(table()), PERSON).difference == 1
    assert count_attack(counts(table()), {"age": 36}).difference > 1


def test_two_exact_sums_give_her_salary_away():
    found = sum_attack(sums(table(salary=31_415)), PERSON)
    assert found.difference == 31_415
    assert found.questions[0] == "TRUE"
    assert sum_attack(sums(table(ill=0)), PERSON, among={"ill": 1}).difference == 0


def private_counts(data, epsilon, coins):
    declared = Sensitivity(1, neighbours=Neighbours.REPLACE_ONE, unit="person")
    mechanism = DiscreteLaplace.calibrate(declared, epsilon=epsilon)
    return lambda who: int(mechanism.perturb([who.mask(data).sum()], coins=coins)[0])


def two_noises(epsilon):
    """How often the guess from two geometric noises of ``epsilon`` each is right, exactly."""
    k, p = np.arange(-400, 401), math.exp(-epsilon)
    law = (1 - p) / (1 + p) * p ** np.abs(k)
    difference = np.convolve(law, law)
    middle = len(difference) // 2
    return (difference[middle:].sum() + difference[: middle + 1].sum()) / 2


@pytest.mark.parametrize("total", [0.5, 1.0, 4.0])
@pytest.mark.slow
def test_on_private_counts_no_guess_beats_what_epsilon_allows(total):
    """Half of the budget for each question. A noise scale off by a tenth fails at 4."""
    data, coins, rounds = {yes: table(yes) for yes in (False, True)}, SeededCoins(2), 10_000
    game = play(
        lambda yes: (
            count_attack(private_counts(data[yes], total / 2, coins), PERSON, {"ill": 1}).holds
        ),
        rounds,
    )
    error = math.sqrt(0.25 / rounds)
    assert game.accuracy <= best_accuracy(total) + 3 * error
    assert game.accuracy == pytest.approx(two_noises(total / 2), abs=3 * error)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_an_attacker_who_knows_all_others_reaches_the_bound_of_one_question(epsilon):
    """The second answer does not depend on her, so that such an attacker computes it exactly."""
    data, coins, rounds = {yes: table(yes) for yes in (False, True)}, SeededCoins(3), 10_000

    def guess(yes):
        noisy, exact = private_counts(data[yes], epsilon, coins), counts(data[yes])
        return count_attack(
            lambda who: exact(who) if who.but_not else noisy(who), PERSON, {"ill": 1}
        ).holds

    game = play(guess, rounds)
    assert game.accuracy == pytest.approx(best_accuracy(epsilon), abs=3 * math.sqrt(0.25 / rounds))


def test_a_private_sum_hides_the_salary():
    declared = Sensitivity(50_000, neighbours=Neighbours.REPLACE_ONE, unit="person")
    mechanism, coins = Laplace.calibrate(declared, epsilon=0.5), SeededCoins(4)
    data = table(salary=31_415)

    def ask(who):
        return mechanism.perturb([sums(data)(who)], coins=coins)[0]

    found = np.array([sum_attack(ask, PERSON).difference for _ in range(2000)])
    assert found.mean() == pytest.approx(31_415, abs=3 * 200_000 / math.sqrt(2000))
    assert found.std() == pytest.approx(2 * mechanism.scale, rel=0.09)  # sqrt(2) sqrt(2) b
    within_a_tenth = np.mean(np.abs(found - 31_415) < 5_000)
    assert within_a_tenth < 0.05


def test_the_best_accuracy():
    assert best_accuracy(0) == 0.5
    assert best_accuracy(1.0) == pytest.approx(math.e / (1 + math.e))
    assert best_accuracy(800) == 1.0
    assert best_accuracy(0, 0.2) == pytest.approx(0.6)
    assert best_accuracy(1.0, 1e-2) == pytest.approx((math.e + 0.01) / (1 + math.e))
    for bad in (-1, math.nan, math.inf):
        with pytest.raises(ValueError, match="epsilon must be"):
            best_accuracy(bad)


def test_guesses_count_both_kinds_alike():
    game = Guesses.compare([1, 1, 0, 1], [True, True, True, False])
    assert (game.yes, game.yes_right, game.no, game.no_right) == (3, 2, 1, 0)
    assert game.accuracy == pytest.approx(1 / 3)
    always_yes = Guesses.compare(np.ones(1000), np.arange(1000) < 990)
    assert always_yes.accuracy == 0.5
    with pytest.raises(ValueError, match="as many as the truths"):
        Guesses.compare([1], [1, 0])
    with pytest.raises(ValueError, match="no must be"):
        Guesses.compare([1], [1])


def test_the_interval_covers_and_knows_certainty():
    low, high = Guesses(500, 500, 500, 500).interval()
    assert low == pytest.approx((0.05 / 4) ** (1 / 500))  # all of 500 right, at half the error
    assert high == 1
    assert Guesses(50, 0, 50, 0).interval()[0] == 0
    random = np.random.default_rng(5)
    right = random.binomial(200, [[0.9], [0.4]], (2, 2000))
    covered = [
        low <= 0.65 <= high
        for low, high in (Guesses(200, int(a), 200, int(b)).interval(0.9) for a, b in right.T)
    ]
    assert 0.9 <= np.mean(covered) <= 1


def test_play_asks_as_often_with_yes_as_with_no():
    seen = []
    game = play(lambda yes: seen.append(yes) or yes, 10)
    assert (seen.count(True), seen.count(False)) == (5, 5)
    assert game.accuracy == 1
    with pytest.raises(ValueError, match="rounds must be"):
        play(bool, 1)


def test_filters_as_text_and_as_masks():
    who = Filter({"a b": 1.5, "ok": np.bool_(True)}, {'q"t': "it's", "n": np.int64(3)})
    assert str(who) == '"a b" = 1.5 AND ok = TRUE AND NOT ("q""t" = \'it\'\'s\' AND n = 3)'
    data = {"x": np.array([1, 1, 2]), "y": np.array([1, 2, 2])}
    assert Filter({"x": 1}, {"y": 2}).mask(data).tolist() == [True, False, False]
    assert Filter(but_not={"x": 1, "y": 2}).mask(data).tolist() == [True, False, True]
    assert Filter().mask(data).tolist() == [True] * 3


def test_filters_apply_to_data_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1, 2, None], "town": ["Pisa", "Lucca", None]})
    assert Filter({"town": "Pisa"}).mask(frame).tolist() == [True, False, False]
    assert Filter(but_not={"x": 2}).mask(frame).tolist() == [True, False, True]
    assert Filter().mask(frame).sum() == 3


def test_results_say_they_are_for_the_curator():
    found = count_attack(counts(table()), PERSON, {"ill": 1})
    assert json.loads(json.dumps(found.to_dict()))["channel"] == "curator"
    assert str(found).endswith("= 1")
    game = Guesses(10, 9, 10, 8)
    assert json.loads(json.dumps(game.to_dict()))["accuracy"] == pytest.approx(0.85)
    assert str(game).startswith("85.0% of 20 guesses right")
    with pytest.raises(ValueError, match="person must be"):
        count_attack(counts(table()), {}, {"ill": 1})
