"""Lots of a reservation: how many it pays for, how many its turns took, what may be given back.

Where a repeated event is reserved, a lot is one of its steps. A run whose lots are finer (of
shuffled data one step of the event is a whole epoch) says how many there are as ``steps`` of its
request; a part of the steps then pays for the same part of the lots. An event that is not repeated
is paid for as a whole: nothing of it is given back, and its lots are its run's own business.

The laws, for one reservation:

1. A turn counts no more lots than the reservation pays for; what was given back is not paid for.
2. A turn counts at least the lots that the turn before it began with: whoever holds a turn may say
   that only some of its lots were read, and can say nothing of the lots of earlier turns.
3. A refund is made by the holder of the last turn, and gives back no lots that a turn took, even if
   a later turn counts fewer.
4. After a refund a turn says how many lots it counts; a number alone says nothing about lots.
5. All turns of a reservation are one run's, and follow no number alone once there is one of them.

So of the lots of one reservation no more are open to be read, by whomever, than its charge less
what was given back pays for. Proof: lots are read under turns. If no refund was made, law 1 bounds
every turn by the whole charge. If one was made, the turns before it counted at most what is still
paid for (law 3), and those after it, too (laws 1 and 4). By law 5 there is one chain of turns,
whose counts are of the same lots. []

The run's earlier turns may be paid for by other reservations. One that is made together with a turn
pays for the last of that turn's lots; those before them were paid for elsewhere, or count as taken
without having been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast, final

from sfumato.ledger import store
from sfumato.ledger.entries import Entry
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.transaction import Transaction

__all__ = [
    "Taken",
    "paid_lots",
    "require_lots",
    "require_unread",
    "taken_of",
    "unread_refusal",
]


def paid_lots(reservation: Mapping[str, Any], steps: int | None = None) -> int | None:
    """How many lots ``steps`` of a reservation's event pay for; None where lots are not counted.

    Args:
        reservation: its payload.
        steps: how many of its steps are charged; all of them by default.
    """
    event = reservation["event"]
    if event["kind"] != "repeated":
        return None
    count, request = event["count"], reservation["request"]
    stated: Any = None
    if isinstance(request, dict):
        stated = cast("dict[str, Any]", request).get("steps")
    lots = max(count, stated) if type(stated) is int else count
    return lots if steps is None else lots * steps // count


@final
@dataclass
class Taken:
    """What the turns of one reservation took.

    Attributes:
        run: whose they are; empty where there are none but numbers alone.
        before: how many of its run's lots the reservation does not pay for.
        most: the most lots that a turn counted, of those that it pays for.
        last: the number of the last turn's entry, 0 if there was none.
    """

    run: str = ""
    before: int = 0
    most: int = 0
    last: int = 0

    def take(self, entry: int, turn: Mapping[str, Any], earlier: int, paid: int | None) -> None:
        """One turn more.

        Args:
            entry: the number of its entry.
            turn: its payload.
            earlier: how many lots the run's turn before counts.
            paid: how many lots the reservation pays for, if they are counted.
        """
        if "run" in turn:
            if not self.run:
                charged = entry == turn["reserve"] + 1  # it may have been taken with the charge
                own = turn["lots"] - (paid or 0)
                self.run, self.before = turn["run"], max(earlier, own) if charged else earlier
            self.most = max(self.most, turn["lots"] - self.before)
        self.last = entry

    def refusal(self, run: str, lots: int, earlier: int, paid: int | None) -> str:
        """Why a further turn is refused; empty if it is not.

        Args:
            run: the turn's run; empty for a number alone.
            lots: how many it counts.
            earlier: how many lots the run's turn before counts.
            paid: how many lots the reservation still pays for, if they are counted.
        """
        if self.run and run != self.run:
            taker = f"run {run!r}" if run else "a turn that is a number alone"
            return f"is that of run {self.run!r}, and cannot be taken up by {taker}"
        before = self.before if self.run else earlier
        if paid is not None and run and lots > max(before + paid, earlier):
            return f"pays for {before + paid} lots of run {run!r}, and the turn counts {lots}"
        return ""


def taken_of(transaction: Transaction, reservation: Entry) -> Taken:
    """What the turns of a reservation took, as the ledger holds them now."""
    name, paid, taken = reservation.dataset, paid_lots(reservation.data), Taken()
    for entry in store.turns_within(transaction, name, reservation.sequence):
        data, earlier = entry.data, 0
        if "run" in data and not taken.run and data["turn"] > 1:
            mark = f"turn:{data['run']}:{data['turn'] - 1}"
            before = store.entry_marked(transaction, name, mark)
            earlier = 0 if before is None else before.data["lots"]
        taken.take(entry.sequence, data, earlier, paid)
    return taken


def require_lots(
    transaction: Transaction, reservation: Entry, run: str = "", lots: int = 0, earlier: int = 0
) -> None:
    """Sees that a further turn may be taken within a reservation, and that its lots are paid for.

    Args:
        transaction: under which the turn will be written.
        reservation: its entry.
        run: the turn's run; empty for a number alone.
        lots: how many it counts.
        earlier: how many lots the run's turn before counts.

    Raises:
        LedgerError: if not.
    """
    number, data = reservation.sequence, reservation.data
    refund = store.entry_marked(transaction, reservation.dataset, f"refund:{number}")
    steps = None if refund is None else refund.data["steps"]
    what = f"reservation {number} of {reservation.dataset!r}"
    if steps is not None and not run:
        raise LedgerError(
            f"{what} was refunded down to {steps} steps, and a turn that is a number alone does "
            "not say how many it counts: take it up with a Turn"
        )
    taken = taken_of(transaction, reservation)
    refused = taken.refusal(run, lots, earlier, paid_lots(data, steps))
    if refused:
        given = "" if steps is None else f" ({steps} steps are left of it after a refund)"
        raise LedgerError(
            f"{what}{given} {refused}: go on with the run that it was made for, within what it "
            "pays for, or begin a new one with a charge of its own"
        )


def require_unread(transaction: Transaction, reservation: Entry, steps: int, turn: int) -> None:
    """Sees that a refund down to ``steps`` gives back nothing that may be read.

    Args:
        transaction: under which the refund will be written.
        reservation: its entry.
        steps: how many steps stay charged.
        turn: the entry of the last turn that the caller holds, 0 if none.

    Raises:
        LedgerError: if it does.
    """
    taken, number = taken_of(transaction, reservation), reservation.sequence
    if taken.last > turn:
        raise LedgerError(
            f"reservation {number} of {reservation.dataset!r} was taken up since (entry "
            f"{taken.last}), and what runs there may take all of its steps: only the holder of the "
            "last turn can give steps back"
        )
    refused = unread_refusal(taken, reservation.data, steps)
    if refused:
        raise LedgerError(
            f"a refund of reservation {number} of {reservation.dataset!r} {refused}: keep the "
            "steps of all lots that were taken"
        )


def unread_refusal(taken: Taken, reservation: Mapping[str, Any], steps: int) -> str:
    """Why a refund down to ``steps`` is refused for what turns took; empty if it is not."""
    paid = paid_lots(reservation, steps)
    if paid is None or taken.most <= paid:
        return ""
    return f"gives back lots that count as taken: {steps} steps pay for {paid} of {taken.most}"
