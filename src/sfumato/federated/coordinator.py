"""The coordinator: charges, sends, sums, adds noise where that is its part, and goes on.

Before the first round: does the budget allow all that are left? Before each: are there as many
participants as it needs? If not, it waits, and nothing is charged. Then, in this order:

1. the attempt is a turn of the run (:mod:`sfumato.learning.journal`): on disk first, and then in
   the ledger, together with the charge for what the round's release tells those who see released
   models (if the budget does not allow it, the turn is taken back);
2. orders go out to the participants that coins chose;
3. contributions are checked, clipped again where they can be seen, and summed;
4. noise, if the server adds it; the sum is divided by a fixed number; the weights move;
5. the new weights are on disk, and the charge is committed.

An attempt is never sent twice. A process that dies after 1 has charged for a round that may have
been seen; the next one begins at the next attempt, and all attempts together are never more than
the federation's rounds. So a crash costs utility, and the ledger's total is exactly the rounds
sent. A copy of the folder that went on elsewhere is refused. Who does not answer, answers nonsense
or dies costs her part of the round alone. If nobody's answer is of use three times in a row, the
run stops rather than spend the rest.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from torch import Tensor

from sfumato.core import validation
from sfumato.core.events import promises_nothing, repeat
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.federated.exchange import Engine
from sfumato.federated.federation import Federation
from sfumato.federated.layout import Layout, Vector
from sfumato.federated.noises import SharedNoise
from sfumato.federated.orders import Order
from sfumato.federated.rounds import Collect, Collected, Traffic, carry_out, collect_plainly
from sfumato.federated.scales import noise_scales
from sfumato.federated.server_state import JOURNAL, ServerState, rounds_noted
from sfumato.federated.sums import HiddenSum, MaskedSum
from sfumato.federated.views import RELEASED, round_event
from sfumato.federated.watching import RoundFacts, nobody
from sfumato.federated.works import ClientUpdates
from sfumato.learning.dp_sgd.draws import bernoulli
from sfumato.learning.durable import write_whole
from sfumato.learning.journal import RunJournal
from sfumato.learning.recipes.evaluating import accuracy_of
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import BudgetExceeded, Ledger, Spending, Turn
from sfumato.ledger.turns import went_on_elsewhere

if TYPE_CHECKING:
    from sfumato.federated.secure.ckks_keys import CkksPublic
    from sfumato.federated.secure.keys import Directory

__all__ = ["Coordinator", "TooFewParticipants", "Trained"]

_FRUITLESS = 3  # rounds in a row without an answer that was of use


class TooFewParticipants(ValueError):  # noqa: N818 - the name operators read
    """Nothing comes of going on."""


@final
@dataclass(frozen=True, eq=False)
class Trained:
    """A finished federation.

    Attributes:
        weights: the shared ones, as a vector.
        record: public: what ran, and what each observer can learn.
        accuracy: on public rows, if there were any.
    """

    weights: Vector
    record: Record
    accuracy: float | None


@final
class Coordinator:
    """The server's part of a federation.

    Args:
        federation: as everybody agreed to it.
        engine: how participants are reached.
        folder: of the run; one that holds a run of this federation that was cut off is gone on
            with.
        ledger: charged for every round.
        dataset: whose budget in it.
        analyst: in whose name.
        test: public inputs and labels, for the learning curve.
        test_every: rounds between two points of it.
        watch: is told of every round.
        timeout: seconds to wait for answers of one exchange.
        patience: seconds to wait, before a round, for as many participants as it needs.
        directory: participants' public keys, for masked sums.
        public_key: that of hidden sums; the secret one is the participants'.
        coins: of the choice of participants and of noise; seeded ones in tests only.

    Raises:
        ValueError: if the folder holds something else, or the ledger cannot pay for such rounds.
    """

    def __init__(
        self,
        federation: Federation,
        engine: Engine,
        *,
        folder: str | Path | None = None,
        ledger: Ledger | None = None,
        dataset: str = "",
        analyst: str = "",
        test: tuple[Tensor, Tensor] | None = None,
        test_every: int = 1,
        watch: Callable[[RoundFacts], None] = nobody,
        timeout: float = 600.0,
        patience: float = 0.0,
        directory: Directory | None = None,
        public_key: CkksPublic | None = None,
        coins: Coins = SYSTEM,
    ) -> None:
        self.federation, self.engine, self._coins = federation, engine, coins
        self._ledger, self._dataset, self._analyst = ledger, dataset, analyst
        self._model = federation.make_model()
        self.layout = Layout.of(self._model)
        self._test, self._watch, self._timeout = test, watch, timeout
        self._patience = validation.non_negative("patience", patience)
        self._test_every = validation.count("test_every", test_every)
        self._event = round_event(federation, RELEASED)
        self._directory = directory
        if isinstance(federation.sums, MaskedSum) and directory is None:
            raise ValueError("directory must be given for masked sums: the members' public keys")
        self._public_key = public_key
        if isinstance(federation.sums, HiddenSum) and public_key is None:
            raise ValueError("public_key must be given for hidden sums: participants make it")
        if ledger is not None and promises_nothing(self._event):
            raise ValueError(
                "a ledger cannot pay for rounds without noise: give noise, or no ledger"
            )
        self._folder = None if folder is None else RunFolder(folder, public=self._public)
        self.run, self.state, self._journal = self._begin()
        self._fruitless = 0

    @property
    def _public(self) -> bool:
        return not promises_nothing(self._event)

    @property
    def length(self) -> int:
        """How many numbers a contribution has."""
        return self.layout.size + self.federation.work.extra

    # --- beginning, and going on ----------------------------------------------------------------

    def _begin(self) -> tuple[str, ServerState, RunJournal]:
        first = self.layout.read(self._model)
        fresh = ServerState(first, np.zeros_like(first), self.federation.work.clip)
        if self._folder is None:
            run = secrets.token_hex(8)
            return run, fresh, RunJournal(None, "", run=run)
        if not self._folder.begun:
            run = secrets.token_hex(8)
            charged = None if self._ledger is None else self._dataset
            asked = {"run": run, "federation": self.federation.to_dict(), "charged": charged}
            self._folder.begin(asked)
        asked = self._folder.request()
        self._require_same(asked)
        state = ServerState.load(self._folder.curator) or fresh
        journal = RunJournal(
            self._folder.curator / JOURNAL,
            f"folder must not be in use, but another process is at work in {self._folder.path}: "
            "end it, or give this run a folder of its own",
            run=asked["run"],
        )
        state.attempts = max(state.attempts, rounds_noted(self._folder.curator))
        try:
            self._agree(journal, state.attempts)
        except BaseException:
            journal.close()
            raise
        state.attempts = max(state.attempts, journal.lots)
        return asked["run"], state, journal

    def _agree(self, journal: RunJournal, attempts: int) -> None:
        """Refuses a copy of a run that went on elsewhere, and nothing is charged for it."""
        if self._ledger is None:
            return
        journal.charge_to(self._ledger, self._dataset, each=True)
        journal.agree()
        following = _key(journal.run, attempts)  # of runs whose rounds had keys, and no turns
        if not journal.number and self._ledger.reservation(self._dataset, following) is not None:
            raise went_on_elsewhere(self._dataset, journal.run, attempts + 1)

    def _require_same(self, asked: dict[str, Any]) -> None:
        assert self._folder is not None
        if self._folder.finished:
            raise ValueError(
                f"folder must be a new one, but {self._folder.path} holds a finished run"
            )
        there = asked.get("federation")
        if there is None or Federation.from_dict(there) != self.federation:
            raise ValueError(
                f"folder must hold a run of this federation to go on with, but {self._folder.path} "
                "holds another one: give another folder"
            )
        charged = None if self._ledger is None else self._dataset
        if asked["charged"] != charged:
            raise ValueError(
                f"{self._folder.path} began with {_budget(asked['charged'])}, not with "
                f"{_budget(charged)}: go on with the one that it began with"
            )

    # --- the loop -------------------------------------------------------------------------------

    def train(self) -> Trained:
        """All rounds that are left.

        Raises:
            BudgetExceeded: before a round is sent, if not all of them fit.
            TooFewParticipants: before the round is charged, if they do not come; or if nobody's
                answer was of use, several times in a row.
        """
        try:
            self._require_budget()
            while self.state.attempts < self.federation.rounds:
                self._wait_for_enough()
                self._round()
            return self._finish()
        finally:
            self._journal.close()

    def _require_budget(self) -> None:
        """All rounds that are left, or none: half a training is of no use to anyone."""
        left = self.federation.rounds - self.state.attempts
        if self._ledger is None or not left:
            return
        whole = repeat(self._event, left)
        found = self._ledger.preview(self._dataset, whole, analyst=self._analyst)
        if not found.passes:
            raise BudgetExceeded(
                f"{left} rounds would bring the budget of {self._dataset!r} to epsilon "
                f"{found.reading:.4g}: {found.events[0].reason}. No round was sent",
                self._dataset,
            )

    def _wait_for_enough(self) -> None:
        """A round that is known to fail is not worth its charge.

        That one is there at all is told by it, in a federation of one.
        """
        needed = max(1, self.federation.least)
        end = time.monotonic() + self._patience
        while (there := len(self.engine.participants())) < needed:
            if time.monotonic() >= end:
                raise TooFewParticipants(
                    f"{there} participants are there, and a round needs {needed}: nothing was "
                    "charged for it. Start again when more are back; the run goes on"
                )
            time.sleep(min(0.5, max(0.0, end - time.monotonic())))

    def _note_use(self, asked: int, collected: Collected, traffic: Traffic) -> None:
        self._fruitless = self._fruitless + 1 if asked and not collected.survivors else 0
        if self._fruitless == _FRUITLESS:
            why = {**traffic.silent, **collected.refused}
            first = "; ".join(f"{name}: {text}" for name, text in list(why.items())[:3])
            raise TooFewParticipants(
                f"nobody's answer was of use {_FRUITLESS} rounds in a row ({first}). They are "
                "charged. Start again when that is mended; the run goes on"
            )

    def _round(self) -> None:
        started, attempt = time.monotonic(), self.state.attempts
        spending = self._journal.take(attempt + 1, lambda turn: self._charge(attempt, turn))
        self.state.attempts = attempt + 1
        asked = self._choose()
        order = Order(
            self.federation.digest, self.run, attempt, self.state.clip, self.state.weights,
            self.state.sealed,
        )  # fmt: skip
        collected, traffic = carry_out(self._collect(order, asked), self.engine, self._timeout)
        used = self._use(collected)
        accuracy = self._tested()
        if self._folder is not None:
            self.state.save(self._folder.curator)
        if spending is not None:
            spending.commit({"attempt": attempt})
        self._watch(
            RoundFacts(
                attempt + 1,
                self.federation.rounds,
                len(asked),
                len(collected.survivors),
                collected.refused,
                traffic,
                self.state.clip,
                used,
                accuracy,
                time.monotonic() - started,
            )
        )
        self._note_use(len(asked), collected, traffic)

    def _charge(self, attempt: int, turn: Turn) -> Spending | None:
        if self._ledger is None:
            return None
        return self._ledger.spend(
            self._dataset,
            self._event,
            analyst=self._analyst,
            key=_key(self.run, attempt),
            request={"run": self.run, "attempt": attempt},
            label=f"{self.federation.name}, round {attempt + 1}",
            turn=None if self._folder is None else turn,
        )

    def _choose(self) -> list[str]:
        """Each participant by a coin of her own."""
        there = list(self.engine.participants())
        threshold = math.floor(self.federation.participation * 2**64)
        return [there[i] for i in bernoulli(len(there), threshold, self._coins)]

    def _collect(self, order: Order, asked: list[str]) -> Collect:
        if self._public_key is not None:
            from sfumato.federated.hidden import collect_hidden

            return collect_hidden(self.federation, order, asked, self._public_key)
        if self._directory is None:
            return collect_plainly(self.federation, order, asked, self.length)
        from sfumato.federated.masked import codec_of, collect_masked

        codec = codec_of(self.federation)
        return collect_masked(self.federation, order, asked, self._directory, codec)

    def _use(self, collected: Collected) -> bool:
        """Moves the weights, unless too few took part for the noise to be enough."""
        if collected.sealed:
            self.state.sealed = collected.sealed
            self.state.completed += 1
            return True
        if collected.total is None or len(collected.survivors) < self.federation.least:
            return False
        federation, size = self.federation, self.layout.size
        scales = noise_scales(federation, self.state.clip, size)
        released = federation.noise.at_server(collected.total, scales, self._coins)
        mean = federation.work.direction * released[:size] / federation.denominator
        self.state.step(mean.astype(np.float32), federation.server_rate, federation.server_momentum)
        if isinstance(federation.work, ClientUpdates):
            adaptive = federation.work.adaptive(federation.expected)
            if adaptive is not None:
                noisy = float(released[size])
                self.state.clip = adaptive.updated(self.state.clip, noisy, federation.expected)
        return True

    # --- looking --------------------------------------------------------------------------------

    def _tested(self) -> float | None:
        done = self.state.attempts
        last = done == self.federation.rounds
        if (
            self._test is None
            or self._public_key is not None
            or not (last or done % self._test_every == 0)
        ):
            return None
        self.layout.write(self._model, self.state.weights)
        accuracy = accuracy_of(self._model, *self._test)
        self.state.curve.append({"round": done, "accuracy": accuracy})
        return accuracy

    def _finish(self) -> Trained:
        accuracy = self.state.curve[-1]["accuracy"] if self.state.curve else None
        record = self._record(accuracy)
        if self._folder is not None:
            self._keep_model(self._folder)
            self._folder.write_record(record.to_dict())
        return Trained(self.state.weights, record, accuracy)

    def _keep_model(self, folder: RunFolder) -> None:
        if self._public_key is not None:
            write_whole(folder.curator / "model.ckks", self.state.sealed)
            return
        self.layout.write(self._model, self.state.weights)
        folder.write_model(dict(self._model.state_dict()))

    def _record(self, accuracy: float | None) -> Record:
        federation = self.federation
        released = federation.view(RELEASED)
        facts: dict[str, Any] = {
            "observer": RELEASED,
            "views": [each.to_dict(federation.delta) for each in federation.views],
            "rounds_sent": self.state.attempts,
            "rounds_used": self.state.completed,
            "curve": self.state.curve,
            "arithmetic": _arithmetic(federation),
        }
        if accuracy is not None:
            facts |= {"accuracy": accuracy, "test_set": "public"}
        return Record(
            method="federated",
            parameters=federation.to_dict(),
            event=released.event,
            guarantee=released.guarantee(federation.delta),
            private=self._coins.private and getattr(self.engine, "private", True),
            facts=facts,
            software=versions("torch", "numpy"),
        )


def _key(run: str, attempt: int) -> str:
    """Of a round's charge."""
    return f"{run}:{attempt}"


def _arithmetic(federation: Federation) -> str:
    if isinstance(federation.noise, SharedNoise):
        return "whole numbers, exact"
    return "floating point, ideal Gaussian assumed"


def _budget(dataset: str | None) -> str:
    return "no budget" if dataset is None else f"the budget of {dataset!r}"
