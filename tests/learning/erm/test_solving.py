"""The solver: the promised accuracy on every table, by either way."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from sfumato.learning.erm import solving
from sfumato.learning.erm.losses import HuberHinge, HuberSquare, SimplexLogistic
from sfumato.learning.erm.solving import Accuracy, Objective, minimise

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
        monkeypatch.setattr(solving, "_newton", lambda objective: None)
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
