"""The tree: its weights are the best there are, and its sensitivity is that of the matrix."""

import itertools
import math

import numpy as np
import pytest

from sfumato.learning.dp_sgd.correlated import tree


def nodes(steps):
    """(first step, last step) of every complete node, in the order of completion."""
    found = []
    for last in range(steps):
        size = 1
        while (last + 1) % size == 0 and size <= last + 1:
            found.append((last + 1 - size, last))
            size *= 2
    return found


def strategy(steps):
    rows = np.zeros((len(nodes(steps)), steps))
    for row, (first, last) in zip(rows, nodes(steps), strict=True):
        row[first : last + 1] = 1
    return rows


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 8, 13, 16])
def test_estimates_are_the_best_from_complete_nodes(steps):
    weights, held = tree._weights(steps), strategy(steps)
    assert weights @ held == pytest.approx(np.tril(np.ones((steps, steps))))  # unbiased
    for row, step in zip(weights, range(steps), strict=True):
        known = [i for i, (_, last) in enumerate(nodes(steps)) if last <= step]
        seen = held[known][:, : step + 1]
        best = np.ones(step + 1) @ np.linalg.pinv(seen)
        assert row[known] == pytest.approx(best, abs=1e-7)  # in single precision
        assert row[np.setdiff1d(np.arange(len(row)), known)] == pytest.approx(0)


def test_variances():
    # v_l = 2^l / (2^(l+1) - 1): of a complete node, by Honaker's recursion
    assert tree.node_variances(12) == pytest.approx([2**k / (2 ** (k + 1) - 1) for k in range(12)])
    for steps in (1, 5, 16, 31):
        wanted = np.square(tree._weights(steps)).sum(1)
        assert tree.prefix_variances(steps) == pytest.approx(wanted)


@pytest.mark.parametrize("steps", [*range(1, 34), 64, 100, 128])
def test_the_column_norm_is_the_matrix_s(steps):
    matrix = tree.matrix(steps)
    assert (np.triu(matrix, 1) == 0).all()
    longest = np.square(matrix).sum(0).max()
    levels = tree.levels_for(steps)
    found = tree.column_square(levels)
    assert longest <= found * (1 + 1e-9)
    assert found == pytest.approx(longest, rel=1e-9)  # also where T is no power of 2
    assert found <= np.square(strategy(steps)).sum(0).max() * (1 + 1e-9) == pytest.approx(levels)


def test_deep_trees():
    squares = [tree.column_square(levels) for levels in range(1, 40)]
    assert all(a < b < n + 2 for n, (a, b) in enumerate(itertools.pairwise(squares)))
    assert squares[29] / 30 == pytest.approx(0.848, abs=0.01)


def test_noise_of_the_matrix_is_the_noise_of_the_tree():
    weights = tree._weights(20)
    inverse = np.linalg.inv(tree.matrix(20))
    prefixes = np.tril(np.ones((20, 20))) @ inverse
    assert prefixes @ prefixes.T == pytest.approx(weights @ weights.T)


def test_participations_in_nodes():
    assert tree.repeated_square(levels=4, count=1, separation=3) == 4
    # Eight steps, two participations four apart: only the root holds both.
    assert tree.repeated_square(levels=4, count=2, separation=4) == 2 * (1 + 1 + 1 + 2)
    assert math.isclose(tree.repeated_square(3, 2, 1), 2 * (1 + 2 + 2))
