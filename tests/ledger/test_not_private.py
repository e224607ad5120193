"""No budget pays for a release without protection, however large it is."""

import pytest

from sfumato.core.events import (
    GaussianEvent,
    GroupedEvent,
    NotPrivateEvent,
    ParallelEvent,
    compose,
    repeat,
)
from sfumato.core.neighbours import Neighbours
from sfumato.ledger import Budget, BudgetExceeded
from sfumato.ledger.errors import LedgerError

NOTHING = NotPrivateEvent()


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("budget", [Budget(1.0), Budget(1e6, 0.5)], ids=["small", "largest"])
def test_it_is_refused_and_nothing_is_written(sqlite_ledger, budget, relation):
    sqlite_ledger.create("people", budget, neighbours=relation)
    for event in (
        NOTHING,
        NotPrivateEvent(relation),
        repeat(NOTHING, 2),
        compose(GaussianEvent(1000.0), NOTHING),
        ParallelEvent((NOTHING, GaussianEvent(1000.0))),
        GroupedEvent(NOTHING, 1, "record"),
    ):
        with pytest.raises(BudgetExceeded):
            sqlite_ledger.spend("people", event)
        preview = sqlite_ledger.preview("people", event)
        assert not any(one.passes for one in preview.events)
    with pytest.raises(LedgerError, match="no guarantee at delta"):
        sqlite_ledger.declare("people", [NOTHING], delta=1e-9)
    assert [entry.kind for entry in sqlite_ledger.history("people")] == ["open"]
