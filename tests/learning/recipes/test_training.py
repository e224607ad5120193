"""A run by its recipe: what it leaves, what of it is public, and what it is charged for."""

import gc
import json
import re

import numpy as np
import pytest
import torch

from sfumato.accounting import account
from sfumato.core.events import event_from_dict
from sfumato.core.randomness import SYSTEM
from sfumato.data.first_rows import first_rows
from sfumato.learning.dp_sgd import PoissonLots
from sfumato.learning.features import StandardizedScattering
from sfumato.learning.recipes import Recipe, load_run, preparing, train
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.ledger import BudgetExceeded


def kinds(ledger):
    """Of all entries but turns."""
    return [entry.kind for entry in ledger.history("people") if entry.kind != "resume"]


@pytest.fixture
def doors(monkeypatch, ledger):
    """What the ledger held whenever inputs were read."""
    seen = []

    def noted(values, bounds):
        seen.append(kinds(ledger))
        return inputs_of(values, bounds)

    monkeypatch.setattr(preparing, "inputs_of", noted)
    return seen


def test_rows_do_not_outlive_the_run(toy):
    """On a GPU, what waits for the collector of cycles is room that the next run lacks."""
    toy.train()  # which imports
    gc.collect()
    gc.disable()
    try:
        toy.train(data=toy.data(139))
        alive = [x for x in gc.get_objects() if type(x) is torch.Tensor and x.shape[:1] == (139,)]
    finally:
        gc.enable()
    assert alive == []


# --- what it leaves -------------------------------------------------------------------------------


def test_the_record_says_what_was_done(toy, tmp_path):
    recipe = toy.pca(origin="Abadi et al.")
    trained = toy.train(recipe, out=tmp_path / "a")
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record == json.loads(json.dumps(trained.record.to_dict()))
    assert record["method"] == "dp-sgd"
    assert Recipe.from_dict(record["parameters"]["recipe"]) == recipe
    plan = recipe.plan(toy.declared)
    assert record["parameters"]["plan"] == json.loads(json.dumps(plan.to_dict()))
    assert event_from_dict(record["event"]) == plan.event
    assert record["guarantee"] == plan.guarantee.to_dict()
    facts = record["facts"]
    assert facts["tuning"] == "Abadi et al."
    assert facts["test_set"] == "public"
    assert facts["data"]["public_size"] == toy.declared
    assert facts["data"]["classes"] == ["no", "yes"]
    assert "learned from the private rows, and charged" in facts["public_features"]
    assert facts["arithmetic"] == "floating point, ideal Gaussian assumed"
    assert facts["steps_lost"] == 0
    assert {"python", "sfumato", "torch"} <= record["software"].keys()


def test_the_guarantee_covers_the_features(toy):
    with_pca, without = toy.train(toy.pca()).record, toy.train().record
    before = toy.pca().features.event("add-remove", "record")
    assert with_pca.event.events[0] == before
    assert with_pca.guarantee.epsilon == account(with_pca.event, 1e-3).epsilon
    assert with_pca.guarantee.epsilon > without.guarantee.epsilon + 0.01


def test_nothing_private_is_in_the_record(toy, tmp_path):
    """Neither a loss nor the true number of rows (137, of 150 that were declared)."""
    toy.train(out=tmp_path / "a", data=toy.data(137, test_is_public=False))
    text = (tmp_path / "a" / "record.json").read_text()
    assert not re.search(r"\b137\b|loss|clipped|signal|accura|curve", text)
    results = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert len(results["training"]["loss"]) == 6
    assert all(results["training"]["signal_to_noise"])


def test_seeded_coins_are_stamped_and_the_system_s_are_not(toy, tmp_path):
    assert toy.train(out=tmp_path / "a").record.private is False
    assert "NOT PRIVATE" in (tmp_path / "a" / "record.json").read_text()
    assert toy.train(coins=SYSTEM).record.private is False  # noise of a test
    assert toy.train(noise=None).record.private is False  # coins of a test
    toy.train(out=tmp_path / "b", noise=None, coins=SYSTEM)
    record = json.loads((tmp_path / "b" / "record.json").read_text())
    assert record["private"] is True
    assert "warning" not in record


def test_accuracy_on_public_rows_is_public(toy, tmp_path):
    trained = toy.train(out=tmp_path / "a")
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record["facts"]["accuracy"] == trained.accuracy == trained.points[-1].accuracy
    assert [p["step"] for p in record["facts"]["curve"]] == [2, 4, 6]
    assert trained.accuracy_is_public
    epsilons = [p["epsilon"] for p in record["facts"]["curve"]]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == pytest.approx(trained.record.guarantee.epsilon, rel=1e-3)


def test_accuracy_on_private_rows_is_the_curator_s(toy, tmp_path):
    trained = toy.train(out=tmp_path / "a", data=toy.data(test_is_public=False))
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert not {"accuracy", "curve"} & record["facts"].keys()
    assert record["facts"]["test_set"].startswith("none that is public")
    assert not trained.accuracy_is_public
    results = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert results["curve"][-1]["accuracy"] == trained.accuracy


def test_whether_there_are_private_rows_to_test_on_is_private(toy, tmp_path):
    for name, test in (("a", 40), ("b", 0)):
        toy.train(out=tmp_path / name, data=toy.data(test=test, test_is_public=False))
    one, two = ((tmp_path / name / "record.json").read_bytes() for name in "ab")
    assert one == two


def test_the_curator_s_folder_is_for_its_owner(toy, tmp_path):
    toy.train(toy.pca(), out=tmp_path / "a")
    files = toy.files(tmp_path / "a")
    assert {name for name in files if "/" not in name} == {
        "curator", "model.safetensors", "record.json"
    }  # fmt: skip
    assert files.pop("record.json") == files.pop("model.safetensors") == "0o644"
    folders = {"curator", "curator/checkpoints"}
    assert {files.pop(name) for name in folders} == {"0o700"}
    assert set(files.values()) == {"0o600"}
    names = ("request.json", "results.json", "curve.json", "features.safetensors")
    assert {f"curator/{name}" for name in names} <= files.keys()
    assert not [name for name in files if name.endswith(".new")]


@pytest.mark.parametrize("ema", [None, 0.5])
def test_a_run_is_read_back_with_the_same_predictions(toy, tmp_path, ema):
    data = toy.data()
    trained = toy.train(toy.pca(ema_decay=ema), data, out=tmp_path / "a")
    run = load_run(tmp_path / "a")
    inputs = inputs_of(data.test.inputs, data.bounds)
    assert torch.equal(run.model(inputs), trained.model(inputs))
    scores = run.scores(data.test.inputs)
    assert np.mean(scores.argmax(1) == data.test.labels) == trained.accuracy
    assert run.record.to_dict() == json.loads(json.dumps(trained.record.to_dict()))
    assert run.classes == ("no", "yes")
    assert trained.model[0].basis.abs().sum() > 0


def test_images_go_through_public_and_fitted_features(toy, tmp_path):
    data = toy.data(shape=(8, 8, 1))
    recipe = toy.recipe(features=StandardizedScattering(20.0), steps=2)
    trained = toy.train(recipe, data, out=tmp_path / "a")
    inputs = inputs_of(data.test.inputs, data.bounds)
    assert inputs.shape == (40, 1, 8, 8)
    assert torch.equal(load_run(tmp_path / "a").model(inputs), trained.model(inputs))
    assert trained.record.event.events[0] == recipe.features.event("add-remove", "record")


def test_it_learns(toy):
    trained = toy.train(toy.recipe(steps=30, noise_multiplier=0.5), toy.data(test=200))
    assert trained.accuracy > 0.9


def test_a_run_that_is_not_kept(toy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert toy.train().folder is None
    assert list(tmp_path.iterdir()) == []


# --- what it is charged ---------------------------------------------------------------------------


def test_first_rows_are_no_table_of_their_own_under_add_remove(toy, ledger):
    part = first_rows(toy.data(), 60)
    with pytest.raises(ValueError, match="moves another into the first rows"):
        train(toy.recipe(), part, ledger=ledger, dataset="people")
    assert kinds(ledger) == ["open"]
    assert train(toy.recipe(), part, evaluations=0).folder is None  # nobody's budget


def test_it_is_charged_once_before_a_row_is_read(toy, tmp_path, ledger, doors):
    recipe = toy.pca()
    trained = toy.train(recipe, out=tmp_path / "a", ledger=ledger, dataset="people", analyst="ann")
    assert kinds(ledger) == ["open", "plan", "reserve", "commit"]
    assert doors == [["open", "plan", "reserve"]] * 2  # to train on, to test on
    whole = recipe.plan(toy.declared).guarantee.epsilon
    assert ledger.status("people").left == pytest.approx(50 - whole, abs=1e-6)
    reserve = ledger.history("people")[2]
    assert trained.record.facts["ledger"] == {"dataset": "people", "entry": reserve.sequence}
    assert event_from_dict(reserve.data["request"]["before"]) == trained.record.event.events[0]


def test_a_refusal_spends_nothing_reads_nothing_and_leaves_no_folder(
    toy, tmp_path, small_ledger, doors
):
    out = tmp_path / "runs" / "a"
    with pytest.raises(BudgetExceeded):
        toy.train(toy.pca(), out=out, ledger=small_ledger, dataset="people")
    assert kinds(small_ledger) == ["open"]
    assert doors == []
    assert not out.parent.exists()
    toy.train(out=out)  # and the place is free


def test_a_folder_that_was_there_stays(toy, tmp_path, small_ledger):
    out = tmp_path / "mine"
    out.mkdir()
    with pytest.raises(BudgetExceeded):
        toy.train(out=out, ledger=small_ledger, dataset="people")
    assert list(out.iterdir()) == []


def test_a_budget_for_others_is_refused(toy, tmp_path, ledger):
    with pytest.raises(ValueError, match="protects one record, the run one person"):
        toy.train(
            toy.recipe(unit="person"), out=tmp_path / "a", ledger=ledger, dataset="people"
        )  # fmt: skip
    assert not (tmp_path / "a").exists()
    assert kinds(ledger) == ["open"]


# --- refusals -------------------------------------------------------------------------------------


def test_an_existing_run_is_not_overwritten(toy, tmp_path):
    toy.train(out=tmp_path / "a")
    before = {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}
    with pytest.raises(ValueError, match="holds a finished run"):
        toy.train(out=tmp_path / "a")
    assert before == {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}
    toy.cut_off(tmp_path / "b")
    with pytest.raises(ValueError, match="sfumato train resume"):
        toy.train(out=tmp_path / "b")
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="neither"):
        toy.train(out=tmp_path / "c")


@pytest.mark.parametrize(
    ("recipe", "more", "said"),
    [
        ({"model": "nope"}, {}, "model must be one of"),
        ({"model_options": {"width": 3}}, {}, "option of 'linear'"),
        ({"model_options": {"hidden": {1}}, "model": "mlp"}, {}, "hidden must be"),
        ({"momentum": 1.5}, {}, "momentum must be below 1"),
        ({"weight_decay": -1.0}, {}, "weight_decay must be"),
        ({"batch_size": 0}, {}, "batch_size must be"),
        ({"augment": "flip"}, {}, "augment must be left out where inputs are no images"),
        ({"augmentations": 2}, {}, "there is no augment"),
        ({"rows_per_owner": 2}, {}, "rows_per_owner must be 1 without owners"),
        ({"lot_size": 151}, {}, "lot_size must be at most"),
        ({"delta": 0.1}, {}, "delta must be well below 1"),
        ({"lots": "shuffled", "neighbours": "zero-out"}, {}, "available must be the declared"),
        ({}, {"evaluations": -1}, "evaluations must be"),
        ({}, {"checkpoint_every": 0}, "checkpoint_every must be"),
        ({}, {"public_size": 0}, "public_size must be"),
        ({}, {"dataset": "people"}, "ledger and dataset belong together"),
        ({}, {"request": {"x": object()}}, "must be JSON"),
    ],
)
def test_bad_parameters_leave_no_folder(toy, tmp_path, recipe, more, said):
    with pytest.raises(ValueError, match=said):
        toy.train(toy.recipe(**recipe), out=tmp_path / "runs" / "a", **more)
    assert list(tmp_path.iterdir()) == []


def test_nobody_declared_how_many(toy, tmp_path):
    with pytest.raises(ValueError, match="public_size must be declared"):
        toy.train(data=toy.data(public_size=None), out=tmp_path / "a")
    trained = toy.train(data=toy.data(public_size=None), public_size=140)
    assert trained.record.parameters["plan"]["lots"] == PoissonLots(15, 140).to_dict()


def test_a_model_that_is_code_is_loaded_only_on_demand(toy, tmp_path, monkeypatch):
    (tmp_path / "clinic_nets.py").write_text(
        "from torch import nn\n"
        "def small(shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    toy.train(toy.recipe(model="clinic_nets:small"), out=tmp_path / "a")
    with pytest.raises(ValueError, match="'clinic_nets:small', and importing it runs its code"):
        load_run(tmp_path / "a")
    assert load_run(tmp_path / "a", run_code=True).model[1][1].weight.shape == (2, 6)


def test_the_last_point_of_the_curve_costs_what_the_run_does(toy):
    trained = toy.train(toy.recipe(steps=40))
    assert trained.points[-1].epsilon == trained.record.guarantee.epsilon
