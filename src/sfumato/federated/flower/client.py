"""A participant as a Flower ClientApp.

``make(node_config, state)`` makes her. It may be called before every message: what she must
remember goes into ``state``, and what she needs to find her data into the node's configuration.

    >>> class Counter:
    ...     def __init__(self, state):
    ...         self.state = state
    ...     def answer(self, message: bytes) -> bytes:
    ...         seen = int(self.state.get("seen", b"0")) + 1
    ...         self.state["seen"] = str(seen).encode()
    ...         return self.state["seen"]
    >>> app = client_app(lambda node_config, state: Counter(state))

An exception's text may quote a private row, so it never leaves: the coordinator learns that the
participant could not answer, with a reason from a fixed list
(:mod:`~sfumato.federated.refusals`) or none, and the node's own log says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, MutableMapping

from flwr.app import Context, Error, Message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode

from sfumato.federated.exchange import Participant
from sfumato.federated.flower.grid import MESSAGE_TYPE
from sfumato.federated.flower.records import bytes_of, content_of
from sfumato.federated.flower.state import FolderState, RecordState
from sfumato.federated.refusals import FAILED, is_refusal, public_reason

__all__ = ["FAILED", "STATE_FOLDER", "Make", "client_app", "failure", "reply_to"]

Make = Callable[[Mapping[str, object], MutableMapping[str, bytes]], Participant]
"""Makes a participant from the node's configuration and what she remembers."""

STATE_FOLDER = "state-folder"
"""The name in the node's configuration of the folder in which she remembers."""

_log = logging.getLogger(__name__)


def client_app(make: Make) -> ClientApp:
    """The ClientApp of participants made so."""
    app = ClientApp()
    action = MESSAGE_TYPE.removeprefix("query.")

    @app.query(action)
    def answer(message: Message, context: Context) -> Message:  # pyright: ignore[reportUnusedFunction]
        try:
            folder = context.node_config.get(STATE_FOLDER)
            if folder is None:
                return reply_to(message, make(context.node_config, RecordState(context)))
            with FolderState(str(folder)) as state:
                return reply_to(message, make(context.node_config, state))
        except Exception:
            _log.exception("the participant could not be made")
            return failure(message)

    return app


def reply_to(message: Message, participant: Participant) -> Message:
    """Her answer, or an error that says no more than may be told."""
    try:
        return Message(content_of(participant.answer(bytes_of(message.content))), reply_to=message)
    except Exception as error:
        if is_refusal(error):
            _log.warning("refused: %s", " ".join(str(error).split()))
        else:
            _log.exception("the participant could not answer")
        return failure(message, public_reason(error))


def failure(message: Message, reason: str = FAILED) -> Message:
    """There is no answer; the reason is one of those that may be told."""
    return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
