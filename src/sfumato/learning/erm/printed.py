"""Objective perturbation as it was first printed, to compare with.

    >>> printed_split(1.0, records=1000, regularisation=0.01)
    (0.95061..., 0.0)

Reference: Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
JMLR 12 (2011), algorithm 2.
"""

from __future__ import annotations

import math

__all__ = ["printed_split"]


def printed_split(
    epsilon: float, records: int, regularisation: float, curvature: float = 0.25
) -> tuple[float, float]:
    """What is left of epsilon for noise of scale 2 / epsilon', and how much is added to lambda.

    epsilon' = epsilon - ln(1 + 2 c / (n lambda) + c^2 / (n lambda)^2); where that is not positive,
    epsilon / 2, with lambda raised to c / (n (e^(epsilon/4) - 1)).
    :mod:`~sfumato.learning.erm.objective_privacy` needs half of the logarithm.
    """
    share = curvature / (records * regularisation)
    left = epsilon - math.log(1 + 2 * share + share**2)
    if left > 0:
        return left, 0.0
    return epsilon / 2, curvature / (records * math.expm1(epsilon / 4)) - regularisation
