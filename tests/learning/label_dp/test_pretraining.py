"""Runs that begin with pre-training: inputs alone, lent bodies, and whether it helps."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sfumato.core import SeededCoins
from sfumato.data import Dataset, Examples
from sfumato.learning.label_dp import LabelRecipe, OutOfTime, label_preset, train_label_dp
from sfumato.learning.label_dp import training as training_module
from sfumato.learning.label_dp.least_squares import least_squares_scores, out_of_fold_scores
from sfumato.learning.recipes import load_run
from sfumato.ledger import Budget, Ledger

SMALL = {
    "network": "small-cnn", "options": {"width": 4}, "batch": 64, "epochs": 4.0, "rate": 0.05,
    "pretraining_epochs": 10.0,
}  # fmt: skip
FILE = "curator/pretrained.safetensors"


def stripes(count, seed):
    """Waves that lie, stand or lean, anywhere, of any colour and length, under noise."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 3, count)
    angle = np.array([0, 0.5, 0.25])[labels] * np.pi + 0.12 * draws.normal(size=count)
    down, right = np.mgrid[:12, :12]
    along = np.cos(angle)[:, None, None] * down + np.sin(angle)[:, None, None] * right
    pace, start = draws.uniform(1.2, 2.0, (count, 1, 1)), draws.uniform(0, 7, (count, 1, 1))
    waves = np.sin(pace * along + start)[..., None] * draws.uniform(0.2, 0.4, (count, 1, 1, 3))
    noise = 0.25 * draws.normal(size=(count, 12, 12, 3))
    return Examples((0.5 + waves + noise).clip(0, 1).astype(np.float32), labels)


def dataset(rows):
    return Dataset(
        name="stripes", train=stripes(rows, 0), test=stripes(600, 1), classes=("a", "b", "c"),
        shape=(12, 12, 3), bounds=(0.0, 1.0), source="made here", public_size=rows,
        test_is_public=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def waves():
    return dataset(1500)


@pytest.fixture(scope="module")
def few():
    return dataset(240)


def recipe_for(data, epsilon=1.0, stages=2, **changes):
    return label_preset(data, epsilon, stages, "contrastive", **(SMALL | changes))


def quick(data, **changes):
    return recipe_for(data, **({"pretraining_epochs": 1.0, "epochs": 1.0, "stages": 1} | changes))


# --- it helps -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_at_small_epsilon_it_beats_networks_that_know_nothing(waves, tmp_path) -> None:
    """Three classes at epsilon 0.4, where a report is right with probability 0.43."""
    found = train_label_dp(recipe_for(waves, 0.4), waves, out=tmp_path / "a", coins=SeededCoins(3))
    own = {name: SMALL[name] for name in ("network", "options", "batch", "rate")} | {"epochs": 12.0}
    plain = label_preset(waves, 0.4, 2, "resnet18", **own)
    other = train_label_dp(plain, waves, out=tmp_path / "b", coins=SeededCoins(3))
    assert found.accuracy is not None
    assert other.accuracy is not None
    assert found.accuracy > max(0.95, other.accuracy + 0.2)
    facts = found.record.facts
    assert facts["pretraining"]["learnt_from"].startswith("the public inputs alone")
    assert facts["pretraining"]["epochs"] == 10
    assert facts["labels_of_each_stage"] == [900, 600]
    again = load_run(tmp_path / "a")
    expected = found.model(torch.zeros(2, 3, 12, 12)).softmax(1).detach().numpy()
    assert again.scores(np.zeros((2, 12, 12, 3))) == pytest.approx(expected, abs=1e-6)


# --- inputs alone ---------------------------------------------------------------------------------


def weights_in(folder):
    return load_file(folder / FILE)


def same(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_another_label_leaves_the_same_body(few, tmp_path) -> None:
    """Non-interference: bit by bit, for neighbouring labels and for rows in another order."""
    labels = few.train.labels.copy()
    labels[17] = (labels[17] + 1) % 3
    near = replace(few, train=Examples(few.train.inputs, labels))
    moved = replace(few, train=Examples(few.train.inputs[::-1].copy(), few.train.labels[::-1]))
    for name, which in (("a", few), ("b", near), ("c", moved)):
        train_label_dp(quick(few), which, out=tmp_path / name, coins=SeededCoins(6))
    assert (tmp_path / "a" / FILE).read_bytes() == (tmp_path / "b" / FILE).read_bytes()
    assert same(weights_in(tmp_path / "a"), weights_in(tmp_path / "c"))
    facts = [json.loads((tmp_path / n / "record.json").read_text())["facts"] for n in "ab"]
    assert facts[0]["pretraining"] == facts[1]["pretraining"]


def test_cut_off_before_any_label_is_read_or_paid_for(few, tmp_path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("labels", Budget(1.5), unit="label", neighbours="replace-one")
    charged = {"ledger": ledger, "dataset": "labels", "coins": SeededCoins(1)}
    with pytest.raises(OutOfTime):
        train_label_dp(quick(few), few, out=tmp_path / "a", minutes=1e-9, **charged)
    assert (tmp_path / "a/curator/pretraining/checkpoint.safetensors").exists()
    assert ledger.status("labels").left == pytest.approx(1.5, abs=1e-6)
    assert "stage" not in (tmp_path / "a/curator/reports.jsonl").read_text()
    found = train_label_dp(quick(few), few, out=tmp_path / "a", resume=True, **charged)
    assert ledger.status("labels").left == pytest.approx(0.5, abs=1e-6)
    assert not (tmp_path / "a/curator/pretraining").exists()
    whole = train_label_dp(quick(few), few, out=tmp_path / "b", coins=SeededCoins(1))
    assert same(weights_in(tmp_path / "a"), weights_in(tmp_path / "b"))
    assert same(found.model.state_dict(), whole.model.state_dict())


def test_networks_start_from_the_body(few, tmp_path, monkeypatch) -> None:
    real, started = training_module.fit_network, []

    def watched(make, *arguments, **more):
        started.append(make().state_dict())
        return real(make, *arguments, **more)

    monkeypatch.setattr(training_module, "fit_network", watched)
    train_label_dp(quick(few, stages=2), few, out=tmp_path / "a", coins=SeededCoins(1))
    body = weights_in(tmp_path / "a")
    assert len(started) == 2
    for state in started:
        last = sorted(set(state) - set(body))
        assert last == ["14.bias", "14.weight"]
        assert not any(state[name].any() for name in last)
        assert same({name: state[name] for name in body}, body)


def test_pretraining_that_diverged_is_told_before_anything_is_paid_for(
    few, tmp_path, monkeypatch
) -> None:
    from sfumato.learning.label_dp import public_inputs

    ledger = Ledger(tmp_path / "l.db")
    ledger.create("labels", Budget(1.5), unit="label", neighbours="replace-one")
    real = public_inputs.pretrain_body

    def diverged(*arguments, **more):
        return {name: value * torch.nan for name, value in real(*arguments, **more).items()}

    monkeypatch.setattr(public_inputs, "pretrain_body", diverged)
    charged = {"ledger": ledger, "dataset": "labels", "coins": SeededCoins(1)}
    with pytest.raises(ValueError, match="of finite weights"):
        train_label_dp(quick(few), few, out=tmp_path / "a", **charged)
    assert ledger.status("labels").left == pytest.approx(1.5, abs=1e-6)
    assert not (tmp_path / "a" / FILE).exists()
    monkeypatch.setattr(public_inputs, "pretrain_body", real)
    train_label_dp(quick(few), few, out=tmp_path / "a", resume=True, **charged)
    assert ledger.status("labels").left == pytest.approx(0.5, abs=1e-6)


def test_labels_that_are_fewer_than_inputs_are_refused_before_the_charge(few, tmp_path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("labels", Budget(1.5), unit="label", neighbours="replace-one")
    odd = replace(few, train=Examples(few.train.inputs, few.train.labels[:-9]))
    with pytest.raises(ValueError, match="as many as inputs"):
        train_label_dp(quick(odd), odd, out=tmp_path / "a", ledger=ledger, dataset="labels")
    assert ledger.status("labels").left == pytest.approx(1.5, abs=1e-6)
    assert not (tmp_path / "a").exists()


# --- a body that is lent --------------------------------------------------------------------------


def test_a_lent_file_adds_nothing_to_the_record(few, tmp_path) -> None:
    from sfumato.learning.label_dp.pretrained import Pretrained

    train_label_dp(quick(few), few, out=tmp_path / "a", coins=SeededCoins(1))
    body = Pretrained.read(tmp_path / "a" / FILE)
    more = {"learnt_from": "anything", "accuracy": 0.93}
    Pretrained(body.weights, body.facts | more, 0).write(tmp_path / "lent.safetensors")
    found = train_label_dp(
        quick(few), few, out=tmp_path / "b", pretrained=tmp_path / "lent.safetensors"
    )
    own = json.loads((tmp_path / "a/record.json").read_text())["facts"]["pretraining"]
    assert json.loads(json.dumps(found.record.facts["pretraining"])) == own
    nan = {name: value * torch.nan for name, value in body.weights.items()}
    Pretrained(nan, body.facts, 0).write(tmp_path / "nan.safetensors")
    with pytest.raises(ValueError, match="of finite weights"):
        train_label_dp(quick(few), few, out=tmp_path / "c", pretrained=tmp_path / "nan.safetensors")
    assert not (tmp_path / "c").exists()


def test_a_lent_body_is_taken_as_it_is(few, tmp_path, monkeypatch) -> None:
    from sfumato.learning.label_dp import public_inputs

    whole = train_label_dp(quick(few), few, out=tmp_path / "a", coins=SeededCoins(1))
    monkeypatch.setattr(public_inputs, "pretrain_body", None)
    lent = tmp_path / "a" / FILE
    found = train_label_dp(
        quick(few), few, out=tmp_path / "b", coins=SeededCoins(1), pretrained=lent
    )
    assert same(found.model.state_dict(), whole.model.state_dict())
    assert (tmp_path / "b" / FILE).read_bytes() == lent.read_bytes()
    other = quick(few, epsilon=3.0, seed=5)
    found = train_label_dp(other, few, out=tmp_path / "c", pretrained=str(lent))
    assert found.record.facts["pretraining"]["seed"] == 0


def test_a_body_of_something_else_is_refused(few, tmp_path) -> None:
    train_label_dp(quick(few), few, out=tmp_path / "a", coins=SeededCoins(1))
    inputs = few.train.inputs.copy()
    inputs[0, 0, 0, 0] += 0.25
    changed = replace(few, train=Examples(inputs, few.train.labels))
    for recipe, data, file, words in (
        (quick(few), changed, FILE, "inputs '"),
        (quick(few, pretraining_epochs=2.0), few, FILE, "epochs 1.0"),
        (quick(few, options={"width": 5}), few, FILE, "options"),
        (quick(few, pretraining="none"), few, FILE, "left out"),
        (quick(few), few, "model.safetensors", "pretrained.safetensors of a run"),
        (quick(few), few, "record.json", "pretrained.safetensors of a run"),
        (quick(few), few, "nowhere", "pretrained.safetensors of a run"),
    ):
        with pytest.raises(ValueError, match=f"pretrained must be .*{words}"):
            train_label_dp(recipe, data, out=tmp_path / "b", pretrained=tmp_path / "a" / file)
    assert not (tmp_path / "b").exists()


def test_what_cannot_be_pretrained(data, few, tmp_path) -> None:
    with pytest.raises(ValueError, match="network must be resnet18 or small-cnn"):
        train_label_dp(LabelRecipe(1.0, pretraining="contrastive"), data, out=tmp_path / "a")
    recipe = LabelRecipe(1.0, pretraining="contrastive", network="resnet18")
    with pytest.raises(ValueError, match="shape"):
        train_label_dp(recipe, data, out=tmp_path / "a")
    with pytest.raises(ValueError, match="network must be resnet18 or small-cnn"):
        train_label_dp(quick(few, network="mlp", options={}), few, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


# --- out of fold ----------------------------------------------------------------------------------


def test_out_of_fold_scores_do_not_depend_on_the_rows_own_target() -> None:
    draws = torch.Generator().manual_seed(0)
    features, targets = torch.randn(60, 4, generator=draws), torch.randn(60, 3, generator=draws)
    other = targets.clone()
    other[11] += 5
    one, two = (out_of_fold_scores(features, t, 5, seed=2) for t in (targets, other))
    assert torch.equal(one[11], two[11])
    assert (one != two).any(dim=1).sum() == 48  # all rows of the other folds
    whole = [least_squares_scores(features, t, features) for t in (targets, other)]
    assert not torch.equal(whole[0][11], whole[1][11])
    assert out_of_fold_scores(features[:3], targets[:3], 5, seed=2).shape == (3, 3)
    assert out_of_fold_scores(features[:5], targets[:5], 5, seed=2).isfinite().all()


def test_out_of_fold_scores_of_pure_noise_know_nothing() -> None:
    """A single fit takes noise for knowledge of its own rows; out of fold there is none."""
    draws = torch.Generator().manual_seed(1)
    features = torch.randn(400, 80, generator=draws)
    targets = torch.randn(400, 1, generator=draws)

    def agreement(scores):
        return float(torch.corrcoef(torch.stack([scores[:, 0], targets[:, 0]]))[0, 1])

    assert agreement(least_squares_scores(features, targets, features)) > 0.15
    assert agreement(out_of_fold_scores(features, targets, 5, seed=0)) < 0.1


def known(rows=900, fresh=0):
    """Reports of three classes at epsilon 1, and features that tell the classes a little."""
    from sfumato.learning.label_dp.learning import Known

    draws = np.random.default_rng(0)
    labels = draws.integers(0, 3, rows)
    keep = np.e / (np.e + 2)
    told = np.where(draws.random(rows) < keep, labels, (labels + draws.integers(1, 3, rows)) % 3)
    likelihood = np.where(np.eye(3)[told] > 0, keep, (1 - keep) / 2)
    features = np.eye(3)[labels] + 0.7 * draws.normal(size=(rows, 3))
    last = torch.arange(rows) >= rows - fresh
    made = Known(
        torch.arange(rows), torch.from_numpy(told), torch.from_numpy(likelihood), last, "cpu"
    )
    return made, torch.from_numpy(features).float(), torch.from_numpy(labels)


def test_the_first_prior_is_the_same_whatever_a_row_reports() -> None:
    """Out of fold, bit by bit; a single fit's scores move with the row's own report."""
    from sfumato.learning.label_dp.learning import first_prior

    recipe = LabelRecipe(1.0, start="least-squares", folds=5)
    reports, features, labels = known()
    told, likelihood = reports.told.clone(), reports.likelihood.clone()
    told[7] = (told[7] + 1) % 3
    likelihood[7] = likelihood[7].roll(1)
    moves = []
    for folds in (5, 1):
        chosen = replace(recipe, folds=folds)
        one = first_prior(chosen, reports, features)
        two = first_prior(chosen, replace(reports, told=told, likelihood=likelihood), features)
        moves.append(float((one[7] - two[7]).abs().max()))
        assert (one.argmax(dim=1) == labels).double().mean() > 0.6
    assert moves[0] == 0 < 0.02 < moves[1]


def test_later_priors_are_the_models_for_rows_that_it_has_not_seen() -> None:
    """A model that knows its own reports by heart is not asked about them."""
    from sfumato.learning.label_dp.learning import later_prior

    recipe = LabelRecipe(1.0, start="least-squares", folds=5)
    reports, features, labels = known(fresh=300)
    logits = 3 * features
    logits[:600] = 9 * torch.nn.functional.one_hot(reports.told[:600], 3).float()
    found = later_prior(recipe, reports, logits, features)
    factor = found[600:] / logits[600:]
    assert factor.std() < 1e-4 < factor.mean()
    right = (found[:600].argmax(dim=1) == labels[:600]).double().mean()
    assert right > 0.62  # where reports themselves are right of 58 in 100
    agrees = (found[:600].argmax(dim=1) == reports.told[:600]).double().mean()
    assert agrees < 0.62
    assert torch.equal(later_prior(replace(recipe, folds=1), reports, logits, features), logits)
    nobody = replace(reports, fresh=torch.zeros(900, dtype=torch.bool))
    assert later_prior(recipe, nobody, logits, features).isfinite().all()
