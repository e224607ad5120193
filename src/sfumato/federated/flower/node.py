"""A participant's node: ``python -m sfumato.federated.flower.node NODE.json``.

It speaks a SuperNode's part with a SuperLink (Flower's own client, TLS, node key, heartbeats) and
differs from ``flower-supernode`` in four ways.

- It runs the participant's own code and never code that is sent to it. A SuperNode runs whatever
  app the coordinator's side ships, which could read all of the data.
- It answers in its own process, and looks for messages several times a second: an exchange takes
  a fraction of a second instead of several.
- What the participant remembers is on the disk before her answer leaves. A node that was killed
  while it answered says so when it comes back, instead of letting the coordinator wait.
- It is known to be gone after 20 seconds instead of 60.

It waits for a SuperLink that is not there (yet, or for a while), says so once, and asks ever less
often, every half a minute at least. It ends if it is refused: at once where the server says that
its key is not registered, or that the clocks differ.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any, final

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import Node as ProtoNode
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from sfumato.federated.exchange import Participant
from sfumato.federated.flower.client import failure, reply_to
from sfumato.federated.flower.gate import MOST, OVER, REFUSAL, too_long
from sfumato.federated.flower.grid import MESSAGE_TYPE
from sfumato.federated.flower.naming import named
from sfumato.federated.flower.records import length_of
from sfumato.federated.flower.roster import CLOCK, NOT_REGISTERED
from sfumato.federated.flower.state import FolderState
from sfumato.federated.refusals import TOO_LONG

__all__ = ["Heard", "Node", "RefusedError", "connect", "main"]

_HEARTBEAT = 10.0  # Flower's least; a node counts as gone after two
_PAUSES = (0.1, 1.0)  # seconds between two looks: after a message, and when nothing happens
_LONGEST = 30.0  # seconds between two tries while nobody answers
_GATEWAY = (502, 503, 504)  # somebody answers for one who is not there
_log = logging.getLogger(__name__)


@final
class RefusedError(PermissionError):
    """The SuperLink does not want this node, or is not who it should be."""


@final
class Heard:
    """What the server's answers say of how long a message may be.

    Attributes:
        most: bytes; None as long as nothing was said.
    """

    def __init__(self) -> None:
        self.most: int | None = None

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Looks at an answer on its way (Flower calls it)."""
        response = call_next(context)
        said = response.headers.get(MOST, "")
        if said.isascii() and said.isdigit():
            self.most = int(said)
        return response


@final
class _Line:
    """Whether somebody answers at the other end; what is said of that is said once.

    Args:
        address: of the other end.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._last, self._pause = "", 0.0

    @property
    def broken(self) -> bool:
        """Whether nobody answered when it was last tried."""
        return bool(self._last)

    def failed(self, error: httpx.HTTPError) -> float:
        """Seconds to wait before the next try."""
        said = f"nobody answers at {self.address}"
        if isinstance(error, httpx.HTTPStatusError):
            status = error.response.status_code
            said = said if status in _GATEWAY else f"{self.address} answers {status}"
        if said != self._last:
            _log.warning("%s, trying again", said)
        self._last, self._pause = said, min(max(1.0, 2 * self._pause), _LONGEST)
        return self._pause

    def answered(self) -> None:
        """Somebody did."""
        if self._last:
            _log.info("back: %s answers again", self.address)
        self._last, self._pause = "", 0.0


@final
class Node:
    """Answers a SuperLink's messages until it is told to stop.

    Args:
        client: the way to the SuperLink.
        public_key: by which it knows this node.
        make: makes the participant.
        config: the node's configuration.
        state: what the participant remembers.
        book: what the node itself remembers.
        address: of the SuperLink, for the log.
        heard: how long its messages may be.
    """

    def __init__(
        self,
        client: FleetHttpClient,
        public_key: bytes,
        make: Any,
        config: Mapping[str, object],
        *,
        state: MutableMapping[str, bytes],
        book: MutableMapping[str, bytes],
        address: str = "the SuperLink",
        heard: Heard | None = None,
    ) -> None:
        self._line, self._heard = _Line(address), heard or Heard()
        self._client, self._public_key = client, public_key
        self._make, self._config, self._state, self._book = make, config, state, book
        self._participant: Participant | None = None
        self._node = ProtoNode()
        self._stop = threading.Event()

    def stop(self) -> None:
        """Tells it to stop after the message at hand."""
        self._stop.set()

    def run(self, *, patience: float = 25.0) -> None:
        """Joins, answers, and leaves when told to.

        Args:
            patience: seconds for which a refusal to let it in may be due to a predecessor that was
                killed and is not yet known to be gone.

        Raises:
            RefusedError: if it is not let in.
        """
        if not self._activate(patience):
            return
        _log.info("node %d is in", self._node.node_id)
        threading.Thread(target=self._beat, daemon=True).start()
        pause = _PAUSES[0]
        while not self._stop.is_set():
            pause = self._turn(pause)
            self._stop.wait(pause)
        try:
            self._leave(self._node.node_id)
        except httpx.TransportError:
            _log.info("left; nobody answers at %s to be told so", self._line.address)
        else:
            _log.info("left")

    def _turn(self, pause: float) -> float:
        """Looks for a message once; how long to wait before the next look."""
        try:
            if self._line.broken:  # who was silent for long counts as gone
                self._client.SendNodeHeartbeat(self._heartbeat())
            worked = self._work()
        except httpx.TransportError as error:
            _refuse_strangers(error)
            return self._line.failed(error)
        except httpx.HTTPStatusError as error:
            self._end_if_refused(error)
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                raise RefusedError("the SuperLink no longer knows this node's key") from None
            return self._line.failed(error)
        except Exception:  # whatever it sent: one message must not end the node
            _log.exception("a message could not be handled")
            return _PAUSES[1]
        self._line.answered()
        return _PAUSES[0] if worked else min(pause * 1.1, _PAUSES[1])

    def _activate(self, patience: float) -> bool:
        """Whether it is in; False if it was told to stop before that."""
        end = time.monotonic() + patience
        known = int(self._book.get("node-id", b"0"))
        while not self._stop.is_set():
            pause = _PAUSES[1]
            try:
                if known:  # a predecessor that was killed is still held to be online
                    self._leave(known)
                request = ActivateNodeRequest(
                    public_key=self._public_key, heartbeat_interval=_HEARTBEAT
                )
                self._node = ProtoNode(node_id=self._client.ActivateNode(request).node_id)
                self._book["node-id"] = str(self._node.node_id).encode()
                self._line.answered()
                return True
            except httpx.HTTPStatusError as error:
                self._end_if_refused(error)
                if error.response.status_code in _GATEWAY:
                    pause = self._line.failed(error)
                elif time.monotonic() > end:
                    raise RefusedError(
                        "the SuperLink refuses this node: its key is not registered, or another "
                        "node with the same key is online"
                    ) from None
            except httpx.TransportError as error:
                _refuse_strangers(error)
                pause = self._line.failed(error)
            self._stop.wait(pause)
        return False

    def _end_if_refused(self, error: httpx.HTTPStatusError) -> None:
        """Where the server says that it is of no use to try again."""
        why = error.response.headers.get(REFUSAL)
        if why == NOT_REGISTERED:
            raise RefusedError(
                f"this node's key is not registered with the server at {self._line.address}: send "
                "node.pub to whoever serves (sfumato federate serve --node), and join again"
            ) from None
        if why == CLOCK:
            raise RefusedError(
                f"the clocks of this machine and of {self._line.address} differ by more than five "
                "minutes: set the one that is wrong, and join again"
            ) from None

    def _leave(self, node: int) -> None:
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=node))
        except httpx.HTTPStatusError as error:
            self._end_if_refused(error)
            _log.info("node %d was not online", node)

    def _heartbeat(self) -> SendNodeHeartbeatRequest:
        return SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=_HEARTBEAT)

    def _beat(self) -> None:
        """Says that it is there; while nobody answers, the one who looks for messages tries."""
        while not self._stop.wait(_HEARTBEAT / 2):
            if self._line.broken:
                continue
            with contextlib.suppress(httpx.HTTPError):
                self._client.SendNodeHeartbeat(self._heartbeat())

    def _work(self) -> bool:
        """Answers one message, if there is one."""
        interrupted = self._book.get("in-hand")
        if interrupted is not None:
            _log.warning("was interrupted while it answered: says so")
            self._send(failure(message_from_proto(ProtoMessage.FromString(interrupted))))
        response = self._client.PullMessages(PullMessagesRequest(node=self._node))
        if not response.messages_list:
            return False
        self._book["in-hand"] = response.messages_list[0].SerializeToString()
        header = message_from_proto(response.messages_list[0])
        run = header.metadata.run_id
        message = pull_and_inflate_object_from_tree(
            response.message_object_trees[0],
            make_pull_object_fn_protobuf(self._client.PullObject, self._node, run),
            make_confirm_message_received_fn_protobuf(
                self._client.ConfirmMessageReceived, self._node, run
            ),
            return_type=Message,
            initial_backoff=0.1,
            max_time=60.0,
        )
        message.metadata.__dict__["_message_id"] = header.metadata.message_id
        self._send(self._answer(message))
        return True

    def _answer(self, message: Message) -> Message:
        if message.metadata.message_type != MESSAGE_TYPE:
            return failure(message)
        try:
            if self._participant is None:
                self._participant = self._make(self._config, self._state)
        except Exception:
            _log.exception("the participant could not be made")
            return failure(message)
        assert self._participant is not None
        reply = reply_to(message, self._participant)
        if reply.has_error():
            self._participant = None  # she is made anew from what she remembers
            return reply
        most, length = self._heard.most, length_of(reply.content)
        if most is not None and length > most:
            _log.error("her message of %d bytes is %s", length, too_long(most))
            return failure(message, TOO_LONG)
        return reply

    def _send(self, reply: Message) -> None:
        """Delivers it, as long as its run lives, and forgets the message it answers."""
        try:
            self._push(reply)
        except httpx.HTTPStatusError as error:
            self._end_if_refused(error)
            if error.response.status_code == httpx.codes.UNAUTHORIZED:
                raise
            long = error.response.headers.get(REFUSAL) == OVER
            said = "is longer than the server takes" if long else "came too late"
            _log.warning("the reply %s (%d)", said, error.response.status_code)
        except ObjectPushError:
            _log.warning("the reply was not taken")
        self._book.pop("in-hand", None)

    def _push(self, reply: Message) -> None:
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = get_all_nested_objects(reply)
        response = self._client.PushMessages(
            PushMessagesRequest(
                node=self._node,
                messages_list=[message_to_proto(remove_content_from_message(reply))],
                message_object_trees=[get_object_tree(reply)],
                clientapp_runtime_list=[0.0],
            )
        )
        deliver = make_push_object_fn_protobuf(
            self._client.PushObject, self._node, reply.metadata.run_id, response.session_id
        )
        push_objects(objects, deliver, object_ids_to_push=set(response.objects_to_push))


def _refuse_strangers(error: httpx.TransportError) -> None:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise RefusedError(f"this is not our SuperLink: {error}") from None


def connect(
    address: str, authority: Path, key: Path, heard: Heard | None = None
) -> tuple[FleetHttpClient, bytes]:
    """The way to the SuperLink at ``host:port``, and the node's public key."""
    private = load_ssh_private_key(key.read_bytes(), None)
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise ValueError(f"key must be an elliptic-curve key (make_node_key makes one), got {key}")
    public = private.public_key()
    client = FleetHttpClient.from_server_address(
        address,
        insecure=False,
        root_certificates=authority.read_bytes(),
        interceptors=[
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(private, public),
            *([] if heard is None else [heard]),
        ],
    )
    return client, public_key_to_bytes(public)


def main() -> None:
    """Runs the node that a file describes (:func:`~sfumato.federated.flower.deployment.join`)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    plan = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(plan["folder"])
    heard = Heard()
    where = plan["address"], Path(plan["authority"]), Path(plan["key"])
    client, public_key = connect(*where, heard)
    with client, FolderState(folder / "node") as book, FolderState(folder / "state") as state:
        make = named(plan["make"])
        node = Node(
            client, public_key, make, plan["node_config"], state=state, book=book,
            address=plan["address"], heard=heard,
        )  # fmt: skip

        def on_signal(number: int, frame: FrameType | None) -> None:
            node.stop()

        signal.signal(signal.SIGTERM, on_signal)
        signal.signal(signal.SIGINT, on_signal)
        try:
            node.run(patience=plan["patience"])
        except RefusedError as refused:
            _log.error("refused: %s", refused)
            sys.exit(3)


if __name__ == "__main__":
    main()
