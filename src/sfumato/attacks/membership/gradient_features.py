"""What the gradients of examples tell of membership, a few numbers an example.

What the attacker sees: the gradient of the loss on any example (a :class:`Target` that shows
gradients); with the weights in hand, also which layer each part belongs to. Members have small
losses and small gradients, in some layers more than in others.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> found = gradient_features(Target.of_module(model), np.ones((5, 3)), [0, 1, 0, 1, 0])
    >>> found.parts
    ('0.weight', '0.bias', '2.weight', '2.bias')
    >>> found.table.shape
    (5, 6)

Gradients are taken a few examples at a time and reduced at once: models of any size fit, as long as
the gradient of a single example does.

The features are for the curator, never for publication.

Reference: Nasr, Shokri and Houmansadr, "Comprehensive privacy analysis of deep learning", IEEE S&P
2019, arXiv:1812.00910. There a network reads whole gradients; here a logistic model reads norms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = [
    "NUMBERS",
    "GradientFeatures",
    "gradient_batches",
    "gradient_features",
    "learned_scores",
    "logistic_scores",
]

NUMBERS = 2**23
"""How many numbers of gradients are held at once (64 MiB of them), unless told otherwise."""


@final
@dataclass(frozen=True, eq=False)
class GradientFeatures:
    """What the gradients and losses of examples look like, a row each. For the curator only.

    Attributes:
        losses: the loss of each example.
        norms: the norm of its gradient.
        part_norms: the norms of the parts of its gradient, a column for each part.
        parts: the names of the parts.
    """

    losses: NDArray[np.float64]
    norms: NDArray[np.float64]
    part_norms: NDArray[np.float64]
    parts: tuple[str, ...]

    @property
    def table(self) -> NDArray[np.float64]:
        """Logarithms of losses, norms and part norms: what a learned attack reads."""
        columns = [self.losses[:, None], self.norms[:, None], self.part_norms]
        return np.log(np.maximum(np.concatenate(columns, axis=1), 1e-30))

    def __str__(self) -> str:
        return (
            f"gradients of {len(self.norms):,} examples in {len(self.parts)} parts: norm "
            f"{np.median(self.norms):.4g}, loss {np.median(self.losses):.4g} (medians)"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "losses": self.losses.tolist(),
            "norms": self.norms.tolist(),
            "parts": {
                name: self.part_norms[:, place].tolist() for place, name in enumerate(self.parts)
            },
        }


def gradient_features(
    target: Target, inputs: ArrayLike, labels: ArrayLike, *, numbers: int = NUMBERS
) -> GradientFeatures:
    """The loss and the norms of the gradient of each example.

    A target that shows its weights has a part for each of its parameters; one that shows gradients
    alone has a single part.

    Args:
        target: the trained model; it must show gradients.
        inputs: one example a row.
        labels: their classes.
        numbers: how many numbers of gradients may be held at once.
    """
    x, y = np.asarray(inputs), np.asarray(labels, dtype=np.int64)
    sizes = _part_sizes(target)
    squares: list[NDArray[np.float64]] = []
    for _, rows in gradient_batches(target, x, y, numbers):
        ends = np.cumsum(list(sizes.values()) or [rows.shape[1]])[:-1]
        parts = np.split(rows, ends, axis=1)
        squares.append(np.stack([np.einsum("ij,ij->i", part, part) for part in parts], axis=1))
    table = np.concatenate(squares)
    names = tuple(sizes) or ("all",)
    return GradientFeatures(target.losses(x, y), np.sqrt(table.sum(axis=1)), np.sqrt(table), names)


def learned_scores(
    known: GradientFeatures, inside: ArrayLike, asked: GradientFeatures
) -> NDArray[np.float64]:
    """The log-odds of membership by a logistic model of the features.

    The model learns from examples whose membership the attacker knows: some members that the
    attacker has come by, or those of a shadow model. None of them may be among those asked about.

    Args:
        known: features of examples whose membership is known.
        inside: whether each of those is a member.
        asked: features of the examples in question.
    """
    if known.parts != asked.parts:
        validation.fail("asked", "features of the same model", asked.parts)
    return logistic_scores(known.table, inside, asked.table)


def logistic_scores(
    known: NDArray[np.float64], inside: ArrayLike, asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The same for any table of features, a row an example."""
    from sklearn.linear_model import LogisticRegression

    truth = np.asarray(inside, dtype=bool)
    if truth.shape != (len(known),) or truth.all() or not truth.any():
        validation.fail("inside", f"marks of either kind for {len(known)} examples", truth.shape)
    centre, spread = known.mean(axis=0), np.maximum(known.std(axis=0), 1e-9)
    model = LogisticRegression(class_weight="balanced", max_iter=1000)
    model.fit((known - centre) / spread, truth)
    return np.asarray(model.decision_function((asked - centre) / spread))


def gradient_batches(
    target: Target, inputs: ArrayLike, labels: ArrayLike, numbers: int
) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Gradients, as many rows at a time as fit, with the place of the first of them."""
    target.require(View.GRADIENTS)
    validation.at_least("numbers", numbers, 0)
    x, y = np.asarray(inputs), np.asarray(labels, dtype=np.int64)
    if len(x) != len(y):
        validation.fail("labels", f"one for each of {len(x)} examples", len(y))
    place, size = 0, 1  # the first gradient alone: it tells how long one is
    while place < len(y):
        part = slice(place, place + size)
        rows = target.gradients(x[part], y[part]).astype(np.float64)
        yield place, rows
        place += len(rows)
        size = max(1, numbers // rows.shape[1])


def _part_sizes(target: Target) -> dict[str, int]:
    if not target.shows(View.WEIGHTS):
        return {}
    return {name: weight.numel() for name, weight in target.module.named_parameters()}
