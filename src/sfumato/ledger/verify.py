"""Verification: recompute everything from the entries, and compare.

1. *The chain.* Numbers without gaps, each entry's hash as its content says, each following the one
   before.
2. *The rules.* Every charge at least what its event costs, every request within every limit at its
   time, every end and refund belonging to an open reservation, limits as the budgets give them.
   Refunds of lots that a turn took, and turns beyond what is paid for, as the first version wrote
   them, are reported, and the rest is checked all the same.
3. *The cache.* The totals that requests are decided on are those of the entries.
4. *The kept head*, if given, is in the chain. Without it a history that was shortened or rewritten
   with new hashes by someone with write access looks sound; with it, it does not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sfumato.ledger import store
from sfumato.ledger.entries import GENESIS, Entry, Head, canonical, entry_hash, mark_of
from sfumato.ledger.replay import Replay, RuleBroken
from sfumato.ledger.state import State
from sfumato.ledger.transaction import Row, Transaction

__all__ = ["Evidence", "Verification", "examine", "gather"]


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        problems: in words, each naming the entry; empty if all is well.
        entries: how many were looked at.
        against: the kept head it was compared with, if any.
    """

    dataset: str
    entries: int
    problems: tuple[str, ...] = field(default=())
    against: str = ""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "dataset": self.dataset,
            "ok": self.ok,
            "entries": self.entries,
            "problems": list(self.problems),
            "against": self.against,
        }


@dataclass(frozen=True)
class Evidence:
    """Everything that the database holds of one dataset, as it was at one moment.

    Attributes:
        row: the dataset's cached totals; None if they are gone.
        caps, plans: the cached ones, by the number of their entry.
    """

    name: str
    entries: list[Entry]
    row: Row | None
    caps: dict[int, Row]
    plans: dict[int, int]


def gather(transaction: Transaction, name: str) -> Evidence:
    """Reads a dataset in one transaction, and judges nothing.

    Raises:
        LedgerError: if there is no trace of that name.
    """
    entries, row = store.raw_entries(transaction, name), store.cached_row(transaction, name)
    if row is None and not entries:
        store.load(transaction, name)  # says which names there are
    caps, plans = store.all_caps(transaction, name), store.all_plans(transaction, name)
    return Evidence(name, entries, row, caps, plans)


def examine(found: Evidence, head: Head | str | None, seen: int = 0) -> Verification:
    """Recomputes a dataset and compares.

    Args:
        found: what the database holds.
        head: the kept head, if there is one.
        seen: the last entry that this process saw.
    """
    name, entries = found.name, found.entries
    problems = check_chain(name, entries)
    if not problems:
        judge = Replay(name)
        try:
            problems += _check_cache(found, _replayed(judge, entries))
        except RuleBroken as broken:
            problems.append(str(broken))
        problems = judge.remarks + problems
    if len(entries) < seen:
        problems.append(f"entry {seen}, which this process saw, is missing: {_REWRITTEN}")
    if head is not None:
        problems += _check_head(name, entries, head)
    return Verification(name, len(entries), tuple(problems), "" if head is None else str(head))


def check_chain(name: str, entries: list[Entry]) -> list[str]:
    """Gaps, changed entries, entries in the wrong place."""
    problems: list[str] = []
    previous = GENESIS
    for expected, entry in enumerate(entries, start=1):
        if entry.sequence != expected:
            problems.append(f"entry {expected} is missing: entry {entry.sequence} is in its place")
            break
        if not _is_text(entry):
            problems.append(f"entry {expected} was changed: it holds bytes instead of text")
        elif _hash_of(name, entry) != entry.hash:
            problems.append(f"entry {expected} was changed: its hash does not match its content")
        elif entry.previous != previous:
            problems.append(f"entry {expected} does not follow entry {expected - 1}")
        elif not _is_well_formed(entry):
            problems.append(f"entry {expected} is not what this ledger writes")
        previous = entry.hash
    if not entries:
        problems.append("entry 1 is missing: there are no entries")
    return problems


def _is_text(entry: Entry) -> bool:
    columns: dict[str, object] = vars(entry)
    return all(isinstance(columns[name], str) for name in ("kind", "payload", "previous", "hash"))


def _hash_of(name: str, entry: Entry) -> str:
    return entry_hash(name, entry.sequence, entry.kind, entry.payload, entry.previous)


def _is_well_formed(entry: Entry) -> bool:
    try:
        data = json.loads(entry.payload)
        return canonical(data) == entry.payload and mark_of(entry.kind, data) == entry.mark
    except (ValueError, KeyError, TypeError, RecursionError):
        return False


def replay(name: str, entries: list[Entry]) -> State:
    """The state after all entries, each checked against the rules.

    Raises:
        RuleBroken: at the first entry that the ledger would not have written.
    """
    return _replayed(Replay(name), entries)


def _replayed(judge: Replay, entries: list[Entry]) -> State:
    for entry in entries:
        judge.take(entry)
    return judge.state


def _check_cache(found: Evidence, state: State) -> list[str]:
    name = found.name
    if found.row is None:
        return [
            f"the cached totals are missing: someone removed the row of {name!r}, and nothing can "
            f"be spent until it is restored from a backup; by the entries the last is number "
            f"{state.sequence} and the total {state.spent.to_list()}"
        ]
    try:
        cached = store.state_of(found.row)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return [f"the cached totals of entry {state.sequence} cannot be read ({error})"]
    problems = [
        f"the cached {what} of entry {state.sequence} is {have}, by the entries it is {want}"
        for what, have, want in (
            ("number", cached.sequence, state.sequence),
            ("head", cached.head, state.head),
            ("total", cached.spent.to_list(), state.spent.to_list()),
            ("number of caps", cached.cap_count, state.cap_count),
            ("terms", cached.terms.text, state.terms.text),
        )
        if have != want
    ]
    want_caps = {number: store.cap_row(name, held) for number, held in state.caps.items()}
    problems += _differences("cap", found.caps, want_caps)
    return problems + _differences("plan", found.plans, state.plans)


def _differences(what: str, have: dict[int, Any], want: dict[int, Any]) -> list[str]:
    return [
        f"the cached {what} of entry {number} is not what the entries say"
        for number in sorted(set(have) | set(want))
        if have.get(number) != want.get(number)
    ]


def _check_head(name: str, entries: list[Entry], head: Head | str) -> list[str]:
    if isinstance(head, str):
        head = head.strip()
        if head.startswith("{"):
            return _check_head(name, entries, Head.parse(head))
        if any(entry.hash == head for entry in entries):
            return []
        return [f"the kept head {head} is not among the {len(entries)} entries: {_REWRITTEN}"]
    if head.dataset != name:
        return [f"the kept head is of dataset {head.dataset!r}, not {name!r}"]
    if head.sequence > len(entries):
        return [
            f"entry {head.sequence}, which the kept head names, is missing (the last is "
            f"{len(entries)}): {_REWRITTEN}"
        ]
    if entries[head.sequence - 1].hash != head.hash:
        return [f"entry {head.sequence} is not the one the kept head names: {_REWRITTEN}"]
    return []


_REWRITTEN = "the history was shortened or rewritten, or an older copy restored"
