"""Recipes: all that is public about a run, checked before there is data."""

import json
import math

import pytest
import torch
from torch import nn

from sfumato.core.events import ComposedEvent
from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd import (
    Adaptive,
    Automatic,
    BandedNoise,
    CyclicPoissonLots,
    FixedSizeLots,
    NoiseSchedule,
    PerLayer,
    PoissonLots,
    ShuffledLots,
    StreamedLots,
    TreeNoise,
)
from sfumato.learning.dp_sgd.progress import Facts
from sfumato.learning.features import PrivatePCA, ScatteringFeatures
from sfumato.learning.recipes import Rate, Recipe
from sfumato.learning.recipes.augments import AUGMENTS, augment_by_name
from sfumato.learning.recipes.evaluating import accuracy_of
from sfumato.learning.recipes.observing import History
from sfumato.learning.recipes.rates import make_optimizer, make_scheduler

OTHERS = {
    "features": PrivatePCA(4, 9.0),
    "model_options": {"hidden": [3, 4]},
    "epsilon": 3.0,
    "noise_multiplier": None,
    "steps": None,
    "epochs": 2.0,
    "lots": "fixed-size",
    "clip": PerLayer({"a": 1.0, "b": 2.0}),
    "noise_schedule": NoiseSchedule.linear(1.5, 0.5),
    "correlation": BandedNoise(4),
    "neighbours": "zero-out",
    "unit": "person",
    "rows_per_owner": 3,
    "optimizer": "adam",
    "rate": Rate(1.0, end=0.1, epochs=3.0),
    "ema_decay": 0.9,
    "batch_size": 4,
    "seed": None,
    "origin": "chosen on other data",
}


@pytest.mark.parametrize("name", OTHERS)
def test_json_keeps_every_value(toy, name):
    recipe = toy.recipe(**{name: OTHERS[name]})
    stored = json.loads(json.dumps(recipe.to_dict()))
    assert Recipe.from_dict(stored) == recipe
    assert json.loads(json.dumps(Recipe.from_dict(stored).to_dict())) == stored
    assert recipe != toy.recipe()


def test_the_plan_is_what_the_recipe_says(toy):
    recipe = toy.recipe(
        clip=Adaptive(0.5), noise_schedule=NoiseSchedule.linear(1.5, 0.5), max_lot=60, unit="person"
    )
    plan = recipe.plan(150)
    assert plan.lots == PoissonLots(15, 150, 60)
    assert (plan.noise_multiplier, plan.steps, plan.delta) == (1.0, 6, 1e-3)
    assert (plan.unit, plan.schedule) == ("person", recipe.noise_schedule)
    assert plan.clipping == Adaptive(0.5).resolved(15)
    assert plan.before is None
    assert recipe.event(150) == plan.event
    fixed = toy.recipe(lots="fixed-size", neighbours="replace-one").plan(150)
    assert fixed.lots == FixedSizeLots(15, 150)
    assert fixed.neighbours is Neighbours.REPLACE_ONE
    assert toy.recipe(lots="shuffled", neighbours="zero-out").plan(150).lots == ShuffledLots(
        15, 150
    )
    tree = toy.recipe(lots="streamed", neighbours="zero-out", correlation=TreeNoise()).plan(150)
    assert (tree.lots, tree.correlation) == (StreamedLots(15, 150), TreeNoise())
    banded = toy.recipe(lots="cyclic-poisson", correlation=BandedNoise(4)).plan(150)
    wanted = CyclicPoissonLots(15, 150, 4), BandedNoise(4).resolved(banded.steps)
    assert (banded.lots, banded.correlation) == wanted
    with pytest.raises(ValueError, match="correlation must have bands for cyclic-poisson lots"):
        toy.recipe(lots="cyclic-poisson", correlation=TreeNoise())


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace-one"])
def test_features_that_cost_are_in_the_plan(toy, relation):
    recipe = toy.pca(neighbours=relation, unit="person")
    event = recipe.event(150)
    assert isinstance(event, ComposedEvent)
    assert event.events[0] == PrivatePCA(3, 8.0).event(Neighbours.parse(relation), "person")
    multiplier = 8 / math.sqrt(2) if relation == "replace-one" else 8
    assert event.events[0].noise_multiplier == pytest.approx(multiplier)
    assert toy.recipe(features=ScatteringFeatures()).plan(150).before is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lot_size": 0}, "lot_size must be"),
        ({"lot_size": 2.5}, "lot_size must be"),
        ({"lots": "random"}, "lots must be one of poisson, fixed-size, shuffled"),
        ({"lots": "shuffled", "max_lot": 20}, "max_lot must be left out"),
        ({"optimizer": "lion"}, "optimizer must be one of sgd, adam"),
        ({"augment": "mixup"}, "augment must be one of shift, flip"),
        ({"augment": "flip", "features": ScatteringFeatures()}, "leave out one of them"),
        ({"ema_decay": 1.0}, "ema_decay must be"),
        ({"neighbours": "twins"}, "neighbours must be"),
        ({"origin": ""}, "origin must be"),
        ({"model": ""}, "model must be"),
    ],
)
def test_mistakes(toy, changes, said):
    with pytest.raises(ValueError, match=said):
        toy.recipe(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 3.0}, "exactly two of epsilon"),
        ({"steps": None}, "exactly two of epsilon"),
        ({"epochs": 2.0}, "steps or epochs, not both"),
        ({"delta": 0.01}, "delta must be well below 1 over the declared size"),
        ({"delta": 0.0}, "delta must be"),
        ({"lot_size": 151}, "lot_size must be at most the declared size"),
        ({"max_lot": 14}, "max_size must be"),
        ({"lots": "shuffled"}, "neighbours must be 'replace-one' or 'zero-out'"),
        ({"noise_multiplier": 1e-3}, "noise_multiplier must be"),
        ({"unit": ""}, "unit must be"),
        ({"features": PrivatePCA(3, 1.0), "epsilon": 2, "steps": None}, "features cost before"),
    ],
)
def test_mistakes_about_the_guarantee(toy, changes, said):
    with pytest.raises(ValueError, match=said):
        toy.recipe(**changes).plan(150)


def test_what_is_not_said_stays(toy):
    recipe = toy.recipe()
    assert recipe.changed(model=None, clip=Automatic(0.3)).clip == Automatic(0.3)
    assert recipe.changed(seed=None) == recipe
    assert recipe.origin.startswith("not stated: if the hyper-parameters were chosen on this data")


# --- rates ----------------------------------------------------------------------------------------


def rates(rate, steps, per_epoch=2.0, name="sgd"):
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = make_optimizer(name, [parameter], rate.start, 0.0, 0.0)
    scheduler, seen = make_scheduler(optimizer, rate, steps, per_epoch), []
    for _ in range(steps):
        seen.append(optimizer.param_groups[0]["lr"])
        parameter.grad = torch.ones(1)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return seen


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_rates_fall_in_a_straight_line_and_stay(name):
    assert rates(Rate(2.0), 3, name=name) == [2.0] * 3
    assert rates(Rate(1.0, end=0.0), 4, name=name) == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert rates(Rate(1.0, 0.5, epochs=1), 4) == pytest.approx([1.0, 0.75, 0.5, 0.5])
    assert Rate.from_dict(Rate(1.0, 0.5, 1).to_dict()) == Rate(1.0, 0.5, 1)


@pytest.mark.parametrize("values", [(0.0,), (math.inf,), (1.0, -1.0), (1.0, 0.5, 0.0)])
def test_rates_that_cannot_be(values):
    with pytest.raises(ValueError, match="learning rate"):
        Rate(*values)


# --- augmentation ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", AUGMENTS)
@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 28, 28), (2, 5, 9), (1, 2, 2)])
def test_augments_change_each_row_by_itself(name, shape):
    """The same coins: a row's change does not depend on the others."""
    change = augment_by_name(name)
    images = torch.rand(6, *shape)
    torch.manual_seed(1)
    one = change(images)
    others = images.clone()
    others[1:] = math.nan
    torch.manual_seed(1)
    two = change(others)
    assert one.shape == images.shape
    assert torch.equal(one[0], two[0])
    assert set(one[3].unique().tolist()) <= set(images[3].unique().tolist())


def test_augments_do_change():
    images = torch.arange(64.0).view(1, 1, 8, 8).repeat(64, 1, 1, 1)
    for name in AUGMENTS:
        kinds = {tuple(row.flatten().tolist()) for row in augment_by_name(name)(images)}
        assert len(kinds) == 2 if name == "flip" else len(kinds) > 5
    assert torch.equal(augment_by_name("flip")(images).sort(3).values, images)


# --- what an operator is told ---------------------------------------------------------------------


def test_a_history_is_json_whatever_a_loss_was():
    """What it is follows from private rows, and must not stop a run at its end."""
    history = History(False, kept=True)
    for step, loss in enumerate((0.5, math.nan, math.inf, -math.inf, None), 1):
        history.update(Facts(step, 5, loss, 1.0, 0.25, loss))
    shown = history.to_dict()
    assert shown["loss"] == shown["signal_to_noise"] == [0.5, None, None, None, None]
    assert shown["step"] == [1, 2, 3, 4, 5]
    json.dumps(shown, allow_nan=False)
    assert history.wanted


def test_a_long_history_is_thinned_by_its_length_alone():
    history = History(False, kept=True)
    for step in range(1201):
        history.update(Facts(step, 1201, 0.5))
    assert history.to_dict()["step"] == list(range(0, 1201, 3))


def test_accuracy_counts_rows_and_leaves_modes_alone():
    model = nn.Sequential(nn.Identity(), nn.Dropout(0.99))
    model[0].eval()
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.2, 0.1]])
    assert accuracy_of(model, inputs, torch.tensor([0, 1, 1, 0]), batch=3) == 0.75
    assert [m.training for m in (model, *model)] == [True, False, True]
    with pytest.raises(ValueError, match="rows to test on"):
        accuracy_of(model, inputs[:0], torch.zeros(0))


@pytest.mark.parametrize(("shown", "kept"), [(False, False), (False, True)])
def test_steps_are_followed_only_where_somebody_reads(shown, kept):
    history = History(shown, kept=kept)
    assert history.wanted is kept
    history.update(Facts(1, 10, loss=0.5))
    assert len(history.facts) == kept
