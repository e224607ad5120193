"""Damaged files: the ledger's own error, never another one, and nothing read in silence."""

import random
import sqlite3

import pytest

from sfumato.core.events import GaussianEvent, LaplaceEvent, repeat
from sfumato.ledger import Budget, Ledger, LedgerError, Turn

EVENT, RUN = LaplaceEvent(30.0), repeat(GaussianEvent(50.0), 10)
PLANNED = LaplaceEvent(8.0)


@pytest.fixture
def whole(tmp_path):
    """A file with entries of every kind, and what one needs to go on with it."""
    ledger = Ledger(tmp_path / "whole.db")
    ledger.create("census", Budget(9.0, 1e-4))
    ledger.open_table("census", "pid")
    ledger.grant("census", "ann", Budget(2.0, 1e-5))
    plan = ledger.declare("census", [PLANNED], delta=1e-6)
    ledger.identify("census", "f" * 64, "a file")
    for number in range(4):
        who = "ann" if number % 2 else ""
        with ledger.spend("census", EVENT, key=f"k{number}", analyst=who) as spending:
            spending.commit({"number": number})
    run = ledger.spend("census", RUN, turn=Turn.drawn("run", None, 1)).sequence
    ledger.close()
    return (tmp_path / "whole.db").read_bytes(), plan, run


def uses(ledger, plan, run):
    """Whatever one does with a ledger."""
    turn = Turn.drawn("run", None, 2)
    return [
        ledger.names,
        lambda: ledger.status("census", "ann"),
        lambda: [(entry.data, entry.at) for entry in ledger.history("census")],
        lambda: ledger.readings("census"),
        lambda: ledger.verify("census"),
        lambda: ledger.preview("census", EVENT, analyst="ann"),
        lambda: ledger.tables("census"),
        lambda: ledger.turn("census", "run", 1),
        lambda: ledger.identify("census", "f" * 64, "a file"),
        lambda: ledger.spend("census", EVENT, analyst="ann"),
        lambda: ledger.spend("census", EVENT, key="k0"),
        lambda: ledger.spend("census", PLANNED, plan=plan),
        lambda: ledger.resume("census", run, RUN, turn=turn),
        lambda: ledger.grant("census", "bob", Budget(1.0, 1e-6)),
    ]


def damaged(data, chance):
    """A few bytes that are others: of any value, by a bit, or in text by other text."""
    bad, kind = bytearray(data), chance.randrange(3)
    text = [at for at, byte in enumerate(bad) if 32 <= byte < 127]
    for _ in range(chance.choice([1, 1, 3, 30])):
        at = chance.choice(text) if kind == 2 else chance.randrange(len(bad))
        bad[at] = (
            chance.randrange(256), bad[at] ^ 1 << chance.randrange(8),
            chance.choice(b'abcz019"{}[]:,xk'),
        )[kind]  # fmt: skip
    return bytes(bad)


def check(tmp_path, whole, seed, count):
    data, plan, run = whole
    chance, path, refused = random.Random(seed), tmp_path / "damaged.db", 0
    for _ in range(count):
        path.write_bytes(damaged(data, chance))
        try:
            ledger = Ledger(path)
        except LedgerError:
            refused += 1
            continue
        for use in uses(ledger, plan, run):
            try:
                use()
            except LedgerError:
                refused += 1
        ledger.close()
    assert refused >= count / 8


def test_a_damaged_file_is_told_by_the_ledgers_own_error(tmp_path, whole):
    check(tmp_path, whole, 1, 40)


@pytest.mark.slow
def test_many_damaged_files_are_told_by_the_ledgers_own_error(tmp_path, whole):
    check(tmp_path, whole, 2, 1500)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger_datasets SET terms = '{}'",
        "UPDATE ledger_datasets SET terms = replace(terms, 'epsilon', 'epsilom')",
        "UPDATE ledger_datasets SET spent = '[1]'",
        "UPDATE ledger_datasets SET spent = replace(spent, ',', '.5,')",
        "UPDATE ledger_datasets SET sequence = 'x'",
        "UPDATE ledger_caps SET terms = '[]'",
        "UPDATE ledger_plans SET drawn = 'x'",
        "UPDATE ledger_entries SET payload = '{}' WHERE kind = 'plan'",
        "UPDATE ledger_entries SET payload = replace(payload, 'digest', 'digesT')",
        "UPDATE ledger_entries SET mark = 'key:k0' WHERE mark = 'end:5'",
        "UPDATE ledger_entries SET hash = 'x'",
        "UPDATE ledger_meta SET value = 'x' WHERE name = 'fingerprint secret'",
    ],
)
def test_what_reads_something_else_says_so(tmp_path, whole, change):
    """Each of these once was a KeyError, or another one of Python's, somewhere."""
    data, plan, run = whole
    path = tmp_path / "changed.db"
    path.write_bytes(data)
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER ledger_entries_no_update")
    if "mark = 'key:k0' WHERE" in change:
        connection.execute("UPDATE ledger_entries SET mark = 'x' WHERE mark = 'key:k0'")
    assert connection.execute(change).rowcount > 0
    connection.commit()
    connection.close()
    ledger, refused = Ledger(path), []
    for use in uses(ledger, plan, run):
        try:
            use()
        except LedgerError as error:
            refused.append(str(error))
    ledger.close()
    assert any("verify" in text or "restore" in text for text in refused), refused
