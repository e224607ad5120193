"""A public random rotation: every coordinate of a vector becomes about as large as any other.

    >>> rotation = Rotation(dimension=5, seed=1)
    >>> rotation.padded
    8
    >>> turned = rotation.forward([3.0, 0.0, 0.0, 0.0, 0.0])
    >>> bool(np.allclose(np.abs(turned), 3 / 8**0.5))
    True
    >>> bool(np.allclose(rotation.backward(turned), [3.0, 0.0, 0.0, 0.0, 0.0]))
    True

x becomes H S x / sqrt(k): signs S from a public seed, the Walsh-Hadamard matrix H, and zeros up to
the next power of two, k. It keeps lengths, and is undone by S H / sqrt(k). It has no part in the
privacy: it makes wrap-around rare (:mod:`.encoding`), because by Hoeffding a coordinate exceeds t
with probability at most 2 exp(-k t^2 / 2 |x|^2), for any x chosen without knowledge of the signs.
So take a fresh seed each round.

Reference: Ailon and Chazelle, "The fast Johnson-Lindenstrauss transform", SIAM J. Comput. 39(1)
(2009).
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["Rotation", "padded_dimension"]


def padded_dimension(dimension: int) -> int:
    """The least power of two that is not below ``dimension``."""
    return 1 << (validation.count("dimension", dimension) - 1).bit_length()


@final
@dataclass(frozen=True)
class Rotation:
    """The rotation of vectors of ``dimension`` numbers that the public ``seed`` names."""

    dimension: int
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", validation.count("dimension", self.dimension))
        object.__setattr__(self, "seed", validation.at_least("seed", self.seed, 0))

    @property
    def padded(self) -> int:
        """How many numbers a rotated vector has."""
        return padded_dimension(self.dimension)

    def forward(self, vector: ArrayLike) -> NDArray[np.float64]:
        """The rotated vector, padded. Its length is that of ``vector``, but for float rounding."""
        held = _vector("vector", vector, self.dimension)
        padded = np.zeros(self.padded)
        padded[: self.dimension] = held
        return _walsh_hadamard(padded * _signs(self.seed, self.padded))

    def backward(self, rotated: ArrayLike) -> NDArray[np.float64]:
        """The vector, from its rotation."""
        held = _vector("rotated", rotated, self.padded)
        return (_walsh_hadamard(held) * _signs(self.seed, self.padded))[: self.dimension]


def _vector(name: str, values: ArrayLike, length: int) -> NDArray[np.float64]:
    held = np.asarray(values, dtype=np.float64)
    if held.shape != (length,):
        validation.fail(name, f"a vector of {length} numbers", held.shape)
    return held


@lru_cache(maxsize=4)
def _signs(seed: int, count: int) -> NDArray[np.float64]:
    """The same ``count`` signs for the same seed on every machine, by SHAKE-256."""
    label = f"sfumato rotation {seed} {count}".encode()
    octets = hashlib.shake_256(label).digest(-(-count // 8))
    bits = np.unpackbits(np.frombuffer(octets, np.uint8))[:count]
    signs = 1.0 - 2.0 * bits.astype(np.float64)
    signs.flags.writeable = False
    return signs


def _walsh_hadamard(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """H x / sqrt(k), its own inverse, in k log2 k additions."""
    size, half = len(vector), 1
    turned = vector.copy()
    while half < size:
        pairs = turned.reshape(-1, 2, half)
        first, second = pairs[:, 0].copy(), pairs[:, 1]
        pairs[:, 0] += second
        np.subtract(first, second, out=second)
        half *= 2
    return turned / math.sqrt(size)
