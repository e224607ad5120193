"""Inversion from scores alone, with a prior: MI-Face on codes instead of pixels.

What the attacker sees: probabilities. Slopes estimated by random directions are the noisier the
more numbers there are to change; a generator's codes have a few dozen where an image has hundreds.
The target and the generator together are a target of their own, whose inputs are codes.

The cost 1 - p_c is flat where the model sees nothing of the class. So some codes are drawn first,
the target is asked about each once, and every class begins where the target is surest of it.

    >>> import torch
    >>> from torch import nn
    >>> stretch = nn.Linear(2, 8, bias=False)
    >>> _ = stretch.weight.data.copy_(torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4))
    >>> def brighter(x):  # the upper half or the lower?
    ...     p = 1 / (1 + np.exp(-(x[:, :4] - x[:, 4:]).sum(axis=1)))
    ...     return np.stack([p, 1 - p], axis=1)
    >>> found = invert_by_scores(
    ...     Target.of_scores(brighter), [0, 1], LearnedPrior(stretch, (2,)),
    ...     generator=np.random.default_rng(1),
    ... )
    >>> (found.images[:, [0, 7]] > 0.3).tolist()
    [[True, False], [False, True]]

Images of private records are the curator's.

References: those of :mod:`~sfumato.attacks.inversion.mi_face` and
:mod:`~sfumato.attacks.inversion.slopes`; Struppek et al., "Plug & Play attacks", ICML 2022,
arXiv:2201.12179, for a first choice of codes by the target's answers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.inversion.mi_face import invert_with_mi_face
from sfumato.attacks.inversion.priors import LearnedPrior
from sfumato.attacks.inversion.results import Inversion, checked_labels
from sfumato.attacks.inversion.slopes import RandomDirections
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["coded_target", "invert_by_scores"]

_FARTHEST = 3.0  # of a code's numbers from 0, in standard deviations


def coded_target(
    target: Target, prior: LearnedPrior, bounds: tuple[float, float] = (0.0, 1.0)
) -> Target:
    """The target as a function of codes. Its queries count for ``target``, too."""

    def answer(codes: NDArray[np.float32]) -> NDArray[np.float64]:
        return target.probabilities(np.clip(prior.decoded(codes), *bounds))

    return Target.of_scores(answer, target.name)


def invert_by_scores(
    target: Target,
    labels: ArrayLike,
    prior: LearnedPrior,
    *,
    generator: np.random.Generator,
    bounds: tuple[float, float] = (0.0, 1.0),
    tries: int = 200,
    directions: int = 16,
    step: float = 0.02,
    rate: float = 2.0,
    iterations: int = 300,
    patience: int = 100,
    probability: float = 0.99,
) -> Inversion:
    """An image of each class that the target is sure of, from its scores alone.

    Args:
        target: the model; must show scores.
        labels: of which classes; the same class several times begins at different codes.
        prior: a generator learned from public pictures.
        generator: the attacker's coins.
        bounds: the least and the greatest value of a pixel. Images and queries stay within.
        tries: how many codes are drawn to begin with.
        directions: random directions a step, of two queries each.
        step: how far they go, as a share of the codes' range from -3 to 3.
        rate: MI-Face's.
        iterations: its most steps.
        patience: how many steps may pass without progress.
        probability: from which on the model is sure enough of a class.

    Raises:
        NotSeen: if the target shows too little, before any query.
        BudgetSpent: if it does not even answer for the first codes.
    """
    target.require(View.SCORES)
    wanted, (low, high) = checked_labels(labels), validation.interval("bounds", *bounds)
    before = target.queries
    coded = coded_target(target, prior, (low, high))
    drawn = generator.standard_normal((validation.count("tries", tries), *prior.code_shape))
    found = invert_with_mi_face(
        coded,
        wanted,
        prior.code_shape,
        bounds=(-_FARTHEST, _FARTHEST),
        rate=rate,
        iterations=iterations,
        patience=patience,
        probability=probability,
        start=_surest(coded, np.clip(drawn, -_FARTHEST, _FARTHEST), wanted),
        slopes=RandomDirections(directions, step, generator=generator),
    )
    return replace(
        found,
        attack="MI-Face on codes",
        images=np.clip(prior.decoded(found.images), low, high),
        queries=target.queries - before,
        bounds=(low, high),
    )


def _surest(
    coded: Target, codes: NDArray[np.float64], labels: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The code that the target is surest of for each class; the next best for its next image."""
    shown = coded.probabilities(codes)
    if labels.max() >= shown.shape[1]:
        validation.fail("labels", f"below the target's {shown.shape[1]}", int(labels.max()))
    earlier = [int((labels[:place] == label).sum()) for place, label in enumerate(labels)]
    order = np.argsort(-shown, axis=0, kind="stable")
    return codes[order[np.array(earlier) % len(codes), labels]]
