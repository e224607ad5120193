"""Runs of the adaptive Laplace mechanism: what is released, who pays, and what stays private."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.core.events import GaussianEvent, dp_sgd
from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, Examples
from sfumato.learning.adaptive_laplace import (
    AdaptiveLaplaceRecipe,
    learn_again,
    train_adaptive_laplace,
    training,
)
from sfumato.learning.adaptive_laplace.learning import Told, centroid_scores, class_means
from sfumato.learning.adaptive_laplace.run_models import read_adaptive_laplace
from sfumato.learning.adaptive_laplace.training import planned
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.learning.relevance import KnownModel
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded

SIZE, RECIPE = 600, AdaptiveLaplaceRecipe(200.0)


def examples(rng, count):
    labels = rng.integers(0, 3, count)
    rows = 0.1 * rng.random((count, 4, 4, 1))
    rows[np.arange(count), labels, :, 0] += 0.8
    return Examples(rows.astype(np.float32), labels)


def stripes(public=True, **changes):
    rng = np.random.default_rng(7)
    made = Dataset(
        "stripes", examples(rng, SIZE), examples(rng, 200), ("a", "b", "c"), (4, 4, 1), (0.0, 1.0),
        "made up", public_size=SIZE, test_is_public=public,
    )  # fmt: skip
    return replace(made, **changes)


def replaced(data, inputs, label):
    rows, labels = data.train.inputs.copy(), data.train.labels.copy()
    rows[5], labels[5] = inputs, label
    return replace(data, train=Examples(rows, labels))


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "l.db")
    book.create("stripes", Budget(3.0, 1e-5), neighbours="replace-one")
    return book


# --- what is learnt -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"relevance_share": 0.0}, {"labels": "one-hot"}, {"pool": 2, "epsilon": 50.0},
        {"model": "linear", "epochs": 20},
        {"model": "mlp", "options": {"hidden": 16}, "epochs": 200},
    ],
)  # fmt: skip
def test_with_much_epsilon_it_learns(changes, tmp_path):
    recipe = replace(RECIPE, **changes)
    trained = train_adaptive_laplace(recipe, stripes(), out=tmp_path / "a", coins=SeededCoins(1))
    assert trained.accuracy > (0.6 if recipe.pool == 2 else 0.9)
    assert not trained.record.private
    read, model = read_adaptive_laplace(trained.folder)
    assert read == recipe
    rows = inputs_of(stripes().test.inputs, (0.0, 1.0))
    assert torch.equal(model(rows), trained.model(rows))


def test_with_little_it_does_not(tmp_path):
    recipe = AdaptiveLaplaceRecipe(0.1)
    trained = train_adaptive_laplace(recipe, stripes(), out=tmp_path / "a", coins=SeededCoins(1))
    assert trained.accuracy < 0.6


def test_class_means_are_unbiased_and_their_noise_is_known():
    rng = np.random.default_rng(1)
    labels, scales = np.repeat([0, 1], 2000), np.array([0.5, 3.0])
    truth = np.array([[0.2, 0.8], [0.6, 0.4]])
    found = []
    for _ in range(200):
        rows = truth[labels] + rng.laplace(size=(4000, 2)) * scales
        one_hot = np.eye(2)[labels]
        told = Told(rows.astype(np.float32), scales, one_hot, one_hot)
        means, noise = class_means(told)
        found.append(means)
    assert np.mean(found, axis=0) == pytest.approx(truth, abs=0.03)
    assert np.var(found, axis=0) / noise == pytest.approx(np.ones((2, 2)), rel=0.35)
    weight, bias = centroid_scores(told)
    assert (weight >= 0).all()
    assert (weight <= 1).all()
    assert bias == pytest.approx(-(weight**2).sum(1) / 2)


def test_relevance_gives_inputs_that_matter_less_noise(tmp_path):
    rng = np.random.default_rng(3)
    rows = np.zeros((SIZE, 4, 4, 1), np.float32)
    rows[:, 0] = rng.random((SIZE, 4, 1))
    data = stripes(train=Examples(rows, rng.integers(0, 3, SIZE)))
    trained = train_adaptive_laplace(RECIPE, data, out=tmp_path / "a", coins=SeededCoins(1))
    shares = trained.shares.reshape(4, 4)
    assert shares[0].min() > 5 * shares[1:].max()
    assert shares.sum() == pytest.approx(16)
    assert trained.record.facts["shares"] == pytest.approx(shares.ravel().tolist(), abs=1e-5)


def test_other_models_of_what_was_told_are_free(tmp_path):
    trained = train_adaptive_laplace(RECIPE, stripes(), out=tmp_path / "a", coins=SeededCoins(1))
    again = learn_again(tmp_path / "a", RECIPE)
    for one, other in zip(again.parameters(), trained.model.parameters(), strict=True):
        assert torch.equal(one, other)
    learn_again(trained.folder, replace(RECIPE, model="linear", epochs=1))
    with pytest.raises(ValueError, match="finished run"):
        learn_again(tmp_path / "none", RECIPE)


def test_what_was_told_is_learnt_from_as_it_was_told(tmp_path):
    """The squares of pixels are the run's, whatever the recipe for the model says."""
    recipe = replace(RECIPE, pool=2, epsilon=50.0)
    trained = train_adaptive_laplace(recipe, stripes(), out=tmp_path / "a", coins=SeededCoins(1))
    rows = inputs_of(stripes().test.inputs, (0.0, 1.0))
    for other in (RECIPE, replace(RECIPE, pool=4), recipe):
        again = learn_again(tmp_path / "a", other)
        assert torch.equal(again(rows), trained.model(rows))


# --- what is promised, and who pays ---------------------------------------------------------------


def test_the_record_says_what_is_promised(tmp_path):
    trained = train_adaptive_laplace(AdaptiveLaplaceRecipe(2.0), stripes(), out=tmp_path / "a")
    record = trained.record
    assert (record.guarantee.epsilon, record.guarantee.delta) == (2.0, 0.0)
    assert record.guarantee.neighbours == "replace-one"
    assert record.private
    parts = record.facts["epsilons"]
    assert sum(parts.values()) == pytest.approx(2.0)
    local = record.facts["local_guarantee"]["epsilon"]
    assert local == pytest.approx(parts["inputs"] + parts["labels"])
    assert record.facts["relevance_by"]["says"].startswith("public: a 'mlp' drawn")
    stored = json.loads((tmp_path / "a" / "record.json").read_text())
    assert stored["facts"]["accuracy"] == trained.accuracy


def test_a_network_that_was_trained_on_the_records_costs_what_its_training_did(tmp_path, ledger):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    event = dp_sgd(noise_multiplier=4, sample_rate=0.1, steps=10)
    recipe = AdaptiveLaplaceRecipe(1.0)
    whole, promised = planned(recipe, stripes(), KnownModel.privately_trained(module, event))
    assert promised.epsilon > 1.0
    assert promised.delta == 1e-5
    left = []
    for charged in (True, False):
        name = f"charged-{charged}"
        ledger.create(name, Budget(6.0, 1e-5), neighbours="replace-one")
        known = KnownModel.privately_trained(module, event, charged=charged)
        trained = train_adaptive_laplace(
            recipe, stripes(), out=tmp_path / name, known=known, ledger=ledger, dataset=name
        )
        assert trained.record.event == whole
        assert trained.record.guarantee == promised
        left.append(ledger.status(name).left)
    assert left[0] == pytest.approx(5.0, abs=0.05)
    assert left[1] < left[0] - 0.3  # the training's part


def test_a_ledger_pays_first_and_a_refusal_leaves_nothing(tmp_path, ledger, monkeypatch):
    recipe = AdaptiveLaplaceRecipe(2.0)
    pay = {"ledger": ledger, "dataset": "stripes"}
    train_adaptive_laplace(recipe, stripes(), out=tmp_path / "a", **pay)
    assert ledger.status("stripes").left == pytest.approx(1.0, abs=0.05)

    def read(*_, **__):
        raise AssertionError("a row was read")

    monkeypatch.setattr(training, "_told", read)
    with pytest.raises(BudgetExceeded):
        train_adaptive_laplace(recipe, stripes(), out=tmp_path / "b", **pay)
    assert not (tmp_path / "b").exists()
    ledger.create("others", Budget(3.0, 1e-5))
    with pytest.raises(ValueError, match="add-remove"):
        train_adaptive_laplace(
            recipe, stripes(), out=tmp_path / "b", ledger=ledger, dataset="others"
        )
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model": "resnet"}, "model must be one of"),
        ({"pool": 9}, "pool must be"),
        ({"model": "cnn"}, "8"),
        ({"source": {"model": "transformer"}}, "model|shape"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_charged(changes, match, tmp_path, ledger):
    made = RECIPE.to_dict() | changes
    made["source"] = RECIPE.source.to_dict() | made["source"] | {"options": {}}
    recipe = AdaptiveLaplaceRecipe.from_dict(made | {"epsilon": 1.0})
    with pytest.raises(ValueError, match=match):
        train_adaptive_laplace(
            recipe, stripes(), out=tmp_path / "a", ledger=ledger, dataset="stripes"
        )
    assert ledger.status("stripes").left == pytest.approx(3.0)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"shape": (4, 5, 1)}, "must have the shape"),
        ({"shape": (16,)}, "must have the shape"),
        ({"train": Examples(np.zeros((5, 4, 4, 1)), np.zeros(4, int))}, "as many as inputs"),
        ({"test": Examples(np.zeros((5, 4, 3, 1)), np.zeros(5, int))}, "inputs to test on"),
    ],
)
def test_arrays_are_checked_before_anything_is_charged(changes, match, tmp_path, ledger):
    recipe, data = AdaptiveLaplaceRecipe(1.0), stripes(**changes)
    with pytest.raises(ValueError, match=match):
        planned(recipe, data)
    with pytest.raises(ValueError, match=match):
        train_adaptive_laplace(recipe, data, out=tmp_path / "a", ledger=ledger, dataset="stripes")
    assert ledger.status("stripes").left == pytest.approx(3.0)
    assert not (tmp_path / "a").exists()


def test_data_that_it_is_not_for(tmp_path):
    with pytest.raises(ValueError, match="owners must be left out"):
        train_adaptive_laplace(RECIPE, stripes(owners=np.arange(SIZE)), out=tmp_path / "a")
    with pytest.raises(ValueError, match="two classes"):
        train_adaptive_laplace(RECIPE, stripes(classes=("a",)), out=tmp_path / "a")
    small = KnownModel.public(nn.Sequential(nn.Flatten(), nn.Linear(9, 2)), "elsewhere")
    with pytest.raises(ValueError, match="does not take"):
        train_adaptive_laplace(RECIPE, stripes(), out=tmp_path / "a", known=small)
    private = KnownModel.privately_trained(nn.Sequential(nn.Linear(4, 2)), GaussianEvent(1.0))
    with pytest.raises(ValueError, match="relevance_share"):
        planned(replace(RECIPE, relevance_share=0.0), stripes(), private)
    assert not (tmp_path / "a").exists()


# --- what stays private ---------------------------------------------------------------------------


@pytest.mark.parametrize("row", [np.nan, np.inf, 1.0])
def test_a_neighbour_changes_nothing_but_what_is_released(row, tmp_path):
    """Same coins, one record replaced: the same files, facts, and draws."""
    recipe, found = AdaptiveLaplaceRecipe(1.0), []
    for name, data in (("a", stripes()), ("b", replaced(stripes(), row, -3))):
        coins = SeededCoins(4)
        trained = train_adaptive_laplace(recipe, data, out=tmp_path / name, coins=coins)
        record = trained.record.to_dict()
        for released in ("shares", "noise_scales", "accuracy"):
            record["facts"].pop(released)
        files = sorted(str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*"))
        found.append((record, files, coins.words(4).tolist()))
    assert found[0] == found[1]


def test_accuracy_on_private_rows_is_the_curators(tmp_path):
    trained = train_adaptive_laplace(RECIPE, stripes(public=False), out=tmp_path / "a")
    assert "accuracy" not in trained.record.facts
    assert not trained.accuracy_is_public
    kept = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert kept == {"accuracy": trained.accuracy}
    without = stripes(test=Examples(np.zeros((0, 4, 4, 1), np.float32), np.zeros(0, int)))
    trained = train_adaptive_laplace(RECIPE, without, out=tmp_path / "b")
    assert trained.accuracy is None
    assert trained.record.facts["test_set"] == "none"


@pytest.mark.parametrize("model", ["centroids", "linear"])
def test_a_table_without_rows_is_no_error(model, tmp_path):
    empty = stripes(train=Examples(np.zeros((0, 4, 4, 1), np.float32), np.zeros(0, int)))
    recipe = AdaptiveLaplaceRecipe(1.0, model=model)
    trained = train_adaptive_laplace(recipe, empty, out=tmp_path / "a", coins=SeededCoins(1))
    assert all(bool(w.isfinite().all()) for w in trained.model.parameters())


def test_one_record_is_told_by_itself(tmp_path):
    """Given the shares, another record moves what is told of nobody else."""
    recipe, told = AdaptiveLaplaceRecipe(1.0, relevance_share=0.0), []
    for name, data in (("a", stripes()), ("b", replaced(stripes(), 1.0, 2))):
        run = train_adaptive_laplace(recipe, data, out=tmp_path / name, coins=SeededCoins(4))
        told.append(run.folder.read_curator_tensors("told.safetensors"))
    for part in ("inputs", "unbiased", "likelihood"):
        others = np.arange(SIZE) != 5
        assert torch.equal(told[0][part][others], told[1][part][others])
    assert not torch.equal(told[0]["inputs"][5], told[1]["inputs"][5])


def test_more_inputs_than_relevance_can_be_told_of_are_refused_before_the_charge(
    tmp_path, monkeypatch
):
    from sfumato.learning.relevance import private
    from sfumato.learning.relevance.scaling import RelevanceScaling

    monkeypatch.setattr(private, "_MOST_INPUTS", 15)
    book = Ledger(tmp_path / "l.db")
    book.create("rows", Budget(300.0), neighbours="replace-one")
    data = stripes()
    with pytest.raises(ValueError, match="15 numbers a record at most, got 16"):
        train_adaptive_laplace(RECIPE, data, out=tmp_path / "a", ledger=book, dataset="rows")
    assert book.status("rows").left == pytest.approx(300.0)
    assert not (tmp_path / "a").exists()
    with pytest.raises(ValueError, match="15 numbers a record at most"):
        RelevanceScaling(1.0).build((1, 4, 4))
