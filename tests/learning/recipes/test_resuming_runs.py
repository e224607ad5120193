"""Runs that were cut off and went on: nothing released twice, charged twice or taken twice."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.dp_sgd import PerLayer
from sfumato.learning.features import PrivatePCA
from sfumato.learning.recipes import Rate, load_run, training
from sfumato.learning.recipes.inputs import inputs_of
from sfumato.ledger import LedgerError

STEPS = 6
FITTED = "features.safetensors"


@pytest.fixture
def fits(monkeypatch):
    """How often components were fitted; ``stop`` cuts a fit off when its noise is drawn."""
    fit, seen = PrivatePCA.fit, {"times": 0, "stop": False}

    def noted(self, module, inputs, coins):
        seen["times"] += 1
        fit(self, module, inputs, coins)
        if seen["stop"]:
            raise KeyboardInterrupt

    monkeypatch.setattr(PrivatePCA, "fit", noted)
    return seen


def steps_of(noise, groups=2):
    """Finished steps: a linear model asks for noise twice each."""
    return len(noise.asked) // groups


def go_on(toy, out, data=None, **more):
    """With other coins, as after a crash."""
    noise = toy.Noted(seed=5)
    own = {"resume": True, "coins": SeededCoins(9), "noise": noise} | more
    return toy.train(None, data, out=out, **own), noise


# --- steps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 4])
def test_no_step_is_taken_twice(toy, tmp_path, every):
    """Cut off in the fourth step, whose noise was drawn: it counts as taken."""
    before = toy.Noted(stop=7)
    toy.cut_off(tmp_path / "a", noise=before, checkpoint_every=every)
    trained, after = go_on(toy, tmp_path / "a", checkpoint_every=every)
    assert steps_of(before) == 3
    assert steps_of(after) == STEPS - 4
    lost = 1 if every == 1 else 4
    assert trained.record.facts["steps_lost"] == lost
    plan = trained.record.parameters["plan"]
    assert plan["steps"] == STEPS  # all of which were paid for
    assert trained.record.guarantee == toy.recipe().plan(toy.declared).guarantee


def test_the_curve_keeps_its_earlier_points(toy, tmp_path):
    watcher = toy.Watcher(stop=4)
    with pytest.raises(KeyboardInterrupt):
        toy.train(out=tmp_path / "a", observer=watcher, evaluations=6)
    # The point at which it was cut off was not written.
    earlier = watcher.points[:3]
    trained, _ = go_on(toy, tmp_path / "a", evaluations=6)
    assert list(trained.points[:3]) == earlier
    assert [p.step for p in trained.points] == [1, 2, 3, 5, 6]
    assert trained.record.facts["curve"] == [p.to_dict() for p in trained.points]
    stored = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert stored["curve"] == trained.record.facts["curve"]


def test_the_recipe_is_the_one_that_it_began_with(toy, tmp_path):
    recipe = toy.pca(
        optimizer="adam", rate=Rate(0.1, end=0.01, epochs=0.2), ema_decay=0.9, clip=PerLayer(2.0),
        model="mlp", model_options={"hidden": 4},
    )  # fmt: skip
    toy.cut_off(tmp_path / "a", recipe, noise=toy.Noted(stop=9))
    trained, _ = go_on(toy, tmp_path / "a")
    assert trained.record.parameters["recipe"] == json.loads(json.dumps(recipe.to_dict()))
    run = load_run(tmp_path / "a")
    inputs = torch.rand(5, 6)
    assert torch.equal(run.model(inputs), trained.model(inputs))


def test_a_finished_run_is_not_resumed(toy, tmp_path):
    toy.train(out=tmp_path / "a")
    with pytest.raises(ValueError, match="came to its end"):
        go_on(toy, tmp_path / "a")
    with pytest.raises(ValueError, match="must hold a run"):
        go_on(toy, tmp_path / "b")
    with pytest.raises(ValueError, match="give out"):
        go_on(toy, None)
    assert not (tmp_path / "b").exists()


def test_another_number_of_records_is_another_run(toy, tmp_path):
    toy.cut_off(tmp_path / "a")
    with pytest.raises(ValueError, match="another plan"):
        go_on(toy, tmp_path / "a", public_size=151)
    with pytest.raises(ValueError, match="another plan"):
        go_on(toy, tmp_path / "a", replace(toy.data(), public_size=151))
    trained, _ = go_on(toy, tmp_path / "a")  # nothing was lost by asking
    assert trained.record.facts["steps_lost"] == 1


def test_test_coins_stay_on_the_record(toy, tmp_path):
    toy.cut_off(tmp_path / "a")
    trained, _ = go_on(toy, tmp_path / "a", coins=SYSTEM, noise=None)
    assert trained.record.private is False


def test_a_run_cut_off_in_its_rehearsal_leaves_nothing(toy, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_losses", interrupted)
    with pytest.raises(KeyboardInterrupt):
        toy.train(out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


# --- features -------------------------------------------------------------------------------------


def test_components_are_not_fitted_again(toy, tmp_path, fits):
    toy.cut_off(tmp_path / "a", toy.pca())
    kept = (tmp_path / "a" / "curator" / FITTED).read_bytes()
    trained, after = go_on(toy, tmp_path / "a")
    assert fits["times"] == 1
    assert (tmp_path / "a" / "curator" / FITTED).read_bytes() == kept
    assert steps_of(after) == STEPS - 4
    assert trained.model[0].basis.abs().sum() > 0


def test_components_whose_fit_died_unseen_are_fitted_again(toy, tmp_path, fits, ledger):
    """Their noise left no trace; the step that it was for counts as taken, and is not charged."""
    own = {"ledger": ledger, "dataset": "people"}
    fits["stop"] = True
    with pytest.raises(KeyboardInterrupt):
        toy.train(toy.pca(), out=tmp_path / "a", **own)
    assert not (tmp_path / "a" / "curator" / FITTED).exists()
    assert not list((tmp_path / "a" / "curator").glob(".*"))
    fits["stop"] = False
    trained, after = go_on(toy, tmp_path / "a", **own)
    assert fits["times"] == 2
    assert trained.record.facts["steps_lost"] == 1
    assert steps_of(after) == STEPS - 1
    kinds = [entry.kind for entry in ledger.history("people") if entry.kind != "resume"]
    assert kinds == ["open", "plan", "reserve", "commit"]


def test_components_that_are_missing_are_not_drawn_afresh(toy, tmp_path, fits):
    """Weights were trained on the first ones: a second release is not paid for."""
    toy.cut_off(tmp_path / "a", toy.pca())
    (tmp_path / "a" / "curator" / FITTED).unlink()
    with pytest.raises(ValueError, match="restore curator/"):
        go_on(toy, tmp_path / "a")
    assert fits["times"] == 1


@pytest.mark.parametrize("ema", [None, 0.5])
@pytest.mark.parametrize("stop", ["after the last step", "before its end"])
def test_a_run_cut_off_after_its_last_lot_was_read(toy, tmp_path, ema, stop):
    """Only files are left to write: with the features that it was trained on."""
    recipe, data = toy.pca(ema_decay=ema), toy.data()
    whole = toy.train(recipe, data, out=tmp_path / "whole", checkpoint_every=1)
    if stop == "before its end":  # the last step is lost
        toy.cut_off(tmp_path / "a", recipe, noise=toy.Noted(stop=2 * STEPS), checkpoint_every=1)
    else:
        watcher = toy.Watcher(stop=STEPS)
        with pytest.raises(KeyboardInterrupt):
            toy.train(recipe, data, out=tmp_path / "a", observer=watcher, checkpoint_every=1)
    trained, after = go_on(toy, tmp_path / "a", checkpoint_every=1)
    assert after.asked == []
    assert torch.equal(trained.model[0].basis, whole.model[0].basis)
    same = torch.equal(trained.model[1][1].weight, whole.model[1][1].weight)
    assert same == (stop == "after the last step")
    inputs = inputs_of(data.test.inputs, data.bounds)
    assert torch.equal(load_run(tmp_path / "a").model(inputs), trained.model(inputs))
    right = (trained.model(inputs).argmax(1).numpy() == data.test.labels).mean()
    assert trained.accuracy == trained.record.facts["accuracy"] == pytest.approx(right)


# --- ledgers --------------------------------------------------------------------------------------


def test_it_is_charged_once(toy, tmp_path, ledger):
    own = {"ledger": ledger, "dataset": "people"}
    toy.cut_off(tmp_path / "a", toy.pca(), **own)
    left = ledger.status("people").left
    trained, _ = go_on(toy, tmp_path / "a", **own)
    kinds = [entry.kind for entry in ledger.history("people") if entry.kind != "resume"]
    assert kinds == ["open", "plan", "reserve", "commit"]
    assert ledger.status("people").left == left
    assert left == pytest.approx(50 - trained.record.guarantee.epsilon, abs=1e-6)


def test_it_does_not_go_on_without_its_ledger_or_twice(toy, tmp_path, ledger):
    own = {"ledger": ledger, "dataset": "people"}
    toy.cut_off(tmp_path / "a", **own)
    with pytest.raises(LedgerError, match="make the trainer with that ledger"):
        go_on(toy, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    go_on(toy, tmp_path / "a", **own)
    with pytest.raises(LedgerError):
        go_on(toy, tmp_path / "copy", **own)


def test_a_run_that_is_at_work_is_not_taken_up_beside(toy, tmp_path):
    class Beside(toy.Watcher):
        def evaluated(self, point):
            with pytest.raises(ValueError, match="another trainer is at work"):
                go_on(toy, tmp_path / "a")
            self.points.append(point)

    watcher = Beside()
    toy.train(out=tmp_path / "a", observer=watcher, evaluations=1)
    assert len(watcher.points) == 1
