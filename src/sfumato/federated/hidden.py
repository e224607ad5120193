"""Federations under hidden sums: the server adds ciphertexts, and never sees a model.

Participants hold one secret key among them. What a round adds to the weights, divided and with the
server's rate, is what each encrypts; so the server only ever adds, and keeps the encrypted sum of
all rounds. An order carries it; who has the key opens it and knows the weights, however many rounds
she missed.

The model stays with the participants. Whoever is shown what CKKS decrypts, and knows what went in,
can find the key (Li and Micciancio, "On the security of homomorphic encryption on approximate
numbers", EUROCRYPT 2021): do not publish these weights as they are.

Encryption hides and promises nothing else. Noise that participants add (:class:`LocalNoise`)
protects them from each other; if one gives the key to the server, it sees every contribution, with
one participant's noise: the view "server and one participant".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.federated.federation import Federation
from sfumato.federated.introducing import introduction
from sfumato.federated.member import Member
from sfumato.federated.orders import Order
from sfumato.federated.rounds import Collect, Collected
from sfumato.federated.secure.ckks import CkksClient, CkksServer
from sfumato.federated.secure.ckks_keys import CkksKeys, CkksPublic, CkksSettings
from sfumato.federated.secure.masking import SecureSumFailed
from sfumato.federated.shared import model_size

__all__ = ["HiddenMember", "collect_hidden"]

_MOST = 2.0**17  # of a sum; a number that is added is cut to its participant's part of it


def settings_of(federation: Federation) -> CkksSettings:
    """What all agree on; it follows from the federation."""
    size = model_size(federation)
    order = 4 * size + 65_536
    bound = _MOST / federation.participants
    first = CkksSettings(size, federation.participants, bound, order)
    return replace(first, most_order=order + first.wire_bytes)


@final
class HiddenMember:
    """A participant who holds the key.

    Args:
        member: with her data, her ledger and her memory.
        keys: all participants' secret key.
    """

    def __init__(self, member: Member, keys: CkksKeys) -> None:
        self.member = member
        self._settings = settings_of(member.federation)
        self._client = CkksClient(member.name, keys, self._settings)

    def answer(self, message: bytes) -> bytes:
        """Her contribution, encrypted."""
        named = introduction(message, self.member.name)
        return named or self._client.answer(message, self._contribution)

    def opened(self, order: Order) -> NDArray[np.float32]:
        """The weights, for participants alone."""
        if not order.sealed:
            return order.weights
        return (order.weights + self._client.open(order.sealed)).astype(np.float32)

    def _contribution(self, message: bytes) -> NDArray[np.float64]:
        order = self.member.read(message, self._settings.wire_bytes + 65_536)
        federation = self.member.federation
        numbers = self.member.noisy(replace(order, weights=self.opened(order), sealed=b""))
        scale = federation.work.direction * federation.server_rate / federation.denominator
        return scale * numbers


def collect_hidden(
    federation: Federation, order: Order, asked: Sequence[str], public: CkksPublic
) -> Collect:
    """One round; the encrypted sum of it and of all before it."""
    server = CkksServer(public, settings_of(federation))
    try:
        found = yield from server.collect(asked, order.to_bytes(), least=max(2, federation.least))
    except SecureSumFailed as failure:
        return Collected(None, (), dict(failure.refused))
    total = server.add(order.sealed, found.data) if order.sealed else found.data
    return Collected(None, tuple(found.survivors), dict(found.refused), total)
