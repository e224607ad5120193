"""What was given back is not run, and what turns took is not given back."""

import dataclasses
import threading

import pytest

from sfumato.core.events import GaussianEvent, compose, repeat
from sfumato.ledger import Budget, Ledger, LedgerError, Turn, WentOnElsewhere
from sfumato.ledger.entries import canonical
from sfumato.ledger.lots import paid_lots
from sfumato.ledger.replay import Replay
from sfumato.ledger.verify import Evidence, examine

STEP = GaussianEvent(400.0)
RUN = repeat(STEP, 1000)


@pytest.fixture
def census(ledger):
    ledger.create("census", Budget(3.0, 1e-5))
    return ledger


def first(lots, run="run"):
    return Turn.drawn(run, None, lots)


def kinds(ledger):
    return [entry.kind for entry in ledger.history("census")]


# --- after a refund -------------------------------------------------------------------------------


def test_what_was_given_back_cannot_be_taken(census, url):
    number = census.spend("census", RUN).sequence
    with census.spend("census", RUN) as other:
        other.stop_after(0, because="fixed plan")
    del other
    census.resume("census", number, RUN, turn=1).stop_after(10, because="released values")
    elsewhere = Ledger(url)
    for lots in (1000, 11, 10**9):
        with pytest.raises(LedgerError, match=rf"10 steps are left.*the turn counts {lots}:"):
            elsewhere.resume("census", number, RUN, turn=first(lots))
    with pytest.raises(LedgerError, match=r"refunded down to 10 steps.*take it up with a Turn"):
        elsewhere.resume("census", number, RUN, turn=2)
    taken = first(10)
    again = elsewhere.resume("census", number, RUN, turn=taken)
    with pytest.raises(LedgerError, match="pays for 10 lots of run 'run', and the turn counts 11"):
        elsewhere.resume("census", number, RUN, turn=Turn.drawn("run", taken, 11))
    again.commit("done")
    elsewhere.close()
    assert census.verify("census").ok


def test_of_nothing_left_nothing_is_taken(census):
    spending = census.spend("census", RUN)
    spending.stop_after(0, because="fixed plan")
    with pytest.raises(LedgerError, match="pays for 0 lots"):
        census.resume("census", spending.sequence, RUN, turn=first(1))
    census.resume("census", spending.sequence, RUN, turn=first(0)).commit("nothing")
    assert census.verify("census").ok


# --- before a refund ------------------------------------------------------------------------------


def test_what_a_turn_took_is_not_given_back(census):
    turn = first(900)
    spending = census.spend("census", RUN, turn=turn)
    before = census.status("census").reading
    for steps in (0, 1, 899):
        with pytest.raises(LedgerError, match=rf"{steps} steps pay for {steps} of 900"):
            spending.stop_after(steps, because="fixed plan")
    assert kinds(census) == ["open", "reserve", "resume"]
    assert census.status("census").reading == before
    spending.stop_after(900, because="fixed plan")
    assert census.status("census").reading < before
    assert census.verify("census").ok


def test_what_a_turn_took_stays_taken_though_a_later_one_counts_fewer(census):
    turn = first(900)
    number = census.spend("census", RUN, turn=turn).sequence
    spending = census.resume("census", number, RUN, turn=Turn.drawn("run", turn, 5))
    with pytest.raises(LedgerError, match="5 steps pay for 5 of 900"):
        spending.stop_after(5, because="fixed plan")


@pytest.mark.parametrize("turn", [1, first(3), first(1000)], ids=["a number", "3 lots", "all"])
def test_only_the_holder_of_the_last_turn_gives_back(census, url, turn):
    spending = census.spend("census", RUN)
    elsewhere = Ledger(url)
    holder = elsewhere.resume("census", spending.sequence, RUN, turn=turn)
    with pytest.raises(LedgerError, match=r"was taken up since \(entry 3\)"):
        spending.stop_after(0, because="fixed plan")
    lots = turn.lots if isinstance(turn, Turn) else 0
    holder.stop_after(lots, because="fixed plan")
    elsewhere.close()
    assert kinds(census) == ["open", "reserve", "resume", "refund"]
    assert census.verify("census").ok


# --- how many lots --------------------------------------------------------------------------------


def test_a_turn_counts_no_more_lots_than_are_paid_for(census):
    number = census.spend("census", RUN).sequence
    for lots in (10**9, 1001):
        with pytest.raises(LedgerError, match=f"pays for 1000 lots.*the turn counts {lots}"):
            census.resume("census", number, RUN, turn=first(lots))
    assert kinds(census) == ["open", "reserve"]
    census.resume("census", number, RUN, turn=first(1000))


def test_a_turn_gives_back_the_last_turns_lots_alone(census):
    number, turn = census.spend("census", RUN).sequence, None
    for lots in (8, 16, 11, 11, 19):  # 16 was a block of which 5 lots were not read
        turn = Turn.drawn("run", turn, lots)
        census.resume("census", number, RUN, turn=turn)
    for lots in (10, 0):
        with pytest.raises(LedgerError, match="11 were taken before turn 5"):
            census.resume("census", number, RUN, turn=Turn.drawn("run", turn, lots))
    census.resume("census", number, RUN, turn=Turn.drawn("run", turn, 11))
    assert census.verify("census").ok


def test_a_reservation_is_one_runs(census):
    number, turn = census.spend("census", RUN).sequence, first(600)
    census.resume("census", number, RUN, turn=turn)
    with pytest.raises(LedgerError, match="is that of run 'run', and cannot be taken up by run"):
        census.resume("census", number, RUN, turn=first(600, "another"))
    with pytest.raises(LedgerError, match="cannot be taken up by a turn that is a number alone"):
        census.resume("census", number, RUN, turn=1)
    census.resume("census", number, RUN, turn=Turn.drawn("run", turn, 601))


def test_numbers_alone_may_come_before_a_run(census):
    number = census.spend("census", RUN).sequence
    census.resume("census", number, RUN, turn=1)
    census.resume("census", number, RUN, turn=first(600))
    assert census.verify("census").ok


def test_a_run_may_have_finer_lots_than_its_event_has_steps(census):
    """Shuffled data: 3 epochs of 10 lots, the last one cut off."""
    epochs = repeat(STEP, 3)
    number = census.spend("census", epochs, request={"steps": 25}).sequence
    with pytest.raises(LedgerError, match="pays for 25 lots"):
        census.resume("census", number, epochs, turn=first(26))
    turn = first(8)
    spending = census.resume("census", number, epochs, turn=turn)
    spending.stop_after(1, because="fixed plan")
    with pytest.raises(LedgerError, match="pays for 8 lots"):
        census.resume("census", number, epochs, turn=Turn.drawn("run", turn, 9))
    assert census.verify("census").ok


def test_what_is_no_repeated_event_is_paid_for_as_a_whole(census):
    for event in (STEP, compose(RUN, STEP)):
        number = census.spend("census", event).sequence
        run = f"run {number}"
        census.resume("census", number, event, turn=first(30, run))
    assert census.verify("census").ok


def test_lots_of_before_are_paid_for_elsewhere(census):
    """Every turn has a charge of its own: 2 steps a lot, and lots that a crash cost."""
    event, turn = repeat(STEP, 2), None
    for lots in (7, 8, 12):  # the first 6 were charged to another ledger
        turn = Turn.drawn("run", turn, lots)
        spending = census.spend("census", event, turn=turn)
        with pytest.raises(LedgerError, match="gives back lots that count as taken"):
            spending.stop_after(0, because="fixed plan")
        spending.commit(None)
    assert census.verify("census").ok


def test_two_that_race_for_the_same_steps_do_not_both_have_them(census, url):
    """One gives 999 of 1,000 steps back, the other takes 1,000 lots: one of them is refused."""
    for _ in range(5):
        spending, outcomes = census.spend("census", RUN), list[str]()
        barrier = threading.Barrier(2)
        turn = first(1000, f"run {spending.sequence}")

        def refund(spending=spending, barrier=barrier, outcomes=outcomes):
            barrier.wait()
            try:
                spending.stop_after(1, because="fixed plan")
                outcomes.append("refund")
            except LedgerError:
                pass

        def take(number=spending.sequence, barrier=barrier, outcomes=outcomes, turn=turn):
            elsewhere = Ledger(url)
            barrier.wait()
            try:
                elsewhere.resume("census", number, RUN, turn=turn)
                outcomes.append("turn")
            except LedgerError:
                pass
            elsewhere.close()

        both = [threading.Thread(target=refund), threading.Thread(target=take)]
        for one in both:
            one.start()
        for one in both:
            one.join()
        assert len(outcomes) == 1
    assert census.verify("census").ok


def test_a_turn_of_another_is_told_before_its_lots_are_looked_at(census):
    number = census.spend("census", RUN).sequence
    census.resume("census", number, RUN, turn=first(3))
    with pytest.raises(WentOnElsewhere):
        census.resume("census", number, RUN, turn=first(10**9))


# --- ledgers of the first version -----------------------------------------------------------------


def payload(entry, **changes):
    return dataclasses.replace(entry, payload=canonical(entry.data | changes))


def judged(entries):
    """Replays entries whose hashes nobody looks at here."""
    replay = Replay("census")
    for entry in entries:
        replay.take(entry)
    return replay.remarks


def test_verification_reports_what_older_versions_wrote_and_goes_on(census, monkeypatch):
    """Only the checks of today are left out: these entries are what 0.1.0 wrote."""
    for name in ("turns.require_lots", "spending.require_lots", "spending.require_unread"):
        monkeypatch.setattr(f"sfumato.ledger.{name}", lambda *_: None)
    monkeypatch.setattr("sfumato.ledger.turns._require_no_less", lambda *_: None)
    refunded = census.spend("census", RUN)
    refunded.stop_after(1, because="fixed plan")
    census.resume("census", refunded.sequence, RUN, turn=1)  # entry 4
    census.resume("census", refunded.sequence, RUN, turn=first(1000))  # entry 5
    read = census.spend("census", RUN, turn=(turn := first(900, "b")))  # entries 6 and 7
    read.stop_after(1, because="fixed plan")  # entry 8
    fewer, number = Turn.drawn("b", turn, 900), read.sequence
    census.resume("census", number, RUN, turn=fewer)
    census.resume("census", number, RUN, turn=Turn.drawn("b", fewer, 2))  # entry 10
    beyond = census.spend("census", RUN).sequence
    census.spend("census", STEP)
    census.resume("census", beyond, RUN, turn=first(10**9, "c"))  # entry 13
    monkeypatch.undo()
    found = census.verify("census")
    assert [problem.split(" ")[:2] for problem in found.problems] == [
        ["entry", number] for number in ("4", "5", "8", "10", "13")
    ]
    assert "after its refund, for all of its steps" in found.problems[0]
    assert "pays for 1 lots" in found.problems[1]
    assert "gives back lots that count as taken: 1 steps pay for 1 of 900" in found.problems[2]
    assert "counts 2 lots, of 900" in found.problems[3]
    census.spend("census", STEP).commit("it still opens")
    assert len(census.verify("census").problems) == len(found.problems)


def test_a_remark_hides_nothing_that_comes_later(census):
    spending = census.spend("census", RUN, turn=first(900))
    spending.stop_after(900, because="fixed plan")
    spending.commit(None)
    entries = census.history("census")
    assert judged(entries) == []
    more = payload(entries[2], lots=1000)
    assert [remark[:7] for remark in judged([*entries[:2], more, *entries[3:]])] == ["entry 4"]
    row = None
    found = examine(Evidence("census", entries, row, {}, {}), None)
    assert any("cached totals are missing" in problem for problem in found.problems)


@pytest.mark.parametrize(
    ("request_", "lots"),
    [(None, 10), ({"steps": 25}, 25), ({"steps": 3}, 10), ({"steps": "25"}, 10), ([25], 10)],
)
def test_how_many_lots_a_reservation_pays_for(request_, lots):
    reservation = {"event": repeat(STEP, 10).to_dict(), "request": request_}
    assert paid_lots(reservation) == lots
    assert [paid_lots(reservation, n) for n in (0, 10)] == [0, lots]
    assert paid_lots(reservation, 3) == lots * 3 // 10
