"""Data of one's own: the same examples from every kind of source, and no row that speaks."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sfumato.data import Column, Features, Pictures, load_own, save_images
from sfumato.data.own_tables import table_of_lines

PATIENTS = Features(
    columns=(Column("age", lower=0, upper=100), Column("city", categories=("Rome", "Milan"))),
    label="ill",
    classes=(0, 1),
)
AGES, CITIES, ILL = [20.0, 50.0, 120.0], ["Rome", "Milan", "Oslo"], [0, 1, 1]
TABLE = {"age": AGES, "city": CITIES, "ill": ILL, "name": ["x", "y", "z"]}
INPUTS = np.array([[0.2, 1, 0], [0.5, 0, 1], [1, 0, 0]], np.float32)
SCANS = Pictures(shape=(4, 6, 1), classes=("healthy", "ill"), default_value=9)


def write_parquet(path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(TABLE), path)


def write_csv(path):
    rows = zip(*TABLE.values(), strict=True)
    lines = [",".join(TABLE), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")


def write_npz(path):
    np.savez(path, **{name: np.array(values) for name, values in TABLE.items()})


def write_npy(path):
    fields = [("ill", "i4"), ("city", "U9"), ("age", "f8")]
    np.save(path, np.array(list(zip(ILL, CITIES, AGES, strict=True)), dtype=fields))


@pytest.mark.parametrize("write", [write_parquet, write_csv, write_npz, write_npy])
def test_a_table_is_the_same_from_every_file(write, tmp_path):
    path = tmp_path / f"patients.{write.__name__[6:]}"
    write(path)
    data = load_own(path, PATIENTS)
    assert np.array_equal(data.train.inputs, INPUTS)
    assert data.train.labels.tolist() == ILL
    assert data.train.labels.dtype == np.int64
    assert data.test.inputs.shape == (0, 3)
    assert (data.name, data.classes, data.shape) == ("patients", ("0", "1"), (3,))
    assert data.bounds == (0, 1)
    with pytest.raises(ValueError, match=r"columns must be in .*got weight, which are not"):
        load_own(path, Features((Column("weight", lower=0, upper=1),), "ill", (0, 1)))


def test_a_plain_array_holds_the_columns_in_order_and_then_the_label(tmp_path):
    declared = Features(PATIENTS.columns[:1], "ill", (0, 1))
    np.save(tmp_path / "a.npy", np.array([[20.0, 1], [np.nan, 0]]))
    data = load_own(tmp_path / "a.npy", declared, test=tmp_path / "a.npy", name="mine")
    assert data.train.inputs.tolist() == [[pytest.approx(0.2)], [0.5]]
    assert data.test.labels.tolist() == [1, 0]
    assert data.name == "mine"
    np.save(tmp_path / "b.npy", np.zeros((2, 5)))
    with pytest.raises(ValueError, match=r"rows of 2 columns \(age, ill\)"):
        load_own(tmp_path / "b.npy", declared)


def test_functions_and_frames(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas")
    assert np.array_equal(load_own(lambda: TABLE, PATIENTS).train.inputs, INPUTS)
    assert np.array_equal(load_own(lambda: pandas.DataFrame(TABLE), PATIENTS).train.inputs, INPUTS)
    (tmp_path / "own_clinic.py").write_text(f"TABLE = {TABLE!r}\ndef read():\n    return TABLE\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    data = load_own("own_clinic:read", PATIENTS)
    assert np.array_equal(data.train.inputs, INPUTS)
    assert sys.path == before
    with pytest.raises(ValueError, match="'module:function', and own_clinic has that function"):
        load_own("own_clinic:TABLE", PATIENTS)
    with pytest.raises(ValueError, match="module that can be imported, got 'own_nobody:read'"):
        load_own("own_nobody:read", PATIENTS)


def test_a_missing_value_does_not_change_how_others_are_read(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    declared = Features(
        (Column("code", categories=(2**60, 2**60 + 1)), Column("half", categories=(1, 2))),
        "y",
        (0, 1),
    )
    rows = []
    for last in (1, None):
        table = {
            "code": arrow.array([2**60 + 1, last]),
            "half": arrow.array(np.array([2, 1], np.float16), mask=np.array([False, last is None])),
            "y": arrow.array([1, last]),
        }
        parquet.write_table(arrow.table(table), tmp_path / "t.parquet")
        data = load_own(tmp_path / "t.parquet", declared)
        rows.append((data.train.inputs[0].tolist(), data.train.labels[0]))
    assert rows == [([0, 1, 0, 1], 1)] * 2


def test_a_value_that_python_cannot_hold_is_missing_and_no_error(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    days = arrow.array([0, 2**60]).cast(arrow.timestamp("us"))
    spoilt = [None, arrow.array(["ab", "cd"]).buffers()[1], arrow.py_buffer(b"ab\xff\xfe")]
    words = arrow.Array.from_buffers(arrow.string(), 2, spoilt)
    table = {"day": days, "word": words, "y": [0, 1]}
    parquet.write_table(arrow.table(table), tmp_path / "t.parquet")
    declared = Features(
        (Column("day", categories=("1970-01-01 00:00:00",)), Column("word", categories=("ab",))),
        "y",
        (0, 1),
    )
    data = load_own(tmp_path / "t.parquet", declared)
    assert data.train.inputs.tolist() == [[1, 1], [0, 0]]


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=30))
def test_one_line_of_a_csv_file_is_one_row(tmp_path_factory, line):
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    path.write_text(f"a,b\n1,2\n{line}\n3,4\n", encoding="utf-8", newline="")
    table = table_of_lines(path, ("a", "b"))
    assert (table["a"][0], table["b"][0]) == ("1", "2")
    assert (table["a"][-1], table["b"][-1]) == ("3", "4")
    assert len(table["a"]) == len(table["b"]) == (3 if line.removesuffix("\r") else 2)


def test_odd_lines_of_a_csv_file_speak_not(tmp_path):
    odd = ["1", '"open,2', "1,2,3,4", "x" * 200_000 + ",1", "\0,1", "\udcff,1"]
    content = "\n".join(["age,city,ill", *odd, "50,Milan,1"])
    (tmp_path / "t.csv").write_bytes(content.encode("utf-8", "surrogateescape"))
    data = load_own(tmp_path / "t.csv", PATIENTS)
    assert len(data.train.labels) == len(odd) + 1
    assert data.train.inputs[-1].tolist() == [0.5, 0, 1]


def test_python_objects_are_never_read(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="without Python objects"):
        load_own(tmp_path / "a.npy", PATIENTS)


@pytest.fixture
def folder(tmp_path):
    """One good picture, one of another size and mode, one that is none, and things beside."""
    for name in ("healthy", "ill", "unknown"):
        (tmp_path / "scans" / name).mkdir(parents=True)
    healthy, ill = tmp_path / "scans" / "healthy", tmp_path / "scans" / "ill"
    Image.fromarray(np.full((4, 6), 100, np.uint8)).save(healthy / "a.png")
    Image.fromarray(np.full((8, 9, 4), 200, np.uint8)).save(healthy / "b.PNG")
    (ill / "c.jpg").write_bytes(b"no picture")
    (ill / "notes.txt").write_text("no picture, and not called one")
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(tmp_path / "scans" / "unknown" / "d.png")
    return tmp_path / "scans"


@pytest.mark.parametrize("channels", [1, 3])
def test_a_folder_of_pictures(folder, channels):
    declared = Pictures(shape=(4, 6, channels), classes=("healthy", "ill"), default_value=9)
    data = load_own(folder, declared)
    assert data.train.inputs.shape == (3, 4, 6, channels)
    assert [set(image.ravel().tolist()) for image in data.train.inputs] == [{100}, {200}, {9}]
    assert data.train.labels.tolist() == [0, 0, 1]


@given(st.binary(max_size=40), st.integers(0, 60))
def test_whatever_is_in_a_picture_nothing_is_said(tmp_path_factory, content, keep):
    place = tmp_path_factory.mktemp("scans")
    for name in SCANS.classes:
        (place / name).mkdir()
    Image.fromarray(np.full((4, 6), 100, np.uint8)).save(place / "healthy" / "a.png")
    good = (place / "healthy" / "a.png").read_bytes()
    (place / "ill" / "b.png").write_bytes(good[:keep] + content)
    data = load_own(place, SCANS)
    assert data.train.inputs.shape == (2, 4, 6, 1)
    assert (data.train.inputs[0] == 100).all()


def test_a_picture_that_claims_to_be_huge_is_not_decoded(folder, monkeypatch):
    monkeypatch.setattr("sfumato.data.own_images._MOST_PIXELS", 30)
    assert (load_own(folder, SCANS).train.inputs[1] == 9).all()


def test_a_class_without_a_folder_is_refused(folder):
    with pytest.raises(ValueError, match="a folder with a sub-folder dead"):
        load_own(folder, Pictures(shape=(4, 6, 1), classes=("healthy", "dead")))


def test_arrays_of_pictures(tmp_path):
    images = np.arange(48, dtype=np.uint8).reshape(2, 4, 6)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array(["ill", "well"]))
    data = load_own(tmp_path / "a.npz", SCANS)
    assert np.array_equal(data.train.inputs[..., 0], images)
    assert data.train.labels.tolist() == [1, 0]
    both = load_own(save_images(data, tmp_path / "b.npz"), SCANS)
    assert both.train.labels.tolist() == [1, 0]
    assert len(both.test.labels) == 0
    mixed = load_own(lambda: (images, [1, "healthy"]), SCANS)
    assert mixed.train.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ((np.zeros((2, 4, 6)), [0, 1]), "images must be of type uint8, got float64"),
        ((np.zeros((2, 6, 4), np.uint8), [0, 1]), r"images must be each of shape \(4, 6, 1\)"),
        ((np.zeros((2, 4, 6), np.uint8), [0]), "labels must be one for each image"),
        ({"images": 1}, "arrays must be images and labels"),
        (7, "the function must give images and labels"),
    ],
)
def test_arrays_that_are_not_as_declared(made, said):
    with pytest.raises(ValueError, match=said):
        load_own(lambda: made, SCANS)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (7, "must give a data frame or a mapping"),
        (TABLE | {"age": np.zeros((3, 2))}, "each column must have one dimension"),
        (TABLE | {"age": [1.0]}, "columns must be of the same length"),
    ],
)
def test_tables_that_are_not_as_declared(made, said):
    with pytest.raises(ValueError, match=said):
        load_own(lambda: made, PATIENTS)


def test_bad_sources_are_clear_errors(tmp_path):
    (tmp_path / "t.xlsx").touch()
    with pytest.raises(ValueError, match=r"for features a file \.parquet, \.csv"):
        load_own(tmp_path / "t.xlsx", PATIENTS)
    with pytest.raises(ValueError, match=r"for pictures a folder or a file \.npz"):
        load_own(tmp_path / "t.xlsx", SCANS)
    with pytest.raises(FileNotFoundError, match="source must be there"):
        load_own(tmp_path / "nothing.csv", PATIENTS)
    with pytest.raises(ValueError, match="source must be a path"):
        load_own(3, PATIENTS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="declared must be Features"):
        load_own(tmp_path, {})  # type: ignore[arg-type]
