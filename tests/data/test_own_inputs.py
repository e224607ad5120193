"""Public rows without labels."""

import numpy as np
import pytest

from sfumato.data import Column, Declaration, Features, Pictures, load_inputs, load_own

PATIENTS = Features(
    columns=(Column("age", lower=0, upper=100), Column("city", categories=("Rome", "Milan"))),
    label="ill",
    classes=("no", "yes"),
)
ROWS = "age,city\n34,Rome\n71,Milan\n,Oslo\n250,Rome\n"


def test_the_same_inputs_as_with_labels(tmp_path):
    (tmp_path / "bare.csv").write_text(ROWS)
    named = zip(ROWS.split(), ["ill", *"nynx"], strict=True)
    labelled = [f"{line},{label}" for line, label in named]
    (tmp_path / "whole.csv").write_text("\n".join(labelled))
    whole = load_own(tmp_path / "whole.csv", PATIENTS).train.inputs
    bare = load_inputs(tmp_path / "bare.csv", Declaration(PATIENTS))
    assert bare.dtype == whole.dtype
    assert np.array_equal(bare, whole)
    assert np.allclose(bare, [[0.34, 1, 0], [0.71, 0, 1], [0.5, 0, 0], [1, 1, 0]])


def test_columns_in_parquet_and_numpy_files(tmp_path):
    pandas = pytest.importorskip("pandas")
    columns = {"age": np.array([34.0, 71.0]), "city": np.array(["Rome", "Milan"])}
    np.savez(tmp_path / "a.npz", **columns)
    pandas.DataFrame(columns).to_parquet(tmp_path / "a.parquet")
    for name in ("a.npz", "a.parquet"):
        found = load_inputs(tmp_path / name, PATIENTS)
        assert np.allclose(found, [[0.34, 1, 0], [0.71, 0, 1]])


def test_arrays_are_taken_as_they_are(tmp_path):
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 2, 1)
    np.save(tmp_path / "a.npy", images)
    assert np.array_equal(load_inputs(tmp_path / "a.npy"), images)


def test_what_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("age\n3\n")
    (tmp_path / "a.txt").write_text("age\n3\n")
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    pictures = Pictures(shape=(2, 2, 1), classes=("a", "b"))
    for name, declared, message in (
        ("a.csv", PATIENTS, "columns must be in .*city"),
        ("a.csv", None, "unless columns of a table are declared"),
        ("a.csv", pictures, "unless columns of a table are declared"),
        ("a.txt", PATIENTS, r"inputs must be a file \.parquet, \.csv"),
        ("a.npy", None, "without Python objects"),
    ):
        with pytest.raises(ValueError, match=message):
            load_inputs(tmp_path / name, declared)
    with pytest.raises(FileNotFoundError, match="inputs must be there"):
        load_inputs(tmp_path / "absent.csv", PATIENTS)
