"""Claimed sensitivities: never passed by a search, and reached where they are tight."""

import numpy as np
import pytest

from sfumato.core.neighbours import Neighbours
from sfumato.learning.erm.losses import HuberHinge, HuberSquare, SimplexLogistic
from sfumato.learning.erm.sensitivity import minimiser_bound, one_step, stochastic_bound
from sfumato.learning.erm.solving import Accuracy, Objective, minimise
from sfumato.learning.erm.stochastic import PASSES, BoltOn
from sfumato.learning.erm.tasks import Task

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
LOSSES = [SimplexLogistic(2), SimplexLogistic(3), HuberHinge(1, 0.5), HuberHinge(3), HuberSquare()]


def random_table(rng, loss, count, columns=2):
    """Records at the edges of the domain, mostly equal, or anywhere."""
    kind = rng.integers(3)
    rows = rng.normal(size=(count, columns))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    if kind == 0:
        rows = np.repeat(rows[:1], count, axis=0)
    elif kind == 1:
        rows *= rng.choice([0.0, 1.0, 0.5], (count, 1))
    return rows, random_targets(rng, loss, count)


def random_targets(rng, loss, count):
    if isinstance(loss, SimplexLogistic):
        return rng.integers(0, loss.classes, count)
    if isinstance(loss, HuberHinge):
        return rng.choice([-1.0, 1.0], (count, loss.machines))
    return rng.choice([-1.0, 1.0, 0.2], count)


def minimiser(loss, records, regularisation, rows, targets):
    return minimise(
        Objective(Accuracy(loss, records, rows.shape[1], regularisation), rows, targets)
    )


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("neighbours", [REPLACE, ADD])
def test_no_pair_of_neighbours_passes_the_claim(loss, neighbours):
    rng, records = np.random.default_rng(7), 8
    found = []
    for trial in range(40):
        regularisation = (0.02, 0.3, 2.0)[trial % 3]
        rows, targets = random_table(rng, loss, records)
        other, label = random_table(rng, loss, 1)
        if neighbours is REPLACE:
            moved = np.vstack([other, rows[1:]]), np.concatenate([label, targets[1:]])
        else:
            moved = rows[1:], targets[1:]
        first = minimiser(loss, records, regularisation, rows, targets)
        second = minimiser(loss, records, regularisation, *moved)
        claim = minimiser_bound(loss, records, regularisation, neighbours)
        found.append(np.linalg.norm(first - second) / claim)
    assert max(found) <= 1
    assert max(found) > 0.25


def test_the_tight_example():
    """A linear loss, n = 50, R = 0.1 ||w||^2: 0.2, exactly."""
    loss = HuberHinge(1, 0.5)
    rows, signs = np.ones((50, 1)), np.array([1.0, -1.0] * 25)[:, None]
    flipped = signs.copy()
    flipped[0] = -1
    moved = minimiser(loss, 50, 0.2, rows, signs) - minimiser(loss, 50, 0.2, rows, flipped)
    claim = minimiser_bound(loss, 50, 0.2, REPLACE)
    assert claim == pytest.approx(0.2, rel=1e-9)
    assert 0.9 * claim < abs(moved.item()) <= claim
    removed = minimiser(loss, 50, 0.2, rows, signs) - minimiser(loss, 50, 0.2, rows[1:], signs[1:])
    assert abs(removed.item()) == pytest.approx(0.1, rel=1e-6)
    assert minimiser_bound(loss, 50, 0.2, ADD) == pytest.approx(0.1, rel=1e-9)


def test_the_solvers_distance_is_counted_on_both_sides():
    plain = minimiser_bound(HuberHinge(), 50, 0.2, REPLACE)
    assert minimiser_bound(HuberHinge(), 50, 0.2, REPLACE, 0.01) == pytest.approx(plain + 0.02)


@pytest.mark.parametrize("loss", [SimplexLogistic(2), HuberHinge(1, 0.5)], ids=str)
def test_stochastic_descent_stays_within_its_bound(loss):
    rng, found = np.random.default_rng(2), []
    for _ in range(25):
        rows, targets = random_table(rng, loss, 120)
        at = int(rng.integers(120))
        other, label = random_table(rng, loss, 1)
        moved, labels = rows.copy(), targets.copy()
        moved[at], labels[at] = other[0], label[0]
        way = BoltOn(Task(loss, 120, 2, 1.0, 1e-5, regularisation=0.3))
        claim = stochastic_bound(loss, 120, 0.3, 50, PASSES, 2)
        found.append(np.linalg.norm(way.last(rows, targets) - way.last(moved, labels)) / claim)
    assert max(found) <= 1


def test_stochastic_descent_reaches_its_bound_for_a_linear_loss():
    loss = HuberHinge(1, 0.5)
    rows, signs = np.ones((100, 1)), np.array([1.0, -1.0] * 50)[:, None]
    flipped = signs.copy()
    flipped[99] = 1
    way = BoltOn(Task(loss, 100, 1, 1.0, 1e-5, regularisation=0.5))
    moved = abs((way.last(rows, signs) - way.last(rows, flipped)).item())
    claim = stochastic_bound(loss, 100, 0.5, 50, PASSES, 1)
    assert 0.9 * claim < moved <= claim
    # The printed bound for such rates, and for batches.
    assert claim <= 2 * 1 / (0.5 * 100) * 1.05


def test_columns_are_part_of_the_rounding_of_descent():
    few, many = (
        stochastic_bound(SimplexLogistic(2), 1000, 0.1, 50, PASSES, columns)
        for columns in (1, 10**6)
    )
    # At least a unit for each column of a slope, in each step of both runs.
    assert many - few >= 2 * 2.0**-53 * 200 * 10**6 * 0.25 * 10


def test_to_blank_a_record_is_to_replace_it():
    assert [one_step(Neighbours(r)) for r in ("add-remove", "replace-one", "zero-out")] == [1, 2, 2]
