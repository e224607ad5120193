r"""Delimited text (CSV, TSV, also compressed): one line is one row, whatever it holds.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text('who,said\nann,"5 feet\nbob\n\ncai,"a ""b"", c",more\n')
    >>> read_columns([path], ("who", "said"))
    {'who': ['ann', 'bob', 'cai'], 'said': ['5 feet', '', 'a "b", c']}

**The law.** Let a file have the header h and the lines l_1, ..., l_n, which end in line feeds. Then

    table(h, l_1 ... l_n) = row(l_1), ..., row(l_n)

where row depends on one line and on the header alone, and gives no row for an empty line and one
row for any other. So a file with one line more has one row more at most, the other rows are the
same, and no line makes reading fail: what a person's lines hold moves nobody else's rows.

What row does, in this order:

- A line ends at a line feed (byte 10) or at the file's end. Nothing else ends one: no quote, no
  lone carriage return, no form feed, no Unicode separator. One carriage return before the end is
  left out.
- A line that holds nothing is no row.
- A cell that begins with a quote goes on to the next quote that is not doubled, or to the end of
  the line; delimiters in it are text, and what follows its closing quote belongs to it. Elsewhere
  quotes are text.
- Cells beyond the header's are left out. Cells that are not there are missing, as empty ones are.
- A cell that is no UTF-8 is missing.
- Of a line longer than 16 MiB only the cells that end within so much are read; the rest are
  missing. So memory is bounded, whatever a line's length.

The header's line is public: it is refused if it is not in UTF-8 or cannot be read in one way.
Files with line breaks in cells are for :mod:`sfumato.data.conversion`.

Nothing here needs more than NumPy.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sfumato.core.curator import CURATOR

__all__ = [
    "ENDINGS",
    "Cells",
    "Delimited",
    "UnreadableError",
    "cells_in",
    "check_compressed",
    "evened",
    "fields_of",
    "files_at",
    "in_order",
    "is_delimited",
    "open_delimited",
    "read_columns",
    "reading",
    "report",
    "row_of",
    "text_of",
]

ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
"""How names of such files end, in any case."""

LONGEST_LINE = 1 << 24
"""Cells that end beyond so many bytes of their line are missing."""
_BLOCK = 1 << 21
_CELLS = 1 << 22
_FEW = 16
"""One line in so many may be written anew; where there are more, a block is parsed with care."""
_NEWLINE, _RETURN, _QUOTE = 10, 13, 34
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CONVERT = "'sfumato data convert' makes a Parquet file of it"

Positions = NDArray[np.int64]
Odd = Counter[str]
"""How many lines or cells were odd, by what was odd about them; for the curator alone."""


class UnreadableError(ValueError):
    """A file of another format, or a damaged one; what its rows hold has no part in it."""


def is_delimited(path: str | Path) -> bool:
    """Whether a file is delimited text, by its name.

    >>> is_delimited("a/B.CSV"), is_delimited("x.tsv.gz"), is_delimited("x.parquet")
    (True, True, False)
    """
    return Path(path).name.lower().endswith(ENDINGS)


def files_at(path: Path) -> list[Path]:
    """The file, or those whose names match where no file has that name and it holds a star."""
    pattern = "*" in path.name and not path.is_file()
    return sorted(path.parent.glob(path.name)) if pattern else [path]


@dataclass(frozen=True)
class Delimited:
    """Files of delimited text with the same header.

    Attributes:
        paths: where they are.
        names: of the columns, from the first line.
        delimiter: one character, between cells.
    """

    paths: tuple[Path, ...]
    names: tuple[str, ...]
    delimiter: str

    def blocks(self, odd: Odd) -> Iterator[bytes]:
        """The lines after the headers, many at once; each ends in a line feed.

        Raises:
            OSError: if a file cannot be read, or is another one by now.
        """
        for path in self.paths:
            with reading(path) as file:
                if tuple(_header(path, file, self.delimiter)) != self.names:
                    raise OSError(f"{str(path)!r} has another first line than before")
                for block in _blocks(file, len(self.names), self.delimiter, odd):
                    yield from _pieces(block, len(self.names))


def open_delimited(paths: Sequence[Path]) -> Delimited:
    """Reads the headers of some files, which must be the same; no row is looked at.

    Raises:
        UnreadableError: for a header that cannot be read; it is not repeated.
    """
    delimiter = "\t" if ".tsv" in paths[0].name.lower() else ","
    headers: list[tuple[str, ...]] = []
    for path in paths:
        with reading(path) as file:
            headers.append(tuple(_header(path, file, delimiter)))
    if any(other != headers[0] for other in headers):
        where = f"{paths[0].parent.name}/..."
        raise UnreadableError(f"the files {where} must all have the same first line")
    return Delimited(tuple(paths), headers[0], delimiter)


def read_columns(paths: Sequence[Path], names: Sequence[str]) -> dict[str, list[str]]:
    """Some columns of delimited files as text; a cell that is missing is empty.

    Raises:
        ValueError: for a header that cannot be read, or that does not name each of the columns
            once; never because of a line after it.
    """
    found = open_delimited(paths)
    for how, wrong in (
        ("not", [name for name in names if name not in found.names]),
        ("more than once", [name for name in names if found.names.count(name) > 1]),
    ):
        if wrong:
            raise ValueError(
                f"columns must be in {paths[0]}, got {', '.join(wrong)}, which are {how}"
            )
    places = [found.names.index(name) for name in names]
    columns: dict[str, list[str]] = {name: [] for name in names}
    odd: Odd = Counter()
    for block in found.blocks(odd):
        cells = cells_in(block, len(found.names), found.delimiter, odd)
        for name, place in zip(names, places, strict=True):
            columns[name] += text_of(cells, place)
    report(found.paths, odd)
    return columns


def report(paths: Sequence[Path], odd: Odd) -> None:
    """Tells the curator's log what was odd in some files."""
    for what, number in sorted(odd.items()):
        CURATOR.warning("%s: %d %s", ", ".join(map(str, paths[:3])), number, what)


def check_compressed(paths: Sequence[Path]) -> None:
    """Reads compressed files to their ends, so that a damaged one is found before it is asked.

    Raises:
        UnreadableError: for a damaged file.
    """
    for path in paths:
        if path.suffix.lower() == ".gz":
            with reading(path) as file:
                while file.read(_BLOCK):
                    pass


@contextmanager
def reading(path: Path) -> Iterator[IO[bytes]]:
    """A file's bytes, unpacked.

    Raises:
        UnreadableError: for a damaged one, as soon as that is met.
    """
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opened(path, "rb") as file:
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    else:
        return
    raise UnreadableError(f"{str(path)!r} is a damaged gzip file: copy it again from where it came")


# --- the header -----------------------------------------------------------------------------------


def _header(path: Path, file: IO[bytes], delimiter: str) -> list[str]:
    """The names in the first line, which is public; it may still be somebody's, if there is none.

    So no error repeats it.
    """
    line = file.readline(LONGEST_LINE)
    shown = f"the first line of {str(path)!r}"
    if len(line) == LONGEST_LINE:
        raise UnreadableError(f"{shown} is longer than {LONGEST_LINE >> 20} MiB: {_CONVERT}")
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) or b"\0" in line:
        raise UnreadableError(f"{shown} is not in UTF-8 but seems to be in UTF-16: {_CONVERT}")
    line = _without_end(line.removeprefix(_BYTE_ORDER_MARK))
    if b"\r" in line:
        raise UnreadableError(
            f"{shown} holds a carriage return; lines must end in line feeds: {_CONVERT}"
        )
    odd: Odd = Counter()
    fields = fields_of(line, delimiter.encode(), odd=odd)
    if odd:
        raise UnreadableError(f"{shown} has a quote that does not end in it: {_CONVERT}")
    try:
        return [field.decode().strip() for field in fields] if line else []
    except UnicodeDecodeError:
        pass
    raise UnreadableError(f"{shown} is not in UTF-8: {_CONVERT}")


def _without_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


# --- one line -------------------------------------------------------------------------------------


def fields_of(
    line: bytes, delimiter: bytes, most: int | None = None, odd: Odd | None = None
) -> list[bytes]:
    r"""The cells of one line without its end, ``most`` at most.

    >>> fields_of(b'a,"b ""c"", d"e,f"g","open, i', b",")
    [b'a', b'b "c", de', b'f"g"', b'open, i']
    """
    return _fields(line, delimiter, most, odd)[0]


def _fields(
    line: bytes, delimiter: bytes, most: int | None, odd: Odd | None = None
) -> tuple[list[bytes], bool]:
    """The cells, and whether the last of them goes to the end of the line."""
    fields: list[bytes] = []
    at, size = 0, len(line)
    while most is None or len(fields) < most:
        parts: list[bytes] = []
        if line.startswith(b'"', at):
            at = _quoted(line, at + 1, parts, odd)
        end = line.find(delimiter, at)
        end = size if end < 0 else end
        parts.append(line[at:end])
        fields.append(b"".join(parts))
        if end == size:
            return fields, True
        at = end + 1
    return fields, False


def _quoted(line: bytes, at: int, parts: list[bytes], odd: Odd | None) -> int:
    """Puts what stands in quotes into ``parts``; where it goes on after the closing quote."""
    while True:
        end = line.find(b'"', at)
        if end < 0:
            parts.append(line[at:])
            if odd is not None:
                odd["lines with a quote that is still open at the line's end: " + _CONVERT] += 1
            return len(line)
        parts.append(line[at:end])
        at = end + 1
        if not line.startswith(b'"', at):
            return at
        parts.append(b'"')
        at += 1


def row_of(line: bytes, width: int, delimiter: str) -> tuple[str, ...] | None:
    """One line's row by the definition, one step after the other; None for an empty line.

    It is what :func:`cells_in` does to many lines at once, and what tests compare with.
    """
    cut = len(line) > LONGEST_LINE
    line = line[:LONGEST_LINE] if cut else line.removesuffix(b"\r")
    if not line:
        return None
    fields, at_end = _fields(line, delimiter.encode(), width)
    if cut and at_end:
        fields.pop()
    return tuple(map(_text, fields)) + ("",) * (width - len(fields))


def _text(cell: bytes) -> str:
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return ""


# --- blocks of lines ------------------------------------------------------------------------------


def _blocks(file: IO[bytes], width: int, delimiter: str, odd: Odd) -> Iterator[bytes]:
    """Whole lines, a few megabytes at once; a line that is longer is written anew, without ballast.

    Of a line that has no end yet only its beginning is kept.
    """
    head, length = b"", 0  # of the line that goes on
    while chunk := file.read(_BLOCK):
        first, last = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
        if first < 0:
            head += chunk[: LONGEST_LINE + 1 - len(head)]
            length += len(chunk)
            continue
        if length + first > _BLOCK:
            head += chunk[: min(first, max(0, LONGEST_LINE + 1 - len(head)))]
            yield _shortened(head, width, delimiter, odd)
            head, chunk, last = b"", chunk[first + 1 :], last - first - 1
        if head or last:
            yield head + chunk[:last]
        head = chunk[last:]
        length = len(head)
    if length > _BLOCK:
        yield _shortened(head, width, delimiter, odd)
    elif head:
        yield head + b"\n"


def _pieces(block: bytes, width: int) -> Iterator[bytes]:
    """The lines of a block, fewer at once where they are short and the header is long.

    Cells that are not there take memory, too: a line feed alone may stand for a thousand of them.
    """
    if block.count(b"\n") * width <= _CELLS:
        yield block
        return
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _NEWLINE) + 1
    step, done = max(1, _CELLS // width), 0
    for last in range(step, len(ends) + step, step):
        end = int(ends[min(last, len(ends)) - 1])
        yield block[done:end]
        done = end


def _shortened(line: bytes, width: int, delimiter: str, odd: Odd) -> bytes:
    """A long line as one that means the same; ``line`` is not longer than the longest and one."""
    cut = len(line) > LONGEST_LINE
    line = line[:LONGEST_LINE] if cut else line.removesuffix(b"\r")
    fields, at_end = _fields(line, delimiter.encode(), width, None if cut else odd)
    if cut:
        odd[f"lines of more than {LONGEST_LINE >> 20} MiB, of which the rest is missing"] += 1
        if at_end:
            fields.pop()
    return _written(fields, delimiter.encode()) + b"\n"


def _written(fields: Sequence[bytes], delimiter: bytes) -> bytes:
    """The cells as a line that every reader of quotes reads alike; never an empty line."""
    return delimiter.join(b'"' + f.replace(b'"', b'""') + b'"' for f in fields) or b'""'


@dataclass(frozen=True)
class Cells:
    """The cells of a block: row i's cell j is ``data[starts[i, j]:ends[i, j]]``, valid UTF-8.

    A missing cell is empty. Places never go down, from cell to cell and from row to row.
    """

    data: bytes
    starts: Positions
    ends: Positions
    ascii: bool


def cells_in(block: bytes, width: int, delimiter: str, odd: Odd) -> Cells:
    """The cells of a block of lines, each of which ends in a line feed."""
    while True:
        data = np.frombuffer(block, np.uint8)
        if b'"' not in block:
            apart = np.flatnonzero((data == _NEWLINE) | (data == ord(delimiter)))
            doubled = None
            break
        quotes = _Quotes(data, ord(delimiter))
        if not quotes.irregular.any():
            apart, doubled = quotes.separators(), quotes.doubled
            break
        block = _rewritten(block, quotes.line_ends, quotes.irregular, width, delimiter, odd)
    starts, ends = _table(data, apart, width)
    if doubled is not None:
        opened = (ends > starts) & (data[starts] == _QUOTE)
        starts, ends = starts + opened, ends - opened
        if len(doubled):  # of two quotes in a quoted cell the second goes
            starts = starts - np.searchsorted(doubled, starts)
            ends = ends - np.searchsorted(doubled, ends)
            block = np.delete(data, doubled).tobytes()
    plain = block.isascii()
    if not plain:
        _leave_out_invalid(block, starts, ends, odd)
    return Cells(block, starts, ends, plain)


def in_order(block: bytes, width: int, delimiter: str, odd: Odd) -> tuple[bytes, bool] | None:
    """Lines that mean the same, with quotes around cells and nowhere else, or all of them text.

    A few lines that are in no such order are written anew; None if they are many. Also said is
    whether there are quotes around cells.
    """
    data, apart = np.frombuffer(block, np.uint8), ord(delimiter)
    places = np.flatnonzero(data == _QUOTE)
    before = data[places - 1]
    begins = (before == apart) | (before == _NEWLINE)
    if not begins.any():
        return block, False
    ends = np.flatnonzero(data == _NEWLINE)
    if len(places) % 2 == 0 and (begins | (before == _QUOTE))[::2].all():
        after = data[places[1::2] + 1]
        closing = (after == apart) | (after == _NEWLINE) | (after == _QUOTE)
        if closing.all() and not (np.searchsorted(places, ends) % 2).any():  # none stays open
            return block, True
    quotes = _Quotes(data, apart)
    lines = quotes.irregular | quotes.texts
    if lines.sum() * _FEW > len(lines):
        return None
    return _rewritten(block, ends, lines, width, delimiter, odd), True


def evened(block: bytes, width: int, delimiter: str, quoted: bool) -> bytes | None:
    """Lines in order (:func:`in_order`) that mean the same, each with as many cells as the header.

    None if that cannot be said of them, or many would have to be written anew.
    """
    if width == 1 and not quoted:
        return None  # a line without its second cell may be an empty one, which is no row
    data, apart = np.frombuffer(block, np.uint8), ord(delimiter)
    at = np.flatnonzero((data == _NEWLINE) | (data == apart))
    if quoted:
        at = _Quotes(data, apart).separators()
    newline = data[at] == _NEWLINE
    ends = at[newline]
    uneven = np.diff(np.flatnonzero(newline), prepend=-1) != width
    uneven &= np.diff(ends, prepend=-1) > 1
    if not uneven.any() or uneven.sum() * _FEW > len(uneven):
        return None
    if quoted:
        return _rewritten(block, ends, uneven, width, delimiter, Counter())
    between = delimiter.encode()

    def line_of(line: bytes) -> bytes:
        cells = line.split(between, width)[:width]
        return between.join(cells + [b""] * (width - len(cells)))

    return _replaced(block, ends, uneven, line_of)


class _Quotes:
    """Where quotes in a block of lines open and close cells.

    In a line where no cell begins with a quote, all quotes are text (``texts``). A line is regular
    if its quotes open and close in turns, each opening one at the beginning of a cell, each closing
    one at its end, or as a pair within. Others are irregular: they are parsed one by one.
    """

    def __init__(self, data: NDArray[np.uint8], delimiter: int) -> None:
        self._data, self._delimiter = data, delimiter
        self.line_ends = np.flatnonzero(data == _NEWLINE)
        places = np.flatnonzero(data == _QUOTE)
        lines = np.searchsorted(self.line_ends, places)
        before = data[places - 1]  # the last byte, a line feed, stands before the first
        begins = (before == delimiter) | (before == _NEWLINE)
        quoting = np.zeros(len(self.line_ends), bool)
        quoting[lines[begins]] = True
        counts = quoting[lines]
        self.texts = np.zeros(len(self.line_ends), bool)
        self.texts[lines[~counts]] = True
        places, lines = places[counts], lines[counts]
        before, begins = before[counts], begins[counts]
        order = np.arange(len(places))
        new_line = np.diff(lines, prepend=-1) != 0
        order -= np.maximum.accumulate(np.where(new_line, order, 0))
        opening = order % 2 == 0
        fine = np.where(
            opening, begins | (before == _QUOTE), self._ends_a_cell(data, places, delimiter)
        )
        self.irregular = np.bincount(lines, minlength=len(self.line_ends)) % 2 == 1
        self.irregular[lines[~fine]] = True
        self.doubled = places[opening & (before == _QUOTE)]
        self._places = places

    def separators(self) -> Positions:
        """Where cells end, if no line is irregular."""
        at = np.flatnonzero((self._data == _NEWLINE) | (self._data == self._delimiter))
        return at[np.searchsorted(self._places, at) % 2 == 0]

    @staticmethod
    def _ends_a_cell(data: NDArray[np.uint8], places: Positions, delimiter: int) -> NDArray:
        after = data[places + 1]  # a line feed is the last
        fine = (after == delimiter) | (after == _NEWLINE) | (after == _QUOTE)
        returns = np.flatnonzero(after == _RETURN)
        fine[returns] = data[places[returns] + 2] == _NEWLINE
        return fine


def _rewritten(
    block: bytes, ends: Positions, lines: NDArray[np.bool_], width: int, delimiter: str, odd: Odd
) -> bytes:
    """The block with some of its lines written as regular ones, each with all its cells."""
    between = delimiter.encode()

    def line_of(line: bytes) -> bytes:
        fields = fields_of(line.removesuffix(b"\r"), between, width, odd)
        return _written(fields + [b""] * (width - len(fields)), between)

    return _replaced(block, ends, lines, line_of)


def _replaced(
    block: bytes, ends: Positions, lines: NDArray[np.bool_], line_of: Callable[[bytes], bytes]
) -> bytes:
    """The block with others in place of some lines."""
    pieces: list[bytes] = []
    done = 0
    for number in np.flatnonzero(lines).tolist():
        start = int(ends[number - 1]) + 1 if number else 0
        end = int(ends[number])
        pieces += (block[done:start], line_of(block[start:end]))
        done = end
    return b"".join((*pieces, block[done:]))


def _table(data: NDArray[np.uint8], apart: Positions, width: int) -> tuple[Positions, Positions]:
    """Where cells begin and end, by rows, from the places of what stands between them."""
    newline = data[apart] == _NEWLINE
    begin = np.concatenate(([0], apart[:-1] + 1))
    end = apart - (newline & (data[apart - 1] == _RETURN))
    last = np.flatnonzero(newline)
    first = np.concatenate(([0], last[:-1] + 1))
    if width > 1 and len(apart) == width * len(last) and newline[width - 1 :: width].all():
        return begin.reshape(-1, width), end.reshape(-1, width)
    rows = (last > first) | (end[last] > begin[first])  # whether the line holds anything
    number = np.cumsum(rows) - 1
    line = np.cumsum(newline) - newline
    column = np.arange(len(apart)) - first[line]
    used = rows[line] & (column < width)
    cell = (number[line[used]], column[used])
    starts = np.repeat(end[last[rows]], width).reshape(-1, width)
    ends = starts.copy()
    starts[cell], ends[cell] = begin[used], end[used]
    return starts, ends


def _leave_out_invalid(block: bytes, starts: Positions, ends: Positions, odd: Odd) -> None:
    """Makes the cells missing that are no UTF-8."""
    view = memoryview(block)
    if _is_text(view):
        return
    places = np.flatnonzero(np.frombuffer(block, np.uint8) >= 128)
    first, last = starts.ravel(), ends.ravel()
    cells = np.searchsorted(first, places, "right") - 1
    for cell in np.unique(cells[places < last[cells]]).tolist():
        if not _is_text(view[int(first[cell]) : int(last[cell])]):
            ends[divmod(cell, ends.shape[1])] = first[cell]
            odd["cells that are not in UTF-8 and therefore missing: " + _CONVERT] += 1


def _is_text(cell: memoryview) -> bool:
    try:
        codecs.utf_8_decode(cell, "strict", True)
    except UnicodeDecodeError:
        return False
    return True


def text_of(cells: Cells, column: int) -> list[str]:
    """One column's text."""
    places = zip(cells.starts[:, column].tolist(), cells.ends[:, column].tolist(), strict=True)
    if cells.ascii:
        text = cells.data.decode("ascii")
        return [text[start:end] for start, end in places]
    return [cells.data[start:end].decode() for start, end in places]
