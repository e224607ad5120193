"""Taking up a reservation that an earlier process left open: free, and each turn once."""

import dataclasses
import json
import sqlite3

import pytest

from sfumato.core.events import GaussianEvent, repeat
from sfumato.ledger import Budget, Ledger, LedgerError
from sfumato.ledger.entries import GENESIS, canonical, entry_hash, mark_of
from sfumato.ledger.replay import Replay, RuleBroken

STEP = GaussianEvent(40.0)


@pytest.fixture
def opened(ledger):
    ledger.create("census", Budget(3.0, 1e-5))
    ledger.create("other", Budget(3.0, 1e-5))
    return ledger


def kinds(ledger):
    return [entry.kind for entry in ledger.history("census")]


def test_resuming_charges_nothing_and_the_answer_is_committed_once(opened):
    first = opened.spend("census", STEP, request={"steps": 3}, label="run")
    status = opened.status("census")
    again = opened.resume("census", first.sequence, STEP, turn=1)
    assert (again.sequence, again.cost, again.repeated) == (first.sequence, 0.0, False)
    assert opened.status("census").reading == status.reading
    assert opened.status("census").left == status.left
    opened.resume("census", first.sequence, STEP, turn=2).commit("done")
    assert kinds(opened) == ["open", "reserve", "resume", "resume", "commit"]
    assert opened.verify("census").ok
    for late in (first, again):
        with pytest.raises(LedgerError):
            late.commit("a second answer")
    assert kinds(opened).count("commit") == 1


def test_each_turn_is_accepted_once_also_by_another_process(opened, url):
    number = opened.spend("census", STEP).sequence
    opened.resume("census", number, STEP, turn=1)
    elsewhere = Ledger(url)
    with pytest.raises(LedgerError, match=r"taken up before \(turn 1\).*copy of a run"):
        elsewhere.resume("census", number, STEP, turn=1)
    elsewhere.resume("census", number, STEP, turn=2)
    elsewhere.close()
    assert kinds(opened).count("resume") == 2
    other = opened.spend("census", STEP).sequence
    opened.resume("census", other, STEP, turn=1)  # turns are each reservation's own


def test_only_an_open_reservation_of_the_same_event_is_taken_up(opened):
    done, failed = opened.spend("census", STEP), opened.spend("census", STEP)
    done.commit(1)
    with pytest.raises(ZeroDivisionError), failed:
        raise ZeroDivisionError
    held = opened.spend("census", STEP).sequence
    before = kinds(opened)
    for ended in (done, failed):
        with pytest.raises(LedgerError, match=r"has ended.*older copy"):
            opened.resume("census", ended.sequence, STEP, turn=1)
    for name, number, event in (
        ("census", held, GaussianEvent(41.0)),
        ("census", held, repeat(STEP, 2)),
        ("census", 1, STEP),
        ("census", 99, STEP),
        ("other", held, STEP),
    ):
        with pytest.raises(LedgerError, match="is no reservation of this event"):
            opened.resume(name, number, event, turn=1)
    for turn in (0, -1, 1.5):
        with pytest.raises(ValueError, match="turn must be"):
            opened.resume("census", held, STEP, turn=turn)
    assert kinds(opened) == before


def test_a_draw_from_a_plan_is_taken_up(opened):
    plan = opened.declare("census", [STEP], delta=1e-6)
    number = opened.spend("census", STEP, plan=plan).sequence
    left = opened.status("census").left
    opened.resume("census", number, STEP, turn=1).commit(2)
    assert opened.status("census").left == left
    assert opened.verify("census").ok


def test_what_was_taken_up_shows_in_every_report(opened):
    number = opened.spend("census", STEP).sequence
    readings = opened.readings("census")
    opened.resume("census", number, STEP, turn=1)
    assert len(opened.readings("census")) == len(readings)
    text = json.dumps([entry.to_dict() for entry in opened.history("census")])
    assert json.loads(text)[-1]["payload"]["turn"] == 1


# --- verification ---------------------------------------------------------------------------------


def rewrite(path, change):
    """Someone with all rights changes the entries, then recomputes every hash and total."""
    connection = sqlite3.connect(path)
    for verb in ("update", "delete"):
        connection.execute(f"DROP TRIGGER ledger_entries_no_{verb}")
    rows = connection.execute(
        "SELECT kind, payload FROM ledger_entries WHERE dataset = 'census' ORDER BY sequence"
    ).fetchall()
    entries = change([(kind, json.loads(payload)) for kind, payload in rows])
    connection.execute("DELETE FROM ledger_entries WHERE dataset = 'census'")
    previous = GENESIS
    for sequence, (kind, data) in enumerate(entries, 1):
        written = canonical(data)
        hashed = entry_hash("census", sequence, kind, written, previous)
        connection.execute(
            "INSERT INTO ledger_entries VALUES ('census', ?, ?, ?, ?, ?, ?)",
            (sequence, kind, mark_of(kind, data), written, previous, hashed),
        )
        previous = hashed
    connection.execute(
        "UPDATE ledger_datasets SET head = ?, sequence = ? WHERE name = 'census'",
        (previous, len(entries)),
    )
    connection.commit()
    connection.close()


@pytest.fixture
def resumed(sqlite_ledger):
    sqlite_ledger.create("census", Budget(3.0, 1e-5))
    number = sqlite_ledger.spend("census", STEP).sequence
    sqlite_ledger.resume("census", number, STEP, turn=1)
    sqlite_ledger.resume("census", number, STEP, turn=2).commit("done")
    assert sqlite_ledger.verify("census").ok
    sqlite_ledger.close()
    return sqlite_ledger


@pytest.mark.parametrize("field", ["'$.turn'", "'$.reserve'"])
def test_a_tampered_resume_is_found(tmp_path, resumed, field):
    connection = sqlite3.connect(tmp_path / "privacy.db")
    connection.execute("DROP TRIGGER ledger_entries_no_update")
    connection.execute(
        f"UPDATE ledger_entries SET payload = json_set(payload, {field}, 7) WHERE sequence = 3"
    )
    connection.commit()
    connection.close()
    found = resumed.verify("census")
    assert any("entry 3 " in problem for problem in found.problems), found.problems


def with_turn(turn, at=2):
    def change(entries):
        entries[at][1]["turn"] = turn
        return entries

    return change


def after_the_end(entries):
    """The second resumption, moved behind the commit."""
    return [*entries[:3], entries[4], entries[3]]


def of_nothing(entries):
    entries[2][1]["reserve"] = 1
    return entries


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (with_turn(0), "entry 3 takes up reservation 2"),
        (with_turn("1"), "entry 3 "),
        (with_turn(True), "entry 3 "),
        (with_turn(1.5), "entry 3 "),
        (after_the_end, "entry 5 takes up reservation 2, which is not open"),
        (of_nothing, "entry 3 takes up reservation 1, which is not open"),
    ],
    ids=["turn 0", "a word", "a truth", "half a turn", "after the end", "of nothing"],
)
def test_a_resume_that_breaks_the_rules_is_found_though_all_hashes_fit(
    tmp_path, resumed, change, word
):
    head = resumed.head("census")
    resumed.close()
    rewrite(tmp_path / "privacy.db", change)
    found = Ledger(tmp_path / "privacy.db").verify("census")
    assert any(word in problem for problem in found.problems), found.problems
    assert not Ledger(tmp_path / "privacy.db").verify("census", head).ok


def test_the_same_turn_twice_cannot_be_written_and_breaks_the_rules(tmp_path, resumed):
    entries = resumed.history("census")
    resumed.close()
    with pytest.raises(sqlite3.IntegrityError):
        rewrite(tmp_path / "privacy.db", with_turn(2))
    twice = dataclasses.replace(entries[3], payload=entries[2].payload)
    replay = Replay("census")
    for entry in entries[:3]:
        replay.take(entry)
    with pytest.raises(RuleBroken, match="entry 4 takes up reservation 2 by turn 1"):
        replay.take(twice)
