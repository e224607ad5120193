"""What the GAN attack gives: pictures of one class, made anew from the same codes every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.html import CURATOR, facts_table

__all__ = ["GanAttack", "Poison"]


@final
@dataclass(frozen=True, eq=False)
class Poison:
    """What the adversary trains on in a round: generated pictures under a false label.

    Attributes:
        inputs: the pictures, one a row.
        labels: the fake class, for each.
        probability: the shared model's, of the *victim's* class for these pictures, on average.
    """

    inputs: NDArray[np.float32]
    labels: NDArray[np.int64]
    probability: float

    def __str__(self) -> str:
        return (
            f"{len(self.labels)} generated examples labelled {int(self.labels[0])}; the shared "
            f"model is {self.probability:.1%} sure that they are of the victim's class"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the pictures; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "examples": len(self.labels),
            "label": int(self.labels[0]),
            "probability": self.probability,
        }


@final
@dataclass(frozen=True, eq=False)
class GanAttack:
    """What the adversary saw of the victim's class. For the curator only.

    Attributes:
        victim_class: what the pictures are meant to show.
        fake_class: under which label they were trained on.
        kept: after which rounds pictures were kept, from 1 up.
        pictures: an array of pictures for each of those rounds: (rounds, pictures, *shape). In
            every round they come from the same codes.
        probability: the shared model's of the victim's class, for generated pictures, each round.
        skipped: in how many rounds the model's answers were no numbers, so that nothing was learnt.
        bounds: the least and the greatest value of a pixel.
    """

    victim_class: int
    fake_class: int
    kept: NDArray[np.int64]
    pictures: NDArray[np.float32]
    probability: NDArray[np.float64]
    skipped: int
    bounds: tuple[float, float]

    @property
    def rounds(self) -> int:
        """How many rounds the attack took."""
        return len(self.probability)

    def last(self, rounds: int = 1) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The pictures of so many of the rounds kept, the last ones, and their label for a judge.

        Pictures swing from round to round: those of several rounds tell more than those of one.
        """
        if validation.count("rounds", rounds) > len(self.kept):
            validation.fail("rounds", f"at most the {len(self.kept)} that were kept", rounds)
        images = self.pictures[-rounds:].reshape(-1, *self.pictures.shape[2:])
        return images, np.full(len(images), self.victim_class, dtype=np.int64)

    def __str__(self) -> str:
        return (
            f"GAN attack on class {self.victim_class} under label {self.fake_class}: "
            f"{self.rounds} rounds, pictures kept of {len(self.kept)}; in the end the shared "
            f"model is {self.probability[-1]:.1%} sure of them"
        )

    def _repr_html_(self) -> str:
        shape = " x ".join(map(str, self.pictures.shape[2:]))
        rows = [
            ("the victim's class", str(self.victim_class)),
            ("the adversary's label for it", str(self.fake_class)),
            ("rounds", f"{self.rounds}, of which {self.skipped} without a lesson"),
            ("pictures", f"{self.pictures.shape[1]} of {shape} after {len(self.kept)} rounds"),
            ("the model is sure of them", f"{self.probability[-1]:.1%} in the end"),
        ]
        return facts_table("What a GAN made of the shared model", rows, note=CURATOR)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the pictures; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "victim_class": self.victim_class,
            "fake_class": self.fake_class,
            "kept": self.kept.tolist(),
            "shape": list(self.pictures.shape[2:]),
            "pictures": self.pictures.shape[1],
            "probability": self.probability.tolist(),
            "skipped": self.skipped,
            "bounds": list(self.bounds),
        }
