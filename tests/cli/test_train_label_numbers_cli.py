"""``sfumato train label-dp`` on labels that are numbers, as people type it."""

import json

import numpy as np
import pytest

from sfumato.learning.label_dp import randomising
from sfumato.learning.label_dp.top_k import TopKResponse
from sfumato.ledger import Budget, Ledger
from sfumato.reports.facts import amount_text

DECLARED = """
label = "wage"
label_bounds = [0, 60]

[columns.schooling]
lower = 0
upper = 20

[columns.sector]
categories = ["industry", "services", "farming"]
"""
DATA = "--data wages.csv --declared wages.toml"
SMALL = f"train label-dp {DATA} --epsilon 3 --device cpu --no-progress"
PUBLIC = (
    "train label-dp --data wages.csv --declared public.toml --test held_out.csv --device cpu "
    "--no-progress"
)
ERRORS = {
    "root_mean_squared_error", "r_squared", "error_of_the_middle", "mean_absolute_error",
}  # fmt: skip
SURE = 1 - 1e-6


def rows(rng, count):
    schooling = rng.integers(0, 21, count)
    sector = rng.choice(["industry", "services"], count)
    wage = 10 + 1.8 * schooling + 4 * (sector == "industry") + rng.normal(0, 3, count)
    lines = [f"{a},{b},{c:.2f}" for a, b, c in zip(schooling, sector, wage, strict=True)]
    return "schooling,sector,wage\n" + "\n".join(lines) + "\n"


@pytest.fixture
def wages(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "wages.csv").write_text(rows(rng, 2998) + "7,industry,unknown\n,,1e400\n")
    (tmp_path / "held_out.csv").write_text(rows(rng, 500))
    (tmp_path / "wages.toml").write_text(DECLARED)
    (tmp_path / "public.toml").write_text(f"public_test = true\n{DECLARED}")
    return tmp_path


def test_a_run_its_ledger_its_report_and_another_like_it(run, wages):
    ledger = Ledger(wages / "l.db")
    ledger.create("wages-labels", Budget(8.0), unit="label", neighbours="replace-one")
    charged = "--ledger l.db --dataset wages-labels"
    code, out, err = run(f"{PUBLIC} --epsilon 3 {charged} --out a --json")
    assert code == 0, err
    found = json.loads(out)
    assert (found["epsilon"], found["delta"], found["unit"]) == (3, 0, "label")
    assert (found["finished"], found["private"], found["stages"]) == (True, True, [3000])
    assert found["root_mean_squared_error"] < 0.6 * found["error_of_the_middle"]
    record = json.loads((wages / "a/record.json").read_text())
    assert {name: record["facts"][name] for name in ERRORS} == {n: found[n] for n in ERRORS}
    assert ledger.status("wages-labels").left == pytest.approx(5.0, abs=1e-6)
    for edition in ("publishable", "curator"):
        code, _, _ = run(f"report a --edition {edition} -o {edition}.md")
        assert code == 0
        text = (wages / f"{edition}.md").read_text()
        off = amount_text(found["root_mean_squared_error"])
        assert f"Off by {off} on its test set (public)" in text
        assert "accura" not in text.lower()
        assert "Not on record" not in text or edition == "curator"
    for words in (
        "one label", "intervals, by randomised response", "a noisy histogram of the labels",
        "0 and 60", "least squares alone", "says nothing of inputs", "mean absolute error is",
    ):  # fmt: skip
        assert words in (wages / "publishable.md").read_text()
    code, _, err = run(
        "train label-dp --data wages.csv --declared public.toml --like a/record.json --out b --json"
    )
    assert code == 0, err
    assert json.loads((wages / "b/record.json").read_text())["parameters"] == record["parameters"]


def test_what_is_said_in_words(run, wages):
    code, out, _ = run(f"{PUBLIC} --epsilon 3 --out a")
    assert code == 0
    for words in ("test error", "R squared", "mean absolute", "always the middle", "3,000, in"):
        assert words in out
    assert "accura" not in out.lower()
    assert "eyes only" not in out


def test_errors_on_private_rows_are_for_the_curator(run, wages):
    code, out, _ = run(f"{SMALL} --test held_out.csv --out a --json")
    assert code == 0
    assert not ERRORS & json.loads(out).keys()
    assert "error" not in (wages / "a/record.json").read_text()
    assert json.loads((wages / "a/curator/results.json").read_text()).keys() == ERRORS
    code, out, _ = run(f"{SMALL} --test held_out.csv --out b")
    assert "for your eyes only" in " ".join(out.split())
    code, out, _ = run(f"{SMALL} --out c")
    assert code == 0
    assert "test error" not in out
    run("report a -o card.md")
    assert "No error may be told in public" in (wages / "card.md").read_text()


def test_a_dry_run_says_what_it_would_cost(run, wages):
    before = sorted(wages.iterdir())
    code, out, _ = run(f"{SMALL} --histogram-share 0.2 --points 16 --dry-run --json")
    assert code == 0
    found = json.loads(out)
    assert (found["epsilon"], found["unit"], found["neighbours"]) == (3, "label", "replace-one")
    assert (found["histogram_epsilon"], found["report_epsilon"]) == (
        pytest.approx(0.6), pytest.approx(2.4),
    )  # fmt: skip
    assert found["recipe"]["points"] == 16
    assert "with histogram_share, points given" in found["recipe"]["origin"]
    code, out, _ = run(f"{SMALL} --dry-run")
    said = " ".join(out.split())
    assert "numbers from 0 to 60, as declared" in said
    assert "a noisy histogram, for 0.3 of epsilon" in said
    assert "one of each label, epsilon 2.7" in said
    assert "an even guess" in " ".join(run(f"{SMALL} --histogram-share 0 --dry-run")[1].split())
    assert sorted(wages.iterdir()) == before


def test_a_public_guess_instead_of_a_histogram(run, wages):
    (wages / "guess.json").write_text(json.dumps([1, 2, 4, 4, 4, 2, 1]))
    code, out, err = run(f"{PUBLIC} --epsilon 3 --prior guess.json --out a --json")
    assert code == 0, err
    assert json.loads(out)["prior"] == "a public guess"
    recipe = json.loads((wages / "a/record.json").read_text())["parameters"]["recipe"]
    assert (recipe["points"], recipe["histogram_share"]) == (7, 0)
    assert "a public guess" in " ".join(run(f"{SMALL} --prior guess.json --dry-run")[1].split())
    for text, words in (
        ("[1, -2]", "prior must be"), ("{}", "prior must be a file with a JSON list"),
        ("x", "prior must be a file with a JSON list"), ("[0, 0]", "not all 0"),
    ):  # fmt: skip
        (wages / "guess.json").write_text(text)
        code, _, err = run(f"{SMALL} --prior guess.json --out b")
        assert code == 2
        assert words in " ".join(err.split())
    assert not (wages / "b").exists()
    code, _, err = run(f"{SMALL} --prior nowhere.json --out b")
    assert code != 0
    assert "nowhere.json" in err


def test_in_pieces_with_a_network(run, wages):
    learner = "--network mlp --network-option hidden=8 --epochs 2"
    code, out, err = run(f"{PUBLIC} --epsilon 3 {learner} --minutes 1e-9 --out a --json")
    assert code == 0, err
    assert json.loads(out)["finished"] is False
    assert not (wages / "a/record.json").exists()
    told = (wages / "a/curator/reports.jsonl").read_text()
    request = wages / "a/curator/request.json"
    asked = json.loads(request.read_text())
    asked["settings"]["minutes"] = None
    request.write_text(json.dumps(asked))
    code, out, err = run("train resume a --device cpu")
    assert code == 0, err
    assert "labels randomised" in out
    after = (wages / "a/curator/reports.jsonl").read_text()
    assert after.startswith(told)
    assert after.count('"reports"') == told.count('"reports"') == 3  # a histogram, two pieces
    options = json.loads((wages / "a/record.json").read_text())["parameters"]["recipe"]["options"]
    assert options == {"hidden": 8, "layers": 1, "dropout": 0.0}


@pytest.mark.usefixtures("steady_coins")
def test_an_honest_run_stands_an_audit(run, wages):
    assert run(f"{SMALL} --histogram-share 0.5 --out a --json")[0] == 0
    code, out, err = run(f"audit --run a --json --confidence {SURE!r}")
    assert code == 0, err
    found = json.loads(out)
    assert (found["verdict"], found["channel"]) == ("consistent", "curator")
    assert found["claim"]["epsilon"] == 1.5  # of the reports, given the histogram
    assert 0.7 < found["epsilon_at_least"] < 1.5
    assert all(name.startswith("from ") for name in found["facts"]["labels"])
    assert found["facts"]["rows"] == 3000
    (wages / "wages.csv").write_text(rows(np.random.default_rng(5), 3000))
    code, _, err = run("audit --run a")
    assert code == 2
    assert "data must be what the run in a was trained on" in " ".join(err.split())


def test_an_audit_needs_the_curators_folder(run, wages):
    assert run(f"{SMALL} --out a --json")[0] == 0
    (wages / "a/curator/bins.json").unlink()
    code, _, err = run("audit --run a")
    assert code == 2
    assert "must have its curator's folder" in " ".join(err.split())


@pytest.mark.usefixtures("steady_coins", "wages")
def test_a_run_whose_reports_are_made_at_twice_the_epsilon_is_caught(run, monkeypatch):
    honest, loud = TopKResponse.perturb, TopKResponse(2.7)
    monkeypatch.setattr(
        randomising.TopKResponse, "perturb", lambda self, *a, **k: honest(loud, *a, **k)
    )
    assert run(f"train label-dp {DATA} --epsilon 1.5 --device cpu --out a --json")[0] == 0
    code, out, err = run(f"audit --run a --json --confidence {SURE!r}")
    assert code == 0, err
    assert json.loads(out)["verdict"] == "refuted"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "out must be given"),
        ("--out a --stages 2", "--stages must be left out where labels are numbers"),
        ("--out a --mechanism alibi", "--mechanism must be left out where labels are numbers"),
        ("--out a --preset table", "--preset must be left out"),
        ("--out a --targets soft", "it is for classes, got 'soft'"),
        ("--out a --mixup 1", "--mixup must be left out"),
        ("--out a --pretrained x", "--pretrained must be left out"),
        ("--out a --points 1000", "points must be at most 512, got 1000"),
        ("--out a --histogram-share 1", "histogram_share must be"),
        ("--out a --network brain", "network must be one of"),
        ("--out a --network-option hidden=3", "options must be left out without a network"),
        ("--out a --rows 100", "rows must be left out with data of one's own"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(run, wages, options, words):
    code, _, err = run(f"{SMALL} {options}")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (wages / "a").exists()


def test_options_and_records_of_the_other_kind_of_label(run, wages):
    for option in ("--points 16", "--histogram-share 0.2", "--prior x.json"):
        code, _, err = run(f"train label-dp --data digits --epsilon 2 {option} --dry-run")
        assert code == 2
        assert "must be left out where labels are classes" in " ".join(err.split())
    code, _, err = run(f"train label-dp {DATA} --dry-run")
    assert code == 2
    assert "epsilon must be given" in err
    classes = json.loads(run("train label-dp --data digits --epsilon 2 --dry-run --json")[1])
    numbers = json.loads(run(f"{SMALL} --dry-run --json")[1])
    for recipe, name, data in (
        (classes["recipe"], "wages", DATA),
        (numbers["recipe"], "digits", "--data digits"),
    ):
        record = {"method": "label-dp", "parameters": {"recipe": recipe}}
        record["facts"] = {"data": {"name": name}}
        (wages / "record.json").write_text(json.dumps(record))
        code, _, err = run(f"train label-dp {data} --like record.json --dry-run")
        assert code == 2
        assert "like must be a record of labels that are" in " ".join(err.split())
    code, _, err = run(f"train label-dp {DATA} --like record.json --points 3 --dry-run")
    assert code == 2
    assert "--points must be left out with --like" in " ".join(err.split())


def test_a_budget_of_people_is_refused(run, wages):
    Ledger(wages / "l.db").create("wages", Budget(8.0), unit="person", neighbours="replace-one")
    code, _, err = run(f"{SMALL} --ledger l.db --dataset wages --out a")
    assert code != 0
    assert "open an account for labels" in " ".join(err.split())
    assert not (wages / "a").exists()


def test_attacks_are_for_classes(run, wages):
    assert run(f"{SMALL} --test held_out.csv --out a --json")[0] == 0
    code, out, err = run("attack membership --run a")
    assert code == 2
    assert "labels are numbers" in " ".join(err.split())
    assert "got" not in out + err
