"""Files of delimited text, byte by byte: the neighbour's file lacks one line."""

from __future__ import annotations

import contextlib
import gzip
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hypothesis import strategies as st
from tests.neighbours.harness import Case, Outcome, differences, done
from tests.neighbours.tables import COINS, Question, asked, too_far

__all__ = ["LinesCase", "Question", "line_cases"]


@dataclass(frozen=True)
class LinesCase(Case):
    """A file of delimited text, of which the neighbour lacks one line.

    Attributes:
        header: the first line.
        lines: the others, in which no line feed stands.
        gone: the number of the line that comes and goes.
        ending: what stands behind each line.
        before: bytes at the file's beginning.
        name: of the file; by it the kind is told. A star makes two files of it.
        unit: the unit's column, or None where each line is one.
        rows: most rows of a unit.
        questions: what is asked.
        types: what columns stand for.
        closed: whether the last line ends as the others do.
    """

    kind: ClassVar[str] = "lines"
    header: bytes
    lines: tuple[bytes, ...]
    gone: int
    ending: bytes = b"\n"
    before: bytes = b""
    name: str = "data.csv"
    unit: str | None = None
    rows: int = 1
    questions: tuple[Question, ...] = (Question(),)
    types: tuple[tuple[str, str], ...] = ()
    closed: bool = True

    def broken(self) -> list[str]:
        """Other errors, other shapes, or numbers too far apart."""
        left = tuple(line for i, line in enumerate(self.lines) if i != self.gone)
        one, two = self._outcome(self.lines), self._outcome(left)
        return [*differences(one, two), *too_far(one, two)]

    def traits(self) -> frozenset[str]:
        """Bytes that are no letters or digits, and kinds of questions."""
        text = b"".join((self.before, self.ending, *self.lines))
        found = {repr(bytes([byte])) for byte in text if not bytes([byte]).isalnum()}
        found |= set().union(*(question.traits() for question in self.questions))
        found |= {"a unit's column"} if self.unit is not None else set()
        return frozenset(found | ({"types"} if self.types else set()))

    def _outcome(self, lines: tuple[bytes, ...]) -> Outcome:
        with _folder() as folder:
            half = len(self.lines) // 2
            if "*" in self.name:
                first = half - (self.gone < half and len(lines) < len(self.lines))
                self._write(folder / self.name.replace("*", "1"), lines[:first])
                self._write(folder / self.name.replace("*", "2"), lines[first:])
            else:
                self._write(folder / self.name, lines)
            return done(lambda out: self._open_and_ask(out, folder), [str(folder)], COINS)

    def _write(self, path: Path, lines: tuple[bytes, ...]) -> None:
        last = self.ending if self.closed else b""
        text = self.before + self.ending.join([self.header, *lines]) + last
        path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)

    def _open_and_ask(self, outcome: Outcome, folder: Path) -> None:
        import sfumato as sf

        unit: dict[str, Any] = {}
        if self.unit is not None:
            unit = {"unit": self.unit, "max_rows_per_unit": self.rows}
        table = sf.protect(
            str(folder / self.name), name="data", budget=sf.Budget(100, 1e-3),
            ledger=f"sqlite:///{folder}/ledger.db", types=dict(self.types) or None, **unit,
        )  # fmt: skip
        asked(outcome, table, self.questions)


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pair"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_CELLS = (
    *(b"", b"1", b"2", b"-7.5", b"nan", b"NULL", b"rome", b"ROME", b" rome", b"1e999", b"true"),
    *(b'"', b'""', b'"rome"', b'"ro,me"', b'"open', b'close"', b'a"b', b'"a"b', b"'", b"\\"),
    *(b'\\"', b"\r", b"a\rb", b"\r7,1", b"\x00", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xfe\xff"),
    *(b"\x1a", b"\x0b", b"\x0c", b"\xc2\x85", b"\xe2\x80\xa8", b"2020-01-01", b"#"),
    *(b"x" * 70_000, b"\t", b";"),
)  # fmt: skip


@st.composite
def line_cases(draw: st.DrawFn) -> LinesCase:
    """Any bytes but line feeds in lines."""
    name = draw(st.sampled_from(["data.csv", "data.csv", "data.tsv", "data.csv.gz", "part*.csv"]))
    comma = b"\t" if ".tsv" in name else b","
    header = comma.join([b"u", b"x", b"city"][: draw(st.integers(1, 3))])
    width = header.count(comma) + 1
    cells = st.lists(st.sampled_from(_CELLS), max_size=width + 1)
    usual = st.lists(st.sampled_from(_CELLS), min_size=width, max_size=width)
    anything = st.binary(max_size=8).map(lambda b: b.replace(b"\n", b""))
    line = st.one_of(usual.map(comma.join), usual.map(comma.join), cells.map(comma.join), anything)
    lines = tuple(draw(st.lists(line, min_size=1, max_size=8)))
    columns = header.decode().split(comma.decode())
    unit = draw(st.sampled_from([None, None, *columns]))
    column = draw(st.sampled_from(columns))
    filters = st.sampled_from([(), (), (f'"{column}" IS NULL',), (f"\"{column}\" = 'rome'",)])
    some = [
        Question("count", where=draw(filters)),
        Question("count_units", where=draw(filters)),
        Question("histogram", (column,), (("keys", ("rome", "1", "")),)),
        Question("count", by=(column,), keys=("rome", "ROME", "2")),
    ]
    numeric = draw(st.booleans())
    if numeric:
        some = [Question("sum", (column, -10.0, 10.0)), Question("mean", (column, 0.0, 5.0))]
    return LinesCase(
        header, lines, draw(st.integers(0, len(lines) - 1)),
        draw(st.sampled_from([b"\n", b"\n", b"\r\n"])),
        draw(st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1f\x8b"])),
        name, unit, draw(st.sampled_from([1, 2])), tuple(some),
        ((column, "float64"),) if numeric else (), draw(st.booleans()),
    )  # fmt: skip
