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

sampled every 2^J pixels: 1 + L J + L^2 J (J - 1) / 2 channels for each channel of the image. The
wavelets are those of Andreux et al., "Kymatio: scattering transforms in Python", JMLR 21 (2020):
bandwidth 0.8 2^j, frequency (3 pi / 4) / 2^j, slant 4 / L.

    >>> Scattering((28, 28)).channels, Scattering((28, 28)).size
    (81, (7, 7))
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation

__all__ = ["Scattering"]


class Scattering(nn.Module):
    """(..., height, width) to (..., channels, height / 2^J, width / 2^J).

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
        # Mirrored on each side, by as much as the widest filter sees.
        self._margin = min(step, *(n - 1 for n in self.shape))
        padded = tuple(n + 2 * step for n in self.shape)
        wavelets, average = filters((padded[0], padded[1]), self.scales, self.orientations)
        self.register_buffer("wavelets", wavelets, persistent=False)
        self.register_buffer("average", average, persistent=False)
        self.wavelets: Tensor
        self.average: Tensor

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
        spectrum = torch.fft.fft2(self._padded(flat))
        found = [self._averaged(spectrum, 0)]
        second: list[Tensor] = []
        for j in range(self.scales):
            moduli = self._moduli(spectrum, j, 0)
            found.append(self._averaged(moduli, j))
            for k in range(j + 1, self.scales):
                twice = self._moduli(moduli, k, j)
                second.append(self._averaged(twice, k).flatten(1, 2))
        both = torch.cat([f if f.ndim == 4 else f.unsqueeze(1) for f in found + second], 1)
        return both.reshape(*images.shape[:-2], self.channels, *self.size)

    def _padded(self, flat: Tensor) -> Tensor:
        step = 2**self.scales
        inner = F.pad(flat.unsqueeze(1), [self._margin] * 4, mode="reflect")
        rest = step - self._margin
        return F.pad(inner, [rest] * 4, mode="replicate").squeeze(1) if rest else inner.squeeze(1)

    def _moduli(self, spectrum: Tensor, scale: int, already: int) -> Tensor:
        """Spectra of |x * psi_{scale, l}| for each l, at the resolution of ``scale``."""
        filters = folded(self.wavelets[scale], already)
        product = spectrum.unsqueeze(-3) * filters
        coarse = folded(product, scale - already) / 4 ** (scale - already)
        return torch.fft.fft2(torch.fft.ifft2(coarse).abs().to(product.dtype))

    def _averaged(self, spectrum: Tensor, already: int) -> Tensor:
        """X * phi, every 2^J pixels, without the margin."""
        product = spectrum * folded(self.average, already)
        rest = self.scales - already
        out = torch.fft.ifft2(folded(product, rest) / 4**rest).real
        return out[..., 1:-1, 1:-1]


def folded(spectrum: Tensor, times: int) -> Tensor:
    """The spectrum of the signal sampled every 2^times: its aliases added up."""
    if times == 0:
        return spectrum
    n, (height, width) = 2**times, spectrum.shape[-2:]
    split = spectrum.reshape(*spectrum.shape[:-2], n, height // n, n, width // n)
    return split.sum((-4, -2))


def filters(shape: tuple[int, int], scales: int, orientations: int) -> tuple[Tensor, Tensor]:
    """Spectra of the wavelets (J, L, height, width) and of the average (height, width)."""
    wavelets = torch.empty(scales, orientations, *shape)
    for j in range(scales):
        for index in range(orientations):
            angle = (orientations - orientations // 2 - 1 - index) * math.pi / orientations
            frequency, width = 0.75 * math.pi / 2**j, 0.8 * 2**j
            wave = _gabor(shape, width, angle, frequency, 4 / orientations)
            bump = _gabor(shape, width, angle, 0.0, 4 / orientations)
            morlet = wave - bump * (wave.sum() / bump.sum())  # no response to a constant
            wavelets[j, index] = torch.fft.fft2(morlet).real
    average = torch.fft.fft2(_gabor(shape, 0.8 * 2 ** (scales - 1), 0.0, 0.0, 1.0)).real
    return wavelets, average.float()


def _gabor(
    shape: tuple[int, int], width: float, angle: float, frequency: float, slant: float
) -> Tensor:
    """A plane wave under a Gaussian, wrapped around the edges of the image."""
    turns = [torch.arange(-2 * n, 3 * n, dtype=torch.float64) for n in shape]
    x, y = torch.meshgrid(*turns, indexing="ij")
    along = x * math.cos(angle) + y * math.sin(angle)
    across = -x * math.sin(angle) + y * math.cos(angle)
    envelope = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
    wave = torch.polar(envelope, frequency * along)
    wrapped = wave.reshape(5, shape[0], 5, shape[1]).sum((0, 2))
    return wrapped * slant / (2 * math.pi * width**2)
