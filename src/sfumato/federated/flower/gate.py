"""What a request must be before it reaches Flower's SuperLink, judged by its head alone.

The open-source SuperLink serves three interfaces on one port: one for nodes, one for the processes
of a run, and one for control, which has no accounts: whoever reaches the port may register a node
key of his own and start a run, that is, run code on the coordinator's machine and on every node
that takes the code it is sent. The gate lets only the nodes' interface be reached from elsewhere;
the other two answer to this machine alone.

It also lets nobody send a body before it is known who sends: of a stranger's body no more is read
than what the network's buffers hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, final

from flwr.supercore.constant import TASK_TOKEN_HEADER

from sfumato.federated.flower.limits import Limits
from sfumato.federated.flower.records import PIECE
from sfumato.federated.flower.roster import CLOCK, NO_PROOF, NOT_REGISTERED, Roster, Unproved

__all__ = ["MOST", "OVER", "REFUSAL", "VISITOR", "Gate", "too_long"]

MOST = "sfumato-most-message"
"""The header of answers to nodes that says how long a message may be."""
REFUSAL = "sfumato-refusal"
"""The header of an answer that says why somebody is not let in."""
OVER = "too-long"
"""Why a request is not taken; the other reasons are the roster's."""
VISITOR = "sfumato.visitor"
"""The name in a request's state of what tells the door who it is that sent it."""

_FOR_NODES = "/v1/fleet/"
_FOR_RUNS = "/v1/runtime/"
_BEGIN, _PIECE = "/v1/fleet/push-messages", "/v1/fleet/push-object"
_HERE = frozenset({"127.0.0.1", "::1"})
_SMALL = 2**20  # bytes around a message, and of a body from this machine without a run's token
_log = logging.getLogger(__name__)

_SAID = {
    NO_PROOF: (401, "who sends this has not proved a node's key"),
    NOT_REGISTERED: (403, "this key is not registered: send node.pub to whoever serves"),
    CLOCK: (401, "the clocks of the two machines differ by more than five minutes"),
}


def too_long(most: int) -> str:
    """What is said to who sends more; by whom it can be changed, and how."""
    return (
        f"longer than the {most} bytes that this server takes: who serves can allow more "
        "(sfumato federate serve --most-message, in MiB)"
    )


def _no_task(token: str) -> bool:
    """Nobody runs here."""
    return False


@final
class Gate:
    """An ASGI application in front of another.

    Args:
        application: what is behind it.
        roster: the nodes that may come in.
        limits: how much they may send.
        runs: whether a token is that of a run on this machine; may block.
    """

    def __init__(
        self,
        application: Any,
        roster: Roster,
        limits: Limits,
        runs: Callable[[str], bool] = _no_task,
    ) -> None:
        self._application, self._roster, self._limits = application, roster, limits
        self._runs = runs
        self._sent: dict[bytes, int] = {}  # bytes of the message at hand, by key

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Passes it on, or says why not."""
        if scope["type"] == "lifespan":
            await self._application(scope, receive, send)
        if scope["type"] != "http":
            return
        length = _length(scope["headers"])
        if length is None:
            await _refuse(send, 411, NO_PROOF, "the length of the body must come before it")
        elif scope["path"].startswith(_FOR_NODES):
            await self._from_node(scope, receive, send, length)
        elif not _is_here(scope):
            await _refuse(send, 403, NO_PROOF, "not from here")
        elif length > await self._most_here(scope, length):
            await _refuse(send, 413, OVER, too_long(self._limits.most_message))
        else:
            _let_in(scope, b"")
            await self._application(scope, receive, send)

    async def _from_node(self, scope: Any, receive: Any, send: Any, length: int) -> None:
        try:
            key = self._roster.proved(scope["headers"])
        except Unproved as unproved:
            await _refuse(send, _SAID[unproved.why][0], unproved.why, _SAID[unproved.why][1])
            return
        _let_in(scope, key)
        most = self._limits.most_message
        before = self._sent.get(key, 0) if scope["path"] == _PIECE else 0
        if before + length > most + _SMALL:  # what is around the pieces is free
            _log.warning("a participant's message was %s", too_long(most))
            await _refuse(send, 413, OVER, too_long(most))
            return
        if scope["path"] in (_BEGIN, _PIECE):
            self._sent[key] = before + length
        await self._application(scope, receive, _telling(send, most))

    async def _most_here(self, scope: Any, length: int) -> int:
        """How long a body from this machine may be."""
        if length <= _SMALL or not scope["path"].startswith(_FOR_RUNS):
            return _SMALL
        token = dict(scope["headers"]).get(TASK_TOKEN_HEADER.encode(), b"").decode("latin-1")
        known = await asyncio.get_running_loop().run_in_executor(None, self._runs, token)
        return max(self._limits.most_message, PIECE) + _SMALL if known else _SMALL


def _length(headers: Any) -> int | None:
    """The body's, from the head; None if it is not said, or not a number."""
    held = [value for name, value in headers if name.lower() == b"content-length"]
    if any(name.lower() == b"transfer-encoding" for name, _ in headers):
        return None
    if not held:
        return 0  # without either there is no body
    return int(held[0]) if len(held) == 1 and held[0].isdigit() else None


def _is_here(scope: Any) -> bool:
    client, server = scope.get("client"), scope.get("server")
    if client is None:
        return False
    # A machine that talks to itself by its own address has that address at both ends.
    return client[0] in _HERE or (server is not None and client[0] == server[0])


def _let_in(scope: Any, who: bytes) -> None:
    """Tells the door that who is at this connection is no stranger."""
    tell = scope.get("state", {}).get(VISITOR)
    if tell is not None:
        tell(who)


def _telling(send: Any, most: int) -> Callable[[Any], Awaitable[None]]:
    """Adds to an answer how long messages may be."""

    async def told(event: Any) -> None:
        if event["type"] == "http.response.start":
            headers = [*event.get("headers", ()), (MOST.encode(), str(most).encode())]
            event = event | {"headers": headers}
        await send(event)

    return told


async def _refuse(send: Any, status: int, why: str, said: str) -> None:
    """Answers without a look at the body, and ends the connection."""
    body = said.encode()
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        (REFUSAL.encode(), why.encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
