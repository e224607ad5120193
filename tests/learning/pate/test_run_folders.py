"""Teachers and students read back from a run's folder."""

import dataclasses

import numpy as np
import pytest
import torch

from sfumato.data import load_dataset
from sfumato.data.first_rows import first_rows
from sfumato.learning.pate import AnswerPlan, GaussianMax
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.run_students import first_student, read_student
from sfumato.learning.pate.run_teachers import dealt, read_run_teachers
from sfumato.learning.pate.students import make_student
from sfumato.learning.pate.teachers import kept_salt, teacher_recipe, train_teachers
from sfumato.learning.pate.training import train_pate
from sfumato.learning.recipes.inputs import inputs_of, labels_of
from sfumato.learning.runs import RunFolder


@pytest.fixture(scope="module")
def data():
    return first_rows(load_dataset("digits"), 500)


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    still = make_student("supervised", steps=1, rate=1e-12, weight_decay=0.0)
    recipe = PateRecipe(
        AnswerPlan(GaussianMax(2.0), answers=8), still, teachers=4, test_rows=100, seed=3
    )
    return train_pate(recipe, data, out=tmp_path_factory.mktemp("run") / "a")


def test_teachers_and_parts_are_those_of_the_run(trained, data):
    """Training goes on only with the same rows, parts and seed: here there is nothing to do."""
    found = read_run_teachers(trained.folder.path, data)
    kind = teacher_recipe("linear", (1, 8, 8), 10)
    curator = trained.folder.curator
    again = train_teachers(
        kind, inputs_of(data.train.inputs, data.bounds), labels_of(data.train.labels, 10).numpy(),
        dealt(data, 4, kept_salt(curator / "salt")), seed=3, folder=curator / "teachers",
    )  # fmt: skip
    for name, weight in again.weights.items():
        assert torch.equal(weight, found.ensemble.weights[name])
    assert found.parts.sizes().sum() == 500
    mine = found.parts.rows_of(2)
    logits = found.ensemble.module(2)(torch.from_numpy(found.features(data.train.inputs[mine])))
    assert (logits.argmax(1).numpy() == data.train.labels[mine]).mean() > 0.95


def test_owners_decide_where_there_are_any(data):
    owned = dataclasses.replace(data, owners=np.arange(500) // 5)
    parts = dealt(owned, 4, bytes(32))
    assert all(len(set(part)) == 1 for part in parts.teacher_of.reshape(100, 5).tolist())


def test_first_weights_are_what_training_began_with(trained, data):
    """The student of this run has hardly moved; teachers have."""
    recipe, student = read_student(RunFolder(trained.folder.path))
    first = first_student(recipe, data.shape)
    for one, other in zip(first.parameters(), student.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    found = read_run_teachers(trained.folder.path, data)
    kind = dataclasses.replace(teacher_recipe("linear", (1, 8, 8), 10))
    still = dataclasses.replace(
        kind, schedule=dataclasses.replace(kind.schedule, steps=1, rate=1e-12, weight_decay=0.0)
    )
    begun = train_teachers(
        still, inputs_of(data.train.inputs, data.bounds), labels_of(data.train.labels, 10).numpy(),
        found.parts, seed=3,
    )  # fmt: skip
    for name, weight in found.beginning(1).named_parameters():
        assert torch.allclose(weight, begun.weights[name][1], atol=1e-6)


def test_what_is_no_pate_run_is_refused(tmp_path, data):
    folder = RunFolder(tmp_path / "b")
    folder.begin({"recipe": {}})
    with pytest.raises(ValueError, match="a folder of sfumato train pate"):
        read_run_teachers(tmp_path / "b", data)
