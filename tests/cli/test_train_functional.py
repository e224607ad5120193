"""``sfumato train functional`` as people type it."""

import json
import shlex

import pytest
import typer

from sfumato.cli.report import report
from sfumato.cli.train_functional import functional
from sfumato.ledger import Budget, Ledger


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs the command in a folder: what it said, or the error."""
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(add_completion=False)
    app.command()(functional)
    app.command()(report)

    def said(text):
        app(shlex.split(text), standalone_mode=False)
        return capsys.readouterr().out

    return said


DIGITS = "functional --data digits --pool 2"


def test_a_dry_run_says_what_it_would_cost(run, tmp_path):
    found = json.loads(run(f"{DIGITS} --epsilon 2 --rounds 4 --clip 3 --dry-run --json"))
    assert (found["epsilon"], found["delta"], found["neighbours"]) == (2.0, 0.0, "add-remove")
    assert found["noise_scale"] == pytest.approx(3 * 4 / 2)
    assert found["weights"] == 170
    assert found["headroom"] == pytest.approx(1437 * 2 / (2 * 170 * 4))
    assert "drowns" in run(f"{DIGITS} --epsilon 0.1 --dry-run")
    assert not list(tmp_path.iterdir())


def test_a_run_its_folder_and_its_report(run, tmp_path):
    options = "--hidden 3 --activation sigmoid --rounds 2 --neighbours replace-one"
    found = json.loads(run(f"{DIGITS} {options} --epsilon 20 --out a --json"))
    assert found["private"] is True
    assert 0 <= found["accuracy"] <= 1
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record["method"] == "functional"
    assert record["parameters"]["recipe"]["hidden"] == [3]
    assert record["facts"]["tuning"].startswith("not stated")  # activation and rounds were given
    run("report a -o a.html")
    text = (tmp_path / "a.html").read_text()
    assert "functional" in text
    assert "replace-one" in text


def test_what_was_given_is_said(run, tmp_path):
    recipe = json.loads(run(f"{DIGITS} --hidden 3 --epsilon 2 --dry-run --json"))["recipe"]
    assert recipe["origin"].endswith("public data; as given by the operator: hidden, pool")
    recipe = json.loads(run("functional --data digits --epsilon 2 --dry-run --json"))["recipe"]
    assert recipe["origin"].endswith("chosen on public data")


def test_a_dry_run_checks_what_a_run_checks(run, tmp_path):
    """Of a budget that is for all rows, the first ones cannot be charged under add-remove."""
    for last in ("--dry-run", "--out a"):
        with pytest.raises(ValueError, match="rows must be left out"):
            run(f"{DIGITS} --epsilon 2 --rows 100 --ledger l.db --dataset d {last}")
    assert not list(tmp_path.iterdir())


def test_the_ledger_pays_first(run, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("digits", Budget(3.0, 1e-5))
    command = f"{DIGITS} --epsilon 2 --rounds 2 --ledger l.db --dataset digits"
    assert "Learnt in" in run(f"{command} --out a")
    assert ledger.status("digits").left < 3.0
    with pytest.raises(ValueError, match="refused"):
        run(f"{command} --out b")
    assert not (tmp_path / "b").exists()


def test_the_same_again_by_its_record(run, tmp_path):
    run(f"{DIGITS} --epsilon 4 --rounds 1 --curvature none --tuned-on elsewhere --out a")
    run("functional --data digits --like a --out b")
    first, second = (json.loads((tmp_path / n / "record.json").read_text()) for n in "ab")
    assert first["parameters"] == second["parameters"]
    assert first["facts"]["tuning"] == "elsewhere"
    with pytest.raises(ValueError, match="--epsilon must be left out"):
        run("functional --data digits --like a --epsilon 3 --out c")
    with pytest.raises(ValueError, match="like must be"):
        run("functional --data digits --like nowhere --out c")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"{DIGITS} --out a", "epsilon must be given"),
        (f"{DIGITS} --epsilon 1", "out must be given"),
        (f"{DIGITS} --epsilon 1 --hidden x --out a", "hidden must be whole numbers"),
        (f"{DIGITS} --epsilon 1 --features scattering --out a", "pool must be left out"),
        (f"{DIGITS} --epsilon 1 --clip 0 --out a", "clip must be"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(run, tmp_path, command, message):
    with pytest.raises(ValueError, match=message):
        run(command)
    assert not list(tmp_path.iterdir())
