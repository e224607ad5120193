"""Opening a table: a budget of patients answers for the column of patients alone."""

import ibis
import pandas as pd
import pytest
from sqlalchemy import text

from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from sfumato.queries import protect
from sfumato.queries.engine import quiet

VISITS = pd.DataFrame(
    {
        "patient_id": [i // 10 for i in range(60)],
        "visit_id": range(60),
        "drug": ["a", "b"] * 30,
    }
)
PERSONS = pd.DataFrame({"id": range(6), "age": [40, 50, 60, 70, 80, 90]})
BY_PATIENT = {"unit": "patient_id", "max_rows_per_unit": 10}


@pytest.fixture
def ledger(url):
    opened = Ledger(url)
    yield opened
    opened.close()


@pytest.fixture
def hospital(ledger):
    """Opens tables of a budget of patients, which visits were first charged to."""

    def opened(source=VISITS, **options):
        return protect(source, name="hospital", ledger=ledger, **options)

    opened(**BY_PATIENT, budget=Budget(5.0)).count(epsilon=1.0)
    return opened


def stored_in_duckdb(table):
    connection = ibis.duckdb.connect()
    with quiet():
        connection.con.register("frame", table)
        connection.raw_sql("CREATE TABLE stored AS SELECT * FROM frame")
        return connection.table("stored")


@pytest.mark.parametrize(
    "units",
    [
        {"unit": "visit_id", "unit_name": "patient", "max_rows_per_unit": 1},
        {"unit_name": "patient"},
        {"unit": "drug", "unit_name": "patient", "max_rows_per_unit": 30, "budget": Budget(5.0)},
        {"unit_name": "patient", "table": "other"},
        BY_PATIENT | {"table": "other"},
    ],
)
def test_another_column_or_none_is_refused_and_leaves_no_trace(hospital, ledger, units):
    head, fingerprints = ledger.head("hospital"), identities(ledger)
    with pytest.raises(LedgerError, match="'patient_id' tells units apart"):
        hospital(**units)
    assert (ledger.head("hospital"), identities(ledger)) == (head, fingerprints)
    hospital(**BY_PATIENT).count(epsilon=1.0)  # and the column it is for goes on
    assert ledger.status("hospital").left == 3.0


def identities(ledger):
    with ledger._database.reading() as transaction:
        return transaction.all(text("SELECT dataset, table_name FROM ledger_identities"), {})


def test_a_renamed_or_computed_column_is_not_the_pinned_one(hospital):
    stored = stored_in_duckdb(VISITS)
    for other, said in (
        (stored.drop("patient_id").rename(patient_id="visit_id"), "'visit_id'"),
        (stored.select("drug", patient_id=stored.visit_id), "'visit_id'"),
        (stored.mutate(patient_id=stored.visit_id + 0), r"'patient_id \(computed\)'"),
        (stored.mutate(patient_id=ibis.row_number()).filter(ibis._.drug == "a"), "computed"),
    ):
        with pytest.raises(LedgerError, match=f"not column .*{said}"):
            hospital(other, **BY_PATIENT)
    with pytest.warns(Warning, match="changed"):
        kept = hospital(stored.filter(stored.drug == "a").order_by("visit_id"), **BY_PATIENT)
    assert kept.facts.unit_column == "patient_id"


def test_a_union_has_the_column_that_both_sides_have(hospital):
    stored = stored_in_duckdb(VISITS)
    both = stored.union(stored)
    with pytest.warns(Warning, match="changed"):
        hospital(both, **BY_PATIENT)
    swapped = stored.select(patient_id="visit_id", visit_id="patient_id", drug="drug")
    with pytest.raises(LedgerError, match="computed"):
        hospital(stored.union(swapped), **BY_PATIENT)


def test_a_dataset_holds_several_tables_with_a_column_each(hospital, ledger):
    ledger.add_table("hospital", "persons", "id")
    persons = hospital(
        PERSONS, table="persons", unit="id", unit_name="patient", max_rows_per_unit=1
    )
    visits = hospital(**BY_PATIENT)
    assert persons.where("age > 50").table_name == "persons"
    assert (persons.table_name, visits.table_name) == ("persons", "")
    persons.count(epsilon=1.0, key="k")
    assert persons.count(epsilon=1.0, key="k").repeated
    with pytest.raises(LedgerError, match="key 'k' was used for another request"):
        visits.count(epsilon=1.0, key="k")
    with pytest.raises(LedgerError, match="table 'persons' column 'id' tells"):
        hospital(PERSONS, table="persons", unit_name="patient")
    visits.count(epsilon=3.0)  # 1 of the fixture, 1 of persons, 3: one budget
    with pytest.raises(BudgetExceeded):
        persons.count(epsilon=0.1)
    assert ledger.verify("hospital").ok


def test_a_file_is_the_table_it_is_called_after(tmp_path, hospital, ledger):
    ledger.add_table("hospital", "persons", "id")
    PERSONS.to_parquet(tmp_path / "persons.parquet")
    VISITS.to_parquet(tmp_path / "visits-of-may.parquet")
    options = {"unit": "id", "unit_name": "patient", "max_rows_per_unit": 1}
    assert hospital(tmp_path / "persons.parquet", **options).table_name == "persons"
    with pytest.warns(Warning, match="changed"):
        assert hospital(str(tmp_path / "visits-of-may.parquet"), **BY_PATIENT).table_name == ""


def test_rows_as_units_are_pinned_too(ledger):
    options = {"name": "rows", "ledger": ledger}
    protect(VISITS, **options, budget=Budget(5.0)).count(epsilon=1.0)
    with pytest.raises(LedgerError, match=r"each row is a unit.*not column 'visit_id'"):
        protect(VISITS, **options, unit="visit_id", unit_name="record", max_rows_per_unit=1)
    protect(VISITS, **options).count(epsilon=1.0)
