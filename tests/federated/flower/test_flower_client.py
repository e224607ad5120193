"""A participant as a ClientApp."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from sfumato.federated.flower.client import FAILED, STATE_FOLDER, client_app
from sfumato.federated.flower.grid import MESSAGE_TYPE
from sfumato.federated.flower.records import bytes_of, content_of


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    yield
    TaskIdentity._run_id = TaskIdentity._node_id = TaskIdentity._task_id = None


class Counter:
    def __init__(self, config: Mapping[str, object], state: MutableMapping[str, bytes]) -> None:
        self.state = state
        self.ward = str(config.get("ward", "?")).encode()

    def answer(self, message: bytes) -> bytes:
        seen = int(self.state.get("seen", b"0")) + 1
        self.state["seen"] = str(seen).encode()
        if message == b"fail":
            raise ValueError("row 17: Ada Lovelace, 1815")
        return b"%s %s %d" % (message, self.ward, seen)


def context(**config: str) -> Context:
    node_config = {name.replace("_", "-"): value for name, value in config.items()}
    return Context(1, 2, dict(node_config), RecordDict(), {})


def ask(data: bytes, where: Context, make: object = Counter) -> Message:
    message = Message(content_of(data), 2, MESSAGE_TYPE)
    message.metadata.__dict__["_message_id"] = "1"
    return client_app(make)(message, where)  # type: ignore[arg-type]


def test_she_answers_and_remembers_in_the_context() -> None:
    where = context(ward="A")
    assert bytes_of(ask(b"hello", where).content) == b"hello A 1"
    assert bytes_of(ask(b"hello", where).content) == b"hello A 2"
    assert bytes_of(ask(b"hello", context()).content) == b"hello ? 1"


def test_with_a_folder_she_remembers_there(tmp_path: Path) -> None:
    for seen in (1, 2):
        where = context(state_folder=str(tmp_path / "state"))
        assert STATE_FOLDER in where.node_config
        assert bytes_of(ask(b"hello", where).content) == b"hello ? %d" % seen
        assert not where.state


def test_what_went_wrong_stays_with_her(caplog: pytest.LogCaptureFixture) -> None:
    where = context()
    with caplog.at_level(logging.ERROR):
        reply = ask(b"fail", where)
    assert reply.has_error()
    assert reply.error.reason == FAILED
    assert "Ada" in caplog.text  # in her own log
    assert bytes_of(ask(b"hello", where).content) == b"hello ? 2"


def test_who_cannot_be_made_says_so_in_the_same_words(tmp_path: Path) -> None:
    def make(config: object, state: object) -> Counter:
        raise FileNotFoundError("/home/ada/records.csv")

    assert ask(b"hello", context(), make).error.reason == FAILED
    file = tmp_path / "file"
    file.touch()
    assert ask(b"hello", context(state_folder=str(file / "x"))).error.reason == FAILED
