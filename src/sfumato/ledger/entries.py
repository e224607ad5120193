"""Entries: the append-only chain from which everything else in a ledger follows.

    hash = SHA-256 of the JSON list [dataset, sequence, kind, payload, previous hash]

so that no entry can be changed, dropped, added or moved without changing every hash after it. The
last hash, the *head*, fixes the whole history: keep it where the ledger's administrator cannot
write, and a rewritten or shortened history shows.

========  ==========================================================================================
kind      payload, besides the time ``at``
========  ==========================================================================================
open      the terms: budget, unit, neighbours, orders, limits
table     by which column the units of a table are told apart; see :mod:`~sfumato.ledger.tables`
cap       a smaller budget for an analyst, a period, or both
reserve   a request that passed: event, charge, analyst, request, which caps it counts for
commit    the answer of a reservation
failed    that a reservation ended without an answer; it stays charged
resume    a turn of a run within an open reservation, once; see :mod:`~sfumato.ledger.turns`
refund    the steps of a reservation that were never run
plan      events declared in advance and charged as one
========  ==========================================================================================
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sfumato.core import validation
from sfumato.ledger.errors import LedgerError

__all__ = [
    "GENESIS",
    "Entry",
    "Head",
    "alike",
    "canonical",
    "digest",
    "entry_hash",
    "mark_of",
    "plain",
]

GENESIS = "0" * 64
"""The hash before the first."""


def canonical(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII, no NaN.

    Raises:
        ValueError: for what JSON cannot hold.
    """
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            "a ledger stores JSON (finite numbers, text, lists, objects with keys of one kind): "
            f"{error}; convert the value"
        ) from error


_DEEPEST = 100


def plain(value: object) -> Any:
    """The value as it will be read back: keys are text, tuples are lists.

    What is hashed and written must be this, as the keys 9 and 10 are in another order once they are
    text.

    Raises:
        ValueError: for what JSON cannot hold, or nested so deeply that reading it may fail.
    """
    with contextlib.suppress(RecursionError):
        found = json.loads(canonical(value))
        if not _is_deeper(found, _DEEPEST):
            return found
    raise ValueError(f"a ledger stores values nested at most {_DEEPEST} deep: flatten the value")


def _is_deeper(value: Any, depth: int) -> bool:
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*cast("dict[str, Any]", value).values()]
    elif isinstance(value, list):
        parts = cast("list[Any]", value)
    return depth < 0 or any(_is_deeper(part, depth - 1) for part in parts)


def _known(value: Any) -> Any:
    """NumPy's numbers and arrays, and our own records, as JSON knows them."""
    for method in ("to_dict", "tolist"):
        convert = getattr(value, method, None)
        if callable(convert):
            return convert()
    raise TypeError(f"{type(value).__name__} is not JSON")


_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, default=_known
)


def alike(one: object, other: object) -> bool:
    """Whether two values are the same but for how whole numbers are written.

    >>> alike({"epsilon": 1}, {"epsilon": 1.0}), alike([1], [True]), alike([0.5], [1])
    (True, False, False)
    """
    return canonical(_without_points(plain(one))) == canonical(_without_points(plain(other)))


def _without_points(value: Any) -> Any:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        return {key: _without_points(part) for key, part in held.items()}
    if isinstance(value, list):
        return [_without_points(part) for part in cast("list[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def digest(value: object) -> str:
    """SHA-256 of the value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def entry_hash(dataset: str, sequence: int, kind: str, payload: str, previous: str) -> str:
    """The hash that the next entry will hold."""
    return digest([dataset, sequence, kind, payload, previous])


def mark_of(kind: str, payload: Mapping[str, Any]) -> str | None:
    """What a dataset has only once: a key, a reservation's end, its refund, a turn, a table."""
    if kind == "reserve":
        return f"key:{payload['key']}" if payload["key"] else None
    if kind in ("commit", "failed"):
        return f"end:{payload['reserve']}"
    if kind == "resume":
        if "run" in payload:
            return f"turn:{payload['run']}:{payload['turn']}"
        return f"resume:{payload['reserve']}:{payload['turn']}"
    if kind == "table":
        return f"table:{payload['number']}"
    if kind == "plan":
        return f"plan:{payload['key']}" if payload.get("key") else None
    return f"refund:{payload['reserve']}" if kind == "refund" else None


@dataclass(frozen=True)
class Entry:
    """One line of the chain, as it is stored."""

    dataset: str
    sequence: int
    kind: str
    mark: str | None
    payload: str
    previous: str
    hash: str

    @property
    def data(self) -> dict[str, Any]:
        """The payload as an object."""
        return json.loads(self.payload)

    @property
    def at(self) -> str:
        """When it was written, by the writer's clock, UTC."""
        return self.data["at"]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "dataset": self.dataset,
            "sequence": self.sequence,
            "kind": self.kind,
            "payload": self.data,
            "previous": self.previous,
            "hash": self.hash,
        }


@dataclass(frozen=True)
class Head:
    """The last entry's number and hash: the whole history in one line.

    Example:
        >>> head = Head("census", 7, "ab" * 32)
        >>> Head.parse(str(head)) == head
        True
        >>> head.verify(b"secret", head.sign(b"secret"))
        True
    """

    dataset: str
    sequence: int
    hash: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"dataset": self.dataset, "sequence": self.sequence, "hash": self.hash}

    def __str__(self) -> str:
        return canonical(self.to_dict())

    @classmethod
    def parse(cls, text: str) -> Head:
        """The inverse of ``str(head)``."""
        try:
            data = json.loads(text)
            dataset = validation.name("dataset", data["dataset"])
            sequence = validation.count("sequence", data["sequence"])
            found = str(data["hash"])
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(f"not a kept head: {text!r} ({error})") from None
        return cls(dataset, sequence, found)

    def sign(self, key: bytes) -> str:
        """HMAC-SHA256 of the head under ``key``, in hexadecimal."""
        message = f"sfumato ledger head\n{self}".encode("ascii")
        return hmac.new(key, message, hashlib.sha256).hexdigest()

    def verify(self, key: bytes, signature: str) -> bool:
        """Whether ``signature`` was made with ``key`` for this head."""
        return hmac.compare_digest(self.sign(key), signature)
