"""A group of participants in this process, with whatever is done to their messages."""

import numpy as np
import pytest

from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.federated.secure.masking import STAGES, MaskSettings
from sfumato.federated.secure.masking_client import MaskingClient
from sfumato.federated.secure.masking_server import MaskingServer
from sfumato.federated.secure.sessions import MemoryLog

IDENTITIES = [IdentityKey.generate() for _ in range(8)]


class Group:
    """Participants p0, p1, ...; a run notes every message and every answer."""

    def __init__(self, size, threshold, *, length=4, bits=32, participants=None):
        self.names = [f"p{i}" for i in range(size)]
        self.keys = dict(zip(self.names, IDENTITIES, strict=False))
        self.directory = Directory({name: key.public for name, key in self.keys.items()})
        self.settings = MaskSettings(length, threshold, participants or size, bits)
        self.logs = {name: MemoryLog() for name in self.names}
        self.clients = {name: self.client(name) for name in self.names}
        self.told, self.said, self.asked = {}, {}, []

    def client(self, name):
        return MaskingClient(
            name, self.keys[name], self.directory, self.settings, log=self.logs[name]
        )

    def values(self, seed=0):
        random = np.random.default_rng(seed)
        top = 2**self.settings.bits - 1
        return {
            name: random.integers(0, top, self.settings.length, np.uint64, endpoint=True)
            for name in self.names
        }

    def plain_sum(self, values, names):
        total = sum((values[name] for name in names), np.zeros(self.settings.length, np.uint64))
        return total & np.uint64(2**self.settings.bits - 1)

    def restart(self, name):
        """Another process: nothing but bytes is kept, and the log."""
        self.clients[name] = MaskingClient.from_bytes(
            self.clients[name].to_bytes(),
            name,
            self.keys[name],
            self.directory,
            self.settings,
            log=self.logs[name],
        )

    def reply(self, name, message, values, restart=False):
        def contribution(order):
            self.asked.append((name, order))
            return values[name]

        if restart:
            self.restart(name)
        said = self.clients[name].answer(message, contribution)
        if restart:
            self.restart(name)
        return said

    def run(
        self,
        values,
        *,
        silent=None,
        order=b"",
        change=None,
        restart=False,
        stop=None,
        session=None,
        twist=None,
    ):
        """``silent``: name to the stage from which she is gone; ``change(stage, name, said)`` her
        answer, ``twist(stage, name, message)`` what she is told."""
        server = MaskingServer(self.directory, self.settings).collect(
            self.names, order, session=session
        )
        gone = {name: STAGES.index(stage) for name, stage in (silent or {}).items()}
        try:
            messages = next(server)
            for number, stage in enumerate(STAGES):
                if stage == stop:
                    return messages
                replies = {}
                for name, message in messages.items():
                    message = twist(stage, name, message) if twist else message
                    self.told[stage, name] = message
                    if gone.get(name, 9) > number:
                        said = self.reply(name, message, values, restart)
                        said = change(stage, name, said) if change else said
                        self.said[stage, name] = said
                        if said is not None:
                            replies[name] = said
                messages = server.send(replies)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("the server goes on after its last stage")


@pytest.fixture(scope="session")
def group():
    return Group
