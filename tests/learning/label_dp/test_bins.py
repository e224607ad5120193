"""RR-on-bins: no other cut is better, and the law is private."""

import itertools
import math

import numpy as np
import pytest

from sfumato.audit.exact import exact_epsilon
from sfumato.core import SeededCoins
from sfumato.learning.label_dp.bins import BinnedResponse, best_bins

LOSSES = {"squared": lambda v, y: (v - y) ** 2, "absolute": lambda v, y: abs(v - y)}


def expected_loss(y, p, ends, values, epsilon, loss):
    """By the definition: every report of every label with its probability."""
    e, k, total = math.exp(epsilon), len(values), 0.0
    starts = [0, *ends[:-1]]
    for bin_number, (a, b) in enumerate(zip(starts, ends, strict=True)):
        for i in range(a, b):
            for other, value in enumerate(values):
                chance = (e if other == bin_number else 1) / (e + k - 1)
                total += p[i] * chance * LOSSES[loss](value, y[i])
    return total


@pytest.mark.parametrize("loss", ["squared", "absolute"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_no_cut_and_no_values_are_better(loss, epsilon) -> None:
    """Against every cut of six points, values found by trying many."""
    generator = np.random.default_rng(3)
    y = np.sort(generator.random(6)) * 10
    p = generator.dirichlet([1.0] * 6)
    found = best_bins(y, p, epsilon, loss)
    tried = np.concatenate([y, np.linspace(0, 10, 201)])
    lie, best = math.exp(-epsilon), math.inf
    for k in range(1, 7):
        for inner in itertools.combinations(range(1, 6), k - 1):
            ends, total = [*inner, 6], 0.0
            for a, b in zip([0, *inner], ends, strict=True):
                weights = lie * p + (1 - lie) * p * ((np.arange(6) >= a) & (np.arange(6) < b))
                costs = [(weights * LOSSES[loss](v, y)).sum() for v in tried]
                total += min(costs)
            best = min(best, total / (1 + (k - 1) * lie))
    assert found.expected_loss <= best + 1e-12
    assert found.expected_loss == pytest.approx(best, rel=2e-3)
    ends = [int(np.searchsorted(y, edge)) for edge in found.edges] + [6]
    again = expected_loss(y, p, ends, found.values, epsilon, loss)
    assert found.expected_loss == pytest.approx(again, rel=1e-9)


def test_reports_lose_what_was_expected() -> None:
    generator, n = np.random.default_rng(1), 30_000
    grid = np.arange(20.0)
    prior = generator.dirichlet([0.5] * 20)
    labels = generator.choice(grid, n, p=prior)
    bins = best_bins(grid, prior, 1.5)
    errors = (bins.perturb(labels, coins=SeededCoins(0)) - labels) ** 2
    assert errors.mean() == pytest.approx(bins.expected_loss, abs=5 * errors.std() / math.sqrt(n))


def test_little_and_much_privacy() -> None:
    grid, prior = np.arange(5.0), np.full(5, 0.2)
    assert best_bins(grid, prior, 30.0).values == pytest.approx(grid)
    near = best_bins(grid, prior, 1e-3)
    assert near.values == pytest.approx([2.0] * len(near.values), abs=1e-2)
    assert near.expected_loss == pytest.approx(2.0, rel=1e-2)  # the variance of the prior


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_the_law_is_private_and_tight(epsilon) -> None:
    bins = BinnedResponse(epsilon, (1.0, 2.0), (0.5, 1.5, 2.5))
    e = math.exp(epsilon)
    keep, lie = e / (e + 2), 1 / (e + 2)
    assert exact_epsilon([keep, lie, lie], [lie, keep, lie], 0.0) == pytest.approx(epsilon)
    n = 20_000
    seen = bins.perturb(np.full(n, 1.7), coins=SeededCoins(1))
    assert (seen == 1.5).mean() == pytest.approx(keep, abs=5 / math.sqrt(n))
    assert (seen == 0.5).mean() == pytest.approx(lie, abs=5 / math.sqrt(n))


def test_labels_that_are_none_and_one_bin() -> None:
    bins = BinnedResponse(60.0, (1.0,), (0.5, 1.5), default=3.0)
    bad = [math.nan, math.inf, "x", None]
    assert bins.perturb(bad, coins=SeededCoins(0)).tolist() == [1.5] * 4
    assert bins.perturb([1e300, -1e300], coins=SeededCoins(0)).tolist() == [1.5, 0.5]
    assert BinnedResponse(1.0, (), (4.0,)).perturb([1, 2]).tolist() == [4.0, 4.0]


def test_at_most_so_many_bins() -> None:
    assert len(best_bins(range(10), np.ones(10), 20.0, most=3).values) == 3


@pytest.mark.parametrize(
    ("grid", "prior", "more", "words"),
    [
        ([0, 0], [1, 1], {}, "rising"),
        ([0, math.nan], [1, 1], {}, "finite"),
        ([0, 1], [1, -1], {}, "prior must be"),
        ([0, 1], [0, 0], {}, "prior must be"),
        ([0, 1], [1], {}, "prior must be"),
        ([0, 1], [1, 1], {"loss": "cubed"}, "loss must be"),
        ([0, 1], [1, 1], {"epsilon": 0}, "epsilon must be"),
        (range(600), [1] * 600, {}, "512"),
    ],
)
def test_mistakes(grid, prior, more, words) -> None:
    with pytest.raises(ValueError, match=words):
        best_bins(grid, prior, **({"epsilon": 1.0} | more))


def test_mistakes_of_a_response() -> None:
    for edges, values in (((1.0,), (1.0,)), ((2.0, 1.0), (1, 2, 3)), ((1.0,), (1.0, math.nan))):
        with pytest.raises(ValueError, match="must be"):
            BinnedResponse(1.0, edges, values)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_unbiased_reports_have_the_mean_of_their_interval(epsilon) -> None:
    bins = best_bins(np.arange(12.0), np.random.default_rng(0).dirichlet([1.0] * 12), epsilon)
    k, e = len(bins.values), math.exp(epsilon)
    chances = (np.ones((k, k)) + (e - 1) * np.eye(k)) / (e + k - 1)
    assert k > 1
    assert chances @ bins.unbiased(bins.values) == pytest.approx(bins.means, rel=1e-9)
    assert BinnedResponse(1.0, (), (4.0,)).unbiased([4.0]).tolist() == [4.0]
