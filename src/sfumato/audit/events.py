"""Events that tell two samples apart, learned from one part of the draws.

An audit of epsilon needs an event that is much likelier on one input than on its neighbour. Which
one is unknown, so it is learned: one half of the learning draws *fits* scores (higher where the
first input is likelier), the other half *chooses* the score, the threshold and the direction whose
Clopper-Pearson bound is largest. Two halves, because a score may fit its own sample perfectly ("all
values seen on the first input") and mean nothing. What comes out is a fixed function of an output;
its rates are for others to measure, on draws that were not used here.

    >>> rng = np.random.default_rng(1)
    >>> first, second = rng.laplace(size=4000), rng.laplace(1.0, size=4000)
    >>> event = learn_event(np.round(first, 3), np.round(second, 3))
    >>> event.on_first, event.contains([-3.0, 4.0]).tolist()
    (False, [False, True])
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from sfumato.audit.event_scores import Outputs, Score, fitted_scores
from sfumato.core import validation

__all__ = ["LearnedEvent", "as_outputs", "learn_event", "origin_of"]

_Floats = NDArray[np.float64]
_WHOLE = 2**53  # beyond it doubles do not hold every whole number
_LUCK = 20  # how much surer a threshold must be, because the best of hundreds is lucky


@dataclass(frozen=True, eq=False)
class LearnedEvent:
    """A set of outputs, fixed before the draws that measure it.

    Attributes:
        score: by which outputs are ordered.
        threshold: outputs with at least this score belong to it ...
        upper: ... or, if False, those with at most it.
        on_first: whether it is likelier on the first input.
        shown: the bound that it had on the draws that chose it: too good, for comparisons only.
        width: how many numbers an output is; None for outcomes of any kind. What is not of this
            width counts as NaN, so that the event is a function of each output by itself.
        origin: whole numbers that are subtracted from an output's first, where some are beyond
            2^53: as doubles they could not be told apart.
    """

    score: Score
    threshold: float
    upper: bool
    on_first: bool
    shown: float
    width: int | None
    origin: tuple[int, ...] = ()

    def contains(self, outputs: Any) -> NDArray[np.bool_]:
        """Whether each output belongs to the event."""
        found = as_outputs(outputs, self.origin)
        scores = self.score(found if self.width is None else _as_numbers(found, self.width))
        return scores >= self.threshold if self.upper else scores <= self.threshold

    @property
    def description(self) -> str:
        """The event in one line."""
        said = self.score.describe(self.threshold, self.upper)
        less = ", ".join(map(str, self.origin))
        return f"{said}, of outputs less {less}" if less else said


def as_outputs(drawn: Any, origin: tuple[int, ...] = ()) -> Outputs:
    """Draws as an array of floats, of rows of floats, or of hashable objects.

    Args:
        drawn: the draws.
        origin: is subtracted from the whole numbers of each, exactly, before they become floats.

    >>> as_outputs([3, 4.5]).tolist(), as_outputs([[True, False], [True]]).tolist()
    ([3.0, 4.5], [(True, False), (True,)])
    >>> as_outputs([2**60 + 1, 2**60], origin_of([2**60])).tolist()
    [1.0, 0.0]
    """
    if isinstance(drawn, np.ndarray) and cast(Outputs, drawn).dtype.kind in "biuf":
        array = cast(Outputs, drawn)
        if array.ndim == 0:
            validation.fail("outputs", "one entry for each draw", array.item())
        if origin and array.dtype.kind in "iu" and array[:1].size == len(origin):
            first = np.array(origin, dtype=object).reshape(array.shape[1:])
            array = array.astype(object) - first
        array = array.astype(np.float64)
        rows = array.reshape(len(array), -1) if array.size else array
        return rows.ravel() if rows.ndim > 1 and rows.shape[1] == 1 else rows
    items = [_hashable(item, origin) for item in cast(Iterable[Any], drawn)]
    widths = {_width(item) for item in items}
    if len(widths) == 1 and None not in widths:
        return as_outputs(np.array(items, np.float64))
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def origin_of(drawn: Any) -> tuple[int, ...]:
    """The first draw that has a whole number beyond 2^53, if it has nothing but whole numbers."""
    if isinstance(drawn, np.ndarray) and cast(Outputs, drawn).dtype.kind in "biuf":
        array = cast(Outputs, drawn)
        if array.dtype.kind not in "iu" or array.ndim == 0:
            return ()
        large = (np.abs(array.astype(np.float64)) > _WHOLE).reshape(len(array), -1).any(axis=1)
        rows = array[large][:1].ravel()
        return tuple(int(number) for number in rows)
    for item in cast(Iterable[Any], drawn):
        parts = _parts(item)
        if any(type(part) is int and abs(part) > _WHOLE for part in parts):
            return parts if all(type(part) is int for part in parts) else ()
    return ()


def _parts(item: Any) -> tuple[Any, ...]:
    if isinstance(item, np.ndarray | np.generic):
        item = cast(Outputs, item).tolist()
    return tuple(cast(list[Any], item)) if isinstance(item, list | tuple) else (item,)


def learn_event(
    first: Any,
    second: Any,
    *,
    delta: float = 0.0,
    confidence: float = 0.99,
    gaussian: bool = False,
) -> LearnedEvent:
    """The event that best tells ``first`` from ``second``.

    Args:
        first: independent outputs on one input.
        second: as many, or not, on its neighbour.
        delta: at which a bound on epsilon is sought.
        confidence: of the bound that the event will be used for.
        gaussian: whether it will be a bound on mu, of Gaussian differential privacy.
    """
    origin = origin_of(first) or origin_of(second)
    one, two = as_outputs(first, origin), as_outputs(second, origin)
    if min(len(one), len(two)) < 4 or one.shape[1:] != two.shape[1:]:
        shapes = (one.shape, two.shape)
        validation.fail("first and second", "at least 4 outputs each, of one shape", shapes)
    alpha = (1 - validation.open_probability("confidence", confidence)) / 2 / _LUCK
    found = [
        event
        for score in fitted_scores(one[::2], two[::2])
        for event in _thresholded(score, (one[1::2], two[1::2]), delta, alpha, gaussian)
    ]
    return replace(max(found, key=lambda event: event.shown), origin=origin)


def _thresholded(
    score: Score, samples: tuple[Outputs, Outputs], delta: float, alpha: float, gaussian: bool
) -> Iterable[LearnedEvent]:
    """The best threshold for each side of it and each direction."""
    a, b = (np.sort(score(side)) for side in samples)
    outcomes = any(side.dtype == object for side in samples)
    width = None if outcomes else int(np.prod(samples[0].shape[1:], dtype=int))
    both = np.sort(np.concatenate([a, b]))
    ranks = np.unique(np.geomspace(1, (len(both) + 1) // 2, 64).astype(int))
    tried = np.unique(np.concatenate([both[ranks - 1], both[-ranks]]))
    for upper in (True, False):
        counts = [
            len(side) - np.searchsorted(side, tried, side="left")
            if upper
            else np.searchsorted(side, tried, side="right")
            for side in (a, b)
        ]
        rates = [(k.astype(np.float64), len(side)) for k, side in zip(counts, (a, b), strict=True)]
        for on_first in (True, False):
            inside, outside = rates if on_first else rates[::-1]
            shown = _bounds(*inside, *outside, delta, alpha, gaussian)
            # Of thresholds that show the same, the one that leaves most out.
            best = len(shown) - 1 - int(np.argmax(shown[::-1])) if upper else int(np.argmax(shown))
            limit, bound = float(tried[best]), float(shown[best])
            yield LearnedEvent(score, limit, upper, on_first, bound, width)


def _bounds(
    hits: _Floats, n: int, alarms: _Floats, m: int, delta: float, alpha: float, gaussian: bool
) -> _Floats:
    """Epsilon, or mu, by Clopper and Pearson's limits, elementwise; -inf where nothing is shown."""
    low = np.where(hits > 0, betaincinv(np.maximum(hits, 1), n - hits + 1, alpha), 0.0)
    high = np.where(alarms < m, betaincinv(alarms + 1, np.maximum(m - alarms, 1), 1 - alpha), 1.0)
    if gaussian:
        return np.where(low > 0, ndtri(low), -np.inf) - np.where(high < 1, ndtri(high), np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(low > delta, np.log(low - delta) - np.log(high), -np.inf)


def _hashable(item: Any, origin: tuple[int, ...]) -> Any:
    """``item``, with lists and arrays as tuples and numbers as floats, less the origin."""
    if isinstance(item, np.ndarray | np.generic):
        item = cast(Outputs, item).tolist()
    if isinstance(item, list | tuple):
        parts = tuple(cast(list[Any], item))
        if len(parts) != len(origin):
            return parts
        return tuple(_less(part, first) for part, first in zip(parts, origin, strict=True))
    try:
        hash(item)
        if not isinstance(item, int | float):
            return item
        return float(_less(item, origin[0]) if len(origin) == 1 else item)
    except (TypeError, OverflowError):  # unhashable, or an integer beyond all floats
        return repr(item)


def _less(part: Any, first: int) -> Any:
    if isinstance(part, float) and math.isfinite(part):
        return float(Fraction(part) - first)
    return part - first if isinstance(part, int) and not isinstance(part, bool) else part


def _width(item: Any) -> int | None:
    """How many numbers ``item`` is; answers of yes and no are none."""
    if isinstance(item, float):
        return 1
    if isinstance(item, tuple):
        parts = cast(tuple[Any, ...], item)
        if parts and all(isinstance(p, int | float) and not isinstance(p, bool) for p in parts):
            return len(parts)
    return None


def _as_numbers(outputs: Outputs, width: int) -> Outputs:
    """Rows of ``width`` numbers, NaN for what is not."""
    nothing = (np.nan,) * width
    if outputs.dtype == object:
        items = cast(list[Any], outputs.tolist())
        rows = [np.ravel(item) if _width(item) == width else nothing for item in items]
        array = np.array(rows, np.float64)
    else:
        array = outputs.reshape(len(outputs), -1)
        array = array if array.shape[1] == width else np.full((len(outputs), width), np.nan)
    return array.ravel() if width == 1 else array
