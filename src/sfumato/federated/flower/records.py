"""Bytes as Flower's records, and back.

A Flower message carries a RecordDict. Ours holds one ConfigRecord a piece of at most 8 MiB, so that
a large message travels as several objects, none of which comes near a limit of HTTP or SQLite.

    >>> content = content_of(b"hello")
    >>> sorted(content), bytes_of(content, most_bytes=1_000)
    (['sfumato.0'], b'hello')
"""

from __future__ import annotations

from flwr.app import ConfigRecord, RecordDict

from sfumato.federated.wire import Malformed

__all__ = ["PIECE", "bytes_of", "content_of", "length_of"]

PIECE = 8 * 2**20
_PREFIX, _KEY = "sfumato.", "bytes"


def content_of(data: bytes, *, piece: int = PIECE) -> RecordDict:
    """What carries these bytes."""
    starts = range(0, max(len(data), 1), piece)
    content = RecordDict()
    for index, start in enumerate(starts):
        content[f"{_PREFIX}{index}"] = ConfigRecord({_KEY: data[start : start + piece]})
    return content


def bytes_of(content: RecordDict, *, most_bytes: int | None = None) -> bytes:
    """The bytes it carries.

    Raises:
        Malformed: if it carries anything else, or more than ``most_bytes``.
    """
    pieces: list[bytes] = []
    size = 0
    for index in range(len(content)):
        record = content.get(f"{_PREFIX}{index}")
        if not isinstance(record, ConfigRecord) or list(record) != [_KEY]:
            raise Malformed("a message that is not one of ours")
        data = record[_KEY]
        if not isinstance(data, bytes):
            raise Malformed("a message that holds something other than bytes")
        size += len(data)
        if most_bytes is not None and size > most_bytes:
            raise Malformed(f"a message of more than {most_bytes} bytes")
        pieces.append(data)
    if not pieces:
        raise Malformed("an empty message")
    return b"".join(pieces)


def length_of(content: RecordDict) -> int:
    """How many bytes it carries, of what :func:`content_of` made."""
    found = [record.get(_KEY) for record in content.config_records.values()]
    return sum(len(data) for data in found if isinstance(data, bytes))
