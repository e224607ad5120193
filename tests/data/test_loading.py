"""One door: named data sets with what is published, and one's own as it was declared."""

import numpy as np
import pytest
from PIL import Image

from sfumato.data import (
    Column,
    Declaration,
    Features,
    Pictures,
    dataset_names,
    image_names,
    load_dataset,
    task_names,
)

VISITS = Features((Column("age", lower=0, upper=100),), "ill", (0, 1))
TABLE = {"age": [20.0, 50.0], "ill": [0, 1], "id": ["ann", "bob"]}


def test_the_names_there_are():
    assert dataset_names() == (*image_names(), *task_names())


def test_images_by_name(real_images):
    real_images("digits")
    data = load_dataset("digits")
    assert data.train.inputs.shape == (1437, 8, 8, 1)
    assert (data.public_size, data.test_is_public, data.owners) == (1437, True, None)


def test_data_of_ones_own(tmp_path):
    data = load_dataset(lambda: TABLE, VISITS)
    assert data.train.labels.tolist() == [0, 1]
    assert (data.public_size, data.test_is_public, data.owners) == (None, False, None)
    declared = Declaration(VISITS, records=31, owner="id", owners=20, public_test=True)
    test = {"age": [1.0], "ill": [1]}  # owners are needed of those to train on alone
    data = load_dataset(lambda: TABLE, declared, test=lambda: test)
    assert data.test.labels.tolist() == [1]
    assert (data.public_size, data.test_is_public) == (20, True)
    assert data.owners.tolist() == ["ann", "bob"]


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_declared_number_is_not_compared_with_the_true_one(rows):
    table = {name: values[:rows] for name, values in TABLE.items()}
    data = load_dataset(lambda: table, Declaration(VISITS, records=1))
    assert (len(data.train.labels), data.public_size) == (rows, 1)


def test_a_name_means_the_named_data_set_wherever_one_is(tmp_path, monkeypatch, real_images):
    real_images("digits")
    for name in "ab":
        (tmp_path / "digits" / name).mkdir(parents=True)
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "digits" / "a" / "x.png")
    monkeypatch.chdir(tmp_path)
    own = Pictures((2, 2, 1), ("a", "b"))
    assert len(load_dataset("digits").train.labels) == 1437
    assert len(load_dataset("./digits", own).train.labels) == 1
    with pytest.raises(ValueError, match=r"'digits' is a named data set.*'\./digits'"):
        load_dataset("digits", own)
    with pytest.raises(ValueError, match="leave out the declaration and the test set"):
        load_dataset("labsup", test="more.csv")


def test_unknown_names_and_files_without_a_declaration(tmp_path):
    (tmp_path / "t.csv").write_text("age,ill\n1,0\n")
    for source in ("minst", str(tmp_path / "t.csv"), tmp_path / "t.csv", lambda: TABLE):
        with pytest.raises(ValueError, match=r"one of mnist, .*census2000, or .*--declared FILE"):
            load_dataset(source)
    with pytest.raises(FileNotFoundError, match="source must be there"):
        load_dataset("minst", VISITS)
    with pytest.raises(ValueError, match="declared must be Features"):
        load_dataset(tmp_path / "t.csv", {})  # type: ignore[arg-type]
