"""Losses: slopes and curvatures by differences, and every constant reached and never passed."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from sfumato.learning.erm.losses import HuberHinge, HuberSquare, SimplexLogistic

RNG = np.random.default_rng(3)
LOSSES = [
    SimplexLogistic(2), SimplexLogistic(3), SimplexLogistic(10),
    HuberHinge(1, 0.5), HuberHinge(3, 1.0), HuberSquare(1.0), HuberSquare(0.3),
]  # fmt: skip


def targets_of(loss, count):
    if isinstance(loss, SimplexLogistic):
        return RNG.integers(0, loss.classes, count)
    if isinstance(loss, HuberHinge):
        return RNG.choice([-1.0, 1.0], (count, loss.machines))
    return RNG.uniform(-1, 1, count)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_and_curvatures_are_derivatives(loss):
    z, targets, h = RNG.normal(0, 2, (60, loss.outputs)), targets_of(loss, 60), 1e-5
    slopes, bends = loss.slopes(z, targets), loss.curvatures(z, targets)
    for j in range(loss.outputs):
        step = h * np.eye(loss.outputs)[j]
        up, down = z + step, z - step
        found = (loss.values(up, targets) - loss.values(down, targets)) / (2 * h)
        assert np.allclose(found, slopes[:, j], atol=1e-5)
        found = (loss.slopes(up, targets) - loss.slopes(down, targets)) / (2 * h)
        assert np.abs(found - bends[:, :, j]).max() < 1e-4


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_constants_hold_and_are_reached(loss):
    spread = np.concatenate([RNG.normal(0, s, (400, loss.outputs)) for s in (0.01, 1, 30)])
    targets = targets_of(loss, len(spread))
    lengths = np.linalg.norm(loss.slopes(spread, targets), axis=1)
    assert lengths.max() <= loss.lipschitz * (1 + 1e-12)
    assert lengths.max() > 0.9 * loss.lipschitz
    bends = loss.curvatures(spread, targets)
    tops = np.linalg.eigvalsh(bends)
    assert tops.min() > -1e-12
    assert tops.max() <= loss.smoothness * (1 + 1e-9)
    zero = np.zeros_like(spread)
    assert loss.values(zero, targets).max() <= loss.at_zero * (1 + 1e-12)
    for strength in (0.01, 1.0, 50.0):
        grown = np.linalg.slogdet(np.eye(loss.outputs) + bends / strength)[1]
        assert grown.max() <= loss.log_volume(strength) * (1 + 1e-9)
        assert grown.max() > 0.9 * loss.log_volume(strength)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes_are_a_simplex_of_edge_one(classes):
    codes = SimplexLogistic(classes).codes
    for one, other in itertools.combinations(codes, 2):
        assert np.linalg.norm(one - other) == pytest.approx(1)
    assert np.abs(codes.sum(axis=0)).max() < 1e-12
    assert SimplexLogistic(2).codes.ravel().tolist() == pytest.approx([-0.5, 0.5])


def test_many_classes_are_softmax_regression():
    z = RNG.normal(0, 2, (20, 3))
    loss = SimplexLogistic(4)
    logits = z @ loss.codes.T
    wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(loss.probabilities(z), wanted)
    values = loss.values(z, np.full(20, 2))
    assert np.allclose(values, -np.log(wanted[:, 2]))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_slopes_lie_in_the_hull_of_the_corners(loss):
    """As many corners, and as long, as claimed; a slope is a mean of them and of 0."""
    if isinstance(loss, SimplexLogistic):
        corners = loss.codes - loss.codes[0]
        made = corners[np.linalg.norm(corners, axis=1) > 1e-9]
        # sum_k p_k q_k - q_0 = sum_k p_k (q_k - q_0): weights are probabilities.
        z = RNG.normal(0, 3, (50, loss.outputs))
        slopes = loss.slopes(z, np.zeros(50, dtype=int))
        assert np.allclose(loss.probabilities(z) @ corners, slopes)
    elif isinstance(loss, HuberHinge):
        made = np.array([c for c in itertools.product([0, -1.0], repeat=loss.machines) if any(c)])
        slopes = loss.slopes(RNG.normal(0, 3, (99, loss.machines)), np.ones((99, loss.machines)))
        assert ((slopes <= 0) & (slopes >= -1)).all()
    else:
        made = np.array([[-loss.threshold], [loss.threshold]])
    lengths = sorted(np.linalg.norm(made, axis=1))
    claimed = sorted(r for count, r in loss.corners for _ in range(count))
    assert lengths == pytest.approx(claimed)


def test_the_volume_for_two_classes():
    assert SimplexLogistic(2).log_volume(5.0) == pytest.approx(math.log1p(0.25 / 5))


@pytest.mark.parametrize("classes", [2, 3, 10, 40])
def test_codes_are_never_more_than_1_apart(classes):
    """As the numbers they are, without rounding."""
    codes = [[Fraction(cell) for cell in row] for row in SimplexLogistic(classes).codes.tolist()]
    for one, other in itertools.combinations(codes, 2):
        assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) <= 1


@pytest.mark.parametrize(
    "loss", [SimplexLogistic(2), SimplexLogistic(100), HuberHinge(5, 0.01), HuberSquare()], ids=str
)
def test_slopes_are_off_by_no_more_than_is_said(loss):
    columns, radius = 6, 300.0
    rows, weights = RNG.normal(size=(8, columns)), RNG.normal(size=(columns, loss.outputs))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1 + 1e-12)
    weights *= radius / np.linalg.norm(weights) * (1 - 1e-12)
    targets = targets_of(loss, 8)
    found = loss.slopes(rows @ weights, targets)
    with mpmath.workprec(150):
        exact = np.frompyfunc(mpmath.mpf, 1, 1)
        wanted = loss.slopes(exact(rows) @ exact(weights), targets)
        off = np.linalg.norm((wanted - found).astype(float), axis=1)
    assert off.max() <= loss.rounding(columns, radius) * 2.0**-52


def test_narrow_hinges_are_refused():
    for width in (0.0, 1e-3, 1.5, math.nan):
        with pytest.raises(ValueError, match="width"):
            HuberHinge(1, width)
