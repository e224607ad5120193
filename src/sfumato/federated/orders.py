"""Orders, which a coordinator sends, and contributions, which participants send back.

An order names the federation it belongs to, the run and the attempt. A contribution repeats the
last two, so that an old one cannot be taken for a new one. Whatever does not fit is refused, with a
reason that names it, and costs its sender's part of the round alone.

    >>> order = Order("f" * 32, "a", 3, 1.0, np.zeros(4, np.float32))
    >>> Order.from_bytes(order.to_bytes(), size=4).attempt
    3
    >>> Contribution("a", 2, np.zeros(4)).checked(order, length=4)
    Traceback (most recent call last):
    ...
    sfumato.federated.wire.Malformed: a contribution to attempt 2 of 'a', not to attempt 3 of 'a'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.federated.layout import Vector
from sfumato.federated.wire import Malformed, pack, unpack

__all__ = ["Contribution", "Order"]

_LONGEST = 64  # of a name


@final
@dataclass(frozen=True, eq=False)
class Order:
    """What a participant is asked to do.

    Attributes:
        federation: its digest.
        run: which training.
        attempt: counts the rounds that were sent; never used twice.
        clip: C in this round.
        weights: the shared ones; the initial ones where sums are hidden.
        sealed: where sums are hidden, what was added to those since, encrypted.
    """

    federation: str
    run: str
    attempt: int
    clip: float
    weights: Vector
    sealed: bytes = b""

    def to_bytes(self) -> bytes:
        """As a message."""
        header = {
            "kind": "order", "federation": self.federation, "run": self.run,
            "attempt": self.attempt, "clip": self.clip,
        }  # fmt: skip
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights}
        if self.sealed:
            arrays["sealed"] = np.frombuffer(self.sealed, np.uint8)
        return pack(header, arrays)

    @classmethod
    def from_bytes(cls, message: bytes, size: int, most_sealed: int = 0) -> Order:
        """From a message.

        Args:
            message: from anybody.
            size: how many weights there must be.
            most_sealed: how many encrypted bytes there may be.

        Raises:
            Malformed: if it is no order.
        """
        header, arrays = unpack(message, most_bytes=4 * size + most_sealed)
        sealed = arrays.pop("sealed", np.zeros(0, np.uint8))
        if len(sealed) > most_sealed or sealed.dtype != np.uint8:
            raise Malformed("an order with encrypted weights, which this federation does not have")
        weights = _array(arrays, "weights", size, np.float32)
        try:
            if header["kind"] != "order":
                raise Malformed(f"an order was due, got {header['kind']!r}")
            attempt = validation.at_least("attempt", header["attempt"], 0)
            clip = validation.positive("clip", header["clip"])
            named = _name(header["federation"]), _name(header["run"])
            return cls(*named, attempt, clip, weights, sealed.tobytes())
        except KeyError as error:
            raise Malformed(f"an order without {error}") from None


@final
@dataclass(frozen=True, eq=False)
class Contribution:
    """A participant's part of the sum.

    Attributes:
        run: which training.
        attempt: whose order it answers.
        numbers: the parameters' first, and what follows them.
    """

    run: str
    attempt: int
    numbers: NDArray[np.floating[Any]]

    def to_bytes(self) -> bytes:
        """As a message; numbers in the precision that they have."""
        header = {"kind": "contribution", "run": self.run, "attempt": self.attempt}
        return pack(header, {"numbers": self.numbers})

    @classmethod
    def from_bytes(cls, message: bytes, length: int) -> Contribution:
        """From a message.

        Raises:
            Malformed: if it is no contribution of ``length`` numbers.
        """
        header, arrays = unpack(message, most_bytes=8 * length)
        found = arrays.get("numbers")
        kind = np.float64 if found is not None and found.dtype == np.float64 else np.float32
        numbers = _array(arrays, "numbers", length, kind).astype(np.float64)
        if header.get("kind") != "contribution":
            raise Malformed(f"a contribution was due, got {header.get('kind')!r}")
        return cls(str(header.get("run")), _attempt(header), numbers)

    def checked(self, order: Order, length: int) -> NDArray[np.float64]:
        """The numbers, if they answer this order.

        Raises:
            Malformed: if they answer another one, are too many or too few, or not finite.
        """
        if (self.run, self.attempt) != (order.run, order.attempt):
            raise Malformed(
                f"a contribution to attempt {self.attempt} of {self.run!r}, not to attempt "
                f"{order.attempt} of {order.run!r}"
            )
        if self.numbers.shape != (length,):
            raise Malformed(f"{len(self.numbers)} numbers, {length} were due")
        if not np.isfinite(self.numbers).all():
            raise Malformed("numbers that are not finite")
        return self.numbers.astype(np.float64)


def _name(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        raise Malformed("an order whose federation or run has no name")
    return value


def _attempt(header: dict[str, Any]) -> int:
    found = header.get("attempt")
    return found if isinstance(found, int) else -1


def _array(arrays: dict[str, NDArray[Any]], name: str, size: int, kind: type) -> NDArray[Any]:
    found = arrays.get(name)
    if set(arrays) != {name} or found is None or found.dtype != kind or found.shape != (size,):
        shown = {key: (str(each.dtype), each.shape) for key, each in arrays.items()}
        raise Malformed(f"{size} {name} as {kind.__name__} were due, got {shown}")
    return found
