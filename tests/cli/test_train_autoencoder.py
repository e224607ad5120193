"""``sfumato train autoencoder`` as people type it."""

import json
import shlex

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from sfumato.cli.train_autoencoder import autoencoder
from sfumato.ledger import Budget, Ledger

DECLARED = """
label = "ill"
classes = ["no", "yes"]
records = 600

[columns.age]
lower = 0
upper = 100

[columns.weight]
lower = 0
upper = 200
"""
SMALL = "--data people.csv --declared people.toml --epsilon 6 --widths 2"


@pytest.fixture
def run(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    ages, weights = rng.integers(0, 101, 600), rng.integers(0, 201, 600)
    lines = [f"{a},{w},{'yes' if a > 50 else 'no'}" for a, w in zip(ages, weights, strict=True)]
    (tmp_path / "people.csv").write_text("age,weight,ill\n" + "\n".join(lines) + "\n")
    (tmp_path / "people.toml").write_text(DECLARED)
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(autoencoder)

    def said(text):
        return CliRunner().invoke(app, shlex.split(text))

    return said


def test_a_dry_run_says_what_it_would_cost(run, tmp_path):
    made = run(f"{SMALL} --dry-run --delta 0 --head none --rounds 1 --json")
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)
    assert (found["epsilon"], found["delta"], found["neighbours"]) == (6.0, 0.0, "add-remove")
    (release,) = found["releases"]
    assert release["sensitivity"] == pytest.approx(0.75 * 2 * 2, rel=1e-6)
    assert release["noise_scale"] == pytest.approx(0.5, rel=1e-6)
    shown = run(f"{SMALL} --dry-run").stdout
    assert "add or remove one record" in shown
    assert "release 2" in shown
    assert "classifier" in shown
    assert "steps" in run(f"{SMALL} --dry-run --way dp-sgd --lot-size 100").stdout
    assert len(list(tmp_path.iterdir())) == 2


def test_a_run_its_ledger_and_its_folder(run, tmp_path):
    Ledger(tmp_path / "l.db").create("people", Budget(7.0, 1e-4))
    command = f"{SMALL} --ledger l.db --dataset people --test people.csv"
    made = run(f"{command} --out a --json")
    assert made.exit_code == 0, made.output
    found = json.loads(made.stdout)
    assert found["private"] is True
    assert "accuracy" not in found  # measured on rows that nobody declared to be public
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record["facts"]["ledger"]["dataset"] == "people"
    assert record["facts"]["tuning"].endswith("public data; as given by the operator: widths")
    again = run(f"{command} --out b")
    assert again.exit_code != 0
    assert not (tmp_path / "b").exists()
    shown = run(f"{SMALL} --test people.csv --out c").stdout
    assert "for your eyes only" in shown
    assert "squared error" in shown


def test_a_dry_run_checks_what_a_run_checks(run, tmp_path):
    """Of a budget that is for all rows, the first ones cannot be charged under add-remove."""
    for last in ("--dry-run", "--out a"):
        made = run(f"{SMALL} --rows 100 --ledger l.db --dataset people {last}")
        assert "rows must be left out" in str(made.exception)
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "l.db").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [("--out a --widths two", "widths"), ("", "out must be given"), ("--out a --way x", "way"),
     ("--out a --neighbours zero-out", "replace-one")],
)  # fmt: skip
def test_errors_name_the_value_and_leave_nothing(run, tmp_path, options, said):
    made = run(f"--data people.csv --declared people.toml --epsilon 1 {options}")
    assert said in str(made.exception)
    assert not (tmp_path / "a").exists()
    assert "epsilon must be given" in str(run("--data people.csv").exception)
