"""Encoders that are fixed before the data are read: public random ones, and tied ones.

    >>> encoder = random_encoder(4, 3, gain=2.0, seed=0)
    >>> rows = np.array([[0.0, 1.0, 0.5, 0.25], [1.0, 0.0, 0.0, 0.75]])
    >>> codes = encoder.codes(rows)
    >>> codes.shape, bool((codes == encoder.codes(rows[::-1])[::-1]).all())
    ((2, 3), True)

A code is h = sigmoid(gain (2 x - 1) E), in (0, 1). An encoder's matrix E is either drawn from a
public seed or made from coefficients that were released before: in both cases it does not depend on
rows in any way that is not paid for, which is what the sensitivity of the next release needs.

A row's code is a function of that row alone, bit for bit. Products of matrices are summed in an
order that depends on how many rows there are, and one unit in the last place, in somebody else's
code, would be a trace of the row that was added. So inputs are moved down to multiples of 2^-12 and
weights to multiples of 2^-24: sums of up to 2^16 products are then exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from sfumato.core import validation

__all__ = ["MOST_COLUMNS", "Encoder", "Floats", "on_grid", "random_encoder", "tied_encoder"]

Floats = NDArray[np.float64]

_INPUTS, _WEIGHTS = 2.0**12, 2.0**24
_TINY = 1e-12
MOST_COLUMNS = 2**16
"""Inputs of a layer: up to there sums are exact."""


def on_grid(values: NDArray[np.floating]) -> Floats:
    """Values in [0, 1], each by itself, as multiples of 2^-12; what is no number becomes 0."""
    found = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
    return np.floor(np.clip(found, 0.0, 1.0) * _INPUTS) / _INPUTS


@final
@dataclass(frozen=True, eq=False)
class Encoder:
    """One layer's encoder.

    Attributes:
        weights: (columns, width), with columns of length 1 at most, multiples of 2^-24.
        gain: how steep the sigmoid is along a direction of length 1.
    """

    weights: Floats
    gain: float

    @classmethod
    def of(cls, weights: Floats, gain: float) -> Encoder:
        """With each code's weights scaled to length 1; those that are all but 0 stay 0."""
        if len(weights) > MOST_COLUMNS:
            validation.fail("columns", f"at most {MOST_COLUMNS}", len(weights))
        lengths = np.linalg.norm(weights, axis=0)
        scaled = np.where(lengths > _TINY, weights / np.maximum(lengths, _TINY), 0.0)
        whole = np.trunc(np.nan_to_num(scaled) * _WEIGHTS) / _WEIGHTS
        return cls(whole, validation.positive("gain", gain))

    @property
    def width(self) -> int:
        """How many codes there are."""
        return self.weights.shape[1]

    def codes(self, inputs: Floats) -> Floats:
        """(n, width) codes in [0, 1] of (n, columns) inputs; each row's by itself."""
        return expit(self.gain * ((2 * on_grid(inputs) - 1) @ self.weights))


def random_encoder(columns: int, width: int, gain: float, seed: int) -> Encoder:
    """Directions drawn from a public seed; nothing of it is secret."""
    drawn = np.random.default_rng([validation.at_least("seed", seed, 0), columns, width])
    return Encoder.of(drawn.standard_normal((columns, width)), gain)


def tied_encoder(decoder: Floats, gain: float) -> Encoder:
    """The transpose of a released decoder, without what its codes have in common.

    Post-processing of the release. The mean over codes is a picture that every code shares, and
    would make all codes of the next release alike; with one code there is nothing in common.

    Args:
        decoder: (columns, width), as released.
        gain: of the sigmoid.
    """
    shared = decoder.mean(axis=1, keepdims=True) if decoder.shape[1] > 1 else 0.0
    return Encoder.of(decoder - shared, gain)
