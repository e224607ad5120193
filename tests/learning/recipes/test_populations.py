"""Populations of private models: each on its own part, kept as they come, trained once."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.data import Dataset, Examples
from sfumato.learning.ensembles import half_each
from sfumato.learning.features import PrivatePCA
from sfumato.learning.recipes import Rate, Recipe
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.learning.recipes.populations import _calibrated, answers, private_population

ROWS = 120


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, ROWS)
    inputs = np.clip(generator.normal(0.5, 0.1, (ROWS, 4)) + 0.3 * labels[:, None] - 0.15, 0, 1)
    examples = Examples(inputs, labels)
    return Dataset("made up", examples, examples, ("no", "yes"), (4,), (0.0, 1.0), "nobody's")


@pytest.fixture(scope="module")
def recipe():
    return Recipe("linear", 15, Rate(1.0), epsilon=4.0, epochs=5)


@pytest.fixture
def halves():
    return half_each(4, ROWS, seed=1)


def weights(model):
    return torch.cat([value.flatten() for value in model.state_dict().values()])


class KilledError(Exception):
    """By the operating system, say."""


def killing(after):
    """Told of progress, it ends the process when so many models are done."""

    def told(done, total):
        assert total == 4
        if done == after:
            raise KilledError

    return told


def test_finished_models_are_not_trained_again(recipe, data, halves, tmp_path):
    """Noise comes from the operating system: the same weights twice were not drawn twice."""
    with pytest.raises(KilledError):
        private_population(recipe, data, halves, folder=tmp_path, progress=killing(2))
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("*.safetensors")}
    assert sorted(kept) == ["model-000.safetensors", "model-001.safetensors"]
    told = []
    note = lambda *numbers: told.append(numbers)  # noqa: E731
    models = private_population(recipe, data, halves, folder=tmp_path, progress=note)
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {name: (tmp_path / name).read_bytes() for name in kept} == kept
    again = private_population(recipe, data, halves, folder=tmp_path)
    inputs = inputs_of(data.train.inputs, data.bounds)
    assert np.array_equal(answers(models, inputs), answers(again, inputs))
    assert len({tuple(weights(model).tolist()) for model in models}) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())


def test_a_torn_file_is_no_model(recipe, data, halves, tmp_path):
    private_population(recipe, data, halves[:2], folder=tmp_path)
    (tmp_path / "model-001.safetensors").rename(tmp_path / ".model-001.safetensors.new")
    whole = (tmp_path / "model-000.safetensors").read_bytes()
    private_population(recipe, data, halves[:2], folder=tmp_path)
    assert (tmp_path / "model-001.safetensors").exists()
    assert (tmp_path / "model-000.safetensors").read_bytes() == whole


def test_other_models_are_refused(recipe, data, halves, tmp_path):
    private_population(recipe, data, halves[:2], folder=tmp_path)
    moved = replace(data, train=Examples(data.train.inputs + 1e-9, data.train.labels))
    others = [
        (recipe.changed(epsilon=3.0), data, halves[:2]),
        (recipe, moved, halves[:2]),
        (recipe, data, ~halves[:2]),
        (recipe, data, halves),
    ]
    for one in others:
        with pytest.raises(ValueError, match="holds others: give another folder"):
            private_population(*one, folder=tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 2


def test_bad_arguments_write_nothing(recipe, data, halves, tmp_path):
    folder = tmp_path / "new"
    with pytest.raises(ValueError, match="one an example"):
        private_population(recipe, data, halves[:, 1:], folder=folder)
    with pytest.raises(ValueError, match="lot_size"):
        private_population(recipe.changed(lot_size=ROWS), data, halves, folder=folder)
    assert not folder.exists()


@pytest.mark.parametrize("features", [None, PrivatePCA(2, 8.0)])
def test_noise_is_calibrated_once_and_the_promise_is_the_same(recipe, features):
    """Noise and steps are those of the recipe's own plan, to the last digit."""
    asked = recipe.changed(features=features)
    plan, fixed = asked.plan(60), _calibrated(asked, 60).plan(60)
    assert (fixed.noise_multiplier, fixed.steps) == (plan.noise_multiplier, plan.steps)
    assert fixed.event == plan.event
    assert fixed.guarantee.epsilon == pytest.approx(plan.guarantee.epsilon)
    assert plan.guarantee.epsilon <= 4


def test_each_model_learns_from_its_own_part(recipe, data):
    """Almost without noise: a model whose labels are turned round says the opposite."""
    inputs, labels = (np.concatenate([part, part]) for part in data.train)
    labels[ROWS:] = 1 - labels[ROWS:]
    both = replace(data, train=Examples(inputs, labels))
    subsets = np.arange(2 * ROWS) < ROWS
    sure = replace(recipe, epsilon=None, noise_multiplier=0.05, epochs=20)
    models = private_population(sure, both, np.stack([subsets, ~subsets]))
    said = answers(models, inputs_of(data.train.inputs, data.bounds)).argmax(axis=2)
    right = (said == data.train.labels).mean(axis=1)
    assert right[0] > 0.9
    assert right[1] < 0.1
