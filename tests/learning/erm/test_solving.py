"""The solver: the promised accuracy on every table, by either way."""

import mpmath
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sfumato.core.neighbours import Neighbours
from sfumato.learning.erm import solving
from sfumato.learning.erm.losses import HuberHinge, HuberSquare, SimplexLogistic
from sfumato.learning.erm.sensitivity import minimiser_bound
from sfumato.learning.erm.solving import (
    Accuracy,
    Objective,
    accelerated_steps,
    least_regularisation,
    minimise,
)

RNG = np.random.default_rng(1)
LOSSES = [SimplexLogistic(2), SimplexLogistic(4), HuberHinge(), HuberSquare()]


def bad_tables(columns):
    one = np.eye(columns)[:1]
    return {
        "none": np.zeros((0, columns)),
        "zeros": np.zeros((40, columns)),
        "the same": np.repeat(one, 40, axis=0),
        "tiny": np.full((40, columns), 1e-200),
        "nearly the same": np.repeat(one, 40, axis=0) * (1 - 1e-9 * RNG.random((40, 1))),
        "spread": RNG.normal(size=(40, columns)) / np.sqrt(9 * columns),
        "more than declared": np.repeat(one, 150, axis=0),
    }


def targets_for(loss, count):
    if isinstance(loss, SimplexLogistic):
        return np.arange(count) % loss.classes
    if isinstance(loss, HuberHinge):
        return np.ones((count, loss.machines))
    return np.ones(count)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("regularisation", [1e-4, 1.0])
@pytest.mark.parametrize("way", ["first", "second"])
def test_the_gradient_is_as_short_as_promised(loss, regularisation, way, monkeypatch):
    if way == "second":
        monkeypatch.setattr(solving, "_newton", lambda *_: None)
    accuracy = Accuracy(loss, 40, 3, regularisation)
    if way == "second" and regularisation < 1:
        accuracy = Accuracy(loss, 40, 3, 0.01)
    for name, rows in bad_tables(3).items():
        objective = Objective(accuracy, rows, targets_for(loss, len(rows)))
        found = np.linalg.norm(objective.gradient(minimise(objective)))
        assert found <= accuracy.gradient, name


def test_newton_is_what_usually_ends_it():
    for loss in (SimplexLogistic(3), HuberHinge(3), HuberSquare()):
        for rows in bad_tables(3).values():
            objective = Objective(Accuracy(loss, 40, 3, 1e-3), rows, targets_for(loss, len(rows)))
            assert solving._newton(objective) is not None


def test_many_weights_take_conjugate_gradients(monkeypatch):
    monkeypatch.setattr(solving, "_DIRECT", 0)
    rows = RNG.normal(size=(300, 8)) / 10
    labels = RNG.integers(0, 5, 300)
    accuracy = Accuracy(SimplexLogistic(5), 300, 8, 1e-3)
    objective = Objective(accuracy, rows, labels)
    found = solving._newton(objective)
    assert np.linalg.norm(objective.gradient(found)) <= accuracy.target


def test_it_is_ordinary_logistic_regression():
    rows, labels = RNG.normal(size=(400, 3)) / 4, RNG.integers(0, 2, 400)
    weak = 0.01
    found = minimise(Objective(Accuracy(SimplexLogistic(2), 400, 3, weak), rows, labels))
    peer = LogisticRegression(C=1 / (400 * weak), fit_intercept=False, tol=1e-10).fit(rows, labels)
    assert np.allclose(found.ravel(), peer.coef_.ravel(), atol=1e-6)


def test_a_tilt_is_a_linear_term():
    rows, values = RNG.normal(size=(200, 2)) / 4, RNG.uniform(-0.5, 0.5, 200)
    tilt = np.array([[3.0], [-1.0]])
    accuracy = Accuracy(HuberSquare(50.0), 200, 2, 0.1, tilt=4.0)
    found = minimise(Objective(accuracy, rows, values, tilt))
    matrix = rows.T @ rows / 200 + 0.1 * np.eye(2)
    wanted = np.linalg.solve(matrix, rows.T @ values / 200 - tilt.ravel() / 200)
    assert np.allclose(found.ravel(), wanted, atol=1e-9)


def test_what_is_promised_is_small_against_one_record():
    """The distance adds little to the sensitivity, for tables of any usual size."""
    for records in (100, 25_000, 1_000_000):
        accuracy = Accuracy(SimplexLogistic(2), records, 12, 1e-3)
        assert accuracy.gradient * records < (1e-3 if records < 1e6 else 0.1)
        assert accuracy.gradient > accuracy.target > accuracy.rounding


def true_gradient(objective, weights):
    """To 60 digits."""
    with mpmath.workprec(200):
        return np.linalg.norm(objective.with_bits(200).gradient(weights).astype(float))


@pytest.mark.parametrize("loss", [SimplexLogistic(3), HuberHinge(2), HuberSquare()], ids=str)
@pytest.mark.parametrize("times", [50, 1500])
def test_many_more_rows_than_declared(loss, times, monkeypatch):
    """The distance that is claimed does not depend on how many rows there are."""
    monkeypatch.setattr(solving, "_SHARE", 1e-14)  # so that rounding is all there is
    rows = RNG.normal(size=(times, 2)) / 4
    accuracy = Accuracy(loss, 1, 2, 0.5)
    objective = Objective(accuracy, rows, targets_for(loss, times))
    assert accuracy.bits(objective.ratio) > 53
    assert true_gradient(objective, solving._solved(objective)) <= accuracy.gradient
    assert np.linalg.norm(minimise(objective)) <= accuracy.farthest * (1 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_many_more_rows_by_the_second_way(loss, monkeypatch):
    monkeypatch.setattr(solving, "_newton", lambda *_: None)
    accuracy, rows = Accuracy(loss, 2, 3, 0.5), np.repeat(np.eye(3)[:1], 200, axis=0)
    objective = Objective(accuracy, rows, targets_for(loss, 200))
    assert accelerated_steps(accuracy, 100) > accelerated_steps(accuracy)
    assert true_gradient(objective, solving._solved(objective)) <= accuracy.gradient


@pytest.mark.parametrize("extra", [1, 60])
def test_one_row_more_moves_results_no_further_where_there_are_many(extra):
    accuracy = Accuracy(HuberSquare(50.0), 5, 2, 0.3)
    for trial in range(20):
        rng = np.random.default_rng(trial)
        rows = rng.normal(size=(20 * extra, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        values = np.sign(rows[:, 0])
        found = [minimise(Objective(accuracy, rows[k:], values[k:])) for k in (0, 1)]
        claim = minimiser_bound(accuracy.loss, 5, 0.3, Neighbours.ADD_REMOVE, accuracy.distance)
        assert np.linalg.norm(found[0] - found[1]) <= claim


def test_results_are_held_to_a_public_ball():
    accuracy = Accuracy(HuberHinge(), 10, 1, 1.0)
    assert accuracy.held(np.array([[1e9]])).item() == pytest.approx(accuracy.farthest)
    assert accuracy.held(np.array([[0.25]])).item() == 0.25


def test_a_second_way_that_falls_short_is_seen_and_done_again(monkeypatch):
    rows = RNG.normal(size=(40, 2)) / 4
    objective = Objective(Accuracy(HuberSquare(), 40, 2, 0.1), rows, np.ones(40))
    usual, asked = solving._accelerated, []

    def short(given):
        asked.append(given.bits)
        with monkeypatch.context() as patched:
            if given.bits == 53:
                patched.setattr(solving, "accelerated_steps", lambda *_: 2)
            return usual(given)

    monkeypatch.setattr(solving, "_newton", lambda *_: None)
    monkeypatch.setattr(solving, "_accelerated", short)
    found = solving._solved(objective)
    assert asked == [53, 106]
    assert true_gradient(objective, found) <= objective.accuracy.gradient


def test_what_would_take_too_long_is_refused():
    with pytest.raises(ValueError, match="regularisation must be greater: it could take"):
        Accuracy(SimplexLogistic(2), 1000, 3, 1e-11)
    for loss in (SimplexLogistic(2), SimplexLogistic(50), HuberHinge(9, 0.01), HuberSquare(0.01)):
        for records in (1, 10**4, 10**9):
            assert accelerated_steps(Accuracy(loss, records, 100, least_regularisation(loss))) > 0


@pytest.mark.parametrize("bits", [53, 64, 120])
def test_more_digits_have_the_gradient_nearer(bits):
    rows = RNG.normal(size=(1500, 3)) / 4
    weights = RNG.normal(size=(3, 3)) * 5
    for loss in (SimplexLogistic(4), HuberHinge(3, 0.3)):
        accuracy = Accuracy(loss, 10, 3, 0.1)
        objective = Objective(accuracy, rows, targets_for(loss, 1500))
        with mpmath.workprec(300):
            wanted = objective.with_bits(300).gradient(weights)
        with mpmath.workprec(bits + 8):
            found = objective.with_bits(bits).gradient(weights)
        with mpmath.workprec(300):
            off = np.linalg.norm((wanted - found).astype(float))
        assert off <= accuracy.rounding_of(objective.ratio, 2.0 ** (1 - bits))
