"""Presets: valid recipes for any suitable shape, size and epsilon, from public facts alone."""

import json
from dataclasses import replace

import pytest
import torch

from sfumato.learning.dp_sgd import Flat, PerLayer
from sfumato.learning.features import PrivatePCA, ScatteringFeatures
from sfumato.learning.models import make_model
from sfumato.learning.recipes import Recipe, preset, preset_names
from sfumato.learning.recipes.inputs import input_shape
from sfumato.learning.recipes.presets import default_preset, describe_preset
from sfumato.learning.recipes.recipe import NOT_STATED

GREY, COLOUR, TABLE = (28, 28, 1), (32, 32, 3), (7,)
SUITABLE = [
    (name, shape)
    for name in preset_names()
    for shape in ((TABLE,) if name == "table" else (GREY, COLOUR))
]


def facts_of(toy, shape, size):
    """A data set with nothing in it but what is public."""
    return replace(toy.data(), shape=shape, public_size=size, train=None, test=None)


def check(toy, name, shape, epsilon, size):
    recipe = preset(name, facts_of(toy, shape, size), epsilon=epsilon)
    plan = recipe.plan(size)
    assert 0.9 * epsilon < plan.guarantee.epsilon <= epsilon
    assert plan.delta < 1 / size
    assert plan.lots.population == size
    event = recipe.features.event("add-remove", "record")
    assert plan.before == event
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert recipe.origin != NOT_STATED
    return recipe


@pytest.mark.parametrize(("name", "shape"), SUITABLE)
def test_every_preset_is_a_recipe_whose_model_fits_its_inputs(toy, name, shape):
    recipe = check(toy, name, shape, 2.0, 60_000)
    inside = recipe.features.out_shape(input_shape(shape))
    model = make_model(recipe.model, inside, 10, **recipe.model_options)
    assert model(torch.zeros(3, *inside)).shape == (3, 10)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize(("name", "shape"), SUITABLE)
def test_every_preset_for_other_epsilons_and_sizes(toy, name, shape, epsilon):
    # The paper's lots are 600, whatever the size, and its noise is fixed.
    for size in (60_000,) if name == "abadi-mnist" else (2_000, 60_000):
        check(toy, name, shape, epsilon, size)


@pytest.mark.parametrize(("name", "shape"), [p for p in SUITABLE if p[1] != COLOUR])
def test_a_data_set_larger_than_one_over_the_usual_delta(toy, name, shape):
    check(toy, name, shape, 2.0, 300_000)


def test_the_paper_s_recipe(toy):
    """Noise of 4 clip norms on each layer's sum."""
    recipe = check(toy, "abadi-mnist", GREY, 2.0, 60_000)
    plan = recipe.plan(60_000)
    assert recipe.features == PrivatePCA(60, 7.0)
    assert plan.lots.sample_rate == 0.01
    assert plan.steps / 100 == pytest.approx(172, rel=3e-3)
    assert recipe.rate.at(500, plan.steps, 100) == pytest.approx(0.1 - 0.048 / 2)
    assert recipe.rate.at(1000, plan.steps, 100) == pytest.approx(0.052)
    model = make_model("mlp", (60,), 10, **recipe.model_options)
    assert sum(p.numel() for p in model.parameters()) == 71_010
    assert isinstance(recipe.clip, PerLayer)
    groups = recipe.clip.groups([name for name, _ in model.named_parameters()])
    assert len(groups) == 2
    bounds = recipe.clip.bounds(groups)
    scales = recipe.clip.noise_scales(plan.noise_multiplier, bounds)
    assert [s / b for s, b in zip(scales, bounds, strict=True)] == pytest.approx([4.0, 4.0])
    with pytest.raises(ValueError, match=r"epsilon must be one of 0\.5, 2, 8"):
        preset("abadi-mnist", facts_of(toy, GREY, 60_000), epsilon=3)


def test_the_paper_s_clip_is_for_each_layer(toy):
    recipe = preset("abadi-mnist", facts_of(toy, GREY, 60_000), epsilon=2)
    assert recipe.clip.bounds((("a.weight",), ("b.weight",))) == pytest.approx((4.0, 4.0))


@pytest.mark.slow
def test_the_paper_s_network_with_other_settings(toy):
    """The same topology; rates fall with the noise of a step's mean; for any epsilon."""
    paper = preset("abadi-mnist", facts_of(toy, GREY, 60_000), epsilon=2)
    recipes = [check(toy, "pca-mlp", GREY, epsilon, 60_000) for epsilon in (0.5, 2.0, 8.0)]
    assert recipes[1].features == paper.features
    assert recipes[1].model_options == paper.model_options | {"activation": "tanh"}
    assert recipes[2].rate.start == 8.0
    for recipe in recipes[:2]:
        noise = recipe.plan(60_000).noise_multiplier / recipe.lot_size
        assert recipe.rate.start == pytest.approx(0.0065 / noise)
    other = preset("pca-mlp", facts_of(toy, (4, 4, 1), 2_000), epsilon=4)
    assert other.features == PrivatePCA(16, 5.0)


def test_settings_published_for_mnist(toy):
    """At epsilon 3 for so many records; with more noise, or fewer records, smaller steps."""
    recipe = check(toy, "tramer-mnist", GREY, 3.0, 60_000)
    assert (recipe.lot_size, recipe.epochs, recipe.rate.start) == (4096, 40, 8.0)
    assert (recipe.momentum, recipe.clip) == (0.9, Flat(0.1))
    assert recipe.features == ScatteringFeatures()
    assert "as published for MNIST" in recipe.origin
    stricter = preset("tramer-mnist", facts_of(toy, GREY, 60_000), epsilon=1)
    noise = stricter.plan(60_000).noise_multiplier / stricter.lot_size
    assert stricter.rate.start == pytest.approx(0.0049 / noise)
    assert stricter.rate.start < 8.0


def test_photographs_have_opponent_colours(toy):
    linear, network = (
        preset(f"scattering-{name}", facts_of(toy, COLOUR, 50_000), epsilon=3)
        for name in ("linear", "cnn")
    )
    assert linear.features.opponent
    assert linear.features.mirrored
    assert network.features.opponent
    assert not network.features.mirrored
    assert "Ohta" in linear.origin
    assert "Ohta" in network.origin


def test_by_default_the_shape_decides(toy):
    assert default_preset((7,)) == "table"
    assert default_preset((1, 28, 28)) == default_preset((3, 8, 8)) == "scattering-linear"
    assert default_preset((1, 30, 28)) == default_preset((1, 4, 4)) == "cnn"
    named = preset("table", facts_of(toy, TABLE, 500), epsilon=1)
    assert preset(None, facts_of(toy, TABLE, 500), epsilon=1) == named
    other = preset(None, facts_of(toy, TABLE, None), epsilon=1, public_size=400)
    assert other.lot_size == 40


def test_mistakes(toy):
    data = facts_of(toy, TABLE, 500)
    with pytest.raises(ValueError, match="preset must be one of abadi-mnist"):
        preset("nope", data, epsilon=1)
    for epsilon in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="epsilon must be"):
            preset("table", data, epsilon=epsilon)
    with pytest.raises(ValueError, match="public_size must be declared"):
        preset("table", replace(data, public_size=None), epsilon=1)


@pytest.mark.parametrize("name", preset_names())
def test_each_says_what_it_is(name):
    assert len(describe_preset(name)) > 10


def test_a_preset_runs(toy):
    """The one for tables, shortened."""
    data = toy.data()
    trained = toy.train(preset(None, data, epsilon=3).changed(epochs=1), data)
    assert trained.record.guarantee.epsilon <= 3
    assert trained.record.facts["tuning"].startswith("rules of thumb")
