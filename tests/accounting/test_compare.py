"""The comparison of theorems: the lecture's own numbers, and any others."""

import json

import pytest

import sfumato as sf
from sfumato.accounting import compare


@pytest.fixture(scope="module")
def slide():
    return compare(4, 0.01, 10_000, 1e-5)


def row(comparison, name):
    return next(row for row in comparison.rows if row.name == name)


@pytest.mark.parametrize(
    ("name", "epsilon", "delta", "tolerance"),
    [
        ("naive", 11_996, 0.1, 1),
        ("strong", 28_391, 0.10001, 3),
        ("sampled", 16.32, 1.01e-3, 0.02),
        ("moments", 1.2586, 1e-5, 1e-4),
        ("RDP", 1.0355, 1e-5, 1e-4),
        ("PLD", 0.9470, 1e-5, 2e-4),
        ("PLD, replaced", 1.9932, 1e-5, 1e-3),
    ],
)
def test_each_theorem_done_right(slide, name, epsilon, delta, tolerance):
    found = row(slide, name)
    assert found.epsilon == pytest.approx(epsilon, abs=tolerance)
    assert found.delta == pytest.approx(delta, rel=0.02)


@pytest.mark.parametrize(
    ("name", "formula", "truth", "is_theorem"),
    [
        ("naive", 11_996, 343.6, True),
        ("strong", 407, 343.6, False),
        ("sampled", 8.14, 0.605, False),
        ("moments", 2.4, 0.947, False),
    ],
)
def test_each_printed_formula(slide, name, formula, truth, is_theorem):
    claim = row(slide, name).claim
    assert claim.formula_epsilon == pytest.approx(formula, rel=2e-3)
    assert claim.true_epsilon == pytest.approx(truth, rel=0.02)
    assert claim.formula_is_theorem is is_theorem
    assert claim.holds  # all four statements are true, three of them not for the reason given


def test_what_the_lecture_printed_stands_beside_it(slide):
    """(12,000, .1), (360, .1), (10, .001) and (1.25, 1e-5); of other numbers it printed none."""
    names = ("naive", "strong", "sampled", "moments")
    assert [row(slide, name).claim.printed_epsilon for name in names] == [12_000, 360, 10, 1.25]
    other = compare(4, 0.01, 9_999, 1e-5)
    assert [row(other, name).claim.printed_epsilon for name in names] == [None] * 4


def test_optimal_composition_is_below_the_others(slide):
    assert row(slide, "strong, best").epsilon < row(slide, "strong").epsilon
    assert row(slide, "sampled, best").epsilon < row(slide, "sampled").epsilon
    assert row(slide, "PLD").epsilon < row(slide, "RDP").epsilon < row(slide, "moments").epsilon


def test_printed_numbers_are_for_the_lectures_own_parameters_only():
    other = compare(8, 0.02, 500, 1e-6)
    assert all(row.claim is None or row.claim.printed_epsilon is None for row in other.rows)


def test_json(slide):
    data = json.loads(json.dumps(slide.to_dict()))
    assert [row["name"] for row in data["rows"]] == [row.name for row in slide.rows]
    assert data["rows"][0]["claim"]["holds"] is True


def test_where_the_steps_own_formula_fails_there_is_nothing_to_compose():
    with pytest.raises(ValueError, match="noise_multiplier must be larger"):
        compare(0.2, 0.01, 10, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 0.01, 10, 1e-5), "noise_multiplier"),
        ((4, 0, 10, 1e-5), "sample_rate"),
        ((4, 0.01, 0, 1e-5), "steps"),
        ((4, 0.01, 10, 0), "delta"),
    ],
)
def test_bad_parameters(arguments, named):
    with pytest.raises(ValueError, match=named):
        compare(*arguments)


def test_exact_rows_are_what_account_says(slide):
    assert row(slide, "PLD").epsilon == sf.account(sf.dp_sgd(4, 0.01, 10_000), 1e-5).epsilon
