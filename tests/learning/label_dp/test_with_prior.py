"""RR-with-prior: the best set, exactly, and the printed version that is not."""

import itertools
import math

import numpy as np
import pytest

from sfumato.core import SeededCoins
from sfumato.learning.label_dp.with_prior import best_sets, respond_with_prior

SKEWED = (0.5, 0.3, 0.1, 0.05, 0.05)


@pytest.mark.parametrize(
    ("prior", "epsilon", "size", "right"),
    [
        (SKEWED, 0.5, 1, 0.5),
        (SKEWED, 1.0, 2, 0.5848),
        (SKEWED, 2.0, 3, 0.7083),
        ((0.55, 0.45), 0.5, 2, 0.6225),
    ],
)
def test_published_examples(prior, epsilon, size, right) -> None:
    found = best_sets([prior], epsilon)
    assert found.sizes.tolist() == [size]
    assert found.right[0] == pytest.approx(right, abs=5e-5)


def test_best_of_all_sets_whatsoever() -> None:
    generator = np.random.default_rng(0)
    for epsilon in (0.2, 1.0, 2.5):
        for prior in generator.dirichlet([0.5] * 5, 20):
            best = max(
                math.exp(epsilon) / (math.exp(epsilon) + k - 1) * sum(prior[list(chosen)])
                for k in range(1, 6)
                for chosen in itertools.combinations(range(5), k)
            )
            assert best_sets([prior], epsilon).right[0] == pytest.approx(best, rel=1e-12)


def off_by_one(prior, epsilon):
    """The k of the authors' code, which counts it from 0 in a formula that counts from 1."""
    within = np.sort(prior)[::-1].cumsum()
    return int(np.argmax(within / (1 + (np.arange(len(prior)) - 1) * math.exp(-epsilon)))) + 1


def test_the_published_code_is_off_by_one() -> None:
    """An even prior on ten classes at epsilon 0.5: it tells nothing, where all ten are best."""
    even = np.full(10, 0.1)
    assert off_by_one(even, 0.5) == 1
    found = best_sets([even], 0.5)
    assert found.sizes.tolist() == [10]
    assert found.right[0] == pytest.approx(math.exp(0.5) / (math.exp(0.5) + 9), rel=1e-12)


def test_ties() -> None:
    """Of equally good sizes the smallest."""
    tied = best_sets([[math.exp(1) / (1 + math.exp(1)), 1 / (1 + math.exp(1))]], 1.0)
    assert tied.sizes.tolist() == [1]
    first = best_sets([[0.0, 0.5, 0.5]], 30.0)
    assert first.sets.tolist() == [[False, True, True]]


def test_a_certain_prior_asks_nothing() -> None:
    reports = respond_with_prior([1] * 20, [[1.0, 0.0]] * 20, 1.0, coins=SeededCoins(0))
    assert reports.tolist() == [0] * 20


def test_reports_are_right_as_often_as_promised() -> None:
    """Labels drawn by the prior: within five standard errors of w_k, fixed coins."""
    generator, n = np.random.default_rng(2), 20_000
    labels = generator.choice(5, n, p=SKEWED)
    for epsilon, right in ((1.0, 0.5848), (2.0, 0.7083)):
        prior = np.tile(SKEWED, (n, 1))
        found = respond_with_prior(labels, prior, epsilon, coins=SeededCoins(4))
        share = float((found == labels).mean())
        assert abs(share - right) < 5 * math.sqrt(right * (1 - right) / n)


@pytest.mark.parametrize("prior", [[[0.5, -0.1]], [[math.nan, 1]], [[0, 0]], [[1.0]], [0.5, 0.5]])
def test_no_prior(prior) -> None:
    with pytest.raises(ValueError, match="prior must be"):
        best_sets(prior, 1.0)
