"""Runs: what they leave, who pays, what is told, and that they learn something."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.data import Examples
from sfumato.learning.autoencoder import (
    AutoEncoderRecipe,
    learning,
    plan_of,
    planned,
    read_autoencoder,
    train_autoencoder,
)
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded

RECIPE = AutoEncoderRecipe(widths=(8,), epsilon=4.0)
DESCENT = replace(RECIPE, way="dp-sgd", lot_size=256, epochs=4, rate=0.05)


def trained(recipe, data, path, **more):
    return train_autoencoder(recipe, data, out=path, coins=SeededCoins(1), **more)


@pytest.mark.parametrize(
    ("recipe", "error", "accuracy"),
    [(RECIPE, 0.5, 0.8), (replace(RECIPE, widths=(10, 8), epsilon=30.0), 0.8, 0.8),
     (DESCENT, 0.95, 0.6)],
    ids=["functional", "deep", "dp-sgd"],
)  # fmt: skip
def test_a_run_and_its_folder(bars, tmp_path, recipe, error, accuracy):
    made = trained(recipe, bars, tmp_path / "run")
    assert made.errors.mean_squared < error * made.errors.of_the_mean
    assert made.accuracy > accuracy
    record = json.loads(made.folder.record_file.read_text())
    assert record["method"] == "autoencoder"
    assert 0.99 * recipe.epsilon < record["guarantee"]["epsilon"] <= recipe.epsilon
    assert record["facts"]["accuracy"] == made.accuracy
    assert record["facts"]["reconstruction_mean_squared"] == made.errors.mean_squared
    assert record["private"] is False  # seeded coins
    assert (made.folder.path / "reconstructions.png").read_bytes()[:4] == b"\x89PNG"
    found, network = read_autoencoder(RunFolder(tmp_path / "run"))
    assert found == recipe
    inputs = inputs_of(bars.test.inputs, bars.bounds)
    with torch.no_grad():
        assert torch.equal(network(inputs), made.model(inputs))
        assert torch.equal(network.scores(inputs), made.model.scores(inputs))
        assert network(inputs).shape == inputs.shape


def test_more_noise_is_worse_and_none_is_least_squares(bars, tmp_path):
    errors = [
        trained(
            replace(RECIPE, head="none", epsilon=epsilon), bars, tmp_path / f"{epsilon}"
        ).errors.mean_squared
        for epsilon in (0.2, 2.0, 1e6)
    ]
    assert errors[2] < errors[1] < errors[0]
    plan = plan_of(replace(RECIPE, head="none", epsilon=1e6), bars)
    rows = inputs_of(bars.train.inputs, bars.bounds).flatten(1).double().numpy()
    network, codes = learning.learn_layers(replace(RECIPE, head="none"), plan, rows, SeededCoins(2))
    fit = np.linalg.lstsq(codes, rows - 0.5, rcond=None)[0]
    best = np.mean((np.clip(0.5 + codes @ fit, 0, 1) - rows) ** 2)
    with torch.no_grad():
        found = network(torch.from_numpy(rows).float()).numpy()
    assert np.mean((found - rows) ** 2) == pytest.approx(best, rel=0.01)


def test_one_charge_pays_for_all_before_a_row_is_read(bars, tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("bars", Budget(5.0, 1e-4))
    made = trained(RECIPE, bars, tmp_path / "a", ledger=ledger, dataset="bars")
    assert made.record.facts["ledger"]["dataset"] == "bars"
    spent = ledger.status("bars")
    monkeypatch.setattr(learning, "learn_layers", None)  # must not be come to
    with pytest.raises(BudgetExceeded):
        trained(RECIPE, bars, tmp_path / "b", ledger=ledger, dataset="bars")
    assert not (tmp_path / "b").exists()
    assert ledger.status("bars").to_dict() == spent.to_dict()


def test_nothing_is_spent_on_bad_parameters(bars, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("bars", Budget(5.0, 1e-4))
    before = ledger.status("bars").to_dict()
    pay = {"ledger": ledger, "dataset": "bars"}
    bad = [
        (RECIPE, replace(bars, public_size=None), "public_size"),
        (RECIPE, replace(bars, owners=np.zeros(3000)), "owners"),
        (RECIPE, replace(bars, rows=3000), "rows"),
        (replace(DESCENT, lot_size=9999), bars, "lot_size"),
    ]
    for recipe, data, said in bad:
        with pytest.raises(ValueError, match=said):
            trained(recipe, data, tmp_path / "run", **pay)
    assert ledger.status("bars").to_dict() == before
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("recipe", [RECIPE, DESCENT], ids=["functional", "dp-sgd"])
def test_results_on_private_rows_are_the_curators(bars, tmp_path, recipe):
    made = trained(recipe, replace(bars, test_is_public=False), tmp_path / "run")
    told = made.folder.record_file.read_text()
    assert "accuracy" not in told
    assert "mean_squared" not in told
    assert not (made.folder.path / "reconstructions.png").exists()
    assert (made.folder.curator / "reconstructions.png").exists()
    kept = made.folder.read_curator("results.json")
    assert kept["accuracy"] == made.accuracy
    assert os.stat(made.folder.curator).st_mode & 0o077 == 0


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_neighbouring_tables_differ_in_released_values_alone(bars, tmp_path, neighbours):
    """A row of nonsense, with a class that there is not, changes no word of the record."""
    recipe = replace(RECIPE, neighbours=neighbours)
    inputs, labels = (np.array(part) for part in bars.train)
    if neighbours == "replace-one":
        inputs, labels = inputs.astype(float), labels.copy()
        inputs[0], labels[0] = np.nan, 99
    else:
        inputs, labels = inputs[1:], labels[1:]
    data = replace(bars, test_is_public=False)
    runs = [
        trained(recipe, one, tmp_path / name)
        for one, name in ((data, "a"), (replace(data, train=Examples(inputs, labels)), "b"))
    ]
    first, second = (run.folder.record() for run in runs)
    assert first == second
    names = [sorted(p.name for p in run.folder.path.rglob("*")) for run in runs]
    assert names[0] == names[1]


def test_an_empty_table_is_learnt_from_like_any_other(bars, tmp_path):
    empty = replace(bars, train=Examples(bars.train.inputs[:0], bars.train.labels[:0]))
    made = trained(RECIPE, empty, tmp_path / "run")
    assert torch.isfinite(made.model(torch.rand(2, 1, 4, 4))).all()


def test_rows_of_numbers_without_classes(tmp_path, bars):
    inputs = bars.train.inputs.reshape(3000, 16)
    data = replace(
        bars, train=Examples(inputs, bars.train.labels / 2), classes=(), shape=(16,),
        test=Examples(inputs[:50], bars.train.labels[:50] / 2), target_bounds=(0.0, 1.0),
    )  # fmt: skip
    with pytest.raises(ValueError, match="head must be 'none'"):
        trained(RECIPE, data, tmp_path / "a")
    made = trained(replace(RECIPE, head="none"), data, tmp_path / "b")
    assert made.accuracy is None
    assert not (made.folder.path / "reconstructions.png").exists()
    with pytest.raises(ValueError, match="no classifier"):
        made.model.scores(torch.zeros(1, 16))
    assert read_autoencoder(made.folder)[1].head is None


def test_system_coins_make_a_private_record(bars, tmp_path, steady_coins):
    made = train_autoencoder(replace(RECIPE, head="none"), bars, out=tmp_path / "run")
    assert made.record.private is True


def test_another_methods_run_is_refused(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin({})
    made = {
        "method": "erm", "parameters": {}, "private": True, "facts": {}, "software": {},
        "event": {"kind": "gaussian", "noise_multiplier": 1.0, "neighbours": "add-remove",
                  "unit": "record"},
        "guarantee": {"epsilon": 1.0, "delta": 0.0, "neighbours": "add-remove", "unit": "record"},
    }  # fmt: skip
    folder.write_record(made)
    with pytest.raises(ValueError, match="run of autoencoder"):
        read_autoencoder(folder)


# --- what must not fail a run, and what must before it is paid for --------------------------------


def painted(data, channels):
    """The same pictures with so many channels."""
    parts = [Examples(np.repeat(x, channels, axis=3), y) for x, y in (data.train, data.test)]
    return replace(data, train=parts[0], test=parts[1], shape=(4, 4, channels))


@pytest.mark.parametrize(("channels", "drawn"), [(1, True), (2, False), (3, True), (5, False)])
def test_a_picture_of_what_can_be_shown(bars, tmp_path, channels, drawn):
    recipe = replace(RECIPE, widths=(2,), head="none", rounds=1)
    made = trained(recipe, painted(bars, channels), tmp_path / "run")
    assert (made.folder.path / "reconstructions.png").exists() is drawn
    assert made.folder.finished


def test_a_picture_that_cannot_be_drawn_fails_no_run(bars, tmp_path, monkeypatch):
    def broken(*_, **__):
        assert (tmp_path / "run" / "record.json").exists()  # all else is written by then
        assert (tmp_path / "run" / "model.safetensors").exists()
        raise RuntimeError("no fonts")

    monkeypatch.setattr("sfumato.learning.autoencoder.training.reconstruction_picture", broken)
    made = trained(replace(RECIPE, head="none"), bars, tmp_path / "run")
    assert made.folder.finished
    assert not (tmp_path / "run" / "reconstructions.png").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": (4, 5, 1)}, "must have the shape"),
        ({"shape": (16,)}, "must have the shape"),
        ({"train": Examples(np.zeros((5, 4, 4, 1)), np.zeros(4, int))}, "as many as inputs"),
        ({"test": Examples(np.zeros((5, 4, 3, 1)), np.zeros(5, int))}, "inputs to test on"),
        ({"owners": np.arange(3000)}, "owners"),
    ],
)
def test_arrays_are_checked_before_anything_is_charged(bars, tmp_path, changes, words):
    book, data = Ledger(tmp_path / "l.db"), replace(bars, **changes)
    book.create("bars", Budget(9.0, 1e-4))
    with pytest.raises(ValueError, match=words):
        trained(RECIPE, data, tmp_path / "run", ledger=book, dataset="bars")
    assert book.status("bars").left == pytest.approx(9.0)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=words):
        plan_of(RECIPE, data)


def test_rows_that_are_too_wide_are_refused_by_the_plan():
    assert planned(RECIPE, 2**16, 100, 2).records == 100
    with pytest.raises(ValueError, match="65536"):
        planned(RECIPE, 2**16 + 1, 100, 2)
