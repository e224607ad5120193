"""The scattering transform as products of matrices, for small images.

Below some sixty pixels a side a dense product beats a fast Fourier transform: it uses all of a
processor's arithmetic, and everything that is fixed (margins, wavelet, sampling) is multiplied into
the matrix once. A circular convolution of an image with L wavelets, sampled every m pixels, is

    1. a Fourier transform along the width, one matrix:                 x -> X_v
    2. for each frequency v of the *sampled* width a matrix from all heights (and the m frequencies
       that fold onto v) to the sampled heights of each wavelet:        X_v -> Y_v
    3. an inverse Fourier transform along the sampled width, one matrix: Y_v -> y

Real and imaginary part of the wavelet are two real convolutions, so that half of the frequencies
are enough. Images are stored (width, height, n): then every step is one contiguous product, and its
result is stored as the next step needs it. The Gaussian average is separable: two thin matrices.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.learning.features.wavelets import filters, folded

__all__ = ["MatrixCascade"]

_Matrices = tuple[Tensor, Tensor]


class MatrixCascade(nn.Module):
    """(n, height, width) to (n, channels, height / 2^J, width / 2^J).

    Attributes:
        chunk: how many images at a time a CPU's cache has room for.
    """

    chunk = 64

    def __init__(self, shape: tuple[int, int], scales: int, orientations: int) -> None:
        super().__init__()
        self.scales, self.orientations = scales, orientations
        step = 2**scales
        padded = (shape[0] + 2 * step, shape[1] + 2 * step)
        wavelets, average = filters(padded, scales, orientations)
        wavelets, average = wavelets.double(), average.double()
        margins = _margins(shape, step)
        self.blur = _Average(average, step, margins)
        self.blurs = nn.ModuleList(
            _Average(folded(average, j), 2 ** (scales - j), None) for j in range(scales)
        )
        self.first = nn.ModuleList(_Moduli(wavelets[j], 2**j, margins) for j in range(scales))
        self.second = nn.ModuleDict({
            f"{j}-{k}": _Moduli(folded(wavelets[k], j), 2 ** (k - j), None)
            for j in range(scales)
            for k in range(j + 1, scales)
        })  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """The transform of a chunk."""
        n, x = len(images), images.permute(2, 1, 0).contiguous()
        found, second = [self.blur(x)], list[Tensor]()
        for j, (moduli, blur) in enumerate(zip(self.first, self.blurs, strict=True)):
            u = moduli(x)
            found.append(blur(u))
            for k in range(j + 1, self.scales):
                twice = self.blurs[k](self.second[f"{j}-{k}"](u))
                second.append(self._by_first(twice, n))
        both = torch.cat(found + second, 2)
        return both.reshape(*both.shape[:2], -1, n).permute(3, 2, 1, 0)

    def _by_first(self, twice: Tensor, n: int) -> Tensor:
        """From (second wavelet, first wavelet, n) to (first, second, n)."""
        split = twice.reshape(*twice.shape[:2], self.orientations, self.orientations, n)
        return split.transpose(2, 3).reshape(twice.shape)


class _Moduli(nn.Module):
    """(width, height, n) to (width / m, height / m, L n): |x * psi_l| for each l, sampled.

    Args:
        spectra: (L, height, width) of the wavelets, real.
        every: m.
        margins: matrices that add them to height and width, where ``x`` comes without.
    """

    def __init__(self, spectra: Tensor, every: int, margins: _Matrices | None) -> None:
        super().__init__()
        width = spectra.shape[2]
        self.sampled, self.heights = width // every, spectra.shape[1] // every
        self.frequencies = self.sampled // 2 + 1
        folds = torch.arange(self.frequencies)[:, None] + self.sampled * torch.arange(every)
        into = _fourier(width, folds.flatten())
        if margins is not None:
            into = into @ margins[1].to(into.dtype)
        self._keep("into", torch.stack([into.real, into.imag], 1).flatten(0, 1))
        self._keep("across", _across(spectra, every, folds, margins))
        self._keep("back", _back(self.sampled, width))
        self.into: Tensor
        self.across: Tensor
        self.back: Tensor

    def _keep(self, name: str, matrix: Tensor) -> None:
        self.register_buffer(name, matrix.float().contiguous(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Three products and a modulus."""
        width, height, n = x.shape
        along = self.into @ x.reshape(width, height * n)
        found = torch.bmm(self.across, along.view(self.frequencies, -1, n))
        parts = (self.back @ found.view(2 * self.frequencies, -1)).view(self.sampled, 2, -1)
        moduli = torch.hypot(parts[:, 0], parts[:, 1])
        return moduli.view(self.sampled, self.heights, -1)


class _Average(nn.Module):
    """(width, height, n) to its Gaussian average, sampled every m pixels, without the margin."""

    def __init__(self, spectrum: Tensor, every: int, margins: _Matrices | None) -> None:
        super().__init__()
        root = spectrum[0, 0].sqrt()
        sides = (spectrum[:, 0] / root, spectrum[0] / root)
        rows, columns = (_sampling(side, every) for side in sides)
        if margins is not None:
            rows, columns = rows @ margins[0], columns @ margins[1]
        self.register_buffer("rows", rows.float(), persistent=False)
        self.register_buffer("columns", columns.float(), persistent=False)
        self.rows: Tensor
        self.columns: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Width first, then height."""
        narrow = self.columns @ x.reshape(len(x), -1)
        return torch.matmul(self.rows, narrow.view(-1, *x.shape[1:]))


def _margins(shape: tuple[int, int], step: int) -> _Matrices:
    """What :func:`~.wavelets.mirrored` does to heights and to widths, as matrices."""
    margin = min(step, *(n - 1 for n in shape))

    def one(n: int) -> Tensor:
        unit = F.pad(torch.eye(n, dtype=torch.float64), [margin] * 2, mode="reflect")
        rest = step - margin
        return (F.pad(unit, [rest] * 2, mode="replicate") if rest else unit).T

    return one(shape[0]), one(shape[1])


def _fourier(n: int, frequencies: Tensor) -> Tensor:
    """Rows of the discrete Fourier transform of n numbers."""
    turns = frequencies.double()[:, None] * torch.arange(n, dtype=torch.float64) / n
    return torch.polar(torch.ones_like(turns), -2 * math.pi * turns)


def _across(spectra: Tensor, every: int, folds: Tensor, margins: _Matrices | None) -> Tensor:
    """One matrix for each frequency of the sampled width.

    Rows are ordered (real or imaginary, part, sampled height, wavelet), where a part is the real or
    the imaginary part of the wavelet; columns (fold, real or imaginary, height).
    """
    height = spectra.shape[1]
    forth = _fourier(height, torch.arange(height))
    inverse = forth[::every].conj() / height
    if margins is not None:
        forth = forth @ margins[0].to(forth.dtype)
    opposite = spectra.flip(1, 2).roll((1, 1), (1, 2))  # at -u, -v
    even, odd = (spectra + opposite) / 2, (spectra - opposite) / 2
    parts = torch.stack([even.to(forth.dtype), -1j * odd])[..., folds]
    both = torch.einsum("gu,pluva,uh->vpglah", inverse, parts, forth)
    real = torch.stack([both.real, -both.imag], -2)
    imaginary = torch.stack([both.imag, both.real], -2)
    return torch.stack([real, imaginary], 1).flatten(5).flatten(1, 4)


def _back(n: int, width: int) -> Tensor:
    """From half of n frequencies, (frequency, real or imaginary), to n real numbers."""
    inverse = _fourier(n, torch.arange(n // 2 + 1)).conj().T
    twice = torch.full((n // 2 + 1,), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    weighted = inverse * twice / width
    return torch.stack([weighted.real, -weighted.imag], -1).flatten(1)


def _sampling(spectrum: Tensor, every: int) -> Tensor:
    """Convolution with a filter of that spectrum at every m-th number but first and last."""
    n = len(spectrum)
    kernel = torch.fft.ifft(spectrum).real
    places = torch.arange(every, n - every, every)
    return kernel[(places[:, None] - torch.arange(n)) % n]
