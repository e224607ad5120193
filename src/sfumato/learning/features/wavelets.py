"""Morlet wavelets and the Gaussian average of the scattering transform, as spectra.

The filters are those of Andreux et al., "Kymatio: scattering transforms in Python", JMLR 21 (2020):
bandwidth 0.8 2^j, frequency (3 pi / 4) / 2^j, slant 4 / L.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["filters", "folded", "mirrored"]


def filters(shape: tuple[int, int], scales: int, orientations: int) -> tuple[Tensor, Tensor]:
    """Spectra of the wavelets (J, L, height, width) and of the average (height, width)."""
    wavelets = torch.empty(scales, orientations, *shape, dtype=torch.float32)
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


def folded(spectrum: Tensor, times: int) -> Tensor:
    """The spectrum of the signal sampled every 2^times: its aliases added up."""
    if times == 0:
        return spectrum
    n, (height, width) = 2**times, spectrum.shape[-2:]
    split = spectrum.reshape(*spectrum.shape[:-2], n, height // n, n, width // n)
    return split.sum((-4, -2))


def mirrored(images: Tensor, step: int) -> Tensor:
    """(n, height, width) with ``step`` more pixels on each side, mirrored as far as there are."""
    margin = min(step, *(n - 1 for n in images.shape[-2:]))
    inner = F.pad(images.unsqueeze(1), [margin] * 4, mode="reflect")
    rest = step - margin
    return (F.pad(inner, [rest] * 4, mode="replicate") if rest else inner).squeeze(1)


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
