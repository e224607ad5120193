"""The journal of answers: its name is on disk before the first question is."""

from types import SimpleNamespace
from typing import Any

from sfumato.learning import durable
from sfumato.learning.pate.journal import Journal


def test_the_name_of_a_new_journal_is_on_disk(tmp_path, monkeypatch) -> None:
    synced: list = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    plan: Any = SimpleNamespace(to_dict=dict)
    for _ in range(2):
        Journal(tmp_path / "x/j", plan, None, True)
    assert synced == [tmp_path / "x"]
