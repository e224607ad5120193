"""Images of nothing: random fields with the spectrum of photographs, for public statistics.

The amplitude of natural images falls about as 1 / frequency (Field, "Relations between the
statistics of natural images and the response properties of cortical cells", 1987). Such a field
needs no data, so what is measured on it costs no privacy.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["pink_images"]

_SEED = 19_870_412


def pink_images(count: int, height: int, width: int) -> Tensor:
    """So many grey images (count, 1, height, width) in [0, 1], the same every time.

    Gaussian fields of amplitude 1 / frequency, with mean 1/2 and standard deviation 1/4, clipped;
    each is a piece of a field twice as large, so that it does not wrap around.

    >>> pink_images(2, 8, 8).shape
    torch.Size([2, 1, 8, 8])
    """
    generator = torch.Generator().manual_seed(_SEED)
    tall, wide = 2 * height, 2 * width
    rows, columns = torch.fft.fftfreq(tall), torch.fft.fftfreq(wide)
    frequency = (rows[:, None] ** 2 + columns[None, :] ** 2).sqrt()
    frequency[0, 0] = 1 / max(tall, wide)  # of a constant: as of the longest wave
    white = torch.randn(count, 1, tall, wide, generator=generator)
    field = torch.fft.ifft2(torch.fft.fft2(white) / frequency).real[..., :height, :width]
    return (0.5 + 0.25 * field / field.std()).clamp(0, 1)
