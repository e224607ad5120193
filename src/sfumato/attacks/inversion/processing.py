"""What an image goes through after a step: a little picture editing keeps noise out.

A process is a function from a batch of images to a batch of images, in NumPy. Fredrikson et al.
used none for shallow models, and an autoencoder with denoising and sharpening for a deep one. An
autoencoder is a process as it is: :meth:`~sfumato.attacks.inversion.priors.LearnedPrior.rebuilt`.

    >>> dotted = np.zeros((1, 1, 8, 8), np.float32)
    >>> dotted[0, 0, 3, 3] = 1
    >>> float(denoise_and_sharpen()(dotted).max())  # a lonely pixel is taken for noise
    0.0
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["Process", "denoise_and_sharpen"]

Process = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From images to images of the same shape."""


def denoise_and_sharpen(size: int = 3, amount: float = 0.5, radius: float = 1.0) -> Process:
    """The median over ``size`` x ``size`` pixels, then m + amount (m - blurred m).

    Args:
        size: the side of the window whose median is taken, in pixels.
        amount: how much of what a blur takes away is added again; 0 for no sharpening.
        radius: the standard deviation of that Gaussian blur, in pixels.
    """
    window = validation.count("size", size)
    much = validation.non_negative("amount", amount)
    wide = validation.positive("radius", radius)

    def process(images: NDArray[np.float32]) -> NDArray[np.float32]:
        from scipy import ndimage

        if images.ndim < 3:
            validation.fail("images", "pictures, with rows and columns last", images.shape)
        outer = [1] * (images.ndim - 2)
        still = ndimage.median_filter(images, [*outer, window, window], mode="nearest")
        blurred = ndimage.gaussian_filter(still, [*[0.0] * len(outer), wide, wide], mode="nearest")
        return (still + much * (still - blurred)).astype(np.float32)

    return process
