"""Printed constants that are valid and waste noise: searched for what would pass the true ones."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from sfumato.audit.exact import exact_epsilon
from sfumato.learning.erm.functional import logistic_coefficients, regression_coefficients
from sfumato.learning.label_dp.top_k import TopKResponse
from sfumato.learning.label_dp.with_prior import best_sets

# --- output perturbation: 4 G / (n lambda) ------------------------------------------------------

RECORDS, LAMBDA = 50, 0.1
TRUE, PRINTED = 1 / (RECORDS * LAMBDA), 4 / (RECORDS * LAMBDA)


def slope(kind, z):
    """Of losses of slope at most 1: linear, logistic, or a hinge rounded off over 1/4."""
    if kind == "linear":
        return -1.0
    return -1 / (1 + math.exp(z)) if kind == "logistic" else -min(max((1.125 - z) * 4, 0.0), 1.0)


def minimiser(kind, signed):
    """Of the mean loss plus lambda w^2, in one dimension; ``signed`` has the x y of each record."""
    far = 1 / (2 * LAMBDA) + 1

    def gradient(w):
        return math.fsum(s * slope(kind, s * w) for s in signed) / RECORDS + 2 * LAMBDA * w

    return brentq(gradient, -far, far, xtol=1e-13)


def test_a_linear_loss_moves_by_the_true_constant_exactly():
    table = [1.0] * RECORDS
    moved = minimiser("linear", table) - minimiser("linear", [-1.0, *table[1:]])
    assert moved == pytest.approx(TRUE, abs=1e-12) == 0.2
    assert pytest.approx(4 * moved) == PRINTED


def test_no_table_moves_by_more():
    rng, worst = np.random.default_rng(11), 0.0
    for trial in range(90):
        kind = ("linear", "logistic", "hinge")[trial % 3]
        table = rng.choice([-1.0, 1.0, 0.0, 0.3], RECORDS)
        if trial % 2:
            table[1:] = np.resize([1.0, -1.0], RECORDS - 1)
        moved = table.copy()
        table[0], moved[0] = 1.0, rng.choice([-1.0, 0.0, -0.5])
        worst = max(worst, abs(minimiser(kind, table) - minimiser(kind, moved)))
    assert 0.9 * TRUE < worst <= TRUE * (1 + 1e-9)
    assert worst < PRINTED / 3.9


# --- functional mechanism -----------------------------------------------------------------------


def records(columns):
    """Unit vectors: those with all entries alike in size, single ones, and any."""
    rng = np.random.default_rng(13)
    alike = rng.choice([-1.0, 1.0], (50, columns))
    for x in (*alike, *np.eye(columns), *rng.normal(size=(200, columns))):
        yield x / np.linalg.norm(x)


@pytest.mark.parametrize("columns", [1, 4, 13, 50])
def test_coefficients_of_a_record_reach_half_of_the_constants(columns):
    """The mechanism is given twice the most that one record's absolute coefficients add up to."""
    squares, logistic = [], []
    for x in records(columns):
        outer = np.abs(np.outer(x, x)).sum()
        squares.append(2 * (1 + 2 * np.abs(x).sum() + outer))
        logistic.append(2 * (np.abs(x).sum() / 2 + outer / 8))
    for found, constant in (
        (squares, regression_coefficients(columns)),
        (logistic, logistic_coefficients(columns)),
    ):
        assert 0.9 * constant < max(found) <= constant * (1 + 1e-12)


def test_what_is_printed_of_thirteen_columns():
    assert 2 * (13 + 1) ** 2 == 392 > 9 * regression_coefficients(13)
    assert 13**2 / 4 + 3 * 13 == 81.25 > 11 * logistic_coefficients(13)


# --- randomised response with a prior -----------------------------------------------------------


def counted_from_zero(prior, epsilon):
    """How many classes the published code keeps: its k starts at 0, its formula's at 1."""
    within = np.sort(prior)[::-1].cumsum()
    lies = (np.arange(len(prior)) - 1) * math.exp(-epsilon)
    return int(np.argmax(within / (1 + lies))) + 1


def right(prior, epsilon, size):
    """How often a report within the ``size`` likeliest classes is the label."""
    return float(np.sort(prior)[::-1][:size].sum() / (1 + (size - 1) * math.exp(-epsilon)))


def test_an_even_prior_is_answered_with_nothing():
    even = np.full(10, 0.1)
    assert counted_from_zero(even, 0.5) == 1
    assert right(even, 0.5, 1) == pytest.approx(0.1)
    best = best_sets([even], 0.5)
    assert best.sizes.tolist() == [10]
    assert best.right[0] == pytest.approx(0.1548, abs=5e-5)


def test_counted_from_zero_reports_are_never_righter_and_as_private():
    rng, epsilon, worse = np.random.default_rng(17), 1.0, 0
    for prior in rng.dirichlet([0.7] * 5, 60):
        size = counted_from_zero(prior, epsilon)
        kept = np.argsort(-prior)[:size]
        best = best_sets([prior], epsilon).right[0]
        assert right(prior, epsilon, size) <= best * (1 + 1e-12)
        worse += right(prior, epsilon, size) < 0.99 * best
        told = np.isin(np.arange(5), kept)[None, :]
        laws = [TopKResponse(epsilon).likelihood([v], told)[0] for v in kept]
        for label in range(1, 5):
            pair = [np.array([law[k] for law in laws]) for k in (0, label)]
            assert exact_epsilon(*pair, 0.0) <= epsilon
    assert worse > 10
