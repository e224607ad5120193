"""What is declared is checked; what does not fit it is replaced."""

import numpy as np
import pytest

from sfumato.data import Column, Features, Pictures

AGE = Column("age", lower=0, upper=100)
CITY = Column("city", categories=("Rome", "Milan"))


def features(*columns, **options):
    return Features(columns=columns, label="ill", classes=("no", "yes"), **options)


def made(column, values):
    return features(column).inputs({column.name: values}, len(values)).tolist()


def test_numbers_are_clipped_and_stretched():
    values = [0, 50, 100, -7, 1000, "25", float("inf"), "-inf"]
    assert made(AGE, values) == [[0], [0.5], [1], [0], [1], [0.25], [1], [0]]


def test_what_is_no_number_becomes_the_default():
    assert made(AGE, [None, "old", float("nan")]) == [[0.5]] * 3
    assert made(Column("age", lower=0, upper=100, default=10), [None]) == [[pytest.approx(0.1)]]


def test_categories_become_places():
    assert made(CITY, ["Milan", "Rome", "Oslo", None]) == [[0, 1], [1, 0], [0, 0], [0, 0]]
    known = Column("city", categories=("Rome", "Milan"), default="Milan")
    assert made(known, ["Oslo"]) == [[0, 1]]


def test_columns_stand_side_by_side():
    both = features(AGE, CITY)
    assert both.shape == (3,)
    assert both.names == ("age", "city", "ill")
    inputs = both.inputs({"city": ["Milan"], "age": [100]}, 1)
    assert inputs.dtype == np.float32
    assert inputs.tolist() == [[1, 0, 1]]


def test_labels_that_are_no_class_become_the_default():
    assert features(AGE).labels(["yes", "no", "maybe", None]).tolist() == [1, 0, 0, 0]
    assert features(AGE, default_class="yes").labels(["maybe"]).tolist() == [1]


def test_even_the_widest_range_stays_within_bounds():
    wide = Column("x", lower=8e307, upper=1.7e308)
    inputs = np.array(made(wide, [None, 1e308, 1.7e308, 0]))
    assert ((inputs >= 0) & (inputs <= 1)).all()


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ((), "columns must be one or more columns"),
        (("age",), "columns must be made of Column"),
        ((Column("age"),), "'age' must be declared with lower and upper, or with categories"),
        ((Column("age", lower=3, upper=3),), "lower bound below its upper"),
        ((Column("age", lower=-1.7e308, upper=1.7e308),), "floating point can hold"),
        ((Column("age", lower=0, upper=9, default=10),), "default must be between 0 and 9"),
        ((Column("age", lower=0, upper=9, categories=(1,)),), "not of both"),
        ((Column("c", categories=()),), "categories must be a list of values"),
        ((Column("c", categories=(3, "3.0")),), "different from each other"),
        ((Column("c", categories=("a",), default="b"),), "one of its categories"),
        ((AGE, AGE), "of different names"),
        ((Column("ill", lower=0, upper=1),), "none the label"),
    ],
)
def test_bad_columns_are_refused(columns, said):
    with pytest.raises(ValueError, match=said):
        features(*columns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": ("a",)}, "classes must be two or more"),
        ({"classes": "ab"}, "classes must be a list of values"),
        ({"classes": (3, 7)}, "classes must be a non-empty name"),
        ({"default_class": "c"}, "default_class must be one of a, b"),
        ({"shape": (8, 8)}, "shape must be rows, columns, and 1 or 3 channels"),
        ({"shape": (8, 8, 2)}, "1 or 3 channels"),
        ({"shape": (0, 8, 1)}, "shape must be a whole number"),
        ({"default_value": 256}, "default_value must be at most 255"),
    ],
)
def test_bad_pictures_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Pictures(**({"shape": (8, 8, 1), "classes": ("a", "b")} | options))
