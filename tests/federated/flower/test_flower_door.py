"""Connections that come by the door, over real TLS on loopback."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.federated.flower.signing import signature

from sfumato.federated.flower import door
from sfumato.federated.flower.certificates import make_certificates
from sfumato.federated.flower.door import DoorServer
from sfumato.federated.flower.gate import Gate
from sfumato.federated.flower.limits import Limits
from sfumato.federated.flower.node_keys import make_node_key, read_node_public
from sfumato.federated.flower.processes import free_port, wait_until
from sfumato.federated.flower.roster import Roster

LONG = 600.0  # seconds; no limit, in a test
PATIENT = 60.0  # seconds after which a test has failed


class Served:
    """A door in a thread, and strangers before it; behind it, who says how much was sent."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        made = make_certificates(folder / "certificates")
        self.key = make_node_key(folder / "ward")
        (folder / "admitted").write_text(read_node_public(self.key.public) + "\n")
        self.context = ssl.create_default_context(cafile=str(made.authority))
        wide = {"admission": LONG, "idle": LONG}
        taken = Limits(**wide | limits)
        self.port = free_port()
        gate = Gate(_count, Roster(folder / "admitted"), taken)
        config = uvicorn.Config(
            gate, port=self.port, ws="none", lifespan="off", log_level="error",
            ssl_keyfile=str(made.key), ssl_certfile=str(made.certificate),
        )  # fmt: skip
        self.server = DoorServer(config, taken)
        self.thread = threading.Thread(target=self.server.run)

    def __enter__(self) -> Served:
        self.thread.start()
        wait_until("it listens", self._listens, timeout=PATIENT)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.thread.join(PATIENT)
        assert not self.thread.is_alive()

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), self.plain():
            return True
        return False

    @property
    def visitors(self) -> int:
        assert self.server._door is not None
        return len(self.server._door._visitors)

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENT)

    def secured(self) -> ssl.SSLSocket:
        return self.context.wrap_socket(self.plain(), server_hostname="localhost")

    def head(self, length: int = 0, *, signed: bool = True) -> bytes:
        lines = {"host": "localhost", "content-length": str(length)}
        lines |= signature(self.key.private) if signed else {}
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST /v1/fleet/pull-messages HTTP/1.1\r\n{text}\r\n".encode()

    def asks(self, line: ssl.SSLSocket, body: bytes = b"") -> str:
        """A signed request by this connection."""
        line.sendall(self.head(len(body)) + body)
        said = b""
        while b"0\r\n\r\n" not in said:
            more = line.recv(65_536)
            assert more, "the connection was closed"
            said += more
        return said.decode()


async def _count(scope: Any, receive: Any, send: Any) -> None:
    sent, more = 0, True
    while more:
        event = await receive()
        sent, more = sent + len(event.get("body", b"")), event.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{sent} bytes".encode()})


def is_closed(line: socket.socket) -> bool:
    """Waits for the end, and says whether it came."""
    try:
        while line.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:  # closed in the middle
        return True
    return True


def test_a_node_is_served_and_goes_on_by_the_same_connection(tmp_path: Path) -> None:
    with Served(tmp_path) as served, served.secured() as line:
        assert "5 bytes" in served.asks(line, b"hello")
        assert "3000000 bytes" in served.asks(line, bytes(3_000_000))


def test_a_stranger_is_answered_before_she_has_sent_her_body(tmp_path: Path) -> None:
    with Served(tmp_path) as served, served.secured() as line:
        line.sendall(served.head(300 * 2**20, signed=False))
        assert line.recv(4096).startswith(b"HTTP/1.1 401")
        assert is_closed(line)


def test_a_head_without_end_is_refused(tmp_path: Path) -> None:
    with Served(tmp_path) as served, served.secured() as line:
        with contextlib.suppress(OSError):
            line.sendall(b"POST / HTTP/1.1\r\nx: " + b"x" * 1_000_000)
        assert is_closed(line)


def test_strangers_have_little_time(tmp_path: Path) -> None:
    """They say nothing, half a handshake, no TLS at all, no request, half a request."""
    with Served(tmp_path, admission=0.5) as served:
        half = ssl.MemoryBIO()
        greeting = served.context.wrap_bio(ssl.MemoryBIO(), half, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            greeting.do_handshake()
        silent, started, other = served.plain(), served.plain(), served.plain()
        with silent, started, other, served.secured() as quiet, served.secured() as slow:
            started.sendall(half.read()[:100])
            other.sendall(b"GET / HTTP/1.1\r\n\r\n")
            slow.sendall(served.head()[:40])
            for line in (silent, started, other, quiet, slow):
                assert is_closed(line)
        wait_until("they are forgotten", lambda: served.visitors == 0, timeout=PATIENT)


def test_who_stands_still_in_the_middle_is_closed(tmp_path: Path) -> None:
    with Served(tmp_path, idle=0.5) as served, served.secured() as line:
        line.sendall(served.head(1000) + b"only the beginning")
        assert is_closed(line)
        with served.secured() as other:
            assert "5 bytes" in served.asks(other, b"hello")


def test_the_oldest_stranger_goes_when_one_too_many_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Served(tmp_path, most_strangers=3) as served, contextlib.ExitStack() as stack:
        known = stack.enter_context(served.secured())
        served.asks(known)
        strangers = [stack.enter_context(served.plain()) for _ in range(40)]
        with caplog.at_level(logging.WARNING, logger="sfumato"):
            assert all(is_closed(line) for line in strangers[:37])
            wait_until("it is told", lambda: "--most-strangers" in caplog.text, timeout=PATIENT)
        assert served.visitors == 4
        assert "5 bytes" in served.asks(known, b"hello")
        with served.secured() as newcomer:
            assert "5 bytes" in served.asks(newcomer, b"hello")
        assert is_closed(strangers[37])


def test_nobody_is_taken_in_beyond_the_most(tmp_path: Path) -> None:
    with Served(tmp_path, most_connections=2, most_strangers=2) as served:
        with served.secured() as one, served.secured() as two:
            served.asks(one)
            served.asks(two)
            with served.plain() as third:
                assert is_closed(third)
            assert "5 bytes" in served.asks(one, b"hello")
        wait_until("they are gone", lambda: served.visitors == 0, timeout=PATIENT)
        with served.secured() as other:
            served.asks(other)


def test_one_key_has_few_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_EACH", 2)
    with Served(tmp_path) as served, contextlib.ExitStack() as stack:
        lines = [stack.enter_context(served.secured()) for _ in range(3)]
        for line in lines:
            served.asks(line)
        assert is_closed(lines[0])
        assert "5 bytes" in served.asks(lines[1], b"hello")


def test_a_port_that_somebody_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Served(tmp_path) as served:
        taken = served.server.config
        again = DoorServer(taken, Limits())
        with caplog.at_level(logging.ERROR, logger="sfumato"):
            again.run()
        assert "nobody can listen" in caplog.text
