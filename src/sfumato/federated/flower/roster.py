"""Who may come in: the keys in a file, and the proof that a request comes from one of them.

A node signs the time with its key, in headers that come before the body (Flower's own scheme).
So whoever sends is known before the first byte of a body is read. That a key is not registered is
said only to who holds it: a list of those who take part is not read off the answers.
"""

from __future__ import annotations

import binascii
import contextlib
import datetime
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key, load_ssh_public_key
from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, verify_signature

__all__ = ["CLOCK", "NOT_REGISTERED", "NO_PROOF", "Roster", "Unproved"]

NO_PROOF = "no-proof"
NOT_REGISTERED = "not-registered"
CLOCK = "clock"
"""Why nobody is let in; the words stand in a header of the answer."""

_LONGEST = 2_000  # letters of a header that holds a key or a signature


@final
class Unproved(Exception):  # noqa: N818 - no error of the program
    """A request that proves no registered key.

    Attributes:
        why: one of this module's three words.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@final
class Roster:
    """The keys in a file, which is read again when it has changed.

    Args:
        path: lines in OpenSSH's format; it may not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._seen = (0, 0)
        self._keys: dict[bytes, ec.EllipticCurvePublicKey] = {}

    def proved(self, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The key of whoever sends.

        Raises:
            Unproved: if these headers prove none that is registered.
        """
        held: dict[str, bytes] = {}
        for name, value in headers:  # of two of one name the first counts, as it does for Flower
            held.setdefault(name.lower().decode("latin-1"), value)
        try:
            key = _decoded(held[FLEET_HTTP_PUBLIC_KEY_HEADER])
            signature = _decoded(held[FLEET_HTTP_SIGNATURE_HEADER])
            timestamp = held[TIMESTAMP_HEADER].decode("ascii")
            age = (now() - datetime.datetime.fromisoformat(timestamp)).total_seconds()
            public = self._known(key) or _read(key)
            if not verify_signature(public, timestamp.encode(), signature):
                raise Unproved(NO_PROOF)
        except (KeyError, ValueError, TypeError, binascii.Error, UnsupportedAlgorithm):
            raise Unproved(NO_PROOF) from None
        if self._known(key) is None:
            raise Unproved(NOT_REGISTERED)
        if not -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE:
            raise Unproved(CLOCK)
        return key

    def _known(self, key: bytes) -> ec.EllipticCurvePublicKey | None:
        if key not in self._keys:
            self._read_again()
        return self._keys.get(key)

    def _read_again(self) -> None:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return
        seen = (status.st_mtime_ns, status.st_ino)
        if seen == self._seen:
            return
        self._keys = {}
        for line in self._path.read_text().splitlines():
            with contextlib.suppress(ValueError, UnsupportedAlgorithm):
                public = load_ssh_public_key(line.encode())
                if isinstance(public, ec.EllipticCurvePublicKey):
                    self._keys[public_key_to_bytes(public)] = public
        self._seen = seen


def _decoded(value: bytes) -> bytes:
    if len(value) > _LONGEST:
        raise ValueError("longer than a key or a signature")
    return b64decode(value, validate=True)


def _read(key: bytes) -> ec.EllipticCurvePublicKey:
    """A stranger's key: one of a kind that is quick to check."""
    public = load_pem_public_key(key)
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise ValueError("no key of a node")
    return public
