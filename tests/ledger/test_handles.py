"""A ledger as a value: copied it is the same, pickled it is its address."""

import copy
import os
import pickle
from datetime import UTC, datetime

import pytest
from sklearn.base import clone

from sfumato.core.events import LaplaceEvent
from sfumato.learning.erm import PrivateLogisticRegression
from sfumato.ledger import Budget, Ledger, LedgerError
from sfumato.ledger.places import Place

EVENT = LaplaceEvent(4.0)


def test_a_copy_is_the_same_ledger(ledger):
    assert copy.copy(ledger) is copy.deepcopy(ledger) is ledger
    assert copy.deepcopy([{"ledger": ledger}])[0]["ledger"] is ledger


def test_a_pickled_ledger_is_opened_again_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = Ledger("own.db")
    made.create("census", Budget(1.0))
    stored = pickle.dumps(made)
    monkeypatch.chdir(os.sep)
    again = pickle.loads(stored)
    assert again is not made
    again.spend("census", EVENT).commit(1)
    assert again.status("census").left == 0.75
    monkeypatch.chdir(tmp_path)
    assert made.status("census").left == 0.75
    again.close()
    made.close()


def test_a_ledger_that_is_gone_is_not_made_again(tmp_path):
    made = Ledger(tmp_path / "own.db")
    stored = pickle.dumps(made)
    made.close()
    (tmp_path / "own.db").unlink()
    with pytest.raises(LedgerError, match="there is no ledger"):
        pickle.loads(stored)


def test_no_password_is_pickled(tmp_path, monkeypatch):
    made = Ledger(tmp_path / "own.db")
    place = Place.parse("postgresql://ann:secret@server/privacy", 1.0)
    monkeypatch.setattr(made._database, "place", place)
    with pytest.raises(TypeError, match=r"has a password.*pgpass") as refused:
        pickle.dumps(made)
    assert "secret" not in str(refused.value)
    made.close()


def test_no_clock_is_pickled(tmp_path):
    made = Ledger(tmp_path / "own.db", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(TypeError, match="a clock of its own and cannot be pickled"):
        pickle.dumps(made)
    made.close()


def test_an_estimator_that_holds_a_ledger_is_cloned_and_pickled(tmp_path):
    """As cross-validation and worker processes do; each fit is charged to the one budget."""
    ledger = Ledger(tmp_path / "own.db")
    ledger.create("people", Budget(8.0, 1e-4), neighbours="replace-one")
    model = PrivateLogisticRegression(
        epsilon=1.0, bounds=(0, 1), classes=[0, 1], ledger=ledger, dataset="people"
    )
    rows, labels = [[0.1], [0.9]] * 20, [0, 1] * 20
    cloned, pickled = clone(model), pickle.loads(pickle.dumps(model))
    assert cloned.ledger is ledger
    for each in (model, cloned, pickled, clone(model)):
        each.fit(rows, labels)
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(rows) == model.predict(rows)).all()
    kinds = [entry.kind for entry in ledger.history("people")]
    assert kinds.count("reserve") == kinds.count("commit") == 4
    ledger.close()
