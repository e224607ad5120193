"""Asking: prices, refusals, repeated and combined requests, and answers as data."""

import datetime
import itertools
import json
import math

import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sfumato.core import SeededCoins
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from sfumato.queries import (
    Answer,
    Count,
    CountUnits,
    GroupBy,
    Histogram,
    Mean,
    Median,
    MostCommon,
    Sum,
    Variance,
    protect,
)

CITIES = ["Rome", "Milan", "Bari"]
TABLE = pa.table(
    {
        "person_id": pa.array([1, 1, 2, 3, 3, 3, 4], pa.int64()),
        "city": ["Rome", "Rome", "Milan", "Bari", "Rome", None, "Rome"],
        "age": pa.array([30, 31, 50, 70, 71, None, 20], pa.int64()),
        "x": pa.array([1.0, math.nan, 3.0, math.inf, -1e308, None, 5e-324]),
        "day": pa.array([datetime.date(2026, 1, 1)] * 7),
        "yes": [True, False, True, None, True, False, True],
    }
)


@pytest.fixture
def people(protected):
    return protected(
        TABLE,
        unit="person_id",
        max_rows_per_unit=2,
        domains={"city": CITIES},
        max_groups_per_unit=2,
    )


def entries(table):
    return [(entry.sequence, entry.kind) for entry in table.ledger.history(table.dataset)]


# --- bad parameters -------------------------------------------------------------------------------

MANY = [str(i) for i in range(20)]
BAD_QUESTIONS = [
    (lambda t: t.count(epsilon=0), "epsilon must be a finite number above 0, got 0"),
    (lambda t: t.count(epsilon=-1), "epsilon must be .*, got -1"),
    (lambda t: t.count(epsilon=math.nan), "epsilon must be .*, got nan"),
    (lambda t: t.count(epsilon=math.inf), "epsilon must be .*, got inf"),
    (lambda t: t.count(epsilon="1"), "epsilon must be .*, got '1'"),
    (lambda t: t.count(epsilon=True), "epsilon must be .*, got True"),
    (lambda t: t.count(epsilon=1, delta=1), "delta must be at least 0 and below 1, got 1"),
    (lambda t: t.count(epsilon=1, delta=-1e-9), "delta must be .*, got -1e-09"),
    (lambda t: t.count(epsilon=1, delta=math.nan), "delta must be .*, got nan"),
    (lambda t: t.count(epsilon=1, confidence=1), "confidence must be .*, got 1"),
    (lambda t: t.count(epsilon=1, confidence=0), "confidence must be .*, got 0"),
    (lambda t: t.count(epsilon=1, confidence=95), "confidence must be .*, got 95"),
    (lambda t: t.count(epsilon=1, confidence=1e-320), "confidence must be between 1e-09 and"),
    (lambda t: t.count(epsilon=1, confidence=1 - 1e-16), "confidence must be between 1e-09 and"),
    (lambda t: t.sum("salary", 0, 1, epsilon=1), "column must be one of person_id, city.*'salary'"),
    (lambda t: t.sum("city", 0, 1, epsilon=1), None),  # text is read as numbers in DuckDB
    (lambda t: t.sum("day", 0, 1, epsilon=1), "'day' must be numeric, got date"),
    (lambda t: t.sum("age", 5, 5, epsilon=1), "lower bound below its upper bound, got .5, 5"),
    (lambda t: t.sum("age", 9, 5, epsilon=1), "lower bound below its upper bound, got .9, 5"),
    (lambda t: t.mean("age", math.nan, 5, epsilon=1), "lower must be a finite number, got nan"),
    (lambda t: t.mean("age", 0, math.inf, epsilon=1), "upper must be a finite number, got inf"),
    (lambda t: t.variance("age", "0", 5, epsilon=1), "lower must be a finite number, got '0'"),
    (lambda t: t.sum("age", 0, 1e101, epsilon=1), "bounds of 'age' must be within 1e.100"),
    (lambda t: t.sum("age", 0, 1e-101, epsilon=1), "more than 1e-100 apart"),
    (lambda t: t.mean("age", 0, 9, default=10, epsilon=1), "default must be from 0 to 9, got 10"),
    (lambda t: t.median("day", 0, 9, epsilon=1), "'day' must be numeric"),
    (lambda t: t.median("age", 9, 0, epsilon=1), "lower bound below its upper bound"),
    (lambda t: t.median("x", -1e308, 1e308, epsilon=1), "bounds of 'x' must be within 1e.100 of 0"),
    (lambda t: t.quantile("x", 0.1, 0, 2e100, epsilon=1), "bounds of 'x' must be within 1e.100"),
    (lambda t: t.median("x", 0, 1e-101, epsilon=1), "bounds of 'x' must be more than 1e-100 apart"),
    (
        lambda t: t.group_by("city").median("x", -1e308, 1e308, epsilon=1),
        "bounds of 'x' must be within 1e.100 of 0",
    ),
    (lambda t: t.median("age", 0, 9, epsilon=1, delta=1e-6), "delta must be 0 for a quantile"),
    (lambda t: t.median("age", 0, 9, epsilon=1, candidates=1), "candidates must be a whole number"),
    (lambda t: t.quantile("age", 0, 0, 9, epsilon=1), "quantile must be strictly between 0 and 1"),
    (lambda t: t.quantile("age", 1e-9, 0, 9, epsilon=1), "at least 1e-06 away from 0 and 1"),
    (lambda t: t.histogram("age", [5], epsilon=1), "edges must be two or more increasing"),
    (lambda t: t.histogram("age", [5, 4], epsilon=1), "edges must be two or more increasing"),
    (lambda t: t.histogram("age", range(10_002), epsilon=1), "edges must be at most 10,001, got 1"),
    (lambda t: t.histogram("age", itertools.count(), epsilon=1), "edges must be at most .*, got m"),
    (
        lambda t: t.histogram("age", keys=range(10**13), epsilon=1),
        "keys of 'age' must be at most 1",
    ),
    (lambda t: t.histogram("age", keys=itertools.count(), epsilon=1), "at most 100,000, got more"),
    (lambda t: t.median("age", 0, 9, epsilon=1, candidates=10**13), "candidates must be at most 1"),
    (
        lambda t: t.group_by("age", keys=range(20)).median("x", 0, 9, epsilon=1, candidates=10**6),
        "candidates times groups must be at most 10,000,000, got 20,000,000",
    ),
    (
        lambda t: t.most_common("age", keys=range(5_000), winners=5_000, epsilon=1),
        "winners times keys must be at most 10,000,000, got 25,000,000",
    ),
    (lambda t: t.where(None).count(epsilon=1), "where must be conditions, or not called, got None"),
    (lambda t: t.where("age > 5", None).count(epsilon=1), "where must be conditions"),
    (lambda t: t.histogram("age", 5, epsilon=1), "edges must be a list of numbers, got 5"),
    (lambda t: t.histogram("age", "0,5", epsilon=1), "edges must be a list of numbers, got '0,5'"),
    (lambda t: t.histogram("age", [0, math.inf], epsilon=1), "edges must be a finite number"),
    (lambda t: t.histogram("age", [0, 1], keys=[1], epsilon=1), "edges .* or keys .*, not both"),
    (lambda t: t.histogram("age", epsilon=1), "the categories of 'age' must be public"),
    (lambda t: t.histogram("x", keys=[1.5], epsilon=1), "'x' holds numbers with fractions"),
    (lambda t: t.histogram("day", [0, 1], epsilon=1), "'day' must be numeric"),
    (
        lambda t: t.histogram("city", keys=[], epsilon=1),
        "keys of 'city' must be a list of at least",
    ),
    (lambda t: t.histogram("city", keys="Rome", epsilon=1), "keys of 'city' must be a list"),
    (lambda t: t.histogram("city", keys=5, epsilon=1), "keys of 'city' must be a list"),
    (lambda t: t.histogram("city", keys=["a", "a"], epsilon=1), "keys of 'city' must be distinct"),
    (
        lambda t: t.histogram("city", keys=["a", 1], epsilon=1),
        "of the column's type, string, got 1",
    ),
    (lambda t: t.histogram("age", keys=["a"], epsilon=1), "of the column's type, int64, got 'a'"),
    (lambda t: t.histogram("age", keys=[True], epsilon=1), "of the column's type, int64, got True"),
    (lambda t: t.histogram("age", keys=[None], epsilon=1), "of the column's type, int64, got None"),
    (
        lambda t: t.histogram("day", keys=[datetime.datetime(2026, 1, 1)], epsilon=1),
        "of the column's type, date",
    ),
    (lambda t: t.crosstab("city", epsilon=1), "needs two or more columns"),
    (lambda t: t.count(epsilon=1e308), r"epsilon must be at most 1e\+06"),
    (lambda t: t.median("age", 0, 100, epsilon=1e7), r"epsilon must be at most 1e\+06"),
    (lambda t: t.crosstab("city", "city", epsilon=1), "columns must be different"),
    (lambda t: t.crosstab("city", "age", keys=["a"], epsilon=1), "keys must be a dictionary"),
    (lambda t: t.crosstab("city", "yes", keys={"age": [1]}, epsilon=1), "keys must be for the col"),
    (
        lambda t: t.crosstab("age", "city", keys={"age": range(90_000), "city": MANY}, epsilon=1),
        "cells of the table must be at most 1,000,000, got 1,800,000",
    ),
    (lambda t: t.group_by(), "columns must be at least one column"),
    (lambda t: t.group_by("salary"), "column must be one of"),
    (lambda t: t.group_by("age").count(epsilon=1), "the categories of 'age' must be public"),
    (lambda t: t.group_by("city", private_keys=True).count(epsilon=1), "delta .which private keys"),
    (
        lambda t: t.group_by("x", private_keys=True).count(epsilon=1, delta=1e-6),
        "'x' must hold text, whole numbers, dates",
    ),
    (
        lambda t: t.group_by("city", private_keys=True).median("age", 0, 9, epsilon=1, delta=1e-6),
        "a quantile by group needs public keys",
    ),
    (
        lambda t: t.group_by("city", private_keys=True, key_share=1).count(epsilon=1, delta=1e-6),
        "key_share must be strictly between 0 and 1",
    ),
    (
        lambda t: t.ask(GroupBy(["city"], MostCommon("city", epsilon=1))),
        "a group-by asks for a count, sum, mean, variance or quantile, not MostCommon",
    ),
    (
        lambda t: t.ask(GroupBy(["city"], MostCommon("city", epsilon=1), private_keys=True)),
        "a group-by asks for a count, sum, mean, variance or quantile, not MostCommon",
    ),
    (lambda t: t.ask(GroupBy(["city"], "count")), "of must be a question such as Count"),
    (lambda t: t.most_common("city", winners=4, epsilon=1), "winners must be at most 3"),
    (lambda t: t.most_common("city", winners=0, epsilon=1), "winners must be a whole number"),
    (lambda t: t.most_common("city", epsilon=1, delta=1e-6), "delta must be 0 for a choice"),
    (lambda t: t.arg_max("city", "day", 0, 1, epsilon=1), "'day' must be numeric"),
    (lambda t: t.ask(), "queries must be at least one question"),
    (lambda t: t.ask("count"), "queries must be questions such as"),
    (lambda t: t.where("salary > 5"), "column must be one of"),
    (lambda t: t.ask(Count(epsilon=1), Count(epsilon=1, where="salary > 5")), "column must be one"),
    (lambda t: t.ask(Count(epsilon=1), Sum("age", 1, 0, epsilon=1)), "lower bound below"),
    (lambda t: t.count(epsilon=10_001), "refused by the dataset of 'people'"),
    (lambda t: t.count(epsilon=1e-16), "scale must be|epsilon must be"),
]


@pytest.mark.parametrize(("ask", "words"), BAD_QUESTIONS)
def test_a_bad_question_is_a_clear_error_and_costs_nothing(people, ask, words):
    before = entries(people)
    if words is None:
        ask(people)
        return
    with pytest.raises(ValueError, match=words):
        ask(people)
    assert entries(people) == before
    assert people.status.left == 1e4


BAD_TABLES = [
    (TABLE, {"unit": "person_id"}, "max_rows_per_unit must be given with unit='person_id'"),
    (TABLE, {"unit": "who", "max_rows_per_unit": 1}, "column must be one of .*, got 'who'"),
    (
        TABLE,
        {"unit": "x", "max_rows_per_unit": 1},
        "unit column 'x' must hold text or whole numbers",
    ),
    (TABLE, {"unit": "person_id", "max_rows_per_unit": 0}, "max_rows_per_unit must be a whole"),
    (TABLE, {"unit": "person_id", "max_rows_per_unit": 1.5}, "max_rows_per_unit must be a whole"),
    (
        TABLE,
        {"unit": "person_id", "max_rows_per_unit": 2, "max_groups_per_unit": 0},
        "max_groups_per_unit must be a whole",
    ),
    (TABLE, {"max_rows_per_unit": 2}, "max_rows_per_unit must be left out without a unit column"),
    (TABLE, {"name": ""}, "name .of the data, for the ledger. must be a non-empty name"),
    (TABLE, {"neighbours": "swap"}, "neighbours must be 'add-remove'"),
    (TABLE, {"domains": {"salary": ["a"]}}, "column must be one of"),
    (TABLE, {"domains": {"city": ["a", 1]}}, "of the column's type"),
    (TABLE, {"domains": {"city": "Rome"}}, "must be a list"),
    (TABLE, {"types": {"salary": "int64"}}, "types must be for columns"),
    (TABLE, {"types": {"city": "number"}}, "must be a type such as 'int64'"),
    (TABLE, {"types": {"age": "float64"}}, "must be int64, as the source has it"),
    ("nowhere.parquet", {}, "source must be a file that exists"),
    ("nowhere*.csv", {}, "source must be a file that exists"),
    ("people.xlsx", {}, "source must be a file ending in"),
    (5, {}, "source must be a path, a URL"),
    ([1, 2], {}, "source must be a path, a URL"),
    ("nosuch://host/db", {"table": "t"}, "could not be opened"),
    ("duckdb:///tmp/no/such/folder/x.db", {"table": "t"}, "could not be opened"),
    ("postgresql://user:secret@localhost:1/db", {"table": "t"}, "could not be opened"),
    ("postgresql://localhost:1/db", {}, "table .which one, at the URL. must be"),
    (pa.table({"sfumato_order": [1]}), {}, "sfumato_... is ours"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "columns have different names"),
    (pd.DataFrame({"a": [1j]}), {}, "'a' must be of a type that Arrow knows, got 'complex128'"),
    (pd.DataFrame(), {}, "could not be opened"),
]


@pytest.mark.parametrize(("source", "options", "words"), BAD_TABLES)
def test_a_bad_table_is_a_clear_error(protected, source, options, words):
    with pytest.raises(ValueError, match=words) as raised:
        protected(source, **options)
    assert "secret" not in str(raised.value)


def test_unknown_and_vanished_ledgers(protected, new_ledger, tmp_path):
    with pytest.raises(ValueError, match="'people'"):
        protected(TABLE, budget=None)
    ledger = new_ledger()
    table = protected(TABLE, ledger=ledger)
    with pytest.raises(ValueError, match="budget for one record"):
        protected(TABLE, ledger=ledger, budget=None, unit_name="visit")
    with pytest.raises(LedgerError, match="exists with other terms"):
        protected(TABLE, ledger=ledger, budget=Budget(2.0))
    ledger.close()
    for path in tmp_path.glob("privacy_*"):
        path.unlink()
    with pytest.raises(LedgerError):
        table.count(epsilon=1.0)


def test_a_budget_is_found_again(protected, new_ledger):
    ledger = new_ledger()
    protected(TABLE, ledger=ledger, budget=Budget(1.0)).count(epsilon=0.75)
    again = protected(TABLE, ledger=ledger, budget=None)
    with pytest.raises(BudgetExceeded):
        again.count(epsilon=0.5)
    assert again.count(epsilon=0.25).remaining == "0 of 1 left"


# --- prices ---------------------------------------------------------------------------------------

TENTH = {"epsilon": 0.1}
THIRTY = {
    "count": Count(**TENTH),
    "units": CountUnits(**TENTH),
    "sum": Sum("age", 0, 100, **TENTH),
    "mean": Mean("age", 0, 100, **TENTH),
    "variance": Variance("age", 0, 100, **TENTH),
    "median": Median("age", 0, 100, candidates=4, **TENTH),
    "histogram": Histogram("age", (0, 50, 100), **TENTH),
    "by city": GroupBy(("city",), Mean("age", 0, 100, **TENTH)),
    "median by city": GroupBy(("city",), Median("age", 0, 100, candidates=4, **TENTH)),
    "most common": MostCommon("city", **TENTH),
    "two winners": MostCommon("city", winners=2, **TENTH),
}


@pytest.mark.parametrize("name", THIRTY)
@pytest.mark.parametrize("rows", [1, 3])
def test_thirty_tenths_fit_a_budget_of_three_exactly(protected, name, rows):
    table = protected(
        TABLE,
        unit="person_id",
        max_rows_per_unit=rows,
        budget=Budget(3.0),
        domains={"city": CITIES},
    )
    event = THIRTY[name].plan(table.facts).event
    for _ in range(29):
        with table.ledger.spend(table.dataset, event) as spending:
            spending.commit(None)
    (answer,) = table.ask(THIRTY[name])
    assert answer.remaining == "0 of 3 left"
    assert answer.guarantee.epsilon == 0.1
    with pytest.raises(BudgetExceeded):
        table.count(epsilon=1e-6)


def test_private_keys_cost_what_they_say(protected):
    table = protected(TABLE, budget=Budget(3.0, 1e-4))
    grouped = table.group_by("city", private_keys=True)
    for _ in range(5):
        grouped.count(epsilon=0.5, delta=1e-6)
    assert table.status.left == pytest.approx(0.5, abs=1e-6)
    grouped.sum("age", 0, 100, epsilon=0.25, delta=1e-6)
    assert 0.25 - 1e-6 <= table.status.left < 0.5  # the ledger may count a little less


@pytest.mark.parametrize("neighbours", ["add-remove", "zero-out", "replace-one"])
def test_every_relation_is_charged_as_asked(protected, neighbours):
    table = protected(TABLE, budget=Budget(2.0), neighbours=neighbours)
    assert table.count(epsilon=0.5).remaining == "1.5 of 2 left"
    assert table.mean("age", 0, 100, epsilon=0.5).remaining == "1 of 2 left"
    assert table.median("age", 0, 100, candidates=4, epsilon=0.5).remaining == "0.5 of 2 left"
    assert table.most_common("city", keys=CITIES, epsilon=0.5).remaining == "0 of 2 left"
    assert str(neighbours) in json.dumps(table.ledger.history("people")[-2].data)


def test_a_count_and_a_mean_together_cost_their_sum(people):
    """Not a price for each column."""
    before = people.status.left
    count, mean = people.ask(Count(epsilon=0.5), Mean("age", 0, 100, epsilon=0.25))
    assert before - people.status.left == pytest.approx(0.75, abs=1e-6)
    assert [entry[1] for entry in entries(people)][-2:] == ["reserve", "commit"]
    assert count.left == mean.left == people.status.left
    assert (count.guarantee.epsilon, mean.guarantee.epsilon) == (0.5, 0.25)


def test_a_combined_request_is_all_or_nothing(protected):
    table = protected(TABLE, budget=Budget(1.0))
    before = entries(table)
    with pytest.raises(BudgetExceeded):
        table.ask(Count(epsilon=0.5), Count(epsilon=0.6))
    assert entries(table) == before
    assert len(table.ask(Count(epsilon=0.5), Count(epsilon=0.5))) == 2


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("interval", [True, False])
def test_quantiles_by_group_cost_what_the_answer_says(protected, groups, interval):
    """A unit may be in G groups: the choice and the two searches of each spend epsilon / G."""
    table = protected(
        pa.table({"u": [*range(9)] * 3, "x": [1.0] * 27, "c": ["a", "b", "c"] * 9}),
        unit="u",
        max_rows_per_unit=3,
        max_groups_per_unit=groups,
        budget=Budget(1.0),
    )
    median = Median("x", 0, 10, candidates=10, interval=interval, epsilon=0.6)
    question = GroupBy(("c",), median, ["a", "b", "c"])
    plan = question.plan(table.facts)
    spent = plan.choice.epsilon + (2 * plan.search.epsilon if interval else 0)
    assert spent * groups == pytest.approx(0.6)
    (answer,) = table.ask(question)
    assert answer.guarantee.epsilon == 0.6
    assert table.status.left == pytest.approx(0.4)
    with pytest.raises(BudgetExceeded):
        table.ask(question)


def test_no_unit_enters_more_groups_than_it_has_rows(protected):
    options = {"unit": "person_id", "max_rows_per_unit": 2, "max_groups_per_unit": 9}
    assert protected(TABLE, **options).facts.groups == 2


def test_a_preview_costs_nothing_and_agrees(people):
    questions = [Count(epsilon=0.5), Median("age", 0, 100, epsilon=0.25), THIRTY["by city"]]
    before, left = entries(people), people.status.left
    preview = people.preview(*questions)
    assert entries(people) == before
    people.ask(*questions)
    assert preview.left == pytest.approx(people.status.left)
    assert left - people.status.left == pytest.approx(0.85, abs=1e-6)
    with pytest.raises(ValueError, match="lower bound"):
        people.preview(Sum("age", 1, 0, epsilon=1.0))


# --- repeated requests ----------------------------------------------------------------------------


def test_the_same_key_gives_the_same_answer_for_free(people):
    first = people.where("age > 25").mean("age", 0, 100, epsilon=0.5, key="monday")
    before, left = entries(people), people.status.left
    again = people.where("age > 25").mean("age", 0, 100, epsilon=0.5, key="monday")
    assert again == first
    assert again.repeated
    assert not first.repeated
    assert (entries(people), people.status.left) == (before, left)


@pytest.mark.parametrize(
    "other",
    [
        lambda t: t.where("age > 26").count(epsilon=0.5, key="k"),
        lambda t: t.where(ibis._.age > 25).count(epsilon=0.5, key="k"),
        lambda t: t.count(epsilon=0.5, key="k"),
        lambda t: t.where("age > 25").count(epsilon=0.25, key="k"),
        lambda t: t.where("age > 25").count_units(epsilon=0.5, key="k"),
        lambda t: t.where("age > 25").count(epsilon=0.5, confidence=0.9, key="k"),
    ],
)
def test_a_key_is_for_one_request(people, other):
    people.where("age > 25").count(epsilon=0.5, key="k")
    with pytest.raises(LedgerError, match="key 'k' was used for another request"):
        other(people)


def test_expressions_are_told_apart_by_what_they_say(people):
    people.where(ibis._.age > 25).count(epsilon=0.5, key="k")
    assert people.where(lambda t: t.age > 25).count(epsilon=0.5, key="k").repeated
    with pytest.raises(LedgerError, match="another request"):
        people.where(ibis._.age > 26).count(epsilon=0.5, key="k")


@pytest.mark.parametrize("changed", [{"max_rows_per_unit": 3}, {"max_groups_per_unit": 1}])
def test_a_key_is_for_one_way_of_bounding(protected, new_ledger, changed):
    """The event of a count of units is the same whatever the bounds: the request tells."""
    terms = {"unit": "person_id", "max_rows_per_unit": 2, "max_groups_per_unit": 2}
    terms |= {"ledger": new_ledger()}
    protected(TABLE, **terms).count_units(epsilon=0.5, key="k")
    assert protected(TABLE, **terms).count_units(epsilon=0.5, key="k").repeated
    with pytest.raises(LedgerError, match="key 'k' was used for another request"):
        protected(TABLE, **(terms | changed)).count_units(epsilon=0.5, key="k")


def test_the_history_says_how_contributions_were_bounded(people):
    people.where("yes").count(epsilon=0.5)
    (entry,) = [e for e in people.ledger.history("people") if e.kind == "reserve"]
    asked = Count(epsilon=0.5, where="yes").to_dict()
    assert entry.data["request"] == {
        "questions": [asked],
        "unit": "person_id",
        "max_rows_per_unit": 2,
        "max_groups_per_unit": 2,
    }


def test_a_key_brings_back_tables_too(people):
    grouped = people.group_by("city")
    first = grouped.count(epsilon=0.5, key="table")
    assert grouped.count(epsilon=0.5, key="table").values == first.values
    several = people.ask(Count(epsilon=0.1), Histogram("yes", epsilon=0.1), key="two")
    assert people.ask(Count(epsilon=0.1), Histogram("yes", epsilon=0.1), key="two") == several


# --- exact answers, with next to no noise ---------------------------------------------------------

SURE = {"epsilon": 5e2}


@pytest.fixture
def sure(protected):
    return protected(TABLE, unit="person_id", max_rows_per_unit=3, domains={"city": CITIES})


def test_what_is_counted(sure):
    assert sure.count(**SURE).value == 7
    assert sure.count_units(**SURE).value == 4
    assert sure.where("age > 25", "yes").count(**SURE).value == 3
    assert sure.where("age > 25").where("yes").count(where="x > 0", **SURE).value == 2
    assert sure.histogram("city", **SURE).values == {"Rome": 4, "Milan": 1, "Bari": 1}
    assert sure.histogram("yes", **SURE).values == {False: 2, True: 4}
    assert sure.histogram("age", [0, 31, 71], **SURE).values == {"0 to <31": 2, "31 to 71": 4}
    assert sure.crosstab("city", "yes", **SURE)["Rome", True] == 3
    assert sure.group_by("city").count_units(**SURE).values == {"Rome": 3, "Milan": 1, "Bari": 1}
    assert sure.most_common("city", **SURE).value == "Rome"
    assert sure.arg_max("city", "age", 0, 100, **SURE).value == "Rome"
    assert sure.most_common("city", winners=2, **SURE)[1] == "Rome"
    day = datetime.date(2026, 1, 1)
    assert sure.histogram("day", keys=[day], **SURE).values == {day: 7}


def test_what_is_measured(sure):
    assert sure.sum("age", 0, 100, **SURE).value == pytest.approx(272, abs=8)
    assert sure.mean("age", 0, 100, **SURE).value == pytest.approx(272 / 6, abs=3)
    ages = np.array([30, 31, 50, 70, 71, 20])
    assert sure.variance("age", 0, 100, **SURE).value == pytest.approx(ages.var(), abs=60)
    assert 31 <= sure.median("age", 0, 100, **SURE).value <= 50.1
    assert sure.mean("age", 0, 100, default=0, **SURE).value == pytest.approx(272 / 7, abs=3)
    assert sure.sum("yes", 0, 1, **SURE).value == pytest.approx(4, abs=0.1)


def test_nan_and_infinity_are_missing_and_the_rest_is_clamped(sure):
    answer = sure.sum("x", -5, 5, **SURE)
    assert answer.value == pytest.approx(1 + 3 - 5 + 0, abs=0.2)
    assert sure.where("x is null").count(**SURE).value == 3
    for question in (sure.mean, sure.variance, sure.median):
        assert math.isfinite(question("x", -5, 5, **SURE).value)


@pytest.mark.parametrize("kind", [pl.Int8, pl.UInt8, pl.Int16, pl.Float32, pl.Int64, pl.UInt64])
def test_sums_do_not_overflow_the_columns_type(protected, kind):
    table = protected(pl.DataFrame({"x": pl.Series([100] * 10, dtype=kind)}))
    assert table.sum("x", 0, 100, **SURE).value == pytest.approx(1000, abs=2)


def test_a_column_cannot_be_redefined_after_bounding(protected):
    """Grouping, binning and bounding make columns; none takes the place of one of the table's."""
    names = ("axis_0", "bin", "n", "s", "units", "value", "low", "high", "keys", "rows")
    columns = {name: pa.array([50.0] * 4) for name in names}
    frame = pa.table({"person": [1, 1, 2, 3], "city": ["Rome"] * 4, **columns})
    table = protected(frame, unit="person", max_rows_per_unit=2, domains={"city": ["Rome"]})
    for name in names:
        assert table.group_by("city").sum(name, 0, 100, **SURE)["Rome"] == pytest.approx(200, abs=5)
        assert table.sum(name, 0, 100, **SURE).value == pytest.approx(200, abs=5)


@pytest.mark.parametrize("name", ["axis_0", "n", "units", "value", "low", "keys", "rank"])
def test_the_unit_may_have_any_name(protected, name):
    frame = pa.table({name: [1, 1, 2, 3], "city": ["Rome"] * 4})
    table = protected(frame, unit=name, max_rows_per_unit=1, budget=Budget(1e4, 1e-3))
    assert table.count_units(**SURE).value == 3
    assert table.group_by("city", keys=["Rome"]).count_units(**SURE).values == {"Rome": 3}
    private = table.group_by("city", private_keys=True).count_units(delta=1e-4, **SURE)
    assert private.values == {"Rome": 3}


def test_private_keys_hold_dates_that_python_cannot(protected):
    connection = ibis.duckdb.connect()
    connection.raw_sql(
        "CREATE TABLE days AS SELECT i AS person, (CASE WHEN i = 0 THEN 'infinity' WHEN i = 1 THEN "
        "'0044-03-15 (BC)' ELSE '2026-01-01' END)::DATE AS day FROM range(50) r(i)"
    )
    from sfumato.queries.engine import quiet

    with quiet():
        table = protected(connection.table("days"))
    found = table.group_by("day", private_keys=True).count(delta=1e-4, **SURE)
    assert found.values == {datetime.date(2026, 1, 1): 48}


# --- answers as data ------------------------------------------------------------------------------


def answers(table):
    return [
        table.count(epsilon=0.5),
        table.mean("age", 0, 100, epsilon=0.5),
        table.median("age", 0, 100, candidates=10, epsilon=0.5),
        table.group_by("city").count(epsilon=0.5),
        table.crosstab("city", "yes", epsilon=0.5),
        table.histogram("age", [0, 50, 100], epsilon=0.5),
        table.most_common("city", epsilon=0.5),
        table.group_by("city", private_keys=True).count(epsilon=0.5, delta=1e-6),
    ]


def test_answers_survive_json_and_frames(people):
    for answer in answers(people):
        data = json.loads(json.dumps(answer.to_dict()))
        assert Answer.from_dict(data) == answer
        assert data["epsilon"] == 0.5
        assert data["private"] is False
        assert "warning" in data
        for frame in (answer.to_pandas(), pd.DataFrame(answer.to_polars().to_dict())):
            assert list(frame["value"]) == [cell.value for cell in answer.cells]
            assert len(frame.columns) == len(answer.key_names) + 3
        assert str(answer) == repr(answer)
        assert "<table" in answer._repr_html_()


def test_parquet_round_trip(people, tmp_path):
    answer = people.group_by("city").mean("age", 0, 100, epsilon=0.5)
    answer.to_pandas().to_parquet(tmp_path / "a.parquet")
    assert pd.read_parquet(tmp_path / "a.parquet").equals(answer.to_pandas())


def test_figures(people):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    for answer in answers(people)[:6]:
        assert answer.plot().axes
    plt.close("all")


def test_keys_called_like_values(protected):
    frame = pa.table({"value": ["a", "b", "a"], "low": ["x", "x", "y"]})
    table = protected(frame, domains={"value": ["a", "b"], "low": ["x", "y"]})
    answer = table.crosstab("value", "low", **SURE)
    assert answer["a", "y"] == 1
    assert Answer.from_dict(answer.to_dict()) == answer
    assert list(answer.to_pandas()["value (key)"]) == ["a", "a", "b", "b"]
    assert list(answer.to_pandas()["value"]) == [1, 1, 1, 0]
    again = table.crosstab("value", "low", key="k", **SURE)
    assert table.crosstab("value", "low", key="k", **SURE) == again


def test_bins_close_to_each_other_have_different_names(protected):
    table = protected(pa.table({"x": [1000001.5, 1000001.6]}))
    edges = [1000000, 1000001, 1000002, 1e7]
    answer = table.histogram("x", edges, **SURE)
    assert len(answer.values) == 3
    assert answer.cells[1].value == 2


def test_seeded_answers_say_so(people, new_ledger):
    assert not people.count(epsilon=1.0).private
    system = protect(TABLE, name="d", budget=Budget(1.0), ledger=new_ledger())
    assert system.count(epsilon=1.0).private


def test_views_share_one_bounded_table(people):
    people.count(epsilon=1.0)
    bounded = people._bounded.table(())
    view = people.where("yes").where("age > 5")
    view.count(epsilon=1.0)
    assert view._bounded.table(()) is bounded
    assert "12345" not in repr(people._bounded)


def test_a_ledger_by_url_is_the_same_ledger(tmp_path):
    url = f"sqlite:///{tmp_path}/shared.db"
    options = {"name": "d", "budget": Budget(1.0), "ledger": url, "coins": SeededCoins(1)}
    protect(TABLE, **options).count(epsilon=0.5)
    with Ledger(url).spend("d", Count(epsilon=0.5).plan(protect(TABLE, **options).facts).event):
        pass
    with pytest.raises(BudgetExceeded):
        protect(TABLE, **options).count(epsilon=0.1)


def test_a_copy_that_is_refused_leaves_no_budget_behind(tmp_path, new_ledger):
    ledger = new_ledger()
    frame = pd.DataFrame({"person": [1, 2], "x": [1.0, 2.0]})
    for name in ("a", "b"):
        frame.to_parquet(tmp_path / f"{name}.parquet")
    terms = {"unit": "person", "max_rows_per_unit": 1, "budget": Budget(1.0), "ledger": ledger}
    protect(tmp_path / "a.parquet", **terms)
    with pytest.raises(ValueError, match="copied or renamed"):
        protect(tmp_path / "b.parquet", **terms)
    assert ledger.names() == ["a"]
    protect(tmp_path / "b.parquet", **terms, same_data_ok=True)


def test_without_a_budget_no_ledger_is_made(tmp_path):
    frame = pd.DataFrame({"person": [1, 2]})
    with pytest.raises(ValueError, match="ledger"):
        protect(frame, name="a", ledger=f"sqlite:///{tmp_path}/none.db")
    assert not list(tmp_path.iterdir())


def test_what_is_left_is_of_the_tightest_cap(new_ledger):
    ledger = new_ledger()
    frame = pd.DataFrame({"person": [1, 2]})
    table = protect(frame, name="a", budget=Budget(3.0), ledger=ledger, analyst="bob")
    ledger.grant("a", "bob", Budget(1.0))
    answer = table.count(epsilon=0.4)
    assert answer.remaining == "0.6 of 1 left"
    with pytest.raises(ValueError, match=r"a pure release of epsilon 0\.6 would pass"):
        table.count(epsilon=5)


def test_a_stored_answer_says_so(protected):
    table = protected(pd.DataFrame({"person": [1, 2]}))
    first, again = (table.count(epsilon=1, key="k") for _ in range(2))
    assert "stored answer, nothing charged" in str(again)
    assert "stored" not in str(first)


def test_the_history_says_what_was_asked(protected):
    table = protected(pd.DataFrame({"person": [1, 2], "x": [1.0, 2.0], "city": ["a", "b"]}))
    table.group_by("city", keys=["a"]).mean("x", 0, 1, epsilon=1)
    table.ask(CountUnits(epsilon=1), MostCommon("city", ["a", "b"], epsilon=1))
    labels = [e.data["label"] for e in table.ledger.history("people") if e.kind == "reserve"]
    assert labels == ["mean of x by city", "count units; most common of city"]


def test_whole_numbers_beyond_those_with_a_sign_are_keys(tmp_path):
    largest = 2**64 - 1
    table = pa.table({"x": pa.array([largest] * 3 + [1], pa.uint64())})
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    people = protect(table, name="people", budget=Budget(100.0), ledger=ledger)
    answer = people.histogram("x", keys=(largest, 2**63, 1), epsilon=50.0)
    assert [(cell.keys, cell.value) for cell in answer.cells] == [
        ((largest,), 3), ((2**63,), 0), ((1,), 1),
    ]  # fmt: skip
