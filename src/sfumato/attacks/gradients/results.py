"""What an attack on a shared gradient gives: examples, and how far their gradient is off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.gradients.likeness import Likeness, likeness
from sfumato.core.html import CURATOR, facts_table

__all__ = ["Reconstruction"]


@final
@dataclass(frozen=True, eq=False)
class Reconstruction:
    """Reconstructed examples of one update. For the curator only: they may be private records.

    Attributes:
        attack: how they were made.
        defence: what the update had gone through, in words.
        images: one an example, float32 within ``bounds``, in no particular order.
        labels: the class that each is taken to be of.
        labels_known: whether the attacker was told the classes.
        cost: what the best trial's gradient is off by, in the measure of the attack.
        iterations: steps of the search, of each trial.
        trials: from how many random starts it was tried.
        bounds: the least and the greatest value of a pixel.
    """

    attack: str
    defence: str
    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    labels_known: bool
    cost: float
    iterations: int
    trials: int
    bounds: tuple[float, float]

    def __str__(self) -> str:
        known = "told" if self.labels_known else "recovered"
        return (
            f"{self.attack} (defence: {self.defence}): {len(self.images)} example"
            f"{'s' * (len(self.images) > 1)}, labels {known}, {self.trials} x {self.iterations:,} "
            f"steps, gradients off by {self.cost:.3g}"
        )

    def compared(self, originals: ArrayLike) -> Likeness:
        """How alike they are, each with the original that suits it best, one to one."""
        return likeness(self.images, originals, self.bounds)

    def _repr_html_(self) -> str:
        rows = [
            ("defence", self.defence),
            ("examples", str(len(self.images))),
            ("labels", "told" if self.labels_known else "recovered from the last layer"),
            ("search", f"{self.trials} x {self.iterations:,} steps"),
            ("gradients off by", f"{self.cost:.3g}"),
        ]
        return facts_table(f"Examples from a gradient: {self.attack}", rows, note=CURATOR)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the images; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "attack": self.attack,
            "defence": self.defence,
            "examples": len(self.images),
            "labels": self.labels.tolist(),
            "labels_known": self.labels_known,
            "cost": self.cost,
            "iterations": self.iterations,
            "trials": self.trials,
            "bounds": list(self.bounds),
        }
