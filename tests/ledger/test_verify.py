"""Verification: every kind of tampering shows, and names its entry."""

import dataclasses
import json
import sqlite3
from datetime import datetime

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from sfumato.core.events import GaussianEvent, LaplaceEvent, repeat
from sfumato.ledger import Budget, Head, Ledger, LedgerError
from sfumato.ledger.entries import GENESIS, canonical, entry_hash, mark_of
from sfumato.ledger.gate import Gate, choose_orders
from sfumato.ledger.terms import Cap, Terms
from sfumato.ledger.verify import check_chain


def fill(ledger):
    """One of everything that a ledger writes."""
    ledger.create("census", Budget(3.0, 1e-5))
    ledger.create("other", Budget(1.0))
    ledger.grant("census", "ann", Budget(1.0, 1e-6))
    for number in range(2):
        with ledger.spend(
            "census", LaplaceEvent(10.0), key=f"k{number}", analyst="ann"
        ) as spending:
            spending.commit({"count": number})
    plan = ledger.declare("census", [GaussianEvent(40.0)] * 2, delta=1e-6)
    with ledger.spend("census", GaussianEvent(40.0), plan=plan):
        pass
    with ledger.spend("census", repeat(GaussianEvent(40.0), 5)) as spending:
        spending.stop_after(2, "fixed plan")
    with pytest.raises(ZeroDivisionError), ledger.spend("census", LaplaceEvent(20.0)):
        raise ZeroDivisionError
    ledger.spend("census", LaplaceEvent(30.0))
    ledger.grant("census", "ann", Budget(1.5, 1e-6))
    return ledger


@pytest.fixture
def filled(ledger):
    return fill(ledger)


def unguarded(url):
    """A connection of someone with all rights, who first removes the triggers."""
    if url.startswith("postgresql"):
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        drop = ["DROP TRIGGER ledger_entries_no_change ON ledger_entries"]
    else:
        engine = create_engine(url)
        drop = [f"DROP TRIGGER ledger_entries_no_{verb}" for verb in ("update", "delete")]
    with engine.begin() as connection:
        for statement in drop:
            connection.execute(text(statement))
    return engine


def run(engine, *statements):
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(text(statement))
    engine.dispose()


def test_an_untouched_ledger_verifies(filled):
    head = filled.head("census")
    for kept in (None, head, str(head), head.hash, f"{head.hash}\n"):
        found = filled.verify("census", kept)
        assert found.ok, found.problems
        assert found.entries == head.sequence
    kinds = {entry.kind for entry in filled.history("census")}
    assert kinds == {"open", "cap", "reserve", "commit", "failed", "refund", "plan"}
    assert filled.verify("other").ok
    json.dumps(found.to_dict())


@pytest.mark.parametrize(
    "verb", ["UPDATE ledger_entries SET kind = 'x'", "DELETE FROM ledger_entries"]
)
def test_the_database_itself_refuses_to_change_entries(url, filled, verb):
    address = url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(address)
    with pytest.raises(DBAPIError, match="never changed or deleted"):
        run(engine, verb)
    engine.dispose()
    assert filled.verify("census").ok


def test_any_changed_byte_of_any_entry_is_found(sqlite_ledger):
    entries = fill(sqlite_ledger).history("census")
    assert check_chain("census", entries) == []
    for place, entry in enumerate(entries):
        for column in ("kind", "payload", "previous", "hash", "mark"):
            value = getattr(entry, column) or ""
            for position in range(len(value)):
                flipped = chr(ord(value[position]) ^ 1)
                changed = value[:position] + flipped + value[position + 1 :]
                other = dataclasses.replace(entry, **{column: changed})
                problems = check_chain("census", [*entries[:place], other, *entries[place + 1 :]])
                assert problems, (column, position)
                assert f"entry {place + 1} " in problems[0] or f"entry {place + 2} " in problems[0]


def test_dropped_and_swapped_entries_are_found(sqlite_ledger):
    entries = fill(sqlite_ledger).history("census")
    for place in range(len(entries) - 1):
        (problem,) = check_chain("census", entries[:place] + entries[place + 1 :])
        assert f"entry {place + 1} is missing" in problem
    for place in range(1, len(entries) - 1):
        one, two = entries[place], entries[place + 1]
        swapped = [
            dataclasses.replace(two, sequence=one.sequence),
            dataclasses.replace(one, sequence=two.sequence),
        ]
        assert check_chain("census", entries[:place] + swapped + entries[place + 2 :])
    assert check_chain("census", entries[1:])
    assert check_chain("census", [])


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        (
            "UPDATE ledger_entries SET payload = replace(payload, '10.0', '9.0') "
            "WHERE sequence = 3",
            "entry 3 was changed",
        ),
        (
            "DELETE FROM ledger_entries WHERE sequence = 4 AND dataset = 'census'",
            "entry 4 is missing",
        ),
        ("UPDATE ledger_entries SET mark = 'key:z' WHERE sequence = 3", "entry 3 is not what"),
        ("UPDATE ledger_datasets SET spent = '[0,0,0,0,0,0,0,0]'", "cached total"),
        ("UPDATE ledger_datasets SET sequence = 2", "cached number"),
        ("UPDATE ledger_datasets SET caps = 0", "cached number of caps"),
        ("UPDATE ledger_datasets SET terms = replace(terms, '3.0', '9.0')", "cached terms"),
        ("UPDATE ledger_caps SET spent = '[0,0,0,0,0,0,0,0]'", "cached cap of entry"),
        ("DELETE FROM ledger_caps", "cached cap of entry"),
        ("UPDATE ledger_plans SET drawn = 0", "cached plan of entry"),
        ("UPDATE ledger_datasets SET spent = 'oops'", "cached totals of entry 16 cannot be read"),
        ("UPDATE ledger_datasets SET spent = '7'", "cannot be read"),
        ("UPDATE ledger_datasets SET terms = '[]'", "cannot be read"),
        (
            "DELETE FROM ledger_datasets WHERE name = 'census'",
            "someone removed the row of 'census', and nothing can be spent until it is restored",
        ),
        ("DELETE FROM ledger_entries WHERE dataset = 'census'", "there are no entries"),
    ],
)
def test_tampering_with_the_tables_is_found(url, filled, statement, word):
    run(unguarded(url), statement)
    filled.close()
    found = filled.verify("census")
    assert not found.ok
    assert any(word in problem for problem in found.problems), found.problems


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        (
            "UPDATE ledger_entries SET payload = CAST(payload AS BLOB) WHERE sequence = 2",
            "entry 2 was changed: it holds bytes instead of text",
        ),
        (
            "UPDATE ledger_entries SET payload = CAST(x'ff' AS TEXT) WHERE sequence = 2",
            "entry 2 was changed",
        ),
        ("UPDATE ledger_datasets SET spent = CAST(x'ff' AS TEXT)", "cannot be read"),
        ("UPDATE ledger_datasets SET spent = x'ff'", "cannot be read"),
    ],
)
def test_what_only_sqlite_lets_in_is_found(sqlite_url, sqlite_ledger, statement, word):
    fill(sqlite_ledger)
    run(unguarded(sqlite_url), statement)
    found = Ledger(sqlite_url).verify("census")
    assert any(word in problem for problem in found.problems), found.problems


def test_entries_without_their_totals_are_not_opened_again(url, filled):
    run(unguarded(url), "DELETE FROM ledger_datasets WHERE name = 'census'")
    for call in (
        lambda: Ledger(url).create("census", Budget(3.0, 1e-5)),
        lambda: Ledger(url).spend("census", LaplaceEvent(10.0)),
    ):
        with pytest.raises(LedgerError, match="has entries but no totals: someone removed its row"):
            call()


def rewrite(path, change):
    """What a clever administrator does: change a payload, then recompute every hash after it.

    ``change`` returns another kind for the entry, or None.
    """
    connection = sqlite3.connect(path)
    for verb in ("update", "delete"):
        connection.execute(f"DROP TRIGGER ledger_entries_no_{verb}")
    rows = connection.execute(
        "SELECT sequence, kind, payload FROM ledger_entries WHERE dataset = 'census' "
        "ORDER BY sequence"
    ).fetchall()
    connection.execute("DELETE FROM ledger_entries WHERE dataset = 'census'")
    previous = GENESIS
    for sequence, kind, payload in rows:
        data = json.loads(payload)
        kind = change(sequence, kind, data) or kind
        written = canonical(data)
        hashed = entry_hash("census", sequence, kind, written, previous)
        connection.execute(
            "INSERT INTO ledger_entries VALUES ('census', ?, ?, ?, ?, ?, ?)",
            (sequence, kind, mark_of(kind, data), written, previous, hashed),
        )
        previous = hashed
    connection.execute("UPDATE ledger_datasets SET head = ? WHERE name = 'census'", (previous,))
    connection.commit()
    connection.close()


def lower_charge(sequence, kind, data):
    if kind == "reserve" and any(data["charge"]):
        data["charge"] = [value // 2 for value in data["charge"]]


def forget_cap(sequence, kind, data):
    if kind == "reserve" and data["analyst"] == "ann":
        data["caps"] = []


def raise_limits(sequence, kind, data):
    if kind == "open":
        data["limits"] = [2 * value for value in data["limits"]]


def refund_all(sequence, kind, data):
    if kind == "refund":
        data["back"] = [2 * value for value in data["back"]]


def cheapen_plan(sequence, kind, data):
    if kind == "plan":
        data["epsilon"] /= 2


def end_another(sequence, kind, data):
    if kind == "failed":
        data["reserve"] = 1


def change_question(sequence, kind, data):
    if kind == "reserve":
        data["request"] = "another"


def forget_when(sequence, kind, data):
    if kind == "failed":
        data["at"] = None


def never_say_when(sequence, kind, data):
    if kind == "open":
        del data["at"]


def write_a_word_for_an_event(sequence, kind, data):
    if kind == "plan":
        data["events"] = ["laplace"]


def shrink_budget(sequence, kind, data):
    """Consistent in itself: what comes after it is too much."""
    if kind == "open":
        terms = Terms.from_payload("census", data)
        small = Budget(0.05, 1e-6)
        gate = Gate.of(small, terms.gate.orders)
        data |= dataclasses.replace(terms, budget=small, gate=gate).to_payload()


def shrink_grant(sequence, kind, data):
    """The first grant is of 0.15, and two releases of 0.1 each are under it."""
    if kind == "cap" and data["budget"]["epsilon"] == 1.0:
        orders = choose_orders(Budget(3.0, 1e-5))  # the dataset's
        cap = Cap.from_payload(sequence, data, orders)
        small = Budget(0.15, 1e-6)
        data |= dataclasses.replace(cap, budget=small, gate=Gate.of(small, orders)).to_payload()


def close(sequence, kind, data):
    if kind == "open":
        data["closed"] = True


def replace_anothers_grant(sequence, kind, data):
    if kind == "cap" and data["replaces"] is not None:
        data["analyst"] = "bob"


def plan_something_cheaper(sequence, kind, data):
    if kind == "plan":
        data["events"] = [GaussianEvent(41.0).to_dict()] * 2


def plan_for_another(sequence, kind, data):
    if kind == "plan":
        data["analyst"] = "bob"


def refund_what_is_over(sequence, kind, data):
    if kind == "refund":
        data["reserve"] = 3


def refund_more_steps(sequence, kind, data):
    if kind == "refund":
        data["steps"] = 6


def refund_without_reason(sequence, kind, data):
    if kind == "refund":
        data["because"] = "regret"


def begin_twice(sequence, kind, data):
    return "open" if kind == "plan" else None


def begin_otherwise(sequence, kind, data):
    return "cap" if kind == "open" else None


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (shrink_budget, "exceeds"),
        (shrink_grant, "exceeds the cap of 'ann'"),
        (close, "spent from a closed dataset without a cap"),
        (replace_anothers_grant, "not the same analyst's grant"),
        (plan_something_cheaper, "has next"),
        (plan_for_another, "is not drawn from plan"),
        (refund_what_is_over, "which cannot be refunded"),
        (refund_more_steps, "refunds steps that reservation"),
        (refund_without_reason, "does not refund reservation"),
        (begin_twice, "opens the dataset, or should"),
        (begin_otherwise, "opens the dataset, or should"),
        (forget_when, "does not hold what it should (fromisoformat: argument must be str)"),
        (never_say_when, "does not hold what it should ('at')"),
        (write_a_word_for_an_event, "does not hold what it should"),
        (lower_charge, "less than its cost"),
        (forget_cap, "not counted for the caps"),
        (raise_limits, "limits above those of its budget"),
        (refund_all, "gives back more"),
        (cheapen_plan, "for a plan that costs"),
        (end_another, "which is not open"),
        (change_question, "digest of another request"),
    ],
)
def test_rewriting_with_new_hashes_still_breaks_the_rules(sqlite_url, sqlite_ledger, change, word):
    fill(sqlite_ledger)
    rewrite(sqlite_url.removeprefix("sqlite:///"), change)
    sqlite_ledger.close()
    (problem, *_) = sqlite_ledger.verify("census").problems
    assert problem.startswith("entry ")
    assert word in problem


def test_a_draw_that_no_cap_counted_is_found(sqlite_url, sqlite_ledger):
    """The plan was declared by no one in particular, and a cap for everyone came after it."""
    sqlite_ledger.create("census", Budget(3.0, 1e-5))
    plan = sqlite_ledger.declare("census", [LaplaceEvent(2.0)], delta=1e-6)
    cap = sqlite_ledger.allot("census", Budget(0.1), ends=datetime(2026, 1, 1))  # it is over
    assert cap.number == 3
    with sqlite_ledger.spend("census", LaplaceEvent(2.0), plan=plan):
        pass
    assert sqlite_ledger.verify("census").ok

    def extend(sequence, kind, data):
        if kind == "cap":
            data["ends"] = None

    rewrite(sqlite_url.removeprefix("sqlite:///"), extend)
    (problem, *_) = sqlite_ledger.verify("census").problems
    assert problem == "entry 4 is drawn under the cap of everyone, which has not counted its plan"


def test_only_a_kept_head_shows_a_consistent_rewrite(sqlite_url, sqlite_ledger):
    """An answer that was changed with all hashes after it: no rule is broken."""
    head = fill(sqlite_ledger).head("census")

    def change_answer(sequence, kind, data):
        if kind == "commit":
            data["answer"] = "another"

    rewrite(sqlite_url.removeprefix("sqlite:///"), change_answer)
    sqlite_ledger.close()
    assert sqlite_ledger.verify("census").ok
    for kept in (head, str(head), head.hash):
        (problem,) = sqlite_ledger.verify("census", kept).problems
        assert "rewritten" in problem


def test_a_truncated_tail_with_a_mended_cache_is_found_by_a_kept_head(url, ledger, clock):
    fill(ledger)
    head = ledger.head("census")
    shorter = [entry for entry in ledger.history("census") if entry.sequence <= 4]
    ledger.create("twin", Budget(3.0, 1e-5))
    ledger.close()
    engine = unguarded(url)
    with engine.begin() as connection:
        connection.execute(
            text("DELETE FROM ledger_entries WHERE dataset = 'census' AND sequence > 4")
        )
        connection.execute(text("DELETE FROM ledger_plans WHERE dataset = 'census'"))
        from sfumato.ledger import store
        from sfumato.ledger.verify import replay

        state = replay("census", shorter)
        connection.execute(
            text(
                "UPDATE ledger_datasets SET sequence = :n, head = :h, spent = :s, caps = :c "
                "WHERE name = 'census'"
            ),
            {
                "n": state.sequence,
                "h": state.head,
                "s": canonical(state.spent.to_list()),
                "c": state.cap_count,
            },
        )
        connection.execute(text("DELETE FROM ledger_caps WHERE dataset = 'census'"))
        for held in state.caps.values():
            connection.execute(store._C.insert().values(store.cap_row("census", held)))
    engine.dispose()
    assert Ledger(url).verify("census").ok  # by itself it looks sound ...
    (problem,) = Ledger(url).verify("census", head).problems  # ... but not beside the kept head
    assert f"entry {head.sequence}, which the kept head names, is missing" in problem
    with pytest.raises(LedgerError, match="went back from entry"):
        ledger.spend("census", LaplaceEvent(10.0))  # a process that saw the longer history


def test_a_head_of_another_dataset_or_no_head_at_all(filled):
    assert "of dataset 'other'" in filled.verify("census", filled.head("other")).problems[0]
    with pytest.raises(LedgerError, match="not a kept head"):
        filled.verify("census", "{nonsense")


def test_heads_are_signed_with_a_key(filled):
    head = filled.head("census")
    signature = head.sign(b"key")
    assert len(signature) == 64
    assert Head.parse(str(head)).verify(b"key", signature)
    assert not head.verify(b"other", signature)
    assert not dataclasses.replace(head, sequence=3).verify(b"key", signature)
