"""Examples with labels, and a data set of them: arrays, and what may be said of them in public."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, final

from numpy.typing import NDArray

from sfumato.core import validation

__all__ = ["Dataset", "Examples", "NoClasses", "checked_bounds", "refuse_numbers"]

_NARROWEST = 2e-100  # of a range, so that what is divided by it stays finite


class Examples(NamedTuple):
    """Inputs and their labels: ``inputs, labels = data.train``.

    Attributes:
        inputs: one example a row; images as uint8 in the order row, column, channel, features as
            float32 between 0 and 1.
        labels: the number of each example's class, as int64; where labels are numbers themselves,
            these, as float64.
    """

    inputs: NDArray
    labels: NDArray[Any]


def refuse_numbers() -> NoReturn:
    """Raises the one error of everything that is made for classes, with the remedy."""
    raise ValueError(
        "classes must be declared for this, but the labels are numbers (label_bounds): learn "
        "numbers by sfumato train erm --model regression, or ErmRecipe(model='regression'); where "
        "inputs are public, also by sfumato train label-dp, or number_preset; or declare classes "
        "instead of label_bounds"
    )


@final
class NoClasses(tuple[str, ...]):
    """Stands where a data set has no classes, since its labels are numbers.

    Whatever asks how many classes there are, or which, is made for classes. It gets an error with
    the remedy, so that no method can forget to look: all of them ask before they charge anybody.

    >>> len(NoClasses())
    Traceback (most recent call last):
        ...
    ValueError: classes must be declared for this, but the labels are numbers (label_bounds): ...
    """

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        refuse_numbers()

    __len__ = __iter__ = __getitem__ = __contains__ = _refuse

    def __repr__(self) -> str:
        return "NoClasses()"


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set to train and to test on.

    Everything but ``train``, ``test`` and ``owners`` is public: it was declared or published, and
    not read off the rows. The number of rows is theirs, and may be private too.

    Attributes:
        name: what it is called.
        train, test: the examples; ``test`` may have none.
        classes: their names; label ``i`` means ``classes[i]``. Empty where labels are numbers: it
            then becomes :class:`NoClasses`.
        shape: of one input, such as ``(28, 28, 1)`` for an image or ``(7,)`` for features.
        bounds: the least and the greatest value that an input may hold, as declared.
        source: where it comes from.
        license: on what terms.
        citation: whose work it is.
        owners: whose each row of ``train`` is, None or NaN where that is missing; None if every
            row is a unit of its own.
        public_size: the declared number of units to train on, which are the owners if there are
            any and the records otherwise; None if it was not declared. It need not be the true one.
        test_is_public: whether what is measured on ``test`` may be told; otherwise it is private.
        rows: if ``train`` is but the first so many records of a larger set, how many; see
            :func:`~sfumato.data.first_rows.first_rows`.
        target_bounds: where labels are numbers, the least and the greatest that one may be, as
            declared; None where they are classes.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    shape: tuple[int, ...]
    bounds: tuple[float, float]
    source: str
    license: str = ""
    citation: str = ""
    owners: NDArray | None = None
    public_size: int | None = None
    test_is_public: bool = False
    rows: int | None = None
    target_bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.target_bounds is None:
            return
        bounds = checked_bounds("target_bounds", self.target_bounds)
        object.__setattr__(self, "target_bounds", bounds)
        if not isinstance(self.classes, NoClasses):
            if self.classes:
                validation.fail("classes", "empty where labels are numbers", self.classes)
            object.__setattr__(self, "classes", NoClasses())

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.shape))
        if self.target_bounds is None:
            told = f"{len(self.classes)} classes"
        else:
            lower, upper = self.target_bounds
            told = f"numbers between {lower:g} and {upper:g}"
        return f"Dataset({self.name!r}, {told}, inputs of {shape})"


def checked_bounds(name: str, bounds: object) -> tuple[float, float]:
    """The declared range of labels that are numbers.

    Raises:
        ValueError: unless they are two numbers, the lower one first, that floating point can hold
            apart and take the difference of.
    """
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        validation.fail(name, "two numbers: the least and the greatest label", bounds)
    lower, upper = validation.interval(name, *bounds)
    if math.isinf(2 * (upper - lower)) or upper - lower < _NARROWEST:
        validation.fail(name, "of a range that floating point can hold", (lower, upper))
    return lower, upper
