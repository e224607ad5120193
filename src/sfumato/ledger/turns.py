"""Turns of a run that may be gone on with: one after the other, each held by one process alone.

A run that survives its process (a training with checkpoints, a federation, a search) lies in a
folder. A folder can be copied, or put back from a backup, and a copy knows nothing of what the
other one does. So whoever goes on with a run takes a *turn* first. A turn has a number, a token
that was drawn for it, and the token of the turn before. The ledger takes turn n of a run if

- it holds no turn n of it yet,
- it holds turn n - 1, with the token that turn n names as the one before (n > 1), and
- the reservation pays for its lots, and no lots of turns before n - 1 are given back
  (:mod:`~sfumato.ledger.lots`).

The law. Of each run there is one chain of turns 1, 2, ..., and each is held by whoever drew its
token. Proof: the mark of an entry is unique in a dataset, so there is one turn n at most, and it
is never changed. Let two folders both hold the chain up to n. One of them alone has its turn
n + 1 accepted, say with token a. The other one draws tokens of its own, so none of its later
turns has the token a before it: turn n + 1 is there, and turn n + 2 would have to name a. It is
refused then, and whenever it tries again. []

What a turn allows to be read is the run's business (:mod:`sfumato.learning.journal`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from sfumato.core import validation
from sfumato.ledger import store
from sfumato.ledger.entries import Entry
from sfumato.ledger.errors import LedgerError, WentOnElsewhere
from sfumato.ledger.lots import require_lots
from sfumato.ledger.state import State
from sfumato.ledger.transaction import Transaction

__all__ = ["Turn", "began_with", "held_turn", "take_turn", "went_on_elsewhere"]


@final
@dataclass(frozen=True)
class Turn:
    """One turn of a run.

    Attributes:
        run: the run's name, which its folder and all copies of it share.
        number: 1, 2, ...
        token: drawn for this turn; nobody guesses it.
        after: the token of the turn before; empty for the first.
        lots: how many of the run's lots count as taken from now on.
    """

    run: str
    number: int
    token: str
    after: str
    lots: int

    def __post_init__(self) -> None:
        validation.name("run", self.run)
        validation.name("token", self.token)
        validation.count("number", self.number)
        validation.at_least("lots", self.lots, 0)

    @classmethod
    def drawn(cls, run: str, before: Turn | None, lots: int) -> Self:
        """The turn after another one, with a token of its own."""
        number, after = (0, "") if before is None else (before.number, before.token)
        return cls(run, number + 1, secrets.token_hex(16), after, lots)

    @classmethod
    def from_payload(cls, data: Mapping[str, Any]) -> Self:
        """As an entry holds it."""
        return cls(data["run"], data["turn"], data["token"], data["after"], data["lots"])

    def to_payload(self) -> dict[str, Any]:
        """For an entry."""
        return {
            "run": self.run, "turn": self.number, "token": self.token, "after": self.after,
            "lots": self.lots,
        }  # fmt: skip


def went_on_elsewhere(name: str, run: str, number: int) -> WentOnElsewhere:
    """What a copy of a run is told."""
    return WentOnElsewhere(
        f"run {run!r} of {name!r} went on elsewhere (turn {number} is another one's): this folder "
        "is an older copy of it, or was gone on with beside it. Go on there. If that folder is "
        "lost, begin a new run with a charge of its own; it may start from what was released"
    )


def held_turn(transaction: Transaction, name: str, run: str, number: int) -> Turn | None:
    """A run's turn, if the ledger holds it."""
    entry = store.entry_marked(transaction, name, f"turn:{run}:{number}")
    return None if entry is None else Turn.from_payload(entry.data)


def take_turn(
    transaction: Transaction,
    state: State,
    turn: Turn,
    reservation: Entry,
    at: str,
    *,
    charged: bool = False,
) -> Entry:
    """Writes a turn down, within an open reservation.

    Args:
        transaction: that keeps other writers out.
        state: of the dataset.
        turn: which.
        reservation: its entry.
        at: the time.
        charged: the reservation is made now, for this turn.

    Raises:
        WentOnElsewhere: if it is another one's.
        LedgerError: if the turn before is not known here, or the reservation does not pay for the
            lots.
    """
    name, before = state.terms.dataset, None
    if held_turn(transaction, name, turn.run, turn.number) is not None:
        raise went_on_elsewhere(name, turn.run, turn.number)
    if turn.number > 1:
        before = held_turn(transaction, name, turn.run, turn.number - 1)
        if before is None:
            raise LedgerError(
                f"the ledger does not hold turn {turn.number - 1} of run {turn.run!r} for "
                f"{name!r}: it is another ledger than the one the run was charged to, or an older "
                "copy of it. Go on with the ledger that has it"
            )
        if before.token != turn.after:
            raise went_on_elsewhere(name, turn.run, turn.number - 1)
    _require_no_less(transaction, name, turn, before)
    if not charged:
        earlier = 0 if before is None else before.lots
        require_lots(transaction, reservation, turn.run, turn.lots, earlier)
    payload = {"at": at, "reserve": reservation.sequence} | turn.to_payload()
    return store.append(transaction, state, "resume", payload)


def _require_no_less(transaction: Transaction, name: str, turn: Turn, before: Turn | None) -> None:
    """Refuses a turn that gives back lots of others than the turn before it."""
    if before is None or turn.lots >= before.lots:
        return
    earlier = held_turn(transaction, name, turn.run, before.number - 1)
    least = began_with(before, earlier)
    if turn.lots < least:
        raise LedgerError(
            f"turn {turn.number} of run {turn.run!r} of {name!r} counts {turn.lots} lots, and "
            f"{least} were taken before turn {before.number}: count at least those, as only the "
            "last turn's lots can be given back"
        )


def began_with(turn: Turn, earlier: Turn | None) -> int:
    """How many lots counted as taken before those that ``turn`` added: what follows keeps them."""
    return 0 if earlier is None else min(turn.lots, earlier.lots)
