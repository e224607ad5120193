"""Whatever a row holds, no error."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from tests.odd_objects import FAILURES, odd_object

from sfumato.mechanisms.private_values import as_bounded, as_cells, as_codes, as_ratio


class Unreadable(Fraction):
    """A number that fails as one."""

    def __float__(self) -> float:
        raise TypeError

    def as_integer_ratio(self) -> tuple[int, int]:
        return 1, 0


BAD = [
    math.nan,
    math.inf,
    -math.inf,
    None,
    "3",
    b"3",
    [1],
    {},
    1j,
    object(),
    np.array([1, 2]),
    Unreadable(1),
]


@pytest.mark.parametrize(
    ("value", "exact"),
    [
        (3, 3),
        (10**400, 10**400),
        (-0.1, Fraction(-0.1)),
        (Fraction(1, 3), Fraction(1, 3)),
        (Decimal("0.1"), Fraction(1, 10)),
        (np.int64(7), 7),
        (np.float32(0.5), Fraction(1, 2)),
        (np.array(7), 7),
        (True, 1),
        (-0.0, 0),
    ],
)
def test_numbers_are_read_without_rounding(value: object, exact: object) -> None:
    assert Fraction(*as_ratio(value, 99.0)) == exact


@pytest.mark.parametrize("sign", [1, -1])
def test_decimals_beyond_all_memory_are_clamped_and_nothing_jumps(sign: int) -> None:
    """A jump to the default, where neighbours are on both sides of it, would tell them apart."""
    largest = 10**1001
    for text, exact in (
        ("1E+999999999", largest), ("1E+1001", largest), ("9.5E+1000", 95 * 10**999),
        ("1E-1001", 0), ("1E-999999999", 0), ("0E+999999999", 0), ("0E-999999999", 0),
    ):  # fmt: skip
        value = Decimal(text).copy_sign(Decimal(sign))
        assert Fraction(*as_ratio(value, 99.0)) == sign * exact
    with localcontext(prec=2000):
        below = Decimal(largest) - 1
    assert Fraction(*as_ratio(below, 99.0)) == largest - 1


@pytest.mark.parametrize(
    "value", [*BAD, np.float64("nan"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")]
)
def test_what_is_no_number_becomes_the_default(value: object) -> None:
    assert as_ratio(value, 2.5) == (5, 2)
    assert as_bounded([value], 0, 10, default=4).tolist() == [4]
    assert as_codes([value], 3, default=1).tolist() == [1]


def test_arrays_of_any_type_and_shape() -> None:
    for dtype in (np.bool_, np.int8, np.uint64, np.float32, np.longdouble, object):
        assert as_bounded(np.ones((2, 2), dtype), 0, 5, 0).tolist() == [[1.0, 1.0], [1.0, 1.0]]
        assert as_codes(np.ones(2, dtype), 2, 0).tolist() == [1, 1]
    assert as_bounded(np.array([np.finfo(np.longdouble).max]), 0, 5, 3).tolist() == [3]
    assert as_bounded(np.array(["2", "x"]), 0, 5, 3).tolist() == [3, 3]
    assert as_bounded(np.array([1 + 2j]), 0, 5, 3).tolist() == [3]
    assert as_bounded(range(3), 0, 1, 0).tolist() == [0, 1, 1]
    assert as_bounded(7, 0, 5, 0) == 5
    assert as_bounded([], 0, 5, 0).shape == (0,)
    assert as_bounded([10**400], 0, 5, 3).tolist() == [3]


def test_codes_outside_the_domain_become_the_default() -> None:
    values = np.array([-1, 0, 1.5, 2, 3, 1e300, -0.0])
    assert as_codes(values, 3, default=1).tolist() == [1, 0, 1, 2, 1, 1, 0]
    assert as_codes([[0, 1], 2], 3, default=1).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("bits", "number"),
    [
        (0x7D00, np.float16),
        (0x7FA00000, np.float32),
        (0x7FF4000000000000, np.float64),
    ],
)
def test_a_signalling_nan_does_not_warn(bits: int, number: type[np.floating]) -> None:
    values = np.array([bits, 0], dtype=f"u{np.dtype(number).itemsize}").view(number)
    assert as_codes(values, 3, default=1).tolist() == [1, 0]
    assert as_bounded(values, 0, 5, 3).tolist() == [3, 0]


def test_an_array_without_axes_is_its_number() -> None:
    assert as_bounded([np.array(2.0)], 0, 5, 3).tolist() == [2]
    assert as_codes([np.array(2)], 3, default=1).tolist() == [2]


@pytest.mark.parametrize("container", [list, tuple])
def test_arrays_that_do_not_fit_together_are_no_numbers_and_break_no_other(container):
    """NumPy refuses to stack them, and an error would tell of the row."""
    cells = container([np.zeros((2, 2)), np.zeros((2, 3))])
    with pytest.raises(ValueError, match="broadcast"):
        np.asarray(cells, dtype=object)
    assert as_cells(cells).shape == (2,)
    assert as_bounded(cells, 0.0, 5.0, 1.0).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("what", FAILURES)
def test_objects_of_any_class_change_no_other_value(what: str) -> None:
    assert as_bounded([odd_object(what), 2.0], 0.0, 3.0, default=0.0)[1] == 2.0
    assert as_codes([odd_object(what), 2], 3, default=1)[1] == 2
    assert as_cells([odd_object(what), 2.0]).tolist()[1] == 2.0
    as_ratio(odd_object(what), 0.0)
