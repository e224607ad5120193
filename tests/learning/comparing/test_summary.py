"""Advice follows from the table: ranked among equals, and silent about what may be chance."""

import math

import pytest

from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.cells import Cell
from sfumato.learning.comparing.store import Result
from sfumato.learning.comparing.summary import advice_of, margin, rows_of

TESTED = 10_000


def result(method, epsilon, accuracy, repeat=0, neighbours="add-remove", unit="record"):
    promise = Guarantee(math.inf if epsilon is None else epsilon, 0.0, neighbours, unit)
    return Result(Cell(method, epsilon, repeat), promise, accuracy, 2.0, 1.0)


def advice(*results, tested=TESTED):
    return advice_of(rows_of(results), Neighbours.ADD_REMOVE, tested)


def test_the_best_at_each_epsilon_by_how_much_and_at_what_cost():
    said = advice(
        result("dp-sgd", 4.0, 0.98),
        result("erm-output", 4.0, 0.90),
        result("dp-sgd", 1.0, 0.80),
        result("erm-output", 1.0, 0.85),
        result("plain", None, 0.99),
    )
    assert said == [
        "At epsilon 1: erm-output, 85.0 % (14.0 points below no privacy). "
        "5.0 points ahead of dp-sgd.",
        "At epsilon 4: dp-sgd, 98.0 % (1.0 points below no privacy). "
        "8.0 points ahead of erm-output.",
    ]


def test_what_may_be_chance_is_said_to_be():
    (said,) = advice(result("dp-sgd", 1.0, 0.902), result("erm-output", 1.0, 0.900))
    assert "Too close to tell from erm-output" in said
    (said,) = advice(result("dp-sgd", 1.0, 0.92), result("erm-output", 1.0, 0.90))
    assert "2.0 points ahead" in said
    (said,) = advice(result("dp-sgd", 1.0, 0.92), result("erm-output", 1.0, 0.90), tested=100)
    assert "Too close" in said


def test_without_a_known_number_of_test_rows_single_runs_are_never_ranked():
    (said,) = advice(result("dp-sgd", 1.0, 0.99), result("erm-output", 1.0, 0.10), tested=None)
    assert "Too close" in said


def test_several_runs_are_told_apart_by_their_spread():
    runs = [result("dp-sgd", 1.0, x, i) for i, x in enumerate((0.90, 0.92, 0.94))]
    close = [result("erm-output", 1.0, x, i) for i, x in enumerate((0.89, 0.91, 0.93))]
    steady = [result("erm-output", 1.0, x, i) for i, x in enumerate((0.85, 0.86, 0.87))]
    assert "Too close" in advice(*runs, *close)[0]
    assert "6.0 points ahead" in advice(*runs, *steady)[0]
    first, second = rows_of([*runs, *steady])[::-1]
    assert (first.runs, first.mean) == (3, pytest.approx(0.92))
    assert first.spread == pytest.approx(0.02)
    expected = 2 * math.hypot(0.02 / math.sqrt(3), 0.01 / math.sqrt(3))
    assert margin(first, second, TESTED) == pytest.approx(expected)


def test_other_promises_are_never_ranked():
    (said,) = advice(
        result("erm-output", 1.0, 0.80),
        result("label-dp", 1.0, 0.99, neighbours="replace-one", unit="label"),
        result("erm-sgd", 1.0, 0.95, neighbours="replace-one"),
    )
    assert said == "At epsilon 1: erm-output, 80.0 %. No other method makes the same promise."


def test_private_may_be_as_good():
    (said,) = advice(result("erm-output", 1.0, 0.80), result("plain", None, 0.80))
    assert "(no privacy: no better)" in said


def test_where_nothing_is_tested_nothing_is_advised():
    assert advice(result("erm-output", 1.0, None)) == []


def test_rows_come_in_the_order_of_methods_and_epsilons():
    asked = [("plain", None), ("dp-sgd", 2.0), ("dp-sgd", 0.5), ("erm-input", 2.0)]
    rows = rows_of([result(method, epsilon, 1.0) for method, epsilon in asked])
    assert [(row.method, row.epsilon) for row in rows] == [
        ("erm-input", 2.0), ("dp-sgd", 0.5), ("dp-sgd", 2.0), ("plain", None),
    ]  # fmt: skip
    assert rows[0].to_dict()["group"] == "input"
    assert rows[1].to_dict()["target"] == rows[1].to_dict()["epsilon"] == 0.5
