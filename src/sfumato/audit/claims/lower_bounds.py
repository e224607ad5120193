"""Lower bounds on epsilon that are computed, for laws too long or too small to list.

An accountant rounds every privacy loss up, so that its epsilon is never too small. For an audit it
is the other way round: losses are rounded *down*, mass that is cut off counts as no loss at all,
and what arithmetic may have added is taken off delta. What comes out is at most the true epsilon.

    >>> round(sampled_gaussian_at_least(1.0, 0.01, 100, 1e-5), 3)
    0.718
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from sfumato.accounting.convolution import repeated
from sfumato.accounting.dpa import LossMasses

__all__ = ["epsilon_of_events", "sampled_gaussian_at_least"]

_REACH = 9.0
"""Standard deviations of one step that are kept; the rest, 1e-19, counts as no loss."""
_TAIL = 1e-10
"""How much may wrap around the circle of cells on which losses are added up."""
_SLACK = 1e-9
"""Taken off delta: the tail, and far more than the rounding of a Fourier transform."""

_Floats = NDArray[np.float64]


def sampled_gaussian_at_least(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, grid: float = 1e-5
) -> float:
    """At most the true epsilon of DP-SGD, for one record removed.

    With P = (1 - q) N(0, m^2) + q N(1, m^2) against Q = N(0, m^2), T independent steps have

        delta(epsilon) = E_P[(1 - e^(epsilon - loss))_+],    loss = sum of ln(P/Q),

    which grows with the loss: rounding each step's down to the grid, and adding them up by FFT,
    gives a lower bound on delta, hence on epsilon. It is low by about T grid / 2.

    Reference: Koskela, Jälkö and Honkela, "Computing tight differential privacy guarantees using
    FFT", arXiv:1906.03049.
    """
    step = _one_step(noise_multiplier, sample_rate, grid)
    whole = repeated(step, steps, _TAIL)
    losses, masses = whole.losses, np.maximum(whole.probs, 0.0)

    def shown(epsilon: float) -> float:
        above = losses > epsilon
        return float(-np.expm1(epsilon - losses[above]) @ masses[above]) - _SLACK

    low, high = 0.0, float(losses[-1])
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if shown(middle) > delta else (low, middle)
    return low


def _one_step(m: float, q: float, grid: float) -> LossMasses:
    """The losses ln(1 - q + q e^((2x - 1) / 2m^2)) under P, each at the grid point below it."""
    largest = math.log1p(q * math.expm1((2 * (1 + _REACH * m) - 1) / (2 * m * m)))
    lowest = math.floor(math.log1p(-q) / grid)
    losses = grid * np.arange(lowest, math.ceil(largest / grid) + 1)
    with np.errstate(divide="ignore"):
        x = m * m * (np.log(np.maximum(np.expm1(losses) + q, 0.0)) - math.log(q)) + 0.5
    above = (1 - q) * ndtr(-x / m) + q * ndtr((1 - x) / m)
    return LossMasses(lowest, np.maximum(-np.diff(above), 0.0), 0.0, grid)


def epsilon_of_events(log_p: _Floats, log_q: _Floats, delta: float) -> float:
    """The most that any of several events shows, from the logarithms of their probabilities.

    ln((Pr[S] - delta) / Pr'[S]), less a millionth for rounding; 0 if none shows anything.
    """
    inside = np.exp(log_p) - delta
    useful = inside > 0
    if not bool(useful.any()):
        return 0.0
    shown = float(np.max(np.log(inside[useful]) - log_q[useful]))
    return max(0.0, shown * (1 - 1e-6))
