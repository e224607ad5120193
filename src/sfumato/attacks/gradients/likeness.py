"""How alike reconstructions and originals are: PSNR and SSIM, each with its own original.

A gradient does not tell in which order its examples stood, so reconstructions are first matched to
originals, one to one, with the least sum of squared errors. With a range R of pixels and a mean
squared error E over all pixels of an image,

    PSNR = 10 log10(R^2 / E)   decibels.

    >>> originals = np.stack([np.zeros((1, 8, 8)), np.ones((1, 8, 8))])
    >>> found = likeness(originals[::-1] * 0.9, originals)
    >>> found.order.tolist(), found.psnr.round(1).tolist()
    ([1, 0], [100.0, 20.0])
    >>> print(found)
    PSNR 60.0 dB in the mean of 2, the best 100.0; SSIM 1.00

Two flat grey images are at 12 dB or so from most photographs: below that nothing has been learned
that is not known of all pictures. A PSNR is cut off at 100; what is no number counts as off by R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.inversion.likeness import structural_similarity
from sfumato.core import validation

__all__ = ["Likeness", "likeness"]

_MOST = 100.0


@final
@dataclass(frozen=True, eq=False)
class Likeness:
    """Of each original and its reconstruction.

    Attributes:
        order: the number of the reconstruction that was taken for each original.
        squared_error: the mean over the pixels of each.
        psnr: in decibels, at most 100.
        ssim: structural similarity, 1 for the same picture.
    """

    order: NDArray[np.int64]
    squared_error: NDArray[np.float64]
    psnr: NDArray[np.float64]
    ssim: NDArray[np.float64]

    def __str__(self) -> str:
        return (
            f"PSNR {self.psnr.mean():.1f} dB in the mean of {len(self.psnr)}, the best "
            f"{self.psnr.max():.1f}; SSIM {self.ssim.mean():.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; for the curator."""
        return {
            "channel": "curator",
            "order": self.order.tolist(),
            "squared_error": self.squared_error.tolist(),
            "psnr": self.psnr.tolist(),
            "ssim": self.ssim.tolist(),
        }


def likeness(
    images: ArrayLike, originals: ArrayLike, bounds: tuple[float, float] = (0.0, 1.0)
) -> Likeness:
    """Matches images to originals, and compares.

    Args:
        images: reconstructions, one a row.
        originals: as many, of the same shape.
        bounds: the least and the greatest value of a pixel.
    """
    from scipy.optimize import linear_sum_assignment

    a, b = (np.asarray(each, dtype=np.float64) for each in (images, originals))
    if a.shape != b.shape or len(a) == 0:
        validation.fail("images", f"as many and of the shape of the originals {b.shape}", a.shape)
    low, high = validation.interval("bounds", *bounds)
    flat_a, flat_b = a.reshape(len(a), -1), b.reshape(len(b), -1)
    errors = np.stack([np.square(flat_a - row).mean(axis=1) for row in flat_b])
    width = high - low
    errors = np.nan_to_num(errors, nan=width**2, posinf=1e300)
    _, order = linear_sum_assignment(errors)
    chosen = errors[np.arange(len(b)), order]
    psnr = np.minimum(_MOST, 10 * np.log10(width**2 / np.maximum(chosen, 1e-30)))
    alike = structural_similarity(np.nan_to_num(a[order], nan=low), b, width)
    return Likeness(order, chosen, psnr, alike)
