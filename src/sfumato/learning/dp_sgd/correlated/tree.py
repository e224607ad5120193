"""Tree aggregation: noise on the sums over a binary tree of steps, combined as well as can be.

Every node of the tree over the steps holds the sum of the steps below it, with fresh noise of
variance 1; it is complete at its last step. A prefix sum is made of the largest complete nodes that
it consists of, at most one of each size. A complete node's sum is known better than by its own
noise alone: its two children tell of it, too. From the leaves up,

    e_l = v_l y_l + (1 - v_l) (e_left + e_right),      v_l = 1 / (1 + 1 / (2 v_(l-1))),  v_0 = 1,

weighs the two by their variances; e_l has the variance v_l, which falls to 1/2. All nodes that are
complete lie within the ones that a prefix sum is made of, so this is its best linear unbiased
estimate from all there is by then (Honaker's estimate from below).

Sensitivity. Nothing but the prefix sums' estimates A x + B Z leaves, B their weights and Z the
nodes' noise. With B B^T = L L^T, L lower triangular, they have the law of A x + L Z' =
L (C x + Z') with C = L^-1 A: a lower-triangular strategy like any other. As A = B S for the 0/1
matrix S of which steps a node holds, C^T C = S^T P S with P the projection onto B's rows, so
||C u|| <= ||S u||. One participation: the largest squared column norm of C, which
:func:`column_square` computes exactly, is below the number of levels, which is S's:

    >>> [round(column_square(levels), 3) for levels in (1, 2, 3, 10)]
    [1.0, 1.8, 2.714, 8.557]

References: Dwork, Naor, Pitassi and Rothblum 2010, and Chan, Shi and Song 2011 (the tree); Honaker
2015 (estimates); Kairouz et al., arXiv:2103.00039 (in training); Denisov et al., arXiv:2202.08312,
theorem 2.1 (adaptive inputs).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "column_square",
    "levels_for",
    "matrix",
    "node_variances",
    "node_weights",
    "prefix_variances",
    "repeated_square",
]


def levels_for(steps: int) -> int:
    """How many sizes of complete nodes a tree over so many steps has."""
    return steps.bit_length()


def node_weights(levels: int) -> list[float]:
    """v_0, v_1, ...: the weight of a complete node's own noise in its estimate.

    In single precision, as they are drawn with; 1 - v_l is then a number of single precision too,
    and the two weights of an estimate sum to 1 exactly. Nothing below needs them to be the best.
    """
    found = [1.0]
    while len(found) < levels:
        found.append(float(np.float32(1 / (1 + 1 / (2 * found[-1])))))
    return found[:levels]


def node_variances(levels: int) -> list[float]:
    """The variance of a complete node's estimate, by level: the weights but for their rounding."""
    found = [1.0]
    for weight in node_weights(levels)[1:]:
        found.append(weight**2 + (1 - weight) ** 2 * 2 * found[-1])
    return found[:levels]


def column_square(levels: int) -> float:
    """The largest squared column norm of C for a tree of so many levels, exactly.

    A step's squared column norm is what all releases together tell of its input, in units of the
    noise. Take a complete subtree of level l whose last release is e_l + g: g is what is added
    above, of variance tau and moved by a when the input moves by 1. Its left half was released up
    to its own estimate, so a step in it shows once more, in the last release, where what is not
    known yet is v y, g and the rest r of the right half's estimate:

        left:    M_(l-1)(0, 0) + (v + a)^2 / (v^2 + (1 - v)^2 r_(l-1) + tau),
        right:   M_(l-1)((v + a) / (1 - v), (v^2 + tau) / (1 - v)^2),

    with r_l = v_l^2 + (1 - v_l)^2 r_(l-1), r_0 = 1, and M_0 = (1 + a)^2 / (1 + tau).
    """
    v, rest = node_weights(levels), [1.0]
    for level in range(1, levels):
        rest.append(v[level] ** 2 + (1 - v[level]) ** 2 * rest[-1])
    whole = list[float]()  # M_l(0, 0)
    for top in range(levels):
        shift, spread, best = 0.0, 0.0, 0.0
        for level in range(top, 0, -1):
            w = v[level]
            left = (w + shift) ** 2 / (w**2 + (1 - w) ** 2 * rest[level - 1] + spread)
            best = max(best, whole[level - 1] + left)
            shift, spread = (w + shift) / (1 - w), (w**2 + spread) / (1 - w) ** 2
        whole.append(max(best, (1 + shift) ** 2 / (1 + spread)))
    return max(whole) * (1 + 1e-12)


def repeated_square(levels: int, count: int, separation: int) -> float:
    """At least ||S u||^2 for ``count`` participations, ``separation`` steps apart at least.

    A node of 2^l steps holds at most m_l = min(count, ceil(2^l / separation)) of them, so a level's
    nodes together hold squares of at most count m_l, wherever the tree begins and ends.
    """
    per_node = (min(count, math.ceil(2**level / separation)) for level in range(levels))
    return float(count * sum(per_node))


def prefix_variances(steps: int) -> NDArray[np.float64]:
    """For each prefix sum the variance of its noise, for nodes' noise of variance 1."""
    numbers, found = np.arange(1, steps + 1), np.zeros(steps)
    for level, variance in enumerate(node_variances(levels_for(steps))):
        found += variance * ((numbers >> level) & 1)
    return found


def matrix(steps: int) -> NDArray[np.float64]:
    """C = L^-1 A, dense, for nodes' noise of variance 1."""
    weights = _weights(steps)
    lower = np.linalg.cholesky(weights @ weights.T)
    found = np.linalg.solve(lower, np.tril(np.ones((steps, steps))))
    return np.tril(found).astype(np.float64, copy=False)


def _weights(steps: int) -> NDArray[np.float64]:
    """B: the weight of every node's noise in every prefix sum's estimate."""
    v, node = node_weights(levels_for(steps)), 0
    pending, rows = list[NDArray[np.float64]](), list[NDArray[np.float64]]()
    for number in range(1, steps + 1):
        estimate = np.eye(1, 2 * steps, node)[0]
        node += 1
        for level in range(1, (number & -number).bit_length()):
            own = np.eye(1, 2 * steps, node)[0]
            node += 1
            estimate = v[level] * own + (1 - v[level]) * (pending.pop() + estimate)
        pending.append(estimate)
        rows.append(np.sum(pending, axis=0))
    return np.array(rows)[:, :node]
