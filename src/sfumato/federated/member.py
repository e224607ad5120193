"""A participant: answers orders of one federation, and of no other.

What she promises herself, whatever the server asks:

- an order of another federation is refused: clips and noise are those she agreed to;
- an attempt is answered once, and attempts of a run only go up. What she answered she remembers in
  ``state``, before the answer leaves; a folder of hers that outlives the process is the place for
  it where processes come and go;
- she answers no more orders of a federation than ``most_answers``, of all its runs together, so
  that her guarantee against the server does not rest on the server's word;
- her own ledger, if she has one, is charged before a row is read, by what a message tells who
  receives it. Each answer is a turn there (:mod:`sfumato.learning.journal`): a copy of ``state``,
  or an older one, gives no answers beside it.

An answer's size, and what she raises, do not depend on her rows.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Generator, MutableMapping
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.events import promises_nothing
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.federated.federation import Federation
from sfumato.federated.introducing import introduction
from sfumato.federated.layout import Layout
from sfumato.federated.local import LocalData
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.refusals import (
    ANSWERED,
    CHARGED,
    COPIED,
    NO_PLAIN_SUMS,
    USED_UP,
    Refusal,
    of_another_federation,
)
from sfumato.federated.scales import noise_scales
from sfumato.federated.sums import PlainSum
from sfumato.federated.views import message_event
from sfumato.federated.works import LotGradients
from sfumato.learning.journal import RunJournal
from sfumato.ledger import Ledger, Turn, WentOnElsewhere

__all__ = ["Member", "Refusal"]

_ANSWERED, _TURNS = "answered", "turns"
_REMEMBERED = 16


@final
class _Remembered:
    """Lines in a participant's memory: the first one and the last few, which is what turns need."""

    def __init__(self, state: MutableMapping[str, bytes], key: str) -> None:
        self._state, self._key = state, key
        self.entries: list[dict[str, Any] | None] = json.loads(state.get(key, b"[]"))

    def write(self, entry: dict[str, Any]) -> None:
        """Remembered when it returns."""
        kept = [*self.entries, entry]
        self.entries = [*kept[:1], *kept[1:][-_REMEMBERED:]]
        self._state[self._key] = json.dumps(self.entries).encode()

    def close(self) -> None:
        """Whoever has the memory, has this."""


@contextlib.contextmanager
def _as_refusal() -> Generator[None]:
    try:
        yield
    except WentOnElsewhere as error:
        raise Refusal(str(error), COPIED) from None


@final
class Member:
    """One participant of a federation, who sends contributions as they are.

    Args:
        federation: as she agreed to it.
        local: her data.
        name: hers, for her ledger.
        state: what she remembers between messages, and processes.
        ledger: hers, charged for every message.
        dataset: whose budget in it.
        most_answers: to how many orders, of all runs together; by default as many as the
            federation has rounds. For a second run of the same federation, allow more.
        coins: of noise and lots; seeded ones in tests only.

    Raises:
        ValueError: if the model is not the federation's, or a ledger is to pay for contributions
            that go out without noise.
    """

    def __init__(
        self,
        federation: Federation,
        local: LocalData,
        *,
        name: str = "participant",
        state: MutableMapping[str, bytes] | None = None,
        ledger: Ledger | None = None,
        dataset: str = "",
        most_answers: int | None = None,
        coins: Coins = SYSTEM,
    ) -> None:
        self.federation, self.local, self.name, self.coins = federation, local, name, coins
        self.state = {} if state is None else state
        self.ledger, self.dataset = ledger, dataset
        most = federation.rounds if most_answers is None else most_answers
        self.most_answers = validation.count("most_answers", most)
        if ledger is not None and promises_nothing(message_event(federation)):
            raise ValueError(
                "a ledger cannot pay for contributions that leave without noise: give the "
                "federation LocalNoise or SharedNoise, or no ledger to its participants"
            )
        if local.layout != Layout.of(federation.make_model()):
            raise ValueError(
                "local must hold the federation's model: LocalModel(federation.make_model())"
            )
        local.keep_to(federation.classes)
        if isinstance(federation.work, LotGradients):
            local.rehearse()

    @property
    def length(self) -> int:
        """How many numbers a contribution has."""
        return self.local.layout.size + self.federation.work.extra

    def answer(self, message: bytes) -> bytes:
        """Her contribution to the order.

        Raises:
            Malformed: if it is none.
            Refusal: if she does not follow it.
            BudgetExceeded: if her budget is spent.
        """
        named = introduction(message, self.name)
        if named is not None:
            return named
        if not isinstance(self.federation.sums, PlainSum):
            never = "contributions of this federation are never sent as they are"
            raise Refusal(never, NO_PLAIN_SUMS)
        order = self.read(message)
        numbers = self.noisy(order)
        if not isinstance(self.federation.work, LotGradients):  # whose length has no bound
            numbers = numbers.astype(np.float32)
        return Contribution(order.run, order.attempt, numbers).to_bytes()

    def read(self, message: bytes, most_sealed: int = 0) -> Order:
        """The order, checked but not followed yet."""
        order = Order.from_bytes(message, self.local.layout.size, most_sealed)
        if order.federation != self.federation.digest:
            raise of_another_federation(order.federation, self.name, self.federation.digest)
        return order

    def follow(self, order: Order) -> None:
        """Remembers and charges, before anything is read.

        Raises:
            Refusal: if it was answered before, or enough was.
        """
        key = f"{_ANSWERED}:{self.federation.digest}"
        held = json.loads(self.state.get(key, b'{"count": 0, "last": {}}'))
        if order.attempt <= held["last"].get(order.run, -1):
            raise Refusal(
                f"attempt {order.attempt} of {order.run!r} was answered before, or a later one was",
                ANSWERED,
            )
        if held["count"] >= self.most_answers:
            given = f"{self.most_answers} answers were agreed to, and all were given"
            raise Refusal(given, USED_UP)
        journal = None if self.ledger is None else self._journal(self.ledger)
        last = held["last"] | {order.run: order.attempt}
        kept = {"count": held["count"] + 1, "last": last}
        self.state[key] = json.dumps(kept).encode()
        if self.ledger is not None and journal is not None:
            self._charge(order, self.ledger, journal)

    def _journal(self, ledger: Ledger) -> RunJournal:
        """Her turns; a copy of what she remembers is refused before it remembers more."""
        journal = RunJournal(_Remembered(self.state, f"{_TURNS}:{self.federation.digest}"))
        journal.charge_to(ledger, self.dataset, each=True)
        with _as_refusal():
            journal.agree()
        return journal

    def _charge(self, order: Order, ledger: Ledger, journal: RunJournal) -> None:
        asked: dict[str, Any] = {"run": order.run, "attempt": order.attempt}
        key = f"{order.run}:{order.attempt}"
        if ledger.reservation(self.dataset, key) is not None:
            before = f"attempt {order.attempt} of {order.run!r} was charged before"
            raise Refusal(before, CHARGED)

        def accept(turn: Turn) -> None:
            with ledger.spend(
                self.dataset,
                message_event(self.federation),
                key=key,
                request=asked,
                label=f"{self.federation.name}, round {order.attempt + 1}",
                turn=turn,
            ) as spending:
                spending.commit(asked)  # what is sent is not kept: it may be sent, and is charged

        with _as_refusal():
            journal.take(journal.lots + 1, accept)

    def raw(self, order: Order) -> NDArray[np.float64]:
        """Her contribution before noise; an order can be followed once."""
        self.follow(order)
        return self.federation.work.contribution(
            self.local, order.weights, self._clip(order), self.coins
        )

    def noisy(self, order: Order) -> NDArray[np.float64]:
        """What she sends."""
        scales = noise_scales(self.federation, self._clip(order), self.local.layout.size)
        return self.federation.noise.at_participant(self.raw(order), scales, self.coins)

    def _clip(self, order: Order) -> float:
        """Her own C, unless it adapts: then the server, who adds the noise, says which."""
        return order.clip if self.federation.work.extra else self.federation.work.clip
