"""Reports as games: the laws that mechanisms state are those that their code has."""

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.core import Neighbours, SeededCoins
from sfumato.learning.label_dp.games import label_game, label_game_names

FINITE = [name for name in label_game_names() if name != "alibi"]


def game(name, epsilon=1.0, classes=6, seed=1):
    return label_game(name, epsilon=epsilon, classes=classes, coins=SeededCoins(seed))


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("name", label_game_names())
def test_laws_add_up_and_differ_by_epsilon_at_most_and_at_least(name, classes):
    made = game(name, 0.7, classes)
    laws = [made.law(label) for label in made.labels]
    for law in laws:
        assert law.sum() == pytest.approx(1, abs=1e-12)
    told = laws[0] > 0
    ratios = [np.log(p[told] / q[told]).max() for p in laws for q in laws]
    assert max(ratios) == pytest.approx(0.7, rel=1e-12)
    assert all(((law > 0) == told).all() for law in laws)
    assert made.guarantee.epsilon == 0.7
    assert made.guarantee.neighbours is Neighbours.REPLACE_ONE
    assert made.guarantee.unit == "label"


@pytest.mark.parametrize("name", FINITE)
def test_reports_have_the_law(name):
    """A chi-squared test of each label's reports; fixed coins."""
    made = game(name)
    for label in made.labels:
        names, seen = np.unique(made.draw(label, 6000), return_counts=True)
        law = made.law(label)
        expected = 6000 * law[law > 0]
        assert len(names) == len(expected)
        assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_vectors_have_the_law():
    made = game("alibi")
    for label in made.labels:
        told = made.draw(label, 6000)[:, :2]
        cells = 3 * np.digitize(told[:, 0], [0, 1]) + np.digitize(told[:, 1], [0, 1])
        seen = np.bincount(cells, minlength=9)
        assert stats.chisquare(seen, 6000 * made.law(label)).pvalue > 1e-3


@pytest.mark.parametrize("name", ["top-k", "with-prior"])
def test_a_label_outside_of_the_set_is_tried_as_well(name):
    made = game(name, classes=10)
    assert made.labels == (0, 1, 9)
    assert made.law(9)[0] == pytest.approx(1 / 5)
    assert made.law(0)[0] == pytest.approx(math.e / (math.e + 4))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "magic"}, "mechanism must be one of response"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"classes": 1}, "classes must be"),
        ({"classes": 600}, "classes must be at most 512"),
    ],
)
def test_mistakes(change, message):
    given = {"name": "bins", "epsilon": 1.0} | change
    with pytest.raises(ValueError, match=message):
        label_game(given.pop("name"), **given)
