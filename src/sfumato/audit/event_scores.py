"""Scores of outputs, fitted to two samples: higher where the first input is likelier.

========================  =====================================================================
outputs                   scores tried
========================  =====================================================================
numbers                   the number itself (half-lines); the ratio of smoothed densities over
                          quantile bins and frequent values; values seen on one input only; the
                          lowest set bit of the double, which betrays noise added in floating
                          point (Mironov, "On significance of the least significant bits for
                          differential privacy", 2012)
vectors                   a linear and a quadratic discriminant (means; variances and
                          covariances); the sum of the coordinates' density ratios; frequent
                          rows, and rows seen on one input only
anything else (choices)   the ratio of the outcomes' frequencies
========================  =====================================================================

A score is a fixed function once it is fitted. How well it tells the inputs apart must be measured
on other draws: :mod:`~sfumato.audit.events` does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["Outputs", "Score", "fitted_scores"]

Outputs = NDArray[Any]
"""For each draw one float, one row of floats, or one object."""

_Floats = NDArray[np.float64]
_Keys = NDArray[np.int64]
_BINS = 64
_FREQUENT = 16  # draws of one value, on both inputs together, that make it an outcome of its own
_MOST_COORDINATES = 64  # whose density ratios are added up
_FULL_COVARIANCE = 256  # coordinates; beyond, variances alone


class Score(Protocol):
    """A fixed function of an output: higher where the first input is likelier."""

    def __call__(self, outputs: Outputs) -> _Floats:
        """One score for each output."""
        ...

    def describe(self, threshold: float, upper: bool) -> str:
        """The outputs whose score is at least (else: at most) ``threshold``, in one line."""
        ...


def fitted_scores(first: Outputs, second: Outputs) -> list[Score]:
    """The scores that suit the kind of outputs, each fitted to two samples."""
    if first.dtype == object or second.dtype == object:
        return [_Frequencies.fit(first, second)]
    if first.ndim == 1:
        return [
            _Value(),
            _DensityRatio.fit(first, second),
            _LowestBit.fit(first, second),
            _OneSided.fit(first, second),
        ]
    scores: list[Score] = [_Discriminant.fit(first, second, square) for square in (False, True)]
    if first.shape[1] <= _MOST_COORDINATES:
        columns = list(zip(first.T, second.T, strict=True))
        scores.append(_Total(tuple(_DensityRatio.fit(x, y) for x, y in columns)))
        scores.append(_Total(tuple(_LowestBit.fit(x, y) for x, y in columns)))
    return [*scores, _DensityRatio.fit(first, second), _OneSided.fit(first, second)]


@dataclass(frozen=True, eq=False)
class _Value:
    """The number itself."""

    def __call__(self, outputs: Outputs) -> _Floats:
        return np.where(np.isnan(outputs), -np.inf, outputs)

    def describe(self, threshold: float, upper: bool) -> str:
        return f"output {_sign(upper)} {threshold:.6g}"


@dataclass(frozen=True, eq=False)
class _DensityRatio:
    """The log ratio of smoothed frequencies: of frequent values, else of quantile bins.

    Values are told apart by all their bits. Rows have no bins: only frequent ones count.
    """

    keys: _Keys
    key_scores: _Floats
    names: tuple[Any, ...]
    edges: _Floats
    bin_scores: _Floats

    @classmethod
    def fit(cls, first: Outputs, second: Outputs) -> _DensityRatio:
        found, place, total = np.unique(
            np.concatenate([_keys(first), _keys(second)]), return_inverse=True, return_counts=True
        )
        often = total >= _FREQUENT
        ours = np.bincount(place[: len(first)], minlength=len(found))
        key_scores = _log_odds(ours, total - ours, len(first), len(second))[often]
        rest = [~often[place[: len(first)]], ~often[place[len(first) :]]]
        edges, bin_scores = _bins(first[rest[0]], second[rest[1]], len(first), len(second))
        examples = np.empty(len(found), dtype=np.int64)
        examples[place] = np.arange(len(place))
        values = np.concatenate([first, second])[examples[often]]
        return cls(found[often], key_scores, tuple(values.tolist()), edges, bin_scores)

    def __call__(self, outputs: Outputs) -> _Floats:
        scores = self.bin_scores[
            np.searchsorted(self.edges, outputs, side="right")
            if outputs.ndim == 1
            else np.zeros(len(outputs), np.int64)
        ]
        if not len(self.keys):
            return scores
        keys = _keys(outputs)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.key_scores[place], scores)

    def describe(self, threshold: float, upper: bool) -> str:
        def chosen(scores: _Floats) -> NDArray[np.bool_]:
            return scores >= threshold if upper else scores <= threshold

        values = [name for name, of in zip(self.names, chosen(self.key_scores), strict=True) if of]
        parts = _intervals(self.edges, chosen(self.bin_scores))
        parts += [f"{{{_listed([_named(value) for value in values])}}}"] if values else []
        return f"output in {' or '.join(parts) or 'no bin'}"


@dataclass(frozen=True, eq=False)
class _LowestBit:
    """The density ratio of k, for a double that is an odd multiple of 2^k."""

    ratio: _DensityRatio

    @classmethod
    def fit(cls, first: Outputs, second: Outputs) -> _LowestBit:
        return cls(_DensityRatio.fit(_lowest_bits(first), _lowest_bits(second)))

    def __call__(self, outputs: Outputs) -> _Floats:
        return self.ratio(_lowest_bits(outputs))

    def describe(self, threshold: float, upper: bool) -> str:
        inner = self.ratio.describe(threshold, upper).removeprefix("output in ")
        return f"output an odd multiple of 2^k, k in {inner}"


@dataclass(frozen=True, eq=False)
class _OneSided:
    """1 for values seen on the first input only, -1 for those seen on the second only."""

    first: _Keys
    second: _Keys

    @classmethod
    def fit(cls, first: Outputs, second: Outputs) -> _OneSided:
        one, two = np.unique(_keys(first)), np.unique(_keys(second))
        return cls(np.setdiff1d(one, two, True), np.setdiff1d(two, one, True))

    def __call__(self, outputs: Outputs) -> _Floats:
        keys = _keys(outputs)
        return np.isin(keys, self.first).astype(np.float64) - np.isin(keys, self.second)

    def describe(self, threshold: float, upper: bool) -> str:
        signs = [sign for sign in (1, 0, -1) if (sign >= threshold if upper else sign <= threshold)]
        words = {
            1: f"one of {len(self.first)} values once seen on the first input only",
            0: "a value seen on both inputs or on none",
            -1: f"one of {len(self.second)} values once seen on the second input only",
        }
        return "output " + " or ".join(words[sign] for sign in signs)


@dataclass(frozen=True, eq=False)
class _Total:
    """The sum of the coordinates' density ratios: the whole ratio where they are independent."""

    ratios: tuple[_DensityRatio, ...] | tuple[_LowestBit, ...]

    def __call__(self, outputs: Outputs) -> _Floats:
        total = np.zeros(len(outputs))
        for ratio, column in zip(self.ratios, outputs.T, strict=True):
            total += ratio(column)
        return total

    def describe(self, threshold: float, upper: bool) -> str:
        of = "lowest bits" if isinstance(self.ratios[0], _LowestBit) else "coordinates"
        size = len(self.ratios)
        return f"sum of the log ratios of {size} {of} {_sign(upper)} {threshold:.6g}"


@dataclass(frozen=True, eq=False)
class _Discriminant:
    """x A x + w x of standardised coordinates x: Fisher's linear, or the quadratic discriminant.

    Covariances are shrunk towards the identity by d / (d + n), so that few draws of many
    coordinates do not fit their own noise.
    """

    scale: _Floats
    centre: _Floats
    linear: _Floats
    square: _Floats | None

    @classmethod
    def fit(cls, first: Outputs, second: Outputs, quadratic: bool) -> _Discriminant:
        raw = _finite(np.concatenate([first, second]))
        largest = np.maximum(np.abs(raw).max(axis=0), 1e-150)
        spread = (raw / largest).std(axis=0)
        scale = largest * np.where(spread > 1e-12, spread, 1.0)
        centre = (raw / scale).mean(axis=0)
        both = raw / scale - centre
        x, y = both[: len(first)], both[len(first) :]
        if not quadratic:
            gap = x.mean(axis=0) - y.mean(axis=0)
            return cls(scale, centre, _apply(_inverse_covariance([x, y]), gap), None)
        ours, theirs = _inverse_covariance([x]), _inverse_covariance([y])
        linear = _apply(ours, x.mean(axis=0)) - _apply(theirs, y.mean(axis=0))
        return cls(scale, centre, linear, (theirs - ours) / 2)

    def __call__(self, outputs: Outputs) -> _Floats:
        with np.errstate(over="ignore", invalid="ignore"):
            x = _finite(outputs) / self.scale - self.centre
            score = x @ self.linear
            if self.square is not None:
                turned = x @ self.square if self.square.ndim == 2 else x * self.square
                score = score + (x * turned).sum(axis=1)
        return score

    def describe(self, threshold: float, upper: bool) -> str:
        kind = "linear" if self.square is None else "quadratic"
        size = len(self.linear)
        return f"{kind} discriminant of {size} coordinates {_sign(upper)} {threshold:.6g}"


@dataclass(frozen=True, eq=False)
class _Frequencies:
    """The log ratio of an outcome's smoothed frequencies; 0 for one that was never seen."""

    scores: Mapping[Any, float]

    @classmethod
    def fit(cls, first: Outputs, second: Outputs) -> _Frequencies:
        ours, theirs = Counter(_outcomes(first)), Counter(_outcomes(second))
        outcomes = list(ours | theirs)
        counts = [np.array([side[o] for o in outcomes]) for side in (ours, theirs)]
        odds = _log_odds(counts[0], counts[1], len(first), len(second))
        return cls(dict(zip(outcomes, odds.tolist(), strict=True)))

    def __call__(self, outputs: Outputs) -> _Floats:
        return np.array([self.scores.get(item, 0.0) for item in _outcomes(outputs)])

    def describe(self, threshold: float, upper: bool) -> str:
        ordered = sorted(self.scores.items(), key=lambda item: item[1], reverse=upper)
        names = [str(o) for o, s in ordered if (s >= threshold if upper else s <= threshold)]
        return f"output in {{{_listed(names)}}}"


def _outcomes(outputs: Outputs) -> list[Any]:
    listed = cast(list[Any], outputs.tolist())
    return listed if outputs.ndim == 1 else [tuple(row) for row in listed]


def _keys(outputs: Outputs) -> _Keys:
    """The bits of each number; those of a row mixed into 64 (a collision only blurs the event)."""
    bits = np.ascontiguousarray(outputs, dtype=np.float64).view(np.int64)
    if bits.ndim == 1:
        return bits
    mixed = np.zeros(len(bits), np.uint64)
    for column in bits.T:
        mixed = (mixed ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64)


def _lowest_bits(outputs: Outputs) -> _Floats:
    """The k of an output that is an odd multiple of 2^k; 2000 for 0 and what is not finite."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(outputs), outputs, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    _, lowest = np.frexp((whole & -whole).astype(np.float64))
    return np.where(whole == 0, 2000.0, exponent + lowest - 54.0)


def _log_odds(ours: NDArray[Any], theirs: NDArray[Any], n: int, m: int) -> _Floats:
    """The ln of the ratio of two rates, half a draw added to each count."""
    return np.log((ours + 0.5) / (n + 1)) - np.log((theirs + 0.5) / (m + 1))


def _bins(first: Outputs, second: Outputs, n: int, m: int) -> tuple[_Floats, _Floats]:
    """Quantiles of both samples as edges, and the log odds of each bin."""
    if first.ndim > 1 or not len(first) + len(second):
        return np.empty(0), np.zeros(1)
    both = np.concatenate([first, second])
    tails = np.array([0.001, 0.002, 0.005, 0.01])
    levels = np.concatenate([tails, np.arange(1, _BINS) / _BINS, 1 - tails])
    finite = both[np.isfinite(both)]
    edges = np.unique(np.quantile(finite, levels)) if len(finite) else np.empty(0)
    counts = [
        np.bincount(np.searchsorted(edges, side, side="right"), minlength=len(edges) + 1)
        for side in (first, second)
    ]
    return edges, _log_odds(counts[0], counts[1], n, m)


def _finite(outputs: Outputs) -> _Floats:
    return np.clip(np.nan_to_num(outputs, nan=0.0), -1e150, 1e150)


def _inverse_covariance(samples: list[_Floats]) -> _Floats:
    """Of standardised rows, each sample about its own mean; the variances' alone if too many."""
    rows = np.concatenate([sample - sample.mean(axis=0) for sample in samples])
    number, size = rows.shape
    shrink = size / (size + number)
    if size > _FULL_COVARIANCE:
        return 1 / ((1 - shrink) * (rows**2).mean(axis=0) + shrink + 1e-6)
    covariance = (1 - shrink) * (rows.T @ rows) / number
    return cast(_Floats, np.linalg.inv(covariance + (shrink + 1e-6) * np.eye(size)))


def _apply(inverse: _Floats, vector: _Floats) -> _Floats:
    return np.dot(inverse, vector) if inverse.ndim == 2 else inverse * vector


def _sign(upper: bool) -> str:
    return ">=" if upper else "<="


def _named(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _listed(names: list[str], most: int = 4) -> str:
    rest = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*names[:most], *rest])


def _intervals(edges: _Floats, chosen: NDArray[np.bool_]) -> list[str]:
    """The runs of neighbouring bins that were chosen."""
    if not len(edges):
        return ["all other values"] if chosen[0] else []
    limits = ["-inf", *(f"{edge:.6g}" for edge in edges.tolist()), "inf"]
    marks = np.diff(np.concatenate([[0], chosen.astype(np.int8), [0]]))
    starts, stops = np.flatnonzero(marks > 0), np.flatnonzero(marks < 0)
    runs = [f"[{limits[i]}, {limits[j]})" for i, j in zip(starts, stops, strict=True)]
    return runs if len(runs) <= 3 else [*runs[:3], f"{len(runs) - 3} more intervals"]
