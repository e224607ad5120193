"""Caps: analysts and periods inside a dataset's budget."""

from datetime import UTC, datetime, timedelta

import pytest

from sfumato.core.events import EpsilonDeltaEvent, GaussianEvent, LaplaceEvent, repeat
from sfumato.ledger import Budget, BudgetExceeded, LedgerError

TENTH = LaplaceEvent(10.0)


@pytest.fixture
def census(ledger):
    ledger.create("census", Budget(1.0, 1e-6))
    return ledger


def spend(ledger, epsilon=0.1, analyst="", name="census"):
    with ledger.spend(name, LaplaceEvent(1 / epsilon), analyst=analyst) as spending:
        return spending


def refused(ledger, epsilon=0.1, analyst="", by="cap"):
    with pytest.raises(BudgetExceeded, match=by):
        spend(ledger, epsilon, analyst)
    return True


def test_an_analyst_stops_at_the_cap_and_others_go_on(census):
    census.grant("census", "ann", Budget(0.3))
    for _ in range(3):
        spending = spend(census, analyst="ann")
    assert spending.left == 0.0  # the tightest scope's
    assert refused(census, analyst="ann", by="the cap of 'ann'")
    assert spend(census, analyst="bob").left == pytest.approx(0.6)
    assert spend(census).left == pytest.approx(0.5)
    status = census.status("census", "ann")
    assert (status.left, status.caps[0].reading) == (0.0, 0.3)
    assert census.status("census").left == pytest.approx(0.5)
    assert census.verify("census").ok


def test_the_dataset_stands_above_all_caps(census):
    for who in ("ann", "bob", "eve"):
        census.grant("census", who, Budget(0.5))
    spend(census, 0.5, "ann")
    spend(census, 0.4, "bob")
    assert refused(census, 0.2, "eve", by="the dataset")
    assert spend(census, 0.1, "eve").left == 0.0


def test_a_new_grant_replaces_the_old_and_keeps_what_was_spent(census):
    census.grant("census", "ann", Budget(0.2))
    spend(census, 0.2, "ann")
    assert refused(census, 0.1, "ann")
    census.grant("census", "ann", Budget(0.5))
    census.grant("census", "ann", Budget(0.5))  # the same again: nothing to write
    assert [entry.kind for entry in census.history("census")].count("cap") == 2
    assert census.status("census", "ann").caps[0].reading == 0.2
    spend(census, 0.3, "ann")
    assert refused(census, 0.1, "ann")
    census.grant("census", "ann", Budget(0.1))  # below what was spent: nothing is left
    assert census.status("census", "ann").left == 0.0
    assert census.verify("census").ok


def test_a_closed_dataset_is_for_those_with_a_cap(ledger, clock):
    ledger.create("census", Budget(1.0), closed=True)
    ledger.allot("census", Budget(1.0))  # for everyone: opens it to no one
    for who in ("", "ann"):
        assert refused(ledger, analyst=who, by="is closed")
    ledger.grant("census", "ann", Budget(0.2))
    spend(ledger, analyst="ann")
    assert refused(ledger, analyst="bob", by="'bob' has no cap")
    ledger.allot("census", Budget(0.2), analyst="bob", ends=clock() + timedelta(hours=1))
    spend(ledger, analyst="bob")
    clock.forward(hours=2)
    assert refused(ledger, analyst="bob", by="'bob' has no cap there now")
    assert ledger.verify("census").ok


def test_what_is_left_in_a_closed_dataset_is_for_those_with_a_cap(ledger):
    ledger.create("census", Budget(1.0), closed=True)
    ledger.grant("census", "ann", Budget(0.2))
    for who in ("", "bob"):
        seen = ledger.preview("census", [TENTH, TENTH], analyst=who)
        assert not seen.passes
        assert seen.left == 0.0
        assert [(one.passes, one.left) for one in seen.events] == [(False, 0.0)] * 2
        assert "is closed" in seen.events[0].reason
        assert ledger.status("census", who).left == 0.0
    assert ledger.preview("census", TENTH, analyst="ann").passes
    assert ledger.status("census", "ann").left == 0.2
    assert ledger.status("census").own.left == 1.0


def test_a_cap_lowered_below_its_delta_has_nothing_left(census):
    census.grant("census", "ann", Budget(0.5, 4e-7))
    with census.spend("census", EpsilonDeltaEvent(0.01, 2e-7), analyst="ann"):
        pass
    census.grant("census", "ann", Budget(0.5, 1e-7))
    assert census.status("census", "ann").left == 0.0
    assert refused(census, 0.01, "ann")


def test_a_closed_dataset_stays_closed_to_a_process_that_knows_it(ledger):
    ledger.create("census", Budget(1.0), closed=True)
    ledger.identify("census", "f", "people.csv")
    assert refused(ledger, analyst="ann", by="is closed")


def test_a_period_starts_and_ends(census, clock):
    start = clock() + timedelta(days=1)
    census.allot(
        "census", Budget(0.1), starts=start, ends=start + timedelta(days=1), label="launch"
    )
    spend(census)  # before it starts
    clock.time = start
    spend(census)
    assert refused(census, by=r"the cap of everyone from 2026-01-16T12:00:00Z until .* \(launch\)")
    clock.time = start + timedelta(days=1)  # the end is not part of it
    spend(census)
    with pytest.raises(LedgerError, match="ends must be after starts"):
        census.allot("census", Budget(0.1), starts=start, ends=start)


def test_a_schedule_by_the_month(census, clock):
    clock.time = datetime(2026, 1, 31, 23, tzinfo=UTC)
    caps = census.schedule(
        "census", Budget(0.2), first=datetime(2026, 1, 31), every="month", periods=3
    )
    assert [cap.starts[:10] for cap in caps] == ["2026-01-31", "2026-02-28", "2026-03-31"]
    spend(census, 0.2)
    assert refused(census)
    clock.time = datetime(2026, 2, 28, tzinfo=UTC)
    spend(census, 0.1)
    clock.time = datetime(2026, 3, 31, tzinfo=UTC)
    spend(census, 0.2)
    assert refused(census)  # what February left is gone
    clock.time = datetime(2026, 4, 30, tzinfo=UTC)
    spend(census, 0.5)  # the schedule is over, the dataset's cap is not
    assert refused(census, 0.1, by="the dataset")
    assert census.verify("census").ok


def test_a_schedule_that_carries_over(census, clock):
    first = clock.time
    census.schedule(
        "census", Budget(0.1), first=first, every="week", periods=4, carry_over=True, analyst="ann"
    )
    clock.time = first + timedelta(weeks=2)
    spend(census, 0.2, "ann")  # two quiet weeks and a bit of this one
    assert refused(census, 0.2, "ann")
    spend(census, 0.1, "ann")
    assert refused(census, 0.01, "ann")
    spend(census, 0.1, "bob")
    clock.time = first + timedelta(weeks=3)
    spend(census, 0.1, "ann")
    assert refused(census, 0.01, "ann")
    assert census.verify("census").ok


def test_seven_carried_tenths_are_exactly_seven_tenths(census, clock):
    census.schedule(
        "census",
        Budget(0.1),
        first=clock.time,
        every=timedelta(hours=1),
        periods=7,
        carry_over=True,
    )
    clock.forward(hours=6)
    for _ in range(7):
        spend(census)
    assert refused(census)


@pytest.mark.parametrize(
    ("change", "word"),
    [({"every": "year"}, "every"), ({"every": timedelta()}, "every"), ({"periods": 0}, "periods")],
)
def test_bad_schedules_are_refused(census, change, word):
    terms = {"first": datetime(2026, 1, 1), "every": "day", "periods": 2} | change
    with pytest.raises(ValueError, match=word):
        census.schedule("census", Budget(0.1), **terms)
    assert census.status("census").entries == 1


def test_a_cap_counts_from_when_it_was_made(census):
    spend(census, 0.5, "ann")
    census.grant("census", "ann", Budget(0.2))
    spend(census, 0.2, "ann")


def test_a_cap_has_a_delta_of_its_own(census):
    census.grant("census", "ann", Budget(0.5))
    with pytest.raises(BudgetExceeded, match="needs a delta"):
        census.spend("census", GaussianEvent(100.0), analyst="ann")
    census.grant("census", "bob", Budget(0.5, 1e-7))
    with census.spend("census", GaussianEvent(100.0), analyst="bob") as spending:
        assert 0 < spending.left < 0.5


def test_previews_see_the_caps(census):
    census.grant("census", "ann", Budget(0.15))
    assert [one.passes for one in census.preview("census", [TENTH, TENTH]).events] == [True, True]
    seen = census.preview("census", [TENTH, TENTH], analyst="ann")
    assert [one.passes for one in seen.events] == [True, False]
    assert seen.left == pytest.approx(0.05)


def february(census, clock, analyst=None):
    """A reservation of January, and a cap on February that it cannot fit."""
    clock.time = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    starts, ends = datetime(2026, 2, 1), datetime(2026, 3, 1)
    census.allot("census", Budget(0.1), analyst=analyst, starts=starts, ends=ends)
    return census.spend("census", repeat(LaplaceEvent(20.0), 10), analyst="ann")


def caps_of(ledger, analyst=""):
    return ledger.status("census", analyst).caps


def test_a_release_counts_in_the_period_in_which_it_is_reserved(census, clock):
    first = february(census, clock)
    clock.time = datetime(2026, 2, 10, tzinfo=UTC)
    again = census.resume("census", first.sequence, first.event, turn=1)
    (cap,) = caps_of(census)
    assert (cap.active, cap.reading, cap.left) == (True, 0.0, pytest.approx(0.1))
    again.commit([0] * 10)
    spend(census, 0.1)  # February's own, in full
    assert refused(census, 0.01)
    assert caps_of(census)[0].reading == pytest.approx(0.1)
    assert census.status("census").reading == pytest.approx(0.6)  # the dataset counts all of it
    assert census.verify("census").ok


def test_the_status_lists_what_runs_under_a_cap_and_is_not_counted_in_it(census, clock):
    open_one = february(census, clock)
    assert caps_of(census)[0].reserved_before == ()  # February has not begun
    clock.time = datetime(2026, 2, 10, tzinfo=UTC)
    spend(census, 0.05, "bob")
    census.spend("census", LaplaceEvent(40.0))  # open, but counted
    (cap,) = caps_of(census)
    assert cap.reserved_before == (open_one.sequence,)
    assert cap.to_dict()["reserved_before"] == [open_one.sequence]
    assert f"entries {open_one.sequence} were reserved before it" in str(census.status("census"))
    open_one.commit(0)  # in February: it stays listed
    assert caps_of(census)[0].reserved_before == (open_one.sequence,)


def test_what_ended_before_the_period_or_is_someone_elses_is_not_listed(census, clock):
    mine = february(census, clock, analyst="ann")
    others = census.spend("census", TENTH, analyst="bob")
    spend(census, 0.05, "ann")  # ended in January
    clock.time = datetime(2026, 2, 10, tzinfo=UTC)
    assert others.sequence not in caps_of(census)[0].reserved_before
    assert caps_of(census)[0].reserved_before == (mine.sequence,)
    census.grant("census", "ann", Budget(0.9))  # a grant is for good: no period
    census.allot("census", Budget(0.2), label="from now on")
    found = {cap.name: cap.reserved_before for cap in caps_of(census)}
    assert found["the cap of 'ann'"] == ()
    assert found["the cap of everyone (from now on)"] == (mine.sequence, others.sequence)
