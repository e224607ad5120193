"""Which teacher learns from which unit: a keyed hash of the unit's own id.

    teacher of a unit = blake2b(salt, canonical bytes of its id) mod teachers

Formal guarantees
    - The teacher of a unit is a function of its id, the salt and the number of teachers alone. So
      one unit more or less changes the part of one teacher, and moves no other unit.
    - All rows of a unit lie in one part: ids that are equal have equal bytes (3, 3.0 and
      ``numpy.int8(3)``; composed and decomposed accents too). Ids that differ may share bytes (3
      and "3"), which only puts two units into the same part.
    - Ids are private and never raise. Rows whose id is missing (None, NaN, NaT) or is of a kind
      that has no canonical bytes belong to no teacher: whose they are is not known, so a person
      might have rows in two parts.

What would be wrong: slices of the table, a permutation of row numbers, or a number drawn for each
row in turn. Removing one row then moves others from teacher to teacher, and many votes change.

The salt keeps outsiders from working out who is with whom, or from choosing ids that crowd into one
part. It comes from the system's entropy and stays with the curator, as do the parts and their
sizes: a size counts private rows.

Reference: Papernot, Abadi, Erlingsson, Goodfellow and Talwar, "Semi-supervised knowledge transfer
for deep learning from private training data", arXiv:1610.05755 (disjoint parts).
"""

from __future__ import annotations

import datetime
import hashlib
import math
import numbers
import unicodedata
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.core import validation
from sfumato.core.odd_values import is_a, read_each, read_one
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.durable import write_whole

__all__ = [
    "Parts",
    "assign_records",
    "assign_units",
    "canonical_bytes",
    "kept_salt",
    "new_salt",
]

NOBODY = -1
"""The teacher of rows that are left out."""

_SALT_BYTES = 32
_DIGEST_BYTES = 16  # the remainder by the number of teachers is uniform to within 2^-100


@dataclass(frozen=True, eq=False)
class Parts:
    """The disjoint parts of a table. Curator's, but for the number of teachers.

    Attributes:
        teachers: how many there are; public.
        teacher_of: for each row its teacher, or -1 if it has none.
    """

    teachers: int
    teacher_of: NDArray[np.int64]

    def __post_init__(self) -> None:
        validation.count("teachers", self.teachers)
        found = np.asarray(self.teacher_of)
        known = found.ndim == 1 and found.dtype.kind in "iu"
        outside = known and bool(((found < NOBODY) | (found >= self.teachers)).any())
        if not known or outside:
            wanted = f"a teacher for each row, -1 (none) to {self.teachers - 1}"
            validation.fail("teacher_of", wanted, found.shape)
        object.__setattr__(self, "teacher_of", found.astype(np.int64))

    def __len__(self) -> int:
        return self.teachers

    def rows_of(self, teacher: int) -> NDArray[np.int64]:
        """The numbers of a teacher's rows, ascending. Curator's."""
        if not 0 <= teacher < self.teachers:
            validation.fail("teacher", f"between 0 and {self.teachers - 1}", teacher)
        return np.flatnonzero(self.teacher_of == teacher)

    def sizes(self) -> NDArray[np.int64]:
        """How many rows each teacher has. Curator's."""
        known = self.teacher_of[self.teacher_of >= 0]
        return np.bincount(known, minlength=self.teachers).astype(np.int64)


def new_salt(coins: Coins = SYSTEM) -> bytes:
    """A fresh secret of 32 bytes, for the curator to keep."""
    return coins.words(_SALT_BYTES // 8).tobytes()


def kept_salt(path: str | Path, coins: Coins = SYSTEM) -> bytes:
    """The salt in a file for the owner alone; made if there is none yet.

    Runs that are resumed, or repeated on the same table, need the same parts.

    Raises:
        ValueError: if the file holds something else.
    """
    path = Path(path)
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, new_salt(coins))
    return _checked_salt(path.read_bytes())


def assign_units(ids: ArrayLike | Iterable[Any], teachers: int, salt: bytes) -> Parts:
    """The parts of a table whose rows belong to units with ids.

    Args:
        ids: one for each row: whole numbers, words, bytes, UUIDs, dates.
        teachers: how many parts.
        salt: of :func:`new_salt`.

    >>> parts = assign_units(["ann", "bob", "ann", None], teachers=250, salt=bytes(32))
    >>> parts.teacher_of[0] == parts.teacher_of[2], int(parts.teacher_of[3])
    (np.True_, -1)
    """
    teachers, salt = validation.count("teachers", teachers), _checked_salt(salt)
    known: dict[bytes, int] = {}

    def teacher(value: Any) -> int:
        content = _canonical(value)
        if content is None:
            return NOBODY
        if content not in known:
            known[content] = _hashed(content, teachers, salt)
        return known[content]

    values = _listed(ids)
    return Parts(teachers, np.array(read_each(teacher, values, NOBODY), np.int64))


def assign_records(records: NDArray[Any], teachers: int, salt: bytes) -> Parts:
    """The parts of a table without ids: each row by its own bytes.

    The unit is then the record, and nothing protects a person who has several. Equal records share
    a teacher. That harms no guarantee, since adding or removing one of them still changes one part;
    but where many are equal, as in tables of few columns, parts differ in size.

    Args:
        records: one a row, of numbers: the inputs, without labels if a change of label is to stay
            with its teacher.
        teachers: how many parts.
        salt: of :func:`new_salt`.
    """
    teachers, salt = validation.count("teachers", teachers), _checked_salt(salt)
    table = np.ascontiguousarray(records)
    if table.ndim < 1 or table.dtype.hasobject:
        validation.fail("records", "an array of numbers, one record a row", table.dtype)
    found = (_hashed(row.tobytes(), teachers, salt) for row in table)
    return Parts(teachers, np.fromiter(found, np.int64, count=len(table)))


def canonical_bytes(value: Any) -> bytes | None:
    """The bytes of an id, the same for equal ids; None for what is missing or of another kind.

    >>> canonical_bytes(3) == canonical_bytes(3.0) == canonical_bytes(np.uint8(3)) == b"3"
    True
    >>> canonical_bytes(float("nan")) is None
    True
    """
    return read_one(_canonical, value, None)


def _canonical(value: Any) -> bytes | None:
    if is_a(value, bytes, bytearray, memoryview):
        return bytes(value)
    if is_a(value, str):
        return unicodedata.normalize("NFC", value).encode("utf-8", "surrogatepass")
    if is_a(value, np.bool_):
        return _canonical(bool(value))
    if is_a(value, np.timedelta64, datetime.timedelta):
        if value != value:  # NaT
            return None
        return str(np.timedelta64(value).astype("timedelta64[us]")).encode()
    if is_a(value, numbers.Real):
        return _number_bytes(value)
    if is_a(value, uuid.UUID):
        return str(value).encode()
    if is_a(value, np.datetime64, datetime.date):
        return _date_bytes(value)
    if getattr(value, "ndim", None) == 0 and callable(getattr(value, "item", None)):
        return _canonical(value.item())  # a number in a tensor or an array
    return None


def _number_bytes(value: Any) -> bytes | None:
    try:
        if math.isnan(value):
            return None
        if math.isinf(value) or value != int(value):
            return repr(float(value)).encode()
    except OverflowError:  # a whole number beyond floating point, which is neither
        pass
    whole = int(value)
    return b"%d" % whole if abs(whole) < 10**1000 else b"%x" % whole


def _date_bytes(value: np.datetime64 | datetime.date) -> bytes | None:
    """In microseconds, of universal time where a zone is given."""
    if value != value:  # NaT is what differs from itself
        return None
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return str(np.datetime64(value).astype("datetime64[us]")).encode()


def _hashed(content: bytes, teachers: int, salt: bytes) -> int:
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=salt).digest()
    return int.from_bytes(digest, "big") % teachers


def _checked_salt(salt: bytes) -> bytes:
    if not isinstance(salt, bytes) or len(salt) != _SALT_BYTES:
        shown = f"{len(salt)} bytes" if isinstance(salt, bytes) else type(salt).__name__
        validation.fail("salt", f"{_SALT_BYTES} secret bytes, as new_salt() gives", shown)
    return salt


def _listed(ids: Any) -> Sequence[Any]:
    for method in ("to_numpy", "cpu", "numpy"):  # a column of a table, a tensor
        if not isinstance(ids, np.ndarray) and hasattr(ids, method):
            ids = getattr(ids, method)()
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        validation.fail("ids", "a sequence with one id for each row", type(ids).__name__)
    if not isinstance(ids, np.ndarray):
        return list(ids)
    if ids.ndim != 1:
        validation.fail("ids", "one for each row, in one dimension", ids.shape)
    if isinstance(ids, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(ids)
        return [None if gone else v for v, gone in zip(_listed(ids.data), masked, strict=True)]
    return list(ids) if ids.dtype.kind in "mM" else ids.tolist()
