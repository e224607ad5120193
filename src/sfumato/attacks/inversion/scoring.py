"""Scores of reconstructed images: do others see the class in them, and is anybody's record there?

*Recognition*: a judge that has nothing to do with the target, trained on other examples, says what
it sees. A judge that must name some class finds one in any noise, and what fools one network often
fools another: give the judge a further answer, "nothing", and look at the pictures as well.

*Closeness*: how alike each image and the mean of its class's private images are, and how far the
nearest private image is against the nearest image of as many that were not trained on:

    ratio = distance to the nearest member / distance to the nearest non-member

Around 1 the image is a prototype: it shows the class, which other people's pictures show as well.
Well below 1 it is, or is close to, somebody's record. How far below 1 may be chance is told by
exchanging members and non-members at random: if both come from one population and the images depend
on neither more than on the other, every exchange is as likely as the truth. So hold non-members
out by lot: the last rows of a file often differ from the first. (Images of one class are often
alike and then have the same nearest neighbours, so that they are no trials of their own.)

    >>> def sees(images):  # bright is class 1
    ...     p = images.mean(axis=(1, 2))
    ...     return np.stack([1 - p, p], axis=1)
    >>> print(recognition(np.full((4, 2, 2), 0.9), [1, 1, 1, 0], sees))
    the judge names 75.0% of 4 images rightly (95% interval 19.4% to 99.4%), 100.0% within its ...

Both are measured with private data or made from it: for the curator only.

References: Clopper and Pearson, Biometrika 26 (1934), for intervals; Carlini et al., "Extracting
training data from diffusion models", arXiv:2301.13188, for distances relative to those of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.inversion.likeness import cosine, structural_similarity
from sfumato.attacks.inversion.results import checked_labels
from sfumato.core import validation
from sfumato.core.html import CURATOR, facts_table
from sfumato.core.rates import rate_interval

__all__ = [
    "ClassRecognition",
    "Closeness",
    "Judge",
    "Recognition",
    "class_means",
    "closeness",
    "recognition",
]

Judge = Callable[[NDArray[np.float32]], NDArray[Any]]
"""From images to a row of probabilities for each: one a class, then any others ("nothing")."""

HALF_AS_FAR = 0.5
"""The ratio of distances from which on images are called records."""

UNLIKELY = 0.05
"""The p-value from which on nearness to members is not taken for chance."""

_TINY = 1e-12  # a distance of 0 has a finite logarithm


@final
@dataclass(frozen=True)
class ClassRecognition:
    """What the judge sees in the images of one class.

    Attributes:
        images: how many there are.
        first: of how many it is the judge's first answer.
        among_three: of how many it is among the judge's first three answers.
        probability: the judge's, of the class, on average.
    """

    images: int
    first: int
    among_three: int
    probability: float


@final
@dataclass(frozen=True)
class Recognition:
    """What a judge sees in reconstructed images. For the curator only.

    The interval is for the rate over the attack's random choices, against this one model.

    Attributes:
        by_class: what it sees in the images of each class.
        confidence: of the interval.
    """

    by_class: dict[int, ClassRecognition]
    confidence: float = 0.95

    @property
    def images(self) -> int:
        """How many were judged."""
        return sum(one.images for one in self.by_class.values())

    @property
    def accuracy(self) -> float:
        """The share of images whose class is the judge's first answer."""
        return sum(one.first for one in self.by_class.values()) / self.images

    @property
    def accuracy_among_three(self) -> float:
        """The share of images whose class is among its first three."""
        return sum(one.among_three for one in self.by_class.values()) / self.images

    @property
    def probability(self) -> float:
        """The judge's mean probability of the right class."""
        return sum(one.probability * one.images for one in self.by_class.values()) / self.images

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Clopper and Pearson's, for :attr:`accuracy`."""
        right = sum(one.first for one in self.by_class.values())
        return rate_interval(right, self.images, self.confidence)

    def __str__(self) -> str:
        low, high = self.accuracy_interval
        return (
            f"the judge names {self.accuracy:.1%} of {self.images} images rightly "
            f"({self.confidence:.0%} interval {low:.1%} to {high:.1%}), "
            f"{self.accuracy_among_three:.1%} within its first three answers; it is "
            f"{self.probability:.1%} sure of them on average"
        )

    def _repr_html_(self) -> str:
        low, high = self.accuracy_interval
        limits = f"{self.confidence:.0%} interval {low:.1%} to {high:.1%}"
        rows = [
            ("images", f"{self.images} of {len(self.by_class)} classes"),
            ("named rightly", f"{self.accuracy:.1%} ({limits})"),
            ("within three answers", f"{self.accuracy_among_three:.1%}"),
            ("sure of them on average", f"{self.probability:.1%}"),
        ]
        return facts_table("What a judge sees in the images", rows, note=CURATOR)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "images": self.images,
            "accuracy": self.accuracy,
            "accuracy_interval": list(self.accuracy_interval),
            "confidence": self.confidence,
            "accuracy_among_three": self.accuracy_among_three,
            "probability": self.probability,
            "by_class": {
                str(label): {
                    "images": one.images,
                    "first": one.first,
                    "among_three": one.among_three,
                    "probability": one.probability,
                }
                for label, one in self.by_class.items()
            },
        }


def recognition(
    images: ArrayLike, labels: ArrayLike, judge: Judge, *, confidence: float = 0.95
) -> Recognition:
    """How often an independent ``judge`` sees in each image the class it was made for."""
    pictures, wanted = _pictures(images), checked_labels(labels)
    _as_many(pictures, wanted)
    validation.open_probability("confidence", confidence)
    shown = np.asarray(judge(pictures), dtype=np.float64)
    if shown.ndim != 2 or len(shown) != len(wanted) or shown.shape[1] <= wanted.max():
        validation.fail("the judge's answers", "a probability an image and class", shown.shape)
    own = shown[np.arange(len(wanted)), wanted]
    above = (shown >= own[:, None]).sum(axis=1) - 1  # a judge in doubt has not seen the class
    return Recognition(
        {
            int(label): ClassRecognition(
                int((wanted == label).sum()),
                int((above[wanted == label] < 1).sum()),
                int((above[wanted == label] < 3).sum()),
                float(own[wanted == label].mean()),
            )
            for label in np.unique(wanted)
        },
        confidence,
    )


@final
@dataclass(frozen=True, eq=False)
class Closeness:
    """How near reconstructed images are to private records. For the curator only.

    Attributes:
        similarity: of each image to its class's private mean: the cosine of both, each less its
            own average; 1 is the same but for contrast.
        structure: the same as structural similarity.
        member_distance: from each image to the nearest private one of its class.
        other_distance: from each image to the nearest of as many that were not trained on.
        p_value: how likely a mean log ratio as low as this is, had members been drawn by lot.
    """

    similarity: NDArray[np.float64]
    structure: NDArray[np.float64]
    member_distance: NDArray[np.float64]
    other_distance: NDArray[np.float64]
    p_value: float

    @property
    def ratio(self) -> NDArray[np.float64]:
        """Of the two distances; a record itself has 0."""
        return self.member_distance / np.maximum(self.other_distance, _TINY)

    @property
    def nearer_to_a_member(self) -> float:
        """The share of images that are nearer to a member; half of them by chance."""
        return float((self.ratio < 1).mean())

    @property
    def verdict(self) -> str:
        """Records, or what classes look like."""
        if self.p_value > UNLIKELY:
            return "prototypes, not records"
        if np.median(self.ratio) <= HALF_AS_FAR:
            return "records"
        return "prototypes that lean towards members"

    def __str__(self) -> str:
        return (
            f"{self.verdict}: the nearest member is {np.median(self.ratio):.3g} times as far as "
            f"the nearest non-member (median of {len(self.ratio)}), and nearer for "
            f"{self.nearer_to_a_member:.1%} (p = {self.p_value:.2g}); similarity to the class's "
            f"mean {self.similarity.mean():.2f}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "verdict": self.verdict,
            "similarity": self.similarity.tolist(),
            "structure": self.structure.tolist(),
            "ratio": self.ratio.tolist(),
            "nearer_to_a_member": self.nearer_to_a_member,
            "p_value": self.p_value,
        }


def closeness(
    images: ArrayLike,
    labels: ArrayLike,
    examples: Candidates,
    *,
    generator: np.random.Generator,
    bounds: tuple[float, float] = (0.0, 1.0),
    exchanges: int = 999,
) -> Closeness:
    """Whether images show records or prototypes; only who knows the members can tell.

    Args:
        images: the reconstructed ones.
        labels: what each is of.
        examples: private examples and others from the same population.
        generator: picks as many of each as there are of both (the nearest of more is nearer), and
            exchanges them.
        bounds: the least and the greatest value of a pixel.
        exchanges: how often members and others are exchanged for the p-value.
    """
    pictures, wanted = _pictures(images), checked_labels(labels)
    _as_many(pictures, wanted)
    low, high = validation.interval("bounds", *bounds)
    rounds = validation.count("exchanges", exchanges)
    if examples.inputs.shape[1:] != pictures.shape[1:]:
        validation.fail("examples", f"of shape {pictures.shape[1:]}", examples.inputs.shape[1:])
    member, other = np.empty(len(wanted)), np.empty(len(wanted))
    by_lot = np.zeros(rounds)
    for label in np.unique(wanted):
        near = _Nearest.of(pictures[wanted == label], examples, int(label), generator)
        member[wanted == label], other[wanted == label] = near.split(near.members)
        lots = (generator.permutation(near.members) for _ in range(rounds))
        by_lot += [near.total(lot) for lot in lots]
    observed = _logs(member, other).sum()
    inside = examples.only(np.flatnonzero(examples.members))
    means = class_means(inside.inputs, inside.labels, wanted)
    return Closeness(
        cosine(pictures, means),
        structural_similarity(pictures, means, high - low),
        member,
        other,
        float((1 + (by_lot <= observed + 1e-9).sum()) / (1 + rounds)),
    )


@dataclass(frozen=True)
class _Nearest:
    """Distances from some images to as many members as others of one class."""

    distances: NDArray[np.float64]
    members: NDArray[np.bool_]

    @classmethod
    def of(
        cls,
        images: NDArray[np.float32],
        examples: Candidates,
        label: int,
        generator: np.random.Generator,
    ) -> _Nearest:
        from scipy.spatial.distance import cdist

        of_class = examples.only(np.flatnonzero(examples.labels == label))
        count = int(min(of_class.members.sum(), (~of_class.members).sum()))
        if count == 0:
            validation.fail("examples", f"members and others of every class (none of {label})", 0)
        picked = of_class.balanced(count, generator=generator)
        rows = _pictures(picked.inputs).reshape(len(picked), -1)
        return cls(cdist(images.reshape(len(images), -1), rows), picked.members)

    def split(self, members: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """From each image to the nearest of ``members``, and of all others."""
        inside, outside = self.distances[:, members], self.distances[:, ~members]
        return inside.min(axis=1), outside.min(axis=1)

    def total(self, members: NDArray[np.bool_]) -> float:
        """The sum of the logarithms of the ratios."""
        return float(_logs(*self.split(members)).sum())


def _logs(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log(np.maximum(inside, _TINY)) - np.log(np.maximum(outside, _TINY))


def class_means(images: ArrayLike, labels: ArrayLike, wanted: ArrayLike) -> NDArray[np.float32]:
    """The mean image of each of the ``wanted`` classes."""
    pictures, found = _pictures(images), np.asarray(labels)
    kinds = checked_labels(wanted)
    for label in np.unique(kinds):
        if not (found == label).any():
            validation.fail("wanted", "among those of the examples", int(label))
    means = {label: pictures[found == label].mean(axis=0) for label in np.unique(kinds)}
    return np.stack([means[label] for label in kinds])


def _pictures(images: ArrayLike) -> NDArray[np.float32]:
    found = np.asarray(images, dtype=np.float32)
    if found.ndim < 2 or len(found) == 0:
        validation.fail("images", "one input a row", found.shape)
    return found


def _as_many(images: NDArray[np.float32], labels: NDArray[np.int64]) -> None:
    if len(images) != len(labels):
        validation.fail("labels", f"one for each of {len(images)} images", len(labels))
