"""Secrets in shares: any ``threshold`` of them give it back, fewer tell nothing at all.

    >>> shares = split(b"k" * 32, threshold=3, count=5)
    >>> join([shares[4], shares[0], shares[2]], threshold=3) == b"k" * 32
    True
    >>> join(shares[:2], threshold=3)
    Traceback (most recent call last):
        ...
    ValueError: shares must be at least 3 (the threshold), got 2

A secret s is the value at 0 of a polynomial of degree t - 1 over the field of p = 2^521 - 1
elements, whose other coefficients are uniform; share i is its value at i = 1 .. n.

Formal guarantees
    - Any t shares determine the polynomial (Lagrange), hence s.
    - Any t - 1 shares are uniform on the field's (t - 1)-tuples, whatever s is: for each s there is
      exactly one polynomial through them. That is information-theoretic; no assumption is needed.
    - Nothing here tells a wrong share from a right one. Who reads shares from strangers compares
      their hashes, as :mod:`~sfumato.federated.secure.masking_server` does.

Python's integers take a time that depends on their size, so shares are made and joined where no
attacker has a clock.

Reference: Shamir, "How to share a secret", CACM 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, final

from sfumato.core import validation
from sfumato.core.randomness import SYSTEM, Coins

__all__ = ["PRIME", "SECRET_BYTES", "SHARE_BYTES", "Share", "join", "split"]

PRIME = 2**521 - 1
"""A Mersenne prime: larger than any secret, and any number of participants."""
SECRET_BYTES = 32
SHARE_BYTES = 66
_MOST = 100_000


@final
@dataclass(frozen=True, repr=False)
class Share:
    """One point of the polynomial.

    Attributes:
        index: where; 1 or above.
        value: the value there, below :data:`PRIME`.
    """

    index: int
    value: int

    def __post_init__(self) -> None:
        if not 1 <= self.index <= _MOST:
            validation.fail("index", f"between 1 and {_MOST}", self.index)
        if not 0 <= self.value < PRIME:
            raise ValueError("value must be at least 0 and below the field's prime")

    def to_bytes(self) -> bytes:
        """The value alone, 66 bytes; the index is known from whose share it is."""
        return self.value.to_bytes(SHARE_BYTES, "big")

    @classmethod
    def from_bytes(cls, index: int, data: bytes) -> Self:
        """The share at ``index`` that :meth:`to_bytes` wrote; a ValueError if it is none."""
        if len(data) != SHARE_BYTES:
            raise ValueError(f"a share must have {SHARE_BYTES} bytes, got {len(data)}")
        return cls(index, int.from_bytes(data, "big"))


def split(secret: bytes, *, threshold: int, count: int, coins: Coins = SYSTEM) -> list[Share]:
    """``count`` shares of ``secret``, any ``threshold`` of which give it back.

    Args:
        secret: 32 bytes.
        threshold: 2 or above, at most ``count``. (With 1, every share would be the secret.)
        count: how many shares; their indices are 1 to ``count``.
        coins: for the polynomial.
    """
    threshold = validation.at_least("threshold", threshold, 2)
    count = validation.at_least("count", count, threshold)
    if count > _MOST:
        validation.fail("count", f"at most {_MOST}", count)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"secret must have {SECRET_BYTES} bytes, got {len(secret)}")
    polynomial = [int.from_bytes(secret, "big")]
    polynomial += [_uniform(coins) for _ in range(threshold - 1)]
    return [Share(i, evaluate(polynomial, i, PRIME)) for i in range(1, count + 1)]


def join(shares: Sequence[Share], *, threshold: int) -> bytes:
    """The secret, from ``threshold`` or more shares (the first ``threshold`` are used).

    Raises:
        ValueError: if there are too few or two at one index, or what they give is no secret of 32
            bytes; the last means that they do not belong together, and need not be noticed.
    """
    threshold = validation.at_least("threshold", threshold, 2)
    if len(shares) < threshold:
        raise ValueError(f"shares must be at least {threshold} (the threshold), got {len(shares)}")
    used = shares[:threshold]
    weights = weights_at_zero([share.index for share in used], PRIME)
    secret = sum(w * share.value for w, share in zip(weights, used, strict=True)) % PRIME
    if secret >> (8 * SECRET_BYTES):
        raise ValueError("shares must belong together: these give no secret of 32 bytes")
    return secret.to_bytes(SECRET_BYTES, "big")


def evaluate(polynomial: Sequence[int], point: int, prime: int) -> int:
    """The polynomial's value (Horner); coefficients from the constant one up."""
    value = 0
    for coefficient in reversed(polynomial):
        value = (value * point + coefficient) % prime
    return value


def weights_at_zero(indices: Sequence[int], prime: int) -> list[int]:
    """Lagrange's weights: the sum of weight times share is the value at 0."""
    if len(set(indices)) < len(indices):
        raise ValueError(f"shares must have different indices, got {list(indices)}")
    weights: list[int] = []
    for i in indices:
        above, below = 1, 1
        for j in indices:
            if j != i:
                above, below = above * j % prime, below * (j - i) % prime
        weights.append(above * pow(below, -1, prime) % prime)
    return weights


def _uniform(coins: Coins) -> int:
    """A uniform element of the field: 521 fresh bits, drawn again if they are the prime."""
    while True:
        value = int.from_bytes(coins.words(9).tobytes(), "little") & PRIME
        if value < PRIME:
            return value
