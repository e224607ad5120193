"""``sfumato train dp-sgd --like``: another run by a recorded recipe."""

import json

import pytest

FIRST = (
    "train dp-sgd --data digits --rows 900 --features none --model mlp --model-option hidden=16 "
    "--epsilon 4 --steps 25 --lot-size 150 --clip 0.5 --learning-rate 0.7 --neighbours zero-out "
    "--tuned-on digits-before --evaluations 0 --no-progress"
)


@pytest.mark.slow
def test_a_record_is_enough_to_train_by(run, folder):
    assert run(f"{FIRST} --out a")[0] == 0
    assert run("train dp-sgd --data digits --like a/record.json --evaluations 0 --out b")[0] == 0
    first, second = (json.loads((folder / n / "record.json").read_text()) for n in "ab")
    for part in ("method", "parameters", "event", "guarantee"):
        assert first[part] == second[part], part
    assert first["facts"]["data"] == second["facts"]["data"]
    assert first["facts"]["data"]["rows"] == 900
    weights = [(folder / name / "model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] != weights[1]  # the noise is its own


@pytest.mark.slow
def test_a_folder_will_do(run):
    assert run(f"{FIRST} --out a")[0] == 0
    code, out, _ = run("train dp-sgd --data digits --like a --dry-run --json")
    assert code == 0
    assert json.loads(out)["epsilon"] == pytest.approx(4, rel=1e-3)


def test_what_would_change_the_recipe_is_refused(run, folder):
    (folder / "record.json").write_text("{}")
    code, _, error = run("train dp-sgd --data digits --like record.json --epsilon 2 --out b")
    assert (code, "--epsilon must be left out with --like" in error) == (2, True)
    code, _, error = run("train dp-sgd --data digits --like record.json --out b")
    assert (code, "like must be the record.json of a run" in error) == (2, True)
    code, _, error = run("train dp-sgd --data digits --like absent.json --out b")
    assert code == 2
    assert "absent.json" in error
    assert not (folder / "b").exists()


def test_a_stranger_s_code_is_not_run(run, folder, monkeypatch):
    assert run(f"{FIRST} --out a")[0] == 0
    record = json.loads((folder / "a" / "record.json").read_text())
    record["parameters"]["recipe"]["model"] = "stranger_s_module:model"
    (folder / "record.json").write_text(json.dumps(record))
    (folder / "stranger_s_module.py").write_text("open('ran', 'w').close()")
    monkeypatch.syspath_prepend(folder)
    code, _, error = run("train dp-sgd --data digits --like record.json --out b")
    assert (code, "importing it runs its code" in " ".join(error.split())) == (2, True)
    assert not (folder / "ran").exists()
    assert not (folder / "b").exists()


def test_sizes_and_unit_are_those_of_the_data_on_record(run, folder):
    assert run(f"{FIRST} --out a")[0] == 0
    record = json.loads((folder / "a" / "record.json").read_text())
    record["facts"]["data"]["name"] = "patients"
    (folder / "record.json").write_text(json.dumps(record))
    code, _, error = run("train dp-sgd --data digits --like record.json --out b")
    assert (code, "a record about 'digits', got one about 'patients'" in error) == (2, True)
