"""The averaging attack: the lecture's table recomputed, and intervals that cover."""

import math

import numpy as np
import pytest

from sfumato.attacks.averaging import SLIDE_INTERVAL, SLIDE_RESPONSES, attack, estimate
from sfumato.core import SeededCoins, Sensitivity
from sfumato.mechanisms.laplace import Laplace


def test_the_lectures_five_answers():
    five = estimate(SLIDE_RESPONSES, confidence=0.9)
    assert five.mean == pytest.approx(3.0922, abs=1e-4)
    assert five.half_width == pytest.approx(1.5585, abs=1e-4)
    assert five.interval == pytest.approx((1.534, 4.651), abs=1e-3)


def test_the_printed_interval_is_that_of_the_wrong_denominator():
    five = estimate(SLIDE_RESPONSES, confidence=0.9)
    shrunk = five.half_width * math.sqrt(4 / 5)
    printed = (SLIDE_INTERVAL[1] - SLIDE_INTERVAL[0]) / 2
    assert shrunk == pytest.approx(printed, abs=1e-3)


@pytest.mark.parametrize(("queries", "half_width"), [(5, 1.4712), (50, 0.4652), (500, 0.1471)])
def test_with_known_noise_the_interval_narrows_as_one_over_root_k(queries, half_width):
    found = estimate(np.zeros(queries), confidence=0.9, noise_sd=2.0)
    assert found.half_width == pytest.approx(half_width, abs=1e-4)
    assert found.half_width == pytest.approx(3.290 / math.sqrt(queries), rel=1e-3)


@pytest.mark.parametrize("known", [True, False])
def test_intervals_cover_the_truth_as_often_as_they_say(known):
    mechanism, coins = Laplace(math.sqrt(2), Sensitivity(1.0)), SeededCoins(11)
    answers = mechanism.perturb(np.full((4000, 50), 3.0), coins=coins)
    sd = 2.0 if known else None
    covered = [
        abs(estimate(row, 0.9, sd).mean - 3) <= estimate(row, 0.9, sd).half_width for row in answers
    ]
    # 0.9 within four standard deviations of 4000 coins; a 10 % wrong quantile gives about 0.86.
    assert np.mean(covered) == pytest.approx(0.9, abs=4 * math.sqrt(0.09 / 4000))


def test_the_attack_looks_at_prefixes_of_one_list_of_answers():
    asked = []

    def ask(k):
        asked.append(k)
        return np.arange(k, dtype=float)

    found = attack(ask, [2, 4], 0.9)
    assert asked == [4]
    assert [e.mean for e in found] == [0.5, 1.5]
    assert found[0].to_dict()["upper"] == found[0].interval[1]


@pytest.mark.parametrize("queries", [[], [50, 5], [5, 5], [0, 5], [2.5]])
def test_bad_numbers_of_queries_are_refused(queries):
    with pytest.raises(ValueError, match="queries"):
        attack(np.zeros, queries)


def test_too_few_answers_and_bad_confidence_are_refused():
    with pytest.raises(ValueError, match="responses"):
        estimate([1.0])
    with pytest.raises(ValueError, match="confidence"):
        estimate([1.0, 2.0], confidence=1.0)
    with pytest.raises(ValueError, match="noise_sd"):
        estimate([1.0, 2.0], noise_sd=-1)
