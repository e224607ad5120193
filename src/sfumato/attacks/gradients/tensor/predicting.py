"""How large the attack's error is to leading order, constants included.

Write c_i for the coefficient of x_i x_i' in the moment that shows the span (s_2 r_i, or
s_3 r_i (x_i.alpha)), y_i for the dual vectors (y_i.x_k = 1 if i = k, else 0), h for what the
control variate leaves of g. The sample moment differs from its mean by N; to first order its
eigenvectors leave the span by N times the pseudo-inverse, and a reconstructed x_i by

    (I - VV') N y_i / c_i,        N y_i = mean_j h_j (w_j.y_i) w_j  outside the span,

where w_j is independent of h_j. Each of its d - B coordinates has the same variance, so

    E|x^_i - x_i|^2 = (d - B) / m * E[(h^2 + noise^2) q_i^2] / c_i^2,

with q_i = w.y_i for order 2, and (w.y_i)(w.alpha) - y_i.alpha for order 3. What happens inside the
span, B - 1 dimensions of d, comes on top and is left out here.

For orthonormal inputs, residuals of size 1 and z^2 + z^3 this is exact: E[h^2 q^2] is 52 from the
input itself and 8 from each other one, and c = 2, so that

    error^2 = (13 + 2 (B - 1)) (d - B) / m,

about 4 sqrt(d / m) for B = 3, growing as the root of B: the theorem's B sqrt(d / m) is not tight
there.

    >>> from sfumato.attacks.gradients.tensor.activations import CUBIC
    >>> random = np.random.default_rng(0)
    >>> hidden, inputs = random.normal(size=(400_000, 20)), np.eye(20)[:3]
    >>> predicted = predicted_error(hidden, CUBIC, inputs, [1.0, -1.0, 1.0])
    >>> exactly = np.sqrt((13 + 2 * 2) * (20 - 3) / 400_000)
    >>> bool(abs(predicted / exactly - 1) < 0.02)
    True
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.tensor.activations import Activation
from sfumato.attacks.gradients.tensor.hermite import regress
from sfumato.core import validation

__all__ = ["predicted_error"]


def predicted_error(
    hidden: ArrayLike,
    activation: Activation,
    inputs: ArrayLike,
    residuals: ArrayLike,
    noise: float = 0.0,
) -> float:
    """The root of the mean squared distance, over hidden weights like these.

    Args:
        hidden: the weights, one row a unit; expectations are means over them.
        activation: sigma.
        inputs: the true ones, linearly independent.
        residuals: theirs.
        noise: the standard deviation of what was added to each number of the gradient.
    """
    weights, rows = np.asarray(hidden, np.float64), np.asarray(inputs, np.float64)
    parts = np.asarray(residuals, np.float64)
    if rows.ndim != 2 or weights.ndim != 2 or rows.shape[1] != weights.shape[1]:
        validation.fail("inputs", f"of as many columns as hidden, {weights.shape}", rows.shape)
    if parts.shape != (len(rows),):
        validation.fail("residuals", f"one for each of {len(rows)} inputs", parts.shape)
    spread = validation.non_negative("noise", noise)
    duals = np.asarray(np.linalg.pinv(rows).T, np.float64)
    rest = regress(activation.value(weights @ rows.T) @ parts, weights).rest
    shown, coefficients = _shown(weights, activation, rows, parts, duals)
    sizes = (rest**2 + spread**2) @ shown**2 / len(weights) / coefficients**2
    outside = weights.shape[1] - len(rows)
    return float(np.sqrt(outside / len(weights) * sizes.mean()))


def _shown(
    weights: NDArray[np.float64],
    activation: Activation,
    inputs: NDArray[np.float64],
    residuals: NDArray[np.float64],
    duals: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The q_i, one column each, and the c_i."""
    means, along = activation.means, weights @ duals.T
    if activation.has(2):
        return along, means[2] * residuals
    slope = means[1] * residuals @ inputs
    alpha = slope / np.linalg.norm(slope)
    return along * (weights @ alpha)[:, None] - duals @ alpha, means[3] * residuals * (
        inputs @ alpha
    )
