"""The journal of answers: its name is on disk before the first question is."""

from types import SimpleNamespace
from typing import Any

import pytest

from sfumato.learning import durable
from sfumato.learning.pate.journal import Answer, Journal
from sfumato.ledger import BudgetExceeded


def test_the_name_of_a_new_journal_is_on_disk(tmp_path, monkeypatch) -> None:
    synced: list = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    plan: Any = SimpleNamespace(to_dict=dict)
    for _ in range(2):
        Journal(tmp_path / "x/j", plan, None, True)
    assert synced == [tmp_path / "x"]


def opened(path):
    plan: Any = SimpleNamespace(to_dict=dict)
    return Journal(path, plan, None, True)


def refuse(turn):
    raise BudgetExceeded("no room", "votes")


def test_as_much_counts_as_answered_after_going_on_as_before(tmp_path) -> None:
    """A question without any outcome, and one that teachers answered; not what the student knew."""
    journal = opened(tmp_path / "j")
    for question, by in ((0, "teachers"), (1, "student"), (2, "nobody"), (3, None)):
        journal.begin(question, lambda turn: turn.number)
        if by is not None:
            journal.finish(Answer(question, None if by == "nobody" else 1, by))
    assert (journal.answered, journal.begun) == (2, {0: True, 1: False, 2: False, 3: True})
    journal.run.close()
    again = opened(tmp_path / "j")
    assert (again.answered, again.begun, again.answers) == (2, journal.begun, journal.answers)


def test_a_question_that_was_refused_was_not_begun_and_its_refusal_is_told(tmp_path) -> None:
    journal = opened(tmp_path / "j")
    with pytest.raises(BudgetExceeded, match="no room"):
        journal.begin(0, refuse)
    assert journal.begun == {}
    with pytest.raises(BudgetExceeded, match="no room"):
        journal.publish(refuse)
    assert not journal.publishing
    journal.run.close()
    again = opened(tmp_path / "j")
    assert (again.begun, again.publishing) == ({}, False)


def test_what_else_goes_wrong_leaves_the_question_begun(tmp_path) -> None:
    """Its votes may have been read."""
    journal = opened(tmp_path / "j")
    with pytest.raises(ZeroDivisionError):
        journal.begin(0, lambda turn: 1 / 0)
    assert journal.answered == 1
    journal.run.close()
    assert opened(tmp_path / "j").answered == 1
