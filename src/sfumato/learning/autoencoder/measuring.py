"""How well rows are reconstructed, in numbers and as a picture.

>>> rows = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
>>> found = ReconstructionErrors.of(torch.tensor([[0.5, 1.0], [1.0, 1.0]]), rows)
>>> found.mean_squared, found.of_the_mean, found.of_the_middle
(0.0625, 0.125, 0.25)
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from sfumato.learning.autoencoder.network import AutoEncoder

__all__ = ["ReconstructionErrors", "reconstructed", "reconstruction_picture"]

_PIECE = 4096


@final
@dataclass(frozen=True)
class ReconstructionErrors:
    """Of inputs in [0, 1], the mean over rows and columns of squared differences.

    Attributes:
        mean_squared: of the reconstructions.
        of_the_mean: what the mean of these very rows would have, always the same: to be below it is
            to say anything at all about single rows.
        of_the_middle: what 1/2 everywhere would have.
    """

    mean_squared: float
    of_the_mean: float
    of_the_middle: float

    @classmethod
    def of(cls, found: Tensor, rows: Tensor) -> ReconstructionErrors:
        """Of reconstructions of rows, both of the same shape, with one row at least."""
        found, rows = found.flatten(1).double(), rows.flatten(1).double()
        return cls(
            float((found - rows).square().mean()),
            float((rows - rows.mean(dim=0)).square().mean()),
            float((rows - 0.5).square().mean()),
        )

    def to_dict(self) -> dict[str, float]:
        """JSON-ready."""
        return {f"reconstruction_{name}": value for name, value in asdict(self).items()}


@torch.no_grad()
def reconstructed(network: AutoEncoder, inputs: Tensor) -> Tensor:
    """Reconstructions of any number of inputs, a piece at a time."""
    return torch.cat([network(piece) for piece in inputs.split(_PIECE)])


def reconstruction_picture(
    inputs: Tensor, found: Tensor, says: str = "", columns: int = 10
) -> bytes:
    """A PNG: the first inputs above, their reconstructions below.

    Args:
        inputs: (n, channels, height, width) in [0, 1], of rows that may be shown to whoever is
            shown the picture.
        found: of the same shape.
        says: a title.
        columns: how many at most.
    """
    from matplotlib.figure import Figure

    count = min(columns, len(inputs))
    figure = Figure(figsize=(max(count, 3), 2.4), layout="constrained")
    if says:
        figure.suptitle(says, fontsize=9)
    axes = figure.subplots(2, max(count, 1), squeeze=False)
    for row, pictures in enumerate((inputs, found)):
        for column in range(max(count, 1)):
            axes[row, column].set_axis_off()
            if column < count:
                shown = pictures[column].permute(1, 2, 0).clamp(0, 1).numpy()
                shown = np.repeat(shown, 3, axis=2) if shown.shape[2] == 1 else shown
                axes[row, column].imshow(shown[:, :, :3])
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=100)
    return made.getvalue()
