"""Numbers as labels: the prior is public, or paid for."""

import math

import numpy as np
import pytest

from sfumato.accounting import account
from sfumato.core import SeededCoins
from sfumato.core.events import ComposedEvent
from sfumato.learning.label_dp.regression import RegressionLabels
from sfumato.ledger import Budget, Ledger


@pytest.mark.parametrize("share", [0.0, 0.1, 1 / 3, 0.9])
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 5.3])
def test_all_of_it_costs_epsilon(epsilon, share) -> None:
    method = RegressionLabels(epsilon, 0, 1, histogram_share=share)
    found = account(method.event, 0.0)
    assert found.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert method.histogram_epsilon + method.report_epsilon <= epsilon
    assert isinstance(method.event, ComposedEvent) == (share > 0)
    assert (found.unit, method.guarantee.unit) == ("label", "label")


def test_the_histogram_is_noised_for_two_counts() -> None:
    """The scale 2 / eps: E |noise| of the discrete Laplace law, over 64 cells and 40 histograms."""
    method = RegressionLabels(1.0, 0, 63, points=64, histogram_share=0.5)
    labels = np.repeat(np.arange(64.0), 100)
    errors = [
        np.abs(method.randomise(labels, coins=SeededCoins(seed)).prior - 100).mean()
        for seed in range(40)
    ]
    b = 2 / 0.5
    expected = 2 * math.exp(-1 / b) / (1 - math.exp(-2 / b))
    assert np.mean(errors) == pytest.approx(expected, rel=0.08)


def test_a_histogram_finds_bins_that_suit() -> None:
    """Labels at both ends: reports by a histogram of theirs are nearer than by an even guess."""
    labels = np.repeat([1.0, 9.0], 2000)
    even = RegressionLabels(2.0, 0, 10, points=21)
    own = RegressionLabels(2.0, 0, 10, points=21, histogram_share=0.05)
    guessed = RegressionLabels(2.0, 0, 10, points=21)
    prior = np.isin(guessed.grid, [1.0, 9.0]).astype(float)
    losses = [
        float(((method.randomise(labels, p, coins=SeededCoins(0)).reports - labels) ** 2).mean())
        for method, p in ((even, None), (own, None), (guessed, prior))
    ]
    assert losses[2] < losses[0]
    assert losses[1] < losses[0]
    assert losses[1] == pytest.approx(losses[2], rel=0.15)


def test_another_label_moves_two_counts_and_its_own_report() -> None:
    method = RegressionLabels(1.0, 0, 3, points=4)
    labels = np.array([0.0, 1, 2, 3, 1, 2])
    other = labels.copy()
    other[2] = 0.0
    prior = [1.0, 2, 2, 1]
    one, two = (method.randomise(y, prior, coins=SeededCoins(3)).reports for y in (labels, other))
    assert (np.delete(one, 2) == np.delete(two, 2)).all()


def test_labels_of_any_kind_and_stamps() -> None:
    method = RegressionLabels(3.0, 0, 10, points=11, histogram_share=0.2)
    told = method.randomise([math.nan, "x", None, math.inf, -5, 99], coins=SeededCoins(0))
    assert len(told.reports) == 6
    assert not told.private
    assert method.randomise([1.0, 2.0]).private


def test_a_budget_of_labels_pays(tmp_path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("income", Budget(2.0), unit="label", neighbours="replace-one")
    method = RegressionLabels(2.0, 0, 10, histogram_share=0.1)
    with ledger.spend("income", method.event) as spending:
        spending.commit(len(method.randomise([1.0, 2.0]).reports))
    assert ledger.status("income").left == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epsilon": 0}, {"lower": 5, "upper": 5}, {"points": 1}, {"points": 600},
        {"histogram_share": 1.0}, {"histogram_share": -0.1}, {"loss": "cubed"},
        {"histogram_share": 1 - 1e-12}, {"histogram_share": 1e-300}, {"epsilon": 1e-11},
        {"epsilon": 1000.0}, {"upper": 5e-324},
    ],
)  # fmt: skip
def test_mistakes_are_found_before_any_label_is_read(arguments) -> None:
    with pytest.raises(ValueError, match="must"):
        RegressionLabels(**({"epsilon": 1.0, "lower": 0, "upper": 1} | arguments))


def test_a_prior_that_is_none_is_found_before_any_label_is_read() -> None:
    class Labels:
        def __array__(self, *_arguments, **_more):
            raise AssertionError("read")

    with pytest.raises(ValueError, match="prior must be"):
        RegressionLabels(1.0, 0, 1, points=3).randomise(Labels(), [1, 2])  # pyright: ignore


def test_a_prior_besides_a_histogram() -> None:
    with pytest.raises(ValueError, match="prior must be left out"):
        RegressionLabels(1.0, 0, 1, points=2, histogram_share=0.5).randomise([0.5], [1, 1])
