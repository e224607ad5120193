"""``sfumato audit``: runs, steps, and what they say."""

import json

import pytest

TRAIN = (
    "train dp-sgd --data digits --features none --noise-multiplier 0.7 --steps 30 --lot-size 200 "
    "--learning-rate 1 --clip 1 --no-progress --evaluations 0"
)


@pytest.mark.usefixtures("steady_coins")
def test_a_run_with_canaries_is_audited(run, tmp_path):
    code, out, _ = run(f"{TRAIN} --seed 1 --canaries 500 --out a")
    assert code == 0
    assert "sfumato audit --run a" in out
    code, out, _ = run("audit --run a --json")
    assert code == 0
    found = json.loads(out)
    assert found["verdict"] == "consistent"
    assert 0 < found["epsilon_at_least"] < found["claim"]["epsilon"]
    assert found["confidence"] == 0.95
    assert found["facts"]["canaries"] == 500
    assert found["facts"]["kind"] == "gradient"
    assert json.loads((tmp_path / "a" / "curator" / "audit.json").read_text()) == found
    code, out, _ = run("audit --run a --analysis gaussian --confidence 0.99")
    assert code == 0
    assert "consistent: nothing found against the claim" in out
    assert "for you alone" not in out


def test_what_rows_of_the_data_say_is_for_their_owner(run, tmp_path):
    assert run(f"{TRAIN} --canaries 100 --canary-kind mislabelled --out a")[0] == 0
    code, out, _ = run("audit --run a")
    assert code == 0
    assert "for you alone" in out
    assert (tmp_path / "a" / "curator" / "audit.json").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "a" / "audit.json").exists()


@pytest.mark.usefixtures("steady_coins")
def test_steps_of_the_engine_are_audited(run):
    code, out, _ = run("audit step --noise-multiplier 0.9 --games 30000 --json")
    assert code == 0
    found = json.loads(out)
    assert found["verdict"] == "consistent"
    assert found["epsilon_at_least"] > 0.8 * found["claim"]["epsilon"]
    assert "multiplier at most" in run("audit step --games 3000")[1]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("audit", "run must be given"),
        ("audit --run nowhere", "must hold a finished run"),
        ("audit step --noise-multiplier 0", "noise_multiplier must be"),
        ("audit step --games 5", "games must be"),
    ],
)
def test_mistakes(run, command, message):
    code, out, error = run(command)
    assert code == 2
    assert out == ""
    assert message in " ".join(error.split())


def test_a_run_without_canaries_says_what_to_do(run):
    assert run(f"{TRAIN} --out a")[0] == 0
    code, _, error = run("audit --run a")
    assert code == 2
    assert "--canaries 1000" in error


def test_printed_claims_are_audited(run, tmp_path):
    two = "exponential-without-the-2 fifty-answers-for-one"
    code, out, error = run(f"audit claims {two} --json --plot claims.png")
    assert code == 0, error
    found = json.loads(out)["claims"]
    assert [claim["name"] for claim in found] == two.split()
    assert all(claim["refuted"] for claim in found)
    assert (tmp_path / "claims.png").stat().st_size > 5000
    shown = run(f"audit claims {two}")[1]
    assert "refuted" in shown
    assert "0.7071" in shown
    one = " ".join(run("audit claims exponential-without-the-2")[1].split())
    assert "as printed" in one
    assert "REFUTES" in one
    code, _, error = run("audit claims nonsense")
    assert code == 2
    assert "exponential-without-the-2" in error


@pytest.mark.usefixtures("steady_coins")
def test_mechanisms_are_audited(run):
    code, out, _ = run("audit mechanism laplace randomized-response --samples 20000 --json")
    assert code == 0
    found = json.loads(out)["mechanisms"]
    for exact, sampled in found.values():
        assert exact["confidence"] == 1
        assert exact["epsilon_at_least"] == pytest.approx(1.0)
        assert 0.8 < sampled["epsilon_at_least"] < 1
    assert "consistent" in run("audit mechanism discrete-gaussian --samples 5000")[1]


def test_code_of_ones_own_is_audited(run, tmp_path):
    (tmp_path / "mycode.py").write_text(
        "import numpy as np\n"
        "def noisy(values, count):\n"
        "    return sum(values) + np.random.default_rng().integers(0, 3, count)\n"
    )
    code, out, _ = run("audit mechanism mycode:noisy --pair [0];[0,1] --samples 4000")
    assert code == 0
    assert "REFUTED" in out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("audit mechanism magic", "mechanism must be one of laplace"),
        ("audit mechanism os:getcwd", "pair must be given"),
        ("audit mechanism os:getcwd --pair 0", "pair must be FIRST;SECOND"),
        ("audit mechanism laplace --epsilon -1", "epsilon must be"),
    ],
)
def test_mistakes_about_mechanisms(run, command, message):
    code, _, error = run(command)
    assert code == 2
    assert message in " ".join(error.split())
