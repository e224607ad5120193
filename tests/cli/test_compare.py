"""``sfumato compare`` as people type it."""

import json
import stat

import numpy as np
import pytest

from sfumato.ledger import Budget, Ledger

DECLARED = """
label = "ill"
classes = ["no", "yes"]
records = 400
{more}

[columns.age]
lower = 0
upper = 100
"""
QUICK = "--methods erm-objective,erm-input,plain --jobs 1"


@pytest.fixture
def patients(tmp_path):
    ages = np.random.default_rng(0).integers(0, 101, 400)
    text = "age,ill\n" + "\n".join(f"{a},{'yes' if a > 60 else 'no'}" for a in ages) + "\n"
    for name in ("patients.csv", "test.csv"):
        (tmp_path / name).write_text(text)
    (tmp_path / "patients.toml").write_text(DECLARED.format(more=""))
    (tmp_path / "public.toml").write_text(DECLARED.format(more="public_test = true"))
    return tmp_path


OWN = "compare --data patients.csv --declared patients.toml --test test.csv --epsilon 2"


def test_the_plan_and_its_cost_without_training(run, tmp_path):
    names = "erm-objective,erm-output,label-dp,dp-sgd-cnn,plain"
    command = f"compare --data digits --epsilon 1 --epsilon 3 --seeds 2 --methods {names}"
    code, out, err = run(f"{command} --dry-run")
    assert code == 0
    assert "14 runs on digits" in out
    assert "Left out: dp-sgd-cnn. Its convolutions need" in out
    assert "epsilon 16, delta 8e-05, add or remove one record (8 runs)" in err
    assert "epsilon 8, delta 0, replace one label (4 runs)" in err
    assert list(tmp_path.iterdir()) == []
    code, out, _ = run("compare --data digits --epsilon 1 --methods erm-sgd --dry-run --json")
    found = json.loads(out)
    assert code == 0
    assert found["runs"][0]["guarantee"]["neighbours"] == "replace-one"
    assert [cost["epsilon"] for cost in found["together"]] == [pytest.approx(1.0)]


def test_a_comparison_of_a_public_data_set(run, tmp_path):
    command = f"compare --data digits --epsilon 1 --epsilon 8 {QUICK} --plot c.png"
    code, out, err = run(command)
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "replace one" in lines["erm-input*"]
    assert "not private" in lines["plain"]
    assert "At epsilon 8: erm-objective" in out
    assert "Published together these cost" in " ".join(out.split())
    assert "All of digits is published" in out
    assert err.index("these cost") < err.index("basic composition")  # before anything ran
    assert (tmp_path / "c.png").stat().st_size > 5000
    assert (tmp_path / "compared-digits" / "results.jsonl").exists()
    code, out, err = run(f"{command} --json")  # nothing is left to do
    found = json.loads(out)
    assert code == 0
    assert "5 of them are done, and kept" in err
    assert (found["finished"], found["channel"]) == (True, "public")
    assert {row["method"] for row in found["rows"]} == {"erm-input", "erm-objective", "plain"}
    for row in found["rows"]:
        assert {"epsilon", "delta", "neighbours", "unit", "target", "accuracy"} <= set(row)


def test_private_data_is_the_curators(run, patients):
    code, out, _ = run(f"{OWN} {QUICK} --out c --plot c.png")
    said = " ".join(out.split())
    assert code == 0
    assert "on private test rows" in said
    assert "For your eyes only: accuracies are of private test rows" in said
    assert stat.S_IMODE((patients / "c.png").stat().st_mode) == 0o600
    assert stat.S_IMODE((patients / "c").stat().st_mode) == 0o700
    command = OWN.replace("patients.toml", "public.toml")
    code, out, _ = run(f"{command} {QUICK} --out d")
    assert "the choice costs the whole sum" in " ".join(out.split())
    assert "400 public test rows" in out


def test_a_ledger_is_charged_for_each_run_and_told_beforehand(run, patients):
    ledger = Ledger(patients / "l.db")
    ledger.create("patients", Budget(5.0, 1e-4))
    paying = f"{OWN} --jobs 1 --methods erm-objective,erm-output,erm-input --out c"
    code, out, err = run(f"{paying} --ledger l.db --dataset patients")
    assert code == 0
    assert "epsilon 4, delta 2e-05, add or remove one record (2 runs)" in err
    assert "charged to the ledger before it tells anything" in err
    assert "Left out: erm-input" in out
    assert 0.99 <= ledger.status("patients").left <= 1.01
    left = ledger.status("patients").left
    code, _, err = run(f"{paying} --epsilon 3 --ledger l.db --dataset patients")
    assert code != 0
    assert ledger.status("patients").left == left


def test_several_seeds_have_a_spread(run, patients):
    code, out, _ = run(f"{OWN} --jobs 1 --methods erm-objective --seeds 3 --out c --json")
    (row,) = json.loads(out)["rows"]
    assert code == 0
    assert row["runs"] == 3
    assert row["spread"] >= 0
    code, out, _ = run(f"{OWN} --jobs 1 --methods erm-objective --seeds 3 --out c")
    assert " ± " in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--data digits --epsilon -1", "epsilon must be"),
        ("--data digits --methods magic", "'magic'"),
        ("--data digits --delta 0.5", "delta must be"),
        ("--data digits --features pca --feature-option components=2", "features must be public"),
        ("--data digits --features scattering --feature-option hue=2", "hue"),
        ("--data digits --neighbours sideways", "neighbours must be"),
        ("--data digits --plot c.txt", "plot file"),
        ("--data nothing", "data set must be"),
        ("--data patients.csv --declared patients.toml", "test must be given"),
        ("--data digits --device quantum --methods erm-output", "device must be"),
    ],
)
def test_bad_parameters_are_one_line_and_leave_nothing(run, patients, options, words):
    before = sorted(patients.iterdir())
    code, _, err = run(f"compare {options} --jobs 1")
    assert code == 2
    assert words in err
    assert sorted(patients.iterdir()) == before


@pytest.mark.slow
def test_all_methods_on_digits(run):
    code, out, _ = run("compare --data digits --epsilon 8 --json")
    found = json.loads(out)
    assert code == 0
    accuracy = {row["method"]: row["accuracy"] for row in found["rows"]}
    assert set(accuracy) | set(found["left_out"]) == {
        "erm-input", "adaptive-laplace", "erm-objective", "erm-functional", "functional-network",
        "autoencoder", "erm-output", "erm-sgd", "dp-sgd", "dp-sgd-cnn", "pate", "label-dp", "plain",
    }  # fmt: skip
    assert accuracy["plain"] > 0.8
    assert accuracy["dp-sgd"] > 0.5
    assert accuracy["functional-network"] > 0.4
    assert accuracy["autoencoder"] > 0.4
    assert accuracy["label-dp"] > 0.5
