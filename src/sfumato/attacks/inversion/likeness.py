"""How alike two images are: by the cosine of their pixels, and by their structure.

    >>> image = np.array([[0.0, 0.5], [0.5, 1.0]])[None]
    >>> cosine(image, 0.2 + image / 2).round(6), cosine(image, 1 - image).round(6)
    (array([1.]), array([-1.]))
    >>> structural_similarity(image, image)
    array([1.])

Reference: Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to
structural similarity", IEEE Transactions on Image Processing 13(4) (2004).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["cosine", "structural_similarity"]


def cosine(images: ArrayLike, others: ArrayLike) -> NDArray[np.float64]:
    """The cosine of each image and its counterpart, each less its own average; 0 if one is flat."""
    a, b = (np.asarray(each, dtype=np.float64) for each in (images, others))
    a, b = (each.reshape(len(each), -1) for each in (a, b))
    a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(axis=1) / np.where(norms > 0, norms, 1.0)


def structural_similarity(
    images: ArrayLike, others: ArrayLike, width: float = 1.0, window: int = 7
) -> NDArray[np.float64]:
    """SSIM of each image and its counterpart, the mean over all windows.

    Args:
        images: rows and columns last; inputs without them count as one window.
        others: as many, of the same shape.
        width: of the bounds of a pixel.
        window: its side; at most the picture's.
    """
    from scipy.ndimage import uniform_filter

    a, b = (np.asarray(each, dtype=np.float64) for each in (images, others))
    flat = a.ndim < 3
    sizes = [1] * (a.ndim - 2) + [min(window, *a.shape[-2:])] * 2

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        if flat:
            return values.mean(axis=1, keepdims=True)
        return uniform_filter(values, sizes, mode="reflect")

    ma, mb = mean(a), mean(b)
    va, vb, joint = mean(a * a) - ma**2, mean(b * b) - mb**2, mean(a * b) - ma * mb
    c1, c2 = (0.01 * width) ** 2, (0.03 * width) ** 2
    values = (2 * ma * mb + c1) * (2 * joint + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
    return values.reshape(len(a), -1).mean(axis=1)
