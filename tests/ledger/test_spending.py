"""Reserve, run, commit: what is written when, what is refused, what stays charged."""

import copy
import functools
import json

import pytest

from sfumato.accounting import account
from sfumato.core.events import (
    ComposedEvent,
    EpsilonDeltaEvent,
    ExponentialEvent,
    GaussianEvent,
    GroupedEvent,
    LaplaceEvent,
    ParallelEvent,
    RandomizedResponseEvent,
    RdpCurveEvent,
    RepeatedEvent,
    ZcdpEvent,
    repeat,
)
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError


def kinds(ledger, name="census"):
    return [entry.kind for entry in ledger.history(name)]


def test_a_reservation_is_stored_before_the_release_and_the_answer_before_anyone_has_it(
    url, ledger
):
    ledger.create("census", Budget(1.0, 1e-6), unit="person", description="the 2026 census")
    with ledger.spend("census", LaplaceEvent(4.0, unit="person"), label="rows") as spending:
        assert kinds(Ledger(url)) == ["open", "reserve"]  # another process sees it
        assert Ledger(url).status("census").left == pytest.approx(0.75)
        spending.commit({"rows": 41})
        assert kinds(Ledger(url))[-1] == "commit"
    assert spending.answer == {"rows": 41}
    assert (spending.reading, spending.cost, spending.left) == (0.25, 0.25, 0.75)
    assert not spending.repeated
    assert ledger.history("census")[-1].data["answer"] == {"rows": 41}
    assert kinds(ledger) == ["open", "reserve", "commit"]


def test_thirty_tenths_pass_and_the_next_is_refused(ledger):
    ledger.create("census", Budget(3.0))
    for _ in range(30):
        with ledger.spend("census", LaplaceEvent(10.0)) as spending:
            spending.commit(1)
    assert spending.reading == 3.0
    assert spending.left == 0.0
    with pytest.raises(BudgetExceeded, match=r"it would read epsilon 3\.1, and the cap is 3"):
        ledger.spend("census", LaplaceEvent(10.0))


def test_a_refusal_writes_nothing_costs_nothing_and_blocks_nothing(ledger):
    ledger.create("census", Budget(1.0, 1e-6))
    before = ledger.head("census")
    with pytest.raises(BudgetExceeded) as refusal:
        ledger.spend("census", LaplaceEvent(0.5), key="k")
    assert refusal.value.left == 1.0
    assert refusal.value.dataset == "census"
    assert isinstance(refusal.value, ValueError)
    assert ledger.head("census") == before
    with ledger.spend("census", LaplaceEvent(1.0), key="k") as spending:  # the key was not used up
        spending.commit(0)
    assert ledger.verify("census").ok


def test_a_failed_release_stays_charged(ledger):
    ledger.create("census", Budget(1.0))
    with pytest.raises(ZeroDivisionError), ledger.spend("census", LaplaceEvent(2.0)):
        raise ZeroDivisionError("a secret: 41")
    assert kinds(ledger) == ["open", "reserve", "failed"]
    assert ledger.status("census").left == 0.5
    assert "secret" not in "".join(entry.payload for entry in ledger.history("census"))
    with pytest.raises(KeyboardInterrupt), ledger.spend("census", LaplaceEvent(4.0)):
        raise KeyboardInterrupt
    assert kinds(ledger)[-1] == "failed"


def test_leaving_without_an_answer_commits_none(ledger):
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(2.0)):
        pass
    assert kinds(ledger) == ["open", "reserve", "commit"]
    assert ledger.history("census")[-1].data["answer"] is None


def test_an_error_after_the_commit_changes_nothing(ledger):
    ledger.create("census", Budget(1.0))
    spending = ledger.spend("census", LaplaceEvent(2.0))

    def release():
        with spending:
            spending.commit(3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        release()
    assert kinds(ledger) == ["open", "reserve", "commit"]


def test_a_reservation_ends_once(ledger):
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(2.0)) as spending:
        spending.commit(3)
        with pytest.raises(LedgerError, match="has ended"):
            spending.commit(4)
    abandoned = ledger.spend("census", LaplaceEvent(4.0))
    assert [o.sequence for o in ledger.status("census").open] == [abandoned.sequence]
    assert ledger.status("census").left == 0.25


def test_a_reservation_that_has_ended_is_not_used_again(ledger):
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(2.0)) as spending:
        spending.commit(3)
    with pytest.raises(LedgerError, match=r"reservation 2 has ended.*spend anew"), spending:
        pytest.fail("the release ran again")
    assert kinds(ledger) == ["open", "reserve", "commit"]


def test_a_second_end_is_named_wherever_it_comes_from(url, ledger):
    ledger.create("census", Budget(1.0))
    spending = ledger.spend("census", LaplaceEvent(2.0))
    twin, elsewhere = copy.copy(spending), copy.copy(spending)
    elsewhere._book = Ledger(url)._book
    spending.commit(3)
    for other in (twin, elsewhere):
        with pytest.raises(LedgerError, match=r"^reservation 2 has ended"):
            other.commit(4)
    assert kinds(ledger) == ["open", "reserve", "commit"]
    assert ledger.verify("census").ok


# --- units and relations ------------------------------------------------------------------------


def test_an_event_for_another_unit_is_refused_with_the_remedy(ledger):
    ledger.create("census", Budget(3.0, 1e-6), unit="person")
    with pytest.raises(LedgerError, match=r"GroupedEvent\(event, size=k, unit='person'\)"):
        ledger.spend("census", LaplaceEvent(2.0))
    with ledger.spend("census", GroupedEvent(LaplaceEvent(4.0), 2, "person")) as spending:
        assert spending.cost == 0.5
    with pytest.raises(LedgerError, match="an account of its own"):
        ledger.spend("census", LaplaceEvent(2.0, unit="label"))
    ledger.create("labels", Budget(1.0), unit="label")
    with pytest.raises(LedgerError, match="an account of its own"):
        ledger.spend("labels", LaplaceEvent(2.0))


def test_label_privacy_stays_label_privacy_however_it_is_wrapped(ledger):
    ledger.create("census", Budget(3.0, 1e-6))
    labels = GaussianEvent(20.0, unit="label")
    for event in (
        GroupedEvent(labels, 1, "record"),
        repeat(GroupedEvent(labels, 1, "record"), 5),
        ComposedEvent((LaplaceEvent(9.0), GroupedEvent(repeat(labels, 2), 1, "record"))),
        ParallelEvent((GroupedEvent(GroupedEvent(labels, 1, "person"), 1, "record"),)),
    ):
        with pytest.raises(LedgerError, match=r"protects one label.*an account of its own"):
            ledger.spend("census", event)
    assert kinds(ledger) == ["open"]


@pytest.mark.parametrize(
    "event",
    [
        RepeatedEvent(RepeatedEvent(LaplaceEvent(1e300), 10**300), 10**300),
        GroupedEvent(ZcdpEvent(1e-5), 10**200, "record"),
        functools.reduce(lambda inside, _: RepeatedEvent(inside, 1), range(900), LaplaceEvent(9.0)),
    ],
)
def test_absurd_events_are_refused_in_plain_words(ledger, event):
    ledger.create("census", Budget(3.0, 1e-6))
    for call in (
        lambda: ledger.spend("census", event),
        lambda: ledger.preview("census", event),
        lambda: ledger.declare("census", [event], delta=1e-7),
    ):
        with pytest.raises(ValueError, match=r"cannot be accounted|too deeply|at most 100 deep"):
            call()
    assert kinds(ledger) == ["open"]


def test_relations_are_converted_by_theorems_or_refused(ledger):
    ledger.create("replaced", Budget(3.0, 1e-6), neighbours="replace-one")
    with ledger.spend("replaced", LaplaceEvent(4.0)) as spending:
        assert spending.cost == 0.5  # twice
    with ledger.spend("replaced", RandomizedResponseEvent(1.0)) as spending:
        assert spending.cost == 1.0
    ledger.create("added", Budget(3.0, 1e-6))
    with pytest.raises(ValueError, match="says nothing about add-remove"):
        ledger.spend("added", RandomizedResponseEvent(1.0))
    assert kinds(ledger, "added") == ["open"]


def test_what_was_read_off_the_data_is_never_charged(ledger):
    ledger.create("census", Budget(3.0, 1e-6))
    curve = RdpCurveEvent((2.0, 64.0), (0.01, 0.1), data_dependent=True)
    for event in (curve, repeat(curve, 3), ParallelEvent((curve, LaplaceEvent(3.0)))):
        with pytest.raises(ValueError, match="data-dependent"):
            ledger.spend("census", event)
    with pytest.raises(ValueError, match="event must be an event"):
        ledger.spend("census", 0.5)


@pytest.mark.parametrize("scale", [1e-8, 1e-308])
def test_what_costs_more_than_is_counted_is_refused_for_that(ledger, scale):
    ledger.create("both", Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded, match=r"epsilon above 4\.6e\+06, more than is counted"):
        ledger.spend("both", LaplaceEvent(scale))
    ledger.create("pure", Budget(1.0))
    with pytest.raises(BudgetExceeded, match="or an infinite one"):
        ledger.spend("pure", LaplaceEvent(scale))


def test_gaussian_noise_needs_a_delta_and_opaque_releases_their_part(ledger):
    ledger.create("pure", Budget(1.0))
    with pytest.raises(BudgetExceeded, match="needs a delta"):
        ledger.spend("pure", GaussianEvent(100.0))
    ledger.create("both", Budget(1.0, 1e-5, opaque_delta=2e-6))
    with ledger.spend("both", EpsilonDeltaEvent(0.1, 2e-6)):
        pass
    with pytest.raises(BudgetExceeded, match="opaque_delta"):
        ledger.spend("both", EpsilonDeltaEvent(0.1, 1e-9))
    assert ledger.status("both").opaque_left == 0.0
    with ledger.spend("both", GaussianEvent(100.0)):
        pass


# --- datasets -----------------------------------------------------------------------------------


def test_a_dataset_is_never_reset(ledger):
    terms = {"unit": "person", "neighbours": "replace-one", "description": "x"}
    ledger.create("census", Budget(1.0, 1e-6), **terms)
    with ledger.spend("census", LaplaceEvent(4.0, unit="person")):
        pass
    ledger.create("census", Budget(1.0, 1e-6), **terms)
    assert ledger.status("census").reading == 0.5
    for change, word in (
        ({"unit": "record"}, "unit is person, not record"),
        ({"neighbours": "add-remove"}, "neighbours"),
        ({"closed": True}, "closed"),
    ):
        with pytest.raises(LedgerError, match=word):
            ledger.create("census", Budget(1.0, 1e-6), **(terms | change))
    with pytest.raises(LedgerError, match="never reset"):
        ledger.create("census", Budget(2.0, 1e-6), **terms)
    assert ledger.names() == ["census"]
    assert "census" in ledger
    assert "other" not in ledger


def test_an_unknown_dataset_is_named_with_those_that_exist(ledger):
    ledger.create("b", Budget(1.0))
    ledger.create("a", Budget(1.0))
    for call in (
        lambda: ledger.spend("c", LaplaceEvent(1.0)),
        lambda: ledger.status("c"),
        lambda: ledger.history("c"),
        lambda: ledger.preview("c", LaplaceEvent(1.0)),
        lambda: ledger.head("c"),
        lambda: ledger.verify("c"),
        lambda: ledger.grant("c", "ann", Budget(1.0)),
    ):
        with pytest.raises(LedgerError, match=r"no dataset 'c' \(it has: 'a', 'b'\)"):
            call()


@pytest.mark.parametrize("name", ["", " x", "a\nb", "x" * 201, 7, None])
def test_bad_names_are_refused(sqlite_ledger, name):
    with pytest.raises(ValueError, match="name must be"):
        sqlite_ledger.create(name, Budget(1.0))
    assert sqlite_ledger.names() == []


@pytest.mark.parametrize(
    "arguments",
    [(0.0,), (-1.0,), (float("inf"),), (1e7,), (1.0, 1.0), (1.0, 1e-16), (1.0, 1e-6, 2e-6), ("1",)],
)
def test_bad_budgets_are_refused(arguments):
    with pytest.raises(ValueError, match="must be"):
        Budget(*arguments)


def test_names_and_answers_of_any_script_survive(ledger):
    ledger.create("éà – 国勢調査 'x\"", Budget(1.0))
    with ledger.spend(
        "éà – 国勢調査 'x\"", LaplaceEvent(2.0), analyst="Zoë", key="ключ"
    ) as spending:
        spending.commit("☃\x00")
    entry = ledger.history("éà – 国勢調査 'x\"")[-1]
    assert entry.data["answer"] == "☃\x00"
    assert ledger.verify("éà – 国勢調査 'x\"").ok


# --- looking ------------------------------------------------------------------------------------


def test_a_preview_says_what_spending_then_does(ledger):
    ledger.create("census", Budget(1.0, 1e-6))
    events = [LaplaceEvent(2.0), LaplaceEvent(1.0), GaussianEvent(9.0), LaplaceEvent(50.0)]
    seen = ledger.preview("census", events)
    assert [one.passes for one in seen.events] == [True, False, False, True]
    assert not seen.passes
    assert ledger.status("census").reading == 0.0  # nothing was spent
    for event, one in zip(events, seen.events, strict=True):
        if one.passes:
            with ledger.spend("census", event) as spending:
                assert (spending.cost, spending.reading) == (one.cost, one.reading)
                assert spending.left == one.left
        else:
            with pytest.raises(BudgetExceeded) as refusal:
                ledger.spend("census", event)
            assert str(refusal.value) == one.reason
    data = seen.to_dict()
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(data)
    json.dumps(data, allow_nan=False)
    assert ledger.preview("census", ComposedEvent()).passes


def test_the_status_has_cap_reading_rest_and_the_declared_value(ledger):
    ledger.create("census", Budget(3.0, 1e-6), description="for tests")
    assert ledger.status("census").declared is None
    for _ in range(50):
        with ledger.spend("census", GaussianEvent(30.0)):
            pass
    status = ledger.status("census")
    assert status.guarantee.epsilon == 3.0
    assert 0 < status.declared.epsilon < status.reading < 3.0
    assert (status.entries, status.releases, status.open) == (101, 50, ())
    data = status.to_dict()
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(data)
    assert "odometer" in data["reading_meaning"]
    assert "declared in advance" in data["declared"]["meaning"]
    json.dumps(data, allow_nan=False)
    assert "epsilon 3, delta 1e-06" in str(status)
    assert ledger.status("census", declared=False).declared is None


def test_the_declared_value_is_the_smaller_of_two_accounts(ledger):
    ledger.create("census", Budget(100.0, 1e-6))
    event = repeat(ExponentialEvent(0.1), 200)
    with ledger.spend("census", event):
        pass
    by_pld, by_rdp = (account(event, 1e-6, accountant=name).epsilon for name in ("pld", "rdp"))
    assert ledger.status("census").declared.epsilon == min(by_pld, by_rdp)
    assert by_rdp < by_pld


def test_a_status_does_not_fail_with_an_accountant(ledger, monkeypatch):
    ledger.create("census", Budget(1.0, 1e-6))
    with ledger.spend("census", LaplaceEvent(2.0)):
        pass

    def fails(*_, **__):
        raise FloatingPointError("no such luck")

    monkeypatch.setattr("sfumato.ledger.report.account", fails)
    status = ledger.status("census")
    assert status.declared is None
    assert status.left == 0.5


def test_history_and_head_are_plain_records(ledger):
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(2.0), analyst="ann", label="rows", request={"q": 1}):
        pass
    entry = ledger.history("census")[1]
    assert entry.data["analyst"] == "ann"
    assert entry.data["request"] == {"q": 1}
    assert entry.at.startswith("2026-01-15T12:00:00")
    json.dumps(entry.to_dict())
    head = ledger.head("census")
    assert (head.sequence, head.hash) == (3, ledger.history("census")[-1].hash)
