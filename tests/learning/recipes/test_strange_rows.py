"""Rows of every kind: no error, no warning, the same files and the same record for every table."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.data import Examples
from sfumato.learning.dp_sgd import Adaptive
from sfumato.learning.features import PrivatePCA, ScatteringFeatures, StandardizedScattering
from sfumato.learning.recipes.inputs import input_shape, inputs_of, labels_of

BAD = (np.nan, np.inf, -np.inf, 1e38, -1e38, 0.0)


def empty(toy, shape):
    rows = toy.rows(3, shape=shape)
    return Examples(rows.inputs[:0], rows.labels[:0])


def bad(toy, shape):
    """Every row is one of the above throughout, and of no class."""
    labels = np.tile(np.array([2, -1, -100, 10**12, -(2**63), 1]), 10)
    if len(shape) == 3:
        return Examples(np.zeros((60, *shape), np.uint8), labels)
    return Examples(np.tile(np.float32(BAD)[:, None], (10, *shape)), labels)


TABLES = {
    "no rows": empty,
    "nothing but NaN and the like": bad,
    "far more rows than declared": lambda toy, shape: toy.rows(2000, shape=shape),
}
RECIPES = {
    "rows": ((6,), {"max_lot": 60}),
    "private pca": ((6,), {"features": PrivatePCA(3, 8.0), "ema_decay": 0.9}),
    "adaptive": ((6,), {"clip": Adaptive(1.0)}),
    "images": ((8, 8, 1), {"augment": "flip-shift", "augmentations": 2}),
    "scattering": ((8, 8, 1), {"features": ScatteringFeatures(), "steps": 2}),
    "private scattering": ((8, 8, 1), {"features": StandardizedScattering(9.0), "steps": 2}),
}


@pytest.mark.parametrize("kind", RECIPES)
def test_every_table_leaves_the_same(toy, tmp_path, capsys, kind):
    shape, options = RECIPES[kind]
    options, seen = {"steps": 3} | options, {}
    for number, (name, make) in enumerate([("usual", None), *TABLES.items()]):
        rows = None if make is None else make(toy, shape)
        out, noise = tmp_path / str(number), toy.Noted()
        data = toy.data(shape=shape, train=rows)
        trained = toy.train(toy.recipe(**options), data, out=out, noise=noise, evaluations=2)
        assert all(w.isfinite().all() for w in trained.model.state_dict().values())
        sizes = [(out / file).stat().st_size for file in ("model.safetensors",)]
        asked = [shape for shape, _ in noise.asked]  # a clip norm that adapts is released
        record = toy.without_released(trained.record.to_dict())
        seen[name] = (record, toy.files(out), sizes, asked, [p.step for p in trained.points])
        assert capsys.readouterr() == ("", "")
    usual = seen.pop("usual")
    for name, found in seen.items():
        assert found == usual, name


# --- owners ---------------------------------------------------------------------------------------


def test_owners_are_who_is_protected(toy, tmp_path):
    owners = np.arange(137) // 3
    data = toy.with_owners(owners, public_size=50)
    recipe = toy.recipe(unit="person", rows_per_owner=2, lot_size=10)
    trained = toy.train(recipe, data, out=tmp_path / "a")
    assert trained.record.guarantee.unit == "person"
    assert trained.record.parameters["plan"]["lots"]["population"] == 50
    assert trained.record.event.event.sample_rate == 10 / 50


@pytest.mark.parametrize(
    "owners",
    [
        [None] * 137,
        [np.nan] * 137,
        ["ann"] * 137,
        [None, "ann", 7, np.nan, 7.0, b"x", (), ""] * 17 + [None],
        list(range(137)),
    ],
)
def test_owners_of_every_kind_leave_the_same(toy, tmp_path, owners):
    listed = np.empty(137, dtype=object)
    listed[:] = owners
    recipe = toy.recipe(unit="person", rows_per_owner=2)
    found = [
        toy.train(recipe, toy.with_owners(ids), out=tmp_path / name)
        for name, ids in (("a", listed), ("b", np.arange(137) // 2))
    ]
    one, two = (toy.without_released(trained.record.to_dict()) for trained in found)
    assert one == two
    assert toy.files(tmp_path / "a") == toy.files(tmp_path / "b")


def test_owners_need_a_name_and_public_features(toy, tmp_path):
    data = toy.with_owners(np.arange(137))
    with pytest.raises(ValueError, match="unit must name whom the owners are"):
        toy.train(data=data, out=tmp_path / "a")
    private = (toy.pca(unit="person"), toy.recipe(unit="person", features=PrivatePCA(2, 100.0)))
    for recipe in private:  # one owner of a thousand rows would move the matrix by as much
        with pytest.raises(ValueError, match="an owner may have any number"):
            toy.train(recipe, data, out=tmp_path / "a")
    with pytest.raises(ValueError, match="owners must name one for each row") as error:
        toy.train(toy.recipe(unit="person"), toy.with_owners(np.arange(99)), out=tmp_path / "a")
    assert "99" not in str(error.value)
    assert "137" not in str(error.value)
    assert not (tmp_path / "a").exists()


# --- layout, which is public ----------------------------------------------------------------------


@pytest.mark.parametrize("part", ["train", "test"])
def test_arrays_of_another_layout_are_refused_before_the_charge(toy, tmp_path, ledger, part):
    rows = toy.rows(9)
    wrong = [
        (Examples(rows.inputs[:, :5], rows.labels), "must have the shape"),
        (Examples(rows.inputs, rows.labels[:4]), "as many as inputs"),
        (Examples(rows.inputs, rows.labels[:, None]), "as many as inputs"),
    ]
    for examples, said in wrong:
        data = replace(toy.data(), **{part: examples})
        with pytest.raises(ValueError, match=said) as error:
            toy.train(data=data, out=tmp_path / "a", ledger=ledger, dataset="people")
        assert not any(digit in str(error.value) for digit in "49")
    assert not (tmp_path / "a").exists()
    assert len(ledger.history("people")) == 1


def test_one_class_is_none(toy):
    with pytest.raises(ValueError, match="classes must be two or more"):
        toy.train(data=replace(toy.data(), classes=("yes",)))


# --- inputs and labels ----------------------------------------------------------------------------


def test_inputs_are_between_zero_and_one_whatever_they_were():
    values = np.array([[-5.0, 0.0, 5.0, 10.0, 20.0, np.nan, np.inf, -np.inf, 1e300]])
    found = inputs_of(values, (0.0, 10.0))
    assert found.tolist() == [[0.0, 0.0, 0.5, 1.0, 1.0, 0.0, 1.0, 0.0, 1.0]]
    assert found.dtype is torch.float32
    assert inputs_of(np.array([[0], [51], [255]], np.uint8), (0, 255)).flatten()[1] == 0.2


def test_pictures_have_their_channels_first():
    values = np.zeros((2, 4, 5, 3), np.uint8)
    values[1, 2, 3, 1] = 255
    found = inputs_of(values, (0, 255))
    assert found.shape == (2, *input_shape((4, 5, 3))) == (2, 3, 4, 5)
    assert found[1, 1, 2, 3] == 1
    assert found.sum() == 1


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "float64", "bool"])
def test_labels_of_no_class_are_the_first(dtype):
    values = np.array([1, 0, 1]).astype(dtype)
    assert labels_of(values, 2).tolist() == [1, 0, 1]
    assert labels_of(values, 2).dtype is torch.int64
    assert labels_of(np.array([np.nan, -1.0, 2.0, np.inf, 1.0]), 2).tolist() == [0, 0, 0, 0, 1]
