"""Identity: copies and renames get no new budget, changes are said aloud."""

import warnings

import pytest
from sqlalchemy import text

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, DataChangedWarning, LedgerError


@pytest.fixture
def census(ledger):
    ledger.create("census", Budget(1.0))
    ledger.create("copy", Budget(1.0))
    return ledger


def test_first_seen_then_the_same(census):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert census.identify("census", "f1", "people.csv").found == "first seen"
        found = census.identify("census", "f1", "people.csv")
    assert (found.found, found.same_as, found.source) == ("same", (), "people.csv")
    assert found.to_dict()["found"] == "same"


def test_changed_data_keeps_its_budget_and_warns(census):
    census.identify("census", "f1", "people.csv")
    with census.spend("census", LaplaceEvent(2.0)):
        pass
    with pytest.warns(DataChangedWarning, match="'census' changed.*people.csv.*budget goes on"):
        assert census.identify("census", "f2", "people-v2.csv").found == "changed"
    assert census.status("census").left == 0.5
    with pytest.warns(DataChangedWarning):
        assert census.identify("census", "f1", "people.csv").found == "changed"  # and back again


def test_a_copy_under_another_name_is_refused(census):
    census.identify("census", "f1", "people.csv")
    with pytest.raises(LedgerError, match=r"also that of 'census'.*copied or renamed"):
        census.identify("copy", "f1", "renamed.csv")
    with pytest.raises(LedgerError):  # it was not remembered the first time
        census.identify("copy", "f1", "renamed.csv")
    found = census.identify("copy", "f1", "renamed.csv", same_data_ok=True)
    assert (found.found, found.same_as) == ("first seen", ("census",))


def test_a_second_name_that_was_allowed_locks_no_one_out(census):
    census.identify("census", "f1", "people.csv")
    census.identify("copy", "f1", "renamed.csv", same_data_ok=True)
    for name in ("census", "copy", "census"):
        census.refuse_copies(name, "f1", "people.csv")
        found = census.identify(name, "f1", "people.csv")
        assert found.found == "same"
        assert found.same_as == ("copy" if name == "census" else "census",)
    census.create("third", Budget(1.0))
    with pytest.raises(LedgerError, match="also that of 'census', 'copy'"):
        census.identify("third", "f1", "people.csv")


def test_also_a_copy_of_what_the_data_once_was(census):
    census.identify("census", "f1", "people.csv")
    with pytest.warns(DataChangedWarning):
        census.identify("census", "f2", "people.csv")
    with pytest.raises(LedgerError, match="also that of 'census'"):
        census.identify("copy", "f1", "old.csv")


def test_fingerprints_are_not_in_the_chain_nor_stored_in_the_clear(census):
    before = census.head("census")
    census.identify("census", "fingerprint-of-everyone", "people.csv")
    assert census.head("census") == before
    with census._database.reading() as transaction:
        (row,) = transaction.all(text("SELECT * FROM ledger_identities"), {})
    assert "fingerprint-of-everyone" not in str(row)


def test_an_unknown_dataset_has_no_identity(census):
    with pytest.raises(LedgerError, match="no dataset 'x'"):
        census.identify("x", "f", "s")
    with pytest.raises(ValueError, match="fingerprint"):
        census.identify("census", "", "s")
