"""Reports of labels as a game for an audit: one label or another, and what is told of it.

    >>> from sfumato.core.randomness import SeededCoins
    >>> game = label_game("top-k", epsilon=1.0, classes=6, coins=SeededCoins(1))
    >>> game.labels, game.draw(5, 4).tolist()
    ((0, 1, 5), [0, 0, 1, 1])
    >>> [round(p, 4) for p in game.law(0).tolist()]
    [0.5761, 0.2119, 0.2119, 0.0, 0.0, 0.0]
    >>> [round(p, 4) for p in game.law(5).tolist()]
    [0.3333, 0.3333, 0.3333, 0.0, 0.0, 0.0]

The auditor makes up what is public besides: the set of classes, the prior, the grid. A label is
told by the code that a run calls. Laws are those that the mechanisms state; whether the code has
them is what draws are for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.label_dp.alibi import NoisyOneHot
from sfumato.learning.label_dp.bins import best_bins
from sfumato.learning.label_dp.top_k import LABEL, TopKResponse
from sfumato.learning.label_dp.with_prior import best_sets, respond_with_prior
from sfumato.mechanisms.randomized_response import RandomizedResponse

__all__ = ["LabelGame", "label_game", "label_game_names"]

_LIKELY = 0.9  # the share of the likelier half of the classes in a made-up prior


@final
@dataclass(frozen=True, eq=False)
class LabelGame:
    """One way to tell a label.

    Attributes:
        name: of the mechanism.
        says: what was made up.
        guarantee: what it promises.
        labels: to be told apart, any two of them; every kind of label is among them.
        draw: ``draw(label, count)``: so many independent reports of one label.
        law: ``law(label)``: the probability of each report; of vectors, of each of nine cells.
    """

    name: str
    says: str
    guarantee: Guarantee
    labels: tuple[int, ...]
    draw: Callable[[Any, int], NDArray[Any]]
    law: Callable[[Any], NDArray[np.float64]]


def label_game(name: str, *, epsilon: float, classes: int = 10, coins: Coins = SYSTEM) -> LabelGame:
    """The game of the mechanism of this name.

    Args:
        name: see :func:`label_game_names`.
        epsilon: of a report.
        classes: how many; for bins, points of a grid.
        coins: where the randomness comes from; seeded in tests only.

    Raises:
        ValueError: for another name, or numbers that cannot be.
    """
    if name not in _GAMES:
        validation.fail("mechanism", f"one of {', '.join(_GAMES)}", name)
    if validation.at_least("classes", classes, 2) > 512:
        validation.fail("classes", "at most 512", classes)
    return _GAMES[name](validation.positive("epsilon", epsilon), classes, coins)


def label_game_names() -> tuple[str, ...]:
    """The mechanisms there are.

    >>> label_game_names()
    ('response', 'top-k', 'with-prior', 'alibi', 'bins')
    """
    return tuple(_GAMES)


def _response(epsilon: float, classes: int, coins: Coins) -> LabelGame:
    response = RandomizedResponse(epsilon, classes, unit=LABEL)

    def draw(label: int, count: int) -> NDArray[np.int64]:
        return response.perturb(np.full(count, label), coins=coins)

    def law(label: int) -> NDArray[np.float64]:
        return np.where(np.arange(classes) == label, response.keep, response.switch)

    says = f"among all {classes} classes"
    return LabelGame("response", says, response.guarantee(), (0, 1), draw, law)


def _half(classes: int) -> int:
    return max(2, classes // 2)


def _some(classes: int, inside: int) -> tuple[int, ...]:
    """Two classes of the first ``inside``, and one that is none of them, if there is one."""
    return (0, 1, classes - 1) if inside < classes else (0, 1)


def _set_law(response: TopKResponse, allowed: NDArray[np.bool_], label: int) -> NDArray[np.float64]:
    """By the likelihood of every report that may be made."""
    reports = np.flatnonzero(allowed)
    likelihood = response.likelihood(reports, np.tile(allowed, (len(reports), 1)))
    found = np.zeros(len(allowed))
    found[reports] = likelihood[:, label]
    return found


def _top_k(epsilon: float, classes: int, coins: Coins) -> LabelGame:
    response, size = TopKResponse(epsilon), _half(classes)
    allowed = np.arange(classes) < size

    def draw(label: int, count: int) -> NDArray[np.int64]:
        return response.perturb(np.full(count, label), np.tile(allowed, (count, 1)), coins=coins)

    def law(label: int) -> NDArray[np.float64]:
        return _set_law(response, allowed, label)

    says, labels = f"within {size} of {classes} classes", _some(classes, size)
    return LabelGame("top-k", says, response.guarantee(), labels, draw, law)


def _with_prior(epsilon: float, classes: int, coins: Coins) -> LabelGame:
    size = _half(classes)
    rest = (1 - _LIKELY) / (classes - size) if size < classes else 0.0
    prior = np.where(np.arange(classes) < size, (1 - (classes - size) * rest) / size, rest)
    best = best_sets([prior], epsilon)

    def draw(label: int, count: int) -> NDArray[np.int64]:
        tiled = np.tile(prior, (count, 1))
        return respond_with_prior(np.full(count, label), tiled, epsilon, coins=coins)

    def law(label: int) -> NDArray[np.float64]:
        return _set_law(TopKResponse(epsilon), best.sets[0], label)

    says = f"within the best {best.sizes[0]} of {classes} classes for a prior"
    labels = _some(classes, int(best.sizes[0]))
    return LabelGame("with-prior", says, TopKResponse(epsilon).guarantee(), labels, draw, law)


def _alibi(epsilon: float, classes: int, coins: Coins) -> LabelGame:
    noisy = NoisyOneHot(epsilon, classes)

    def draw(label: int, count: int) -> NDArray[np.float64]:
        return noisy.perturb(np.full(count, label), coins=coins)

    def law(label: int) -> NDArray[np.float64]:
        return np.outer(*(_three_cells(float(label == k), noisy.scale) for k in (0, 1))).ravel()

    says = f"a vector of {classes} noisy numbers, two of which move"
    return LabelGame("alibi", says, noisy.guarantee(), (0, 1), draw, law)


def _three_cells(centre: float, scale: float) -> NDArray[np.float64]:
    """Laplace noise around 0 or 1: below 0, between the two, above 1.

    The ratio of both densities is constant below 0 and above 1 and monotone between, so that these
    cells show all of it at a delta of 0. (What is told is rounded to a grid of a millionth of the
    scale; "above the grid point 1" moves both probabilities by one factor, and shows the same.)
    """
    near, far = 0.5, 0.5 * math.exp(-1 / scale)
    outer = (near, far) if centre == 0 else (far, near)
    return np.array([outer[0], near - far, outer[1]])


def _bins(epsilon: float, classes: int, coins: Coins) -> LabelGame:
    bins = best_bins(np.arange(classes), np.full(classes, 1 / classes), epsilon)
    number = len(bins.values)
    response = RandomizedResponse(epsilon, max(2, number), unit=LABEL)

    def draw(label: int, count: int) -> NDArray[np.float64]:
        return bins.perturb(np.full(count, float(label)), coins=coins)

    def law(label: int) -> NDArray[np.float64]:
        if number == 1:
            return np.ones(1)
        own = np.searchsorted(np.array(bins.edges), label, side="right")
        return np.where(np.arange(number) == own, response.keep, response.switch)

    says = f"{number} bins for numbers from 0 to {classes - 1}"
    return LabelGame("bins", says, bins.guarantee(), (0, classes - 1), draw, law)


_GAMES: dict[str, Callable[[float, int, Coins], LabelGame]] = {
    "response": _response,
    "top-k": _top_k,
    "with-prior": _with_prior,
    "alibi": _alibi,
    "bins": _bins,
}
