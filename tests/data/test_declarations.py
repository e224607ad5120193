"""Declarations in files: read as written, written as read, and clear about what is wrong."""

import datetime
import json

import numpy as np
import pytest

from sfumato.data import Column, Declaration, Features, Pictures, read_declaration

PATIENTS = """
label = "diagnosis"
classes = ["healthy", "ill"]

[columns.age]
lower = 0
upper = 100

[columns.smoker]
categories = ["yes", "no"]
default = "no"
"""
DECLARED = Features(
    columns=(
        Column("age", lower=0, upper=100),
        Column("smoker", categories=("yes", "no"), default="no"),
    ),
    label="diagnosis",
    classes=("healthy", "ill"),
)
SCANS = {"shape": [32, 32, 1], "classes": ["healthy", "ill"]}


def read(folder, said, name="d.toml"):
    text = said if isinstance(said, str) else json.dumps(said)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_declaration(path)


def test_a_table_in_toml(tmp_path):
    assert read(tmp_path, PATIENTS) == Declaration(DECLARED)
    more = 'owner = "patient_id"\nunit = "patient"\nrows_per_owner = 4\nowners = 2_000\n'
    found = read(tmp_path, f"{more}records = 5e3\npublic_test = true\n{PATIENTS}")
    assert found == Declaration(DECLARED, 5000, "patient_id", "patient", 4, 2000, True)


def test_pictures_in_json(tmp_path):
    found = read(tmp_path, SCANS | {"records": 900}, "d.JSON")
    assert found == Declaration(Pictures((32, 32, 1), ("healthy", "ill")), records=900)
    assert (found.unit, found.public_size, found.public_test) == ("record", 900, False)


def test_a_byte_order_mark_is_no_key(tmp_path):
    assert read(tmp_path, "\ufeff" + PATIENTS).declared == DECLARED


def test_the_public_size_counts_units():
    assert Declaration(DECLARED, records=7).public_size == 7
    owned = Declaration(DECLARED, records=7, owner="id")
    assert (owned.public_size, owned.unit) == (None, "owner")
    assert Declaration(DECLARED, records=7, owner="id", owners=3).public_size == 3


@pytest.mark.parametrize(
    "made",
    [
        Declaration(DECLARED),
        Declaration(DECLARED, 5000, "patient_id", "patient", 4, 2000, True),
        Declaration(Features((Column("x", "said", -1.5, 2, default=0),), "y", (0, 2.5), 2.5)),
        Declaration(Pictures((8, 9, 3), ("a", "b"), "b", 7), records=10**30, unit="scan"),
    ],
)
def test_what_is_recorded_reads_back(made, tmp_path):
    assert read(tmp_path, made.to_dict(), "d.json") == made


def test_whatever_was_declared_in_code_can_be_recorded(tmp_path):
    day = Column("day", categories=(datetime.date(2020, 1, 2), float("nan")))
    size = Column("size", lower=np.int64(0), upper=np.float32(2))
    made = Declaration(Features((day, size), "y", (np.int64(0), np.str_("a")), np.int64(0)))
    found = read(tmp_path, made.to_dict(), "d.json").declared
    assert isinstance(found, Features)
    assert found.columns[0].categories == ("2020-01-02", "nan")
    assert (found.columns[1].bounds, found.classes) == ((0, 2), (0, "a"))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, "must have columns, .*or shape for pictures, got neither"),
        (SCANS | {"columns": {}}, "got both"),
        (SCANS | {"colour": 1}, "'colour' of the declaration is unknown: use shape"),
        (SCANS | {"label": "x"}, "'label' of the declaration is unknown: use shape"),
        ({"shape": [8, 8, 1]}, "must have classes, got none"),
        (SCANS | {"shape": 8}, "shape must be rows, columns, and 1 or 3 channels, got 8"),
        (SCANS | {"classes": "ill"}, "classes must be a list of values, got 'ill'"),
        (SCANS | {"classes": ["a", None]}, "classes must be text, numbers, true or false"),
        (SCANS | {"classes": ["a", float("nan")]}, "NaN is no number in JSON"),
        (SCANS | {"records": "many"}, "records must be a whole number, 1 or above, got 'many'"),
        (SCANS | {"records": 0}, "records must be a whole number, 1 or above, got 0"),
        (SCANS | {"unit": 0}, "unit must be a non-empty name"),
        (SCANS | {"public_test": "yes"}, "public_test must be true or false, got 'yes'"),
        (SCANS | {"owner": "id"}, "owner must be left out for pictures"),
        (SCANS | {"rows_per_owner": 2}, "rows_per_owner must be left out .*as owner"),
        (SCANS | {"rows_per_owner": None}, "rows_per_owner must be a whole number"),
        (SCANS | {"owners": 2}, "owners must be left out .*as owner"),
        ([], "a declaration must be one JSON object"),
        ('{"unit": "a", "unit": "b"}', "key 'unit' is there more than once"),
        ("{", "line 1, column 2 is no JSON"),
    ],
)
def test_what_cannot_be_declared_of_pictures(said, expected, tmp_path):
    with pytest.raises(ValueError, match=rf"d\.json: .*{expected}"):
        read(tmp_path, said, "d.json")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (PATIENTS.replace("upper", "uper"), r"'columns\.age\.uper' of the .*: use lower, upper"),
        (PATIENTS + "records = 9", r"'columns\.smoker\.records' .*write records above the first"),
        (PATIENTS.replace("100", '"100"'), "'age' upper must be a finite number, got '100'"),
        (PATIENTS.replace("100", "inf"), "'age' upper must be a finite number, got inf"),
        (PATIENTS.replace("upper = 100", ""), "declared with lower and upper, or with categories"),
        (PATIENTS.replace('"no"\n', '"maybe"\n'), "'smoker': default must be one of its categ"),
        (PATIENTS.replace('["yes", "no"]', "[2020-01-01]"), "smoker.categories must be .*as text"),
        (PATIENTS.replace("default", "meaning").replace('"no"\n', "3"), "meaning must be text"),
        (PATIENTS.replace("label", "#"), "must have label, got none"),
        (PATIENTS.replace('"diagnosis"', "3"), "label must be a non-empty name"),
        ('columns = ["age"]\nlabel = "x"\nclasses = [0, 1]', r"must be a table \[columns\.NAME\]"),
        ('columns.age = 3\nlabel = "x"\nclasses = [0, 1]', r"columns\.age must be a table with"),
        ("columns = {}\nlabel = 'x'\nclasses = [0, 1]", "columns must be one or more"),
        (f'owner = "age"\n{PATIENTS}', "owner must be another column than the label"),
        (f'owner = "id"\nunit = "record"\n{PATIENTS}', "unit must name whom the owners are"),
        ("label =", "Invalid value"),
    ],
)
def test_what_cannot_be_declared_of_tables(said, expected, tmp_path):
    with pytest.raises(ValueError, match=rf"d\.toml: .*{expected}"):
        read(tmp_path, said)


def test_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError, match="declaration must be there"):
        read_declaration(tmp_path / "d.toml")
    with pytest.raises(ValueError, match=r"ends in \.toml or \.json"):
        read_declaration(tmp_path / "d.yaml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"b\.toml must be text in UTF-8"):
        read_declaration(tmp_path / "b.toml")
    with pytest.raises(ValueError, match="declared must be Features"):
        Declaration(7)  # type: ignore[arg-type]
