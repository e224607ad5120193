"""What the tensor attack gives: inputs of length 1, their residuals, how clear they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.html import CURATOR, facts_table

__all__ = ["TensorReconstruction"]


@final
@dataclass(frozen=True, eq=False)
class TensorReconstruction:
    """Reconstructed inputs of a batch. For the curator only: they may be private records.

    Attributes:
        inputs: one a row, of length 1, in no particular order.
        residuals: f(x) - y of each, about minus its label before training.
        activation: the name of the hidden units' function.
        width: from how many hidden units.
        subspace_order: of the moment whose eigenvectors span the inputs.
        tensor_order: of the moment that tells them apart.
        signs: what they follow from: "moments", "labels", or "unknown" where (r, x) and (-r, -x)
            give the same gradient; residuals are then above 0 by convention.
        eigenvalues: of the moment, those of the span, the largest first.
        noise_ratio: the largest eigenvalue outside the span by the smallest inside: well below 1
            where the span is clear, near 1 where it is one of noise.
        misfit: what the sum of cubes leaves of the tensor, as a share.
    """

    inputs: NDArray[np.float64]
    residuals: NDArray[np.float64]
    activation: str
    width: int
    subspace_order: int
    tensor_order: int
    signs: str
    eigenvalues: NDArray[np.float64]
    noise_ratio: float
    misfit: float

    @property
    def batch(self) -> int:
        """B, how many inputs."""
        return len(self.inputs)

    @property
    def dimension(self) -> int:
        """d, of an input."""
        return self.inputs.shape[1]

    def __str__(self) -> str:
        by = "unknown" if self.signs == "unknown" else f"by {self.signs}"
        return (
            f"tensor reconstruction of {self.batch} inputs of {self.dimension} numbers from "
            f"{self.width:,} hidden units ({self.activation}): orders {self.subspace_order} and "
            f"{self.tensor_order}, signs {by}, eigenvalues outside "
            f"{self.noise_ratio:.2f} of those inside, misfit {self.misfit:.2g}"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("inputs", f"{self.batch} of {self.dimension} numbers"),
            ("hidden units", f"{self.width:,}, {self.activation}"),
            ("moments", f"of order {self.subspace_order} and {self.tensor_order}"),
            ("signs", self.signs),
            ("eigenvalues outside by inside", f"{self.noise_ratio:.2f}"),
            ("misfit", f"{self.misfit:.2g}"),
        ]
        return facts_table("Inputs from a gradient: tensor reconstruction", rows, note=CURATOR)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the inputs; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "attack": "tensor reconstruction",
            "batch": self.batch,
            "dimension": self.dimension,
            "width": self.width,
            "activation": self.activation,
            "residuals": self.residuals.tolist(),
            "subspace_order": self.subspace_order,
            "tensor_order": self.tensor_order,
            "signs": self.signs,
            "eigenvalues": self.eigenvalues.tolist(),
            "noise_ratio": self.noise_ratio,
            "misfit": self.misfit,
        }
