"""The server's door: it takes connections in, counts them, and closes those that lead nowhere.

uvicorn accepts whoever comes, waits a minute for the end of a TLS handshake, and for ever for what
is to follow. Here a connection is a stranger until a request has proved who sends it
(:mod:`~sfumato.federated.flower.gate`). Strangers are few and have little time, so whatever they
do, they hold no more than ``most_strangers`` connections and their buffers, and no thread.

When one stranger too many comes, the oldest one from the address with the most of them goes, and
not the newcomer: who has a key has proved it within milliseconds, and who waits is overtaken.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Any, final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sfumato.federated.flower.gate import VISITOR
from sfumato.federated.flower.limits import Limits

__all__ = ["Door", "DoorServer", "Visitor"]

_AT_ONCE = 32  # connections taken in before anything else; who is overtaken costs no handshake
_BACKLOG = 512  # that the kernel keeps until they are looked at
_EACH = 32  # connections of one key: a node uses two, and eight while it sends a long message
_LOOK = 0.5  # seconds between two looks at who is there
_TELL = 60.0  # seconds between two lines of the log
_GOODBYE = 1.0  # seconds for the end of TLS
_LEAVE = 3.0  # seconds for requests at hand, when the server ends
_log = logging.getLogger(__name__)


@final
class Visitor:
    """One connection.

    Args:
        connection: its socket.
        address: of the other end.
        now: the loop's time.
    """

    def __init__(self, connection: socket.socket, address: str, now: float) -> None:
        self.connection, self.address = connection, address
        self.since = self.moved = now
        self.who: bytes | None = None  # a key; empty for this machine, None for a stranger
        self.received = 0
        self.protocol: GuardedProtocol | None = None
        self.greeting: asyncio.Task[None] | None = None
        self._seen = (0, 0)

    @property
    def stranger(self) -> bool:
        """Whether no request has proved yet who is there."""
        return self.who is None

    def look(self, now: float) -> None:
        """Notes whether anything has moved since the last look."""
        protocol = self.protocol
        if protocol is None:
            return
        unsent = protocol.transport.get_write_buffer_size()
        seen = (self.received, unsent)
        if seen != self._seen or (not unsent and protocol.at_work()):
            self._seen, self.moved = seen, now

    def close(self) -> None:
        """Ends it at once, whatever it is doing."""
        if self.greeting is not None:
            self.greeting.cancel()
        if self.protocol is not None:
            self.protocol.transport.abort()
        with contextlib.suppress(OSError):  # it may have been closed already
            self.connection.shutdown(socket.SHUT_RDWR)


class GuardedProtocol(H11Protocol):
    """uvicorn's HTTP, which tells the door what comes and when it ends.

    h11 takes heads of 16 KiB at most, and stops reading where nobody asks for a body.
    """

    visitor: Visitor
    left: Callable[[Visitor], None]

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        super().connection_made(transport)
        self.visitor.protocol = self

    def data_received(self, data: bytes) -> None:
        self.visitor.received += len(data)
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.left(self.visitor)
        super().connection_lost(exc)

    def at_work(self) -> bool:
        """Whether it is the server that is to act next."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.more_body and not cycle.response_complete


@final
class Door:
    """Keeps a listener.

    Args:
        limits: of what it takes in.
        context: the server's certificate and key.
        protocol: makes what speaks HTTP with a visitor.
    """

    def __init__(
        self,
        limits: Limits,
        context: ssl.SSLContext,
        protocol: Callable[[Visitor], GuardedProtocol],
    ) -> None:
        self._limits, self._context, self._protocol = limits, context, protocol
        self._visitors: dict[Visitor, None] = {}  # in the order in which they came
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed: Counter[str] = Counter()
        self._told = float("-inf")
        self._listeners: list[socket.socket] = []

    async def open(self, host: str, port: int) -> None:
        """Listens, until it is closed."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            listener = socket.create_server(address, family=family, backlog=_BACKLOG)
            listener.setblocking(False)
            self._listeners.append(listener)
            self._begin(self._take_in(listener))
        self._begin(self._watch())

    def close(self) -> None:
        """Stops listening, and ends the connections of strangers."""
        for task in self._tasks:
            task.cancel()
        for listener in self._listeners:
            listener.close()
        for visitor in [each for each in self._visitors if each.stranger]:
            visitor.close()

    def let_in(self, visitor: Visitor, who: bytes) -> None:
        """A request proved whose connection it is; empty for this machine's own."""
        visitor.who = who
        theirs = [each for each in self._visitors if each.who == who] if who else []
        if len(theirs) > _EACH:
            self._end(theirs[0], f"were one too many of one key (more than {_EACH})")

    def left(self, visitor: Visitor) -> None:
        """A connection is over."""
        self._visitors.pop(visitor, None)

    def _begin(self, what: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _take_in(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in itertools.count():
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)  # those who are there have their turn, however many come
            try:
                connection, address = await loop.sock_accept(listener)
            except OSError as error:  # it went before it was looked at, or files have run out
                self._note(f"could not be taken in ({error.strerror})")
                await asyncio.sleep(0.1)
                continue
            visitor = Visitor(connection, str(address[0]), loop.time())
            self._visitors[visitor] = None
            if self._make_room(visitor):
                visitor.greeting = self._begin(self._greet(visitor))

    def _make_room(self, newcomer: Visitor) -> bool:
        """Whether the newcomer may stay."""
        strangers = [each for each in self._visitors if each.stranger]
        full = len(self._visitors) > self._limits.most_connections
        if len(strangers) <= self._limits.most_strangers and not full:
            return True
        (crowded, _), *_ = Counter(each.address for each in strangers).most_common(1)
        oldest = next(each for each in strangers if each.address == crowded)
        known = "connections" if full else "strangers"
        self._end(oldest, f"were one too many (--most-{known})")
        if oldest is not newcomer:
            return True
        newcomer.connection.close()
        return False

    async def _greet(self, visitor: Visitor) -> None:
        """The TLS handshake; after it the protocol has the connection."""
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(
                lambda: self._protocol(visitor),
                visitor.connection,
                ssl=self._context,
                ssl_handshake_timeout=self._limits.admission,
                ssl_shutdown_timeout=_GOODBYE,
            )
        except (Exception, asyncio.CancelledError):  # whatever came was no TLS of ours
            self.left(visitor)
        finally:
            visitor.greeting = None

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_LOOK)
            now = loop.time()
            for visitor in list(self._visitors):
                visitor.look(now)
                if visitor.stranger and now - visitor.since > self._limits.admission:
                    self._end(visitor, "did not prove a key in time (--admission)")
                elif not visitor.stranger and now - visitor.moved > self._limits.idle:
                    self._end(visitor, "stood still (--idle)")
            self._tell(now)

    def _end(self, visitor: Visitor, why: str) -> None:
        self._note(why)
        self.left(visitor)
        visitor.close()

    def _note(self, why: str) -> None:
        self._closed[why] += 1

    def _tell(self, now: float) -> None:
        """One line a minute at most: a crowd must not fill the disk."""
        if not self._closed or now - self._told < _TELL:
            return
        said = ", ".join(f"{count} {why}" for why, count in self._closed.most_common())
        here = Counter(each.stranger for each in self._visitors)
        _log.warning(
            "connections closed: %s; open: %d let in, %d strangers", said, here[False], here[True]
        )
        self._closed.clear()
        self._told = now


@final
class DoorServer(uvicorn.Server):
    """uvicorn's server, whose connections come in by a door.

    Args:
        config: with a certificate; it binds no socket itself.
        limits: of the door.
    """

    def __init__(self, config: uvicorn.Config, limits: Limits) -> None:
        super().__init__(config)
        self._limits = limits
        self._door: Door | None = None
        config.timeout_graceful_shutdown = round(_LEAVE)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts what is behind the door, and then opens it."""
        await super().startup(sockets=[])  # without listeners of its own
        if self.should_exit:
            return
        assert self.config.ssl is not None
        self._door = Door(self._limits, self.config.ssl, self._protocol)
        try:
            await self._door.open(self.config.host, self.config.port)
        except OSError as error:
            _log.error("nobody can listen at %s:%d: %s", self.config.host, self.config.port, error)
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Closes the door, and lets those inside finish."""
        if self._door is not None:
            self._door.close()
        await super().shutdown(sockets)

    def _protocol(self, visitor: Visitor) -> GuardedProtocol:
        assert self._door is not None
        tell = functools.partial(self._door.let_in, visitor)
        made = GuardedProtocol(
            self.config, self.server_state, {**self.lifespan.state, VISITOR: tell}
        )
        made.visitor, made.left = visitor, self._door.left
        return made
