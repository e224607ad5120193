"""An engine over Flower's Grid: what a coordinator sees inside a ServerApp.

Participants are called by their node ids. A reply is yielded as soon as it is there; whoever is
offline, answers with an error, sends what is not ours, or is late is a reply without data.

Replies are asked for in several lanes, each a thread of its own: Flower's pull waits for a node
that has announced a reply and not yet delivered it (for up to three minutes), and everybody else
in the same request waits with it. A lane holds one participant unless there are more than lanes.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, final

from flwr.app import Message
from flwr.common.constant import ErrorCode

from sfumato.core import validation
from sfumato.federated.exchange import Reply
from sfumato.federated.flower.records import bytes_of, content_of
from sfumato.federated.refusals import FAILED, is_public
from sfumato.federated.wire import Malformed

if TYPE_CHECKING:
    from flwr.serverapp import Grid

__all__ = ["MESSAGE_TYPE", "GridEngine"]

MESSAGE_TYPE = "query.sfumato"
_PAUSES = (0.05, 1.0)  # seconds between two looks at a lane: at first, and at most
_LONGEST = 200  # of a reason that is shown


def _nobody(present: int) -> None:
    """Nobody watches."""


@final
class GridEngine:
    """Carries a protocol's messages over a Grid.

    Args:
        grid: what Flower hands to a ServerApp.
        lanes: how many participants are listened to independently of each other.
        most_bytes: a reply longer than this counts as none; None for no limit.
    """

    def __init__(self, grid: Grid, *, lanes: int = 32, most_bytes: int | None = None) -> None:
        self._grid = grid
        self._lanes = validation.count("lanes", lanes)
        self._most_bytes = most_bytes

    def participants(self) -> Sequence[str]:
        """Those who are online, by their number."""
        return [str(node) for node in sorted(self._grid.get_node_ids())]

    def wait_for(
        self, least: int, *, timeout: float = 600.0, watch: Callable[[int], None] = _nobody
    ) -> Sequence[str]:
        """Waits until at least so many are online.

        Args:
            least: how many.
            timeout: seconds.
            watch: is told how many are there, whenever that changes.

        Raises:
            TimeoutError: if they are not within so many seconds.
        """
        end, last = time.monotonic() + timeout, -1
        while len(present := self.participants()) < least:
            if len(present) != last:
                last = len(present)
                watch(last)
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{len(present)} participants within {timeout:g} s, {least} are needed"
                )
            time.sleep(0.1)
        return present

    def exchange(self, messages: Mapping[str, bytes], *, timeout: float = 600.0) -> Iterator[Reply]:
        """Sends each its message, and yields one reply for each, as they come.

        A message that was not fetched within the timeout expires: nobody acts on it later.
        """
        timeout = validation.positive("timeout", timeout)
        end = time.monotonic() + timeout
        waiting: dict[str, str] = {}
        for name, data in messages.items():
            identifier = self._push(name, data, timeout)
            if identifier is None:
                yield Reply(name, None, "not there")
            else:
                waiting[identifier] = name
        yield from self._replies(waiting, end, timeout)

    def _push(self, name: str, data: bytes, timeout: float) -> str | None:
        """The message's identifier, or None if there is nobody of that name."""
        try:
            node = int(name)
        except ValueError:
            return None
        message = Message(content_of(data), node, MESSAGE_TYPE, ttl=timeout)
        identifiers = list(self._grid.push_messages([message]))
        return identifiers[0] if identifiers and identifiers[0] else None

    def _replies(self, waiting: dict[str, str], end: float, timeout: float) -> Iterator[Reply]:
        arrived: queue.SimpleQueue[Message | Exception] = queue.SimpleQueue()
        stop = threading.Event()
        lanes = [list(waiting)[lane :: self._lanes] for lane in range(self._lanes)]
        for lane in filter(None, lanes):
            threading.Thread(
                target=self._listen, args=(set(lane), arrived, stop), daemon=True
            ).start()
        try:
            while waiting and (left := end - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    message = arrived.get(timeout=left)
                    if isinstance(message, Exception):
                        raise message  # the way to the SuperLink is broken, not one participant
                    name = waiting.pop(message.metadata.reply_to_message_id, None)
                    if name is not None:
                        yield self._read(name, message)
            for name in waiting.values():
                yield Reply(name, None, f"no answer within {timeout:g} s")
        finally:
            stop.set()

    def _listen(
        self,
        identifiers: set[str],
        arrived: queue.SimpleQueue[Message | Exception],
        stop: threading.Event,
    ) -> None:
        pause, longest = _PAUSES
        while identifiers and not stop.is_set():
            try:
                found = list(self._grid.pull_messages(set(identifiers)))
            except Exception as error:
                arrived.put(error)
                return
            for message in found:
                identifiers.discard(message.metadata.reply_to_message_id)
                arrived.put(message)
            stop.wait(pause)
            pause = min(pause * 1.3, longest)

    def _read(self, name: str, message: Message) -> Reply:
        if message.has_error():
            return Reply(name, None, _why(message.error.code, message.error.reason or ""))
        try:
            return Reply(name, bytes_of(message.content, most_bytes=self._most_bytes))
        except Malformed as error:
            return Reply(name, None, str(error))


def _why(code: int, reason: str) -> str:
    """For the operator: a participant's reason if it is on the list, and Flower's own as it is."""
    if is_public(reason):
        return reason
    if code == ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
        return FAILED
    shown = "".join(letter if letter.isprintable() else " " for letter in reason[:_LONGEST])
    return f"{shown} (Flower's code {code})"
