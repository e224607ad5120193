"""Whole runs: stages, reports told once, budgets of labels, records, going on."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sfumato.core import SeededCoins
from sfumato.data import Examples
from sfumato.learning.label_dp import LabelRecipe, OutOfTime, label_preset, train_label_dp
from sfumato.learning.label_dp import randomising as randomising_module
from sfumato.learning.label_dp import training as training_module
from sfumato.learning.label_dp.randomising import PIECE, randomise_stage, split
from sfumato.learning.recipes import load_run
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger.errors import LedgerError

SMALL = {"epochs": 3.0, "batch": 256}


def recipe_for(data, epsilon=1.0, stages=2, **changes):
    return label_preset(data, epsilon, stages, **(SMALL | changes))


def reports_in(folder):
    lines = (folder / "curator/reports.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("stages", "changes"),
    [
        (1, {}),
        (2, {}),
        (2, {"targets": "hard", "mixup": (1.0, 1.0)}),
        (1, {"targets": "debiased"}),
        (1, {"mechanism": "alibi"}),
        (1, {"start": "network"}),
    ],
)
def test_it_learns(data, tmp_path, stages, changes) -> None:
    """Three classes at epsilon 1, where a report is right with probability 0.58."""
    found = train_label_dp(
        recipe_for(data, 1.0, stages, **changes), data, out=tmp_path / "a", coins=SeededCoins(1)
    )
    assert found.accuracy is not None
    assert found.accuracy > 0.96
    facts = found.record.facts
    assert facts["labels_of_each_stage"] == ([5000] if stages == 1 else [3000, 2000])
    assert facts["labels_lost"] == 0
    assert found.record.guarantee.unit == "label"
    assert (found.record.guarantee.epsilon, found.record.guarantee.delta) == (1.0, 0.0)
    assert not found.record.private  # seeded coins
    again = load_run(tmp_path / "a")
    assert again.scores(data.test.inputs[:5]).shape == (5, 3)
    expected = found.model(torch.from_numpy(data.test.inputs[:5])).softmax(1).detach().numpy()
    assert again.scores(data.test.inputs[:5]) == pytest.approx(expected, abs=1e-6)
    assert "labels alone" in again._repr_html_()
    assert again.claim is None  # membership of inputs is no secret, so no attack on it breaks it


@pytest.mark.slow
def test_three_stages(data, tmp_path) -> None:
    recipe = recipe_for(data, 2.0, 2, shares=(0.5, 0.3, 0.2), mixup=(0.0,) * 3)
    found = train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(1))
    assert found.record.facts["labels_of_each_stage"] == [2500, 1500, 1000]
    assert found.accuracy is not None
    assert found.accuracy > 0.96


@pytest.mark.slow
def test_images_by_wavelets(tmp_path) -> None:
    from sfumato.data import load_dataset

    digits = load_dataset("digits")
    recipe = label_preset(digits, 8.0, 1, components=60, rounds=1)
    found = train_label_dp(recipe, digits, out=tmp_path / "a", coins=SeededCoins(0))
    assert found.accuracy is not None
    assert found.accuracy > 0.9
    image = torch.rand(2, 1, 8, 8)
    assert found.model(image).shape == (2, 10)
    assert load_run(tmp_path / "a").model(image).shape == (2, 10)


# --- each label once ------------------------------------------------------------------------------


def test_the_split_does_not_look_at_labels_and_loses_no_row() -> None:
    parts = split(1001, (0.6, 0.3, 0.1), seed=4)
    assert [len(part) for part in parts] == [601, 300, 100]
    assert sorted(np.concatenate(parts).tolist()) == list(range(1001))


class CountedLabels(np.ndarray):
    """Labels that note who reads them."""

    seen: list

    def __getitem__(self, key):
        if isinstance(key, np.ndarray):
            CountedLabels.seen.extend(key.tolist())
        return np.asarray(super().__getitem__(key))


def counting(data):
    labels = data.train.labels.view(CountedLabels)
    CountedLabels.seen = []
    return replace(data, train=Examples(data.train.inputs, labels))


def test_every_label_is_read_once_and_none_after_a_restart(data, tmp_path, monkeypatch) -> None:
    """Cut off in the second stage: gone on with, no label is read twice."""
    real, calls = training_module.fit_network, []

    def killed(*arguments, **more):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **more)

    counted, recipe = counting(data), recipe_for(data)
    monkeypatch.setattr(training_module, "fit_network", killed)
    with pytest.raises(KeyboardInterrupt):
        train_label_dp(recipe, counted, out=tmp_path / "a", coins=SeededCoins(2))
    before = reports_in(tmp_path / "a")
    monkeypatch.setattr(training_module, "fit_network", real)
    found = train_label_dp(recipe, counted, out=tmp_path / "a", coins=SeededCoins(9), resume=True)
    assert sorted(CountedLabels.seen) == list(range(5000))
    assert reports_in(tmp_path / "a")[: len(before)] == before
    whole = train_label_dp(recipe, data, out=tmp_path / "b", coins=SeededCoins(2))
    assert found.accuracy == whole.accuracy  # as if it had never been cut off


def test_labels_being_randomised_at_a_kill_are_lost_and_never_read_again(
    data, tmp_path, monkeypatch
) -> None:
    real, calls = randomising_module._randomised, []

    def killed(*arguments):
        calls.append(1)
        if len(calls) == 3:  # the first is of no one's label, to see that it can be done
            real(*arguments)  # drawn, and seen by no one but whoever kills
            raise KeyboardInterrupt
        return real(*arguments)

    counted, recipe = counting(data), recipe_for(data, batch=64)
    monkeypatch.setattr(randomising_module, "_randomised", killed)
    with pytest.raises(KeyboardInterrupt):
        train_label_dp(recipe, counted, out=tmp_path / "a", coins=SeededCoins(2))
    found = train_label_dp(recipe, counted, out=tmp_path / "a", coins=SeededCoins(3), resume=True)
    lost = 3000 - PIECE
    assert found.record.facts["labels_lost"] == lost
    assert len(CountedLabels.seen) == len(set(CountedLabels.seen)) == 5000
    assert found.accuracy is not None
    assert found.accuracy > 0.95


def test_a_torn_line_counts_as_told(data, tmp_path, monkeypatch) -> None:
    recipe = recipe_for(data, 1.0, 1)
    train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(2))
    (tmp_path / "a/record.json").unlink()
    file = tmp_path / "a/curator/reports.jsonl"
    file.write_bytes(file.read_bytes()[:-300])  # cuts into the last piece's reports
    found = train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(2), resume=True)
    assert found.record.facts["labels_lost"] == 5000 % PIECE


def test_time_runs_out_and_the_run_goes_on(data, tmp_path) -> None:
    recipe = recipe_for(data, 1.0, 1)
    with pytest.raises(OutOfTime):
        train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(1), minutes=1e-9)
    assert list((tmp_path / "a/curator").glob("network-0-1/checkpoint.safetensors"))
    found = train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(1), resume=True)
    whole = train_label_dp(recipe, data, out=tmp_path / "b", coins=SeededCoins(1))
    assert found.accuracy == whole.accuracy
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, found.model.state_dict()[name])


def test_another_label_changes_only_its_own_report(data, tmp_path) -> None:
    """Non-interference: the same coins on neighbouring labels leave the same traces elsewhere."""
    other = data.train.labels.copy()
    other[123] = (other[123] + 1) % 3
    near = replace(data, train=Examples(data.train.inputs, other))
    recipe, folders = recipe_for(data, 1.0, 1), []
    for name, which in (("a", data), ("b", near)):
        train_label_dp(recipe, which, out=tmp_path / name, coins=SeededCoins(6))
        folders.append(tmp_path / name)
    records = [json.loads((f / "record.json").read_text()) for f in folders]
    for record in records:
        record["facts"].pop("accuracy")  # of a model that was made of the reports
    assert records[0] == records[1]
    one, two = (reports_in(folder) for folder in folders)
    told = [[v for e in entries for v in e.get("reports", [])] for entries in (one, two)]
    place = np.flatnonzero(load_file(tmp_path / "a/curator/order")["order"].numpy() == 123)
    assert np.flatnonzero(np.array(told[0]) != np.array(told[1])).tolist() in ([], place.tolist())
    for a, b in zip(one, two, strict=True):
        assert {k: v for k, v in a.items() if k not in ("name", "reports")} == {
            k: v for k, v in b.items() if k not in ("name", "reports")
        }
    names = [sorted(str(p.relative_to(f)) for p in f.rglob("*")) for f in folders]
    assert names[0] == names[1]


# --- budgets --------------------------------------------------------------------------------------


def test_a_budget_of_labels_pays_once(data, tmp_path, monkeypatch) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("blobs-labels", Budget(1.5), unit="label", neighbours="replace-one")
    counted, charged = counting(data), {"ledger": ledger, "dataset": "blobs-labels"}
    real = training_module.randomise_stage

    def watched(*arguments, **more):
        assert ledger.status("blobs-labels").left == pytest.approx(0.5, abs=1e-6)
        return real(*arguments, **more)

    monkeypatch.setattr(training_module, "randomise_stage", watched)
    with pytest.raises(OutOfTime):
        train_label_dp(recipe_for(data), counted, out=tmp_path / "a", minutes=1e-9, **charged)
    train_label_dp(recipe_for(data), counted, out=tmp_path / "a", resume=True, **charged)
    kinds = [entry.kind for entry in ledger.history("blobs-labels")]
    assert kinds.count("reserve") == kinds.count("commit") == 1
    assert kinds.count("resume") == 4  # two pieces, the second process, one piece
    assert ledger.verify("blobs-labels").ok
    seen = list(CountedLabels.seen)
    with pytest.raises(BudgetExceeded):
        train_label_dp(recipe_for(data), counted, out=tmp_path / "b", **charged)
    assert CountedLabels.seen == seen
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    "terms",
    [
        {"unit": "record", "neighbours": "replace-one"},
        {"unit": "label", "neighbours": "add-remove"},
        {"unit": "person", "neighbours": "add-remove"},
    ],
)
def test_a_budget_for_somebody_else_is_refused(data, tmp_path, terms) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("blobs", Budget(10.0), **terms)
    with pytest.raises(LedgerError, match="open an account for labels"):
        train_label_dp(recipe_for(data), data, out=tmp_path / "a", ledger=ledger, dataset="blobs")
    assert not (tmp_path / "a").exists()


# --- what is told ---------------------------------------------------------------------------------


def test_private_test_rows_stay_with_the_curator(data, tmp_path) -> None:
    own = replace(data, test_is_public=False)
    found = train_label_dp(recipe_for(data, 3.0, 1), own, out=tmp_path / "a")
    assert found.accuracy is None
    assert found.record.private
    assert "accuracy" not in json.loads((tmp_path / "a/record.json").read_text())["facts"]
    kept = json.loads((tmp_path / "a/curator/results.json").read_text())
    assert kept["accuracy"] > 0.9


def test_runs_that_cannot_be(data, tmp_path) -> None:
    owned = replace(data, owners=np.arange(5000))
    with pytest.raises(ValueError, match="no owners"):
        train_label_dp(recipe_for(data), owned, out=tmp_path / "a")
    with pytest.raises(ValueError, match="network must be one of"):
        train_label_dp(recipe_for(data, network="brain"), data, out=tmp_path / "a")
    none = replace(data, train=Examples(data.train.inputs[:0], data.train.labels[:0]))
    with pytest.raises(ValueError, match="train must have rows"):
        train_label_dp(recipe_for(data), none, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_going_on_with_another_run(data, tmp_path) -> None:
    recipe = recipe_for(data, 1.0, 1)
    with pytest.raises(OutOfTime):
        train_label_dp(recipe, data, out=tmp_path / "a", minutes=1e-9)
    with pytest.raises(ValueError, match="another recipe"):
        train_label_dp(recipe_for(data, 2.0, 1), data, out=tmp_path / "a", resume=True)
    moved = replace(data, train=Examples(data.train.inputs[::-1].copy(), data.train.labels))
    with pytest.raises(ValueError, match="holds those of another"):
        train_label_dp(recipe, moved, out=tmp_path / "a", resume=True)
    train_label_dp(recipe, data, out=tmp_path / "a", resume=True)
    with pytest.raises(ValueError, match="came to its end"):
        train_label_dp(recipe, data, out=tmp_path / "a", resume=True)


def test_two_processes_at_once(data, tmp_path) -> None:
    from sfumato.learning.label_dp.journal import LabelJournal

    held = LabelJournal(tmp_path / "j", {}, True)
    with pytest.raises(ValueError, match="another process"):
        LabelJournal(tmp_path / "j", {}, True)
    held.close()
    LabelJournal(tmp_path / "j", {}, True).close()


def test_reports_follow_the_recipe_alone(data, tmp_path) -> None:
    """Without any training: two stages, sets of two classes, a journal that is read back."""
    from sfumato.learning.label_dp.journal import LabelJournal

    recipe, rows = LabelRecipe(8.0), np.arange(0, 5000, 2)
    sets = np.tile([True, True, False], (len(rows), 1))
    made = [
        randomise_stage(
            recipe, 0, rows, sets, data.train.labels, LabelJournal(tmp_path / "j", {}, False),
            SeededCoins(seed),
        )
        for seed in (0, 1)
    ]  # fmt: skip
    assert (made[0].told == made[1].told).all()
    labels = data.train.labels[rows]
    assert (made[0].told < 2).all()
    assert (made[0].told == labels)[labels < 2].mean() > 0.99
    assert made[0].likelihood[labels == 2][:, 2] == pytest.approx(0.5)
