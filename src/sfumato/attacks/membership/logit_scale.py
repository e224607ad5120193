"""The logit of the label's probability: the scale on which LiRA compares models.

    >>> phi([[0.5, 0.25, 0.25], [0.2, 0.1, 0.7]], [0, 2]).round(3).tolist()
    [0.0, 0.847]
    >>> phi_from_logits([[3000.0, 0.0]], [0]).tolist()  # where a probability is 1 to all digits
    [3000.0]

On this scale the answers of models that were trained alike, on an example they had or on one they
had not, are close to normal.

Reference: Carlini, Chien, Nasr, Song, Terzis and Tramèr, "Membership inference attacks from first
principles", IEEE S&P 2022, arXiv:2112.03570, section IV.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["phi", "phi_from_logits", "smallest"]

_Floats = NDArray[np.float64]


def phi(probabilities: ArrayLike, labels: ArrayLike, least: float | None = None) -> _Floats:
    """The logit of the label's probability, log p_y - log sum_{c != y} p_c, in float64.

    The sum is taken over the other classes, not as 1 - p_y, which loses all digits where p_y is
    near 1. Where a probability of 0 was shown, how small it was is unknown.

    Args:
        probabilities: of shape (..., classes).
        labels: of shape (...), or of one that NumPy broadcasts to it: (examples,) serves (models,
            examples, classes), and (examples, 1) serves (examples, queries, classes).
        least: what a probability of 0 counts as; by default the smallest number of the type in
            which ``probabilities`` came. For probabilities rounded to k decimals take 10^-k / 2.
    """
    raw = np.asarray(probabilities)
    right, others = _apart(raw.astype(np.float64), labels, 0.0)
    floor = validation.positive("least", smallest(raw) if least is None else least)
    return np.log(np.maximum(right, floor)) - np.log(np.maximum(others.sum(axis=-1), floor))


def smallest(probabilities: NDArray[Any]) -> float:
    """The smallest number above 0 of the type in which probabilities came."""
    kind = probabilities.dtype if probabilities.dtype.kind == "f" else np.float64
    return float(np.finfo(kind).smallest_subnormal)


def phi_from_logits(logits: ArrayLike, labels: ArrayLike) -> _Floats:
    """The same from logits z, without rounding: z_y - log sum_{c != y} e^{z_c}."""
    right, others = _apart(np.asarray(logits, dtype=np.float64), labels, -np.inf)
    top = others.max(axis=-1)
    return right - top - np.log(np.exp(others - top[..., None]).sum(axis=-1))


def _apart(table: _Floats, labels: ArrayLike, nothing: float) -> tuple[_Floats, _Floats]:
    """The label's column, and the table with ``nothing`` in its place."""
    y = np.asarray(labels, dtype=np.int64)
    if table.ndim < 2 or table.shape[-1] < 2:
        validation.fail("the last axis", "one number for each of 2 classes or more", table.shape)
    try:
        places = np.broadcast_to(y, table.shape[:-1])[..., None]
    except ValueError:
        validation.fail("labels", f"one for each of {table.shape[:-1]} examples", y.shape)
    if y.size and not 0 <= y.min() <= y.max() < table.shape[-1]:
        validation.fail("labels", f"classes below {table.shape[-1]}", (int(y.min()), int(y.max())))
    right = np.take_along_axis(table, places, axis=-1)[..., 0]
    others = table.copy()
    np.put_along_axis(others, places, nothing, axis=-1)
    return right, others
