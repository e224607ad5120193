"""Vectors of whole numbers modulo 2^b: signs, width on the wire, and masks.

    >>> residues = to_residues(np.array([-1, 2]), 20)
    >>> residues.tolist(), to_signed(residues, 20).tolist()
    ([1048575, 2], [-1, 2])
    >>> packed = pack_residues(residues, 20)
    >>> packed.nbytes, unpack_residues(packed, 2, 20).tolist()
    (6, [1048575, 2])

A mask is the key stream of ChaCha20 (RFC 8439) cut to b bits: uniform on the residues to anyone
without the key. Its keys are derived for one session, one pair and one order, so that a key is
used once and a fixed nonce is right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.extras import needed_for

with needed_for("a secure sum"):
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

__all__ = [
    "Residues",
    "add_mask",
    "pack_residues",
    "to_residues",
    "to_signed",
    "unpack_residues",
    "width_of",
]

Residues = NDArray[np.uint64]
_NONCE = bytes(16)


def check_bits(bits: object) -> int:
    """b, from 1 to 64."""
    number = validation.at_least("bits", bits, 1)
    if number > 64:
        validation.fail("bits", "at most 64", bits)
    return number


def width_of(bits: int) -> int:
    """Bytes per number on the wire."""
    return -(-check_bits(bits) // 8)


def to_residues(values: ArrayLike, bits: int) -> Residues:
    """Signed or unsigned whole numbers modulo 2^b."""
    held = np.asarray(values)
    if held.dtype.kind not in "iu":
        validation.fail("values", "whole numbers (FixedPoint makes them of floats)", held.dtype)
    return held.astype(np.uint64) & _mask(bits)  # two's complement: -1 is 2^64 - 1


def to_signed(residues: Residues, bits: int) -> NDArray[np.int64]:
    """The representatives from -2^(b-1) to 2^(b-1) - 1."""
    shift = np.uint64(64 - check_bits(bits))
    return (residues << shift).view(np.int64) >> shift.astype(np.int64)


def pack_residues(residues: Residues, bits: int) -> NDArray[np.uint8]:
    """ceil(b / 8) bytes for each number, the lowest first."""
    octets = np.ascontiguousarray(residues.astype("<u8")).view(np.uint8).reshape(-1, 8)
    return np.ascontiguousarray(octets[:, : width_of(bits)]).reshape(-1)


def unpack_residues(packed: NDArray[np.uint8], length: int, bits: int) -> Residues:
    """What :func:`pack_residues` packed; the caller has checked the length."""
    octets = np.zeros((length, 8), np.uint8)
    octets[:, : width_of(bits)] = packed.reshape(length, -1)
    return octets.view("<u8").reshape(-1).astype(np.uint64, copy=False) & _mask(bits)


def add_mask(total: Residues, key: bytes, bits: int, *, negative: bool = False) -> None:
    """Adds (or takes off) the mask of ``key``, in place and modulo 2^64; reduce at the end.

    Modulo 2^64 implies modulo 2^b, because 2^b divides it.
    """
    wide = np.dtype("<u4" if bits <= 32 else "<u8")
    stream = Cipher(ChaCha20(key, _NONCE), None).encryptor()
    mask = np.frombuffer(stream.update(bytes(total.size * wide.itemsize)), wide)
    operation = np.subtract if negative else np.add
    operation(total, mask, out=total)


def reduce(total: Residues, bits: int) -> Residues:
    """Modulo 2^b."""
    return total & _mask(bits)


def _mask(bits: int) -> np.uint64:
    return np.uint64(2 ** check_bits(bits) - 1)
