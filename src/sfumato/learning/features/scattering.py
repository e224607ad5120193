"""The 2-D scattering transform: public features of images, without training and without data.

A scattering network averages the moduli of wavelet coefficients (Bruna and Mallat, "Invariant
scattering convolution networks", arXiv:1203.1513). Its filters are fixed, so that it costs no
privacy, and on small images a linear model on it beats networks trained privately from scratch
(Tramèr and Boneh, arXiv:2011.11660).

With J scales and L orientations, x an image, psi_{j,l} a Morlet wavelet of scale 2^j and
orientation l, and phi a Gaussian of scale 2^J:

    order 0:  x * phi
    order 1:  |x * psi_{j,l}| * phi                        for each j, l
    order 2:  ||x * psi_{j,l}| * psi_{k,m}| * phi          for each j < k, all l, m

sampled every 2^J pixels: 1 + L J + L^2 J (J - 1) / 2 channels for each channel of the image. See
:mod:`.wavelets` for the filters.

    >>> transform = Scattering((28, 28))
    >>> transform.channels, transform.size
    (81, (7, 7))

Small images go through matrices (:mod:`.scattering_matrices`), large ones through Fourier
transforms (:mod:`.scattering_fourier`): the same values but for rounding.
"""

from __future__ import annotations

from math import prod

from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.features.scattering_fourier import FourierCascade
from sfumato.learning.features.scattering_matrices import MatrixCascade
from sfumato.learning.features.wavelets import filters, folded

__all__ = ["LARGEST_FOR_MATRICES", "Scattering", "filters", "folded"]

LARGEST_FOR_MATRICES = 80
"""Pixels a side, margins included, up to which matrices are quicker than Fourier transforms."""

_PIXELS = 1 << 21  # at a time on a GPU


class Scattering(nn.Module):
    """(..., height, width) to (..., channels, height / 2^J, width / 2^J).

    On a CPU images go through in chunks of one size, the last one filled up, so that an image's
    features do not depend on the images beside it or on their number, not even by rounding.

    Args:
        shape: height and width of the images, multiples of 2^J.
        scales: J.
        orientations: L.
    """

    def __init__(self, shape: tuple[int, int], scales: int = 2, orientations: int = 8) -> None:
        super().__init__()
        self.scales = validation.count("scales", scales)
        self.orientations = validation.count("orientations", orientations)
        step = 2**self.scales
        if any(n % step or n < step for n in shape):
            validation.fail("shape", f"multiples of 2^scales = {step}", shape)
        self.shape = (int(shape[0]), int(shape[1]))
        small = max(self.shape) + 2 * step <= LARGEST_FOR_MATRICES
        cascade = MatrixCascade if small else FourierCascade
        self.cascade = cascade(self.shape, self.scales, self.orientations)

    @property
    def channels(self) -> int:
        """1 + L J + L^2 J (J - 1) / 2."""
        j, n = self.scales, self.orientations
        return 1 + n * j + n * n * j * (j - 1) // 2

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of each channel."""
        return self.shape[0] >> self.scales, self.shape[1] >> self.scales

    def forward(self, images: Tensor) -> Tensor:
        """The transform, for any number of leading dimensions."""
        if images.shape[-2:] != self.shape:
            validation.fail("images", f"of height and width {self.shape}", tuple(images.shape))
        flat = images.reshape(-1, *self.shape)
        out = flat.new_empty(len(flat), self.channels, *self.size)
        on_cpu = flat.device.type == "cpu"
        chunk = self.cascade.chunk if on_cpu else max(1, _PIXELS // prod(self.shape))
        for start in range(0, len(flat), chunk):
            part = flat[start : start + chunk]
            missing = chunk - len(part) if on_cpu else 0
            filled = F.pad(part, [0] * 5 + [missing]) if missing else part
            out[start : start + chunk] = self.cascade(filled)[: len(part)]
        return out.reshape(*images.shape[:-2], self.channels, *self.size)
