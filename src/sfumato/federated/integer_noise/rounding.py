"""Random rounding to whole numbers that never makes a vector longer than a stated bound.

    >>> from sfumato.core.randomness import SeededCoins
    >>> most = squared_norm_bound(norm=3.0, dimension=4)
    >>> most
    14
    >>> whole = round_within([1.5, -1.5, 1.5, 1.5], most, coins=SeededCoins(1))
    >>> int((whole * whole).sum()) <= most
    True

Each number goes up or down by coin, so that its mean is kept; if the whole vector came out too
long, all of it is drawn again. The bound is checked on the integers that are sent, so the
sensitivity does not rest on floating point, nor on the coins.

Reference: Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated
learning with secure aggregation", arXiv:2102.06387 (conditional rounding).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.mechanisms.additive import as_floats

__all__ = ["ATTEMPTS", "REJECTION", "round_within", "squared_norm_bound"]

REJECTION = math.exp(-0.5)
"""Bounds the probability that a draw is too long; often it is a seventh. The paper's value."""

ATTEMPTS = 64
"""After so many draws that were too long, the vector is rounded towards zero."""

_LARGEST = 2.0**50
"""Squares of larger coordinates would not be exact."""


def squared_norm_bound(norm: float, dimension: int, rejection: float = REJECTION) -> int:
    """The largest squared L2 norm that :func:`round_within` gives to a vector of length ``norm``.

    The least of two whole numbers, with k the dimension and beta the rejection probability:

        (norm + sqrt(k))^2
            no draw is longer, because no number moves by 1;
        norm^2 + k/4 + sqrt(2 ln(1/beta)) (norm + sqrt(k)/2)
            a draw is longer with probability beta at most.

    Squared norms of whole vectors are whole, so the bound is rounded down. Which of the two is
    taken decides how often a draw is repeated; the sensitivity holds for either.
    """
    norm = validation.positive("norm", norm)
    dimension = validation.count("dimension", dimension)
    rejection = validation.open_probability("rejection", rejection)
    root = math.sqrt(dimension)
    spread = math.sqrt(2 * math.log(1 / rejection)) * (norm + root / 2)
    bound = min(norm * norm + dimension / 4 + spread, (norm + root) ** 2)
    if bound >= _LARGEST:
        validation.fail("norm", "below 2^25 in whole steps: use coarser ones", norm)
    return math.floor(bound * (1 + 2.0**-48))


def round_within(
    values: ArrayLike,
    most_squared: int,
    *,
    coins: Coins = SYSTEM,
    attempts: int = ATTEMPTS,
) -> NDArray[np.int64]:
    """``values`` as whole numbers whose squares sum to ``most_squared`` at most, whatever they are.

    Unbiased, up to 2^-53, where no draw can be too long (the first bound of
    :func:`squared_norm_bound`). Otherwise conditioning on an event of probability 1 - b moves the
    mean by at most b/(1 - b) times the distance that a draw can have from its mean.

    What is no finite number is 0. Where ``attempts`` draws were all too long the numbers are
    rounded towards zero, which makes none longer; where even that is too long (the values were
    longer than they should be) all are 0. So there is an answer for everything. How many draws it
    took shows in the time alone.
    """
    held = as_floats(values).ravel()
    held = np.clip(held, -(2.0**31), 2.0**31)
    down = np.floor(held)
    share = held - down
    for _ in range(validation.at_least("attempts", attempts, 0)):
        uniform = (coins.words(held.size) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        drawn = (down + (uniform < share)).astype(np.int64)
        if _fits(drawn, most_squared):
            return drawn
    drawn = np.trunc(held).astype(np.int64)
    return drawn if _fits(drawn, most_squared) else np.zeros_like(drawn)


def _fits(drawn: NDArray[np.int64], most_squared: int) -> bool:
    """Whether the squared norm is within the bound, without overflow."""
    if drawn.size and int(np.abs(drawn).max()) > math.isqrt(most_squared):
        return False
    # Each square is at most most_squared < 2^50; as floats their sum is off by 2^-30 at most.
    rough = float(np.dot(drawn.astype(np.float64), drawn.astype(np.float64)))
    return rough <= most_squared * (1 + 2.0**-20) and int(np.dot(drawn, drawn)) <= most_squared
