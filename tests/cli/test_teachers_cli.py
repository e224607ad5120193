"""Attacks and audits of a finished PATE run: the student withstands, teachers do not."""

import json

import numpy as np
import pytest

from sfumato.cli.main import main
from sfumato.learning.recipes import load_run

pytestmark = pytest.mark.usefixtures("steady_coins")
TRAIN = (
    "train pate --data digits --rows 900 --teachers 6 --kind linear --sigma 3 --answers 40 "
    "--test-rows 100 --student supervised --steps 30 --device cpu --no-progress"
)


def typed(command):
    with pytest.raises(SystemExit) as ended:
        main(command.split())
    assert not ended.value.code


@pytest.fixture(scope="module")
def folder(tmp_path_factory, same_coins):
    """With a finished PATE run in it, whose last rows were left out."""
    path = tmp_path_factory.mktemp("taught")
    with same_coins(0):
        typed(f"{TRAIN} --out {path / 'a'}")
    return path


@pytest.mark.slow
def test_teachers_are_broken_and_the_student_is_not(run, folder):
    code, out, err = run("attack teachers --run a --number 3 --rows 800 --others 250 --json")
    assert code == 0, err
    found = json.loads(out)
    assert found["channel"] == "curator"
    aucs = {
        who: {one["attack"]: one["auc"] for one in reports}
        for who, reports in found["attacked"].items()
    }
    assert list(aucs) == ["student", "3 single teachers"]
    # The rows that nobody saw are of other writers, which is what a learned attack finds here.
    assert all(0.35 < aucs["student"][name] < 0.65 for name in ("loss", "whitened weights"))
    assert all(0.35 < auc < 0.75 for auc in aucs["student"].values())
    assert aucs["3 single teachers"]["whitened weights"] > 0.6
    assert aucs["3 single teachers"]["all of it, learned"] > 0.65
    kept = folder / "a" / "curator" / "teachers-attacked.json"
    assert kept.stat().st_mode & 0o077 == 0
    assert json.loads(kept.read_text())["channel"] == "curator"


@pytest.mark.slow
def test_the_student_is_attacked_as_any_model(run, folder):
    code, out, err = run("attack membership --run a --rows 300 --json")
    assert code == 0, err
    attacks = {one["attack"]: one for one in json.loads(out)["attacks"]}
    assert "learned from gradients" in attacks
    assert not any(one["exceeds_claim"] for one in attacks.values())
    assert {one["members"] for one in attacks.values()} <= {300, 150}
    code, _, err = run("attack membership --run a --shadows 4")
    assert code == 2
    assert "its student never does" in " ".join(err.split())


def test_others_are_rows_that_nobody_saw(run, folder):
    from sfumato.cli.attacked import attacked
    from sfumato.data import load_dataset

    data = load_dataset("digits")
    what = attacked(folder / "a", None, None, None, None, False)
    assert what.taught
    assert len(what.data.train.labels) == 900
    assert np.array_equal(what.data.test.inputs, data.train.inputs[900:])
    request = folder / "a" / "curator" / "request.json"
    said = json.loads(request.read_text())
    whole = said | {"source": said["source"] | {"rows": None}}
    request.write_text(json.dumps(whole))
    try:
        what = attacked(folder / "a", None, None, None, None, False)
    finally:
        request.write_text(json.dumps(said))
    assert np.array_equal(what.data.test.inputs, data.test.inputs[-100:])


def test_answers_of_a_run_are_audited_by_its_own_votes(run, folder):
    code, out, err = run("audit --run a --games 60 --json")
    assert code == 0, err
    found = json.loads(out)
    assert found["verdict"] == "consistent"
    assert 0 < found["facts"]["epsilon_by_law"] < found["claim"]["epsilon"]
    assert found["facts"]["questions"] == 40
    assert found["channel"] == "curator"
    kept = folder / "a" / "curator" / "audit.json"
    assert json.loads(kept.read_text()) == found
    assert kept.stat().st_mode & 0o077 == 0
    record = json.loads((folder / "a" / "record.json").read_text())
    assert "audit" not in json.dumps(record)
    shown = run("audit --run a --games 60")[1]
    assert "for you alone" in shown


def test_a_finished_run_is_read_back(folder):
    from sfumato.data import load_dataset

    read = load_run(folder / "a")
    data = load_dataset("digits")
    scores = read.scores(data.test.inputs[-100:])
    right = (scores.argmax(axis=1) == data.test.labels[-100:]).mean()
    assert right == pytest.approx(read.record.facts["accuracy"])
    assert "6 teachers (linear)" in read._repr_html_()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("attack teachers", "run must be given"),
        ("attack teachers --run nowhere", "must hold a finished run"),
        ("attack teachers --run a --number 0", "number must be"),
        ("audit --run a --games 1", "games must be"),
    ],
)
def test_mistakes(run, folder, command, message):
    code, out, error = run(command)
    assert code == 2
    assert not out
    assert message in " ".join(error.split())
