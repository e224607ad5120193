"""Labels that are numbers: declared bounds, total and silent rows, and no classes to be had."""

import copy
import json
import pickle
import warnings
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.data import Column, Dataset, Declaration, Examples, Features, load_own
from sfumato.data import read_declaration as read
from sfumato.data.examples import NoClasses
from sfumato.data.first_rows import first_rows

AGE = Column("age", lower=0, upper=100)
WAGES = Features((AGE,), "wage", label_bounds=(10, 60))
TOML = """
label = "wage"
label_bounds = [10, 60]
records = 3

[columns.age]
lower = 0
upper = 100
"""


def test_labels_are_moved_into_their_bounds():
    labels = WAGES.labels([10, 12.5, "20", 60, 9.99, -1e300, 1e300, True, Decimal("33.3")])
    assert labels.dtype == np.float64
    assert labels.tolist() == [10, 12.5, 20, 60, 10, 10, 60, 10, 33.3]


NONE = [None, "much", "", float("nan"), float("inf"), "-inf", [1], object(), "1_0", b"\xff"]


def test_what_is_no_finite_number_becomes_the_default_or_the_middle():
    assert WAGES.labels(NONE).tolist() == [35] * len(NONE)
    assert replace(WAGES, default_label=11).labels(NONE).tolist() == [11] * len(NONE)
    numbers = np.array([np.nan, np.inf, -np.inf, 50])
    assert WAGES.labels(numbers).tolist() == [35, 35, 35, 50]


CELLS = st.one_of(st.floats(), st.text(max_size=5), st.none(), st.booleans(), st.integers())


@given(st.lists(CELLS, max_size=5))
def test_each_label_by_itself_and_none_speaks(values):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        labels = WAGES.labels(values)
    assert labels.tolist() == [WAGES.labels([value])[0] for value in values]
    assert ((labels >= 10) & (labels <= 60)).all()


def test_the_widest_bounds_keep_their_labels_inside():
    wide = Features((AGE,), "wage", label_bounds=(-4e307, 4e307))
    assert wide.labels([1e308, -1e308, None]).tolist() == [4e307, -4e307, 0]
    high = Features((AGE,), "wage", label_bounds=(1e308, 1.7e308))
    assert high.labels([None]).tolist() == [1.35e308]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"label_bounds": None}, "classes must be a list of values"),
        ({"classes": (0, 1)}, "classes must be left out with label_bounds"),
        ({"default_class": 1}, "default_class must be left out with label_bounds"),
        ({"label_bounds": 60}, "label_bounds must be two numbers"),
        ({"label_bounds": (0, 1, 2)}, "label_bounds must be two numbers"),
        ({"label_bounds": "ab"}, "label_bounds must be two numbers"),
        ({"label_bounds": (60, 10)}, "label_bounds must have its lower bound below"),
        ({"label_bounds": (0, float("inf"))}, "label_bounds upper must be a finite number"),
        ({"label_bounds": (0, "9")}, "label_bounds upper must be a finite number"),
        ({"label_bounds": (-1.7e308, 1.7e308)}, "range that floating point can hold"),
        ({"label_bounds": (0, 1e-200)}, "range that floating point can hold"),
        ({"default_label": 9}, "default_label must be between 10 and 60, got 9"),
        ({"default_label": "x"}, "default_label must be a finite number"),
        ({"label_bounds": None, "classes": (0, 1), "default_label": 1}, "without label_bounds"),
    ],
)
def test_what_cannot_be_declared(options, said):
    with pytest.raises(ValueError, match=said):
        Features(**({"columns": (AGE,), "label": "wage", "label_bounds": (10, 60)} | options))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TOML + "label_bounds = [0, 1]", "write label_bounds above the first"),
        (f"classes = [0, 1]\n{TOML}", r"classes, or label_bounds = \[LOWER, UPPER\] .* got both"),
        (TOML.replace("label_bounds", "#"), "classes, or label_bounds .* got neither"),
        (TOML.replace("[10, 60]", "[60, 10]"), "label_bounds must have its lower bound"),
        (TOML.replace("[10, 60]", "60"), "label_bounds must be two numbers"),
        (TOML.replace('label = "wage"', ""), "must have label, got none"),
        ("shape = [8, 8, 1]\nlabel_bounds = [0, 1]", "'label_bounds' of the declaration is unk"),
    ],
)
def test_what_cannot_be_declared_in_a_file(text, said, tmp_path):
    (tmp_path / "d.toml").write_text(text)
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "d.toml")


def test_a_declaration_is_read_as_written_and_written_as_read(tmp_path):
    (tmp_path / "d.toml").write_text(TOML)
    found = read(tmp_path / "d.toml")
    assert found == Declaration(WAGES, records=3)
    for made in (found, Declaration(replace(WAGES, default_label=np.float32(20)))):
        (tmp_path / "d.json").write_text(json.dumps(made.to_dict(), allow_nan=False))
        assert read(tmp_path / "d.json") == made
        assert "classes" not in made.to_dict()


def test_a_file_of_numbers_as_a_data_set(tmp_path):
    (tmp_path / "w.csv").write_text("age,wage\n50,20\n20,700\n30,?\n")
    data = load_own(tmp_path / "w.csv", Declaration(WAGES, records=3))
    assert data.train.labels.tolist() == [20, 60, 35]
    assert data.target_bounds == (10, 60)
    assert data.test.labels.dtype == np.float64
    assert "numbers between 10 and 60" in repr(data)
    small = first_rows(data, 2)
    assert (small.train.labels.tolist(), small.target_bounds) == ([20, 60], (10, 60))


def dataset(**options):
    one = Examples(np.zeros((1, 2), np.float32), np.array([3.0]))
    known = {"classes": (), "shape": (2,), "bounds": (0.0, 1.0), "source": "made up"}
    return Dataset("x", one, one, **(known | {"target_bounds": (0, 9)} | options))


@pytest.mark.parametrize(
    "ask",
    [len, list, tuple, bool, enumerate, lambda c: c[0], lambda c: c[:1], lambda c: "a" in c],
)
def test_whoever_asks_for_classes_is_told_what_to_do(ask):
    for data in (dataset(), replace(dataset(), rows=1), pickle.loads(pickle.dumps(dataset()))):
        with pytest.raises(ValueError, match=r"labels are numbers .*train erm --model regression"):
            ask(data.classes)


def test_no_classes_can_be_shown_and_copied():
    assert repr(dataset().classes) == "NoClasses()"
    assert isinstance(copy.deepcopy(dataset()).classes, NoClasses)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"classes": ("a", "b")}, "classes must be empty where labels are numbers"),
        ({"target_bounds": (9, 0)}, "target_bounds must have its lower bound below"),
        ({"target_bounds": (0, float("nan"))}, "target_bounds upper must be a finite number"),
    ],
)
def test_a_data_set_that_cannot_be(options, said):
    with pytest.raises(ValueError, match=said):
        dataset(**options)
