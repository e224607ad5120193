"""``sfumato audit`` of three methods for networks, from the command line and of finished runs."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from sfumato.cli.audit_network_runs import audit_told_noise
from sfumato.core.randomness import SeededCoins
from sfumato.data import load_dataset
from sfumato.learning.adaptive_laplace import AdaptiveLaplaceRecipe, train_adaptive_laplace
from sfumato.learning.adaptive_laplace.budget import split_epsilon
from sfumato.learning.adaptive_laplace.inputs import NoisyInputs
from sfumato.learning.adaptive_laplace.labels import NoisyLabels
from sfumato.learning.adaptive_laplace.run_told import ToldNoise
from sfumato.learning.features import MeanPool
from sfumato.learning.recipes.inputs import inputs_of

SURE = 1 - 1e-9
FEW = f"--samples 150 --confidence {SURE!r}"


@pytest.mark.usefixtures("steady_coins")
@pytest.mark.parametrize(
    ("command", "names", "least"),
    [
        ("functional 1 3", ["1 round", "3 rounds"], 0.999),
        ("functional 2 --delta 1e-5 --neighbours add-remove", ["2 rounds"], 0.999),
        ("adaptive-laplace record whole --classes 3", ["record", "whole"], 0.999),
        ("adaptive-laplace --relevance-share 0 --labels one-hot",
         ["inputs", "labels", "record", "whole"], 0.999),
        ("autoencoder none functional", ["none", "functional"], 0.999),
        ("autoencoder --neighbours replace-one --delta 0",
         ["none", "functional", "objective"], 0.69),
    ],
)  # fmt: skip
def test_each_is_at_its_claim_or_below(run, command, names, least):
    code, out, err = run(f"audit {command} --json {FEW}")
    assert code == 0, err
    ((method, found),) = json.loads(out).items()
    assert method == command.split()[0]
    assert list(found) == names
    normal = found[names[0]][0]["delta"] > 0
    methods = ["exact", "sampling"] + ["sampling, gaussian"] * normal
    for several in found.values():
        assert [one["audit"] for one in several] == methods
        assert all(one["verdict"] == "consistent" for one in several)
        exact = several[0]
        assert exact["confidence"] == 1
        claimed = exact["claim"]["epsilon"]
        assert least * claimed < exact["epsilon_at_least"] <= claimed
        assert len(exact["facts"]["tables"]) == 2
    wrong = sum(1 - several[1]["confidence"] for several in found.values())
    assert wrong == pytest.approx(1e-9, rel=1e-3)  # of all together


@pytest.mark.usefixtures("steady_coins")
def test_tables(run):
    code, out, _ = run(f"audit functional 1 {FEW}")
    assert code == 0
    assert "0.9999" in out
    assert "consistent" in out
    code, out, _ = run(
        f"audit autoencoder none --widths 2 --widths 2 --neighbours replace-one {FEW}"
    )
    assert code == 0
    assert "Left out: 2 releases of layers after the first." in out
    assert "noise as of" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("functional 0", "rounds must be"),
        ("functional --epsilon 0", "epsilon must be"),
        ("functional --delta 2", "delta must be"),
        ("functional --neighbours friends", "neighbours must be"),
        ("functional --rows 0", "rows must be"),
        ("functional 1 --samples 3", "samples must be"),
        ("functional --confidence 3", "confidence must be strictly between 0 and 1, got 3"),
        ("adaptive-laplace magic", "release must be one of"),
        ("adaptive-laplace relevance --relevance-share 0", "relevance_share must be above 0"),
        ("adaptive-laplace --label-share 1", "label_share must be"),
        ("adaptive-laplace --labels loud", "labels must be"),
        ("adaptive-laplace --classes 1", "classes must be"),
        ("autoencoder magic", "head must be one of"),
        ("autoencoder --rows 1", "rows must be"),
        ("autoencoder --rounds 0", "rounds must be"),
        ("autoencoder --neighbours zero-out", "neighbours must be"),
    ],
)
def test_mistakes(run, options, message):
    code, out, error = run(f"audit {options}")
    assert code == 2
    assert not out
    assert message in " ".join(error.split())


# --- finished runs --------------------------------------------------------------------------------


def audited(run, folder, options=""):
    code, out, err = run(f"audit --run {folder} --json --confidence {SURE!r} {options}")
    assert code == 0, err
    return json.loads(out)


def refused(run, folder, options):
    code, _, error = run(f"audit --run {folder} {options}")
    assert code == 2
    return " ".join(error.split())


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr("sfumato.cli.audit_network_runs._SAMPLES", 150)
    monkeypatch.setattr("sfumato.cli.audit_network_runs._FEWEST", 150)


@pytest.mark.usefixtures("steady_coins", "few")
@pytest.mark.parametrize("sampled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_functional_run(run, tmp_path, sampled):
    how = "--delta 1e-5 --sample-rate 0.5" if sampled else ""
    code, _, err = run(
        f"train functional --data digits --pool 4 --rounds 2 --epsilon 8 {how} --out a"
    )
    assert code == 0, err
    found = audited(run, "a")
    assert found["verdict"] == "consistent"
    assert found["claim"]["epsilon"] == pytest.approx(8, rel=1e-4)
    assert "channel" not in found  # of the run's own rows nothing was read
    facts = found["facts"]
    assert facts["what"].startswith("2 rounds of a linear model on a table of 4 records")
    assert found["epsilon_at_least"] == facts["epsilon_by_law"]
    assert (facts["epsilon_by_law"] > 7.99) != sampled
    assert facts["epsilon_by_law"] > 2
    assert facts["epsilon_by_draws"] <= 8
    assert json.loads((tmp_path / "a" / "curator" / "audit.json").read_text()) == found
    for options in ("--analysis gaussian", "--data digits"):
        assert "must be left out for a run of functional" in refused(run, "a", options)


@pytest.mark.usefixtures("steady_coins", "few")
def test_an_autoencoders_run(run):
    begin = "train autoencoder --data digits --epsilon 8 --widths 4"
    code, _, err = run(f"{begin} --head functional --out a")
    assert code == 0, err
    found = audited(run, "a")
    assert found["verdict"] == "consistent"
    assert 7.98 < found["epsilon_at_least"] <= 8
    assert found["facts"]["noise_as_of_epsilon"] <= 8
    assert "channel" not in found
    assert "analysis must be left out" in refused(run, "a", "--analysis gaussian")


@pytest.mark.slow
def test_an_autoencoders_run_by_descent_says_what_to_do(run):
    begin = "train autoencoder --data digits --epsilon 8 --widths 4"
    code, _, err = run(f"{begin} --way dp-sgd --lot-size 256 --epochs 0.4 --out b")
    assert code == 0, err
    said = refused(run, "b", "")
    assert "have no canaries" in said
    assert "sfumato audit step --noise-multiplier" in said


@pytest.mark.usefixtures("steady_coins", "few")
def test_noisy_records_are_audited_by_their_own_noise(run, tmp_path):
    code, _, err = run("train adaptive-laplace --data digits --pool 2 --epsilon 10 --out a")
    assert code == 0, err
    found = audited(run, "a")
    assert found["verdict"] == "consistent"
    assert found["channel"] == "curator"
    facts = found["facts"]
    assert facts["numbers_told"] == 1437 * 16
    assert found["claim"]["epsilon"] == pytest.approx(9.8)  # given the shares by relevance
    assert 0.9 * 9.8 < found["epsilon_at_least"] < 9.8
    assert facts["inputs_at_least"] > 0.95 * facts["inputs_claimed"]
    assert facts["epsilon_by_law"] == pytest.approx(10, rel=1e-6)
    assert "must be left out" in refused(run, "a", "--analysis gaussian")
    told = tmp_path / "a" / "curator" / "told.safetensors"
    _with_less_noise(told, 0.85)
    found = audited(run, "a")
    assert found["verdict"] == "refuted"
    assert found["facts"]["of"] == "inputs"
    told.unlink()
    found = audited(run, "a")
    assert "what it told of its own is not here" in found["facts"]["what"]
    assert found["verdict"] == "consistent"
    assert "channel" not in found


@pytest.mark.usefixtures("steady_coins", "few")
def test_of_a_run_begun_in_python_the_data_must_be_named(run, tmp_path):
    digits = load_dataset("digits")
    recipe = AdaptiveLaplaceRecipe(10.0, pool=4, labels="one-hot")
    train_adaptive_laplace(recipe, digits, out=tmp_path / "a")
    assert "with --data also its own noise" in audited(run, "a")["facts"]["what"]
    found = audited(run, "a", "--data digits")
    assert found["facts"]["numbers_told"] == 1437 * 4
    assert 8 < found["epsilon_at_least"] < 9.8
    (tmp_path / "own.csv").write_text("x,y\n0.5,0\n")
    declared = {"label": "y", "classes": [0, 1], "columns": {"x": {"lower": 0, "upper": 1}}}
    (tmp_path / "own.json").write_text(json.dumps(declared))
    said = refused(run, "a", "--data own.csv --declared own.json")
    assert "data must be" in said


def _with_less_noise(path, share):
    """As if a run had drawn so much less than it says, and stated the scales of before."""
    told, data = load_file(path), load_dataset("digits")
    inputs = inputs_of(data.train.inputs, data.bounds)
    rows = MeanPool(2).build((1, 8, 8))(inputs).flatten(1)
    told["inputs"] = rows + share * (told["inputs"] - rows)
    path.chmod(0o600)
    save_file(told, path)


# --- a run's own noise ----------------------------------------------------------------------------


def noise_of(labels="response", epsilon=6.0, classes=5, rows=4000, seed=1):
    coins, rng = SeededCoins(seed), np.random.default_rng(seed)
    parts = split_epsilon(epsilon, classes)
    values, truth = rng.random((rows, 8)), rng.integers(0, classes, rows)
    inputs, way = NoisyInputs(parts.inputs, (1.0,) * 8), NoisyLabels(parts.labels, classes, labels)
    told = (inputs.perturb(values, coins=coins) - values) / inputs.scales
    reports = way.perturb(truth, coins=coins)
    kept = int((way.likelihood(reports).argmax(axis=1) == truth).sum()), rows
    vectors = None
    if labels == "one-hot":
        vectors = (reports - np.eye(classes)[truth]).ravel() * parts.labels / 2
    return ToldNoise(parts, classes, told.ravel(), vectors, kept)


@pytest.mark.parametrize("labels", ["response", "one-hot"])
def test_noise_as_declared_stands_and_a_tenth_less_is_refuted(labels):
    noise = noise_of(labels)
    found = audit_told_noise(noise, "record", 0.999)
    assert not found.refuted
    assert found.private
    assert found.epsilon > 0.9 * found.claim.epsilon
    assert found.claim.epsilon == pytest.approx(6)
    less = audit_told_noise(replace(noise, inputs=0.9 * noise.inputs), "record", 0.999)
    assert less.refuted
    assert less.facts["of"] == "inputs"
    if noise.labels is not None:
        less = audit_told_noise(replace(noise, labels=0.9 * noise.labels), "record", 0.999)
        assert less.facts["of"] == "labels"
        assert less.refuted


def test_labels_that_are_kept_too_often_are_refuted():
    noise = noise_of()
    kept, rows = noise.kept
    clearer = replace(noise, kept=(kept + rows // 10, rows))
    found = audit_told_noise(clearer, "record", 0.999)
    assert found.refuted
    assert found.facts["of"] == "labels"
    nothing = replace(noise, inputs=np.zeros(0), kept=(0, 0))
    assert audit_told_noise(nothing, "record", 0.95).epsilon == 0


def test_the_confidence_is_kept():
    """Of 200 honest runs at 90 %, no more than 90 % of 20 are refuted, by either part."""
    refuted = sum(
        audit_told_noise(noise_of(rows=60, seed=seed), "record", 0.9).refuted for seed in range(200)
    )
    assert refuted <= 32  # 20 expected at most, and three standard deviations
