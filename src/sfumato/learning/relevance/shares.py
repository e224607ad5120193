"""From noisy relevance to each input's share of a budget: post-processing, free.

    >>> feature_shares([3.0, -1.0, 0.0, 0.0], floor=0.5).round(4).tolist()
    [2.25, 0.75, 0.5, 0.5]

Reference: Phan et al., arXiv:1709.05750, equation 12, without a floor.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation

__all__ = ["feature_shares"]


def feature_shares(relevance: ArrayLike, floor: float = 0.1) -> NDArray[np.float64]:
    """beta_j = max(floor, s |R_j|), with the one s for which they add up to d.

    Without a floor s is d / sum |R|. Shares that were raised and not scaled again would add up to
    more than d, and inputs with noise by these shares would cost more than they were said to.

    Args:
        relevance: released, of d inputs in any shape. What is not finite counts as 0; if all are
            0, all shares are 1.
        floor: no share is less. At least 0 and below 1.

    Returns:
        As ``relevance``; above 0 unless the floor is 0, and adding up to d.
    """
    least = validation.delta("floor", floor)
    values = np.asarray(relevance, dtype=np.float64)
    if values.size == 0:
        validation.fail("relevance", "of one input at least", values.shape)
    sizes = np.abs(np.where(np.isfinite(values), values, 0.0))
    largest = sizes.max()
    if largest == 0:
        return np.ones_like(values)
    sizes = sizes / largest  # so that no sum overflows
    count = values.size
    # With the k smallest at the floor, the others share what is left in proportion. Raising one
    # more leaves less for the others, so the right k is the first at which all others are above.
    ordered = np.sort(sizes, axis=None)
    left = count - least * np.arange(count)
    scales = left / np.cumsum(ordered[::-1])[::-1]
    scale = scales[int(np.argmax(scales * ordered >= least))]
    return np.maximum(sizes * scale, least)
