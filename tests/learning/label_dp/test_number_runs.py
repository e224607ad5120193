"""Runs whose labels are numbers: what is learnt, what is told, and who refuses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.accounting import account
from sfumato.core import SeededCoins
from sfumato.data import Dataset, Examples
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.label_dp import (
    LabelRecipe,
    NumberRecipe,
    RegressionLabels,
    label_preset,
    number_preset,
    train_label_dp,
)
from sfumato.learning.label_dp.number_models import NumberModel
from sfumato.learning.label_dp.number_recipe import read_recipe
from sfumato.learning.recipes import load_run

SIZE, BOUNDS = 5000, (10.0, 70.0)


# --- what is learnt -------------------------------------------------------------------------------


def least_squares(data):
    rows = np.column_stack([data.train.inputs, np.ones(len(data.train.labels))])
    found = np.linalg.lstsq(rows, data.train.labels, rcond=None)[0]
    said = np.column_stack([data.test.inputs, np.ones(len(data.test.labels))]) @ found
    return NumberErrors.of(said, data.test.labels, BOUNDS)


def test_without_much_noise_it_is_least_squares(wages, tmp_path) -> None:
    recipe = number_preset(wages, 90.0, points=200)
    found = train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(1))
    best = least_squares(wages)
    assert found.errors is not None
    assert found.errors.root_mean_squared == pytest.approx(best.root_mean_squared, rel=0.01)
    assert found.errors.mean_absolute == pytest.approx(best.mean_absolute, rel=0.01)
    assert found.accuracy is None
    assert not found.record.private  # seeded coins


@pytest.mark.parametrize(
    ("epsilon", "changes", "most"),
    [
        (1.0, {}, 0.62),
        (3.0, {}, 0.55),
        (3.0, {"histogram_share": 0.0}, 0.62),
        (3.0, {"prior": tuple(np.exp(-((np.linspace(-1, 1, 32) - 0.05) ** 2) / 0.2))}, 0.6),
        (3.0, {"loss": "absolute"}, 0.6),
    ],
)
def test_it_learns(wages, tmp_path, epsilon, changes, most) -> None:
    recipe = number_preset(wages, epsilon, **changes)
    found = train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(1))
    assert found.errors is not None
    assert found.errors.root_mean_squared < most * found.errors.of_the_middle
    facts, claim = found.record.facts, found.record.guarantee
    assert (claim.epsilon, claim.delta, claim.unit) == (epsilon, 0.0, "label")
    assert account(found.record.event, 0.0).epsilon == pytest.approx(epsilon, rel=1e-9)
    assert facts["labels_of_each_stage"] == [SIZE]
    assert facts["root_mean_squared_error"] == found.errors.root_mean_squared
    assert facts["data"]["target_bounds"] == list(BOUNDS)
    assert "accuracy" not in json.dumps(facts)
    assert facts["bins"]["count"] == len(facts["bins"]["means"]) == len(facts["bins"]["edges"]) + 1
    assert BOUNDS[0] < min(facts["bins"]["edges"]) <= max(facts["bins"]["edges"]) < BOUNDS[1]


def test_a_network_learns_what_least_squares_leave(wages, tmp_path) -> None:
    plain = train_label_dp(
        number_preset(wages, 10.0, points=64), wages, out=tmp_path / "a", coins=SeededCoins(1)
    )
    recipe = number_preset(wages, 10.0, points=64, network="mlp", epochs=20.0)
    found = train_label_dp(recipe, wages, out=tmp_path / "b", coins=SeededCoins(1))
    assert plain.errors is not None
    assert found.errors is not None
    assert found.errors.root_mean_squared < 0.85 * plain.errors.root_mean_squared
    again = load_run(tmp_path / "b")
    inputs = torch.from_numpy(wages.test.inputs)
    assert torch.equal(again.model(inputs), found.model(inputs))


def test_a_run_read_back_tells_the_same_numbers(wages, tmp_path) -> None:
    recipe = number_preset(wages, 3.0)
    found = train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(1))
    run = load_run(tmp_path / "a")
    numbers = run.predict(wages.test.inputs)
    assert numbers.shape == (1000,)
    assert np.array_equal(numbers, found.model(torch.from_numpy(wages.test.inputs)).numpy())
    assert NumberErrors.of(numbers, wages.test.labels, BOUNDS) == found.errors
    far = torch.full((1, 4), 1e6)
    assert BOUNDS[0] <= float(run.model(far)[0]) <= BOUNDS[1]
    assert (run.recipe, run.classes, run.claim) == (recipe, (), None)
    assert "between 10 and 70" in run._repr_html_()
    assert "labels alone" in run._repr_html_()


def test_pictures_by_wavelets(tmp_path) -> None:
    """How wide a bar is, from pictures of 8 x 8."""
    rng = np.random.default_rng(0)
    width = rng.integers(1, 8, 400)
    images = 255 * (np.arange(8) < width[:, None, None]) * np.ones((400, 8, 1))
    pictures = (images + rng.uniform(-20, 20, images.shape)).clip(0, 255).astype(np.uint8)
    part = Examples(pictures[..., None], width.astype(float))
    data = Dataset(
        "bars", part, part, (), (8, 8, 1), (0.0, 255.0), "made here", public_size=400,
        test_is_public=True, target_bounds=(0.0, 8.0),
    )  # fmt: skip
    recipe = number_preset(data, 8.0, features="wavelets", components=20)
    found = train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(1))
    assert found.errors is not None
    assert found.errors.r_squared is not None
    assert found.errors.r_squared > 0.9
    assert (tmp_path / "a/curator/features").exists()
    assert load_run(tmp_path / "a").predict(data.test.inputs[:3]).shape == (3,)


def test_few_rows_have_the_strongest_ridge() -> None:
    model = NumberModel(3, (0.0, 1.0))
    rows = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    model.fit(rows, rows[:, 0], 0)
    assert float(model.weight.abs().max()) < 0.01
    assert float(model.constant) == pytest.approx(float(rows[:, 0].mean()), abs=1e-6)
    same = torch.ones(50, 3)  # columns that never differ
    model.fit(same, torch.linspace(-1, 1, 50), 0)
    assert torch.isfinite(model(same)).all()


# --- what is told, and who refuses ----------------------------------------------------------------


@pytest.mark.parametrize("rows", [1000, 0])
def test_private_test_rows_stay_with_the_curator(wages, tmp_path, rows) -> None:
    test = Examples(*(part[:rows] for part in wages.test))
    own = replace(wages, test=test, test_is_public=False)
    found = train_label_dp(number_preset(wages, 3.0), own, out=tmp_path / "a")
    assert (found.errors, found.accuracy) == (None, None)
    assert found.record.private
    assert "error" not in (tmp_path / "a/record.json").read_text()
    kept = json.loads((tmp_path / "a/curator/results.json").read_text())
    assert bool(kept) == bool(rows)
    assert not rows or kept["mean_absolute_error"] < kept["root_mean_squared_error"] < 10


def test_recipes_are_read_back() -> None:
    recipe = NumberRecipe(3.0, 0.0, points=3, prior=(1, 2, 3), network="mlp", options={"hidden": 8})
    assert read_recipe(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert isinstance(read_recipe(LabelRecipe(2.0).to_dict()), LabelRecipe)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0, got 0.0"),
        ({"epsilon": 101.0}, "epsilon must be at most 100"),
        ({"epsilon": 1e-11}, r"epsilon and histogram_share must be such that 2\^-32"),
        ({"histogram_share": 1.0}, "histogram_share must be"),
        ({"histogram_share": -0.1}, "histogram_share must be"),
        ({"points": 1}, "points must be"),
        ({"points": 513}, "points must be at most 512, got 513"),
        ({"loss": "cubed"}, "loss must be 'squared' or 'absolute'"),
        ({"prior": (1.0, 2.0)}, "prior must be 32 probabilities"),
        ({"prior": (1.0,) * 32, "histogram_share": 0.1}, "histogram_share must be 0 with a prior"),
        ({"prior": (-1.0,) * 32}, "prior must be"),
        ({"features": "magic"}, "features must be one of none, wavelets"),
        ({"network": "brain"}, "network must be one of"),
        ({"network": "mlp", "options": {"depth": 3}}, "option of 'mlp' must be"),
        ({"options": {"hidden": 3}}, "options must be left out without a network"),
        ({"unit": "record"}, "unit must be 'label'"),
        ({"epochs": 0}, "epochs must be"),
        ({"batch": 1}, "batch must be"),
    ],
)
def test_mistakes_cost_nothing(wages, label_budget, tmp_path, changes, words) -> None:
    with pytest.raises(ValueError, match=words):
        train_label_dp(
            number_preset(wages, **({"epsilon": 2.0} | changes)),
            wages,
            out=tmp_path / "a",
            **label_budget,
        )
    assert not (tmp_path / "a").exists()
    assert [entry.kind for entry in label_budget["ledger"].history("labels")] == ["open"]


def test_runs_that_cannot_be(wages, data, tmp_path) -> None:
    recipe = number_preset(wages, 2.0)
    with pytest.raises(ValueError, match="recipe must be one for classes"):
        train_label_dp(recipe, data, out=tmp_path / "a")
    with pytest.raises(ValueError, match="labels are numbers"):
        train_label_dp(label_preset(wages, 2.0), wages, out=tmp_path / "a")
    with pytest.raises(ValueError, match="no owners"):
        train_label_dp(recipe, replace(wages, owners=np.arange(SIZE)), out=tmp_path / "a")
    for count in (0, 1):
        few = replace(wages, train=Examples(*(part[:count] for part in wages.train)))
        with pytest.raises(ValueError, match="train must"):
            train_label_dp(recipe, few, out=tmp_path / "a")
    with pytest.raises(ValueError, match="pretrained must be left out"):
        train_label_dp(recipe, wages, out=tmp_path / "a", pretrained="x")
    with pytest.raises(RuntimeError, match="abacus"):
        train_label_dp(recipe, wages, out=tmp_path / "a", device="abacus")
    with pytest.raises(ValueError, match="histogram_share must be above 0"):
        RegressionLabels(1.0, 0, 1).noisy_histogram([1.0])
    assert not (tmp_path / "a").exists()
