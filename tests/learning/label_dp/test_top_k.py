"""Randomised response within public sets: exact laws, within the claim and at it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from sfumato.audit.exact import exact_epsilon
from sfumato.core import Neighbours, SeededCoins
from sfumato.learning.label_dp import BinnedResponse, LabelRecipe, NoisyOneHot, RegressionLabels
from sfumato.learning.label_dp.top_k import TopKResponse
from sfumato.mechanisms.randomized_response import keep_probability


def law(response, label, allowed):
    """The probability of each report, by the likelihood of every one that may be made."""
    found = np.zeros(len(allowed))
    for report in np.flatnonzero(allowed):
        found[report] = response.likelihood([report], np.array([allowed]))[0, label]
    return found


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_law_is_within_the_claim_and_reaches_it(epsilon, size) -> None:
    response = TopKResponse(epsilon)
    allowed = np.arange(5) < size
    laws = [law(response, label, allowed) for label in range(5)]
    assert all(sum(one) == pytest.approx(1, abs=1e-12) for one in laws)
    shown = max(exact_epsilon(p, q, 0.0) for p in laws for q in laws)
    assert shown <= epsilon
    if size > 1:
        assert shown == pytest.approx(epsilon, rel=1e-9)
    else:
        assert shown == 0


@pytest.mark.parametrize("epsilon", [2**-32, 0.3, 2.0, 50.0])
@pytest.mark.parametrize("size", [2, 3, 10])
def test_privacy_is_exact_in_fractions(epsilon, size) -> None:
    p = keep_probability(epsilon, size)
    q, outside = (1 - p) / (size - 1), Fraction(1, size)
    e = math.exp(epsilon)
    for one in (p, q, outside):
        for other in (p, q, outside):
            assert float(one / other) <= e * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "keep"), [(1, 0.231969), (2, 0.450853), (4, 0.858486), (8, 0.996990)]
)
def test_all_classes_are_plain_randomised_response(epsilon, keep) -> None:
    found = TopKResponse(epsilon).keep(np.ones((2, 10), dtype=bool))
    assert found == pytest.approx([keep, keep], abs=5e-7)


def test_reports_have_the_law() -> None:
    """A chi-squared test of each label's reports; fixed coins."""
    response, n = TopKResponse(1.5), 20_000
    allowed = np.array([True, False, True, True])
    sets, coins = np.tile(allowed, (n, 1)), SeededCoins(3)
    for label in range(4):
        reports = response.perturb(np.full(n, label), sets, coins=coins)
        seen = np.bincount(reports, minlength=4)
        assert seen[1] == 0
        expected = n * law(response, label, allowed)
        assert stats.chisquare(seen[allowed], expected[allowed]).pvalue > 1e-3


def test_sets_of_many_sizes_at_once() -> None:
    sets = np.array([[True, False, False], [True, True, False], [True, True, True]] * 50)
    reports = TopKResponse(20.0).perturb([2, 1, 2] * 50, sets, coins=SeededCoins(0))
    assert (reports[::3] == 0).all()
    assert (reports[1::3] == 1).all()
    assert (reports[2::3] == 2).all()


def test_another_label_moves_no_other_report() -> None:
    """As many coins are used, whatever the labels are: also for a label outside of its set."""
    generator = np.random.default_rng(0)
    labels, sets = generator.integers(0, 6, 300), generator.random((300, 6)) < 0.5
    sets[:, 0] = True
    other = labels.copy()
    other[17] = (other[17] + 3) % 6
    one, two = (
        TopKResponse(1.0).perturb(which, sets, coins=SeededCoins(5)) for which in (labels, other)
    )
    assert (np.delete(one, 17) == np.delete(two, 17)).all()


def test_what_is_no_label_counts_as_the_default() -> None:
    sets = np.ones((5, 3), dtype=bool)
    for bad in ([np.nan] * 5, [7] * 5, [-1] * 5, ["x"] * 5, [None] * 5, [0.5] * 5):
        found = TopKResponse(40.0, default=2).perturb(bad, sets, coins=SeededCoins(1))
        assert found.tolist() == [2] * 5


def test_event_and_guarantee() -> None:
    response = TopKResponse(2.0)
    assert response.event.epsilon == response.guarantee(1e-5).epsilon == 2.0
    assert response.event.neighbours is Neighbours.REPLACE_ONE
    assert response.event.unit == "label"


def test_mistakes() -> None:
    for epsilon in (0, -1, math.inf, math.nan, 1e-20):
        with pytest.raises(ValueError, match="epsilon must be"):
            TopKResponse(epsilon)
    with pytest.raises(ValueError, match="sets must be"):
        TopKResponse(1.0).perturb([0], np.zeros((1, 3), dtype=bool))
    with pytest.raises(ValueError, match="sets must be a row for each of the 2 labels"):
        TopKResponse(1.0).perturb([0, 1], np.ones((1, 3), dtype=bool))


@pytest.mark.parametrize("labels", [[0, 1], [0, "none"]])
def test_a_default_that_is_no_class_is_refused_whatever_the_labels(labels) -> None:
    with pytest.raises(ValueError, match="default must be a class below 3"):
        TopKResponse(1.0, default=3).perturb(labels, np.ones((2, 3), dtype=bool))


@pytest.mark.parametrize("unit", ["record", "person", ""])
def test_labels_are_never_called_anything_else(unit) -> None:
    made = [
        lambda: TopKResponse(1.0, unit=unit),
        lambda: NoisyOneHot(1.0, 3, unit=unit),
        lambda: BinnedResponse(1.0, (1.0,), (0.0, 2.0), unit=unit),
        lambda: RegressionLabels(1.0, 0, 1, unit=unit),
        lambda: LabelRecipe(1.0, unit=unit),
        lambda: LabelRecipe.from_dict(LabelRecipe(1.0).to_dict() | {"unit": unit}),
    ]
    for make in made:
        with pytest.raises(ValueError, match="unit must be 'label'"):
            make()
