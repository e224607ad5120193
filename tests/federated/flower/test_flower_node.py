"""A node whose coordinator is not there, is back, or has gone."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.app import Message
from flwr.proto.fleet_pb2 import ActivateNodeResponse, PullMessagesResponse
from flwr.supercore.task_identity import TaskIdentity

from sfumato.federated.flower.certificates import make_certificates
from sfumato.federated.flower.gate import MOST
from sfumato.federated.flower.grid import MESSAGE_TYPE
from sfumato.federated.flower.node import Heard, Node, RefusedError, _Line, connect
from sfumato.federated.flower.node_keys import make_node_key, read_node_public
from sfumato.federated.flower.processes import free_port, wait_until
from sfumato.federated.flower.records import content_of
from sfumato.federated.refusals import TOO_LONG, is_public


class Gone:
    """A SuperLink's client: it lets a node in, and then there is nobody."""

    def __init__(self, error: Exception) -> None:
        self.error, self.calls = error, 0

    def ActivateNode(self, request: Any) -> ActivateNodeResponse:  # noqa: N802
        return ActivateNodeResponse(node_id=7)

    def _fail(self, request: Any) -> Any:
        self.calls += 1
        raise self.error

    PullMessages = SendNodeHeartbeat = DeactivateNode = _fail


def node(client: Any, address: str = "lab.example.org:8000") -> Node:
    return Node(client, b"key", None, {}, state={}, book={}, address=address)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_nobody_answers_and_she_is_told_to_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By the real client, at a port where nobody listens."""
    authority = make_certificates(tmp_path / "certificates").authority
    address = f"127.0.0.1:{free_port()}"
    client, public = connect(address, authority, make_node_key(tmp_path / "node").private)
    one = Node(client, public, None, {}, state={}, book={}, address=address)
    with client, caplog.at_level(logging.INFO):
        thread = threading.Thread(target=one.run)
        thread.start()
        wait_until("it is said", lambda: "nobody" in caplog.text, timeout=60.0)
        one.stop()
        thread.join(60.0)
    assert not thread.is_alive()
    assert messages(caplog) == [f"nobody answers at {address}, trying again"]


def test_leaving_when_nobody_is_left_to_be_told(caplog: pytest.LogCaptureFixture) -> None:
    gone = Gone(httpx.ConnectError("refused"))
    one = node(gone)
    with caplog.at_level(logging.INFO):
        thread = threading.Thread(target=one.run)
        thread.start()
        wait_until("it was tried", lambda: gone.calls > 0, timeout=60.0)
        one.stop()
        thread.join(60.0)
    assert not thread.is_alive()
    assert messages(caplog)[-2:] == [
        "nobody answers at lab.example.org:8000, trying again",
        "left; nobody answers at lab.example.org:8000 to be told so",
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_a_stranger_behind_the_address_ends_it() -> None:
    one = node(Gone(httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] no")))
    with pytest.raises(RefusedError, match="not our SuperLink"):
        one.run()


def test_a_line_that_breaks_is_said_once_each_way(caplog: pytest.LogCaptureFixture) -> None:
    line = _Line("lab:1")
    request = httpx.Request("GET", "https://lab:1")
    with caplog.at_level(logging.INFO):
        line.answered()
        assert not line.broken
        pauses = [line.failed(httpx.ConnectError("refused")) for _ in range(8)]
        assert line.broken
        line.failed(httpx.HTTPStatusError("", request=request, response=httpx.Response(503)))
        line.answered()
        line.answered()
        line.failed(httpx.HTTPStatusError("", request=request, response=httpx.Response(500)))
    assert pauses == [1, 2, 4, 8, 16, 30, 30, 30]
    assert messages(caplog) == [
        "nobody answers at lab:1, trying again",
        "back: lab:1 answers again",
        "lab:1 answers 500, trying again",
    ]


def test_a_node_that_was_silent_says_first_that_it_is_there() -> None:
    calls: list[str] = []

    class Back:
        def SendNodeHeartbeat(self, request: Any) -> None:  # noqa: N802
            calls.append("heartbeat")

        def PullMessages(self, request: Any) -> PullMessagesResponse:  # noqa: N802
            calls.append("pull")
            return PullMessagesResponse()

    one = node(Back())
    one._line.failed(httpx.ConnectError("refused"))
    one._turn(0.1)
    one._turn(0.1)
    assert calls == ["heartbeat", "pull", "pull"]


@pytest.mark.parametrize(("why", "told"), [("not-registered", "--node"), ("clock", "clocks")])
def test_a_refusal_that_will_not_change_ends_it_at_once(why: str, told: str) -> None:
    """Patience is for what may change: here it would last for an hour."""
    answer = httpx.Response(403, headers={"sfumato-refusal": why})
    error = httpx.HTTPStatusError("", request=httpx.Request("POST", "https://x"), response=answer)
    gone = Gone(error)
    with pytest.raises(RefusedError, match=told) as refused:
        node(gone).run(patience=3600.0)
    assert "lab.example.org:8000" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert gone.calls == 1

    class Refusing(Gone):
        ActivateNode = Gone._fail

    with pytest.raises(RefusedError, match=told):
        node(Refusing(error)).run(patience=3600.0)


def test_she_does_not_send_what_the_server_would_not_take(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)

    class Talker:
        def answer(self, message: bytes) -> bytes:
            return bytes(int(message))

    heard = Heard()
    talker = Node(None, b"", lambda *_: Talker(), {}, state={}, book={}, heard=heard)  # pyright: ignore[reportArgumentType]

    def replies(length: int) -> Message:
        message = Message(content_of(b"%d" % length), 1, MESSAGE_TYPE)
        message.metadata.__dict__["_message_id"] = "1"
        return talker._answer(message)

    for said, most in (("", None), ("soon", None), ("1000", 1000)):
        heard.intercept(None, lambda _, said=said: httpx.Response(200, headers={MOST: said}))  # pyright: ignore[reportArgumentType]
        assert heard.most == most
    assert not replies(1000).has_error()
    reply = replies(1001)
    assert reply.has_error()
    assert reply.error.reason == TOO_LONG
    assert is_public(TOO_LONG)
    assert "--most-message" in TOO_LONG
    assert "her message of 1001 bytes is longer than the 1000 bytes" in caplog.text
    assert "--most-message" in caplog.text


def test_reading_a_public_key(tmp_path: Path) -> None:
    key = make_node_key(tmp_path / "node")
    assert read_node_public(key.public).startswith("ecdsa-sha2-nistp384 ")
    for wrong, told in ((key.private, "give"), (tmp_path, "no "), (tmp_path / "x", "no ")):
        with pytest.raises(ValueError, match=told):
            read_node_public(wrong)
