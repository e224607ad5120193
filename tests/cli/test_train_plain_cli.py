"""``sfumato train plain``, and ``--rows``, as people type them."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from sfumato.data import load_dataset
from sfumato.learning.recipes import load_run
from sfumato.learning.runs import RunFolder
from sfumato.ledger import Budget, Ledger

PLAIN = "train plain --data digits --model mlp --model-option hidden=64 --features none --seed 1"
PRIVATE = "train dp-sgd --data digits --preset cnn --model linear --noise-multiplier 2 --steps 3"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Which keeps its runs from test to test."""
    return tmp_path_factory.mktemp("plain")


@pytest.fixture
def done(run):
    """The output of a command that must succeed."""

    def out(text):
        code, out, err = run(text)
        assert code == 0, err
        return out

    return out


@pytest.fixture
def small(done, folder):
    """A network that learned 300 digits by heart."""
    if not (folder / "small").exists():
        done(f"{PLAIN} --rows 300 --epochs 150 --batch-size 32 --out small")
    return RunFolder(folder / "small")


def test_a_model_without_privacy_in_plain_words(done, folder):
    out = done("train plain --data digits --preset cnn --learning-rate 0.1 --seed 1 --out words")
    assert "WITHOUT privacy" in out
    assert "NOT PRIVATE" in out
    assert "epsilon infinite" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    results = RunFolder(folder / "words").read_curator("results.json")
    assert results["accuracy"] > 0.9
    assert f"{100 * results['accuracy']:.2f} % (for your eyes only)" in out


def test_it_is_said_in_red(done, folder, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1;31mNOT PRIVATE" in done(f"{PLAIN} --rows 50 --epochs 1 --out red")


def test_json(done):
    found = json.loads(done(f"{PLAIN} --epochs 3 --rows 200 --out json --json"))
    assert found["private"] is False
    assert found["epsilon"] == "inf"
    assert found["warning"].startswith("NOT PRIVATE: trained without privacy")
    assert found["channel"] == "curator"
    assert 0 <= found["accuracy"] <= 1


def test_the_folder_is_the_owner_s(small):
    for path in (small.path, small.curator):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (small.record_file, small.model_file):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "accura" not in small.record_file.read_text()


def test_the_request_and_the_record_remember_the_rows(small):
    request, record = small.request(), small.record()
    assert request["source"] == {"data": "digits", "declared": None, "test": None, "rows": 300}
    assert request["private"] is False
    assert record["facts"]["data"]["rows"] == record["facts"]["data"]["public_size"] == 300


def test_members_are_the_first_rows(small):
    """Those it was trained on it knows by heart, the others not."""
    scores = load_run(small.path).scores(load_dataset("digits").train.inputs)
    right = scores.argmax(1) == load_dataset("digits").train.labels
    assert right[:300].mean() == 1.0
    assert right[300:].mean() < 0.97


def test_an_attack_takes_the_same_members(small, done, run):
    """The whole training set would be four fifths non-members, and an AUC near one half."""
    out = done(f"attack membership --run {small.path} --rows 300 --json")
    loss = max(json.loads(out)["attacks"], key=lambda report: report["auc"])
    assert loss["members"] == 300
    assert loss["auc"] > 0.6
    assert loss["exceeds_claim"] is None  # nothing was promised
    code, out, _ = run(f"attack membership --run {small.path} --data digits --rows 400 --json")
    assert code == 0
    tested = {report["attack"]: report["members"] for report in json.loads(out)["attacks"]}
    learnt = {name for name in tested if "learn" in name}  # from half of them, tested on the others
    assert {tested.pop(name) for name in learnt} == {150}
    assert set(tested.values()) == {300}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "out must be given"),
        ("--out small", "holds a finished run"),
        ("--out x --epochs 0", "epochs must be"),
        ("--out x --batch-size 0", "batch_size must be"),
        ("--out x --learning-rate -1", "rate must be"),
        ("--out x --rows 0", "rows must be"),
        ("--out x --rows 99999", "rows must be at most the declared size"),
        ("--out x --model nonsense", "nonsense"),
        ("--out x --device nonsense", "device must be"),
        ("--out x --canaries 10", "No such option"),
        ("--out x --ledger a.db", "No such option"),
        ("--out x --epsilon 3", "No such option"),
    ],
)
def test_mistakes(run, small, folder, options, message):
    code, out, err = run(f"{PLAIN} {options}")
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "x").exists()


@pytest.mark.slow
def test_a_killed_run_says_what_to_do(run, folder):
    """By a signal that nothing can catch, in the middle of its steps."""
    command = [str(Path(sys.executable).parent / "sfumato"), *PLAIN.split()]
    options = "--epochs 100000 --out killed --no-progress".split()
    process = subprocess.Popen(
        [*command, *options], cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    request = folder / "killed" / "curator" / "request.json"
    until = time.monotonic() + 100
    while not request.exists() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert request.exists()
    code, _, err = run(f"{PLAIN} --out killed")
    assert code == 2
    assert "without privacy that was cut off" in err
    assert "rm -r killed" in err
    code, _, err = run("train resume killed")
    assert code == 2
    assert "one without privacy, which is not gone on with: remove the folder" in err


# --- rows of a private run ------------------------------------------------------------------------


def test_a_private_run_on_the_first_rows(done, folder):
    plan = json.loads(done(f"{PRIVATE} --rows 500 --dry-run --json"))
    assert plan["recipe"]["lot_size"] == round(500 * 2048 / 60_000)
    assert plan["sample_rate"] == plan["recipe"]["lot_size"] / 500
    done(f"{PRIVATE} --rows 500 --out private --json")
    kept = RunFolder(folder / "private")
    assert kept.request()["source"]["rows"] == 500
    facts = kept.record()["facts"]["data"]
    assert (facts["rows"], facts["public_size"]) == (500, 500)
    assert stat.S_IMODE(kept.record_file.stat().st_mode) == 0o644
    done(f"{PRIVATE} --out whole --json")
    assert "rows" not in RunFolder(folder / "whole").record()["facts"]["data"]


def test_a_resumed_run_goes_on_with_the_same_rows(done, run, folder, monkeypatch):
    from sfumato.learning.recipes import training

    seen = []
    train = training.train

    def cut(recipe, data, **more):
        seen.append(len(data.train.labels))
        if len(seen) == 1:
            monkeypatch.setattr("sfumato.learning.recipes.observing.Shown.evaluated", _interrupted)
        return train(recipe, data, **more)

    def _interrupted(*_):
        monkeypatch.undo()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(training, "train", cut)
        raise ValueError("cut off")

    monkeypatch.setattr(training, "train", cut)
    assert run(f"{PRIVATE} --rows 500 --checkpoint-every 1 --out resumed")[0] == 2
    done("train resume resumed --json")
    assert seen == [500, 500]
    assert RunFolder(folder / "resumed").record()["facts"]["data"]["rows"] == 500


def test_a_ledger_is_not_charged_for_rows_that_others_move_into(run, done, folder):
    """To remove the first record of the whole is to replace one of the first rows."""
    ledger = Ledger(folder / "privacy.db")
    ledger.create("digits", Budget(50.0, 1e-3))
    ledger.create("blanked", Budget(50.0, 1e-3), neighbours="zero-out")
    charged = f"{PRIVATE} --rows 500 --ledger privacy.db --json"
    code, _, err = run(f"{charged} --dataset digits --out charged")
    assert code == 2
    assert "rows must be left out with a ledger" in err
    assert [entry.kind for entry in ledger.history("digits")] == ["open"]
    assert not (folder / "charged").exists()
    done(f"{charged} --dataset blanked --neighbours zero-out --out charged")
    kinds = [entry.kind for entry in ledger.history("blanked")]
    assert [kind for kind in kinds if kind != "resume"] == ["open", "plan", "reserve", "commit"]
    ledger.close()


def test_the_declared_size_of_the_first_rows(done, folder):
    """Of data whose size nobody declared, the number of rows is the declaration."""
    rng = np.random.default_rng(0)
    lines = [f"{a},{'yes' if a > 50 else 'no'}" for a in rng.integers(0, 100, 90)]
    (folder / "rows.csv").write_text("\n".join(["age,ill", *lines]))
    (folder / "rows.toml").write_text(
        'label = "ill"\nclasses = ["no", "yes"]\n[columns.age]\nlower = 0\nupper = 100\n'
    )
    done("train plain --data rows.csv --declared rows.toml --rows 120 --epochs 2 --out own --json")
    assert RunFolder(folder / "own").record()["facts"]["data"]["public_size"] == 120
    scores = load_run(folder / "own").scores(np.array([[0.0], [100.0]], dtype=np.float32))
    assert scores.shape == (2, 2)
