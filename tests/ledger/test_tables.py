"""Tables: a budget answers for the column by which its units are told apart, and for no other."""

import dataclasses
import json
import logging
import warnings

import pytest
from sqlalchemy import text
from tests.storm.slices import run

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, DatasetTable, Ledger, LedgerError
from sfumato.ledger.entries import canonical
from sfumato.ledger.replay import Replay, RuleBroken
from sfumato.ledger.schema import VERSION

COUNT = LaplaceEvent(10.0, unit="patient")
QUESTIONS = {"questions": [{"query": "Count"}], "max_rows_per_unit": 3}


@pytest.fixture
def hospital(ledger):
    ledger.create("hospital", Budget(10.0), unit="patient")
    return ledger


def kinds(ledger):
    return [entry.kind for entry in ledger.history("hospital")]


def charge(ledger, **more):
    with ledger.spend("hospital", COUNT, **more) as spending:
        spending.commit(1)


@pytest.mark.parametrize("column", ["patient_id", None])
def test_the_first_opening_pins_the_column_and_later_ones_must_present_it(hospital, url, column):
    held = hospital.open_table("hospital", column)
    assert held == DatasetTable("hospital", column, 2)
    head = hospital.head("hospital")
    elsewhere = Ledger(url)
    for one in (hospital, elsewhere):
        assert one.open_table("hospital", column) == held
        assert one.tables("hospital") == [held]
    assert hospital.head("hospital") == head  # opened again, it writes nothing
    for other in {"visit_id", "patient_id", "Patient_ID", None} - {column}:
        with pytest.raises(LedgerError, match="protects one patient, and in its table 'hospital'"):
            elsewhere.open_table("hospital", other)
    elsewhere.close()
    assert hospital.head("hospital") == head
    assert hospital.verify("hospital").ok
    (entry,) = [one for one in hospital.history("hospital") if one.kind == "table"]
    assert (entry.data["by"], entry.data["unit_column"]) == ("opening", column)


def test_the_error_names_the_pinned_column_and_what_to_do(hospital):
    hospital.open_table("hospital", "patient_id")
    with pytest.raises(LedgerError) as refusal:
        hospital.open_table("hospital", "visit_id")
    for word in ("'patient_id'", "'visit_id'", "Nothing was spent", "a dataset and a budget of th"):
        assert word in str(refusal.value)
    with pytest.raises(LedgerError, match="not rows: those are other units"):
        hospital.open_table("hospital", None)


@pytest.mark.parametrize("column", ["", 3, b"patient_id"])
def test_a_column_has_a_name(hospital, column):
    with pytest.raises(ValueError, match="unit_column must be"):
        hospital.open_table("hospital", column)
    assert kinds(hospital) == ["open"]


def test_a_further_table_is_an_explicit_act(hospital):
    hospital.open_table("hospital", "id", table="persons")
    with pytest.raises(LedgerError, match=r"no table 'visits'.*add_table\('hospital', 'visits'"):
        hospital.open_table("hospital", "patient_id", table="visits")
    added = hospital.add_table("hospital", "visits", "patient_id")
    hospital.add_table("hospital", "visits", "patient_id")  # again: nothing to write
    hospital.add_table("hospital", "deaths", None)
    assert kinds(hospital) == ["open", "table", "table", "table"]
    assert hospital.open_table("hospital", "patient_id", table="visits") == added
    with pytest.raises(LedgerError, match="'patient_id' tells units apart"):
        hospital.open_table("hospital", "id", table="visits")
    assert [one.name for one in hospital.tables("hospital")] == ["persons", "visits", "deaths"]
    assert hospital.verify("hospital").ok


def test_which_table_is_meant(hospital):
    hospital.open_table("hospital", "id", table="persons")
    assert hospital.open_table("hospital", "id", called="anything").name == "persons"
    hospital.add_table("hospital", "visits", "patient_id")
    assert hospital.open_table("hospital", "patient_id", called="visits").name == "visits"
    with pytest.raises(LedgerError, match="say which of them"):
        hospital.open_table("hospital", "id", called="anything")
    hospital.add_table("hospital", "hospital", "ward_patient")
    assert hospital.open_table("hospital", "ward_patient", called="anything").name == "hospital"


def test_a_column_is_corrected_only_while_nothing_was_charged(hospital):
    hospital.open_table("hospital", "visit_id")
    hospital.add_table("hospital", "hospital", "patient_id")
    hospital.open_table("hospital", "patient_id")
    charge(hospital)
    with pytest.raises(LedgerError, match="'patient_id' tells units apart"):
        hospital.add_table("hospital", "hospital", "visit_id")
    hospital.add_table("hospital", "visits", "patient_id")  # another table may come any time
    assert hospital.verify("hospital").ok


def test_what_units_are_told_apart_by_is_shown(hospital):
    hospital.open_table("hospital", "patient_id")
    hospital.add_table("hospital", "deaths", None)
    status = hospital.status("hospital")
    assert status.to_dict()["tables"] == [
        {"table": "hospital", "unit_column": "patient_id", "entry": 2},
        {"table": "deaths", "unit_column": None, "entry": 3},
    ]
    assert "table hospital: column 'patient_id' tells units apart" in str(status)
    assert "table deaths: each row is a unit" in str(status)


# --- ledgers from before --------------------------------------------------------------------------


def test_a_ledger_of_before_is_pinned_by_what_it_was_charged_for(hospital):
    charge(hospital, request=QUESTIONS | {"unit": "patient_id"})
    for other in ("visit_id", None):
        with pytest.raises(LedgerError, match="was charged for questions in which column 'patient"):
            hospital.open_table("hospital", other)
        with pytest.raises(LedgerError, match="was charged for questions"):
            hospital.add_table("hospital", "hospital", other)
    assert hospital.open_table("hospital", "patient_id").entry == 4
    assert hospital.verify("hospital").ok


def test_a_ledger_that_was_charged_for_several_units_says_so(hospital, caplog):
    for unit in ("patient_id", "visit_id", None):
        charge(hospital, request=QUESTIONS | {"unit": unit})
    curator = logging.getLogger("sfumato.curator")
    curator.addHandler(caplog.handler)
    try:
        caplog.set_level(logging.INFO, "sfumato.curator")
        hospital.open_table("hospital", "patient_id")
    finally:
        curator.removeHandler(caplog.handler)
    assert "SFA-2026-06" in caplog.text
    assert "in its table 'hospital' column 'patient_id' tells units apart from now" in caplog.text


@pytest.mark.parametrize("create", [True, False])
def test_the_tables_of_the_first_version_are_brought_up_to_date(url, create):
    ledger = Ledger(url)
    ledger.create("hospital", Budget(10.0), unit="patient")
    ledger.identify("hospital", "f1", "patients.csv")
    charge(ledger)
    with ledger._database.writing() as old:
        old.run(text("ALTER TABLE ledger_identities DROP COLUMN table_name"), {})
        old.run(text("UPDATE ledger_meta SET value = '1' WHERE name = 'version'"), {})
    ledger.close()
    ledger = Ledger(url, create=create)
    assert VERSION == 2
    assert ledger.identify("hospital", "f1", "patients.csv").found == "same"
    assert ledger.open_table("hospital", "patient_id").entry == 4
    assert ledger.verify("hospital").ok
    ledger.close()
    Ledger(url, create=False).close()


def test_each_table_is_compared_with_itself(hospital):
    hospital.identify("hospital", "f0", "persons.csv")  # before its name was known
    hospital.open_table("hospital", "id", table="persons")
    hospital.add_table("hospital", "visits", "patient_id")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [
            hospital.identify("hospital", print_, source, table=table).found
            for _ in range(2)
            for table, print_, source in (("persons", "f0", "a.csv"), ("visits", "f1", "b.csv"))
        ]
    assert found == ["same", "first seen", "same", "same"]
    with pytest.raises(LedgerError, match=r"table 'visits' of 'hospital' holds the data of its t"):
        hospital.identify("hospital", "f0", "a.csv", table="visits")


# --- concurrency, and the rules -------------------------------------------------------------------


def test_of_processes_with_different_columns_exactly_one_wins(url):
    told = json.loads(run("-m", "tests.ledger.processes", "columns", url, 8))
    ledger = Ledger(url)
    (held,) = ledger.tables("census")
    assert [entry.kind for entry in ledger.history("census")] == ["open", "table"]
    assert sorted(set(told)) == sorted([held.unit_column, "refused"])
    assert told.count("refused") == 7
    assert ledger.verify("census").ok
    ledger.close()


@pytest.mark.parametrize(
    ("where", "change", "word"),
    [
        (3, {"by": "opening"}, "without an act of the curator's"),
        (3, {"by": "someone"}, "was written by 'someone'"),
        (3, {"number": 3}, "not the next one"),
        (3, {"table": ""}, "names no table"),
        (3, {"unit_column": 7}, "names no table"),
        (3, {"table": "hospital", "unit_column": "patient_id"}, "changes the unit column"),
        (6, {"table": "hospital"}, "changes the unit column of 'hospital'"),
    ],
)
def test_what_the_ledger_would_not_have_written_is_found(hospital, where, change, word):
    hospital.open_table("hospital", "patient_id")
    hospital.add_table("hospital", "visits", "visitor")
    charge(hospital)
    hospital.add_table("hospital", "drugs", "patient")
    assert kinds(hospital) == ["open", "table", "table", "reserve", "commit", "table"]
    judge = Replay("hospital")
    for entry in hospital.history("hospital"):
        if entry.sequence == where:
            changed = canonical(entry.data | change)
            with pytest.raises(RuleBroken, match=f"entry {where} .*{word}"):
                judge.take(dataclasses.replace(entry, payload=changed))
            return
        judge.take(entry)
