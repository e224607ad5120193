"""``sfumato train`` as people type it."""

import json
import stat

import numpy as np
import pytest
import torch

from sfumato.cli.main import main
from sfumato.cli.train_options import without_password
from sfumato.learning.dp_sgd import NoiseSchedule
from sfumato.learning.runs import RunFolder
from sfumato.ledger import Budget, Ledger

COLUMNS = """
[columns.age]
lower = 0
upper = 100
[columns.smoker]
categories = ["yes", "no"]
"""
TABLE = 'label = "ill"\nclasses = ["no", "yes"]\n'
BASE = "train dp-sgd --data rows.csv --declared rows.toml"
FIXED = "--noise-multiplier 2 --steps 4"  # nothing to calibrate


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name, rows in (("rows.csv", 180), ("test.csv", 40)):
        age = rng.integers(0, 100, rows)
        lines = [
            f"{a},{'yes' if a % 2 else 'no'},{'yes' if a > 50 else 'no'},p{a % 60}" for a in age
        ]
        (tmp_path / name).write_text("\n".join(["age,smoker,ill,id", *lines]))
    (tmp_path / "rows.toml").write_text(f"{TABLE}records = 200\n{COLUMNS}")
    (tmp_path / "open.toml").write_text(f"{TABLE}records = 200\npublic_test = true\n{COLUMNS}")
    (tmp_path / "unknown.toml").write_text(TABLE + COLUMNS)
    (tmp_path / "people.toml").write_text(
        f'{TABLE}owner = "id"\nunit = "person"\nowners = 60\nrows_per_owner = 2\n{COLUMNS}'
    )
    images = {"images": np.zeros((3, 28, 28, 1), np.uint8), "labels": np.zeros(3, np.int64)}
    np.savez(tmp_path / "images.npz", **images)
    digits = json.dumps([str(digit) for digit in range(10)])
    (tmp_path / "images.toml").write_text(
        f"shape = [28, 28, 1]\nclasses = {digits}\nrecords = 60000"
    )
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture
def run(folder, capsys):
    def words_of(text):
        with pytest.raises(SystemExit) as ended:
            main(text.split())
        captured = capsys.readouterr()
        return ended.value.code, captured.out, captured.err

    return words_of


@pytest.fixture
def planned(run):
    """What a dry run says."""

    def found(text):
        code, out, err = run(f"{text} --dry-run --json")
        assert code == 0, err
        return json.loads(out)

    return found


# --- options --------------------------------------------------------------------------------------


OPTIONS = {
    "--delta 1e-6": {"delta": 1e-6},
    "--neighbours replace-one": {"neighbours": "replace-one"},
    "--unit person": {"unit": "person"},
    "--model mlp --model-option hidden=[7,8]": {"model": "mlp", "model_options.hidden": [7, 8]},
    "--model mlp --model-option activation=tanh": {
        "model": "mlp",
        "model_options": {"activation": "tanh"},
    },
    "--features pca --feature-option components=2": {
        "features.kind": "pca",
        "features.components": 2,
    },
    "--features pca --feature-option components=2 --feature-option noise-multiplier=9": {
        "features.noise_multiplier": 9
    },
    "--lot-size 33": {"lot_size": 33},
    "--lots shuffled --neighbours zero-out --records 180 --lot-size 20": {
        "lots": "shuffled",
        "neighbours": "zero-out",
        "lot_size": 20,
    },
    "--lots fixed-size --neighbours zero-out --records 180 --lot-size 20": {
        "lots": "fixed-size",
        "neighbours": "zero-out",
        "lot_size": 20,
    },
    "--lots cyclic-poisson --correlation banded:2": {
        "lots": "cyclic-poisson",
        "correlation": {"kind": "banded", "bands": 2, "coefficients": None},
    },
    "--max-lot 90": {"max_lot": 90},
    "--clip 0.25": {"clip.kind": "flat", "clip.clip": 0.25},
    "--clipping automatic": {"clip.kind": "automatic", "clip.clip": 1.0},
    "--clipping per-layer --clip 3": {"clip.kind": "per-layer", "clip.clip": 3},
    "--clipping adaptive --lot-size 60": {"clip.kind": "adaptive", "lot_size": 60},
    "--noise-schedule 1.5:0.5": {"noise_schedule": NoiseSchedule.linear(1.5, 0.5).to_dict()},
    "--optimizer adam": {"optimizer": "adam"},
    "--learning-rate 0.3": {"rate.start": 0.3, "rate.end": 0.0},
    "--last-learning-rate 0.2": {"rate.start": 1.0, "rate.end": 0.2},
    "--momentum 0.5": {"momentum": 0.5},
    "--weight-decay 0.01": {"weight_decay": 0.01},
    "--ema-decay 0.97": {"ema_decay": 0.97},
    "--batch-size 8": {"batch_size": 8},
    "--seed 5": {"seed": 5},
}


def test_an_average_is_switched_off_by_zero(planned):
    averaged = "train dp-sgd --data digits --preset scattering-linear --epsilon 8"
    assert planned(averaged)["recipe"]["ema_decay"] == 0.99
    without = planned(f"{averaged} --ema-decay 0")["recipe"]
    assert without["ema_decay"] is None
    assert "ema_decay given" in without["origin"]


def test_every_option_reaches_the_recipe_and_changes_nothing_else(planned):
    own = planned(f"{BASE} {FIXED}")["recipe"]
    for words, expected in OPTIONS.items():
        found = planned(f"{BASE} --preset table {FIXED} {words}")["recipe"]
        for path, value in expected.items():
            part = found
            for name in path.split("."):
                part = part[name]
            assert part == json.loads(json.dumps(value)), words
        untouched = own.keys() - {path.split(".")[0] for path in expected} - {"origin"}
        assert {k: found[k] for k in untouched} == {k: own[k] for k in untouched}, words


def test_the_declared_number_comes_from_the_file_or_an_option(planned):
    assert planned(f"{BASE} {FIXED}")["sample_rate"] == 20 / 200
    assert planned(f"{BASE} {FIXED} --records 1000")["recipe"]["lot_size"] == 100
    unknown = BASE.replace("rows.toml", "unknown.toml")
    assert planned(f"{unknown} {FIXED} --records 300")["recipe"]["lot_size"] == 30


def test_owners_come_from_the_declaration(planned):
    found = planned(f"{BASE.replace('rows.toml', 'people.toml')} {FIXED}")
    assert (found["unit"], found["recipe"]["rows_per_owner"]) == ("person", 2)
    assert found["recipe"]["lot_size"] == 6


def test_images_can_be_changed_before_they_are_learnt_from(planned):
    images = "train dp-sgd --data images.npz --declared images.toml --preset abadi-mnist"
    found = planned(f"{images} --features none {FIXED} --augment flip --augmentations 3")["recipe"]
    assert (found["augment"], found["augmentations"]) == ("flip", 3)


@pytest.mark.parametrize("last", ["--dry-run", "--out a"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{BASE} {FIXED} --augment flip", "augment must be left out"),
        (f"{BASE.replace('rows.toml', 'unknown.toml')} {FIXED} --lot-size 9", "must be declared"),
        (f"{BASE.replace('rows.toml', 'people.toml')} {FIXED} --canaries 9", "have owners"),
        (f"{BASE.replace('rows.toml', 'people.toml')} {FIXED} --features pca", "an owner may have"),
        ("train erm --data rows.csv --declared people.toml --epsilon 1", "owners must be left out"),
        ("train erm --data rows.csv --declared rows.toml --epsilon 1 --rows 9 --ledger l.db "
         "--dataset d --neighbours add-remove", "rows must be left out"),
        ("train label-dp --data rows.csv --declared people.toml --epsilon 1", "no owners"),
        ("train pate --data rows.csv --declared rows.toml --epsilon 1 --answers 9 --unit person",
         "unit must be 'record'"),
        (f"{BASE} {FIXED} --model mlp --model-option hidden=abc", "hidden must be"),
        (f"{BASE} {FIXED} --model os:nope", "os has that function"),
        (f"{BASE} {FIXED} --model os.path:join", "takes shape, classes and its options by name"),
        (f"{BASE} {FIXED} --augmentations 0", "augmentations must be"),
        (f"{BASE} {FIXED} --seed {10**23}", "seed must be a whole number from 0 to 2^63"),
    ],
)  # fmt: skip
def test_a_dry_run_refuses_what_the_run_refuses(run, folder, words, said, last):
    code, _, err = run(f"{words} {last}")
    assert code == 2
    assert said in err
    assert not (folder / "a").exists()
    assert not (folder / "l.db").exists()


# --- budget ---------------------------------------------------------------------------------------

ABADI = "train dp-sgd --data images.npz --declared images.toml --preset abadi-mnist"


@pytest.mark.parametrize(
    ("words", "epsilon", "noise", "steps"),
    [
        (f"{BASE} --epsilon 1", 1, None, 200),  # the preset's 20 epochs
        (f"{BASE} --epsilon 1 --steps 30", 1, None, 30),
        (f"{BASE} --epsilon 1 --noise-multiplier 4", 1, 4, None),
        (f"{BASE} --noise-multiplier 4 --epochs 2", None, 4, 20),
        (f"{BASE} --noise-multiplier 4 --steps 30", None, 4, 30),
        (f"{ABADI} --epsilon 2", 2, 4 / 2**0.5, 17204),  # the preset's noise
        (f"{ABADI} --epsilon 2 --noise-multiplier 6", 2, 6, None),
        (f"{ABADI} --epsilon 2 --epochs 60", 2, None, 6000),
        (f"{ABADI} --noise-multiplier 3 --steps 90", None, 3, 90),
    ],
)
def test_two_of_epsilon_noise_and_length_give_the_third(planned, words, epsilon, noise, steps):
    found = planned(words)
    if epsilon is not None:
        assert 0.97 * epsilon < found["epsilon"] <= epsilon
    assert noise is None or found["noise_multiplier"] == noise
    assert steps is None or abs(found["steps"] - steps) < 0.003 * steps
    asked = found["recipe"]
    given = ("epsilon", "noise_multiplier", "epochs", "steps")
    assert sum(asked[name] is not None for name in given) == 2


def test_a_dry_run_in_words(run, folder):
    code, out, _ = run(f"{ABADI} --epsilon 2 --epochs 60 --dry-run")
    assert code == 0
    assert "epsilon 2, delta 1e-05, add or remove one record" in out
    assert "features cost     0.5025 of epsilon" in out
    assert "mlp on pca features" in out
    assert not (folder / "runs").exists()
    assert "abadi-mnist" in run("train presets")[1]
    assert json.loads(run("train models --json")[1])["mlp"].startswith("hidden layers")


@pytest.mark.parametrize(
    ("words", "origin"),
    [
        ("", "rules of thumb"),
        ("--delta 1e-6 --unit person --batch-size 4 --records 190", "rules of thumb"),
        ("--clip 0.3 --seed 3", "preset table, with clip, seed given: not stated: if the hyper-"),
        ("--epochs 3", "preset table, with epochs given: not stated"),
        ("--epochs 3 --tuned-on synthetic", "preset table, with epochs given: synthetic"),
    ],
)
def test_the_record_says_where_hyper_parameters_come_from(planned, words, origin):
    assert planned(f"{BASE} --epsilon 1 {words}")["recipe"]["origin"].startswith(origin)


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_on_private_rows_of_one_s_own(run, folder):
    code, out, err = run(f"{BASE} --test test.csv {FIXED} --out runs/a --json")
    assert (code, err) == (0, "")
    shown, here = json.loads(out), folder / "runs" / "a"
    assert {"epsilon", "delta", "neighbours", "unit", "out", "private"} <= shown.keys()
    assert (shown["neighbours"], shown["unit"], shown["private"]) == ("add-remove", "record", True)
    assert "accuracy" not in shown
    record = json.loads((here / "record.json").read_text())
    assert record["guarantee"]["epsilon"] == shown["epsilon"]
    assert not (here / "learning-curve.png").exists()
    picture = here / "curator" / "learning-curve.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    rights = {stat.S_IMODE(p.stat().st_mode) for p in (here / "curator").rglob("*") if p.is_file()}
    assert rights == {0o600}
    assert "holds a finished run" in run(f"{BASE} {FIXED} --out runs/a")[2]
    assert "came to its end" in run("train resume runs/a")[2]


def test_a_run_with_public_rows_to_test_on(run, folder):
    words = BASE.replace("rows.toml", "open.toml")
    code, out, _ = run(f"{words} --test test.csv {FIXED} --out a --evaluations 2 --json")
    assert code == 0
    record = json.loads((folder / "a" / "record.json").read_text())
    assert json.loads(out)["accuracy"] == record["facts"]["accuracy"]
    assert [point["step"] for point in record["facts"]["curve"]] == [2, 4]
    assert (folder / "a" / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    assert not (folder / "a" / "curator" / "learning-curve.png").exists()


def test_a_run_in_words_with_a_ledger(run, folder):
    ledger = Ledger(folder / "p.db")
    ledger.create("people", Budget(30.0, 1e-2))
    words = f"{BASE} --test test.csv {FIXED} --ledger p.db --dataset people --analyst ann"
    code, out, err = run(f"{words} --out a --progress")
    assert code == 0
    assert "4/4  loss" in err  # for the operator alone
    assert "loss" not in out
    assert "on private rows: for your eyes only" in out
    _, plan, *_ = ledger.history("people")
    assert plan.data["analyst"] == "ann"
    left = ledger.status("people").left
    assert left == pytest.approx(30 - plan.data["epsilon"], abs=1e-6)
    code, _, err = run(f"{words} --out b --noise-multiplier 0.1")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "refused by the dataset" in err
    assert not (folder / "b").exists()
    assert ledger.status("people").left == left
    ledger.close()


def test_passwords_are_not_kept():
    plain = "postgresql://ann@host/db"
    assert without_password("postgresql://ann:secret@host/db") == plain
    assert without_password("postgresql://ann@host/db?password=secret") == plain
    assert without_password("privacy.db") == "privacy.db"
    assert without_password(None) is None


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (BASE, "epsilon must be given (--epsilon 3), or both --noise-multiplier and --epochs"),
        (f"{BASE} --noise-multiplier 3", "epsilon must be given"),
        (f"{BASE} --epsilon 0", "epsilon must be a finite number above 0"),
        (f"{BASE} --epsilon 1 {FIXED} --out a", "exactly two of epsilon"),
        (f"{BASE} {FIXED} --epochs 2 --out a", "steps or epochs, not both"),
        (f"{BASE} {FIXED}", "out must be given"),
        (f"{ABADI} --epsilon 3", "epsilon must be one of 0.5, 2, 8"),
        (f"{BASE} {FIXED} --preset nope", "preset must be one of"),
        (f"{BASE} {FIXED} --model nope --out a", "model must be one of"),
        (f"{BASE} {FIXED} --model-option width=3 --out a", "option of 'linear'"),
        (f"{BASE} {FIXED} --features nope", "must be one of"),
        (
            f"{BASE} {FIXED} --features pca --feature-option x=1",
            "must suit features 'pca': got an unexpected keyword argument 'x'",
        ),
        (f"{BASE} {FIXED} --clipping nope", "clipping must be one of flat, per-layer"),
        (f"{BASE} {FIXED} --noise-schedule 2", "noise-schedule must be FIRST:LAST"),
        (f"{BASE} {FIXED} --lot-size 201 --out a", "lot_size must be at most"),
        (f"{BASE} {FIXED} --delta 0.5 --out a", "delta must be well below"),
        (f"{BASE} {FIXED} --device nope --out a", "device must be cpu, cuda or auto"),
        (f"{BASE} {FIXED} --augment flip --out a", "inputs are no images"),
        (f"{BASE} {FIXED} --checkpoint-every 0 --out a", "checkpoint_every must be"),
        (f"{BASE} {FIXED} --dataset people --out a", "ledger and dataset belong together"),
        (f"{BASE} {FIXED} --out .", "out must be a new or empty folder"),
        (BASE.replace("rows.csv", "none.csv") + f" {FIXED}", "source must be there"),
        (BASE.replace("rows.toml", "none.toml") + f" {FIXED}", "declaration must be there"),
        (BASE.replace("rows.toml", "unknown.toml") + f" {FIXED}", "public_size must be declared"),
        (f"train dp-sgd --data rows.csv {FIXED}", "--declared FILE"),
        ("train resume .", "must hold a run"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_folder(run, folder, words, said):
    code, out, err = run(words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (folder / "a").exists()


def test_a_run_begun_in_python_goes_on_there(run, folder):
    RunFolder(folder / "a").begin({"recipe": {}})
    code, _, err = run("train resume a")
    assert code == 2
    assert "was begun in Python" in err
