"""An auto-encoder as a module: codes, reconstructions, and classes of codes.

>>> network = AutoEncoder(columns=6, widths=(4, 2), cut=True)
>>> pictures = torch.rand(3, 1, 2, 3)
>>> network.codes(pictures).shape, network(pictures).shape
(torch.Size([3, 2]), torch.Size([3, 1, 2, 3]))
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from sfumato.learning.autoencoder.encoding import Encoder, Floats
from sfumato.learning.erm.run_models import LinearScores

__all__ = ["AutoEncoder", "made_of"]


@final
class AutoEncoder(nn.Module):
    """From inputs in [0, 1], of any shape, to their reconstructions, of the same shape.

    Args:
        columns: of a flattened input.
        widths: of each layer's codes.
        cut: whether a decoder's output is cut to [0, 1]; otherwise a sigmoid is taken of it.
        head: from the last codes to scores of classes; None for none.
    """

    def __init__(
        self, columns: int, widths: Sequence[int], *, cut: bool, head: LinearScores | None = None
    ) -> None:
        super().__init__()
        sizes = list(pairwise((columns, *widths)))
        self.encoders = nn.ModuleList(nn.Linear(a, b) for a, b in sizes)
        self.decoders = nn.ModuleList(nn.Linear(b, a) for a, b in sizes)
        self.cut, self.head = cut, head

    def codes(self, inputs: Tensor) -> Tensor:
        """(n, widths[-1]) codes in [0, 1]."""
        found = inputs.flatten(1)
        for encoder in self.encoders:
            found = torch.sigmoid(encoder(found))
        return found

    def decoded(self, codes: Tensor) -> Tensor:
        """(n, columns) reconstructions of codes."""
        for decoder in reversed(self.decoders):  # type: ignore[call-overload]
            codes = decoder(codes).clamp(0.0, 1.0) if self.cut else torch.sigmoid(decoder(codes))
        return codes

    def logits(self, inputs: Tensor) -> Tensor:
        """(n, columns), before the last sigmoid; of a network that is not cut."""
        found = self.codes(inputs)
        first, *others = self.decoders
        for decoder in reversed(others):
            found = torch.sigmoid(decoder(found))
        return first(found)

    def forward(self, inputs: Tensor) -> Tensor:
        """Reconstructions."""
        return self.decoded(self.codes(inputs)).reshape(inputs.shape)

    def scores(self, inputs: Tensor) -> Tensor:
        """(n, classes).

        Raises:
            ValueError: if no classifier was learnt.
        """
        if self.head is None:
            raise ValueError("head must not be 'none' for scores of classes: no classifier here")
        return self.head(self.codes(inputs))


@torch.no_grad()
def made_of(layers: Sequence[tuple[Encoder, Floats]]) -> AutoEncoder:
    """The network of released layers: each an encoder and the decoder W of its codes.

    Inputs are read off as 1/2 + h W_j / 4, cut to [0, 1].
    """
    columns = len(layers[0][0].weights)
    network = AutoEncoder(columns, [encoder.width for encoder, _ in layers], cut=True)
    parts = zip(layers, network.encoders, network.decoders, strict=True)
    for (encoder, decoder), into, out in parts:
        assert isinstance(into, nn.Linear)
        assert isinstance(out, nn.Linear)
        slopes = encoder.gain * encoder.weights.T
        into.weight.copy_(torch.from_numpy(2 * slopes))
        into.bias.copy_(torch.from_numpy(-slopes.sum(axis=1)))
        out.weight.copy_(torch.from_numpy(decoder / 4))
        out.bias.fill_(0.5)
    return network.eval()
