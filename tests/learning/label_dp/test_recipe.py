"""Recipes: JSON both ways, the event before any label is read, presets by shape."""

from dataclasses import replace

import pytest

from sfumato.accounting import account
from sfumato.core.events import EpsilonDeltaEvent, LaplaceEvent, RandomizedResponseEvent
from sfumato.data import load_dataset
from sfumato.learning.label_dp import LabelRecipe, label_preset, label_preset_names


@pytest.mark.parametrize(
    ("recipe", "kind"),
    [
        (LabelRecipe(2.0, shares=(1.0,), mixup=(0.0,)), RandomizedResponseEvent),
        (LabelRecipe(2.0), EpsilonDeltaEvent),
        (LabelRecipe(2.0, "alibi", shares=(1.0,), mixup=(0.0,)), LaplaceEvent),
    ],
)
def test_the_event_is_worth_epsilon(recipe, kind) -> None:
    event = recipe.event(10)
    assert isinstance(event, kind)
    found = account(event, 0.0)
    assert found.epsilon == pytest.approx(2.0, rel=1e-9)
    assert (found.unit, found.neighbours.value) == ("label", "replace-one")
    assert LabelRecipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize(
    ("epsilon", "share", "temperature", "mixup"),
    [(1, 0.8, 0.6, (16, 8)), (2, 0.7, 0.5, (8, 8)), (4, 0.6, 0.5, (8, 4)), (8, 0.6, 0.5, (4, 4))],
)
def test_the_published_settings_of_cifar10(data, epsilon, share, temperature, mixup) -> None:
    images = replace(data, shape=(32, 32, 3))
    found = label_preset(images, epsilon)
    assert (found.network, found.targets, found.batch, found.rate) == ("resnet18", "hard", 512, 0.4)
    assert (found.epochs, found.augment) == (200, "crop-flip")
    assert found.shares == pytest.approx((share, 1 - share))
    assert (found.temperature, found.mixup) == (temperature, mixup)
    assert label_preset(images, epsilon, 1).mixup == mixup[:1]


def test_presets_by_shape(data) -> None:
    assert label_preset(data, 1.0).network == "mlp"
    digits = label_preset(load_dataset("digits"), 1.0)
    assert (digits.features, digits.components) == ("wavelets", 324)
    assert label_preset_names() == ("contrastive", "resnet18", "table", "wavelets")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1e-11}, "2\\^-32"),
        ({"shares": (0.5, 0.4)}, "shares"),
        ({"shares": (1.5, -0.5)}, "shares"),
        ({"mixup": (1.0,)}, "mixup"),
        ({"mechanism": "alibi"}, "one stage"),
        ({"mechanism": "none"}, "mechanism"),
        ({"mechanism": "alibi", "shares": (1,), "mixup": (0,), "targets": "hard"}, "targets"),
        ({"targets": "debiased"}, "targets"),
        ({"targets": "exact"}, "targets"),
        ({"features": "wavelets", "augment": "shift"}, "augment"),
        ({"rounds": 0}, "rounds"),
        ({"batch": 1}, "batch"),
        ({"temperature": 0}, "temperature"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"optimizer": "lbfgs"}, "optimizer"),
        ({"pretraining": "supervised"}, "pretraining"),
        ({"pretraining_epochs": 0}, "pretraining_epochs"),
        ({"pretraining": "contrastive", "features": "wavelets"}, "pretraining"),
        ({"folds": 0}, "folds"),
    ],
)
def test_mistakes(changes, words) -> None:
    with pytest.raises(ValueError, match=words):
        LabelRecipe(**({"epsilon": 1.0} | changes))


def test_mistakes_of_presets(data) -> None:
    with pytest.raises(ValueError, match="preset must be one of"):
        label_preset(data, 1.0, name="magic")
    with pytest.raises(ValueError, match="stages must be 1 or 2"):
        label_preset(data, 1.0, 3)


def test_recipes_of_before_are_what_they_were() -> None:
    """Journals compare recipes as JSON, so what came later is told only where it is used."""
    old = LabelRecipe(2.0).to_dict()
    assert not {"pretraining", "pretraining_epochs", "folds"} & set(old)
    found = LabelRecipe.from_dict(old)
    assert (found.pretraining, found.folds) == ("none", 1)
    new = replace(found, pretraining="contrastive", folds=5, pretraining_epochs=20)
    assert new.to_dict()["pretraining_epochs"] == 20
    assert LabelRecipe.from_dict(new.to_dict()) == new
    assert replace(new, pretraining_epochs=150).to_dict()["pretraining_epochs"] == 150


@pytest.mark.parametrize(("channels", "augment"), [(3, "crop-flip"), (1, "shift")])
def test_the_preset_that_learns_from_inputs_first(data, channels, augment) -> None:
    found = label_preset(replace(data, shape=(32, 32, channels)), 1.0, name="contrastive")
    assert (found.network, found.pretraining, found.pretraining_epochs) == (
        "resnet18", "contrastive", 150,
    )  # fmt: skip
    assert (found.targets, found.start, found.folds, found.rounds) == (
        "soft",
        "least-squares",
        5,
        1,
    )
    assert (found.augment, found.stages) == (augment, 2)
    assert "CIFAR-10" in found.origin
