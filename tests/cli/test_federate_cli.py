"""``sfumato federate``: plan, account, simulate."""

import json

import pytest

from sfumato.cli.main import main
from sfumato.federated.federation import Federation
from sfumato.federated.watching import RoundFacts, RoundLog


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["federate", *map(str, arguments)])
    told = capsys.readouterr()
    return ended.value.code, told.out, told.err


def as_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


SMALL = (
    "--data", "digits", "--participants", 6, "--rounds", 4, "--steps", 5, "--rate", 0.5,
    "--noise-multiplier", 0.2,
)  # fmt: skip


def test_account_says_every_observer(capsys):
    found = as_json(capsys, "account")
    by_observer = {view["observer"]: view["epsilon"] for view in found["views"]}
    assert by_observer["released models"] == pytest.approx(1.83, abs=0.005)
    assert by_observer["released models and who took part"] == pytest.approx(634, abs=1)
    assert by_observer["server"] == "inf" or by_observer["server"] is None
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(found)


def test_account_for_people(capsys):
    code, out, _ = run(capsys, "account", "--rounds", "10")
    assert code == 0
    assert "released models" in out
    assert "nobody" in out


def test_plan_writes_a_file_that_account_reads(capsys, tmp_path):
    file = tmp_path / "plan.json"
    planned = as_json(
        capsys, "plan", file, "--data", "digits", "--participants", 3, "--rounds", 5,
        "--work", "gradients", "--noise", "local", "--epsilon", 3,
    )  # fmt: skip
    views = {view["observer"]: view["epsilon"] for view in planned["views"]}
    assert 2.9 < views["server"] <= 3.0
    assert as_json(capsys, "account", file)["views"] == planned["views"]
    assert Federation.read(file).digest == planned["digest"]
    code, _, err = run(capsys, "plan", file, "--noise-multiplier", 1, "--data", "digits")
    assert code == 2
    assert "is there" in err


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--noise", "local"),
        ("--work", "gradients", "--server-rate", 2),
        ("--noise", "shared", "--participants", 4, "--rounds", 2),
        ("--sum", "masked", "--noise", "none", "--participants", 4, "--rounds", 2),
        ("--sum", "hidden", "--noise", "local", "--rounds", 2),
        ("--work", "selected", "--epsilon", 100, "--clip", 0.1),
        ("--quantile", 0.5, "--noise-multiplier", 0.1),
    ],
)
def test_simulate(capsys, more):
    found = as_json(capsys, "simulate", *SMALL, *more)
    assert found["record"]["facts"]["rounds_sent"] in (2, 4)
    assert found["accuracy"] is None or found["accuracy"] > 0.05


def test_a_simulation_keeps_its_run_and_charges_round_by_round(capsys, tmp_path):
    ledger = tmp_path / "privacy.db"
    with pytest.raises(SystemExit):
        main(
            ["ledger", "create", "people", "--url", str(ledger), "--epsilon", "900", "--delta",
             "1e-5", "--unit", "client"]
        )  # fmt: skip
    capsys.readouterr()
    out = tmp_path / "run"
    code, said, err = run(
        capsys, "simulate", *SMALL, "--out", out, "--ledger", ledger, "--dataset", "people",
        "--progress",
    )  # fmt: skip
    assert code == 0, err
    assert "Kept in" in said
    assert "round 4 of 4: 6 of 6" in err
    assert json.loads((out / "record.json").read_text())["method"] == "federated"
    assert (out / "model.safetensors").exists()
    from sfumato.ledger import Ledger

    kinds = [entry.kind for entry in Ledger(ledger).history("people")]
    assert kinds.count("reserve") == 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("simulate", "--data", "digits"), "--epsilon or --noise-multiplier"),
        (("simulate", *SMALL, "--noise", "loud"), "--noise must be"),
        (("simulate", *SMALL, "--sum", "secret"), "--sum must be"),
        (("simulate", *SMALL, "--work", "none"), "--work must be"),
        (("simulate", *SMALL, "--engine", "horse"), "engine must be"),
        (("simulate", *SMALL, "--partition", "fair"), "partition must be"),
        (("account", "nothing.json"), "nothing.json"),
        (("plan", "x.json", "--data", "digits", "--noise", "central", "--epsilon", "1",
          "--observer", "server"), "protects against 'server'"),
    ],
)  # fmt: skip
def test_bad_parameters_are_one_line(capsys, tmp_path, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert said in err


def test_keys_and_directories(capsys, tmp_path):
    for name in ("ward", "clinic"):
        found = as_json(capsys, "keys", tmp_path / name)
        assert found["name"] == name
        assert (tmp_path / name / "identity").stat().st_mode & 0o077 == 0
    publics = [tmp_path / name / "identity.pub" for name in ("ward", "clinic")]
    code, out, _ = run(capsys, "directory", tmp_path / "directory.json", *publics)
    assert code == 0
    assert "2 members" in out
    code, _, err = run(capsys, "directory", tmp_path / "twice.json", publics[0], publics[0])
    assert code == 2
    code, _, err = run(capsys, "keys", tmp_path / "ward", "--name", "other")
    assert "whose keys are in" in err
    code, out, _ = run(capsys, "sum-key", tmp_path / "sums.key")
    assert code == 0
    assert (tmp_path / "sums.key").stat().st_mode & 0o077 == 0


def test_rounds_are_read_back_from_the_log(tmp_path):
    from sfumato.federated.rounds import Traffic

    log = RoundLog(tmp_path / "rounds.jsonl")
    facts = RoundFacts(1, 9, 3, 2, {"a": "nonsense"}, Traffic(10, 20, {"b": "gone"}), 1.0, True,
                       0.5, 0.1)  # fmt: skip
    log(facts)
    log(facts)
    assert log.read() == [facts, facts]
    assert log.read(1) == [facts]
