"""Per-example products in plain PyTorch: what the kernels compute, where there are none.

See :mod:`~sfumato.learning.dp_sgd.kernels.products`.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["gram", "scaled", "written"]


def _factors(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """(units, places, columns) patches and (units, places, rows) gradients."""
    kh, kw, sh, sw, ph, pw, dh, dw = geometry
    _, out_h, out_w, rows = g.shape
    n, height, width, channels = x.shape
    below = (out_h - 1) * sh + (kh - 1) * dh + 1 - ph - height
    right = (out_w - 1) * sw + (kw - 1) * dw + 1 - pw - width
    pads = [0, 0, pw, max(0, right), ph, max(0, below)]
    image = torch.nn.functional.pad(x.float(), pads).contiguous()
    s0, s1, s2, s3 = image.stride()
    windows = image.as_strided(
        (n, out_h, out_w, kh, kw, channels), (s0, s1 * sh, s2 * sw, s1 * dh, s2 * dw, s3)
    )
    places = n // units * out_h * out_w
    return (
        windows.reshape(units, places, kh * kw * channels),
        g.float().reshape(units, places, rows),
    )


def written(x: Tensor, g: Tensor, geometry: list[int], units: int) -> Tensor:
    """(units, rows, columns) in float32."""
    patches, gradients = _factors(x, g, geometry, units)
    return torch.bmm(gradients.mT, patches)


def gram(x: Tensor, g: Tensor, geometry: list[int], units: int) -> tuple[Tensor, Tensor]:
    """Two sums over all pairs of places, and four over places.

    Of pairs: (x_t . x_s)(g_t . g_s), and (g_t . g_s)^2. Of places: |x_t| |g_t|, |x_t|, |g_t|, and
    |x_t|^2, squares below the smallest number made up for.
    """
    patches, gradients = _factors(x, g, geometry, units)
    tiny = torch.finfo(torch.float32).tiny
    grams = [torch.bmm(factor, factor.mT) for factor in (patches, gradients)]
    of_x, of_g = (
        (gram.diagonal(dim1=1, dim2=2) + factor.shape[2] * tiny).sqrt()
        for gram, factor in zip(grams, (patches, gradients), strict=True)
    )
    totals = [(grams[0] * grams[1]).sum((1, 2)), grams[1].square().sum((1, 2))]
    lengths = [(of_x * of_g).sum(1), of_x.sum(1), of_g.sum(1), of_x.square().sum(1)]
    return torch.stack(totals, 1), torch.stack(lengths, 1)


def scaled(x: Tensor, g: Tensor, weights: Tensor, units: int) -> Tensor:
    """(rows, columns): activations times weights, rounded, times gradients."""
    shaped = weights.view(-1, 1)
    right = torch.where(shaped == 0, 0.0, shaped * x.float().view(units, -1)).to(x.dtype).float()
    return g.float().view(-1, g.shape[3]).mT @ right.view(-1, x.shape[3])
