"""Attribute inference: all is known of a person but one thing, and a model helps to guess it.

What the attacker sees: every feature of a person but one, the person's label, how common the
values of the missing feature are, and the answers of a model that was trained on such people
(a :class:`Target` of scores, of losses or of labels alone).

The idea: put every value v in place of the missing one, ask the model, and take the value that
makes the label most likely,

    Pr[v | rest, y]  proportional to  prior(v) Pr[y | v, rest],

where the likelihood is the model's probability of y. A model that shows labels alone gives
C[f(v, rest), y] instead: how often y is the truth where the model says f, its confusion matrix.

    >>> def answer(inputs):  # class 1 is likely where the second feature is 1
    ...     return np.where(inputs[:, 1:] == 1, [[0.1, 0.9]], [[0.8, 0.2]])
    >>> asked = Target.of_scores(answer)
    >>> secret = Attribute.categorical(1, [0, 1])
    >>> guess = infer_attribute(asked, [[5.0, np.nan]], [1], secret, prior=[0.7, 0.3])
    >>> guess.values.tolist(), guess.weights.round(3).tolist()
    ([1.0], [[0.341, 0.659]])

A continuous attribute is a grid within public bounds. A guess is right if it is within a stated
tolerance, and the guess is the value with the most weight that near.

*Success alone is no leak.* Much of it is had without the model: the prior alone guesses well what
is common. And a model that has learned what goes with what tells as much of people it never saw.
So three numbers are reported: success on members; how much more that is than imputation from the
prior (the same guesses without the model); and how much more than success on people who were not
trained on, the advantage. Only the last is due to training on them. The prior should be as good as
the attacker can have it: one row a person, from public data on the other features, is allowed.

Results are facts about people: they are for the curator, never for publication.

References: Fredrikson, Lantz, Jha, Lin, Page and Ristenpart, "Privacy in pharmacogenetics", USENIX
Security 2014; Fredrikson, Jha and Ristenpart, "Model inversion attacks that exploit confidence
information and basic countermeasures", CCS 2015; Yeom, Giacomelli, Fredrikson and Jha, "Privacy
risk in machine learning", CSF 2018, arXiv:1709.01604, definition 5; Jayaraman and Evans, "Are
attribute inference attacks just imputation?", CCS 2022, arXiv:2209.01292.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.attribute_success import AttributeResult, Successes
from sfumato.attacks.candidates import Candidates
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = [
    "Attribute",
    "AttributeGuesses",
    "attribute_attack",
    "confusion_of_accuracy",
    "infer_attribute",
]

_AT_ONCE = 2**22  # numbers of filled-in records that are held at once


@final
@dataclass(frozen=True)
class Attribute:
    """The missing feature: where it is and what it may be. All of this is public.

    Attributes:
        columns: the columns that hold it; more than one if it is one-hot.
        values: what it may be, as a guess states it.
        encodings: what is put into the columns for each value.
        tolerance: a guess within this of the truth is right; 0 for the very value.
    """

    columns: tuple[int, ...]
    values: tuple[float, ...]
    encodings: tuple[tuple[float, ...], ...]
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        validation.at_least("number of values", len(self.values), 2)
        validation.non_negative("tolerance", self.tolerance)
        if len(set(self.values)) < len(self.values):
            validation.fail("values", "different from each other", list(self.values))

    @classmethod
    def categorical(cls, column: int, values: Sequence[float]) -> Attribute:
        """A column that holds one of a few numbers."""
        listed = tuple(validation.finite("values", value) for value in values)
        return cls((column,), listed, tuple((value,) for value in listed))

    @classmethod
    def one_hot(cls, columns: Sequence[int]) -> Attribute:
        """Columns of which one is 1 and the others are 0; its value is the place of the 1."""
        size = len(columns)
        places = tuple(float(place) for place in range(size))
        return cls(tuple(columns), places, tuple(map(tuple, np.eye(size).tolist())))

    @classmethod
    def continuous(
        cls, column: int, lower: float, upper: float, *, tolerance: float, points: int = 101
    ) -> Attribute:
        """A number within public bounds, on a grid.

        Args:
            column: where it is.
            lower: the lowest it may be.
            upper: the highest it may be.
            tolerance: a guess within this of the truth is right.
            points: how many points the grid has; best so many that a step is below the tolerance.
        """
        low, high = validation.interval("bounds", lower, upper)
        grid = np.linspace(low, high, validation.at_least("points", points, 2)).tolist()
        near = validation.positive("tolerance", tolerance)
        return cls((column,), tuple(grid), tuple((value,) for value in grid), near)

    def truth(self, inputs: ArrayLike) -> NDArray[np.float64]:
        """The values in complete records. Only the curator has these."""
        rows = np.asarray(inputs, dtype=np.float64)
        self.check_columns(rows)
        held = rows[:, list(self.columns)]
        return held[:, 0] if len(self.columns) == 1 else held.argmax(axis=1).astype(np.float64)

    def check_columns(self, rows: NDArray[np.float64]) -> None:
        """Raises if records have no such columns."""
        wide = rows.shape[1] if rows.ndim == 2 else 0
        if not all(-wide <= column < wide for column in self.columns):
            validation.fail("columns", f"columns of records of width {wide}", list(self.columns))

    def check_held(self, inputs: ArrayLike) -> None:
        """Raises if complete records hold what is none of the values.

        A value that no guess can be is never guessed, and the attack would read as if it had found
        nothing.
        """
        truth = self.truth(inputs)
        held = np.asarray(inputs, dtype=np.float64)[:, list(self.columns)]
        if len(self.columns) > 1:
            known = (held[:, None] == np.asarray(self.encodings)).all(axis=2).any(axis=1)
        else:
            apart = np.abs(truth[:, None] - np.asarray(self.values)).min(axis=1)
            known = apart <= self.tolerance * (1 + 1e-12)  # NaN is apart from all
        if not known.all():
            validation.fail(
                "values",
                f"all that the attribute's columns {list(self.columns)} hold (in the units of the "
                "records)",
                f"{int((~known).sum())} of {len(known)} candidates with another",
            )

    def right(self, guesses: NDArray[np.float64], truth: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which guesses are within the tolerance."""
        return np.abs(guesses - truth) <= self.tolerance * (1 + 1e-12)

    def frequencies(self, values: ArrayLike) -> NDArray[np.float64]:
        """A prior from values in public data: each counts for the nearest, and each has one more.

        ``values`` must be public: what is common among the members is the curator's.
        """
        seen = np.asarray(values, dtype=np.float64).ravel()
        listed = np.asarray(self.values)
        nearest = np.abs(seen[:, None] - listed).argmin(axis=1)
        counts = 1.0 + np.bincount(nearest, minlength=len(listed))
        return counts / counts.sum()

    def filled(self, records: NDArray[np.float64]) -> NDArray[np.float64]:
        """Each record with every value in turn: as many rows for each as there are values."""
        rows = np.repeat(records, len(self.values), axis=0)
        rows[:, list(self.columns)] = np.tile(np.asarray(self.encodings), (len(records), 1))
        return rows

    def best(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The value with the most weight within the tolerance of it, for each row."""
        listed = np.asarray(self.values)
        near = np.abs(listed[:, None] - listed) <= self.tolerance * (1 + 1e-12)
        return listed[(weights @ near.astype(np.float64)).argmax(axis=1)]


@final
@dataclass(frozen=True, eq=False)
class AttributeGuesses:
    """A guess for each record. For the curator only.

    Attributes:
        values: the guesses.
        weights: a row for each record: how likely each value is, given the model's answers.
        queries: how many questions they took.
    """

    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    queries: int

    def __str__(self) -> str:
        sure = float(self.weights.max(axis=1).mean())
        return (
            f"{len(self.values):,} guesses from {self.queries:,} queries, of weight {sure:.3f} on "
            "average"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "guesses": self.values.tolist(),
            "weights": self.weights.tolist(),
            "queries": self.queries,
        }


def confusion_of_accuracy(accuracy: float, classes: int) -> NDArray[np.float64]:
    """The confusion matrix of a model that is right this often, its errors spread evenly."""
    right = validation.open_probability("accuracy", accuracy)
    size = validation.at_least("classes", classes, 2)
    wrong = (1 - right) / (size - 1)
    return np.full((size, size), wrong) + (right - wrong) * np.eye(size)


def infer_attribute(
    target: Target,
    inputs: ArrayLike,
    labels: ArrayLike,
    attribute: Attribute,
    *,
    prior: ArrayLike | None = None,
    confusion: ArrayLike | None = None,
) -> AttributeGuesses:
    """Guesses the missing feature of each record; what its columns hold is not looked at.

    Args:
        target: the model; it must show losses or scores, or labels if ``confusion`` is given.
        inputs: the records, one a row, anything in the missing columns.
        labels: their classes.
        attribute: what is missing.
        prior: how likely each value is before the model is asked: one list for all records or a row
            for each. All values alike unless given.
        confusion: a row for each class that the model may say, in it how often each class is then
            the truth. If given, the model is asked for labels alone.
    """
    records = np.array(inputs, dtype=np.float64, ndmin=2)
    attribute.check_columns(records)
    classes = np.asarray(labels, dtype=np.int64).ravel()
    if len(classes) != len(records):
        validation.fail("labels", f"one for each of {len(records)} records", len(classes))
    before = _prior(prior, len(records), attribute)
    table = None if confusion is None else _confusion(confusion, classes)
    target.require(View.LOSSES if table is None else View.LABELS)
    size = max(1, _AT_ONCE // (len(attribute.values) * records.shape[1]))
    logs = np.concatenate(
        [
            _log_likelihoods(
                target, records[at : at + size], classes[at : at + size], attribute, table
            )
            for at in range(0, len(records), size)
        ]
    )
    with np.errstate(divide="ignore"):
        logs = logs + np.log(before)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = weights / weights.sum(axis=1, keepdims=True)
    return AttributeGuesses(attribute.best(weights), weights, logs.size)


def _log_likelihoods(
    target: Target,
    records: NDArray[np.float64],
    labels: NDArray[np.int64],
    attribute: Attribute,
    confusion: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    count = len(attribute.values)
    filled, repeated = attribute.filled(records), np.repeat(labels, count)
    if confusion is None:
        logs = -target.losses(filled, repeated)
    else:
        logs = np.log(np.maximum(confusion[target.labels(filled), repeated], 1e-300))
    return logs.reshape(len(records), count)


def attribute_attack(
    target: Target,
    candidates: Candidates,
    attribute: Attribute,
    *,
    prior: ArrayLike | None = None,
    confusion: ArrayLike | None = None,
    confidence: float = 0.95,
) -> AttributeResult:
    """Guesses the attribute of members and of others, and counts; see :func:`infer_attribute`.

    Args:
        target: the model under attack.
        candidates: complete records. The attack does not see the attribute; the count does.
        attribute: the feature in question.
        prior: how likely each value is, for all or for each candidate.
        confusion: for a target of labels.
        confidence: of the result's intervals.
    """
    level = validation.open_probability("confidence", confidence)
    truth = attribute.truth(candidates.inputs)
    attribute.check_held(candidates.inputs)
    guesses = infer_attribute(
        target,
        candidates.inputs,
        candidates.labels,
        attribute,
        prior=prior,
        confusion=confusion,
    )
    imputed = attribute.best(_prior(prior, len(candidates), attribute))
    groups = [
        _successes(attribute, guesses.values[rows], imputed[rows], truth[rows], level)
        for rows in (candidates.members, ~candidates.members)
    ]
    return AttributeResult(groups[0], groups[1], guesses.queries, level)


def _successes(
    attribute: Attribute,
    guesses: NDArray[np.float64],
    imputed: NDArray[np.float64],
    truth: NDArray[np.float64],
    confidence: float,
) -> Successes:
    if not len(truth):
        validation.fail("candidates", "some members and some others", "none of one kind")
    by_model, by_prior = attribute.right(guesses, truth), attribute.right(imputed, truth)
    return Successes(
        len(truth),
        int(by_model.sum()),
        int(by_prior.sum()),
        int((by_model & by_prior).sum()),
        float(np.abs(guesses - truth).mean()) if attribute.tolerance else None,
        float(np.abs(imputed - truth).mean()) if attribute.tolerance else None,
        confidence,
    )


def _prior(prior: ArrayLike | None, rows: int, attribute: Attribute) -> NDArray[np.float64]:
    size = len(attribute.values)
    table = np.full(size, 1 / size) if prior is None else np.asarray(prior, dtype=np.float64)
    if table.shape not in ((size,), (rows, size)):
        wanted = f"{size} numbers, one for each value, or a row of them for each of {rows} records"
        validation.fail("prior", wanted, table.shape)
    if not (table >= 0).all() or not (table.sum(axis=-1) > 0).all():
        validation.fail("prior", "numbers from 0 up, not all 0", "others")
    return np.broadcast_to(table / table.sum(axis=-1, keepdims=True), (rows, size))


def _confusion(confusion: ArrayLike, labels: NDArray[np.int64]) -> NDArray[np.float64]:
    table = np.asarray(confusion, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not (table >= 0).all():
        validation.fail("confusion", "a square of shares, a row for each class said", table.shape)
    if len(labels) and not 0 <= labels.min() <= labels.max() < len(table):
        validation.fail("labels", f"classes from 0 to {len(table) - 1}", int(labels.max()))
    return table
