"""``sfumato train pate`` as people type it."""

import json

import numpy as np
import pytest

from sfumato.ledger import Budget, Ledger

SMALL = (
    "train pate --data digits --teachers 6 --sigma 3 --answers 20 --test-rows 100 --student "
    "supervised --steps 20 --device cpu --no-progress"
)


def test_a_dry_run_says_what_it_would_cost(run, tmp_path):
    code, out, _ = run("train pate --data mnist --epsilon 1 --answers 100 --dry-run --json")
    assert code == 0
    found = json.loads(out)
    assert found["epsilon"] <= 1
    assert found["plan"]["aggregator"]["sigma"] == pytest.approx(52.76, abs=0.01)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ("--aggregator lnmax --gamma 0.05 --answers 100", "lnmax"),
        ("--aggregator lnmax --epsilon 2 --answers 100", "lnmax"),
        ("--aggregator confident --epsilon 2", "confident"),
        ("--aggregator interactive --epsilon 2 --rounds 3", "interactive"),
    ],
)
def test_every_aggregator_by_name(run, options, kind):
    code, out, _ = run(f"train pate --data mnist {options} --dry-run --json")
    assert code == 0
    found = json.loads(out)
    assert found["plan"]["aggregator"]["kind"] == kind
    assert found["epsilon"] <= (10 if "gamma" in options else 2)
    if kind != "lnmax":
        assert found["plan"]["questions"] == 500


def test_a_plan_for_people(run):
    code, out, _ = run("train pate --data mnist --epsilon 1 --answers 100 --dry-run")
    assert code == 0
    assert "at most 100 of 100 questions" in out
    assert "epsilon 1, delta 1e-05, add or remove one record" in out


def test_a_run_its_ledger_and_its_folder(run, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("digits", Budget(30.0, 1e-5))
    code, out, _ = run(f"{SMALL} --ledger l.db --dataset digits --out a --json")
    assert code == 0
    found = json.loads(out)
    assert (found["answers"], found["questions"], found["private"]) == (20, 20, True)
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record["facts"]["accuracy"] == found["accuracy"]
    assert sum(e.kind == "reserve" for e in ledger.history("digits")) == 20
    code, _, err = run(f"{SMALL} --out a")
    assert code == 2
    assert "holds a finished run" in err


def test_cut_off_it_goes_on(run, tmp_path):
    code, first, _ = run(f"{SMALL} --out a --json")
    assert code == 0
    (tmp_path / "a" / "record.json").unlink()
    code, again, _ = run("train resume a --json")
    assert code == 0
    assert json.loads(again)["accuracy"] == json.loads(first)["accuracy"]
    answers = (tmp_path / "a" / "curator" / "answers.jsonl").read_text()
    assert answers.count('"teachers"') == 20


def test_public_inputs_from_a_file(run, tmp_path):
    np.save(tmp_path / "more.npy", np.zeros((30, 8, 8, 1), dtype=np.uint8))
    code, _, _ = run(f"{SMALL} --unlabelled more.npy --out a --json")
    assert code == 0
    assert json.loads((tmp_path / "a" / "record.json").read_text())["facts"]["public_inputs"] == 30


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "out must be given"),
        ("--out a --aggregator median", "aggregator must be one of"),
        ("--out a --student dunce", "student must be one of"),
        ("--out a --teachers 1", "at least 2"),
        ("--out a --answers 0", "answers"),
        ("--out a --sigma -1", "sigma"),
        ("--out a --answers 500", "public inputs for all 500 questions"),
        ("--out a --ledger no.db --dataset d", "d"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(run, tmp_path, options, words):
    code, _, err = run(f"{SMALL} {options}")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (tmp_path / "a").exists()


def test_no_noise_and_no_epsilon(run):
    code, _, err = run("train pate --data mnist --dry-run")
    assert code == 2
    assert "epsilon must be given" in err


def test_epsilon_is_met_with_the_published_cost_in_it(run):
    options = "--data mnist --epsilon 2 --answers 50 --teachers 50 --publish-cost --dry-run --json"
    code, out, _ = run(f"train pate {options}")
    assert code == 0
    found = json.loads(out)
    assert found["epsilon"] <= 2
    assert found["plan"]["sanitiser"]["confidence"] == 0.999
