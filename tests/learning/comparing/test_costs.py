"""Runs that are published together cost the sum, by unit and relation."""

import math

import pytest

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.costs import costs_of


def promise(epsilon, delta=1e-6, neighbours="add-remove", unit="record"):
    return Guarantee(epsilon, delta, neighbours, unit)


def test_epsilons_and_deltas_add_up():
    (cost,) = costs_of([promise(0.5), promise(2.0), promise(8.0)])
    assert cost.guarantee.epsilon == pytest.approx(10.5)
    assert cost.guarantee.delta == pytest.approx(3e-6)
    assert (cost.runs, cost.in_all) == (3, False)


def test_basic_composition_is_never_below_the_exact_cost():
    """Four Gaussian releases cost less together than the sum says, which is a bound."""
    from sfumato.accounting import account
    from sfumato.core.events import GaussianEvent, repeat

    one = account(GaussianEvent(3.0), 1e-6)
    (cost,) = costs_of([one] * 4)
    exact = account(repeat(GaussianEvent(3.0), 4), cost.guarantee.delta)
    assert exact.epsilon <= cost.guarantee.epsilon


def test_labels_are_not_added_to_records_but_records_to_labels():
    """A label is part of a record: what protects the one from replacements protects the other."""
    of_records, of_labels, in_all = costs_of(
        [promise(1.0), promise(3.0, 0.0, "replace-one", "label")]
    )
    assert (of_records.guarantee.epsilon, of_records.guarantee.unit) == (1.0, "record")
    assert (of_labels.guarantee.epsilon, of_labels.guarantee.unit) == (3.0, "label")
    assert (in_all.guarantee.epsilon, in_all.guarantee.unit) == (5.0, "label")
    assert in_all.in_all
    (alone,) = costs_of([promise(3.0, 0.0, "replace-one", "label")])
    assert not alone.in_all


def test_two_relations_are_added_as_replacements_where_one_more_counts_twice():
    added, replaced, in_all = costs_of([promise(1.0), promise(3.0, 1e-6, "replace-one")])
    assert (added.guarantee.epsilon, replaced.guarantee.epsilon) == (1.0, 3.0)
    assert in_all.in_all
    assert in_all.guarantee.neighbours is Neighbours.REPLACE_ONE
    assert in_all.guarantee.epsilon == pytest.approx(5.0)
    assert in_all.guarantee.delta == pytest.approx(1e-6 * (1 + math.e) + 1e-6)


def test_runs_without_privacy_are_not_hidden_in_a_sum():
    (cost,) = costs_of([promise(1.0), promise(math.inf, 0.0)])
    assert (cost.runs, cost.guarantee.epsilon) == (1, 1.0)
    assert costs_of([promise(math.inf, 0.0)]) == ()


def test_it_is_said_in_words():
    assert str(costs_of([promise(1.0)])[0]) == (
        "epsilon 1, delta 1e-06, add or remove one record (1 run)"
    )
