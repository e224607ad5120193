"""A symmetric tensor as a sum of cubes: T = sum_i c_i u_i (x) u_i (x) u_i.

As many terms as dimensions, the u_i linearly independent and of length 1. Unlike a matrix, such a
tensor determines its terms, up to their order and a sign shared by u_i and c_i.

*Simultaneous diagonalisation* (Jennrich): with random a, b the matrices T(I, I, a) and T(I, I, b)
are U D_a U' and U D_b U', so that the u_i are the eigenvectors of T(I, I, a) T(I, I, b)^-1. Signs
of c_i do not matter, as they do where one whitens by a positive matrix. Exact for exact tensors; of
noisy ones several draws are tried and that with the least misfit is kept. *Alternating least
squares* then improves on it.

    >>> cubes = [(2.0, [1.0, 0.0]), (-1.0, [0.6, 0.8])]
    >>> tensor = sum(c * np.einsum("a,b,c->abc", u, u, u) for c, u in cubes)
    >>> found = decompose(tensor, generator=np.random.default_rng(0))
    >>> sorted(np.round(np.abs(found.directions), 6).tolist()), found.misfit < 1e-12
    ([[0.6, 0.8], [1.0, 0.0]], True)

Reference: Harshman, "Foundations of the PARAFAC procedure", UCLA Working Papers in Phonetics 16
(1970), which gives the method as Jennrich's; Leurgans, Ross and Abel, SIAM J. Matrix Anal. Appl.
14(4) (1993).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["Cubes", "decompose", "jennrich", "power_coefficients"]

Vectors = NDArray[np.float64]
_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class Cubes:
    """The terms.

    Attributes:
        directions: the u_i, one a row.
        coefficients: the c_i.
        misfit: |T - sum| / |T|.
    """

    directions: Vectors
    coefficients: Vectors
    misfit: float


def decompose(
    tensor: NDArray[np.float64],
    *,
    generator: np.random.Generator,
    trials: int = 20,
    sweeps: int = 200,
) -> Cubes:
    """The terms of a tensor k by k by k.

    Args:
        tensor: symmetric; what is not symmetric in it is averaged away.
        generator: draws the contractions.
        trials: how many of them.
        sweeps: the most rounds of alternating least squares.
    """
    cube = _symmetric(tensor)
    tries = validation.count("trials", trials)
    first = min((_fitted(cube, jennrich(cube, generator=generator)) for _ in range(tries)),
                key=lambda one: one.misfit)  # fmt: skip
    refined = _fitted(cube, _alternate(cube, first.directions, sweeps))
    return min(refined, first, key=lambda one: one.misfit)


def jennrich(cube: NDArray[np.float64], *, generator: np.random.Generator) -> Vectors:
    """The u_i by one random pair of contractions, one a row."""
    one, other = (cube @ along for along in generator.normal(size=(2, len(cube))))
    ratio = _solved(other, one).T  # both are symmetric
    vectors = np.asarray(np.linalg.eig(ratio)[1], np.complex128)
    # Noise may make two values a complex pair: their sum and difference stand in for both.
    return _unit((vectors.real + vectors.imag).T)


def power_coefficients(moment: NDArray[np.float64], directions: Vectors) -> Vectors:
    """The c_i for which sum_i c_i u_i^(x)p is closest to a moment of any order p."""
    powers = _powers(directions, moment.ndim)
    return _solved(powers.T, moment.ravel())


def _fitted(cube: NDArray[np.float64], directions: Vectors) -> Cubes:
    coefficients = power_coefficients(cube, directions)
    gap = np.linalg.norm(coefficients @ _powers(directions, 3) - cube.ravel())
    return Cubes(directions, coefficients, float(gap / max(np.linalg.norm(cube), _TINY)))


def _alternate(cube: NDArray[np.float64], start: Vectors, sweeps: int) -> Vectors:
    """Each factor in turn by least squares, the other two held; then the mean of the three."""
    factors, size = [start, start, start], len(cube)
    flat = cube.reshape(size, size * size).T
    for _ in range(sweeps):
        before = factors[0]
        for turn in range(3):
            a, b = (factors[other] for other in range(3) if other != turn)
            pairs = (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)
            factors[turn] = _unit(_solved(pairs.T, flat))
        if np.abs(_towards(factors[0], before) - before).max() < 1e-12:
            break
    return _unit(factors[0] + sum(_towards(one, factors[0]) for one in factors[1:]))


def _towards(vectors: Vectors, others: Vectors) -> Vectors:
    """With signs that make each point as its counterpart does."""
    return vectors * np.where((vectors * others).sum(axis=1, keepdims=True) < 0, -1.0, 1.0)


def _powers(directions: Vectors, order: int) -> Vectors:
    """u_i (x) ... (x) u_i, flat, one a row."""
    rows = directions
    for _ in range(order - 1):
        rows = (rows[:, :, None] * directions[:, None, :]).reshape(len(directions), -1)
    return rows


def _unit(rows: Vectors) -> Vectors:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY)


def _solved(design: Vectors, wanted: Vectors) -> Vectors:
    return np.asarray(np.linalg.lstsq(design, wanted, rcond=None)[0], np.float64)


def _symmetric(tensor: NDArray[np.float64]) -> NDArray[np.float64]:
    cube = np.asarray(tensor, dtype=np.float64)
    if cube.ndim != 3 or len(set(cube.shape)) != 1 or not np.isfinite(cube).all():
        validation.fail("tensor", "k by k by k finite numbers", cube.shape)
    turns = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    return sum((cube.transpose(turn) for turn in turns), np.zeros_like(cube)) / 6
