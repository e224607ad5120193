"""Runs: what they release, who pays, what is told, and what bad rows do, which is nothing."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.core.events import LaplaceEvent, repeat
from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, Examples, load_dataset
from sfumato.learning.features import MeanPool, PrivatePCA, ScatteringFeatures
from sfumato.learning.functional import training
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.run_models import read_functional
from sfumato.learning.functional.training import planned, train_functional
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded, LedgerError

SIZE = 400
RECIPE = FunctionalRecipe(epsilon=4.0, rounds=3)


def dots(public=True, **changes):
    """Two clouds of points in a square."""
    rng = np.random.default_rng(7)

    def examples(count):
        labels = rng.integers(0, 2, count)
        places = np.where(labels[:, None] == 1, 0.7, 0.3) + rng.normal(0, 0.1, (count, 2))
        return Examples(places.clip(0, 1).astype(np.float32), labels)

    made = Dataset(
        "dots", examples(SIZE), examples(200), ("left", "right"), (2,), (0.0, 1.0), "made up",
        public_size=SIZE, test_is_public=public,
    )  # fmt: skip
    return replace(made, **changes)


def trained(tmp_path, recipe=RECIPE, data=None, name="run", seed=1, **more):
    return train_functional(
        recipe, data or dots(), out=tmp_path / name, coins=SeededCoins(seed), **more
    )


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"neighbours": "replace-one"}, {"delta": 1e-5}, {"sample_rate": 0.5},
        {"curvature": "lecun"}, {"curvature": "none"}, {"loss": "squares", "rounds": 8},
        {"activation": "sigmoid"}, {"activation": "relu"},
    ],
)  # fmt: skip
def test_it_learns(tmp_path, changes):
    """Two inputs and two classes: six weights, and 400 rows."""
    hidden = (2,) if "activation" in changes else ()
    recipe = replace(RECIPE, epsilon=30.0, hidden=hidden, **({"rounds": 6} | changes))
    found = trained(tmp_path, recipe)
    assert found.accuracy > 0.9
    assert found.record.guarantee.epsilon <= 30.0
    assert found.record.guarantee.delta == changes.get("delta", 0.0)


def test_the_record_says_what_was_released(tmp_path):
    made = trained(tmp_path).record
    assert made.method == "functional"
    assert made.private is False  # seeded coins
    assert made.event == repeat(LaplaceEvent(made.event.event.noise_multiplier), 3)
    assert made.event.event.noise_multiplier == pytest.approx(3 / 4)
    plan = made.parameters["plan"]
    assert plan["noise_scale"] == pytest.approx(8 * 3 / 4)
    assert plan["sensitivity"] == 8.0
    assert made.facts["parameters"] == 6
    assert FunctionalRecipe.from_dict(made.parameters["recipe"]) == RECIPE


def test_without_noise_rounds_are_damped_newton_steps():
    """One round by hand: exact slopes over exact curvatures."""
    recipe = replace(RECIPE, epsilon=1e9, rounds=1, clip=1e3, rate=1.0, reach=1e3, damping=1.0)
    data = dots()
    plan = planned(recipe, data)
    x, y = torch.from_numpy(data.train.inputs).double(), torch.from_numpy(data.train.labels)
    (found,) = training.fitted_weights(plan, x, y, coins=SeededCoins(1))
    z = torch.cat([2 * x - 1, torch.ones(len(x), 1)], dim=1)
    off = 0.5 - torch.nn.functional.one_hot(y, 2).double()
    expected = -(off.T @ z) / (0.25 * (z * z).sum(0) + SIZE)
    assert torch.allclose(found, expected, atol=1e-4)


def test_more_noise_is_less_accuracy_and_the_public_headroom_says_so(tmp_path):
    low, high = (replace(RECIPE, epsilon=e) for e in (0.01, 100.0))
    assert planned(low, dots()).headroom == pytest.approx(SIZE * 0.01 / (2 * 6 * 3), rel=1e-6)
    assert planned(high, dots()).headroom > 100
    assert trained(tmp_path, high, name="b").accuracy > 0.95


def test_the_model_that_is_kept_is_the_one_that_was_measured(tmp_path):
    data = load_dataset("digits")
    recipe = FunctionalRecipe(200.0, features=MeanPool(2), hidden=(3,), rounds=2)
    made = trained(tmp_path, recipe, data)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "curator", "model.safetensors", "record.json",
    ]  # fmt: skip
    again, model = read_functional(RunFolder(tmp_path / "run"))
    assert again == recipe
    inputs = torch.rand(5, 1, 8, 8)
    assert torch.equal(model(inputs), made.model(inputs))
    assert not model.training


def test_digits_of_few_features(tmp_path):
    """The one setting where it is of use: 170 weights, 1437 rows, epsilon 8."""
    data = load_dataset("digits")
    recipe = FunctionalRecipe(8.0, features=MeanPool(2), curvature="none")
    assert trained(tmp_path, recipe, data).accuracy > 0.65


# --- who pays -----------------------------------------------------------------------------------


def test_the_ledger_is_charged_before_a_row_is_read(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "l.db")
    book.create("dots", Budget(5.0, 1e-5))
    real, spent = training.noisy_sums, []

    def watched(*given):
        spent.append(book.status("dots").left)
        return real(*given)

    monkeypatch.setattr(training, "noisy_sums", watched)
    made = trained(tmp_path, ledger=book, dataset="dots")
    assert len(spent) == 3
    assert max(spent) < 5.0
    assert made.record.facts["ledger"]["dataset"] == "dots"
    with pytest.raises(BudgetExceeded):
        trained(tmp_path, replace(RECIPE, epsilon=50.0), name="b", ledger=book, dataset="dots")
    assert len(spent) == 3
    assert not (tmp_path / "b").exists()


def test_a_budget_of_somebody_else_is_refused(tmp_path):
    book = Ledger(tmp_path / "l.db")
    book.create("dots", Budget(5.0, 1e-5), unit="person")
    with pytest.raises(LedgerError, match="person"):
        trained(tmp_path, ledger=book, dataset="dots")
    assert not (tmp_path / "run").exists()


# --- rows and parameters ------------------------------------------------------------------------


def test_bad_rows_lead_to_nothing_but_other_noise(tmp_path):
    """The same files, entries and facts, whatever a row holds; and the other rows stay."""
    data = dots(public=False)
    inputs, labels = data.train.inputs.copy(), data.train.labels.copy()
    inputs[0], labels[0] = [np.nan, np.inf], -5
    bad = replace(data, train=Examples(inputs, labels))
    told = []
    for name, one in (("a", data), ("b", bad)):
        made = trained(tmp_path, data=one, name=name)
        files = sorted(p.name for p in (tmp_path / name).rglob("*"))
        told.append((made.record.to_dict(), files))
    assert told[0] == told[1]
    assert "accuracy" not in told[0][0]["facts"]
    kept = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert kept["accuracy"] >= 0


def test_no_row_at_all(tmp_path):
    empty = Examples(np.zeros((0, 2), np.float32), np.zeros(0, np.int64))
    made = trained(tmp_path, data=dots(train=empty, test=empty))
    assert made.accuracy is None
    assert made.record.facts["test_set"] == "none"


def test_how_many_rows_there_are_is_not_told(tmp_path):
    data = dots()
    less = replace(data, train=Examples(data.train.inputs[1:], data.train.labels[1:]))
    first, second = (
        trained(tmp_path, data=one, name=name).record.to_dict()
        for name, one in (("a", data), ("b", less))
    )
    for record in (first, second):
        record["facts"].pop("accuracy")
    assert first == second


@pytest.mark.parametrize(
    ("changes", "recipe", "message"),
    [
        ({"owners": np.arange(SIZE)}, {}, "owners must be left out"),
        ({"public_size": None}, {}, "public_size must be declared"),
        ({"shape": (3,)}, {}, "must have the shape"),
        ({}, {"features": MeanPool(2)}, "mean-pool"),
    ],
)
def test_data_that_it_is_not_for(tmp_path, changes, recipe, message):
    with pytest.raises(ValueError, match=message):
        trained(tmp_path, replace(RECIPE, **recipe), dots(**changes))
    assert not (tmp_path / "run").exists()


def test_first_rows_and_a_ledger(tmp_path):
    book = Ledger(tmp_path / "l.db")
    book.create("dots", Budget(50.0, 1e-5))
    with pytest.raises(ValueError, match="rows must be left out"):
        trained(tmp_path, data=dots(rows=SIZE), ledger=book, dataset="dots")


def test_features_must_be_public():
    with pytest.raises(ValueError, match="features must be public ones"):
        replace(RECIPE, features=PrivatePCA(2, noise_multiplier=1.0))


def test_wavelets_before_it_are_named_on_record(tmp_path):
    data = load_dataset("digits")
    few = Examples(data.train.inputs[:50], data.train.labels[:50])
    recipe = FunctionalRecipe(1.0, features=ScatteringFeatures(), centred=False, rounds=1)
    made = trained(tmp_path, recipe, replace(data, train=few))
    assert "function of each row alone" in made.record.parameters["plan"]["arithmetic"]


def test_whoever_watches_is_told_what_features_are_for(tmp_path):
    class Watching:
        told = ()

        def preparing(self, what, done, total):
            self.told = (*self.told, what)

        def evaluated(self, point):
            pass

        def steps(self):
            return False

    data, watching = load_dataset("digits"), Watching()
    few = Examples(data.train.inputs[:50], data.train.labels[:50])
    recipe = FunctionalRecipe(1.0, features=MeanPool(2), rounds=1)
    trained(tmp_path, recipe, replace(data, train=few), observer=watching)
    assert set(watching.told) == {"features to train on"}
