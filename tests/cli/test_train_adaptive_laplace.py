"""``sfumato train adaptive-laplace`` as people type it."""

import json
import re
import shlex

import pytest
import typer
from typer.testing import CliRunner

from sfumato.cli.train_adaptive_laplace import adaptive_laplace
from sfumato.data import load_dataset
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.ledger import Budget, Ledger

SMALL = "--data digits --pool 2 --epsilon 10"

app = typer.Typer()
app.command()(adaptive_laplace)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def said(text):
        found = CliRunner().invoke(app, shlex.split(text))
        return found.exception, found.output

    return said


def test_a_dry_run_says_what_it_would_cost(run, tmp_path):
    error, out = run(f"{SMALL} --dry-run --json")
    assert error is None
    found = json.loads(out)
    assert (found["epsilon"], found["delta"], found["neighbours"]) == (10.0, 0.0, "replace-one")
    assert found["inputs"] == 16
    assert found["noise_scale"] == pytest.approx(16 / found["epsilons"]["inputs"])
    assert sum(found["epsilons"].values()) == pytest.approx(10.0)
    error, out = run(f"{SMALL} --dry-run")
    assert error is None
    assert "replace one record" in out
    assert not list(tmp_path.iterdir())


def test_a_run_its_ledger_and_its_folder(run, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("digits", Budget(12.0, 1e-5), neighbours="replace-one")
    command = f"{SMALL} --ledger l.db --dataset digits"
    error, out = run(f"{command} --out a --json")
    assert error is None
    found = json.loads(out)
    assert found["private"] is True
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record["method"] == "adaptive-laplace"
    assert record["facts"]["accuracy"] == found["accuracy"]
    assert record["facts"]["ledger"]["dataset"] == "digits"
    assert record["parameters"]["recipe"]["pool"] == 2
    error, _ = run(f"{command} --out b")
    assert "digits" in str(error)
    assert not (tmp_path / "b").exists()


def test_relevance_by_a_private_run_costs_what_that_did(run, tmp_path):
    recipe = Recipe("linear", 100, Rate(1.0), epsilon=1.0, delta=1e-5, steps=5)
    train(recipe, load_dataset("digits"), out=tmp_path / "private", evaluations=0)
    command = "--data digits --epsilon 10 --relevance-run private --rule z"
    error, out = run(f"{command} --dry-run --json")
    assert error is None
    assert json.loads(out)["epsilon"] > 10.5
    error, out = run(f"{command} --out a")
    assert error is None
    assert "test accuracy" in out


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("--data digits --out a", "epsilon must be given"),
        (f"{SMALL}", "out must be given"),
        (f"{SMALL} --rule w --out a", "rule must be one of"),
        (f"{SMALL} --model-option x --out a", "NAME=VALUE"),
        (f"{SMALL} --relevance-model cnn --out a", "cnn|Tanh|8"),
        (f"{SMALL} --label-share 1.5 --out a", "label_share"),
    ],
)
def test_what_cannot_be_is_said(run, text, match):
    error, _ = run(text)
    assert isinstance(error, ValueError)
    assert re.search(match, str(error))
