"""Who is who: long-lived identity keys, their directory, and the keys of one session.

Masks protect against a server that lies only if participants know each other. So each has an
Ed25519 identity key, and all hold the same :class:`Directory` of names and public keys, fixed
before the run. A server that could invent participants could surround one with its own.

    >>> ward, lab = IdentityKey.generate(), IdentityKey.generate()
    >>> directory = Directory({"ward": ward.public, "lab": lab.public})
    >>> signature = ward.sign("greeting", b"hello")
    >>> directory.verify("ward", signature, "greeting", b"hello")
    True
    >>> directory.verify("lab", signature, "greeting", b"hello")
    False

The directory reaches the participants on a way that they trust: compare its ``fingerprint`` by
telephone, or have it signed by someone whom all know (:meth:`Directory.signed_by`).

In each session everyone makes two fresh X25519 keys, one for sealing shares and one for masks,
and signs them with her identity key together with the session and her name. They are used in that
session and forgotten, so that no key, and no nonce under a key, is ever used twice.

References: Ed25519 RFC 8032, X25519 RFC 7748, HKDF RFC 5869.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self, final

from sfumato.core import validation
from sfumato.extras import needed_for
from sfumato.federated.wire import Malformed

with needed_for("a secure sum"):
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

__all__ = ["Advert", "Directory", "IdentityKey", "SessionKeys", "derive", "digest", "encode"]

_KEY, _SIGNATURE = 32, 64


def encode(*parts: bytes | str) -> bytes:
    """Parts as one text that only they give: each is preceded by its length."""
    raw = [part.encode() if isinstance(part, str) else part for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in raw)


def digest(*parts: bytes | str) -> bytes:
    """SHA-256 of the parts, each with its length."""
    return hashlib.sha256(encode("sfumato secure sum 1", *parts)).digest()


def derive(secret: bytes, *context: bytes | str) -> bytes:
    """A key of 32 bytes from a secret, for one purpose alone (HKDF with SHA-256)."""
    info = encode("sfumato secure sum 1", *context)
    return HKDF(algorithm=SHA256(), length=_KEY, salt=None, info=info).derive(secret)


@final
class IdentityKey:
    """A participant's long-lived Ed25519 key. Keep :meth:`to_bytes` where only she reads it."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @classmethod
    def generate(cls) -> Self:
        """A fresh key from the operating system's entropy."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The key that :meth:`to_bytes` wrote."""
        return cls(Ed25519PrivateKey.from_private_bytes(_bytes("identity key", data, _KEY)))

    def to_bytes(self) -> bytes:
        """The secret key, 32 bytes."""
        return self._key.private_bytes_raw()

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes: what the directory holds."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, purpose: str, *parts: bytes | str) -> bytes:
        """A signature of ``parts`` that is good for one purpose only."""
        return self._key.sign(encode("sfumato secure sum 1", purpose, *parts))

    def __repr__(self) -> str:
        return f"IdentityKey(public={self.public.hex()[:16]}...)"


@final
class Directory:
    """Names and identity keys of all who may take part, the same for everybody.

    Args:
        keys: public key (32 bytes) by name. No two may share one.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = {
            validation.name("participant", name): _bytes(f"identity key of {name}", key, _KEY)
            for name, key in sorted(keys.items())
        }
        if len(set(self._keys.values())) < len(self._keys):
            raise ValueError("keys must be different for each name: one key is there twice")

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Directory) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all names and keys, to compare on another way."""
        return digest("directory", *(part for item in self._keys.items() for part in item)).hex()

    def verify(self, name: str, signature: bytes, purpose: str, *parts: bytes | str) -> bool:
        """Whether ``name`` is known and signed ``parts`` for ``purpose``."""
        key = self._keys.get(name)
        if key is None or len(signature) != _SIGNATURE:
            return False
        return _verified(key, signature, encode("sfumato secure sum 1", purpose, *parts))

    def signed_by(self, operator: IdentityKey) -> bytes:
        """The directory as a file that ``operator`` vouches for."""
        text = json.dumps({name: key.hex() for name, key in self._keys.items()}).encode()
        return operator.sign("directory", text) + text

    @classmethod
    def from_signed(cls, data: bytes, operator: bytes) -> Self:
        """The directory in a file of :meth:`signed_by`.

        Args:
            data: the file.
            operator: the public identity key of the one who vouches for it.

        Raises:
            Malformed: if the signature is not the operator's, or no directory was signed.
        """
        signature, text = data[:_SIGNATURE], data[_SIGNATURE:]
        signed = encode("sfumato secure sum 1", "directory", text)
        if not _verified(_bytes("operator", operator, _KEY), signature, signed):
            raise Malformed("a directory that its operator did not sign")
        try:
            return cls({name: bytes.fromhex(key) for name, key in json.loads(text).items()})
        except (ValueError, TypeError, AttributeError) as error:
            raise Malformed(f"a signed file that is no directory ({error})") from None


@final
@dataclass(frozen=True)
class Advert:
    """What a participant tells all others at the start of a session.

    Attributes:
        name: hers.
        sealing: public X25519 key under which others seal shares for her.
        masking: public X25519 key from which pairwise masks are made.
        signature: of session, name and both keys, by her identity key.
    """

    name: str
    sealing: bytes
    masking: bytes
    signature: bytes

    def fault(self, directory: Directory, session: bytes) -> str:
        """Why this is not to be believed; empty if it is."""
        if self.name not in directory:
            return "not in the directory"
        parts = (session, self.name, self.sealing, self.masking)
        if not directory.verify(self.name, self.signature, "session keys", *parts):
            return "session keys with a bad signature"
        try:  # points of small order give a shared secret that everybody knows
            for key in (self.sealing, self.masking):
                agree(bytes(31) + b"\x40", key)
        except Malformed as error:
            return str(error)
        return ""


@final
@dataclass(frozen=True, repr=False)
class SessionKeys:
    """The two X25519 secrets of one participant in one session.

    Attributes:
        sealing: never leaves her.
        masking: shared among all; opened by ``threshold`` of them if she drops out.
    """

    sealing: bytes
    masking: bytes

    @classmethod
    def generate(cls) -> Self:
        """Fresh ones."""
        first, second = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        return cls(first.private_bytes_raw(), second.private_bytes_raw())

    def advert(self, identity: IdentityKey, session: bytes, name: str) -> Advert:
        """The public halves, signed."""
        sealing, masking = public_half(self.sealing), public_half(self.masking)
        signature = identity.sign("session keys", session, name, sealing, masking)
        return Advert(name, sealing, masking, signature)

    def shared(self, theirs: bytes, *, masking: bool) -> bytes:
        """The secret that both sides can compute from one's secret and the other's public key."""
        return agree(self.masking if masking else self.sealing, theirs)


def agree(secret: bytes, theirs: bytes) -> bytes:
    """X25519. Raises :class:`Malformed` for a public key that fixes the outcome."""
    try:
        return X25519PrivateKey.from_private_bytes(secret).exchange(
            X25519PublicKey.from_public_bytes(theirs)
        )
    except ValueError:
        raise Malformed("a public key that is none, or of small order") from None


def public_half(secret: bytes) -> bytes:
    """The public X25519 key of a secret one."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _verified(key: bytes, signature: bytes, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        return False
    return True


def _bytes(name: str, value: object, length: int) -> bytes:
    if not isinstance(value, bytes) or len(value) != length:
        raise ValueError(f"{name} must be {length} bytes, got {type(value).__name__}")
    return value
