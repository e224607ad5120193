"""Keys of secure sums by homomorphic encryption, and what is agreed about them.

    >>> keys = CkksKeys.generate()
    >>> sealed = keys.encrypt(np.array([1.5, -2.0]))
    >>> keys.decrypt(sealed, 2).round(6).tolist()
    [1.5, -2.0]
    >>> hasattr(keys.public(), "decrypt")
    False

The protocol, who learns what, and why decryptions stay with the key's holders:
:mod:`~sfumato.federated.secure.ckks`. Keys and ciphertexts are written by TenSEAL itself; nothing
is pickled.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.extras import needed_for
from sfumato.federated.wire import Malformed

with needed_for("a sum under CKKS"):
    import tenseal

__all__ = ["SLOTS", "CkksKeys", "CkksPublic", "CkksSettings"]

_RING, _MODULI, _SCALE = 4096, [60, 49], 2.0**40
SLOTS = _RING // 2
"""Numbers in one ciphertext."""
_MOST_SUM = 2.0**18
_CIPHERTEXT = 2 * _RING * 8 + 1024
"""Bytes of one ciphertext at most: two polynomials of 64-bit coefficients, and a head."""
_CONTEXT = 2**20


@final
@dataclass(frozen=True)
class CkksSettings:
    """What all agree on before the run.

    Attributes:
        length: how many numbers each one has.
        participants: the most that are added; 2 or above.
        bound: each number is clamped to it; what is not finite counts as 0. Declared.
        most_order: the longest order, in bytes, that participants accept.
    """

    length: int
    participants: int
    bound: float
    most_order: int = 2**30

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", validation.count("length", self.length))
        object.__setattr__(
            self, "participants", validation.at_least("participants", self.participants, 2)
        )
        object.__setattr__(self, "bound", validation.positive("bound", self.bound))
        object.__setattr__(
            self, "most_order", validation.at_least("most_order", self.most_order, 0)
        )
        if self.participants * self.bound > _MOST_SUM:
            raise ValueError(
                f"bound must be at most {_MOST_SUM / self.participants:g} for "
                f"{self.participants} participants (sums stay below 2^18), got {self.bound}"
            )

    @property
    def chunks(self) -> int:
        """How many ciphertexts hold the numbers of one participant."""
        return -(-self.length // SLOTS)

    @property
    def wire_bytes(self) -> int:
        """What they take at most."""
        return self.chunks * _CIPHERTEXT

    def sizes(self) -> list[int]:
        """How many numbers are in each ciphertext."""
        return [min(SLOTS, self.length - start) for start in range(0, self.length, SLOTS)]


@final
class CkksPublic:
    """The public half: enough to add, not to read. All that a server is given.

    Args:
        data: from :meth:`CkksKeys.public` or :meth:`to_bytes`.
    """

    def __init__(self, data: bytes) -> None:
        self._context = _context(data)
        if self._context.has_secret_key():
            raise ValueError("data must hold no secret key: give the server CkksKeys.public()")
        self._data = data

    def to_bytes(self) -> bytes:
        """As TenSEAL writes it."""
        return self._data

    @property
    def fingerprint(self) -> str:
        """A hash by which sums under different keys are told apart."""
        return hashlib.sha256(self._data).hexdigest()

    def load(self, data: bytes, size: int) -> Any:
        """A ciphertext of ``size`` numbers under these parameters, or :class:`Malformed`."""
        return _load(self._context, data, size)


@final
class CkksKeys:
    """The secret key that all participants hold. Never give it, or :meth:`to_bytes`, to a server.

    Args:
        data: from :meth:`to_bytes`.
    """

    def __init__(self, data: bytes) -> None:
        self._context = _context(data)
        if not self._context.has_secret_key():
            raise ValueError("data must hold the secret key: this is the public half")
        self._public = CkksPublic(self._serialized(secret=False))

    @classmethod
    def generate(cls) -> Self:
        """A fresh key. One participant makes it; the others get it on a way they trust."""
        context = tenseal.context(
            tenseal.SCHEME_TYPE.CKKS, _RING, coeff_mod_bit_sizes=_MODULI, n_threads=1
        )
        context.global_scale = _SCALE
        return cls(_serialize(context, secret=True))

    def to_bytes(self) -> bytes:
        """With the secret key, as TenSEAL writes it."""
        return self._serialized(secret=True)

    def public(self) -> CkksPublic:
        """What the server is given."""
        return self._public

    @property
    def fingerprint(self) -> str:
        """That of the public half."""
        return self._public.fingerprint

    def encrypt(self, values: NDArray[np.float64]) -> bytes:
        """At most 2048 numbers as one ciphertext."""
        return tenseal.ckks_vector(self._context, values.tolist()).serialize()

    def decrypt(self, data: bytes, size: int) -> NDArray[np.float64]:
        """The numbers of a ciphertext; for holders of the key alone, see above."""
        return np.asarray(_load(self._context, data, size).decrypt(), np.float64)

    def _serialized(self, *, secret: bool) -> bytes:
        return _serialize(self._context, secret=secret)


def _context(data: bytes) -> Any:
    if len(data) > _CONTEXT:
        raise ValueError(f"data must be a context of at most {_CONTEXT} bytes, got {len(data)}")
    try:
        context = tenseal.context_from(data, n_threads=1)
        ours = context.global_scale == _SCALE and context.has_public_key()
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"data must be a context of TenSEAL, got bytes that fail: {error}"
        ) from None
    if not ours:
        raise ValueError("data must be a context made by CkksKeys, with its scale and public key")
    return context


def _serialize(context: Any, *, secret: bool) -> bytes:
    return context.serialize(
        save_public_key=True,
        save_secret_key=secret,
        save_galois_keys=False,
        save_relin_keys=False,
    )


def _load(context: Any, data: bytes, size: int) -> Any:
    """A ciphertext that is what it should be; SEAL itself checks coefficients and parameters."""
    try:
        vector = tenseal.ckks_vector_from(context, data)
        parts = vector.ciphertext()
        sound = len(parts) == 1 and parts[0].size() == 2 and parts[0].scale == _SCALE
        sound = sound and vector.size() == size and not parts[0].is_transparent()
        sound = sound and parts[0].poly_modulus_degree() == _RING
    except (ValueError, RuntimeError, IndexError, MemoryError) as error:
        raise Malformed(f"no ciphertext ({error})") from None
    if not sound:
        raise Malformed(f"no fresh ciphertext of {size} numbers under the agreed parameters")
    return vector
