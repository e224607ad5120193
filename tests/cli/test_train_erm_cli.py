"""``sfumato train erm`` as people type it."""

import json

import numpy as np
import pytest

from sfumato.learning.recipes.loading import load_run
from sfumato.ledger import Budget, Ledger

DECLARED = """
label = "ill"
classes = ["no", "yes"]
records = 400

[columns.age]
lower = 0
upper = 100

[columns.city]
categories = ["Rome", "Milan", "Oslo"]
"""
SMALL = "train erm --data patients.csv --declared patients.toml --epsilon 2"


@pytest.fixture
def patients(tmp_path):
    rng = np.random.default_rng(0)
    ages = rng.integers(0, 101, 400)
    lines = [f"{age},{rng.choice(['Rome', 'Oslo'])},{'yes' if age > 60 else 'no'}" for age in ages]
    text = "age,city,ill\n" + "\n".join(lines) + "\n"
    (tmp_path / "patients.csv").write_text(text)
    (tmp_path / "test.csv").write_text(text)
    (tmp_path / "patients.toml").write_text(DECLARED)
    return tmp_path


def test_a_dry_run_says_what_it_would_cost(run, patients):
    code, out, _ = run(f"{SMALL} --way output --delta 0 --dry-run --json")
    assert code == 0
    found = json.loads(out)
    assert (found["epsilon"], found["delta"], found["neighbours"]) == (2.0, 0.0, "add-remove")
    # One in 400 added or removed, of a loss of slope 1.
    assert found["sensitivity"] == pytest.approx(1 / (400 * found["regularisation"]), rel=1e-3)
    assert found["noise_scale"] == pytest.approx(found["sensitivity"] / 2)
    code, out, _ = run(f"{SMALL} --dry-run")
    assert code == 0
    assert "add or remove one record" in out
    assert len(list(patients.iterdir())) == 3


def test_a_run_its_ledger_its_folder_and_its_report(run, patients):
    ledger = Ledger(patients / "l.db")
    ledger.create("patients", Budget(3.0, 1e-4))
    command = f"{SMALL} --test test.csv --ledger l.db --dataset patients"
    code, out, _ = run(f"{command} --out a --json")
    assert code == 0
    found = json.loads(out)
    assert found["private"] is True
    assert "accuracy" not in found  # measured on rows that nobody declared to be public
    record = json.loads((patients / "a" / "record.json").read_text())
    assert "accuracy" not in record["facts"]
    assert record["facts"]["ledger"]["dataset"] == "patients"
    assert record["parameters"]["plan"]["scaling"]["lower"] == [0.0, -1.0, -1.0, -1.0]
    kept = json.loads((patients / "a" / "curator" / "results.json").read_text())
    assert 0 <= kept["accuracy"] <= 1
    assert 0.9 < ledger.status("patients").left < 1.01
    code, _, err = run(f"{command} --out b")
    assert code != 0
    assert "refused" in err
    assert not (patients / "b").exists()
    code, _, _ = run("report a -o a.html")
    assert code == 0
    assert "epsilon" in (patients / "a.html").read_text()


def test_what_is_kept_predicts_as_what_was_learnt(run, tmp_path):
    code, out, _ = run("train erm --data digits --epsilon 1000 --model svc --out a --json")
    assert code == 0
    accuracy = json.loads(out)["accuracy"]
    from sfumato.data import load_dataset

    data, loaded = load_dataset("digits"), load_run(tmp_path / "a")
    found = (loaded.scores(data.test.inputs).argmax(axis=1) == data.test.labels).mean()
    assert found == pytest.approx(accuracy, abs=0.01)
    assert accuracy > 0.5
    assert "svc" in loaded._repr_html_()


def test_the_same_again_by_its_record(run, patients):
    options = "--model svc --regularisation 0.05 --tuned-on elsewhere --neighbours replace-one"
    code, _, _ = run(f"{SMALL} {options} --way sgd --out a --json")
    assert code == 0
    again = "train erm --data patients.csv --declared patients.toml --like a/record.json"
    code, _, _ = run(f"{again} --out b --json")
    assert code == 0
    first, second = (json.loads((patients / n / "record.json").read_text()) for n in "ab")
    assert first["parameters"] == second["parameters"]
    assert first["facts"]["tuning"] == "elsewhere"
    code, _, err = run(f"{again} --epsilon 3 --out c")
    assert code == 2
    assert "--epsilon must be left out" in err


def test_public_wavelets_before_it(run):
    command = "train erm --data digits --epsilon 1000 --features scattering"
    code, out, _ = run(f"{command} --out a --json")
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "out must be given"),
        ("--out a --way magic", "way must be one of"),
        ("--out a --model tree", "model must be one of"),
        ("--out a --way sgd", "neighbours must be 'replace-one'"),
        ("--out a --model svc --way functional", "way must be 'output'"),
        ("--out a --features pca", "public ones"),
        ("--out a --delta 1", "delta must be"),
        ("--out a --rows 100 --ledger l.db --dataset d", "rows must be left out"),
        ("--out a --ledger no.db --dataset d", "d"),
        ("--out a --like patients.toml", "--epsilon must be left out"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(run, patients, options, words):
    code, _, err = run(f"{SMALL} {options}")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (patients / "a").exists()


def test_no_epsilon(run):
    code, _, err = run("train erm --data labsup --dry-run")
    assert code == 2
    assert "epsilon must be given" in err


def test_owners_of_several_rows_are_refused(run, patients):
    text = DECLARED.replace("records = 400", 'owner = "city"\nunit = "town"\nowners = 3')
    text = text[: text.index("[columns.city]")]
    (patients / "patients.toml").write_text(text)
    code, _, err = run(f"{SMALL} --out a")
    assert code == 2
    assert "owners must be left out" in err


def test_a_run_that_was_cut_off_begins_anew(run, patients):
    run(f"{SMALL} --out a --json")
    (patients / "a" / "record.json").unlink()
    code, _, err = run("train resume a")
    assert code == 2
    assert "train again" in " ".join(err.split())


def test_no_feature_is_computed_before_the_charge(run, patients, monkeypatch):
    Ledger(patients / "l.db").create("patients", Budget(0.5, 1e-4))
    computed = []
    prepared = "sfumato.learning.recipes.preparing"
    monkeypatch.setattr(f"{prepared}.inputs_of", lambda *given: computed.append(given))
    code, _, err = run(f"{SMALL} --ledger l.db --dataset patients --out a")
    assert code != 0
    assert "refused" in err
    assert computed == []
    assert not (patients / "a").exists()


def test_blanked_rows_are_refused(run, patients):
    code, _, err = run(f"{SMALL} --neighbours zero-out --out a")
    assert code == 2
    assert "neighbours must be 'replace-one' or 'add-remove'" in " ".join(err.split())
    assert not (patients / "a").exists()
