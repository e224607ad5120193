"""What one declares about data of one's own, before any of it is read.

    >>> patients = Features(
    ...     columns=(
    ...         Column("age", lower=0, upper=100),
    ...         Column("smoker", categories=("yes", "no"), default="no"),
    ...     ),
    ...     label="diagnosis",
    ...     classes=("healthy", "ill"),
    ... )
    >>> patients.shape
    (3,)
    >>> wages = Features(columns=patients.columns, label="wage", label_bounds=(0, 60))
    >>> wages.labels(["12.5", 1000, "unknown"]).tolist()
    [12.5, 60.0, 30.0]

Ranges, categories and classes come from what is known of the data in public, such as a form's
answers or a sensor's range, and are never measured: the largest value in a table is somebody's.
What does not fit is replaced by what was declared, one row at a time and without a word. An error,
a warning or a count of such rows would tell of the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data.examples import checked_bounds
from sfumato.data.facts import Column
from sfumato.data.values import category, matched, numbers_of, positions

__all__ = ["Features", "Pictures"]


@dataclass(frozen=True)
class Features:
    """Rows of a table, as numbers between 0 and 1 and a class, or a number to learn.

    A number is clipped to its column's range, which is then stretched to 0 to 1; what is missing
    or no number becomes the column's default, or the middle of the range. A category becomes one
    place for each that was declared, with a 1 in its own; what is none of them becomes the
    default, or zeros only. A label that is no declared class becomes ``default_class``.

    Either ``classes`` or ``label_bounds`` is declared. With the latter a label is a number: one
    that is outside is moved to the nearer end, and what is no finite number becomes
    ``default_label``, or the middle.

    Attributes:
        columns: what to learn from, each with a range or with categories.
        label: the column of the classes, or of the numbers.
        classes: what is in it.
        default_class: one of the classes; None is the first.
        label_bounds: instead of classes: the least and the greatest number that a label may be.
        default_label: one of those numbers; None is the middle.
    """

    columns: tuple[Column, ...]
    label: str
    classes: tuple[Any, ...] = ()
    default_class: Any = None
    label_bounds: tuple[float, float] | None = None
    default_label: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.columns, Column) or not self.columns:
            validation.fail("columns", "one or more columns", self.columns)
        object.__setattr__(self, "columns", tuple(self.columns))
        for column in self.columns:
            _check_column(column)
        validation.name("label", self.label)
        names = [column.name for column in self.columns] + [self.label]
        if len(set(names)) < len(names):
            validation.fail("columns", "of different names, and none the label", tuple(names))
        if self.label_bounds is not None:
            self._check_numbers(self.label_bounds)
            return
        if self.default_label is not None:
            raise ValueError(
                f"default_label must be left out without label_bounds, got {self.default_label!r}: "
                "where labels are classes there is default_class"
            )
        object.__setattr__(self, "classes", _check_classes(self.classes, self.default_class))

    def _check_numbers(self, bounds: object) -> None:
        """What is declared of labels that are numbers."""
        for name, value in (("classes", self.classes), ("default_class", self.default_class)):
            if value is not None and not (isinstance(value, tuple) and not value):
                raise ValueError(
                    f"{name} must be left out with label_bounds, got {value!r}: a label is one of "
                    "the classes, or a number"
                )
        lower, upper = checked_bounds("label_bounds", bounds)
        object.__setattr__(self, "label_bounds", (lower, upper))
        if self.default_label is not None:
            default = validation.finite("default_label", self.default_label)
            if not lower <= default <= upper:
                validation.fail("default_label", f"between {lower:g} and {upper:g}", default)
            object.__setattr__(self, "default_label", default)

    @property
    def shape(self) -> tuple[int]:
        """Of one input: a place for each number, and for each category."""
        return (sum(len(column.categories or (0,)) for column in self.columns),)

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which every input is."""
        return 0.0, 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns that are read; the label is the last."""
        return (*(column.name for column in self.columns), self.label)

    def inputs(self, table: dict[str, Sequence[Any] | NDArray], rows: int) -> NDArray[np.float32]:
        """The features of all rows; a total function of each row."""
        made = np.zeros((rows, *self.shape), dtype=np.float32)
        at = 0
        for column in self.columns:
            values = table[column.name]
            if column.categories is not None:
                default = -1
                if column.default is not None:
                    default = column.categories.index(column.default)
                found = matched(values, column.categories, default)
                known = np.flatnonzero(found >= 0)
                made[known, at + found[known]] = 1
                at += len(column.categories)
            else:
                made[:, at] = _stretched(column, values)
                at += 1
        return made

    def labels(self, values: Sequence[Any] | NDArray) -> NDArray[Any]:
        """The number of each row's class, or each row's number; a total function of each row."""
        if self.label_bounds is not None:
            lower, upper = self.label_bounds
            default = lower / 2 + upper / 2 if self.default_label is None else self.default_label
            numbers = numbers_of(values)
            return np.clip(np.where(np.isfinite(numbers), numbers, default), lower, upper)
        return matched(values, self.classes, _default_class(self.classes, self.default_class))


@dataclass(frozen=True)
class Pictures:
    """Images of one size, as bytes, and a class.

    A picture of another size is resized, one in colours is turned into grey where one channel was
    declared and the other way round, and one that cannot be read becomes ``default_value`` all
    over. A label that is no declared class becomes ``default_class``.

    Attributes:
        shape: rows, columns, and channels: 1 for grey, 3 for colours.
        classes: their names.
        default_class: one of the classes; None is the first.
        default_value: of each pixel of a picture that cannot be read, 0 to 255.
    """

    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    default_class: str | None = None
    default_value: int = 0

    def __post_init__(self) -> None:
        shape = tuple(self.shape) if isinstance(self.shape, Sequence) else ()
        if len(shape) != 3 or shape[2] not in (1, 3):
            validation.fail("shape", "rows, columns, and 1 or 3 channels", self.shape)
        rows, columns, channels = (validation.count("shape", size) for size in shape)
        object.__setattr__(self, "shape", (rows, columns, channels))
        object.__setattr__(self, "classes", _check_classes(self.classes, self.default_class))
        for name in self.classes:  # a number as a label means the place in this list
            validation.name("classes", name)
        value = validation.at_least("default_value", self.default_value, 0)
        if value > 255:
            validation.fail("default_value", "at most 255", value)

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which every value of an input is."""
        return 0.0, 255.0

    def blank(self, count: int) -> NDArray[np.uint8]:
        """So many pictures that could not be read."""
        return np.full((count, *self.shape), self.default_value, dtype=np.uint8)

    def labels(self, values: Sequence[Any] | NDArray) -> NDArray[np.int64]:
        """The number of each example's class: given by its name as text, or as that number."""
        default = _default_class(self.classes, self.default_class)
        return positions(values, self.classes, default)


def _stretched(column: Column, values: Sequence[Any] | NDArray) -> NDArray:
    assert column.bounds is not None
    lower, upper = map(float, column.bounds)
    default = lower / 2 + upper / 2 if column.default is None else float(column.default)
    numbers = numbers_of(values)
    numbers = np.clip(np.where(np.isnan(numbers), default, numbers), lower, upper)
    return (numbers - lower) / (upper - lower)


def _default_class(classes: tuple[Any, ...], default: Any) -> int:
    return 0 if default is None else classes.index(default)


def _check_classes(classes: object, default: object) -> tuple[Any, ...]:
    found = _check_categories("classes", classes)
    if len(found) < 2:
        validation.fail("classes", "two or more", classes)
    if default is not None and default not in found:
        validation.fail("default_class", f"one of {', '.join(map(str, found))}", default)
    return found


def _check_categories(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
        validation.fail(name, "a list of values", values)
    found = tuple(values)
    if len({category(value) for value in found}) < len(found):
        validation.fail(name, "different from each other", found)
    return found


def _check_column(column: object) -> None:
    if not isinstance(column, Column):
        validation.fail("columns", "made of Column(name, lower=..., upper=...)", column)
    validation.name("column", column.name)
    name = f"column {column.name!r}"
    if column.categories is not None:
        if column.lower is not None or column.upper is not None:
            validation.fail(name, "of numbers or of categories, not of both", column)
        found = _check_categories(f"{name}: categories", column.categories)
        if column.default is not None and column.default not in found:
            validation.fail(f"{name}: default", "one of its categories", column.default)
        return
    if column.lower is None or column.upper is None:
        raise ValueError(
            f"{name} must be declared with lower and upper, or with categories, got neither: "
            "they are not measured, since that would tell of the rows"
        )
    lower, upper = validation.interval(name, column.lower, column.upper)
    if math.isinf(upper - lower):
        validation.fail(name, "of a range that floating point can hold", (lower, upper))
    if column.default is not None:
        default = validation.finite(f"{name}: default", column.default)
        if not lower <= default <= upper:
            validation.fail(f"{name}: default", f"between {lower:g} and {upper:g}", default)
