"""The scattering transform through fast Fourier transforms, for images of any size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from sfumato.learning.features.wavelets import filters, folded, mirrored

__all__ = ["FourierCascade"]

_PIXELS = 1 << 16


class FourierCascade(nn.Module):
    """(n, height, width) to (n, channels, height / 2^J, width / 2^J).

    Every convolution is a product of spectra; what is to be sampled every 2^j pixels is sampled by
    folding its spectrum.

    Attributes:
        chunk: how many images at a time a CPU's cache has room for.
    """

    def __init__(self, shape: tuple[int, int], scales: int, orientations: int) -> None:
        super().__init__()
        self.scales = scales
        self.chunk = max(1, _PIXELS // (shape[0] * shape[1]))
        step = 2**scales
        padded = (shape[0] + 2 * step, shape[1] + 2 * step)
        wavelets, average = filters(padded, scales, orientations)
        self.register_buffer("wavelets", wavelets, persistent=False)
        self.register_buffer("average", average, persistent=False)
        self.wavelets: Tensor
        self.average: Tensor

    def forward(self, images: Tensor) -> Tensor:
        """The transform of a chunk."""
        spectrum = torch.fft.fft2(mirrored(images, 2**self.scales))
        found = [self._averaged(spectrum, 0).unsqueeze(1)]
        second: list[Tensor] = []
        for j in range(self.scales):
            moduli = self._moduli(spectrum, j, 0)
            found.append(self._averaged(moduli, j))
            for k in range(j + 1, self.scales):
                twice = self._moduli(moduli, k, j)
                second.append(self._averaged(twice, k).flatten(1, 2))
        return torch.cat(found + second, 1)

    def _moduli(self, spectrum: Tensor, scale: int, already: int) -> Tensor:
        """Spectra of |x * psi_{scale, l}| for each l, at the resolution of ``scale``."""
        product = spectrum.unsqueeze(-3) * folded(self.wavelets[scale], already)
        coarse = folded(product, scale - already) / 4 ** (scale - already)
        return torch.fft.fft2(torch.fft.ifft2(coarse).abs().to(product.dtype))

    def _averaged(self, spectrum: Tensor, already: int) -> Tensor:
        """X * phi, every 2^J pixels, without the margin."""
        product = spectrum * folded(self.average, already)
        rest = self.scales - already
        out = torch.fft.ifft2(folded(product, rest) / 4**rest).real
        return out[..., 1:-1, 1:-1]
