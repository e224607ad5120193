"""Runs without privacy: the twin of a private run, and nothing of it that could pass for one."""

import json
import math
import re
import stat
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.core.events import NotPrivateEvent, event_from_dict
from sfumato.core.randomness import SeededCoins
from sfumato.core.records import UNPROTECTED
from sfumato.data import Examples, load_dataset
from sfumato.data.first_rows import first_rows
from sfumato.learning.ensembles import Schedule
from sfumato.learning.recipes import (
    Canaries,
    Rate,
    Recipe,
    load_run,
    plain_schedule,
    train_plain,
)
from sfumato.ledger import BudgetExceeded


def plain(toy, recipe=None, data=None, **more):
    """Few epochs, and little to see."""
    own = {"schedule": Schedule(3, 32), "observer": toy.Watcher(), "evaluations": 3}
    return train_plain(recipe or toy.recipe(), data or toy.data(), **(own | more))


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def numbers_of(trained):
    """What was measured, as JSON writes it: results that no record may hold."""
    measured = [point.accuracy for point in trained.points]
    measured += [trained.accuracy, trained.record.curator_view()["accuracy_on_own"]]
    return {json.dumps(value) for value in measured}


# --- what it is -----------------------------------------------------------------------------------


def test_a_small_network_learns_digits(toy):
    recipe = Recipe("cnn", 32, Rate(1.0), seed=1)
    schedule = plain_schedule(recipe, epochs=30, learning_rate=0.1)
    trained = plain(toy, recipe, load_dataset("digits"), schedule=schedule, evaluations=4)
    assert trained.accuracy > 0.9
    assert trained.record.curator_view()["accuracy_on_own"] > 0.98
    assert len(trained.points) == 4


def test_enough_epochs_overfit(toy):
    """Labels by coins are learned by heart."""
    generator = np.random.default_rng(0)
    noise = Examples(
        generator.random((60, 6), dtype=np.float32), generator.integers(0, 2, 60).astype(np.int64)
    )
    recipe = toy.recipe(model="mlp", model_options={"hidden": 128}, optimizer="adam")
    schedule = plain_schedule(recipe, epochs=400, batch_size=20, learning_rate=0.01)
    trained = plain(toy, recipe, toy.data(train=noise), schedule=schedule, evaluations=0)
    assert trained.record.curator_view()["accuracy_on_own"] == 1.0


def test_a_step_is_that_of_gradient_descent(toy):
    """One batch of all rows, one epoch: by hand, without clipping and without noise."""
    recipe, data = toy.recipe(), toy.data(shape=(6,))
    start = plain(toy, recipe, schedule=Schedule(1, 1000, rate=1e-30)).model[1]
    assert all(w.grad is None for w in start.parameters())
    weights = {name: w.detach().clone() for name, w in start.named_parameters()}
    rows = torch.from_numpy(data.train.inputs)
    loss = torch.nn.functional.cross_entropy(start(rows), torch.from_numpy(data.train.labels))
    loss.backward()
    schedule = Schedule(1, 1000, rate=0.3, weight_decay=0.0, warm_up=0.0)
    found = plain(toy, recipe, data, schedule=schedule).model[1]
    for name, w in found.named_parameters():
        expected = weights[name] - 0.3 * start.get_parameter(name).grad
        torch.testing.assert_close(w.detach(), expected, atol=1e-6, rtol=1e-5)


def test_every_row_is_taken_once_an_epoch(toy):
    """137 rows in batches of 32: five of 27 or 28."""
    seen = []

    class Model(torch.nn.Linear):
        def forward(self, rows):
            if self.training:
                seen.append(rows[:, 5].tolist())
            return super().forward(rows)

    import sfumato.learning.recipes.plain as module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "initial_model", lambda *_: Model(6, 2))
        plain(toy, schedule=Schedule(2, 32))
    own = sorted(toy.data().train.inputs[:, 5].tolist())
    assert [len(batch) for batch in seen] == [28, 28, 27, 27, 27] * 2
    epochs = [[row for batch in part for row in batch] for part in (seen[:5], seen[5:])]
    assert [sorted(epoch) for epoch in epochs] == [own, own]
    assert epochs[0] != epochs[1]


def test_it_begins_from_the_weights_of_a_private_run(toy):
    """Steps too small to move a weight leave both where they began."""
    for recipe in (
        toy.recipe(model="mlp", rate=Rate(1e-30)),
        toy.recipe(model="mlp", rate=Rate(1e-30), seed=8),
    ):
        private = toy.train(recipe).model.state_dict()
        found = plain(toy, recipe, schedule=Schedule(1, 32, rate=1e-30)).model.state_dict()
        assert private.keys() == found.keys()
        for name, weight in private.items():
            assert torch.equal(weight, found[name]), name
    other = plain(toy, toy.recipe(model="mlp"), schedule=Schedule(1, 32, rate=1e-30)).model
    assert not all(torch.equal(w, found[n]) for n, w in other.state_dict().items())


def test_the_same_seed_is_the_same_model(toy):
    first, second = (plain(toy).model.state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    third = plain(toy, toy.recipe(seed=8)).model.state_dict()
    assert not all(torch.equal(first[name], third[name]) for name in first)
    drawn = [plain(toy, toy.recipe(seed=None)).record.parameters["recipe"]["seed"] for _ in "ab"]
    assert drawn[0] != drawn[1]


def test_features_are_computed_once_with_the_noise_of_a_private_run(toy, tmp_path):
    watcher = toy.Watcher()
    trained = plain(
        toy, toy.pca(), out=tmp_path / "a", coins=SeededCoins(1), observer=watcher
    )  # fmt: skip
    assert torch.equal(load_run(tmp_path / "a").model[0].basis, trained.model[0].basis)
    again, other = (plain(toy, toy.pca(), coins=SeededCoins(n)).model[0].basis for n in (1, 2))
    assert torch.equal(again, trained.model[0].basis)
    assert not torch.equal(other, again)
    assert [what for what, done, total in watcher.prepared if done == total] == [
        "features to train on", "features to test on"
    ]  # fmt: skip


# --- what it leaves -------------------------------------------------------------------------------


@pytest.fixture
def kept(toy, tmp_path):
    """With every fifth label wrong, so that no accuracy is a round number."""
    data = toy.data(test=37)
    wrong = [
        Examples(x, np.where(np.arange(len(y)) % 5, y, 1 - y)) for x, y in (data.train, data.test)
    ]
    data = replace(data, train=wrong[0], test=wrong[1])
    return plain(toy, toy.recipe(epsilon=3.0, steps=None), data, out=tmp_path / "a")


def test_the_record_promises_nothing(kept):
    record = json.loads(kept.folder.record_file.read_text())
    assert record == json.loads(json.dumps(kept.record.to_dict()))
    assert record["method"] == "plain"
    assert record["private"] is False
    assert record["warning"] == UNPROTECTED
    assert event_from_dict(record["event"]) == NotPrivateEvent()
    assert record["guarantee"]["epsilon"] == "inf"
    recipe = record["parameters"]["recipe"]
    assert [recipe[name] for name in ("epsilon", "noise_multiplier", "epochs", "steps")] == [
        None
    ] * 4
    assert record["parameters"]["schedule"]["epochs"] == 3


def test_no_result_is_in_the_record(kept):
    text = kept.folder.record_file.read_text()
    assert not re.search(r"\b137\b|loss|accura|curve", text)
    measured = numbers_of(kept)
    assert all(len(number) > 8 for number in measured)
    assert not any(number[:6] in text for number in measured)
    assert not kept.accuracy_is_public  # though the test set is
    results = kept.folder.read_curator("results.json")
    assert results["accuracy"] == kept.accuracy == results["curve"][-1]["accuracy"]
    assert [point["step"] for point in results["curve"]] == [5, 10, 15]
    assert results["accuracy_on_own"] > 0.7
    assert len(results["training"]["loss"]) == 15
    assert results["training"]["loss"][-1] < results["training"]["loss"][0]


def test_nobody_but_the_owner_opens_it(kept, toy):
    assert mode(kept.folder.path) == "0o700"
    modes = toy.files(kept.folder.path)
    assert modes.pop("curator") == "0o700"
    assert set(modes) == {
        "record.json", "model.safetensors", "curator/request.json", "curator/results.json"
    }  # fmt: skip
    assert set(modes.values()) == {"0o600"}


def test_no_ledger_pays_for_it(kept, ledger):
    with pytest.raises(BudgetExceeded):
        ledger.spend("people", kept.record.event)
    assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_it_is_read_as_a_private_run_is(kept, toy):
    run = load_run(kept.folder.path)
    rows = toy.data().test.inputs
    expected = kept.model(torch.from_numpy(rows)).softmax(1).detach().double().numpy()
    np.testing.assert_allclose(run.scores(rows), expected, atol=1e-6)
    assert run.claim is None
    assert not run.record.private
    assert math.isinf(run.record.guarantee.epsilon)


def test_a_private_run_has_a_claim(toy, tmp_path):
    trained = toy.train(out=tmp_path / "a")
    assert load_run(tmp_path / "a").claim == trained.record.guarantee


def test_the_first_rows_are_remembered(toy, tmp_path):
    few = first_rows(toy.data(), 40)
    record = plain(toy, data=few, out=tmp_path / "a").record
    assert (record.facts["data"]["rows"], record.facts["data"]["public_size"]) == (40, 40)
    facts = toy.train(data=few).record.facts["data"]
    assert (facts["rows"], facts["public_size"]) == (40, 40)
    assert "rows" not in toy.train().record.facts["data"]
    whole = plain(toy, data=few).model.state_dict()
    other = toy.data(train=Examples(*(part[:40] for part in toy.data().train)))
    assert all(
        torch.equal(w, whole[n]) for n, w in plain(toy, data=other).model.state_dict().items()
    )


# --- what goes wrong ------------------------------------------------------------------------------


def test_canaries_are_refused(toy, tmp_path):
    recipe = replace(toy.recipe(), canaries=Canaries(10))
    with pytest.raises(ValueError, match=r"canaries audit a promise.*leave them out"):
        plain(toy, recipe, out=tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_no_rows(toy):
    with pytest.raises(ValueError, match="rows to train on"):
        plain(toy, data=toy.data(0))


def test_without_a_test_set(toy, tmp_path):
    trained = plain(toy, data=toy.data(test=0), out=tmp_path / "a")
    assert (trained.accuracy, trained.points) == (None, ())
    assert trained.folder.read_curator("results.json")["accuracy"] is None


def test_a_finished_run_is_not_overwritten(kept, toy):
    before = kept.folder.record_file.read_bytes()
    with pytest.raises(ValueError, match="holds a finished run: give another"):
        plain(toy, out=kept.folder.path)
    assert kept.folder.record_file.read_bytes() == before


def test_an_interrupted_run_leaves_no_folder(toy, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        plain(toy, out=tmp_path / "runs" / "a", observer=toy.Watcher(stop=5))
    assert list(tmp_path.iterdir()) == []


def test_the_callers_random_numbers_are_left_alone(toy):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    plain(toy)
    assert torch.equal(torch.rand(2), expected)


def test_the_schedule_follows_the_recipe(toy):
    assert plain_schedule(toy.recipe()) == Schedule(20, 128, rate=0.05, weight_decay=0.0)
    adam = plain_schedule(toy.recipe(optimizer="adam", weight_decay=0.1), epochs=2, batch_size=7)
    assert adam == Schedule(2, 7, rate=0.001, weight_decay=0.1, optimizer="adam")
    with pytest.raises(ValueError, match="epochs"):
        plain_schedule(toy.recipe(), epochs=0)


def test_images_are_changed_at_random(toy):
    recipe = toy.recipe(augment="flip", augmentations=4)
    data = toy.data(shape=(8, 8, 1))
    found = [plain(toy, r, data).model.state_dict() for r in (recipe, recipe, toy.recipe())]
    assert all(torch.equal(w, found[1][n]) for n, w in found[0].items())
    assert not all(torch.equal(w, found[2][n]) for n, w in found[0].items())
