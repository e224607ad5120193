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


@pytest.mark.slow
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
        ("--teachers 1 --dry-run", "at least 2"),
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


# --- teachers of one's own ------------------------------------------------------------------------

OWN = "train pate --data digits --student supervised --steps 20 --test-rows 100 --device cpu"


@pytest.fixture
def labels(tmp_path):
    """Of seven teachers, on the 260 public inputs, all of them right; a public file."""
    from sfumato.data import load_dataset

    found = np.repeat(load_dataset("digits").test.labels[:260, None], 7, axis=1)
    np.save(tmp_path / "labels.npy", found)
    return found


def test_labels_from_a_file(run, tmp_path, labels):
    options = "--teacher-labels labels.npy --sigma 0.01 --answers 30 --unit hospital"
    code, out, _ = run(f"{OWN} {options} --out a --json")
    assert code == 0
    found = json.loads(out)
    assert (found["teachers"], found["unit"], found["answers"]) == (7, "hospital", 30)
    lines = (tmp_path / "a/curator/answers.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines if '"label"' in line]
    assert len(answers) == 30
    assert all(one["label"] == labels[one["question"], 0] for one in answers)
    record = json.loads((tmp_path / "a/record.json").read_text())
    assert record["parameters"]["recipe"]["kind"] == "own"
    assert record["facts"]["parts_made_disjoint_by"].startswith("whoever brought the teachers")
    (tmp_path / "a/record.json").unlink()
    code, again, _ = run("train resume a --json")
    assert code == 0
    assert json.loads(again)["accuracy"] == found["accuracy"]


def test_votes_from_a_file_and_a_run_like_it(run, tmp_path, labels):
    np.save(tmp_path / "votes.npy", 7 * np.eye(10)[labels[:, 0]])
    own = "--teacher-votes votes.npy"
    code, _, err = run(f"{OWN} {own} --sigma 2 --answers 20 --out a")
    assert code == 2
    assert "teachers must be given with --teacher-votes" in err
    assert run(f"{OWN} {own} --teachers 7 --sigma 2 --answers 20 --out a --json")[0] == 0
    like = "train pate --data digits --like a/record.json"
    code, out, _ = run(f"{like} {own} --out b --json")
    assert code == 0
    first, second = (json.loads((tmp_path / n / "record.json").read_text()) for n in "ab")
    for part in ("parameters", "event", "guarantee"):
        assert first[part] == second[part]
    code, _, err = run(f"{like} --out c")
    assert (code, "got none for 'own'" in err) == (2, True)
    code, out, _ = run(f"{like} --dry-run --json")
    assert json.loads(out)["epsilon"] == first["guarantee"]["epsilon"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--teacher-labels labels.npy --teachers 8", "one with 8 columns"),
        ("--teacher-labels labels.npy --kind linear", "--kind must be left out"),
        ("--teacher-labels labels.npy --rows 100", "--rows must be left out"),
        ("--teacher-labels labels.npy --teacher-votes labels.npy", "--teacher-votes must be left"),
        ("--teacher-labels labels.npy --test-rows 50", "for each of the 310 public inputs"),
        ("--teacher-labels absent.npy", "absent.npy"),
    ],
)
def test_mistakes_about_ones_own_teachers(run, tmp_path, labels, options, words):
    code, _, err = run(f"{OWN} --sigma 2 --answers 20 --out a {options}")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (tmp_path / "a").exists()


# --- by a record, and options ---------------------------------------------------------------------


@pytest.mark.slow
def test_what_would_change_a_recorded_recipe_is_refused(run, tmp_path, labels):
    made = f"{OWN} --teacher-labels labels.npy --sigma 2 --answers 20 --tuned-on elsewhere"
    assert run(f"{made} --student-option rate=0.01 --out a")[0] == 0
    record = json.loads((tmp_path / "a/record.json").read_text())
    assert record["parameters"]["recipe"]["student"]["rate"] == 0.01
    assert record["facts"]["tuning"] == "elsewhere"
    for options, words in (
        ("--epsilon 2", "--epsilon must be left out with --like"),
        ("--answers 250", "--answers must be left out with --like"),
        ("--publish-cost", "--publish-cost must be left out with --like"),
        ("--student gan", "--student must be left out with --like"),
    ):
        code, _, err = run(f"train pate --data digits --like a {options} --out b")
        assert (code, words in err) == (2, True)
    code, _, err = run("train dp-sgd --data digits --like a --out b")
    assert (code, "the record of a run of dp-sgd, got 'one of pate'" in err) == (2, True)
    record["facts"]["data"]["name"] = "patients"
    (tmp_path / "record.json").write_text(json.dumps(record))
    again = "--like record.json --teacher-labels labels.npy"
    code, _, err = run(f"train pate --data digits {again} --out b")
    assert (code, "a record about 'digits', got one about 'patients'" in err) == (2, True)
    assert not (tmp_path / "b").exists()


def test_a_password_is_not_kept(run, tmp_path, labels, monkeypatch):
    from sfumato.learning.pate import training

    seen = {}
    monkeypatch.setattr(training, "train_pate", lambda *a, **given: seen.update(given) or 1 / 0)
    made = f"{OWN} --teacher-labels labels.npy --sigma 2 --answers 20 --out a"
    code, _, _ = run(f"{made} --ledger postgresql://me:secret@there/ledger --dataset d")
    assert code == 1  # it went no further
    assert seen["ledger"] == "postgresql://me:secret@there/ledger"
    assert "secret" not in json.dumps(seen["request"])


# --- tables ---------------------------------------------------------------------------------------


@pytest.fixture
def mothers(tmp_path):
    """Private rows with owners, public rows without labels, test rows, and a declaration."""
    from sfumato.data import DataUnavailable, load_table, task_facts

    try:
        table = load_table("labsup")
    except DataUnavailable as error:
        pytest.skip(str(error))
    declared = task_facts("labsup").declared
    names = [column.name for column in declared.columns]
    table["mother"] = [f"m{number}" for number in range(len(table))]
    private, public, test = table[:9000], table[9000:10000], table[10000:14000]
    private[["mother", *names, "worked"]].to_csv(tmp_path / "mothers.csv", index=False)
    public[names].to_csv(tmp_path / "public.csv", index=False)
    test[[*names, "worked"]].to_csv(tmp_path / "test.csv", index=False)
    ranges = {c.name: {"lower": c.bounds[0], "upper": c.bounds[1]} for c in declared.columns}
    said = {
        "label": "worked", "classes": [0, 1], "owner": "mother", "unit": "person", "owners": 9000,
        "public_test": True, "columns": ranges,
    }  # fmt: skip
    (tmp_path / "mothers.json").write_text(json.dumps(said))
    return table


TABLE = "train pate --data mothers.csv --declared mothers.json --unlabelled public.csv --device cpu"


@pytest.mark.slow
def test_a_table_of_people_from_end_to_end(run, tmp_path, mothers):
    options = "--teachers 30 --sigma 2 --answers 150 --steps 300 --no-progress"
    code, out, err = run(f"{TABLE} --test test.csv {options} --out a --json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["unit"], found["teachers"], found["answers"]) == ("person", 30, 150)
    assert 0.57 < found["accuracy"] < 0.70  # logistic regression on all rows: 0.656
    record = json.loads((tmp_path / "a/record.json").read_text())
    assert record["parameters"]["recipe"]["student"]["kind"] == "supervised"
    facts = record["facts"]
    assert (facts["public_inputs"], facts["data"]["public_size"]) == (1000, 9000)
    assert facts["parts_made_disjoint_by"].startswith("here: each one's rows")
    (tmp_path / "a/record.json").unlink()
    code, again, _ = run("train resume a --json")
    assert (code, json.loads(again)["accuracy"]) == (0, found["accuracy"])


def test_what_does_not_take_a_table_says_so(run, tmp_path, mothers):
    for options, words in (
        ("--student fixmatch", "this student takes images, got rows of 11 columns"),
        ("--kind cnn-small", "(channels, height, width)"),
        ("--student-option features=scattering", "scattering is for images"),
        ("--answers 2000", "public inputs for all 2000 questions"),
    ):
        code, _, err = run(f"{TABLE} --epsilon 8 {options} --out a")
        assert code == 2
        assert words in " ".join(err.split())
    assert not (tmp_path / "a").exists()
