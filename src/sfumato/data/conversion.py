r"""Delimited text of other kinds into Parquet, strictly: for the curator, before anything is asked.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.csv"
    >>> _ = path.write_text('who,said\nann,"first line\nsecond line"\nbob,\n')
    >>> convert(path)
    Conversion(path=PosixPath('...notes.parquet'), rows=2, columns=('who', 'said'), broken=1)

Files of private rows are read line by line (:mod:`sfumato.data.delimited`): there a line break ends
a row, also in quotes. Here quotes hold line breaks together, as RFC 4180 says, and whatever could
be read in two ways is an error that names the line. Such an error depends on the rows, and so does
what a quote takes with it. That is why this is a step of its own, whose outcome the curator looks
at; in the Parquet file that it writes a row is a row, whatever its cells hold.

Every column is text, and an empty cell is missing, as where lines are read.
"""

from __future__ import annotations

import codecs
import functools
import io
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sfumato.core import validation
from sfumato.data.delimited import LONGEST_LINE, reading
from sfumato.extras import needed_for

__all__ = ["Conversion", "convert"]

_ROWS, _CHARACTERS = 100_000, 1 << 26
"""What is in memory at once: so many rows, and not much more text than so many characters."""
_MARK = "\ufeff"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # which begins as UTF-16's mark does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class Conversion:
    """What became of a file.

    Attributes:
        path: of the Parquet file.
        rows: how many there are; for the curator, since it is private.
        columns: their names.
        broken: how many rows have a line break in a cell; for the curator.
    """

    path: Path
    rows: int
    columns: tuple[str, ...]
    broken: int


def convert(
    path: str | Path,
    out: str | Path | None = None,
    *,
    delimiter: str | None = None,
    encoding: str | None = None,
) -> Conversion:
    """Writes the table in a file of delimited text as a Parquet file, all columns text.

    Args:
        path: of the file; one that ends in ``.gz`` is unpacked.
        out: of the Parquet file, which must not be there yet; beside the other unless given.
        delimiter: one character; a tab for ``.tsv``, else a comma.
        encoding: as Python calls it, such as "latin-1"; by the mark at the file's beginning, else
            UTF-8.

    Raises:
        ValueError: for a parameter that cannot be, and for a file that can be read in two ways.
            No file is written then. The error tells which line it is, and is for the curator.
        OSError: for files that cannot be read or written.
    """
    with needed_for("a Parquet file"):
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    source = Path(path)
    target = _target(source, out)
    between = _delimiter(source, delimiter)
    records = _records(_lines(source, _encoding(source, encoding)), between)
    names = _names(records)
    schema = arrow.schema([(name, arrow.string()) for name in names])
    rows = broken = 0
    with _written_whole(source, target) as part, parquet.ParquetWriter(part, schema) as writer:
        for batch, odd in _batches(records, names):
            columns = [arrow.array(column, arrow.string()) for column in batch]
            writer.write_batch(arrow.record_batch(columns, schema=schema))
            rows += len(batch[0])
            broken += odd
    return Conversion(target, rows, names, broken)


def _target(source: Path, out: str | Path | None) -> Path:
    if not source.is_file():
        raise FileNotFoundError(f"file must be there, got {str(source)!r}")
    plain = source.with_suffix("") if source.suffix.lower() == ".gz" else source
    target = plain.with_suffix(".parquet") if out is None else Path(out)
    if target.suffix.lower() != ".parquet":
        validation.fail("out", "a file .parquet", str(target))
    if target.exists():
        validation.fail("out", "a file that is not there yet", str(target))
    return target


def _delimiter(source: Path, given: str | None) -> str:
    if given is None:
        return "\t" if ".tsv" in source.name.lower() else ","
    if len(given) != 1 or given in '"\r\n\0':
        validation.fail("delimiter", "one character, no quote and no line break", given)
    return given


def _encoding(source: Path, given: str | None) -> str:
    if given is None:
        with reading(source) as file:
            start = file.read(4)
        return next((name for mark, name in _MARKS if start.startswith(mark)), "utf-8")
    try:
        "".encode(given)
    except (LookupError, ValueError):
        validation.fail("encoding", "one that Python knows, such as 'utf-16', 'latin-1'", given)
    return given


@contextmanager
def _written_whole(source: Path, target: Path) -> Iterator[Path]:
    """A file to write that becomes the target if nothing fails, readable by whom the source is."""
    part = target.with_name(f".{target.name}.part")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        shutil.copymode(source, part)
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


# --- lines and records ----------------------------------------------------------------------------


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """The lines with their ends: line feeds, or carriage returns where the first line has one."""
    number = 0
    try:
        with reading(path) as file, io.TextIOWrapper(file, encoding, newline="") as text:
            first = text.readline(LONGEST_LINE)
        end = "\r" if first.endswith("\r") else "\n"
        with reading(path) as file, io.TextIOWrapper(file, encoding, newline=end) as text:
            while line := text.readline(LONGEST_LINE):
                yield line if number else line.removeprefix(_MARK)
                number += 1
    except UnicodeError:
        pass
    else:
        return
    raise ValueError(f"the file must be in {encoding}, and is not after line {number}: --encoding")


Record = tuple[int, list[str], bool]
"""The line that it begins in, its cells, and whether one of them holds a line break."""


def _records(lines: Iterator[str], delimiter: str) -> Iterator[Record]:
    """A record goes on until its quotes are even; empty lines between are none."""
    kept, size, begun, odd = [], 0, 1, 0
    for number, line in enumerate(lines, 1):
        kept.append(line)
        size += len(line)
        odd ^= line.count('"') & 1
        if size >= LONGEST_LINE:
            raise ValueError(
                f"line {begun} begins a row of more than 16 MiB: is a quote not closed?"
            )
        if odd:
            continue
        text = ("".join(kept) if len(kept) > 1 else line).removesuffix("\n").removesuffix("\r")
        if text:
            yield begun, _cells(text, delimiter, begun), "\n" in text or "\r" in text
        kept, size, begun = [], 0, number + 1
    if odd:
        raise ValueError(f"line {begun} begins a row with a quote that is never closed")


def _cells(text: str, delimiter: str, number: int) -> list[str]:
    """The cells of a record; each is in quotes, with doubled ones in it, or holds none."""
    if '"' not in text:
        if "\r" in text or "\n" in text:
            raise ValueError(f"line {number} holds a line break that is not in quotes")
        return text.split(delimiter)
    whole, cell = _patterns(delimiter)
    text += delimiter
    if whole.fullmatch(text) is None:
        raise ValueError(
            f"line {number} begins a row with a quote inside a cell, or text beside quotes"
        )
    return [quoted.replace('""', '"') or plain for quoted, plain in cell.findall(text)]


@functools.cache
def _patterns(delimiter: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Of a record, a delimiter after it, and of one cell: what is in quotes, or what is not."""
    apart = re.escape(delimiter)
    cell = rf'(?:"((?:[^"]++|"")*+)"|([^"{apart}\r\n]*+)){apart}'
    return re.compile(rf"(?:{cell})++"), re.compile(cell)


def _names(records: Iterator[Record]) -> tuple[str, ...]:
    names = tuple(name.strip() for name in next(records, (1, [""], False))[1])
    if any("\0" in name for name in names):
        raise ValueError("the first line seems to be in UTF-16: say --encoding utf-16-le, or -be")
    if not all(names) or len({name.lower() for name in names}) < len(names):
        raise ValueError("the first line must name the columns, each once")
    return names


def _batches(
    records: Iterator[Record], names: tuple[str, ...]
) -> Iterator[tuple[list[tuple[str | None, ...]], int]]:
    """Columns of so many rows, and how many of these hold line breaks."""
    rows: list[list[str | None]] = []
    size = broken = 0
    for number, cells, odd in records:
        if len(cells) != len(names):
            raise ValueError(
                f"line {number} begins a row of {len(cells)} cells, and the first line names "
                f"{len(names)}"
            )
        rows.append([cell or None for cell in cells])
        size += sum(map(len, cells))
        broken += odd
        if len(rows) == _ROWS or size > _CHARACTERS:
            yield list(zip(*rows, strict=True)), broken
            rows, size, broken = [], 0, 0
    if rows:
        yield list(zip(*rows, strict=True)), broken
