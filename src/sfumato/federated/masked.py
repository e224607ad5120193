"""Federations under masked sums: the server learns a round's sum, and nothing of its parts.

A participant's contribution becomes integers modulo 2^bits by a :class:`Codec`: fixed point, or,
with noise in shares, the integers of :mod:`~sfumato.federated.integer_noise`. What the server may
learn, and how many must collude to learn more, is said in
:mod:`~sfumato.federated.secure.masking`. Since nobody can clip what nobody sees, participants are
trusted to clip.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import MutableMapping, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from sfumato.core.randomness import Coins
from sfumato.federated.federation import Federation
from sfumato.federated.integer_noise import DistributedNoise
from sfumato.federated.introducing import introduction
from sfumato.federated.member import Member
from sfumato.federated.noises import SharedNoise
from sfumato.federated.orders import Order
from sfumato.federated.rounds import Collect, Collected
from sfumato.federated.secure.fixed_point import FixedPoint
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.federated.secure.masking import MaskSettings, SecureSumFailed
from sfumato.federated.secure.masking_client import MaskingClient
from sfumato.federated.secure.masking_server import MaskingServer
from sfumato.federated.shared import model_size, rotation_seed, share_of
from sfumato.federated.sums import MaskedSum

__all__ = ["Codec", "MaskedMember", "codec_of", "collect_masked"]

Residues = NDArray[np.uint64]
_STATE, _STAGE = "masking", "stage"


class Codec(ABC):
    """From a participant's contribution to integers modulo 2^bits, and from their sum back."""

    bits: int
    length: int

    @abstractmethod
    def encode(self, member: Member, order: Order, coins: Coins) -> Residues:
        """What a participant adds."""

    @abstractmethod
    def decode(self, total: Residues, order: Order, survivors: int) -> NDArray[np.float64]:
        """The sum of contributions."""


@final
class _FixedCodec(Codec):
    """Numbers on a grid; noise, if a participant adds any, is in them already."""

    def __init__(self, federation: Federation, sums: MaskedSum) -> None:
        self._grid = FixedPoint(sums.bits, sums.fraction_bits, sums.bound, federation.participants)
        self.bits = sums.bits
        self.length = model_size(federation) + federation.work.extra

    def encode(self, member: Member, order: Order, coins: Coins) -> Residues:
        return self._grid.encode(member.noisy(order))

    def decode(self, total: Residues, order: Order, survivors: int) -> NDArray[np.float64]:
        return self._grid.decode(total)


@final
class _SharedCodec(Codec):
    """Rotated, rounded, with a share of integer noise."""

    def __init__(self, share: DistributedNoise) -> None:
        self._share, self.bits, self.length = share, share.bits, share.encoding.padded

    def encode(self, member: Member, order: Order, coins: Coins) -> Residues:
        return self._share.message(member.raw(order), seed=rotation_seed(order), coins=coins)

    def decode(self, total: Residues, order: Order, survivors: int) -> NDArray[np.float64]:
        return self._share.release(total, survivors=survivors, seed=rotation_seed(order))


def codec_of(federation: Federation) -> Codec:
    """The federation's."""
    assert isinstance(federation.sums, MaskedSum)
    if isinstance(federation.noise, SharedNoise):
        return _SharedCodec(share_of(federation))
    return _FixedCodec(federation, federation.sums)


def settings_of(federation: Federation, codec: Codec) -> MaskSettings:
    """What all agree on; it follows from the federation."""
    assert isinstance(federation.sums, MaskedSum)
    order = 4 * model_size(federation) + 65_536
    return MaskSettings(
        codec.length, federation.sums.threshold, federation.participants, codec.bits, order
    )


@final
class _StateLog:
    """What she answered, in her own memory, which outlives the process."""

    def __init__(self, state: MutableMapping[str, bytes]) -> None:
        self._state = state

    def admit(self, session: bytes, stage: str) -> bool:
        """True once for each session and stage."""
        key = f"{_STAGE}:{hashlib.sha256(session).hexdigest()}:{stage}"
        if key in self._state:
            return False
        self._state[key] = b"1"
        return True


@final
class MaskedMember:
    """A participant whose contribution nobody sees.

    Args:
        member: with her data, her ledger and her memory.
        identity: her key.
        directory: everybody's public keys, as agreed before the run.
    """

    def __init__(self, member: Member, identity: IdentityKey, directory: Directory) -> None:
        self.member, self._identity, self._directory = member, identity, directory
        self._codec = codec_of(member.federation)
        self._settings = settings_of(member.federation, self._codec)

    def answer(self, message: bytes) -> bytes:
        """Whatever stage of a round it is. Her state is kept before the answer leaves."""
        named = introduction(message, self.member.name)
        if named is not None:
            return named
        client = self._client()
        try:
            return client.answer(message, self._contribution)
        finally:
            self.member.state[_STATE] = client.to_bytes()

    def _client(self) -> MaskingClient:
        state, log = self.member.state.get(_STATE), _StateLog(self.member.state)
        who = self.member.name, self._identity, self._directory, self._settings
        if state is None:
            return MaskingClient(*who, log=log)
        return MaskingClient.from_bytes(state, *who, log=log)

    def _contribution(self, message: bytes) -> Residues:
        return self._codec.encode(self.member, self.member.read(message), self.member.coins)


def collect_masked(
    federation: Federation, order: Order, asked: Sequence[str], directory: Directory, codec: Codec
) -> Collect:
    """One round in five stages; without enough survivors there is no sum, and nothing is learnt."""
    server = MaskingServer(directory, settings_of(federation, codec))
    try:
        found = yield from server.collect(asked, order.to_bytes())
    except SecureSumFailed as failure:
        return Collected(None, (), {**failure.refused})
    total = codec.decode(found.total, order, len(found.survivors))
    return Collected(total, tuple(found.survivors), dict(found.refused))
