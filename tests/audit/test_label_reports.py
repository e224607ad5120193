"""A run's own reports against its labels: within the claim, near it, and a broken run caught."""

import math

import numpy as np
import pytest

from sfumato.audit import label_reports
from sfumato.core import Guarantee, Neighbours, SeededCoins
from sfumato.core.randomness import fair_coins

SURE = 1 - 1e-6


def audit_reports(labels, reports, coins=None, **more):
    """With coins that are the same every time."""
    return label_reports.audit_reports(labels, reports, coins=coins or SeededCoins(0), **more)


def claim(epsilon):
    return Guarantee(epsilon, 0.0, Neighbours.REPLACE_ONE, "label")


def run(epsilon, classes, rows, seed=0):
    """Labels, and a report of each by randomised response."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    kept = rng.random(rows) < math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    others = (labels + rng.integers(1, classes, rows)) % classes
    return labels, np.where(kept, labels, others)


def vectors(epsilon, classes, rows, seed=0):
    """The same by Laplace noise on one-hot vectors."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, rows)
    noise = rng.laplace(0, 2 / epsilon, (rows, classes))
    return labels, np.round(np.eye(classes)[labels] + noise, 4)


@pytest.mark.parametrize(("made", "least"), [(run, 0.8), (vectors, 0.5)])
@pytest.mark.parametrize(("epsilon", "classes"), [(1.0, 2), (2.0, 2), (2.0, 5)])
def test_an_honest_run_is_near_its_claim(made, least, epsilon, classes):
    found = audit_reports(*made(epsilon, classes, 20_000), claim=claim(epsilon), confidence=SURE)
    assert not found.refuted
    assert found.epsilon > least * epsilon * (0.7 if classes > 2 else 1)
    assert found.private
    assert found.facts["rows"] == 20_000


@pytest.mark.parametrize("made", [run, vectors])
@pytest.mark.parametrize("classes", [2, 5])
def test_a_run_at_twice_its_epsilon_is_caught(made, classes):
    labels, told = made(2.0, classes, 20_000)
    found = audit_reports(labels, told, claim=claim(1.0), confidence=SURE)
    assert found.refuted
    assert found.epsilon < 2


def test_a_tenth_shows_where_there_are_rows_enough():
    found = audit_reports(*run(1.1, 2, 200_000), claim=claim(1.0), confidence=SURE)
    assert found.refuted
    assert not audit_reports(*run(1.0, 2, 200_000), claim=claim(1.0), confidence=SURE).refuted


def test_the_confidence_holds_after_the_search():
    """Of 100 audits of reports that tell nothing, at 90 %: at most 32, as 1e-9 allows."""
    wrong = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        labels, told = rng.integers(0, 5, 400), rng.integers(0, 5, 400)
        found = audit_reports(labels, told, confidence=0.9, coins=SeededCoins(seed))
        wrong += found.epsilon > 0
    assert wrong <= 32


def test_rows_that_are_counted_choose_nothing():
    """Other reports of theirs leave the classes and the event as they were."""
    labels, told = run(3.0, 4, 2000)
    counted = fair_coins(2000, SeededCoins(2))
    found = audit_reports(labels, told, coins=SeededCoins(2)).facts
    rng = np.random.default_rng(1)
    for _ in range(10):
        others = np.where(counted, rng.integers(0, 4, 2000), told)
        again = audit_reports(labels, others, coins=SeededCoins(2)).facts
        for name in ("labels", "event", "likelier_on"):
            assert again[name] == found[name]
        rates = (again["inside"], again["outside"])
        assert rates != (found["inside"], found["outside"])


def test_half_of_the_rows_are_counted():
    """Of two classes, each."""
    labels, told = run(1.0, 4, 8000)
    found = audit_reports(labels, told, claim=claim(1.0), coins=SeededCoins(2))
    for (_, trials), label in zip(
        (found.facts["inside"], found.facts["outside"]),
        found.facts["labels"] if found.facts["likelier_on"] == "first"
        else found.facts["labels"][::-1],
        strict=True,
    ):  # fmt: skip
        size = int((labels == label).sum())
        assert abs(trials - size / 2) < 6 * math.sqrt(size) / 2


@pytest.mark.parametrize(
    "labels", [[], [0] * 100, [0, 1] * 5, list(range(50))], ids=["none", "one", "few", "all apart"]
)
def test_too_few_rows_show_nothing_and_raise_nothing(labels):
    found = audit_reports(np.array(labels, dtype=int), np.zeros(len(labels)), claim=claim(1.0))
    assert found.epsilon == 0
    assert not found.refuted
    assert "event" not in found.facts


def test_of_many_classes_the_commonest_are_tried():
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.repeat(np.arange(12), 40), np.repeat([20, 21], 400)])
    found = audit_reports(labels, np.where(labels < 20, rng.integers(0, 12, len(labels)), labels))
    assert found.facts["pairs_tried"] == 45
    assert {20, 21} & set(found.facts["labels"])
    assert found.epsilon > 3


def test_mistakes():
    with pytest.raises(ValueError, match="reports must be one for each"):
        audit_reports([0, 1], [0])
    for confidence in (0.0, 1.0):
        with pytest.raises(ValueError, match="confidence must be"):
            audit_reports([0, 1], [0, 1], confidence=confidence)
