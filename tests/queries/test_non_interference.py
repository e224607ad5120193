"""Neighbouring tables with the same coins: nothing but released values may differ."""

import io
import json
import logging
import math
import warnings

import numpy as np
import pyarrow as pa
import pytest

from sfumato.core import SeededCoins
from sfumato.ledger import Budget
from sfumato.queries import (
    ArgMax,
    Count,
    CountUnits,
    Crosstab,
    GroupBy,
    Histogram,
    Mean,
    Median,
    MostCommon,
    Quantile,
    SourceError,
    Sum,
    Variance,
    bounding,
    engine,
)

CITIES = ("Rome", "Milan", "Bari")
SCHEMA = pa.schema(
    {
        "person": pa.int64(),
        "city": pa.string(),
        "x": pa.float64(),
        "whole": pa.int64(),
        "text": pa.string(),
    }
)
BASE = [(i // 2, CITIES[i % 3], float(i % 17), i, str(i)) for i in range(60)]
ONE = {
    "absent": [],
    "ordinary": [(99, "Rome", 5.0, 5, "5")],
    "extreme": [(99, "Alone", 1e308, 2**63 - 1, "not a number")] * 30,
    "missing": [(99, None, math.nan, None, None), (99, "", -math.inf, -(2**63), "")],
    "tiny": [(99, "Milan", 5e-324, 0, "1e999"), (99, "\x00", -1e308, 1, "\x00")],
}
P = {"epsilon": 0.5}
D = {"epsilon": 0.5, "delta": 1e-6}
QUESTIONS = {
    "count": Count(**P),
    "count, Gaussian": Count(**D),
    "filtered": Count(where="whole * x / x > 1 and text <> '7'", **P),
    "units": CountUnits(**P),
    "sum": Sum("x", 0, 10, **P),
    "sum of text": Sum("text", -5, 10, default=2, **P),
    "mean": Mean("whole", 0, 10, **P),
    "variance": Variance("x", 0, 10, **P),
    "median": Median("x", 0, 10, candidates=20, **P),
    "quantile": Quantile("whole", 0.9, 0, 10, candidates=20, **P),
    "histogram": Histogram("x", (0, 5, 10), **P),
    "crosstab": Crosstab(("city", "text"), {"city": CITIES, "text": ("1", "2")}, **P),
    "by city": GroupBy(("city",), Mean("x", 0, 10, **P), CITIES),
    "median by city": GroupBy(("city",), Median("x", 0, 10, candidates=5, **P), CITIES),
    "private keys": GroupBy(("city",), Count(**D), private_keys=True),
    "most common": MostCommon("city", CITIES, **P),
    "largest sum": ArgMax("city", "x", 0, 10, CITIES, **P),
}
RELEASED = {"value", "low", "high"}


def table_of(one):
    columns = zip(*(BASE + ONE[one]), strict=True)
    arrays = [pa.array(c, kind) for c, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def everything_seen(protected, source, query, folder, **options):
    """All that one question leaves behind, released values aside."""
    log, seen = io.StringIO(), {}
    handler = logging.StreamHandler(log)
    # What the collector finds of earlier tests on Spark is told to its bridge, at any moment.
    handler.addFilter(lambda record: not record.name.startswith("py4j"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            people = protected(
                source,
                unit="person",
                max_rows_per_unit=3,
                max_groups_per_unit=2,
                coins=SeededCoins(5),
                **options,
            )
            people._bounded.key = 12345
            try:
                (answer,) = people.ask(query)
                seen["answer"] = public(answer.to_dict(), query)
            except Exception as error:
                seen["error"] = (type(error).__name__, str(error), error.__cause__)
            seen["status"] = str(people.status)
        # DuckDB's about its own use by Ibis, and what the collector finds of earlier tests, aside.
        seen["warnings"] = [
            (w.category, str(w.message))
            for w in caught
            if "duckdb" not in w.filename and w.category is not ResourceWarning
        ]
    finally:
        root.removeHandler(handler)
    seen["log"] = [line for line in log.getvalue().splitlines() if "privacy_" not in line]
    seen["entries"] = [entry_data(entry, query) for entry in people.ledger.history("people")]
    seen["files"] = sorted(path.name.rsplit("_")[0] for path in folder.iterdir())
    return seen


def public(answer, query):
    """An answer without its released values; with private keys, the names are released too."""
    rows = [{k: v for k, v in row.items() if k not in RELEASED} for row in answer["rows"]]
    if getattr(query, "private_keys", False):
        rows = []
    return answer | {"rows": rows}


def entry_data(entry, query):
    data = json.loads(json.dumps(entry.data, default=str))
    if entry.kind == "commit":
        data["answer"] = [public(answer, query) for answer in data["answer"]]
    return entry.sequence, entry.kind, data


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_neighbour_changes_released_values_alone(name, protected, tmp_path):
    seen = []
    for one in ("ordinary", "absent", "extreme", "missing", "tiny"):
        folder = tmp_path / f"{len(seen)}"
        folder.mkdir()
        seen.append(everything_seen(protected, table_of(one), QUESTIONS[name], folder))
    assert "error" not in seen[0]
    assert all(other == seen[0] for other in seen[1:])


@pytest.mark.parametrize("name", ["count", "variance", "median by city", "private keys"])
def test_an_empty_table_is_answered_alike(name, protected, tmp_path):
    empty = SCHEMA.empty_table()
    seen = [
        everything_seen(protected, source, QUESTIONS[name], tmp_path)
        for source in (table_of("ordinary"), empty)
    ]
    for one in seen:
        one.pop("files")
    assert seen[0] == seen[1]


@pytest.mark.parametrize("name", ["count", "mean", "private keys"])
def test_a_failure_of_the_engine_says_nothing_and_stays_charged(name, protected, monkeypatch):
    """The engine fails on rows that hold a secret, and says it."""
    seen = []
    for secret in ("Rome is full", "42"):
        people = protected(table_of("ordinary"), unit="person", max_rows_per_unit=3)
        people._plan([QUESTIONS[name]])
        people._bounded.table(())

        def failing(self, *_, secret=secret, **__):
            raise RuntimeError(f"conversion failed on {secret!r}")

        with monkeypatch.context() as patch:
            plans = [QUESTIONS[name].plan(people.facts)]
            patch.setattr(people, "_plan", lambda _, plans=plans: plans)
            patch.setattr(type(people._table), "to_pyarrow", failing)
            with pytest.raises(SourceError) as raised:
                people.ask(QUESTIONS[name])
        assert secret not in str(raised.value)
        assert raised.value.__context__ is None
        entries = people.ledger.history("people")
        seen.append((str(raised.value), [entry_data(e, QUESTIONS[name]) for e in entries]))
        assert [entry.kind for entry in entries][-2:] == ["reserve", "failed"]
        assert people.status.left < 1e4
    assert seen[0] == seen[1]


def test_what_an_engine_says_goes_to_the_curator_alone(protected, monkeypatch):
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    engine.CURATOR.addHandler(handler)
    try:
        people = protected(table_of("ordinary"))
        monkeypatch.setattr(
            type(people._table),
            "to_pyarrow",
            lambda *_, **__: (_ for _ in ()).throw(OSError("secret")),
        )
        with pytest.raises(SourceError, match=r"checking the question on no rows; its own message"):
            people.count(epsilon=1.0)
    finally:
        engine.CURATOR.removeHandler(handler)
    assert "secret" in log.getvalue()
    assert not engine.CURATOR.propagate
    assert people.ledger.history("people")[-1].kind != "reserve"  # nothing was read, nothing spent


def test_the_second_pass_of_a_large_table_is_taken_or_not_without_a_trace(protected, monkeypatch):
    """Whether a first pass pays is decided by the rows; every share must work, 0.5 and more too."""
    monkeypatch.setattr(bounding, "_LARGE", 0)
    for units in range(1, 12):
        rows = [(i % units, "Rome", float(i), i, "") for i in range(12)]
        arrays = [
            pa.array(c, k) for c, k in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)
        ]
        people = protected(
            pa.table(arrays, schema=SCHEMA), unit="person", max_rows_per_unit=2, budget=Budget(1e5)
        )
        exact = sum(min(2, len(range(unit, 12, units))) for unit in range(units))
        assert people.count(epsilon=1e3).value == exact


def test_the_coins_of_the_operating_system_are_the_default():
    from sfumato.queries import protect

    table = pa.table({"x": np.arange(5.0)})
    found = set()
    import tempfile

    for _ in range(8):
        url = f"sqlite:///{tempfile.mkdtemp()}/privacy.db"
        people = protect(table, name="d", budget=Budget(1.0), ledger=url)
        answer = people.count(epsilon=0.01)
        assert answer.private
        found.add(answer.value)
    assert len(found) > 1
