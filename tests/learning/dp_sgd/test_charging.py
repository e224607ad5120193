"""A run's place in a ledger: which budgets it fits, and when it is charged."""

from types import SimpleNamespace

import pytest

from sfumato.learning.dp_sgd import Flat, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.charging import Charge
from sfumato.ledger import Budget, Ledger, LedgerError

CUT = PoissonLots(600, 60_000, max_size=800)


def plan_for(lots=CUT, **more):
    return TrainingPlan(lots, Flat(1.0), 4.0, 5, 1e-5, **more)


@pytest.fixture
def ledger(tmp_path):
    opened = Ledger(tmp_path / "privacy.db")
    opened.create("people", Budget(3.0, 1e-4))
    opened.create("blanked", Budget(3.0, 1e-4), neighbours="zero-out")
    opened.create("clients", Budget(3.0, 1e-4), unit="client")
    yield opened
    opened.close()


def test_a_run_for_others_is_refused(ledger):
    Charge(ledger, "people").check(plan_for())
    with pytest.raises(LedgerError, match="protects one client, the run one record"):
        Charge(ledger, "clients").check(plan_for())
    held = plan_for(PoissonLots(600, 60_000), records_per_unit=3, group_unit="client")
    Charge(ledger, "clients").check(held)
    with pytest.raises(LedgerError, match="protects one record, the run one client"):
        Charge(ledger, "people").check(held)
    Charge(None, "").check(held)


def test_cut_lots_are_for_the_relation_of_the_budget(ledger):
    """What they cost is stated for one; other lots' events convert."""
    with pytest.raises(LedgerError, match="accounted for add-remove neighbours, the budget of"):
        Charge(ledger, "blanked").check(plan_for())
    Charge(ledger, "blanked").check(plan_for(PoissonLots(600, 60_000)))
    Charge(ledger, "blanked").check(plan_for(neighbours="zero-out"))


def test_an_extra_delta_of_cut_lots_holds_up_to_the_budgets_epsilon(ledger):
    steps = {"neighbours": "zero-out", "accountant": "rdp"}
    assert plan_for(**steps).costs_delta
    for claimed in (None, 2.999):
        with pytest.raises(LedgerError, match="accounted up to the budget's epsilon 3"):
            Charge(ledger, "blanked").check(plan_for(claimed_epsilon=claimed, **steps))
    Charge(ledger, "blanked").check(plan_for(claimed_epsilon=3.0, **steps))


def test_a_run_that_was_killed_before_its_charge_is_not_charged_by_going_on(ledger):
    """Its loop is rehearsed first, and may yet be refused."""
    charge = Charge(ledger, "people")
    journal = SimpleNamespace(run="a run")
    charge.resume({"dataset": "people", "entry": None, "charged": True}, plan_for(), journal)
    assert charge.entry is None
    assert len(ledger.history("people")) == 1


def test_a_run_goes_on_with_the_budget_it_began_with(ledger):
    charged = {"dataset": "people", "entry": 2, "charged": True}
    for charge, stored, word in (
        (Charge(None, ""), charged, "make the trainer with that ledger"),
        (Charge(ledger, "clients"), charged, "was charged to 'people', not 'clients'"),
        (Charge(ledger, "people"), charged | {"charged": False}, "began without one"),
        (Charge(None, ""), {"dataset": "people", "entry": 2}, "make the trainer with that ledger"),
    ):
        with pytest.raises(LedgerError, match=word):
            charge.check_stored(stored)
    Charge(ledger, "people").check_stored(charged)
