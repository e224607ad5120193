"""``sfumato attack membership``, ``extraction`` and ``inversion``, on real models."""

import json

import pytest

from sfumato.cli.attacked import attacked
from sfumato.cli.main import main

OVERFIT = """
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sfumato.data import load_dataset

def load():
    inputs, labels = load_dataset("digits").train
    forest = RandomForestClassifier(30, bootstrap=False, max_features=1, random_state=0)
    forest.fit(inputs.reshape(len(inputs), -1) / 255, labels)
    return lambda x: forest.predict_proba(x.reshape(len(x), -1))

def module():
    import torch
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

def labels():
    answer = load()
    return lambda x: answer(x).argmax(axis=1)

def nothing():
    return 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a finished private run in it, and models of somebody's own."""
    path = tmp_path_factory.mktemp("attacks")
    (path / "attacked_models.py").write_text(OVERFIT)
    command = (
        "train dp-sgd --data digits --model mlp --model-option hidden=16 --features none "
        f"--epsilon 4 --steps 60 --lot-size 300 --learning-rate 2 --clip 1 --out {path / 'a'} "
        "--no-progress --evaluations 0"
    )
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert not ended.value.code
    return path


# --- membership ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_private_run_withstands(run, folder):
    code, out, err = run("attack membership --run a --shadows 4 --epochs 8 --plot c.png --json")
    assert code == 0, err
    found = json.loads(out)
    assert found["channel"] == "curator"
    names = [one["attack"] for one in found["attacks"]]
    assert names[-3:] == ["shadow models", "LiRA, online", "LiRA, offline"]
    assert len(names) == 9
    assert not any(one["exceeds_claim"] for one in found["attacks"])
    kept = folder / "a" / "curator" / "membership.json"
    assert json.loads(kept.read_text())["attacks"] == found["attacks"]
    assert kept.stat().st_mode & 0o077 == 0
    assert not (folder / "a" / "membership.json").exists()
    assert (folder / "c.png").stat().st_size > 10_000


def test_an_overfit_model_of_ones_own_is_broken(run):
    code, out, err = run("attack membership --model attacked_models.py:load --data digits --json")
    assert code == 0, err
    by_name = {one["attack"]: one for one in json.loads(out)["attacks"]}
    assert by_name["loss threshold"]["auc_interval"][0] > 0.7
    assert all(one["exceeds_claim"] is None for one in by_name.values())


def test_a_model_that_tells_labels_alone(run):
    code, out, err = run("attack membership --model attacked_models.py:labels --data digits --json")
    assert code == 0, err
    names = [one["attack"] for one in json.loads(out)["attacks"]]
    assert len(names) == 2
    code, _, err = run("attack inversion --model attacked_models.py:labels --data digits")
    assert code == 2
    assert "needs gradients" in err


def test_tables_fit_a_narrow_terminal(run):
    code, out, _ = run("attack membership --run a --rows 100")
    assert code == 0
    assert "…" not in out
    assert "claimed epsilon 4" in out
    assert "for the curator only" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "either --run FOLDER or --model"),
        ("--run a --model b.py:c --data digits", "either --run FOLDER or --model"),
        ("--model attacked_models.py:load", "--data must be given"),
        ("--model attacked_models.py --data digits", "FILE.py:FUNCTION"),
        ("--model attacked_models.py:nothing --data digits", "a function that returns"),
        ("--model nowhere.py:load --data digits", "can be imported"),
        ("--run nowhere", "must hold a finished run"),
        ("--run a --rows 0", "rows"),
        ("--run a --shadows 3", "shadows must be a whole number, 4 or above"),
        ("--run a --shadows 5", "even number"),
        ("--model attacked_models.py:load --data digits --shadows 4", "torch module"),
    ],
)
def test_mistakes(run, options, message):
    code, out, err = run(f"attack membership {options}")
    assert code == 2
    assert not out
    assert message in " ".join(err.split())


# --- extraction and inversion -------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_is_copied(run, folder):
    code, out, err = run(
        "attack extraction --run a --budgets 30,150 --substitute linear --plot e.png --json"
    )
    assert code == 0, err
    curves = {one["shown"]: one for one in json.loads(out)["curves"]}
    assert list(curves) == ["scores", "two digits", "the best one", "labels"]
    assert (folder / "a" / "curator" / "extraction.json").exists()
    assert (folder / "e.png").exists()
    code, out, err = run("attack extraction --run a --budgets 100000")
    assert code == 2
    assert "budgets must be at most" in err
    assert run("attack extraction --run a --budgets 10,x")[0] == 2
    assert run("attack extraction --run a --budgets 0")[0] == 2


@pytest.mark.parametrize("method", ["prior", "mi-face"])
def test_pictures_are_read_off_a_model(run, folder, method):
    code, out, err = run(
        f"attack inversion --run a --method {method} --steps 30 --plot i.png --json"
    )
    assert code == 0, err
    found = json.loads(out)
    assert len(found["classes"]) == 10
    assert found["channel"] == "curator"
    assert "images" not in found
    assert set(found["recognition"]) >= {"accuracy"}
    assert (folder / "a" / "curator" / "inversion.json").exists()
    assert (folder / "i.png").exists()


def test_inversion_refuses(run):
    code, _, err = run("attack inversion --run a --method x")
    assert code == 2
    assert "prior or mi-face" in err
    code, _, err = run("attack inversion --model attacked_models.py:load --data digits")
    assert code == 2
    assert "needs gradients" in err


@pytest.mark.slow
def test_a_missing_feature_is_guessed(run, folder):
    """Beside what is guessed without the model; the table has people who are alike."""
    train = (
        "train dp-sgd --data labsup --epsilon 8 --steps 20 --lot-size 1000 --unit person --out t "
        "--no-progress --evaluations 0"
    )
    assert run(train)[0] == 0
    code, out, err = run("attack attribute --run t --column 1 --values 0,1 --rows 300 --json")
    assert code == 0, err
    found = json.loads(out)
    assert found["channel"] == "curator"
    assert found["column"] == 1
    assert (folder / "t" / "curator" / "attribute.json").exists()
    code, out, _ = run("attack attribute --run t --column 0 --tolerance 0.1 --rows 300")
    assert code == 0
    assert "right without it" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--column 0", "either --values"),
        ("--column 0 --values 0,1 --tolerance 0.1", "either --values"),
        ("--column 0 --values 0,x", "numbers separated"),
        ("--column 0 --values 0,1", "one of a table's"),
    ],
)
def test_attribute_refuses(run, options, message):
    code, _, err = run(f"attack attribute --run a {options}")
    assert code == 2
    assert message in " ".join(err.split())


def test_members_that_are_also_in_the_test_set_are_left_out(folder, monkeypatch):
    monkeypatch.chdir(folder)
    what = attacked(None, "attacked_models.py:module", "digits", None, None, False)
    some = what.candidates(50, seed=0)
    assert some.members.sum() == 50
    assert len(some) == 100
    assert some.inputs.shape[1:] == (1, 8, 8)
    assert some.inputs.max() <= 1
