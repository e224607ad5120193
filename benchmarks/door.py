"""What strangers can make a federation's server hold: memory, threads, connections, rounds.

    python benchmarks/door.py [--connections 1000] [--slow 300] [--mib 300] [--seconds 15]

A server and two participants in processes of their own, on loopback, over TLS; rounds go on all the
time. Then come, one after the other, and each for so many seconds:

- 1,000 connections at once, each with a request that proves no key;
- 1,000 connections at once, each with requests signed by one registered key;
- 300 slow ones at once: a third says nothing, a third sends half a TLS handshake, a third sends the
  head of a request letter by letter;
- two posts of 300 MiB at once, without a key, as fast as the server takes them.

Memory is the resident set of the server's process, threads are its own; both are looked at twenty
times a second, and the largest is told. "open" is the largest number of its sockets.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import os
import resource
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import ActivateNodeRequest, PullMessagesRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from sfumato.federated.flower.deployment import Coordinator, join
from sfumato.federated.flower.node import connect
from sfumato.federated.flower.node_keys import make_node_key

MODULE = '''
from pathlib import Path


class Ward:
    def answer(self, message):
        return message


def make(config, state):
    return Ward()


def rounds(engine, settings):
    """Until it is told to stop; writes how many rounds both have answered."""
    folder, done = Path(settings["folder"]), 0
    names = list(engine.wait_for(2))
    while not (folder / "stop").exists():
        messages = dict.fromkeys(names, b"x" * 100_000)
        done += all(reply.data for reply in engine.exchange(messages, timeout=60.0))
        (folder / "done.new").write_text(str(done))
        (folder / "done.new").replace(folder / "done")
    return str(done).encode()
'''
PATH = "/v1/fleet/pull-messages"


class Watch:
    """The largest of what a process holds, until it is asked.

    Args:
        pid: of the process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.memory = self.threads = self.sockets = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while True:
            memory, threads, sockets = held(self._pid)
            self.memory = max(self.memory, memory)
            self.threads = max(self.threads, threads)
            self.sockets = max(self.sockets, sockets)
            if self._stop.wait(0.05):
                return

    def end(self) -> tuple[int, int, int]:
        """What was found: MiB, threads, sockets."""
        self._stop.set()
        self._thread.join()
        return self.memory, self.threads, self.sockets


def held(pid: int) -> tuple[int, int, int]:
    """MiB, threads, sockets."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines)
    sockets = 0
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets += os.readlink(link).startswith("socket:")
    return int(facts["VmRSS"].split()[0]) // 1024, int(facts["Threads"]), sockets


class Crowd:
    """Strangers at a server.

    Args:
        address: host and port.
        authority: the server's certificate.
        key: a registered private key, for those who have one.
    """

    def __init__(self, address: str, authority: Path, key: Path) -> None:
        client, public = connect(address, authority, key)
        with client:
            request = ActivateNodeRequest(public_key=public, heartbeat_interval=600.0)
            node = Node(node_id=client.ActivateNode(request).node_id)
        self._question = PullMessagesRequest(node=node).SerializeToString()
        host, _, port = address.rpartition(":")
        self._where = host, int(port)
        self._context = ssl.create_default_context(cafile=str(authority))
        private: Any = load_ssh_private_key(key.read_bytes(), None)
        self._signer = NodeAuthHttpInterceptor(private, private.public_key())

    def secured(self) -> ssl.SSLSocket:
        """A connection after its handshake."""
        plain = socket.create_connection(self._where, timeout=10.0)
        return self._context.wrap_socket(plain, server_hostname=self._where[0])

    def head(self, length: int = 0, signed: bool = False) -> bytes:
        """Of a request with a body of this length."""
        lines = {"content-type": PROTOBUF_MEDIA_TYPE, "content-length": str(length)}
        if signed:
            lines |= self.signature()
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {PATH} HTTP/1.1\r\nhost: {self._where[0]}\r\n{text}\r\n".encode()

    def signature(self) -> dict[str, str]:
        """The headers that prove the key, now."""
        request = httpx.Request("POST", f"https://{self._where[0]}{PATH}")
        before = dict(request.headers)
        context = ProtobufRequestContext("", None, request)  # pyright: ignore[reportArgumentType]
        self._signer.intercept(context, lambda _: httpx.Response(200))
        return {name: value for name, value in request.headers.items() if name not in before}

    def ordinary(self, signed: bool, seconds: float) -> str:
        """Asks once a second, until the other side closes."""
        try:
            with self.secured() as line:
                end = time.monotonic() + seconds
                said = b""
                while time.monotonic() < end:
                    line.sendall(self.head(len(self._question), signed) + self._question)
                    got = line.recv(65_536)
                    if not got:
                        break
                    said = said or got
                    time.sleep(1.0)
            return said[9:12].decode() or "closed"
        except OSError:
            return "closed"

    def silent(self, seconds: float) -> str:
        """Connects and says nothing."""
        with socket.create_connection(self._where, timeout=seconds) as line:
            return closed(lambda: not line.recv(1))

    def half(self, seconds: float) -> str:
        """Sends half of what begins a handshake."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        greeting = self._context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            greeting.do_handshake()
        hello = outgoing.read()
        with socket.create_connection(self._where, timeout=seconds) as line:
            line.sendall(hello[: len(hello) // 2])
            return closed(lambda: not line.recv(1))

    def dribble(self, seconds: float) -> str:
        """Sends a head letter by letter."""
        try:
            with self.secured() as line:
                end = time.monotonic() + seconds
                for letter in self.head():
                    line.sendall(bytes([letter]))
                    time.sleep(0.5)
                    if time.monotonic() > end:
                        return "open"
                return "open"
        except OSError:
            return "closed"

    def post(self, mib: int) -> str:
        """A body of zeros, as fast as it is taken."""
        try:
            with self.secured() as line:
                line.settimeout(30.0)
                line.sendall(self.head(mib * 2**20))
                piece, sent = bytes(2**20), 0
                try:
                    for _ in range(mib):
                        line.sendall(piece)
                        sent += 1
                    status = line.recv(4096)[9:12].decode()
                except OSError:
                    status = "closed"
                return f"{status} after about {sent} MiB"
        except OSError:
            return "closed"


def closed(gone: Callable[[], bool]) -> str:
    try:
        return "closed" if gone() else "open"
    except TimeoutError:
        return "open"
    except OSError:
        return "closed"


def counted(found: list[str]) -> str:
    return ", ".join(f"{found.count(each)} {each}" for each in sorted(set(found)))


@contextlib.contextmanager
def federation(folder: Path) -> Iterator[tuple[Coordinator, Path]]:
    """A server and two participants; rounds go on."""
    modules = folder / "modules"
    modules.mkdir()
    (modules / "door_wards.py").write_text(MODULE)
    sys.path.insert(0, str(modules))
    with ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(folder / "server"))
        keys = [make_node_key(folder / "keys" / name) for name in ("visitor", "ward", "clinic")]
        for key in keys:
            coordinator.register(key.public)
        for key in keys[1:]:
            ward = join(
                folder / key.private.name, coordinator.address, coordinator.authority, key.private,
                "door_wards:make", {},
            )  # fmt: skip
            stack.callback(ward.stop)
        leading = coordinator.lead("door_wards:rounds", {"folder": str(folder)}, least=2)
        until(lambda: rounds(folder) > 2, "rounds")
        yield coordinator, keys[0].private
        (folder / "stop").touch()
        leading.wait(120.0)


def rounds(folder: Path) -> int:
    done = folder / "done"
    return int(done.read_text()) if done.exists() else 0


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 120.0
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def answers(coordinator: Coordinator) -> bool:
    """Whether somebody new gets an answer."""
    host, _, port = coordinator.address.rpartition(":")
    context = ssl.create_default_context(cafile=str(coordinator.authority))
    line = http.client.HTTPSConnection(host, int(port), context=context, timeout=10.0)
    with contextlib.closing(line):
        line.request("GET", "/v1/fleet/")
        return line.getresponse().status > 0


def measure(arguments: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        ThreadPoolExecutor(max(arguments.connections, arguments.slow)) as many,
        federation(Path(name)) as (coordinator, key),
    ):
        folder, pid = Path(name), coordinator.superlink.process.pid
        crowd = Crowd(coordinator.address, coordinator.authority, key)
        seconds = arguments.seconds

        def row(what: str, during: Callable[[], str]) -> None:
            watch, done, began = Watch(pid), rounds(folder), time.monotonic()
            said = during()
            rate = (rounds(folder) - done) / (time.monotonic() - began)
            memory, threads, sockets = watch.end()
            print(
                f"| {what} | {memory} | {threads} | {sockets} | {rate:.1f} | {said} |", flush=True
            )

        def quiet() -> str:
            """Five seconds, and until the participants have answered one round more."""
            done = rounds(folder)
            time.sleep(5.0)
            until(lambda: rounds(folder) > done, "a round")
            return "somebody new is answered" if answers(coordinator) else "no answer"

        def all_of(number: int, one: Callable[[int], str]) -> str:
            return counted(list(many.map(one, range(number))))

        ways = (crowd.silent, crowd.half, crowd.dribble)
        print("| | MiB | threads | open | rounds a second | what came of it |")
        print("| --- | ---: | ---: | ---: | ---: | --- |")
        row("before", quiet)
        number, slow = arguments.connections, arguments.slow
        row(
            f"{number:,} connections without a key",
            lambda: all_of(number, lambda _: crowd.ordinary(False, seconds)),
        )
        row("after them", quiet)
        row(
            f"{number:,} connections with one key",
            lambda: all_of(number, lambda _: crowd.ordinary(True, seconds)),
        )
        row("after them", quiet)
        row(f"{slow} slow ones", lambda: all_of(slow, lambda one: ways[one % 3](seconds)))
        row("after them", quiet)
        row(
            f"two posts of {arguments.mib} MiB",
            lambda: all_of(2, lambda _: crowd.post(arguments.mib)),
        )
        row("after them", quiet)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--slow", type=int, default=300)
    parser.add_argument("--mib", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=15.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    measure(parser.parse_args())


if __name__ == "__main__":
    main()
