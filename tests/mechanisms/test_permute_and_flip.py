"""Permute-and-flip: its law by enumeration, and never worse than the exponential mechanism."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from sfumato.core import SeededCoins, Sensitivity
from sfumato.core.events import EpsilonDeltaEvent
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.noisy_max import ReportNoisyMax
from sfumato.mechanisms.permute_and_flip import PermuteAndFlip

VOTE = Sensitivity(1.0, unit="person")


def enumerated(scores: list[float], epsilon: float, factor: int) -> list[float]:
    """The algorithm as published, over every order of the candidates."""
    heads = [math.exp(epsilon * (score - max(scores)) / factor) for score in scores]
    law = [0.0] * len(scores)
    orders = list(itertools.permutations(range(len(scores))))
    for order in orders:
        reached = 1 / len(orders)
        for candidate in order:
            law[candidate] += reached * heads[candidate]
            reached *= 1 - heads[candidate]
    return law


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("scores", [[0], [1, 1], [5, 0, 3], [2, 2, 1, 0, -3], [0, 9, 8, 8, 1, 4]])
def test_law_is_that_of_the_published_algorithm(scores, monotone) -> None:
    law = PermuteAndFlip(1.0, VOTE, monotone=monotone).probabilities(scores)
    assert np.allclose(law, enumerated(scores, 1.0, 1 if monotone else 2), rtol=1e-12)


def test_law_of_many_candidates() -> None:
    """n - 1 equal candidates g behind one: Pr[best] = E[1 / (1 + Bin(n - 1, e^-g))]."""
    n, head = 400, math.exp(-2)
    law = PermuteAndFlip(2.0, VOTE).probabilities([2.0] + [0.0] * (n - 1))
    others = np.arange(n)
    best = float((stats.binom.pmf(others, n - 1, head) / (1 + others)).sum())
    assert law[0] == pytest.approx(best, rel=1e-10)
    assert law.sum() == pytest.approx(1, rel=1e-12)


def test_draws_follow_the_law_and_those_of_noisy_max() -> None:
    scores, draws = [4.0, 2.0, 2.0, 2.0, 1.0], 5000
    law = np.array(enumerated(scores, 2.0, 2))
    table = []
    for mechanism in (PermuteAndFlip(2.0, VOTE), ReportNoisyMax(2.0, VOTE, "exponential")):
        coins = SeededCoins(21)
        seen = Counter(mechanism.release(scores, coins=coins).value for _ in range(draws))
        table.append([seen[i] for i in range(5)])
        assert stats.chisquare(table[-1], draws * law).pvalue > 0.01
        for wrong in (1.8, 2.2):
            off = draws * np.array(enumerated(scores, wrong, 2))
            assert stats.chisquare(table[-1], off).pvalue < 1e-3
    assert stats.chi2_contingency(table).pvalue > 0.01


def test_never_worse_than_the_exponential_mechanism() -> None:
    rng = np.random.default_rng(10)
    better = []
    for _ in range(300):
        size, spread = int(rng.integers(2, 30)), rng.choice([0.1, 1, 5, 50])
        scores = rng.normal(scale=spread, size=size).tolist()
        epsilon = float(rng.choice([0.1, 1, 5]))
        ours = PermuteAndFlip(epsilon, VOTE).expected_error(scores)
        theirs = Exponential(epsilon, VOTE).expected_error(scores)
        assert ours <= theirs * (1 + 1e-9)
        better.append(theirs / ours if ours > 1e-12 else 1.0)
    assert 1.5 < max(better) <= 2 + 1e-6


def test_event() -> None:
    expected = EpsilonDeltaEvent(0.4, 0.0, VOTE.neighbours, VOTE.unit)
    assert PermuteAndFlip(0.4, VOTE).event == expected


def test_the_best_of_far_apart_candidates_wins() -> None:
    mechanism = PermuteAndFlip(1.0, VOTE)
    assert all(mechanism.release([0, 1e6, -1e6]).value == 1 for _ in range(50))
