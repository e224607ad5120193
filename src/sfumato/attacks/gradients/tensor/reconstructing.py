"""Tensor reconstruction: the inputs of a batch from one gradient of a two-layer network.

What the attacker sees: the public hidden weights w_1, ..., w_m ~ N(0, I) of an untrained network,
and the gradient of a batch's loss by the m output weights,

    g_j = sum_i r_i sigma(w_j.x_i).

No optimisation, no guess at the data: as a function of w this is a sum of B ridge functions, and
means of it against Hermite tensors of w are sums of powers of the x_i (Stein's identity, see
:mod:`~sfumato.attacks.gradients.tensor.hermite`). With s_p the mean of sigma's p-th derivative:

1. *Control variate.* Regress g on 1 and w; go on with what is left. The slope is about
   M_1 = s_1 sum_i r_i x_i. Without it the linear part of g, which tells nothing, is the noise.
2. *Span.* E[g H_2] = s_2 sum_i r_i x_i x_i'. Its B eigenvectors V of largest |eigenvalue|, since
   residuals have both signs, span the inputs. Where s_2 = 0 (tanh, sigmoid) take
   E[g H_3(I, I, alpha)] = s_3 sum_i r_i (x_i.alpha) x_i x_i' with alpha along M_1.
3. *Tensor.* With u = V'w the mean of g H_3(u) is s_3 sum_i r_i (V'x_i)^(x)3, only B^3 numbers.
   Where s_3 = 0 (ReLU, softplus) take H_4 contracted with V'M_1. First regress on all products
   u_a u_b, too: to these orders the quadratic part is what the linear one was to the second.
4. *Decompose* it into B cubes, and lift: x_i = V u_i.
5. *Signs.* A cube leaves (c, u) or (-c, -u). Fit coefficients of an odd and an even order, r_i s_p
   each; their quotient has the sign of s_3 / s_2, or of s_1 / s_2 where s_3 = 0. If sigma is odd
   but for a constant, (r, x) and (-r, -x) give the same gradient and nobody can tell; the label
   does, as r is about -y before training.

The error is of order sqrt(d / m) per input; see
:mod:`~sfumato.attacks.gradients.tensor.predicting` for the constant. Inputs must be linearly
independent, so B <= d. Lengths are taken to be 1; directions are right for any. The error is that
of sample means and no limit to attacks: the gradient itself is exact, B (d + 1) unknowns in m
equations, and least squares from here on can end at the inputs themselves.

    >>> from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
    >>> random = np.random.default_rng(0)
    >>> inputs, labels = unit_inputs(2, 10, generator=random), np.array([1.0, -1.0])
    >>> network = TwoLayerNetwork.draw(10, 20_000, generator=random)
    >>> seen = network.gradient(inputs, labels)
    >>> found = reconstruct_by_tensor(
    ...     seen, network.hidden, network.activation, batch=2, generator=random
    ... )
    >>> print(found)
    tensor reconstruction of 2 inputs of 10 numbers from 20,000 hidden units (z^2 + z^3): ...
    >>> bool((np.abs(found.inputs @ inputs.T).max(axis=0) > 0.99).all())
    True

What is found may be private records: for the curator only.

Reference: Wang, Lee and Lei, "Reconstructing training data from model gradient, provably",
AISTATS 2023, arXiv:2212.03714. Theirs whitens and iterates; here the second moment may be
indefinite, and the tensor is diagonalised instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.tensor import hermite
from sfumato.attacks.gradients.tensor.activations import Activation
from sfumato.attacks.gradients.tensor.decomposing import Cubes, decompose, power_coefficients
from sfumato.attacks.gradients.tensor.results import TensorReconstruction
from sfumato.core import validation

__all__ = ["reconstruct_by_tensor"]

Vector = NDArray[np.float64]
_TINY = 1e-300


def reconstruct_by_tensor(
    gradient: Any,
    hidden: Any,
    activation: Activation,
    batch: int,
    *,
    generator: np.random.Generator,
    labels: ArrayLike | None = None,
    control_variate: bool = True,
    subspace_order: int | None = None,
    trials: int = 20,
    device: str | None = None,
) -> TensorReconstruction:
    """The inputs behind a gradient by the output weights.

    Args:
        gradient: one number a hidden unit. Units not seen (a known dropout) are left out, here and
            in ``hidden``.
        hidden: their weights, one row a unit.
        activation: sigma.
        batch: B, how many inputs there are.
        generator: draws the contractions of the decomposition.
        labels: for the signs where sigma is odd: of one sign, or of sizes that tell them apart.
        control_variate: leave it on; off, it shows what step 1 is worth.
        subspace_order: 2 or 3; by default 2 where s_2 is not 0.
        trials: how many contractions are tried.
        device: None for NumPy, or where torch is to take the means, such as "cuda". ``gradient``
            and ``hidden`` may then be tensors that are there already.

    Raises:
        ValueError: if shapes do not fit, if B is above d, or if sigma's moments do not determine
            the inputs (those of a linear or a quadratic function do not, whatever the attack).
    """
    values, weights = _arrays(gradient, hidden, device)
    count = _batch(batch, weights)
    order, tensor_order = _orders(activation, subspace_order)
    linear = _linear_part(values, weights, control_variate)
    span = _span(linear, weights, order, count)
    inside = _Inside.of(linear, weights, span.basis)
    tensor = inside.tensor(tensor_order, control_variate)
    cubes = decompose(tensor, generator=generator, trials=trials)
    signs, residuals, source = _signs(inside, activation, cubes, labels)
    return TensorReconstruction(
        inputs=(signs[:, None] * cubes.directions) @ span.basis.T,
        residuals=residuals,
        activation=activation.name,
        width=len(values),
        subspace_order=order,
        tensor_order=tensor_order,
        signs=source,
        eigenvalues=span.eigenvalues,
        noise_ratio=float(span.outside / max(abs(span.eigenvalues[-1]), _TINY)),
        misfit=cubes.misfit,
    )


def _linear_part(values: Any, weights: Any, remove: bool) -> hermite.Regression:
    if remove:
        return hermite.regress(values, weights)
    return hermite.Regression(0.0, hermite.home(weights.T @ values) / len(values), values)


@dataclass(frozen=True, eq=False)
class _Span:
    """Where the inputs lie.

    Attributes:
        basis: orthonormal, in columns.
        eigenvalues: that belong to it, the largest first.
        outside: the size of the largest other.
    """

    basis: NDArray[np.float64]
    eigenvalues: Vector
    outside: float


def _span(linear: hermite.Regression, weights: Any, order: int, batch: int) -> _Span:
    if order == 2:
        moment = hermite.second_moment(linear.rest, weights)
    else:
        moment = hermite.third_moment_along(linear.rest, weights, _unit(linear.slope))
    values, vectors = np.linalg.eigh(moment)
    first = np.argsort(-np.abs(values))
    inside, others = first[:batch], first[batch:]
    return _Span(vectors[:, inside], values[inside], float(np.abs(values[others]).max(initial=0)))


@dataclass(frozen=True, eq=False)
class _Inside:
    """The same gradient, its weights projected on the span: B numbers each."""

    values: Any
    weights: Any
    slope: Vector

    @classmethod
    def of(cls, linear: hermite.Regression, weights: Any, basis: NDArray[np.float64]) -> _Inside:
        projected = weights @ hermite.beside(basis, weights)
        return cls(linear.rest, projected, basis.T @ linear.slope)

    def tensor(self, order: int, remove: bool) -> NDArray[np.float64]:
        rest = hermite.without_squares(self.values, self.weights) if remove else self.values
        if order == 3:
            return hermite.third_moment(rest, self.weights)
        return hermite.fourth_moment_along(rest, self.weights, _unit(self.slope))

    def second_moment(self) -> NDArray[np.float64]:
        return hermite.second_moment(self.values, self.weights)


def _signs(
    inside: _Inside, activation: Activation, cubes: Cubes, labels: ArrayLike | None
) -> tuple[Vector, Vector, str]:
    """A sign for each direction, the residual that goes with it, and what signs follow from."""
    means = activation.means
    if not activation.has(2):
        return _signs_of_odd(cubes.coefficients / means[3], labels)
    even = power_coefficients(inside.second_moment(), cubes.directions) / means[2]
    if activation.has(3):
        odd = cubes.coefficients / means[3]
    else:
        odd = power_coefficients(inside.slope, cubes.directions) / means[1]
    return _sign(odd * even), even, "moments"


def _signs_of_odd(found: Vector, labels: ArrayLike | None) -> tuple[Vector, Vector, str]:
    """Turns inputs so that residuals have the signs of -y; above 0 where that is not known."""
    wanted = None if labels is None else _residual_signs(np.abs(found), labels)
    known = np.ones(len(found)) if wanted is None else wanted
    source = "unknown" if wanted is None else "labels"
    return _sign(found) * known, np.abs(found) * known, source


def _residual_signs(sizes: Vector, labels: ArrayLike) -> Vector | None:
    """Those of -y, larger labels taken to have larger residuals; None if it cannot be told."""
    given = np.asarray(labels, dtype=np.float64)
    if given.shape != sizes.shape or not np.isfinite(given).all():
        validation.fail("labels", f"{len(sizes)} finite numbers", labels)
    wanted = -_sign(given)
    if len(np.unique(wanted)) == 1:
        return wanted
    if np.intersect1d(np.abs(given[wanted > 0]), np.abs(given[wanted < 0])).size:
        return None
    signs = np.empty(len(sizes))
    signs[np.argsort(sizes)] = wanted[np.argsort(np.abs(given))]
    return signs


def _orders(activation: Activation, subspace_order: int | None) -> tuple[int, int]:
    """Of the moment that shows the span, and of that which tells the inputs apart."""
    has = activation.has
    order = (2 if has(2) else 3) if subspace_order is None else subspace_order
    if order not in (2, 3):
        validation.fail("subspace_order", "2 or 3", subspace_order)
    spans = has(2) if order == 2 else has(3) and has(1)
    apart = has(3) or (has(4) and has(2) and has(1))
    if subspace_order is None and not (spans and apart):
        validation.fail("activation", "one whose moments tell inputs apart", activation.name)
    return order, 3 if has(3) else 4


def _arrays(gradient: Any, hidden: Any, device: str | None) -> tuple[Any, Any]:
    """Both in double precision, where they are to be worked on."""
    if device is None:
        values, weights = np.asarray(gradient, np.float64), np.asarray(hidden, np.float64)
    else:
        import torch

        values, weights = (torch.as_tensor(one, dtype=torch.float64, device=device)
                           for one in (gradient, hidden))  # fmt: skip
    if weights.ndim != 2 or len(weights) < weights.shape[1] + 2:
        validation.fail("hidden", "a row of d weights for each of d + 2 units or more",
                        tuple(weights.shape))  # fmt: skip
    if tuple(values.shape) != (len(weights),):
        validation.fail("gradient", f"one number for each of {len(weights)} hidden units",
                        tuple(values.shape))  # fmt: skip
    low, high = float(values.min()), float(values.max())
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        validation.fail("gradient", "finite numbers, not all the same", (low, high))
    return values, weights


def _batch(batch: int, weights: Any) -> int:
    count = validation.count("batch", batch)
    if count > weights.shape[1]:
        validation.fail("batch", f"at most d = {weights.shape[1]}", batch)
    return count


def _sign(values: Vector) -> Vector:
    return np.where(values < 0, -1.0, 1.0)


def _unit(vector: Vector) -> Vector:
    return vector / max(float(np.linalg.norm(vector)), _TINY)
