"""``sfumato audit labels`` and ``audit --run`` of label-dp: below the claim, and with teeth."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sfumato.cli.audit_labels import audit_drawn_reports, audit_report_law
from sfumato.core import SeededCoins
from sfumato.learning.label_dp import randomising
from sfumato.learning.label_dp.games import label_game, label_game_names
from sfumato.learning.label_dp.top_k import TopKResponse

SURE = 1 - 1e-6
OWN = {"label": "y", "classes": ["no", "yes"], "columns": {"x": {"lower": 0, "upper": 40}}}
BEGIN = "train label-dp --data own.csv --declared own.json --epochs 1 --device cpu --no-progress"


def game(name, epsilon=1.0):
    return label_game(name, epsilon=epsilon, classes=6, coins=SeededCoins(1))


@pytest.mark.parametrize("name", label_game_names())
def test_every_mechanism_is_at_its_claim_and_a_tenth_more_is_caught(name):
    made, more = game(name), game(name, 1.1)
    assert not audit_report_law(made).refuted
    assert audit_report_law(made).epsilon == pytest.approx(1, rel=1e-9)
    assert audit_report_law(replace(more, guarantee=made.guarantee)).refuted


@pytest.mark.parametrize("name", label_game_names())
def test_the_codes_own_reports_stay_below_and_twice_the_epsilon_is_caught(name):
    made, loud = game(name), game(name, 2.0)
    found = audit_drawn_reports(made, 8000, SURE)
    assert not found.refuted
    assert found.epsilon > 0.4
    assert found.facts["mechanism"] == name
    assert audit_drawn_reports(replace(loud, guarantee=made.guarantee), 8000, SURE).refuted


@pytest.mark.usefixtures("steady_coins")
def test_the_command(run):
    sure = f"--confidence {SURE!r} --samples 4000 --classes 5"
    code, out, err = run(f"audit labels response bins --json {sure}")
    assert code == 0, err
    found = json.loads(out)["labels"]
    assert list(found) == ["response", "bins"]
    for exact, sampled in found.values():
        assert exact["epsilon_at_least"] == pytest.approx(1)
        assert 0 < sampled["epsilon_at_least"] < 1
        assert exact["verdict"] == sampled["verdict"] == "consistent"
        assert exact["claim"]["unit"] == "label"
    assert 1 - found["bins"][1]["confidence"] == pytest.approx(5e-7, rel=1e-3)
    code, out, _ = run(f"audit labels {sure}")
    assert code == 0
    assert out.split().count("consistent") == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("magic", "mechanism must be one of"),
        ("--epsilon 0", "epsilon must be"),
        ("--classes 1", "classes must be"),
        ("--samples 3", "samples must be"),
        ("--confidence 3", "confidence must be strictly between 0 and 1, got 3"),
    ],
)
def test_mistakes(run, options, message):
    code, out, error = run(f"audit labels {options}")
    assert code == 2
    assert not out
    assert message in " ".join(error.split())


@pytest.fixture
def own(folder):
    """3,000 rows of one's own, sorted by label as files often are."""
    numbers = np.random.default_rng(0).random(3000) * 40
    rows = sorted((int(number > 20), f"{number:.6f}") for number in numbers)
    lines = ["x,y", *(f"{x},{'yes' if y else 'no'}" for y, x in rows)]
    (folder / "own.csv").write_text("\n".join(lines))
    (folder / "own.json").write_text(json.dumps(OWN))
    return lines


def audited(run, options=""):
    code, out, err = run(f"audit --run a --json --confidence {SURE!r} {options}")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.usefixtures("steady_coins", "own")
@pytest.mark.parametrize("mechanism", ["response", "alibi"])
def test_an_honest_run_stands(run, folder, mechanism):
    told = "--mechanism alibi --stages 1" if mechanism == "alibi" else "--stages 2"
    code, _, err = run(f"{BEGIN} --epsilon 2 {told} --rounds 1 --out a")
    assert code == 0, err
    journal = (folder / "a" / "curator" / "reports.jsonl").read_bytes()
    found = audited(run)
    assert found["verdict"] == "consistent"
    assert (0.8 if mechanism == "response" else 0.4) < found["epsilon_at_least"] < 2
    assert found["claim"] == {
        "epsilon": 2.0, "delta": 0.0, "neighbours": "replace-one", "unit": "label",
    }  # fmt: skip
    assert found["channel"] == "curator"
    facts = found["facts"]
    later = facts["reports_of_later_stages"]
    assert facts["rows"] + later == 3000
    assert (later == 0) == (mechanism == "alibi")
    assert facts["labels"] == ["no", "yes"]
    assert (folder / "a" / "curator" / "reports.jsonl").read_bytes() == journal
    kept = folder / "a" / "curator" / "audit.json"
    assert json.loads(kept.read_text()) == found
    assert kept.stat().st_mode & 0o077 == 0
    assert "epsilon_at_least" not in (folder / "a" / "record.json").read_text()
    assert "for you alone" in run("audit --run a")[1]


@pytest.mark.usefixtures("steady_coins", "own")
def test_a_run_whose_reports_are_made_at_twice_the_epsilon_is_caught(run, monkeypatch):
    loud = TopKResponse(2.0)
    monkeypatch.setattr(randomising.TopKResponse, "perturb", lambda self, *a, **k: _by(loud, a, k))
    code, _, err = run(f"{BEGIN} --epsilon 1 --stages 1 --rounds 1 --out a")
    assert code == 0, err
    found = audited(run)
    assert found["verdict"] == "refuted"
    assert 1 < found["epsilon_at_least"] < 2


_honest = TopKResponse.perturb


def _by(response, given, named):
    return _honest(response, *given, **named)


@pytest.mark.usefixtures("steady_coins")
def test_the_rows_must_be_the_runs_own(run, folder, own):
    code, _, err = run(f"{BEGIN} --epsilon 1 --stages 1 --rounds 1 --out a")
    assert code == 0, err
    request = folder / "a" / "curator" / "request.json"
    said = json.loads(request.read_text())
    request.write_text(json.dumps({name: said[name] for name in said if name != "source"}))
    code, _, err = run("audit --run a")
    assert code == 2
    assert "--data" in err
    assert audited(run, "--data own.csv --declared own.json")["verdict"] == "consistent"
    for lines in ([own[0], *own[:0:-1]], own[:-1]):  # in another order, or fewer
        (folder / "own.csv").write_text("\n".join(lines))
        code, _, err = run("audit --run a --data own.csv --declared own.json")
        assert code == 2
        assert "data must be what the run in a was trained on" in " ".join(err.split())
    code, _, err = run("audit --run a --analysis gaussian")
    assert code == 2
    assert "analysis must be left out" in " ".join(err.split())
    (folder / "a" / "curator" / "reports.jsonl").unlink()
    code, _, err = run("audit --run a --data own.csv --declared own.json")
    assert code == 2
    assert "must have its curator's folder" in " ".join(err.split())


@pytest.mark.usefixtures("steady_coins", "own")
def test_labels_that_were_lost_are_left_out(run, folder):
    """A piece that was begun has no reports, and a torn line says nothing."""
    assert run(f"{BEGIN} --epsilon 2 --stages 1 --rounds 1 --out a")[0] == 0
    journal = folder / "a" / "curator" / "reports.jsonl"
    lines = journal.read_text().splitlines()
    assert sum('"reports"' in line for line in lines) == 2  # of 2,048 labels and of 952
    kept = [line for line in lines if '"piece":0,"reports"' not in line]
    journal.write_text("\n".join([*kept, '{"stage":0,"pie']))
    found = audited(run)
    assert found["facts"]["rows"] == 952
    assert 0.5 < found["epsilon_at_least"] < 2
