"""The boundary of a linear model of two classes, from labels alone.

What the attacker sees: the class of inputs of her choice. She knows that two classes are divided by
a hyperplane w x + b = 0. The idea: between two inputs of different classes lies a point of the
hyperplane, and halving the way between them finds it to r binary digits in r queries. d such points
in general position determine w and b but for their scale, which labels never tell.

    >>> def model(inputs):
    ...     return (inputs @ [2.0, -1.0] + 0.5 > 0).astype(int)
    >>> found = extract_by_boundary(
    ...     Target.of_labels(model), 2, (-1, 1), generator=np.random.default_rng(1)
    ... )
    >>> weights, intercept = found.model.logistic()
    >>> (weights / intercept).round(6).tolist()
    [4.0, -2.0]

The price is d + 1 queries for inputs of both classes, or more if one is rare, and r for each of
the d ways between them, which are halved all at once. The error is 2^-r times the condition number
of the points, which extra ways make smaller.

The copy is for the curator only. Its probabilities are those of |w| = 1 in units of the box of
inputs; only its labels mean something.

References: Lowd and Meek, "Adversarial learning", KDD 2005; Tramèr, Zhang, Juels, Reiter and
Ristenpart, "Stealing machine learning models via prediction APIs", USENIX Security 2016,
arXiv:1609.02943, section 6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.attacks.extraction.answers import Bounds, affordable, box
from sfumato.attacks.extraction.linear import LinearModel
from sfumato.attacks.extraction.stolen import Stolen
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = ["extract_by_boundary"]


def extract_by_boundary(
    target: Target,
    dimension: int,
    bounds: Bounds,
    *,
    generator: np.random.Generator,
    halvings: int = 40,
    ways: int | None = None,
    draws: int | None = None,
) -> Stolen:
    """The hyperplane between the two classes of a target.

    A budget ends it where it is: with the ways halved less often, or, if one class alone was seen,
    with a copy that always answers with that class.

    Args:
        target: shows labels, 0 and 1.
        dimension: d.
        bounds: what inputs it takes.
        generator: draws the inputs between which points of the boundary are looked for.
        halvings: r, for each way.
        ways: how many points of the boundary are looked for; d by default, and at least that.
        draws: at most so many inputs are drawn to find both classes; 10,000 by default, or ten
            times as many as ways, if that is more.
    """
    target.require(View.LABELS)
    low, high = box(bounds, (validation.count("dimension", dimension),))
    count = validation.at_least("ways", dimension if ways is None else ways, dimension)
    rounds = validation.count("halvings", halvings)
    unit = _Unit(target, low, high)
    if unit.left(1) == 0:
        raise ValueError("the target's budget must allow one query")
    most = max(10_000, 10 * count) if draws is None else draws
    zeros, ones = _both_classes(
        unit, count, validation.at_least("draws", most, count + 1), generator
    )
    if len(zeros) == 0 or len(ones) == 0:
        return _stolen(unit, _constant(dimension, len(ones) > 0), stopped=unit.left(1) == 0)
    zeros, ones = _pairs(zeros, ones, count)
    points, done = _halved(unit, zeros, ones, rounds)
    model, condition = _plane(points, ones - zeros)
    facts = {"halvings": float(done), "condition": condition}
    return _stolen(unit, model, stopped=done < rounds, facts=facts)


class _Unit:
    """The target, asked about points of the cube from -1 to 1."""

    def __init__(self, target: Target, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        self.target, self.middle, self.half = target, (low + high) / 2, (high - low) / 2
        self.before = target.queries

    def left(self, wanted: int) -> int:
        return affordable(self.target, wanted)

    def ones(self, points: NDArray[np.float64]) -> NDArray[np.bool_]:
        labels = self.target.labels(self.middle + self.half * points)
        if not np.isin(labels, (0, 1)).all():
            raise ValueError("a boundary can be searched for between classes 0 and 1 alone")
        return labels == 1

    def model(self, inside: LinearModel) -> LinearModel:
        """From the cube to the box."""
        weights = inside.weights / self.half
        return LinearModel(weights, inside.intercepts - weights @ self.middle)


def _both_classes(
    unit: _Unit, count: int, draws: int, generator: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points of class 0 and points of class 1: one more than there are ways, or more if rare."""
    dimension = len(unit.middle)
    seen, marks, drawn = np.zeros((0, dimension)), np.zeros(0, bool), 0
    while drawn < draws and (marks.all() or not marks.any() or drawn <= count):
        size = unit.left(min(count + 1, draws - drawn))
        if size == 0:
            break
        points = generator.uniform(-1, 1, (size, dimension))
        seen, marks = np.vstack([seen, points]), np.append(marks, unit.ones(points))
        drawn += size
    return seen[~marks], seen[marks]


def _pairs(
    zeros: NDArray[np.float64], ones: NDArray[np.float64], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """So many ways, or all there are, from a point of class 0 to one of class 1.

    The ways form a tree: a ring of them would put one point of the boundary on the plane of others.
    """
    fewer = min(len(zeros), len(ones), (count + 1) // 2)
    rows = np.arange(min(len(zeros), count + 1 - fewer))
    columns = np.arange(min(len(ones), count + 1 - len(rows)))
    side = min(len(rows), len(columns))
    first = np.concatenate([rows[:side], rows[1:side], rows[side:], columns[side:] % side])
    second = np.concatenate(
        [columns[:side], columns[: side - 1], rows[side:] % side, columns[side:]]
    )
    return zeros[first], ones[second]


def _halved(
    unit: _Unit, zeros: NDArray[np.float64], ones: NDArray[np.float64], rounds: int
) -> tuple[NDArray[np.float64], int]:
    """Where each way crosses the boundary, and how often the ways were halved for it."""
    done = 0
    while done < rounds and unit.left(len(zeros)) == len(zeros):
        middles = (zeros + ones) / 2
        upper = unit.ones(middles)[:, None]
        zeros, ones = np.where(upper, zeros, middles), np.where(upper, middles, ones)
        done += 1
    return (zeros + ones) / 2, done


def _plane(points: NDArray[np.float64], ways: NDArray[np.float64]) -> tuple[LinearModel, float]:
    """The hyperplane nearest to the points, and how well they determine it."""
    design = np.column_stack([points, np.ones(len(points))])
    _, singular, directions = np.linalg.svd(design)
    rank = min(len(points), points.shape[1])
    # Of the planes through the points (one, or more where points are few), that which is crossed
    # most squarely on the way from class 0 to class 1.
    free = directions[rank:]
    normal = (free @ np.append(ways.mean(axis=0), 0.0)) @ free
    normal = normal / np.linalg.norm(normal[:-1])
    model = LinearModel(
        np.stack([-normal[:-1], normal[:-1]]) / 2, np.array([-normal[-1], normal[-1]]) / 2
    )
    return model, float(singular[0] / singular[rank - 1])


def _constant(dimension: int, one: bool) -> LinearModel:
    sign = 0.5 if one else -0.5
    return LinearModel(np.zeros((2, dimension)), np.array([-sign, sign]))


def _stolen(
    unit: _Unit, inside: LinearModel, stopped: bool, facts: dict[str, float] | None = None
) -> Stolen:
    model = unit.model(inside)
    return Stolen(
        model.probabilities,
        "boundary search",
        "labels",
        unit.target.queries - unit.before,
        stopped=stopped,
        facts=facts or {},
        model=model,
    )
