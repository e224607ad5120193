"""Noise on coefficients: printed and tight sensitivities, and minimisers of what is left."""

import math
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm.functional import (
    Functional,
    exact_sums,
    logistic_coefficients,
    regression_coefficients,
    trimmed_minimiser,
)
from sfumato.learning.erm.losses import HuberHinge, HuberSquare, SimplexLogistic
from sfumato.learning.erm.tasks import Quadratic, Task

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
SQUARES = Quadratic(1.0, 1.0, 1.0, 2.0)
TWO = Quadratic(0.25, 0.5, 0.5, 1.0)


def task(quadratic, neighbours, delta, columns=13, epsilon=1.0, records=1000):
    loss = HuberSquare() if quadratic is SQUARES else SimplexLogistic(2)
    return Task(loss, records, columns, epsilon, delta, neighbours, quadratic=quadratic)


def test_printed_oracles():
    assert regression_coefficients(13) == pytest.approx(42.42, abs=0.005)
    assert logistic_coefficients(13) == pytest.approx(6.856, abs=0.0005)


def test_ours_are_the_tight_ones():
    logistic = Functional(task(TWO, REPLACE, 0.0)).mechanism.sensitivity.bound
    assert logistic == pytest.approx(logistic_coefficients(13))
    squares = Functional(task(SQUARES, REPLACE, 0.0)).mechanism.sensitivity.bound
    # Half the squared residual, without its constant: (2 (1 + sqrt d)^2 - 2) / 2.
    assert squares == pytest.approx((regression_coefficients(13) - 2) / 2)
    added = Functional(task(TWO, ADD, 0.0)).mechanism.sensitivity.bound
    assert added == pytest.approx(6.856 / 2, rel=1e-3)


class Told:
    """Stands for the noise, and keeps what it is given."""

    def perturb(self, values, coins):
        self.values = np.array(values)
        return self.values


def coefficients(way, rows, codes):
    told = Told()
    way.__dict__["regularisation"] = 1.0
    way.__dict__["mechanism"] = told
    way.fit(rows, codes[:, 0], codes, None)
    return told.values


@pytest.mark.parametrize("quadratic", [SQUARES, TWO])
@pytest.mark.parametrize("neighbours", [REPLACE, ADD])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_no_pair_of_neighbours_passes_the_claim(quadratic, neighbours, delta):
    rng, found, columns = np.random.default_rng(0), [], 4
    claim = Functional(task(quadratic, neighbours, delta, columns)).mechanism.sensitivity.bound
    for trial in range(300):
        way = Functional(task(quadratic, neighbours, delta, columns))
        rows = rng.normal(size=(3, columns)) if trial % 2 else rng.choice([-1.0, 1.0], (3, columns))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        codes = rng.choice([-1.0, 1.0], (3, 1)) * quadratic.length
        if neighbours is ADD:
            moved = rows[1:], codes[1:]
        else:
            swapped, code = rows.copy(), codes.copy()
            swapped[0] = rows[0] if trial % 3 == 0 else swapped[1][::-1]
            code[0] = -codes[0]
            moved = swapped, code
        first = coefficients(way, rows, codes)
        other = coefficients(Functional(task(quadratic, neighbours, delta, columns)), *moved)
        norm = 1 if delta == 0 else 2
        found.append(np.linalg.norm(first - other, norm) / claim)
    assert max(found) <= 1
    assert max(found) > (0.99 if neighbours is ADD else 0.6)


def test_without_noise_it_is_ridge_regression():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(500, 3)) / 6
    values = np.clip(rows @ [1.0, -2.0, 0.5] + rng.normal(0, 0.1, 500), -1, 1)
    given = Task(HuberSquare(), 500, 3, 1e7, 1e-5, regularisation=1e-3, quadratic=SQUARES)
    found = Functional(given).fit(rows, values, values[:, None], SeededCoins(1))
    wanted = np.linalg.solve(rows.T @ rows + 0.5 * np.eye(3), rows.T @ values)
    assert np.allclose(found.ravel(), wanted, atol=1e-4)


def test_noisy_curvature_is_hardly_ever_convex_and_never_an_error():
    """At 13 columns, 1000 rows and epsilon 1."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(1000, 13))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    values = np.clip(rows[:, 0], -1, 1)
    way, convex = Functional(task(SQUARES, REPLACE, 0.0)), 0
    noise = way.mechanism.scale
    for seed in range(50):
        jitter = np.triu(rng.laplace(0, noise, (13, 13)))
        noisy = rows.T @ rows + 2 * jitter + np.triu(jitter, 1).T
        convex += np.linalg.eigvalsh((noisy + noisy.T) / 2).min() > 0
        found = way.fit(rows, values, values[:, None], SeededCoins(seed))
        assert np.isfinite(found).all()
    assert convex == 0


def test_directions_that_are_noise_are_left_out():
    found = trimmed_minimiser(np.diag([2.0, -1.0]), np.array([[4.0], [5.0]]), 2.0)
    assert found.ravel().tolist() == pytest.approx([1.0, 0.0])
    assert (trimmed_minimiser(np.full((2, 2), np.nan), np.ones((2, 1)), 1.0) == 0).all()


def test_taylor_is_off_by_little():
    z = np.linspace(-1, 1, 2001)
    error = np.abs(np.log1p(np.exp(z)) - (math.log(2) + z / 2 + z**2 / 8))
    assert error.max() < 0.0151
    assert error.max() > 0.004


def test_a_hinge_has_no_polynomial():
    with pytest.raises(ValueError, match="way must be 'output'"):
        Functional(Task(HuberHinge(), 100, 3, 1.0))


def test_sums_are_exact_and_none_is_longer():
    rng = np.random.default_rng(3)
    rows, codes = rng.uniform(-1, 1, (9000, 2)), rng.uniform(-1, 1, (9000, 1))
    found = exact_sums(rows, codes, 10**6)
    x, c = (np.trunc(part * 2.0**20).astype(np.int64) for part in (rows, codes))
    for j in range(2):
        total = sum(a * b for a, b in zip(x[:, j].tolist(), c[:, 0].tolist(), strict=True))
        assert found[j, 0] == float(Fraction(total, 2**40))
    order = rng.permutation(9000)
    assert (exact_sums(rows[order], codes[order], 10**6) == found).all()
    assert found.ravel() == pytest.approx((rows.T @ codes).ravel(), abs=0.02)


def test_one_row_moves_sums_by_what_it_is_however_many_there_are(monkeypatch):
    """Plain sums lose its last digits, and so may move by more than is claimed."""
    rows = np.full((400_000, 1), 1 - 2.0**-40)
    rows[::2] *= 0.7
    moved = exact_sums(rows, rows, 10**6) - exact_sums(rows[1:], rows[1:], 10**6)
    assert moved.item() == pytest.approx(0.49, abs=1e-5)
    assert abs(moved.item() - (np.trunc(rows[0, 0] * 2.0**20) / 2**20) ** 2) <= 2.0**-33
    monkeypatch.setattr("sfumato.learning.erm.functional._SPILL", 2)
    assert exact_sums(rows, rows, 10**6) == exact_sums(rows[::-1], rows[::-1], 10**6)


def test_longer_codes_are_refused():
    with pytest.raises(ValueError, match="quadratic must be one with codes of length 1"):
        Functional(task(Quadratic(1.0, 1.5, 1.5, 3.0), REPLACE, 0.0))


def test_sums_are_held_to_a_public_size():
    rows = np.ones((100, 1))
    assert exact_sums(rows, -rows, 40).item() == -40
    assert exact_sums(rows, rows, 400).item() == 100
    assert exact_sums(rows[:0], rows[:0], 4).item() == 0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_rounding_is_part_of_the_sensitivity(delta):
    few, many = (
        Functional(task(SQUARES, ADD, delta, records=n)) for n in (1, 10**12)
    )  # fmt: skip
    assert many.rounding == pytest.approx(10**12 * few.rounding)
    grown = many.mechanism.sensitivity.bound - few.mechanism.sensitivity.bound
    assert grown == pytest.approx(many.rounding, rel=1e-6)
