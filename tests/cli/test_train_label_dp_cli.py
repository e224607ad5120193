"""``sfumato train label-dp`` as people type it."""

import json

import pytest

from sfumato.ledger import Budget, Ledger

SMALL = (
    "train label-dp --data digits --preset table --epochs 10 --batch 64 --epsilon 4 --device cpu "
    "--no-progress"
)


def test_a_dry_run_says_what_it_would_cost(run, tmp_path):
    code, out, _ = run("train label-dp --data digits --epsilon 2 --dry-run --json")
    assert code == 0
    found = json.loads(out)
    assert (found["epsilon"], found["delta"], found["unit"]) == (2, 0, "label")
    assert found["neighbours"] == "replace-one"
    assert found["keep"] == pytest.approx(0.450853, abs=5e-7)
    assert (found["stages"], found["recipe"]["shares"]) == (2, [0.6, 0.4])
    assert not list(tmp_path.iterdir())
    code, out, _ = run("train label-dp --data digits --mechanism alibi --epsilon 2 --dry-run")
    assert code == 0
    assert "Laplace noise of scale 1" in out
    code, out, _ = run("train label-dp --data digits --epsilon 2 --dry-run")
    assert "true with probability 0.4509" in out
    assert "public: the guarantee says nothing about them" in out


def test_a_run_its_ledger_its_report_and_another_like_it(run, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("digits-labels", Budget(8.0), unit="label", neighbours="replace-one")
    charged = "--ledger l.db --dataset digits-labels"
    code, out, _ = run(f"{SMALL} {charged} --out a --json")
    assert code == 0
    found = json.loads(out)
    assert (found["finished"], found["private"], found["stages"]) == (True, True, [862, 575])
    assert found["accuracy"] > 0.5
    record = json.loads((tmp_path / "a/record.json").read_text())
    assert record["facts"]["accuracy"] == found["accuracy"]
    assert record["facts"]["inputs_are"].startswith("public")
    assert ledger.status("digits-labels").left == pytest.approx(4.0, abs=1e-6)
    code, out, _ = run("report a -o card.html")
    assert code == 0
    assert "not on record" not in out
    page = (tmp_path / "card.html").read_text()
    for words in ("one label", "862, 575", "--like record.json", "says nothing of inputs"):
        assert words in page
    code, _, _ = run("train label-dp --data digits --like a/record.json --out b --json")
    assert code == 0
    again = json.loads((tmp_path / "b/record.json").read_text())
    assert again["parameters"] == record["parameters"]


def test_learning_from_inputs_first(run, tmp_path):
    code, out, _ = run("train label-dp --data digits --epsilon 1 --preset contrastive --dry-run")
    assert code == 0
    assert "150 epochs on inputs alone" in " ".join(out.split())
    begin = (
        "train label-dp --data digits --preset contrastive --network small-cnn --epochs 1 "
        "--network-option width=2 --pretraining-epochs 0.1 --stages 1 --device cpu --no-progress "
        "--json"
    )
    code, _, _ = run(f"{begin} --epsilon 4 --out a")
    assert code == 0
    body = "a/curator/pretrained.safetensors"
    code, out, _ = run(f"{begin} --epsilon 2 --pretrained {body} --out b")
    assert code == 0
    assert json.loads(out)["epsilon"] == 2
    assert (tmp_path / "b/curator/pretrained.safetensors").read_bytes() == (
        tmp_path / body
    ).read_bytes()
    code, _, err = run(f"{begin} --epsilon 2 --pretrained {body} --batch 64 --out c")
    assert code == 2
    assert "pretrained must be a body of the same inputs" in " ".join(err.split())
    assert not (tmp_path / "c").exists()


def test_in_pieces(run, tmp_path):
    code, out, _ = run(f"{SMALL} --stages 1 --minutes 1e-9 --out a --json")
    assert code == 0
    assert json.loads(out)["finished"] is False
    assert not (tmp_path / "a/record.json").exists()
    request = tmp_path / "a/curator/request.json"
    asked = json.loads(request.read_text())
    asked["settings"]["minutes"] = None
    request.write_text(json.dumps(asked))
    code, out, _ = run("train resume a --device cpu")
    assert code == 0
    assert "labels randomised" in out
    told = (tmp_path / "a/curator/reports.jsonl").read_text()
    assert told.count('"reports"') == 1


def test_for_people(run):
    code, out, _ = run(f"{SMALL} --stages 1 --minutes 1e-9 --out a")
    assert code == 0
    assert "Go on: sfumato train resume a" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "out must be given"),
        ("--out a --stages 3", "stages must be 1 or 2"),
        ("--out a --mechanism none", "mechanism must be one of"),
        ("--out a --mechanism alibi --stages 2", "one stage"),
        ("--out a --preset magic", "preset must be one of"),
        ("--out a --network brain", "network must be one of"),
        ("--out a --first-share 2", "first-share"),
        ("--out a --stages 1 --first-share 0.5", "first-share must be left out"),
        ("--out a --network-option hidden", "NAME=VALUE"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(run, tmp_path, options, words):
    code, _, err = run(f"{SMALL} {options}")
    assert code == 2
    assert words in " ".join(err.split())
    assert not (tmp_path / "a").exists()


def test_no_epsilon_and_more_than_a_record(run, tmp_path):
    code, _, err = run("train label-dp --data digits --dry-run")
    assert code == 2
    assert "epsilon must be given" in err
    (tmp_path / "record.json").write_text("{}")
    code, _, err = run(f"{SMALL} --like record.json --dry-run")
    assert code == 2
    assert "must be left out with --like" in " ".join(err.split())
    code, _, err = run("train label-dp --data digits --like record.json --dry-run")
    assert code == 2
    assert "like must be" in err


def test_a_record_of_another_unit_is_not_taken_for_a_recipe(run, tmp_path):
    code, out, _ = run("train label-dp --data digits --epsilon 2 --dry-run --json")
    assert code == 0
    recipe = json.loads(out)["recipe"] | {"unit": "record"}
    record = {"method": "label-dp", "parameters": {"recipe": recipe}}
    record["facts"] = {"data": {"name": "digits"}}
    (tmp_path / "record.json").write_text(json.dumps(record))
    Ledger(tmp_path / "l.db").create("digits", Budget(8.0), neighbours="replace-one")
    charged = "--ledger l.db --dataset digits --out a"
    code, _, err = run(f"train label-dp --data digits --like record.json {charged}")
    assert code == 2
    assert "unit must be 'label'" in " ".join(err.split())
    assert not (tmp_path / "a").exists()


def test_a_run_that_nobody_paid_for_is_not_charged_when_it_goes_on(run, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("digits-labels", Budget(8.0), unit="label", neighbours="replace-one")
    code, _, _ = run(f"{SMALL} --stages 1 --dataset digits-labels --minutes 1e-9 --out a")
    assert code == 0
    code, _, err = run("train resume a --ledger l.db --device cpu")
    assert code == 2
    assert "the budget it began with" in " ".join(err.split())
    assert [entry.kind for entry in ledger.history("digits-labels")] == ["open"]


def test_the_first_rows_of_ones_own_data_are_refused(run, tmp_path):
    table = ["x,y", *(f"{n},{n // 20}" for n in range(40))]  # sorted by label
    (tmp_path / "own.csv").write_text("\n".join(table))
    declared = {"label": "y", "classes": [0, 1], "columns": {"x": {"lower": 0, "upper": 40}}}
    (tmp_path / "own.json").write_text(json.dumps(declared))
    begin = "train label-dp --data own.csv --declared own.json --epsilon 4 --epochs 1 --device cpu"
    code, _, err = run(f"{begin} --rows 30 --out a")
    assert code == 2
    assert "rows must be left out with data of one's own" in " ".join(err.split())
    assert not (tmp_path / "a").exists()
    code, out, _ = run(f"{begin} --out a --json --no-progress")
    assert code == 0
    assert json.loads(out)["stages"] == [24, 16]


def test_a_budget_of_records_is_refused(run, tmp_path):
    Ledger(tmp_path / "l.db").create("digits", Budget(8.0), neighbours="replace-one")
    code, _, err = run(f"{SMALL} --ledger l.db --dataset digits --out a")
    assert code != 0
    assert "open an account for labels" in " ".join(err.split())
    assert not (tmp_path / "a").exists()
