"""The quadratic expansion of a network's loss, record by record: slopes and curvatures.

Around public weights w the loss of a record is

    E(w + u) = E(w) + g u + (1/2) h u^2 + ...,

where g is the gradient and h stands for the diagonal of the Hessian. For the weight from unit j to
unit i of the next layer

    g_ij = delta_i z_j,        h_ij = b_i z_j^2,

z_j what j gives (1 for a bias), so that per record no more than delta and b of each unit is needed:

    delta_i = z'_i sum_v delta_v w_vi,
    b_i     = z''_i sum_v delta_v w_vi + z'_i^2 sum_v w_vi^2 b_v          ("lecun"),
    b_i     = sum_c q_c (delta^c_i)^2                                     ("gauss-newton").

LeCun's diagonal is exact for one hidden layer with squared errors, and may be negative. The
Gauss-Newton diagonal is exact as such at any depth, and never negative: the second derivative of
the loss by the scores is sum_c q_c d^c (d^c)' (q_c = p_c and d^c = e_c - p for softmax, q_c = 1 and
d^c = psi'_c e_c for squares), and delta^c is d^c back-propagated like a gradient.

Everything is a function of one record by itself, to the last bit
(:mod:`~sfumato.learning.functional.arithmetic`).

References: LeCun, "Modeles connexionnistes de l'apprentissage" (1987); Schraudolph, "Fast curvature
matrix-vector products for second-order gradient descent", Neural Computation 14 (2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.functional.arithmetic import (
    hyperbolic_tangent,
    logistic,
    softmax,
    weighed,
)
from sfumato.learning.functional.networks import Topology

__all__ = ["CURVATURES", "Expansion", "expand"]

CURVATURES = ("gauss-newton", "lecun", "none")


@final
@dataclass(frozen=True, eq=False)
class Expansion:
    """Of n records, layer by layer; private.

    Attributes:
        before: (k, n) what each layer is given, with 1 for a bias.
        deltas: (units, n) slopes by the layer's sums.
        curvatures: (units, n) b of each unit; None without curvatures.
    """

    before: list[Tensor]
    deltas: list[Tensor]
    curvatures: list[Tensor] | None

    def gradients(self) -> Tensor:
        """(n, parameters): g of every record."""
        return _outer(self.deltas, self.before)

    def diagonals(self) -> Tensor:
        """(n, parameters): h of every record.

        Raises:
            ValueError: if there are no curvatures.
        """
        if self.curvatures is None:
            raise ValueError("curvature must not be 'none' for diagonals: expand with another")
        return _outer(self.curvatures, [z * z for z in self.before])


def expand(
    topology: Topology,
    weights: Sequence[Tensor],
    inputs: Tensor,
    labels: Tensor,
    curvature: str = "gauss-newton",
) -> Expansion:
    """Slopes and curvatures of each record's loss.

    Args:
        topology: of the network.
        weights: public, one matrix a layer.
        inputs: (n, inputs).
        labels: (n,) the number of each record's class; or (n, outputs) targets.
        curvature: one of :data:`CURVATURES`.
    """
    if curvature not in CURVATURES:
        validation.fail("curvature", f"one of {', '.join(CURVATURES)}", curvature)
    before, slopes, bends, scores = _forward(topology, weights, inputs)
    targets = _targets(labels, topology.outputs)
    delta, b, factors = _last(topology, scores, targets)
    deltas = _back(weights, slopes, delta, topology.bias)
    if curvature == "none":
        return Expansion(before, deltas, None)
    if curvature == "lecun":
        return Expansion(before, deltas, _lecun(weights, slopes, bends, deltas, b, topology.bias))
    roots = [_back(weights, slopes, factor, topology.bias) for _, factor in factors]
    curvatures = [torch.zeros_like(layer) for layer in deltas]
    for (share, _), layers in zip(factors, roots, strict=True):
        curvatures = [c + share * (d * d) for c, d in zip(curvatures, layers, strict=True)]
    return Expansion(before, deltas, curvatures)


def _forward(
    topology: Topology, weights: Sequence[Tensor], inputs: Tensor
) -> tuple[list[Tensor], list[Tensor], list[Tensor], Tensor]:
    """What each layer is given, the first two derivatives of hidden units, and the scores."""
    z = inputs.to(torch.float64).T.contiguous()
    z = 2 * z - 1 if topology.centred else z
    before, slopes, bends = [], [], []
    for place, layer in enumerate(weights):
        before.append(torch.cat([z, torch.ones_like(z[:1])]) if topology.bias else z)
        sums = weighed(layer, before[-1])
        if place == len(weights) - 1:
            return before, slopes, bends, sums
        z, slope, bend = _ACTIVATED[topology.activation](sums)
        slopes.append(slope)
        bends.append(bend)
    raise ValueError("weights must be of one layer at least")


def _sigmoid(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z = logistic(x)
    slope = z * (1 - z)
    return z, slope, slope * (1 - 2 * z)


def _tanh(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    z = hyperbolic_tangent(x)
    slope = 1 - z * z
    return z, slope, -2 * z * slope


def _relu(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x.clamp(min=0.0), (x > 0).to(x.dtype), torch.zeros_like(x)


_ACTIVATED: dict[str, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]] = {
    "sigmoid": _sigmoid, "tanh": _tanh, "relu": _relu,
}  # fmt: skip


def _targets(labels: Tensor, outputs: int) -> Tensor:
    """(outputs, n): 1 for a record's class."""
    if labels.ndim == 2:
        return labels.to(torch.float64).T.contiguous()
    return (labels[None, :] == torch.arange(outputs)[:, None]).to(torch.float64)


def _last(
    topology: Topology, scores: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
    """The last layer's delta and b, and the pairs (q_c, d^c)."""
    each = torch.eye(len(scores), dtype=torch.float64)[:, :, None]
    if topology.loss == "cross-entropy":
        p = softmax(scores)
        pairs = [(p[c], each[c] - p) for c in range(len(p))]
        return p - targets, p * (1 - p), pairs
    z, slope, bend = _sigmoid(scores)
    off = z - targets
    pairs = [(torch.ones_like(z[c]), each[c] * slope) for c in range(len(z))]
    return off * slope, slope * slope + off * bend, pairs


def _back(
    weights: Sequence[Tensor], slopes: Sequence[Tensor], last: Tensor, bias: bool
) -> list[Tensor]:
    """The last layer's slopes, and by them those of the layers before."""
    found = [last]
    for layer, slope in zip(reversed(weights[1:]), reversed(slopes), strict=True):
        kept = layer[:, :-1] if bias else layer
        found.append(slope * weighed(kept.T, found[-1]))
    return found[::-1]


def _lecun(
    weights: Sequence[Tensor],
    slopes: Sequence[Tensor],
    bends: Sequence[Tensor],
    deltas: Sequence[Tensor],
    last: Tensor,
    bias: bool,
) -> list[Tensor]:
    found = [last]
    for place in range(len(weights) - 1, 0, -1):
        kept = (weights[place][:, :-1] if bias else weights[place]).T
        bent = bends[place - 1] * weighed(kept, deltas[place])
        slope = slopes[place - 1]
        found.append(bent + slope * slope * weighed(kept * kept, found[-1]))
    return found[::-1]


def _outer(after: Sequence[Tensor], before: Sequence[Tensor]) -> Tensor:
    layers = [
        (d[:, None, :] * z[None, :, :]).flatten(0, 1).T for d, z in zip(after, before, strict=True)
    ]
    return torch.cat(layers, dim=1)
