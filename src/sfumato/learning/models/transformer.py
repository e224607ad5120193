"""A small vision transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core import validation
from sfumato.learning.models.parts import image

__all__ = ["transformer"]


def transformer(
    shape: tuple[int, ...],
    classes: int,
    patch: int = 4,
    dim: int = 64,
    layers: int = 4,
    heads: int = 4,
    ratio: int = 2,
    pool: str = "mean",
) -> nn.Sequential:
    """Patches, learned positions, pre-normalised attention and perceptrons, one linear output.

    After Dosovitskiy et al., "An image is worth 16x16 words", arXiv:2010.11929. Attention is within
    one image; layer normalisation within one token.

    Args:
        shape: (channels, height, width), multiples of ``patch``.
        classes: outputs.
        patch: pixels a side of a patch.
        dim: numbers for each token, a multiple of ``heads``.
        layers: how many blocks.
        heads: of each attention.
        ratio: hidden units of each perceptron, in multiples of ``dim``.
        pool: "mean" of all tokens, or a class "token".
    """
    channels, height, width = image("transformer", shape, 1)
    counts = {"patch": patch, "dim": dim, "layers": layers, "heads": heads, "ratio": ratio}
    for name, value in counts.items():
        validation.count(name, value)
    if height % patch or width % patch:
        validation.fail("patch", f"a divisor of height and width ({height}x{width})", patch)
    if dim % heads:
        validation.fail("dim", f"a multiple of heads ({heads})", dim)
    if pool not in ("mean", "token"):
        validation.fail("pool", "'mean' or 'token'", pool)
    tokens = (height // patch) * (width // patch)
    return nn.Sequential(
        _Patches(channels, patch, dim, tokens, pool == "token"),
        *(_Block(dim, heads, ratio) for _ in range(layers)),
        nn.LayerNorm(dim),
        _Pool(pool == "token"),
        nn.Linear(dim, classes),
    )


class _Patches(nn.Module):
    """(n, channels, height, width) to (n, tokens, dim)."""

    def __init__(self, channels: int, patch: int, dim: int, tokens: int, token: bool) -> None:
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(channels * patch * patch, dim)
        self.token = nn.Parameter(torch.randn(1, 1, dim) * 0.02) if token else None
        self.places = nn.Parameter(torch.randn(tokens + token, dim) * 0.02)

    def forward(self, images: Tensor) -> Tensor:
        """Patches row by row, the class token first if there is one."""
        side = self.patch
        split = images.unflatten(3, (-1, side)).unflatten(
            2, (-1, side)
        )  # n, c, rows, s, columns, s
        patches = split.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        found = self.embed(patches)
        if self.token is not None:
            found = torch.cat([self.token.expand(len(images), -1, -1), found], 1)
        return found + self.places


class _Block(nn.Module):
    """Attention, then a perceptron for each token; each beside a shortcut."""

    def __init__(self, dim: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.asked = nn.Linear(dim, 3 * dim)
        self.told = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, ratio * dim), nn.GELU(), nn.Linear(ratio * dim, dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Both."""
        x = x + self.told(self._attended(self.first(x)))
        return x + self.mlp(self.second(x))

    def _attended(self, x: Tensor) -> Tensor:
        parts = self.asked(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        return found.transpose(1, 2).flatten(2)


class _Pool(nn.Module):
    """(n, tokens, dim) to (n, dim)."""

    def __init__(self, token: bool) -> None:
        super().__init__()
        self.token = token

    def forward(self, x: Tensor) -> Tensor:
        """The class token, or the mean of all."""
        return x[:, 0] if self.token else x.mean(1)
