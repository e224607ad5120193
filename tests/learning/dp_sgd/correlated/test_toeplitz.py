"""Series: what is known in closed form, and what dense matrices say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad

from sfumato.learning.dp_sgd.correlated import buffers, toeplitz

falling = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=6).map(
    lambda rest: np.array([1.0, *sorted(rest, reverse=True)])
)


def mean_error(coefficients, steps):
    variances = toeplitz.prefix_variances(coefficients, steps)
    return math.sqrt(variances.mean()) * toeplitz.column_norm(coefficients[:steps])


def test_the_square_root_of_the_matrix_of_prefix_sums():
    root = toeplitz.matrix(toeplitz.square_root(200), 200)
    assert root @ root == pytest.approx(np.tril(np.ones((200, 200))))
    assert toeplitz.square_root(40) == pytest.approx(
        [math.comb(2 * k, k) / 4**k for k in range(40)], rel=1e-14
    )


@pytest.mark.parametrize("steps", [10**3, 10**6])
def test_its_column_norm_is_the_known_one(steps):
    # sum of (binom(2k, k) / 4^k)^2 = (ln n + gamma + 4 ln 2) / pi + o(1)
    known = (math.log(steps) + np.euler_gamma + 4 * math.log(2)) / math.pi
    assert toeplitz.column_norm(toeplitz.square_root(steps)) ** 2 == pytest.approx(known, abs=1e-3)


def test_its_largest_error_is_the_square_of_its_column_norm():
    # B = A C^-1 = C: the last row is the first column.
    root = toeplitz.square_root(500)
    largest = toeplitz.prefix_variances(root, 500)[-1]
    assert largest == pytest.approx(toeplitz.column_norm(root) ** 2, rel=1e-12)


@settings(max_examples=50, deadline=None)
@given(falling, st.integers(1, 30))
def test_series_are_matrices(coefficients, steps):
    dense = toeplitz.matrix(coefficients, steps)
    assert (np.triu(dense, 1) == 0).all()
    inverse = np.linalg.inv(dense)
    assert toeplitz.inverse(coefficients, steps) == pytest.approx(inverse[:, 0], abs=1e-9)
    prefixes = np.tril(np.ones((steps, steps))) @ inverse
    assert toeplitz.prefix_variances(coefficients, steps) == pytest.approx(
        np.square(prefixes).sum(1), rel=1e-6, abs=1e-9
    )


@settings(max_examples=50, deadline=None)
@given(falling, st.integers(1, 5), st.integers(1, 6), st.integers(1, 30))
def test_sums_of_columns(coefficients, count, separation, steps):
    chosen = np.zeros(steps)
    chosen[::separation][:count] = 1
    wanted = np.linalg.norm(toeplitz.matrix(coefficients, steps) @ chosen)
    found = toeplitz.repeated_norm(coefficients, count, separation, steps)
    assert found == pytest.approx(wanted, rel=1e-12)


def test_gradients_of_the_searches():
    for count, steps in ((2, 9), (5, 60)):
        start = toeplitz.square_root(count)[1:] + 0.05
        assert check_grad(
            lambda x, n: toeplitz._mean_error(x, n)[0],
            lambda x, n: toeplitz._mean_error(x, n)[1], start, steps,
        ) < 1e-4  # fmt: skip
        start = np.concatenate([np.linspace(0, 2, count), np.linspace(-2, -3, count)])
        assert check_grad(
            lambda x, n: buffers._mean_error(x, n)[0],
            lambda x, n: buffers._mean_error(x, n)[1], start, steps,
        ) < 1e-4  # fmt: skip


def test_two_bands_are_the_best_two():
    # One unknown: the search must find what trying all values finds.
    found = toeplitz.best_banded(2, 100)
    tried = np.linspace(0, 1, 10_001)
    best = min(tried, key=lambda c: mean_error(np.array([1.0, c]), 100))
    assert found[1] == pytest.approx(best, abs=2e-3)


@pytest.mark.parametrize(("bands", "steps"), [(2, 50), (16, 300), (64, 1000), (200, 200), (9, 4)])
def test_chosen_bands_beat_the_banded_square_root_and_fall(bands, steps):
    found = np.array(toeplitz.best_banded(bands, steps))
    assert len(found) == min(bands, steps)
    assert found[0] == 1
    assert (np.diff(found) <= 0).all()  # noise stays bounded in a run of any length
    assert (found >= 0).all()
    assert mean_error(found, steps) <= mean_error(toeplitz.square_root(len(found)), steps)
    long = toeplitz.inverse(found, 20_000)
    assert np.abs(long[-5000:]).max() < 1e-3 or bands >= steps


def test_few_buffers_are_as_good_as_the_square_root():
    for steps in (100, 1000, 4096):
        series = buffers.coefficients(buffers.best_buffers(4, steps), steps)
        assert mean_error(series, steps) < mean_error(toeplitz.square_root(steps), steps)
    theta, omega = buffers.best_buffers(4, 1000)
    assert (
        sum(w / (1 + t) for t, w in zip(theta, omega, strict=True)) < 1
    )  # roots within the circle
    assert np.abs(buffers._reciprocal(np.array(theta), np.array(omega), 100_000)).max() <= 1


def test_coefficients_of_buffers():
    series = buffers.coefficients(((0.5, 0.9), (0.3, 0.2)), 5)
    assert series == pytest.approx([1, *(0.3 * 0.5**k + 0.2 * 0.9**k for k in range(4))])
    assert buffers.coefficients(((0.5,), (0.3,)), 1) == pytest.approx([1])
    inverse = buffers._reciprocal(np.array([0.5, 0.9]), np.array([0.3, 0.2]), 5)
    assert inverse == pytest.approx(toeplitz.inverse(series, 5))
