"""``sfumato audit erm`` and ``audit --run`` of a run of erm: below the claim, and with teeth."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sfumato.cli.audit_erm import audit_fits, audit_law_of_way
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm.games import way_game, ways_for
from sfumato.learning.erm.ways import way_names

REPLACE, ADD = Neighbours.REPLACE_ONE, Neighbours.ADD_REMOVE
ALL = [(name, REPLACE) for name in way_names()] + [(name, ADD) for name in ways_for(ADD)]
SURE = 1 - 1e-9


def game(name, neighbours=REPLACE, delta=1e-5, epsilon=1.0):
    return way_game(name, epsilon=epsilon, delta=delta, neighbours=neighbours, coins=SeededCoins(1))


def with_less_noise(made, share):
    """The same game, played by a way that draws so much less than it says."""
    way = made.way
    if made.noise is None:
        way.__dict__["tilt"] = share * way.tilt
    else:
        name = "sigma" if hasattr(made.noise, "sigma") else "scale"
        less = {name: share * getattr(made.noise, name)}
        way.__dict__["mechanism"] = replace(made.noise, **less)
    return made


@pytest.mark.parametrize("delta", [1e-5, 0.0])
@pytest.mark.parametrize(("name", "neighbours"), ALL)
def test_the_law_is_at_the_claim_and_a_tenth_less_noise_above_it(name, neighbours, delta):
    found = audit_law_of_way(game(name, neighbours, delta))
    assert not found.refuted
    assert found.confidence == 1
    loose = (name, neighbours) == ("functional", REPLACE)  # on one column; see its tables
    least = 0.79 if loose else 0.99
    assert found.epsilon >= least * found.claim.epsilon
    made = game(name, neighbours, delta)
    claim = made.way.guarantee
    share = 0.75 if loose else 0.9
    assert audit_law_of_way(with_less_noise(made, share), claim).refuted


@pytest.mark.parametrize("name", way_names())
def test_fits_stay_below_the_claim(name):
    plain, noise = audit_fits(game(name, epsilon=4.0), 400, SURE)
    assert not plain.refuted
    assert not noise.refuted
    assert (plain.method, noise.method) == ("sampling", "sampling, gaussian")
    assert plain.facts["inside"] == noise.facts["inside"]
    (pure,) = audit_fits(game(name, delta=0.0, epsilon=4.0), 200, SURE)
    assert not pure.refuted


@pytest.mark.parametrize(
    ("name", "share"),
    [("objective", 0.4), ("output", 0.4), ("sgd", 0.4), ("input", 0.3), ("functional", 0.2)],
)
def test_too_little_noise_is_caught(name, share):
    made = game(name, epsilon=4.0)
    claim = made.way.guarantee
    found = audit_fits(with_less_noise(made, share), 700, SURE, claim)
    assert found[1].refuted


def test_pure_noise_that_is_too_little_is_caught():
    made = game("output", delta=0.0, epsilon=1.0)
    claim = made.way.guarantee
    (found,) = audit_fits(with_less_noise(made, 0.4), 1400, SURE, claim)
    assert found.refuted


def test_a_sensitivity_of_half_is_caught():
    """As by 1 / (N lambda) for a replacement: by the law, whatever the noise says of itself."""
    made = game("output")
    claim = made.way.guarantee
    assert audit_law_of_way(with_less_noise(made, 0.5), claim).epsilon > 1.9


@pytest.mark.usefixtures("steady_coins")
def test_the_command(run):
    sure = f"--samples 300 --confidence {SURE!r}"
    code, out, err = run(f"audit erm output functional --json {sure}")
    assert code == 0, err
    found = json.loads(out)["ways"]
    assert list(found) == ["output", "functional"]
    for several in found.values():
        assert [one["audit"] for one in several] == ["exact", "sampling", "sampling, gaussian"]
        assert all(one["verdict"] == "consistent" for one in several)
        assert several[0]["claim"]["epsilon"] == pytest.approx(1)
        assert several[0]["claim"]["neighbours"] == "replace-one"
        assert len(several[0]["facts"]["tables"][0]) == 4
    wrong = sum(1 - several[1]["confidence"] for several in found.values())
    assert wrong == pytest.approx(1e-9, rel=1e-3)  # of all together
    code, out, _ = run(f"audit erm --neighbours add-remove --delta 0 --rows 3 {sure}")
    assert code == 0
    words = out.split()
    assert "noise" not in words
    assert words.count("consistent") == 3
    assert "sgd" not in words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("magic", "way must be one of"),
        ("--epsilon 0", "epsilon must be"),
        ("--delta 2", "delta must be"),
        ("--rows 1", "rows must be"),
        ("sgd --neighbours add-remove", "neighbours must be 'replace-one' for way 'sgd'"),
        ("--neighbours friends", "neighbours must be"),
        ("output --samples 3", "samples must be"),
        ("--confidence 3", "confidence must be strictly between 0 and 1, got 3"),
    ],
)
def test_mistakes(run, options, message):
    code, out, error = run(f"audit erm {options}")
    assert code == 2
    assert not out
    assert message in " ".join(error.split())


PATIENTS = {"label": "ill", "classes": [0, 1], "columns": {"age": {"lower": 0, "upper": 90}}}


@pytest.mark.usefixtures("steady_coins")
def test_a_run_is_audited_by_its_way_on_a_table_of_its_own(run, tmp_path, monkeypatch):
    monkeypatch.setattr("sfumato.cli.audit_erm._SAMPLES", 300)
    ages = np.random.default_rng(0).integers(0, 90, 60)
    rows = ["age,ill", *(f"{age},{int(age > 40)}" for age in ages)]
    (tmp_path / "own.csv").write_text("\n".join(rows))
    (tmp_path / "own.json").write_text(json.dumps(PATIENTS))
    begin = "train erm --data own.csv --declared own.json --epsilon 3 --way output"
    code, _, err = run(f"{begin} --neighbours replace-one --out a")
    assert code == 0, err
    code, out, err = run(f"audit --run a --json --confidence {SURE!r}")
    assert code == 0, err
    found = json.loads(out)
    assert found["verdict"] == "consistent"
    assert found["claim"]["epsilon"] == pytest.approx(3)
    assert found["claim"]["neighbours"] == "replace-one"
    assert "channel" not in found  # of the run's own rows nothing was read
    facts = found["facts"]
    assert facts["way"] == "output"
    assert facts["what"].startswith("the same way on a table of 4 rows")
    assert "cannot be audited from itself" in facts["what"]
    assert facts["epsilon_by_law"] == pytest.approx(3, rel=1e-3)
    assert json.loads((tmp_path / "a" / "curator" / "audit.json").read_text()) == found
    (tmp_path / "own.csv").unlink()
    assert "a table of 4 rows" in " ".join(run("audit --run a")[1].split())
    for options in ("--analysis gaussian", "--data own.csv"):
        code, _, error = run(f"audit --run a {options}")
        assert code == 2
        assert "must be left out for a run of erm" in " ".join(error.split())
