"""Kind ``clock``: the wall clock jumps by hours and by decades, there and back, while they spend.

Budgets have caps for periods, of which some begin and end at any moment, as it seems. Whatever the
clock says, nothing is given back, a period's cap holds for what is reserved in it, and no lock
waits for a time that does not come.
"""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from tests.storm.laws import sum_of_charges
from tests.storm.spenders import Spender, at_work_on, open_dataset, operate
from tests.storm.storm import Storm

from sfumato.ledger import Budget, Ledger, book

__all__ = ["clock"]

_JUMPS = [timedelta(hours=1), timedelta(days=1), timedelta(days=30), timedelta(days=9000)]
_PERIOD = 1.0  # epsilon


def jumping(seed: int) -> None:
    """From now on this process's clock jumps, between any two looks at it."""
    chosen, real, offset = random.Random(seed), datetime, [timedelta()]
    seconds = time.time

    def moved() -> timedelta:
        if chosen.random() < 0.3:
            offset[0] = chosen.uniform(-2, 2) * chosen.choice(_JUMPS)
        return offset[0]

    class Jumping(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return real.now(tz) + moved()

    book.datetime = Jumping
    time.time = lambda: seconds() + moved().total_seconds()


def spend_in_time(url: str, dataset: str, told: str, seed: int) -> int:
    """A child's work: some operations, by a clock that nobody can trust."""
    jumping(seed)
    return operate(Spender(url, dataset, told, seed))


def open_with_periods(url: str, number: int) -> str:
    """A budget with caps for each of some days and, from then on, for everything in a month."""
    name = open_dataset(url, number)
    if number % 2:
        ledger, today = Ledger(url, timeout=60.0), datetime.now(UTC)
        first = today - timedelta(days=2, hours=3)
        if not any(e.kind == "cap" and e.data["starts"] for e in ledger.history(name)):
            ledger.schedule(name, Budget(_PERIOD), first=first, every="day", periods=4)
            ledger.allot(name, Budget(2 * _PERIOD), starts=first, ends=first + timedelta(days=30))
        ledger.close()
    return name


def clock(storm: Storm) -> None:
    """Three at a time, each with a clock of its own."""
    url = f"sqlite:///{storm.folder / 'privacy.db'}"
    at_work_on(storm, url, storm.folder / "told", work=spend_in_time, make=open_with_periods)
    ledger = Ledger(url, create=False)
    for name in ledger.names():
        _judge_periods(storm, ledger, name)
    ledger.close()


def _judge_periods(storm: Storm, ledger: Ledger, name: str) -> None:
    """Each period's cap holds for what is dated in it; what was given back was by rule."""
    entries = ledger.history(name)
    for cap in (e for e in entries if e.kind == "cap" and e.data["starts"]):
        starts, ends = (datetime.fromisoformat(cap.data[end]) for end in ("starts", "ends"))

        def within(data: dict[str, Any], starts: Any = starts, ends: Any = ends) -> bool:
            return starts <= datetime.fromisoformat(data["at"]) < ends

        spent = sum_of_charges(entries, within)
        allowed = cap.data["budget"]["epsilon"]
        if spent > allowed:
            storm.find("overspent", f"{name}: {spent} from {starts} to {ends}, of {allowed}")
    back = [e.data for e in entries if e.kind == "refund"]
    if any(data["because"] != "fixed plan" for data in back):
        storm.find("wrong", f"{name}: given back for no rule: {back}")
