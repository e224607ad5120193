"""Specimens: networks made of noisy coefficients or noisy inputs, restated in a few lines each.

What noise is added to, as printed and as repaired; :mod:`~sfumato.audit.claims.networks` adds it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from sfumato.mechanisms.sensitivity import NetworkExpansion

__all__ = [
    "clipped_sum",
    "far_records",
    "inverted_clip",
    "largest_of_those_there",
    "mean_relevance",
    "objective",
    "objective_bound",
    "table_with",
    "three_objectives",
    "trained_weights",
]

_Floats = NDArray[np.float64]


# --- the functional network ---------------------------------------------------------------------


def inverted_clip(total: _Floats, clip: float) -> _Floats:
    """A specimen: v / min(1, |v|^2 / C), of a whole table's sum. Zeros stay what they are."""
    squared = float(np.square(total).sum())
    return total / min(1.0, squared / clip) if squared else total


def clipped_sum(slopes: _Floats, clip: float) -> _Floats:
    """The repair: the sum over rows of v / max(1, |v|_1 / C)."""
    lengths = np.abs(slopes).sum(axis=1, keepdims=True)
    return (slopes / np.maximum(1.0, lengths / clip)).sum(axis=0)


def largest_of_those_there(slopes: _Floats) -> float:
    """A specimen: S = 2 sum over weights of the largest |slope| of any row (no curvatures)."""
    return 2 * float(np.abs(slopes).max(axis=0).sum())


def far_records() -> tuple[_Floats, _Floats]:
    """The coefficients of two records, by the slides' own equations and within their assumptions.

    Ten inputs of 1, a first layer of ten units with weights 1, a second with ln(2) / 10; targets of
    0 against targets of 1.
    """
    expansion = NetworkExpansion([np.ones((10, 10)), np.full((10, 10), math.log(2) / 10)])
    ones = np.ones(10)
    first, second = (expansion.record_coefficients((ones, target)) for target in (0 * ones, ones))
    return first, second


# --- the adaptive Laplace mechanism -------------------------------------------------------------


def trained_weights(inputs: _Floats, labels: _Floats) -> _Floats:
    """A specimen: a linear network without a bias, trained to the end: least squares."""
    found = np.linalg.lstsq(inputs.T @ inputs, inputs.T @ labels)[0]
    return np.asarray(found, np.float64)


def mean_relevance(weights: _Floats, inputs: _Floats, *, scaled: bool) -> _Floats:
    """The mean over records of R_j = w_j x_j, which is what propagation gives a linear network.

    ``scaled``: each record's as R / max(1, |R|_1).
    """
    relevance = weights * inputs
    return clipped_sum(relevance, 1.0 if scaled else math.inf) / len(relevance)


def table_with(last: tuple[float, float], records: int) -> tuple[_Floats, _Floats]:
    """Records of inputs (1, 1) and label 1, of which the last is another one, with label 0."""
    inputs, labels = np.ones((records, 2)), np.ones(records)
    inputs[-1], labels[-1] = last, 0.0
    return inputs, labels


# --- the private auto-encoder -------------------------------------------------------------------


def objective(inputs: _Floats, codes: _Floats) -> _Floats:
    """One record's coefficients of its reconstruction's cross-entropy, expanded to second order.

    For each input x_j all (1/2 - x_j) h_k and all h_k h_l / 8; of an output, x_j is its label.
    """
    linear = np.outer(0.5 - inputs, codes).ravel()
    squares = np.tile(np.outer(codes, codes).ravel() / 8, len(inputs))
    return np.concatenate([linear, squares])


def objective_bound(inputs: int, codes: int) -> float:
    """As printed, d (b + b^2 / 4): valid for a replaced record and codes in [0, 1]."""
    return inputs * (codes + codes**2 / 4)


def three_objectives(pixel: float) -> list[_Floats]:
    """A network of one unit a layer, at public weights; the label is the pixel.

    The first code is that of the pixel, white as 1 and black as 0; the second is 1.
    """
    x = np.array([pixel])
    first = expit(80 * x - 40)
    second = expit(0 * first + 40)
    return [objective(x, first), objective(first, second), objective(x, second)]
