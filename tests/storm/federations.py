"""Kind ``federations``: a coordinator and three participants, each a process that may be killed.

They speak over sockets in a folder. Everybody has a ledger; what was sent, read and answered is
told before it is. The coordinator, and whoever else died, is started again until the run ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tests.storm.children import tell, told
from tests.storm.storm import Storm

from sfumato.federated.coordinator import Coordinator, TooFewParticipants
from sfumato.federated.exchange import Reply
from sfumato.federated.federation import Federation
from sfumato.federated.flower.state import FolderState
from sfumato.federated.layout import Layout
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.noises import LocalNoise
from sfumato.federated.orders import Order
from sfumato.federated.works import LotGradients
from sfumato.ledger import Budget, Ledger

__all__ = ["coordinate", "federations", "ward"]

NAMES, ROUNDS, PEOPLE = ("north", "east", "west"), 10, "people"
_TOO_FEW, _STOP = 6, b"stop"
_WORK = LotGradients(lot_rate=0.2, clip=1.0, records=40)


def _federation() -> Federation:
    return Federation(
        "linear", (4,), 3, participants=3, rounds=ROUNDS, noise=LocalNoise(2.0, least=1),
        work=_WORK,
    )  # fmt: skip


# --- messages -----------------------------------------------------------------------------------


def _send(connection: socket.socket, data: bytes) -> None:
    connection.sendall(struct.pack("!I", len(data)) + data)


def _receive(connection: socket.socket) -> bytes:
    def exactly(count: int) -> bytes:
        found = b""
        while len(found) < count:
            part = connection.recv(count - len(found))
            if not part:
                raise OSError("cut off")
            found += part
        return found

    return exactly(*struct.unpack("!I", exactly(4)))


@contextlib.contextmanager
def _connected(run: str, name: str, timeout: float = 10.0) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(f"{run}/{name}.sock")
        yield connection


class Sockets:
    """An engine: whoever has a socket in the folder is there."""

    private = True

    def __init__(self, run: str, size: int) -> None:
        self._run, self._size = run, size

    def participants(self) -> Sequence[str]:
        """Who can be reached now."""
        there: list[str] = []
        for name in NAMES:
            with contextlib.suppress(OSError), _connected(self._run, name) as connection:
                _send(connection, b"")
                there.append(name)
        return there

    def exchange(self, messages: Mapping[str, bytes], *, timeout: float = 600.0) -> Iterator[Reply]:
        """One after the other."""
        for name, message in messages.items():
            order = Order.from_bytes(message, self._size)
            tell(f"{self._run}/sent", attempt=order.attempt, to=name)
            try:
                with _connected(self._run, name) as connection:
                    _send(connection, message)
                    yield Reply(name, _receive(connection))
            except OSError as error:
                yield Reply(name, None, f"{type(error).__name__}: {error}")


# --- children -----------------------------------------------------------------------------------


def coordinate(run: str) -> int:
    """A child's work: begins the run, or goes on with it, to its end."""
    torch.set_num_threads(1)
    federation = _federation()
    size = Layout.of(federation.make_model()).size
    try:
        Coordinator(
            federation, Sockets(run, size), folder=Path(run) / "run",
            ledger=Ledger(Path(run) / "server.db", create=False), dataset=PEOPLE, patience=60.0,
            timeout=10.0,
        ).train()  # fmt: skip
    except TooFewParticipants:
        return _TOO_FEW
    return 0


def ward(run: str, name: str) -> int:
    """A child's work: answers until it is told to stop."""
    torch.set_num_threads(1)
    federation = _federation()
    generator = torch.Generator().manual_seed(NAMES.index(name))
    rows = torch.randn(40, 4, generator=generator), torch.randint(0, 3, (40,), generator=generator)
    state = FolderState(Path(run) / name)
    member = Member(
        federation, LocalData(LocalModel(federation.make_model()), *rows), name=name, state=state,
        ledger=Ledger(Path(run) / f"{name}.db", create=False), dataset=PEOPLE,
    )  # fmt: skip
    order: list[Order] = []
    contribution = LotGradients.contribution

    def noted(*arguments: Any) -> Any:
        tell(f"{run}/{name}.told", did="reads", attempt=order[-1].attempt)
        return contribution(*arguments)

    LotGradients.contribution = noted
    with socket.socket(socket.AF_UNIX) as server:
        place = f"{run}/{name}.sock"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place)
        server.bind(place)
        server.listen()
        while True:
            with server.accept()[0] as connection, contextlib.suppress(OSError):
                message = _receive(connection)
                if message == _STOP:
                    return 0
                if message:
                    order.append(member.read(message))
                    answer = member.answer(message)
                    tell(f"{run}/{name}.told", did="answers", attempt=order[-1].attempt)
                    _send(connection, answer)


# --- the storm ----------------------------------------------------------------------------------


def federations(storm: Storm) -> None:
    """One run after the other."""
    torch.set_num_threads(1)
    _federation().make_model()
    for number in itertools.count():
        if storm.over:
            break
        run = storm.folder / str(number)
        run.mkdir()
        for name in ("server", *NAMES):
            ledger = Ledger(run / f"{name}.db")
            ledger.create(PEOPLE, Budget(200.0, 1e-4))
            ledger.close()
        _go_through(storm, run)
        with storm.expecting(f"looking at {run.name}"):
            _judge(storm, run)
        shutil.rmtree(run)
    storm.note_problems()


def _go_through(storm: Storm, run: Path) -> None:
    for name in NAMES:
        storm.start(ward, run=str(run), name=name)
    storm.start(coordinate, run=str(run))
    for _ in range(1000):
        for child, code in storm.wait():
            if "name" in child.spec:
                if code > 0:
                    storm.find("wrong", f"{child.spec['name']} ended with {code}")
                storm.start(ward, **child.spec)
            elif code in (-9, _TOO_FEW):
                storm.start(coordinate, run=str(run))
            else:
                _stop(storm, run)
                return
    storm.find("wrong", f"{run.name} did not come to its end in 1000 attempts")


def _stop(storm: Storm, run: Path) -> None:
    """Everybody goes home; who dies on the way there is not started again."""
    while storm.at_work:
        for name in NAMES:
            with contextlib.suppress(OSError), _connected(str(run), name, 1.0) as connection:
                _send(connection, _STOP)
        time.sleep(0.02)
        storm.look()


def _judge(storm: Storm, run: Path) -> None:
    """What a run left behind."""
    sent = told(run / "sent")
    orders = Counter((line["attempt"], line["to"]) for line in sent)
    for (attempt, name), times in orders.items():
        if times > 1:
            storm.find("double", f"round {attempt} was sent to {name} {times} times")
    attempts = {line["attempt"] for line in sent}
    if len(attempts) > ROUNDS:
        storm.find("overspent", f"{len(attempts)} rounds were sent, of {ROUNDS}")
    if not (run / "run" / "record.json").exists():
        storm.find("wrong", f"{run.name} ended without a record")
    _judge_ledger(storm, run, "server", {"sent": Counter(attempts)})
    for name in NAMES:
        did: dict[str, Counter[int]] = defaultdict(Counter)
        for line in told(run / f"{name}.told"):
            did[line["did"]][line["attempt"]] += 1
        _judge_ledger(storm, run, name, did)


def _judge_ledger(storm: Storm, run: Path, name: str, done: Mapping[str, Counter[int]]) -> None:
    """Whatever was done in a round is charged, and done once."""
    ledger = Ledger(run / f"{name}.db", create=False)
    for problem in ledger.verify(PEOPLE).problems:
        storm.find("wrong", f"{name}: verify: {problem}")
    reserved = [e.data["request"] for e in ledger.history(PEOPLE) if e.kind == "reserve"]
    ledger.close()
    charged = Counter(request["attempt"] for request in reserved)
    if len({request["run"] for request in reserved}) > 1:
        storm.find("wrong", f"{name}: one run has several names")
    for attempt, times in charged.items():
        if times > 1:
            storm.find("double", f"{name}: round {attempt} was charged {times} times")
    if len(charged) > ROUNDS:
        storm.find("overspent", f"{name}: {len(charged)} rounds are charged, of {ROUNDS}")
    for did, rounds in done.items():
        for attempt, times in rounds.items():
            if not charged[attempt]:
                storm.find("lost", f"{name}: {did} in round {attempt}, which is not charged")
            if times > 1:
                storm.find("double", f"{name}: {did} in round {attempt} {times} times")
