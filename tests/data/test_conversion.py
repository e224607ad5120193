"""Delimited text into Parquet: what one can read in one way only, and nothing else."""

import csv
import gzip
import io
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.data import conversion
from sfumato.data.conversion import convert
from sfumato.data.delimited import UnreadableError, read_columns

parquet = pytest.importorskip("pyarrow.parquet")

CELLS = st.text(st.sampled_from('a1é ",;\n\r\t\u2028\x0b\0'), max_size=5)
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=5)
)


def rows_of(path):
    return [tuple(row.values()) for row in parquet.read_table(path).to_pylist()]


def expected(rows):
    return [tuple(cell or None for cell in row) for row in rows]


@settings(max_examples=150)
@given(TABLES, st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_what_others_write_is_read_as_they_meant_it(tmp_path_factory, rows, delimiter, end, data):
    folder = tmp_path_factory.mktemp("written")
    encoding = data.draw(st.sampled_from([None, "utf-8-sig", "utf-16", "utf-32", "utf-16-le"]))
    packed = data.draw(st.booleans())
    names = [f"n{i}" for i in range(len(rows[0]) if rows else 1)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([names, *rows])
    content = text.getvalue().encode(encoding or "utf-8")
    path = folder / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(content) if packed else content)
    declared = encoding if encoding == "utf-16-le" else None
    done = convert(path, delimiter=delimiter, encoding=declared)
    assert done.path == folder / "t.parquet"
    assert rows_of(done.path) == expected(rows)
    assert (done.rows, done.columns) == (len(rows), tuple(names))
    assert done.broken == sum("\n" in "".join(row) or "\r" in "".join(row) for row in rows)


@given(st.lists(st.lists(st.sampled_from(["a", "", "5", '"p,q"', '"d""d"', "é"]), min_size=2,
                         max_size=2), max_size=5))  # fmt: skip
def test_a_file_without_broken_lines_is_the_table_that_its_lines_are(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("plain") / "t.csv"
    path.write_text("a,b\n" + "".join(",".join(row) + "\n" for row in rows), "utf-8")
    lines = zip(*read_columns([path], ("a", "b")).values(), strict=True)
    assert rows_of(convert(path).path) == expected(lines)


def test_empty_lines_are_no_rows_and_the_last_line_needs_no_end(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf a ,b\r\n\r\n1,"x\r\n\r\ny"\r\n\n,\n3,4')
    done = convert(path, tmp_path / "new.parquet")
    assert rows_of(done.path) == [("1", "x\r\n\r\ny"), (None, None), ("3", "4")]
    assert done.columns == ("a", "b")
    path.write_bytes(b"a,b")
    assert convert(path, tmp_path / "none.parquet").rows == 0
    assert rows_of(tmp_path / "none.parquet") == []


AMBIGUOUS = {
    "a quote that is not closed": (b'a,b\n1,2\n3,"4\n5,6\n', "line 3 .* never closed"),
    "a quote inside a cell": (b'a,b\n1,2\n3,5" x 6"\n', "line 3 .* a quote inside a cell"),
    "one quote inside a cell": (b'a,b\n3,5"\n"1",2\n4,5"\n', "line 2 .* a quote inside"),
    "text after a quote": (b'a,b\n"1"x,2\n', "line 2 .* beside quotes"),
    "a space before a quote": (b'a,b\n1, "2"\n', "line 2 "),
    "too few cells": (b"a,b\n1,2\n\n3\n", "line 4 .* 1 cells"),
    "too many cells": (b'a,b\n"1\n",2\n3,4,5\n', "line 4 .* 3 cells"),
    "a lone carriage return": (b"a,b\n1\r,2\n", "line 2 holds a line break"),
    "a line feed among carriage returns": (b"a,b\r1\n,2\r", "line 2 holds a line break"),
    "no UTF-8": (b"a,b\n1,2\n3,\xff\n", "must be in utf-8.*--encoding"),
    "UTF-16 without a mark": ("a,b\n1,2\n".encode("utf-16-le"), "UTF-16"),
    "a name twice": (b"a,A\n1,2\n", "each once"),
    "no name": (b"a,\n1,2\n", "each once"),
    "nothing": (b"", "each once"),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_what_can_be_read_in_two_ways_is_refused(tmp_path, name):
    content, words = AMBIGUOUS[name]
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match=words):
        convert(tmp_path / "t.csv")
    assert os.listdir(tmp_path) == ["t.csv"]


def test_a_quote_takes_no_more_than_a_bounded_part_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "LONGEST_LINE", 64)
    (tmp_path / "t.csv").write_bytes(b'a,b\n1,"open\n' + b"2,3\n" * 100)
    with pytest.raises(ValueError, match="line 2 begins a row of more than 16 MiB"):
        convert(tmp_path / "t.csv")


def test_many_rows_are_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(conversion, "_ROWS", 7)
    monkeypatch.setattr(conversion, "_CHARACTERS", 30)
    (tmp_path / "t.tsv").write_text("a\tb\n" + "".join(f"{i}\t{'x' * i}\n" for i in range(40)))
    rows = rows_of(convert(tmp_path / "t.tsv").path)
    assert rows == [(str(i), "x" * i or None) for i in range(40)]


def test_parameters(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;2\n")
    for options, words in (
        ({"out": tmp_path / "t.csv"}, "out must be a file .parquet"),
        ({"delimiter": "::"}, "delimiter must be one character"),
        ({"delimiter": '"'}, "delimiter must be one character"),
        ({"encoding": "latin-17"}, "encoding must be one that Python knows"),
        ({"encoding": "hex"}, "encoding must be one that Python knows"),
    ):
        with pytest.raises(ValueError, match=words):
            convert(path, **options)
    with pytest.raises(FileNotFoundError, match="file must be there"):
        convert(tmp_path / "absent.csv")
    path.chmod(0o640)
    assert rows_of(convert(path, delimiter=";").path) == [("1", "2")]
    assert (tmp_path / "t.parquet").stat().st_mode & 0o777 == 0o640
    with pytest.raises(ValueError, match="a file that is not there yet"):
        convert(path)
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n" * 99)[:-9])
    with pytest.raises(UnreadableError, match="damaged gzip"):
        convert(tmp_path / "cut.csv.gz")
