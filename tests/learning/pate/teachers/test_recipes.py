"""Kinds of teachers: their sizes, that they can be trained, and that they learn."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.data import load_images
from sfumato.learning.pate.teachers import (
    assign_records,
    new_salt,
    plurality,
    recipe_names,
    teacher_labels,
    teacher_recipe,
    train_teachers,
    votes_from_labels,
)
from sfumato.learning.recipes.inputs import input_shape, inputs_of


def test_the_published_network():
    recipe = teacher_recipe("pate-cnn", (1, 28, 28), 10)
    shapes = [tuple(p.shape) for p in recipe.make().parameters() if p.dim() > 1]
    assert shapes == [
        (64, 1, 5, 5), (128, 64, 5, 5), (384, 7 * 7 * 128), (192, 384), (10, 192)
    ]  # fmt: skip
    plan = recipe.schedule
    assert (plan.steps, plan.batch_size, plan.rate, plan.momentum) == (3000, 128, 0.05, 0.0)


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("engine", ["apart", "stacked"])
def test_every_kind_can_be_trained(name, engine):
    recipe = teacher_recipe(name, (1, 16, 16), 4)
    recipe = replace(recipe, schedule=replace(recipe.schedule, steps=2, batch_size=4))
    inputs = torch.rand(12, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    parts = assign_records(inputs.numpy(), 3, new_salt(SeededCoins(0)))
    found = train_teachers(recipe, inputs, torch.arange(12) % 4, parts, engine=engine)
    assert teacher_labels(found, inputs, 4).shape == (12, 3)


@pytest.mark.parametrize(("name", "least"), [("linear", 0.75), ("cnn-small", 0.5)])
def test_teachers_learn(name, least):
    """The small digits that come with the package, about 140 for each of ten teachers."""
    data = load_images("digits")
    shape = input_shape(data.shape)
    recipe = teacher_recipe(name, shape, 10)
    recipe = replace(recipe, schedule=replace(recipe.schedule, steps=60))
    inputs, labels = inputs_of(data.train.inputs, data.bounds), data.train.labels
    parts = assign_records(inputs.numpy(), 10, new_salt(SeededCoins(0)))
    found = train_teachers(recipe, inputs, labels, parts)
    right = data.test.labels
    answers = teacher_labels(found, inputs_of(data.test.inputs, data.bounds), 10)
    each = (answers == np.asarray(right)[:, None]).mean(axis=0)
    together = (plurality(votes_from_labels(answers, 10)) == right).mean()
    assert each.mean() > least
    assert together > each.mean()


def test_a_table_has_linear_teachers():
    recipe = teacher_recipe("linear", (7,), 2)
    assert recipe.prepare is None
    assert recipe.make()(torch.zeros(3, 7)).shape == (3, 2)


def test_mistakes():
    with pytest.raises(ValueError, match="one of cnn-small, linear, pate-cnn"):
        teacher_recipe("x", (1, 28, 28), 10)
    with pytest.raises(ValueError, match="classes"):
        teacher_recipe("linear", (1, 28, 28), 0)
    with pytest.raises(ValueError, match="channels, height, width"):
        teacher_recipe("cnn-small", (7,), 2)
    with pytest.raises(ValueError, match="together"):
        replace(teacher_recipe("cnn-small", (1, 28, 28), 10), together=0)
