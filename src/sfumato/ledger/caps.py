"""Allocation: smaller budgets for analysts and periods inside a dataset's.

A request must pass the dataset's gate and every cap it falls under. Analysts who share what they
saw are covered by the dataset's cap, which stands above all of them.

**What a cap counts.** The releases that are *reserved* under it: after it was made, in its
analyst's name, at a time from ``starts`` until before ``ends``. A release counts in full where it
is reserved, and nowhere else, however long it runs. A training run reserved in January that goes on
in February is January's: February's cap says nothing of the steps that it takes then. (The status
lists such reservations beside the cap, as ``reserved_before``. A plan is the same: it counts where
it is declared. Its draws are reservations without a charge, and are refused under a cap that has
not counted it.)

**Theorem.** Let A be the releases reserved under a cap, and suppose that all others answer as they
do. Whether the releases in A read D or its neighbour D' is (epsilon, delta)-indistinguishable for
the cap's budget, also to someone who sees the answers of all others, whatever their order and
however the requests depend on earlier answers.

**Proof.** The cap is a gate over the releases in A alone. Its theorem (see
:mod:`~sfumato.ledger.gate`) allows any adversary to choose the requests, and an adversary may hold
data of his own: one who plays all other releases himself, on whatever data they read, and who runs
them before, between and after the steps of those in A, is such an adversary. Noise is fresh in each
release, so that he plays them exactly.

What the others reveal of the same person adds to it: that is what the dataset's own cap bounds. So
a cap for a month bounds what the releases begun in that month reveal. It does not bound what is
computed, or published, in that month: a run from an earlier one may end in it.
"""

from __future__ import annotations

import calendar
from datetime import datetime, timedelta

from sfumato.core import validation
from sfumato.ledger import store
from sfumato.ledger.budget import Budget
from sfumato.ledger.errors import LedgerError
from sfumato.ledger.gate import Gate
from sfumato.ledger.state import Held, State
from sfumato.ledger.terms import Cap, moment
from sfumato.ledger.transaction import Transaction

__all__ = ["allot", "grant", "period_starts", "schedule"]

_MOST_PERIODS = 1000


def grant(transaction: Transaction, state: State, analyst: str, budget: Budget, at: str) -> Cap:
    """An analyst's standing cap. A new one replaces the old and keeps what was spent."""
    store.load_caps(transaction, state, analyst)
    old = _standing(state, analyst)
    if old is not None and old.cap.budget == budget:
        return old.cap
    replaces = None if old is None else old.cap.number
    return _add(
        transaction, state, _cap(state, budget, analyst=analyst, standing=True), at, replaces
    )


def _standing(state: State, analyst: str) -> Held | None:
    for held in state.caps.values():
        if held.cap.standing and held.cap.analyst == analyst:
            return held
    return None


def allot(
    transaction: Transaction,
    state: State,
    budget: Budget,
    analyst: str | None,
    starts: datetime | None,
    ends: datetime | None,
    label: str,
    at: str,
) -> Cap:
    """A cap on what is reserved in a period, by one analyst or by everyone together."""
    first = None if starts is None else moment("starts", starts)
    last = None if ends is None else moment("ends", ends)
    if first is not None and last is not None and not first < last:
        raise LedgerError(f"ends must be after starts, got {first} and {last}")
    cap = _cap(state, budget, analyst=analyst, starts=first, ends=last, label=label)
    return _add(transaction, state, cap, at, None)


def schedule(
    transaction: Transaction,
    state: State,
    budget: Budget,
    analyst: str | None,
    starts: list[datetime],
    carry_over: bool,
    at: str,
) -> list[Cap]:
    """A cap for each period between successive ``starts``.

    With ``carry_over``, what a period leaves is added to the next: cap number k counts from the
    first period's start to the k-th one's end and allows k times the budget.
    """
    made: list[Cap] = []
    for number in range(1, len(starts)):
        begins = starts[0] if carry_over else starts[number - 1]
        allowed = budget.times(number) if carry_over else budget
        label = f"period {number} of {len(starts) - 1}" + (", carried over" if carry_over else "")
        made.append(allot(transaction, state, allowed, analyst, begins, starts[number], label, at))
    return made


def period_starts(first: datetime, every: str | timedelta, periods: int) -> list[datetime]:
    """The start of each period, and the end of the last."""
    periods = validation.count("periods", periods)
    if periods > _MOST_PERIODS:
        validation.fail("periods", f"at most {_MOST_PERIODS}", periods)
    if every == "month":
        return [_months_later(first, number) for number in range(periods + 1)]
    lengths = {"day": timedelta(days=1), "week": timedelta(weeks=1)}
    length = lengths.get(every) if isinstance(every, str) else every
    if not isinstance(length, timedelta) or length <= timedelta():
        validation.fail("every", "'day', 'week', 'month' or a positive timedelta", every)
    return [first + number * length for number in range(periods + 1)]


def _months_later(first: datetime, months: int) -> datetime:
    """The same day of a later month, or that month's last."""
    years, month = divmod(first.month - 1 + months, 12)
    year = first.year + years
    day = min(first.day, calendar.monthrange(year, month + 1)[1])
    return first.replace(year=year, month=month + 1, day=day)


def _cap(
    state: State,
    budget: Budget,
    *,
    analyst: str | None,
    starts: str | None = None,
    ends: str | None = None,
    label: str = "",
    standing: bool = False,
) -> Cap:
    if not isinstance(budget, Budget):  # pyright: ignore[reportUnnecessaryIsInstance]
        validation.fail("budget", "a Budget, as in Budget(1.0, 1e-7)", budget)
    gate = Gate.of(budget, state.terms.gate.orders)
    return Cap(state.sequence + 1, budget, gate, analyst, starts, ends, label, standing)


def _add(transaction: Transaction, state: State, cap: Cap, at: str, replaces: int | None) -> Cap:
    payload = {"at": at, "replaces": replaces} | cap.to_payload()
    store.append(transaction, state, "cap", payload)
    return cap
