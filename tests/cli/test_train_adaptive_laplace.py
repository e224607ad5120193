"""``sfumato train adaptive-laplace`` as people type it."""

import json
import re
import shlex
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from sfumato.cli.train_adaptive_laplace import _of_run, _paid_there, adaptive_laplace
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
    assert record["facts"]["tuning"].endswith("public data; as given by the operator: pool")
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
        (f"{SMALL} --pool 9 --dry-run", "pool must be"),
        (f"{SMALL} --relevance-model cnn --dry-run", "cnn|Tanh|8"),
        (f"{SMALL} --model nothing --dry-run", "model must be one of"),
        (
            f"{SMALL} --relevance-run r --relevance-model mlp --dry-run",
            "--relevance-model must be left out with --relevance-run, got mlp and r",
        ),
        (
            f"{SMALL} --relevance-run r --relevance-classes 10 --out a",
            "--relevance-classes must be left out with --relevance-run",
        ),
        (
            f"{SMALL} --relevance-run r --relevance-weights w --out a",
            "--relevance-weights must be left out with --relevance-run, got w and r",
        ),
    ],
)
def test_what_cannot_be_is_said(run, text, match):
    error, _ = run(text)
    assert isinstance(error, ValueError)
    assert re.search(match, str(error))


class _Folder:
    def __init__(self, ledger):
        self._ledger = ledger

    def request(self):
        if self._ledger is None:
            raise ValueError("no run")
        return {"ledger": self._ledger}


def _run(tmp_path, private=True, claim="a guarantee", ledger="one.db"):
    facts = {"ledger": {"dataset": "mnist", "entry": 1}}
    record = SimpleNamespace(private=private, facts=facts, method="dp-sgd", event=None)
    asked = None if ledger is None else str(tmp_path / ledger)
    return SimpleNamespace(record=record, claim=claim, folder=_Folder(asked), model=None)


def test_a_training_counts_as_paid_in_the_same_ledger_only(tmp_path):
    one, two = str(tmp_path / "one.db"), str(tmp_path / "two.db")
    assert _paid_there(_run(tmp_path), one, "mnist")
    assert not _paid_there(_run(tmp_path), two, "mnist")
    assert not _paid_there(_run(tmp_path), one, "other")
    assert not _paid_there(_run(tmp_path), None, "mnist")
    assert not _paid_there(_run(tmp_path, ledger=None), one, "mnist")


@pytest.mark.parametrize("wrong", [{"private": False}, {"claim": None}])
def test_a_run_that_protects_nobody_tells_no_relevance(tmp_path, monkeypatch, wrong):
    found = _run(tmp_path, **wrong)
    monkeypatch.setattr("sfumato.learning.recipes.loading.load_run", lambda path: found)
    with pytest.raises(ValueError, match="relevance-run must be a run"):
        _of_run(tmp_path, None, "mnist")
