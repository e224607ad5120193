"""How the error of the tensor attack should grow behind a defence: orders, without constants.

B inputs of d numbers, m hidden units; constants and logarithms are left out, so that only ratios of
these numbers mean something. Who has shown what:

==================  ==============================  ============================================
defence             error at most of order          shown
==================  ==============================  ============================================
none                B sqrt(d/m)                     Wang et al. (2023), theorem
k local steps       B sqrt(d/m)                     here, for steps on output weights alone
noise               (B + s) sqrt(d/m)               stated by Liu et al.; leading term here
clipping            B sqrt(d/m)                     here: a factor changes no direction
DP-SGD              (B + s max(1, |g|/S)) sqrt(d/m) stated by Liu et al.; leading term here
dropout             B sqrt(d/((1 - p) m))           here: the same attack on (1 - p) m units
pruning             none is known                   -
==================  ==============================  ============================================

"Here, for steps on output weights alone": the sum of k such gradients is again a gradient of the
same inputs, with the sum of the residuals (:func:`~.observing.locally_summed`), so nothing is lost.
Liu et al. say as much of local aggregation, that it has no theoretical protection. A lecture's
table (Lei, 2024, table 1) gives k B sqrt(d/m) instead, k times more than either;
:func:`local_steps_as_lectured` is that figure, for comparison. The same table writes dropout as
B sqrt(d/(m p)): p there is the share that is kept.

"Leading term here": :mod:`~sfumato.attacks.gradients.tensor.predicting` has it with its constant.
It grows with sqrt(B) and sqrt(h^2 + s^2) where the bounds have B and h + s.

From below, for any attacker who sees noise of variance s^2: s sqrt(d/m), and with a share p pruned
s sqrt(d/((1 - p) m)) (Liu et al., as summarised elsewhere; their proofs were not checked here).

    >>> no_defence(2, 50, 5000), dropout(2, 50, 5000, share=0.75)
    (0.2, 0.4)
    >>> local_steps(2, 50, 5000, steps=4), local_steps_as_lectured(2, 50, 5000, steps=4)
    (0.2, 0.8)

References: Wang, Lee and Lei, AISTATS 2023, arXiv:2212.03714; Liu, Wang, Chen and Lei, "Data
reconstruction attacks and defenses: a systematic evaluation", AISTATS 2025, arXiv:2402.09478.
"""

from __future__ import annotations

import math

from sfumato.core import validation

__all__ = [
    "clipping",
    "dp_sgd",
    "dropout",
    "gradient_noise",
    "local_steps",
    "local_steps_as_lectured",
    "lower_bound",
    "no_defence",
]


def _rate(dimension: int, width: float) -> float:
    return math.sqrt(validation.count("dimension", dimension) / width)


def no_defence(batch: int, dimension: int, width: int) -> float:
    """B sqrt(d/m)."""
    return validation.count("batch", batch) * _rate(dimension, validation.count("width", width))


def local_steps(batch: int, dimension: int, width: int, *, steps: int) -> float:
    """As without a defence, however many steps."""
    validation.count("steps", steps)
    return no_defence(batch, dimension, width)


def local_steps_as_lectured(batch: int, dimension: int, width: int, *, steps: int) -> float:
    """The lecture's k B sqrt(d/m), larger than what was shown."""
    return validation.count("steps", steps) * no_defence(batch, dimension, width)


def gradient_noise(batch: int, dimension: int, width: int, *, deviation: float) -> float:
    """(B + s) sqrt(d/m), where one input's share of the gradient is of size 1."""
    spread = validation.non_negative("deviation", deviation)
    return no_defence(batch, dimension, width) + spread * _rate(dimension, width)


def clipping(batch: int, dimension: int, width: int, *, norm: float) -> float:
    """As without a defence, whatever the norm."""
    validation.positive("norm", norm)
    return no_defence(batch, dimension, width)


def dp_sgd(
    batch: int, dimension: int, width: int, *, deviation: float, gradient_norm: float, norm: float
) -> float:
    """(B + s max(1, |g|/S)) sqrt(d/m): what was clipped is scaled up again, noise and all.

    Args:
        batch: B.
        dimension: d.
        width: m.
        deviation: s, of the noise on each number: the noise multiplier times the norm.
        gradient_norm: |g|, of an example's gradient before clipping.
        norm: S, to which it is clipped.
    """
    size = validation.positive("gradient_norm", gradient_norm)
    grown = max(1.0, size / validation.positive("norm", norm))
    spread = validation.non_negative("deviation", deviation) * grown
    return gradient_noise(batch, dimension, width, deviation=spread)


def dropout(batch: int, dimension: int, width: int, *, share: float) -> float:
    """B sqrt(d/((1 - p) m)), p the share of units that are left out."""
    kept = (1 - validation.delta("share", share)) * validation.count("width", width)
    return validation.count("batch", batch) * _rate(dimension, kept)


def lower_bound(dimension: int, width: int, *, deviation: float, pruned: float = 0.0) -> float:
    """At least s sqrt(d/((1 - p) m)), with noise s on the gradient and a share p of it pruned."""
    kept = (1 - validation.delta("pruned", pruned)) * validation.count("width", width)
    return validation.non_negative("deviation", deviation) * _rate(dimension, kept)
