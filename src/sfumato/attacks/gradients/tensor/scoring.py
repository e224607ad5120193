"""How far reconstructed inputs are from the true ones.

Inputs come in no order, so each is matched with one true input, so that the squared distances add
up to the least (the Hungarian method), signs left aside. Then

    error = sqrt(mean_i |x^_i - x_i|^2),        scaled error = error / sqrt(d / m),

and the share of signs that are right. Two unrelated directions are about sqrt(2) apart, so that an
error of 1 and above means that nothing was found; an error of e is a cosine of 1 - e^2 / 2.

    >>> found = TensorReconstruction(
    ...     np.array([[0.0, 1.0], [-0.6, -0.8]]), np.ones(2), "tanh", 800, 3, 3, "unknown",
    ...     np.ones(2), 0.0, 0.0
    ... )
    >>> print(match_inputs(found, [[0.6, 0.8], [0.0, 1.0]]))
    error 1.414 (28.28 times sqrt(d/m); signs aside 0.000), 50% of 2 signs right
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.tensor.results import TensorReconstruction
from sfumato.core import validation

__all__ = ["Match", "match_inputs"]


@final
@dataclass(frozen=True, eq=False)
class Match:
    """Reconstructed inputs beside true ones. For the curator only.

    Attributes:
        order: which reconstructed input each true one is matched with.
        distances: of each true input and its match.
        distances_up_to_sign: the same, the match turned where that is nearer.
        width: m.
        dimension: d.
    """

    order: NDArray[np.int64]
    distances: NDArray[np.float64]
    distances_up_to_sign: NDArray[np.float64]
    width: int
    dimension: int

    @property
    def error(self) -> float:
        """The root of the mean squared distance."""
        return float(np.sqrt(np.mean(self.distances**2)))

    @property
    def error_up_to_sign(self) -> float:
        """The same where signs do not matter."""
        return float(np.sqrt(np.mean(self.distances_up_to_sign**2)))

    @property
    def scaled_error(self) -> float:
        """The error by sqrt(d / m)."""
        return float(self.error / np.sqrt(self.dimension / self.width))

    @property
    def signs_right(self) -> float:
        """The share of inputs that need no turning."""
        return float((self.distances <= self.distances_up_to_sign).mean())

    def __str__(self) -> str:
        return (
            f"error {self.error:.3f} ({self.scaled_error:.2f} times sqrt(d/m); signs aside "
            f"{self.error_up_to_sign:.3f}), {self.signs_right:.0%} of {len(self.order)} signs right"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "error": self.error,
            "error_up_to_sign": self.error_up_to_sign,
            "scaled_error": self.scaled_error,
            "signs_right": self.signs_right,
            "distances": self.distances.tolist(),
            "order": self.order.tolist(),
        }


def match_inputs(found: TensorReconstruction, truth: ArrayLike) -> Match:
    """Each true input with a reconstructed one of its own."""
    from scipy.optimize import linear_sum_assignment

    rows = np.asarray(truth, dtype=np.float64)
    if rows.shape != found.inputs.shape:
        validation.fail("truth", f"a table of shape {found.inputs.shape}", rows.shape)
    near, far = (_squares(rows, sign * found.inputs) for sign in (1, -1))
    least = np.minimum(near, far)
    mine, order = linear_sum_assignment(least)
    return Match(
        np.asarray(order, dtype=np.int64),
        np.sqrt(near[mine, order]),
        np.sqrt(least[mine, order]),
        found.width,
        found.dimension,
    )


def _squares(rows: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.square(rows[:, None, :] - others[None, :, :]).sum(axis=2)
