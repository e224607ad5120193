"""What participants and server compute alike: the roster, keys of masks, sealed shares, answers.

Every value here is bound to the roster's hash, which holds the session, what was agreed, and the
signed keys of all: who has another roster gets other keys, and understands nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from numpy.typing import NDArray

from sfumato.federated.secure.keys import Advert, Directory, IdentityKey, derive, digest, encode
from sfumato.federated.secure.masking import MaskSettings
from sfumato.federated.secure.shamir import SHARE_BYTES
from sfumato.federated.wire import Malformed, pack, unpack

__all__ = ["Roster", "names_in", "octets_in", "open_answer", "read", "sign_answer", "text_in"]

Shares = tuple[bytes, bytes]
"""Of one dealer, for one holder: a share of her masking key, a share of her own mask's seed."""
KEY_SHARE, SELF_SHARE = 0, 1

_NONCE, _TAG, _SIGNATURE = 12, 16, 64
SEALED_BYTES = _NONCE + 2 * SHARE_BYTES + _TAG
ROOM = 1024
"""Bytes of a message for each participant: names, shares, signatures."""


@final
@dataclass(frozen=True)
class Roster:
    """Who takes part in a session, with keys; the same for all, or nothing opens.

    Attributes:
        session: its id.
        settings: what was agreed.
        adverts: in the order of names.
    """

    session: bytes
    settings: MaskSettings
    adverts: tuple[Advert, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """In order; the share with index i is that of the i-th, from 1."""
        return tuple(advert.name for advert in self.adverts)

    @cached_property
    def by_name(self) -> Mapping[str, Advert]:
        """Each one's keys."""
        return {advert.name: advert for advert in self.adverts}

    @cached_property
    def hash(self) -> bytes:
        """Of everything in it."""
        facts = [f"{key}={value}" for key, value in sorted(self.settings.facts().items())]
        keys = [part for a in self.adverts for part in (a.name, a.sealing, a.masking, a.signature)]
        return digest("roster", self.session, encode(*facts), encode(*keys))

    def index(self, name: str) -> int:
        """Where her shares are on the polynomials."""
        return self.names.index(name) + 1

    def fault(self, directory: Directory) -> str:
        """Why this roster is not to be believed; empty if it is."""
        if list(self.names) != sorted(set(self.names)):
            return "a roster with a name twice, or out of order"
        if len(self.names) < self.settings.threshold:
            return (
                f"only {len(self.names)} participants, the threshold is {self.settings.threshold}"
            )
        if len(self.names) > self.settings.participants:
            return (
                f"{len(self.names)} participants, at most {self.settings.participants} were agreed"
            )
        for advert in self.adverts:
            if fault := advert.fault(directory, self.session):
                return f"{advert.name}: {fault}"
        keys = {key for advert in self.adverts for key in (advert.sealing, advert.masking)}
        return "" if len(keys) == 2 * len(self.adverts) else "two session keys that are the same"

    def pair_key(self, shared: bytes, one: str, other: str, order: bytes) -> bytes:
        """The key of the mask that ``one`` and ``other`` have in common, for this order."""
        first, second = sorted((one, other))
        return derive(shared, "pair mask", self.hash, first, second, order)

    def self_key(self, seed: bytes, name: str) -> bytes:
        """The key of her own mask."""
        return derive(seed, "self mask", self.hash, name)

    def seed_check(self, seed: bytes, name: str) -> bytes:
        """A hash by which the server sees that it opened the right seed; it tells nothing else."""
        return digest("seed", self.hash, name, seed)

    def commitment(self, share: bytes, dealer: str, holder: str, kind: int) -> bytes:
        """A hash by which everyone tells a right share from a wrong one."""
        return digest("share", self.hash, dealer, holder, str(kind), share)

    def seal(self, shared: bytes, dealer: str, holder: str, shares: Shares) -> bytes:
        """Both shares, so that only ``holder`` reads them and only ``dealer`` wrote them."""
        key, context = self._sealing(shared, dealer, holder)
        nonce = os.urandom(_NONCE)
        return nonce + ChaCha20Poly1305(key).encrypt(nonce, b"".join(shares), context)

    def open(self, shared: bytes, dealer: str, holder: str, sealed: bytes) -> Shares:
        """What :meth:`seal` sealed; :class:`Malformed` if it is anything else."""
        key, context = self._sealing(shared, dealer, holder)
        try:
            plain = ChaCha20Poly1305(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
        except InvalidTag:
            raise Malformed(f"shares of {dealer} that do not open") from None
        return plain[:SHARE_BYTES], plain[SHARE_BYTES:]

    def survivors_statement(
        self, order: bytes, survivors: Sequence[str]
    ) -> tuple[bytes | str, ...]:
        """What participants sign before anything is opened."""
        return (self.hash, order, *survivors)

    def _sealing(self, shared: bytes, dealer: str, holder: str) -> tuple[bytes, bytes]:
        context = encode("shares", self.hash, dealer, holder)
        return derive(shared, context), context


def order_hash(order: bytes, dealers: Iterable[str]) -> bytes:
    """Of what the masked-input stage tells all alike: the order, and whose masks are in it."""
    return digest("order", order, *sorted(dealers))


def sign_answer(
    identity: IdentityKey,
    place: tuple[bytes, str, str],
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]] | None = None,
) -> bytes:
    """An answer with its signature before it; ``place`` is session, stage and name."""
    session, stage, name = place
    body = pack({**header, "session": session.hex(), "stage": stage, "name": name}, arrays)
    return identity.sign("answer", session, stage, name, digest(body)) + body


def open_answer(
    directory: Directory, place: tuple[bytes, str, str], data: bytes, most_bytes: int
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of an answer that was signed by the right one, for this place."""
    session, stage, name = place
    if len(data) > most_bytes + 2**17:
        raise Malformed(f"an answer of {len(data)} bytes, {most_bytes} at most were agreed")
    signature, body = data[:_SIGNATURE], data[_SIGNATURE:]
    if not directory.verify(name, signature, "answer", session, stage, name, digest(body)):
        raise Malformed("a bad signature, or an answer to something else")
    header, arrays = read(body, most_bytes)
    if "refusal" in header:
        raise Malformed(f"refuses: {str(header['refusal'])[:500]}")
    return header, arrays


def read(message: bytes, most_bytes: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays; whatever goes wrong with a stranger's bytes is :class:`Malformed`."""
    try:
        return unpack(message, most_bytes=most_bytes)
    except Malformed:
        raise
    except Exception as error:  # RecursionError of JSON, a type that numpy lacks, ...
        raise Malformed(f"no message of this protocol ({type(error).__name__})") from None


def text_in(header: Mapping[str, Any], key: str) -> str:
    """A text field."""
    value = header.get(key)
    if not isinstance(value, str):
        raise Malformed(f"a message without {key}")
    return value


def hex_in(header: Mapping[str, Any], key: str, length: int) -> bytes:
    """Bytes, written as hexadecimal digits."""
    text = text_in(header, key)
    try:
        value = bytes.fromhex(text)
    except ValueError:
        raise Malformed(f"a message whose {key} is no hexadecimal number") from None
    if len(value) != length:
        raise Malformed(f"a message whose {key} has {len(value)} bytes instead of {length}")
    return value


def names_in(header: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of different names, in order."""
    value = header.get(key)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Malformed(f"a message without {key}")
    if value != sorted(set(value)):
        raise Malformed(f"a message whose {key} has a name twice, or is out of order")
    return tuple(value)


def octets_in(
    arrays: Mapping[str, NDArray[Any]], key: str, shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """An array of bytes of the right shape."""
    value = arrays.get(key)
    if value is None or value.dtype != np.uint8 or value.shape != shape:
        found = "nothing" if value is None else f"{value.dtype} {value.shape}"
        raise Malformed(f"a message whose {key} should be uint8 {shape}, got {found}")
    return value


def octets(rows: Iterable[bytes], *shape: int) -> NDArray[np.uint8]:
    """Rows of bytes as an array, for a message."""
    return np.frombuffer(b"".join(rows), np.uint8).reshape(shape)
