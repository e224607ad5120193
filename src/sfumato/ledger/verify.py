"""Verification: recompute everything from the entries, and compare.

1. *The chain.* Numbers without gaps, each entry's hash as its content says, each following the one
   before.
2. *The rules.* Every charge at least what its event costs, every request within every limit at its
   time, every end and refund belonging to an open reservation, limits as the budgets give them.
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
from sfumato.ledger.transaction import Transaction

__all__ = ["Verification", "verify"]


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


def verify(transaction: Transaction, name: str, head: Head | str | None) -> Verification:
    """Checks one dataset; it must be read in one transaction."""
    entries = store.read_entries(transaction, name)
    problems = check_chain(name, entries)
    if not problems:
        try:
            state = replay(name, entries)
            problems += _check_cache(transaction, state)
        except RuleBroken as broken:
            problems.append(str(broken))
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
        hashed = entry_hash(name, entry.sequence, entry.kind, entry.payload, entry.previous)
        if hashed != entry.hash:
            problems.append(f"entry {expected} was changed: its hash does not match its content")
        elif entry.previous != previous:
            problems.append(f"entry {expected} does not follow entry {expected - 1}")
        elif not _is_well_formed(entry):
            problems.append(f"entry {expected} is not what this ledger writes")
        previous = entry.hash
    if not entries:
        problems.append("entry 1 is missing: there are no entries")
    return problems


def _is_well_formed(entry: Entry) -> bool:
    try:
        data = json.loads(entry.payload)
        return canonical(data) == entry.payload and mark_of(entry.kind, data) == entry.mark
    except (ValueError, KeyError, TypeError):
        return False


def replay(name: str, entries: list[Entry]) -> State:
    """The state after all entries, each checked against the rules.

    Raises:
        RuleBroken: at the first entry that the ledger would not have written.
    """
    judge = Replay(name)
    for entry in entries:
        judge.take(entry)
    return judge.state


def _check_cache(transaction: Transaction, state: State) -> list[str]:
    name = state.terms.dataset
    cached = store.load(transaction, name)
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
    problems += _differences("cap", store.all_caps(transaction, name), want_caps)
    return problems + _differences("plan", store.all_plans(transaction, name), state.plans)


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
