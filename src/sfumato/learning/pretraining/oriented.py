"""Images of untrained networks: oriented filters on noise, from coarse to fine.

Noise of 4 x 4 places goes through layers that each double its size, filter it with oriented
wavelets, shift, rectify and add finer noise; colours are random mixtures of what the layers hold.
Networks trained to tell such images apart learn edges, textures and colours. Every few images come
from a network of their own, with gains of each image's own besides.

Reference: Baradad, Wulff, Wang, Isola and Torralba, "Learning to see by looking at noise",
arXiv:2106.05963 (untrained generators with oriented filters). The layers here are our own, and
simpler than the StyleGAN of that work.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.learning.pretraining.draws import normal

__all__ = ["oriented_images"]

_CHANNELS = 24
_TOGETHER = 8  # images of one network
_INPUTS = 4  # channels that a filter reads, on average
_FILTER = 5  # pixels
_ANGLES = 8
_SLOPE = 0.2  # of the rectifier, below 0


def oriented_images(count: int, side: int, coins: torch.Generator) -> Tensor:
    """So many colour images (count, 3, side, side) in [0, 1], where the coins are.

    Args:
        count: how many.
        side: in pixels: 8, 16, 32, ...
        coins: a generator; images are made on its device.
    """
    networks = -(-count // _TOGETHER)
    shape = (_TOGETHER, networks, _CHANNELS, 4, 4)
    hidden = normal(shape, coins)
    colours = torch.zeros(_TOGETHER, networks, 3, 4, 4, device=coins.device)
    while hidden.shape[-1] < side:
        hidden = _layer(_doubled(hidden), coins)
        mixed = torch.einsum("nkc,mnchw->mnkhw", _mixture(networks, coins), hidden)
        colours = _doubled(colours) + mixed * _share(networks, coins)
    images = colours.transpose(0, 1).reshape(-1, 3, side, side)[:count]
    return coloured(images, coins)


def coloured(fields: Tensor, coins: torch.Generator) -> Tensor:
    """Three random fields of each image as its colours: much lightness, less of two differences.

    Photographs vary most in lightness; each image here has a mean, a contrast and a saturation of
    its own, and its own directions of colour.
    """
    n, device = len(fields), fields.device
    flat = fields.flatten(2)
    flat = (flat - flat.mean(2, keepdim=True)) / (flat.std(2, keepdim=True) + 1e-4)
    contrast = 0.08 + 0.22 * torch.rand(n, 1, 1, generator=coins, device=device)
    saturation = 0.6 * torch.rand(n, 1, 1, generator=coins, device=device).square()
    turned = torch.randn(n, 3, 3, generator=coins, device=device) / math.sqrt(3)
    axes = torch.zeros(n, 3, 3, device=device)
    axes[:, :, 0] = 1.0
    mean = 0.25 + 0.5 * torch.rand(n, 3, 1, generator=coins, device=device)
    grey = mean.mean(1, keepdim=True)
    mean = grey + (0.3 + saturation) * (mean - grey)
    changed = mean + contrast * ((axes + saturation * turned) @ flat)
    return changed.clamp(0, 1).view_as(fields)


def _layer(hidden: Tensor, coins: torch.Generator) -> Tensor:
    """Filtered by each network's own wavelets, shifted, rectified, with noise, on one scale."""
    together, networks, channels, height, width = hidden.shape
    gains = (0.6 * normal((together, networks, channels, 1, 1), coins)).exp()
    joined = (hidden * gains).reshape(together, networks * channels, height, width)
    padded = F.pad(joined, [_FILTER // 2] * 4, mode="replicate")
    filters = _filters(networks, channels, coins).flatten(0, 1)
    found = F.conv2d(padded, filters, groups=networks).view_as(hidden)
    each = (1, networks, channels, 1, 1)
    found = _on_one_scale(found) + 0.7 * normal(each, coins)
    found = found + 0.25 * normal(each, coins).abs() * normal(found.shape, coins)
    return _on_one_scale(F.leaky_relu(found, _SLOPE))


def _filters(networks: int, channels: int, coins: torch.Generator) -> Tensor:
    """(networks, out, in, side, side): each output a few inputs' oriented derivatives."""
    bank = _bank().to(coins.device)
    shape = (networks, channels, channels, len(bank))
    chosen = F.one_hot(torch.randint(len(bank), shape[:3], generator=coins, device=coins.device),
                       len(bank)).float()  # fmt: skip
    kept = torch.rand(shape[:3], generator=coins, device=coins.device) < _INPUTS / channels
    weights = chosen * (kept * normal(shape[:3], coins)).unsqueeze(-1)
    return torch.einsum("noik,khw->noihw", weights, bank)


def _bank() -> Tensor:
    """Gabor filters of several angles, even and odd, and one that blurs, each of norm 1."""
    axis = torch.arange(_FILTER, dtype=torch.float32) - _FILTER // 2
    rows, columns = torch.meshgrid(axis, axis, indexing="ij")
    window = torch.exp(-(rows**2 + columns**2) / (2 * 1.2**2))
    found = [window]
    for number in range(_ANGLES):
        angle = math.pi * number / _ANGLES
        along = math.cos(angle) * columns + math.sin(angle) * rows
        for wave in (torch.cos(1.8 * along), torch.sin(1.8 * along)):
            filtered = window * wave
            found.append(filtered - window * (filtered.sum() / window.sum()))
    stacked = torch.stack(found)
    return stacked / stacked.flatten(1).norm(dim=1).view(-1, 1, 1)


def _on_one_scale(hidden: Tensor) -> Tensor:
    mean = hidden.mean((-2, -1), keepdim=True)
    return (hidden - mean) / (hidden.var((-2, -1), keepdim=True) + 1e-3).sqrt()


def _doubled(hidden: Tensor) -> Tensor:
    flat = hidden.flatten(0, 1)
    larger = F.interpolate(flat, scale_factor=2, mode="bilinear", align_corners=False)
    return larger.view(*hidden.shape[:-2], *larger.shape[-2:])


def _mixture(networks: int, coins: torch.Generator) -> Tensor:
    return normal((networks, 3, _CHANNELS), coins) / math.sqrt(_CHANNELS)


def _share(networks: int, coins: torch.Generator) -> Tensor:
    """How much a layer adds to the picture, for each network."""
    return torch.rand(1, networks, 1, 1, 1, generator=coins, device=coins.device)
