"""``sfumato train erm`` on labels that are numbers, as people type it."""

import json

import numpy as np
import pytest

from sfumato.ledger import Budget, Ledger
from sfumato.reports.facts import amount_text

DECLARED = """
label = "wage"
label_bounds = [0, 60]
records = 2000
unit = "person"

[columns.schooling]
lower = 0
upper = 20

[columns.sector]
categories = ["industry", "services", "farming"]
"""
DATA = "--data wages.csv --declared wages.toml"
SMALL = f"train erm {DATA} --epsilon 1"
ERRORS = {
    "root_mean_squared_error", "r_squared", "error_of_the_middle", "mean_absolute_error",
}  # fmt: skip


def rows(rng, count):
    schooling = rng.integers(0, 21, count)
    sector = rng.choice(["industry", "services"], count)
    wage = 10 + 1.8 * schooling + 4 * (sector == "industry") + rng.normal(0, 3, count)
    lines = [f"{a},{b},{c:.2f}" for a, b, c in zip(schooling, sector, wage, strict=True)]
    return "schooling,sector,wage\n" + "\n".join(lines) + "\n"


@pytest.fixture
def wages(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "wages.csv").write_text(rows(rng, 2000) + "7,industry,unknown\n,,1e400\n")
    (tmp_path / "held_out.csv").write_text(rows(rng, 500))
    (tmp_path / "wages.toml").write_text(DECLARED)
    (tmp_path / "public.toml").write_text(f"public_test = true\n{DECLARED}")
    return tmp_path


PUBLIC = "train erm --data wages.csv --declared public.toml --test held_out.csv"


@pytest.mark.parametrize("model", ["--model regression", "--model ridge --alpha 10", ""])
def test_a_run_from_the_command_line_and_its_report(run, wages, model):
    code, out, err = run(f"{PUBLIC} --epsilon 10 {model} --out a --json")
    assert code == 0, err
    found = json.loads(out)
    assert {"epsilon", "delta", "neighbours", "unit"} | ERRORS <= found.keys()
    assert (found["neighbours"], found["unit"], found["way"]) == (
        "add-remove", "person", "functional",
    )  # fmt: skip
    assert found["root_mean_squared_error"] < 0.8 * found["error_of_the_middle"]
    record = json.loads((wages / "a" / "record.json").read_text())
    assert {name: record["facts"][name] for name in ERRORS} == {n: found[n] for n in ERRORS}
    for edition in ("publishable", "curator"):
        code, _, _ = run(f"report a --edition {edition} -o {edition}.md")
        assert code == 0
        text = (wages / f"{edition}.md").read_text()
        off = amount_text(found["root_mean_squared_error"])
        assert f"Off by {off} on its test set (public)" in text
        assert "accura" not in text.lower()
        assert "Not on record" not in text or edition == "curator"
    assert "accura" not in (out + json.dumps(record)).lower()


def test_what_is_said_in_words(run, wages):
    code, out, _ = run(f"{PUBLIC} --epsilon 10 --model regression --out a")
    assert code == 0
    assert "test error" in out
    assert "R squared" in out
    assert "always the middle" in out
    assert "accura" not in out.lower()
    assert "eyes only" not in out


def test_errors_on_private_rows_are_for_the_curator(run, wages):
    options = "--test held_out.csv --model regression"
    code, out, _ = run(f"{SMALL} {options} --out a --json")
    assert code == 0
    assert not ERRORS & json.loads(out).keys()
    assert "error" not in (wages / "a" / "record.json").read_text()
    kept = json.loads((wages / "a" / "curator" / "results.json").read_text())
    assert kept.keys() == ERRORS
    code, out, _ = run(f"{SMALL} {options} --out b")
    assert "for your eyes only" in " ".join(out.split())
    run("report a -o card.md")
    card = (wages / "card.md").read_text()
    assert "No error may be told in public" in card
    assert "Off by" not in card
    run("report a b --edition curator -o mine.md")
    off = amount_text(kept["root_mean_squared_error"])
    assert f"| off by {off} |" in (wages / "mine.md").read_text()


def test_a_dry_run_says_what_it_would_cost(run, wages):
    code, out, _ = run(f"{SMALL} --model ridge --alpha 20 --dry-run --json")
    assert code == 0
    found = json.loads(out)
    assert found["regularisation"] == pytest.approx(0.01)
    # One row added or removed, of length 1 and with a target of 1: itself, and its square.
    assert found["sensitivity"] == pytest.approx(2**0.5, rel=1e-6)
    assert found["recipe"]["model"] == "ridge"
    assert len(list(wages.iterdir())) == 4


def test_the_ledger_pays_first_and_once(run, wages):
    ledger = Ledger(wages / "l.db")
    ledger.create("wages", Budget(1.5, 1e-4), unit="person")
    command = f"{SMALL} --model regression --ledger l.db --dataset wages"
    assert run(f"{command} --out a --json")[0] == 0
    assert 0.4 < ledger.status("wages").left < 0.51
    code, _, err = run(f"{command} --out b")
    assert code != 0
    assert "refused" in err
    assert not (wages / "b").exists()


def test_the_same_again_by_its_record(run, wages):
    options = "--model ridge --alpha 5 --way output --threshold 0.5 --tuned-on elsewhere"
    assert run(f"{SMALL} {options} --out a --json")[0] == 0
    code, _, err = run(f"train erm {DATA} --like a/record.json --out b --json")
    assert code == 0, err
    first, second = (json.loads((wages / n / "record.json").read_text()) for n in "ab")
    assert first["parameters"] == second["parameters"]
    assert first["facts"]["tuning"] == "elsewhere"
    code, _, err = run(f"train erm {DATA} --like a/record.json --alpha 3 --out c")
    assert code == 2
    assert "--alpha must be left out" in err


@pytest.mark.parametrize(
    "command",
    [
        "train dp-sgd --epsilon 1 --out a --ledger l.db --dataset wages",
        "train dp-sgd --epsilon 1 --dry-run",
        "train plain --out a",
        "train pate --epsilon 1 --out a --ledger l.db --dataset wages",
        "compare --epsilon 1 --test held_out.csv --out a",
    ],
)
def test_commands_for_classes_name_the_one_for_numbers(run, wages, command):
    ledger = Ledger(wages / "l.db")
    ledger.create("wages", Budget(1.5, 1e-4), unit="person")
    code, _, err = run(f"{command} {DATA}")
    assert code == 2
    assert "labels are numbers" in " ".join(err.split())
    assert "train erm --model regression" in " ".join(err.split())
    assert not (wages / "a").exists()
    assert ledger.status("wages").left == 1.5


@pytest.mark.parametrize(
    "attack", ["membership", "extraction", "attribute --column 0 --values 0,1", "inversion"]
)
def test_attacks_are_for_classes_and_show_no_label(run, wages, attack):
    run(f"{SMALL} --test held_out.csv --out a --json")
    code, out, err = run(f"attack {attack} --run a")
    assert code == 2
    assert "labels are numbers" in " ".join(err.split())
    assert "got" not in out + err


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (f"{SMALL} --model logistic", "model must be 'regression' or 'ridge' where labels are"),
        (f"{SMALL} --model svc", "model must be 'regression' or 'ridge'"),
        ("train erm --data digits --epsilon 1 --model regression", "'logistic' or 'svc' where"),
        ("train erm --data digits --epsilon 1 --model ridge", "declare label_bounds instead"),
        (f"{SMALL} --alpha 1", "alpha must be left out but for model 'ridge'"),
        (f"{SMALL} --model ridge --alpha -1", "alpha must be a finite number above 0"),
        (f"{SMALL} --threshold 1", "threshold must be left out"),
        (f"{SMALL} --model ridge --regularisation 1", "regularisation must be left out for ridge"),
        (f"{SMALL} --way sgd", "neighbours must be 'replace-one'"),
        (f"{SMALL} --neighbours zero-out", "neighbours must be 'replace-one' or 'add-remove'"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(run, wages, command, words):
    code, _, err = run(f"{command} --out a")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (wages / "a").exists()
