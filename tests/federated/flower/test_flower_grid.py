"""The engine over a Grid, against a grid of our own making."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from sfumato.federated.flower.grid import MESSAGE_TYPE, GridEngine
from sfumato.federated.flower.records import bytes_of, content_of

Answer = Callable[[Message], Message | None]


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    """A ServerApp's process has one; None before and after."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    yield
    TaskIdentity._run_id = TaskIdentity._node_id = TaskIdentity._task_id = None


class FakeGrid(Grid):
    """Nodes are functions; one that returns None has not answered yet."""

    def __init__(self, nodes: dict[int, Answer], *, blocked: set[int] | None = None) -> None:
        self.nodes = nodes
        self.blocked = blocked or set()
        self.sent: dict[str, Message] = {}
        self.release = threading.Event()

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *arguments: Any, **more: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *arguments: Any, **more: Any) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return set(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        identifiers: list[str] = []
        for message in messages:
            identifier = f"message {len(self.sent)}"
            message.metadata.__dict__["_message_id"] = identifier
            known = message.metadata.dst_node_id in self.nodes
            if known:
                self.sent[identifier] = message
            identifiers.append(identifier if known else "")
        return identifiers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        found: list[Message] = []
        for identifier in message_ids:
            message = self.sent[identifier]
            node = message.metadata.dst_node_id
            if node in self.blocked:
                self.release.wait(30.0)
            reply = self.nodes[node](message)
            if reply is not None:
                found.append(reply)
        return found


def echo(message: Message) -> Message:
    return Message(content_of(bytes_of(message.content).upper()), reply_to=message)


def broken(message: Message) -> Message:
    return Message(Error(2, "the participant could not answer"), reply_to=message)


def foreign(message: Message) -> Message:
    return Message(RecordDict(), reply_to=message)


def silent(message: Message) -> None:
    return None


def test_each_gets_her_own_message_and_one_reply_comes_back() -> None:
    grid = FakeGrid({11: echo, 2: echo, 3: echo})
    engine = GridEngine(grid)
    assert engine.participants() == ["2", "3", "11"]
    replies = list(engine.exchange({"2": b"a", "11": b"b"}, timeout=30.0))
    assert {reply.name: reply.data for reply in replies} == {"2": b"A", "11": b"B"}
    assert {message.metadata.message_type for message in grid.sent.values()} == {MESSAGE_TYPE}


def test_faults_are_replies_without_data() -> None:
    engine = GridEngine(FakeGrid({1: echo, 2: broken, 3: foreign, 4: silent}))
    messages = dict.fromkeys(["1", "2", "3", "4", "5", "nobody"], b"a")
    replies = {reply.name: reply for reply in engine.exchange(messages, timeout=1.0)}
    assert set(replies) == set(messages)
    assert replies["1"].data == b"A"
    assert replies["1"].error == ""
    assert all(replies[name].data is None for name in messages if name != "1")
    assert "could not answer" in replies["2"].error
    assert "empty" in replies["3"].error
    assert "no answer within 1 s" in replies["4"].error
    assert replies["5"].error == replies["nobody"].error == "not there"


def test_a_reply_that_is_too_long_counts_as_none() -> None:
    engine = GridEngine(FakeGrid({1: echo}), most_bytes=3)
    (reply,) = engine.exchange({"1": b"four"}, timeout=30.0)
    assert reply.data is None
    assert "more than 3 bytes" in reply.error


def test_who_blocks_the_pull_delays_nobody_else() -> None:
    grid = FakeGrid({1: echo, 2: echo, 3: echo}, blocked={2})
    try:
        replies = GridEngine(grid).exchange(dict.fromkeys("123", b"a"), timeout=25.0)
        assert {next(replies).name, next(replies).name} == {"1", "3"}
        grid.release.set()
        assert next(replies).name == "2"
    finally:
        grid.release.set()


def test_more_participants_than_lanes() -> None:
    engine = GridEngine(FakeGrid(dict.fromkeys(range(50), echo)), lanes=3)
    replies = list(engine.exchange({str(node): b"a" for node in range(50)}, timeout=30.0))
    assert sorted(int(reply.name) for reply in replies) == list(range(50))
    assert all(reply.data == b"A" for reply in replies)


def test_messages_expire_with_the_timeout() -> None:
    grid = FakeGrid({1: echo})
    list(GridEngine(grid).exchange({"1": b"a"}, timeout=7.0))
    (message,) = grid.sent.values()
    assert message.metadata.ttl == 7.0


def test_a_caller_who_leaves_early_leaves_no_listeners() -> None:
    grid = FakeGrid({1: echo, 2: silent})
    replies = GridEngine(grid).exchange({"1": b"a", "2": b"a"}, timeout=60.0)
    assert next(replies).name == "1"
    before = threading.active_count()
    replies.close()  # type: ignore[attr-defined]
    end = time.monotonic() + 30.0
    while threading.active_count() >= before and time.monotonic() < end:
        time.sleep(0.05)
    assert threading.active_count() < before


def test_a_broken_way_to_the_superlink_is_an_error() -> None:
    def lost(message: Message) -> Message:
        raise ConnectionError("no SuperLink")

    with pytest.raises(ConnectionError):
        list(GridEngine(FakeGrid({1: lost})).exchange({"1": b"a"}, timeout=30.0))


def test_waiting_for_participants() -> None:
    engine = GridEngine(FakeGrid({1: echo, 2: echo}))
    assert engine.wait_for(2) == ["1", "2"]
    with pytest.raises(TimeoutError, match="3 are needed"):
        engine.wait_for(3, timeout=0.2)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_bad_timeouts(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        list(GridEngine(FakeGrid({})).exchange({}, timeout=timeout))


def test_who_waits_is_told_how_many_are_there() -> None:
    grid = FakeGrid({})
    told: list[int] = []

    def watch(present: int) -> None:
        told.append(present)
        grid.nodes[len(grid.nodes)] = lambda message: None

    assert len(GridEngine(grid).wait_for(3, timeout=60.0, watch=watch)) == 3
    assert told == [0, 1, 2]
