"""The adaptive Laplace mechanism as it was printed and published: what it gives, and specimens.

    >>> round(printed_relevance_scale(784, 60_000, 0.075), 4)  # on the mean, by lemma 1
    0.3484
    >>> round(corrected_relevance_scale(60_000, 0.075), 6)  # by R / max(1, ||R||_1)
    0.000444
    >>> round(inputs_epsilon(0.075, lot=1800, sensitivity=9800, shares=784), 4)  # said to be 0.075
    10.8
    >>> round(labels_epsilon(0.15, lot=1800, hidden=25, outputs=10), 3)  # said to be 0.15
    7.448

What is printed: relevance R_j + Lap(2 d / (n e1)); shares beta_j = d |R_j| / sum |R|; inputs x_ij +
Lap(D / (beta_j e2)) / |L| with D = 2 d |h_0|, |L| the size of a batch and h_0 the first layer;
coefficients of the loss + Lap(M (k + k^2 / 4) / e3) / |L| for M outputs and k hidden units.

What is wrong with the claim (e1 + e2 + e3):

- The network of relevance was trained on the records. One record moves all relevance by it, so the
  sum over records moves by up to 2 n, not 2. See :func:`relevance_by_own_network`.
- Noise is divided by |L|. Drawn for each record, it is |L| times too small for a record's own noisy
  inputs, which the network sees; the functions below say what is promised instead. See
  :class:`DividedNoise`.
- Drawn once for a whole batch, as in the published code, it cancels in the difference of any two
  records of it: no epsilon at all. See :class:`SharedNoise`.
- Relevance over a part of the records with noise for all of them; see
  :func:`relevance_epsilon_of_part`.
- Shares raised to a floor after they were scaled add up to more than d: each input's noise is then
  too small by that factor, which ``shares`` of :func:`inputs_epsilon` is for.

Specimens are for tests and audits. Nothing in sfumato trains with them.

Reference: Phan, Wu, Hu and Dou, "Adaptive Laplace mechanism: differential privacy preservation in
deep learning", ICDM 2017, arXiv:1709.05750, algorithm 1 and lemmas 1 to 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.relevance.private import scaled_relevance
from sfumato.learning.relevance.propagation import explain
from sfumato.mechanisms.sampling import add_laplace, grid_for

__all__ = [
    "DividedNoise",
    "SharedNoise",
    "corrected_relevance_scale",
    "inputs_epsilon",
    "labels_epsilon",
    "loss_sensitivity",
    "printed_relevance_scale",
    "relevance_by_own_network",
    "relevance_epsilon_of_part",
]


# --- what is promised -----------------------------------------------------------------------------


def printed_relevance_scale(inputs: int, records: int, epsilon: float) -> float:
    """2 d / (n e1): each input's relevance bounded by itself; of noise on the mean."""
    return validation.count("inputs", inputs) * corrected_relevance_scale(records, epsilon)


def corrected_relevance_scale(records: int, epsilon: float) -> float:
    """2 / (n e1): a record's relevance bounded as a whole; of noise on the mean."""
    return 2 / (validation.count("records", records) * validation.positive("epsilon", epsilon))


def relevance_epsilon_of_part(epsilon: float, part: int, records: int) -> tuple[float, float]:
    """Of relevance over a random part of the records, with noise for all of them.

    The mean over m of n records moves by n / m as much: n e / m. That the part is drawn at random
    and kept secret helps: ln(1 + m / n (exp(n e / m) - 1)).

    >>> [round(e, 3) for e in relevance_epsilon_of_part(0.075, 2000, 60_000)]
    [2.25, 0.249]
    """
    share = validation.count("part", part) / validation.count("records", records)
    plain = validation.positive("epsilon", epsilon) / share
    return plain, math.log1p(share * math.expm1(plain))


def inputs_epsilon(
    epsilon: float, *, lot: int, sensitivity: float, shares: float, width: float = 1.0
) -> float:
    """What noise Lap(D / (beta_j e2)) / |L|, drawn once for each record, promises for its inputs.

    sum_j width / b_j = width |L| e2 sum_j beta_j / D, for replacing a record. With shares that add
    up to d and D = 2 d |h_0| this is width |L| e2 / (2 |h_0|).

    Args:
        epsilon: e2, as claimed.
        lot: |L|.
        sensitivity: D.
        shares: what beta adds up to.
        width: of each input's range.
    """
    told = validation.positive("epsilon", epsilon) * validation.count("lot", lot)
    return width * told * shares / validation.positive("sensitivity", sensitivity)


def loss_sensitivity(hidden: int, outputs: int) -> float:
    """M (k + k^2 / 4), of the coefficients of the printed polynomial.

    >>> loss_sensitivity(25, 10)
    1812.5
    """
    k = validation.count("hidden", hidden)
    return validation.count("outputs", outputs) * (k + k**2 / 4)


def labels_epsilon(epsilon: float, *, lot: int, hidden: int, outputs: int) -> float:
    """What Lap(M (k + k^2 / 4) / e3) / |L|, drawn once for each record, promises for its label.

    Another label moves two outputs' k linear coefficients by 1 each at most: 2 k |L| e3 / (M (k +
    k^2 / 4)).
    """
    told = validation.positive("epsilon", epsilon) * validation.count("lot", lot)
    return 2 * hidden * told / loss_sensitivity(hidden, outputs)


# --- specimens ------------------------------------------------------------------------------------


def relevance_by_own_network(
    inputs: Tensor, labels: Tensor, classes: int, steps: int = 200, rate: float = 1.0
) -> NDArray[np.float64]:
    """The sum over records of scaled relevance by a network that was trained on these records.

    A linear classifier, from zero, by gradient descent without noise. Each record's relevance has
    norm 1 at most, as it should; that does not bound how far one record moves the sum.
    """
    layer = nn.Linear(inputs[0].numel(), classes, dtype=torch.float64)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    rows = inputs.flatten(1).double()
    with torch.enable_grad():
        for _ in range(steps):
            loss = F.cross_entropy(layer(rows), labels)
            slopes = torch.autograd.grad(loss, list(layer.parameters()))
            with torch.no_grad():
                for weight, slope in zip(layer.parameters(), slopes, strict=True):
                    weight -= rate * slope
    found = explain(nn.Sequential(layer), rows, rule="z").values
    return scaled_relevance(found).sum(0).numpy()


@final
@dataclass(frozen=True)
class DividedNoise:
    """Each record's own noise, divided by the size of the batch.

    Attributes:
        epsilon: as claimed, for all inputs of a record together.
        lot: |L|.
    """

    epsilon: float
    lot: int

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """(n, d) of values in [0, 1] with equal shares: d / (epsilon |L|) for a scale."""
        rows = np.asarray(values, dtype=np.float64)
        scale = rows.shape[1] / (self.epsilon * self.lot)
        return add_laplace(rows, scale, grid_for(scale), coins)


@final
@dataclass(frozen=True)
class SharedNoise:
    """One draw for all records of a batch, even at the full scale.

    Attributes:
        epsilon: as claimed, for all inputs of a record together.
    """

    epsilon: float

    def perturb(self, values: ArrayLike, *, coins: Coins = SYSTEM) -> NDArray[np.float64]:
        """(n, d) of values in [0, 1]: every row with the same noise."""
        rows = np.asarray(values, dtype=np.float64)
        scale = rows.shape[1] / self.epsilon
        noise = add_laplace(np.zeros(rows.shape[1]), scale, grid_for(scale), coins)
        return rows + noise
