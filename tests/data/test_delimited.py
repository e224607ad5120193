"""One line is one row: the table of some lines is the rows of each, whatever they hold."""

import gzip
import logging
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.curator import CURATOR
from sfumato.data import delimited
from sfumato.data.delimited import (
    UnreadableError,
    cells_in,
    fields_of,
    in_order,
    is_delimited,
    open_delimited,
    read_columns,
    row_of,
    text_of,
)

NAMES = ("a", "b", "c")
PIECES = [
    *(b'"', b'""', b",", b'",', b',"', b'"x"', b'"p,q"', b"x", b"12", b" ", b"\t", b"\r", b"\0"),
    *(b"\xff", b"\xc3", b"\xa9", b"\xc3\xa9", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80"),
    *(b"\xe2\x80\xa8", b"\xc2\x85", b"\x85", b"\x0b", b"\x0c", b"\x1c", b"\x1a", b"'", b"\\", b"#"),
]
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join), max_size=8)
ANY = st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=6)


def parsed(lines, width=3, delimiter=","):
    block = b"".join(line + b"\n" for line in lines)
    cells = cells_in(block, width, delimiter, Counter()) if block else None
    columns = [text_of(cells, column) for column in range(width)] if cells else []
    return list(zip(*columns, strict=True))


def by_definition(lines, width=3):
    rows = (row_of(line, width, ",") for line in lines)
    return [row for row in rows if row is not None]


@settings(max_examples=300)
@given(st.one_of(LINES, ANY), st.integers(1, 3))
def test_a_table_is_the_rows_of_its_lines(lines, width):
    assert parsed(lines, width) == by_definition(lines, width)


@given(LINES, LINES, st.lists(st.sampled_from(PIECES), max_size=9).map(b"".join))
def test_one_line_more_is_one_row_more_at_most(before, after, line):
    without, with_it = parsed(before + after), parsed([*before, line, *after])
    place = len(parsed(before))
    alone = parsed([line])
    assert with_it == without[:place] + alone + without[place:]
    assert len(alone) == (1 if line.removesuffix(b"\r") else 0)


HOSTILE = {
    "an open quote": (b'1,"he said: 5 feet,3', ("1", "he said: 5 feet,3", "")),
    "an open quote at the end": (b'1,2,"', ("1", "2", "")),
    "a quote within": (b"1,5' 10\" tall,3", ("1", "5' 10\" tall", "3")),
    "doubled quotes": (b'1,"a ""b""",3', ("1", 'a "b"', "3")),
    "text after a quote": (b'1,"x"y,3', ("1", "xy", "3")),
    "a space before a quote": (b'1, "x,3', ("1", ' "x', "3")),
    "a delimiter in quotes": (b'1,"x,y",3', ("1", "x,y", "3")),
    "a backslash": (b'1,"x\\",3', ("1", "x\\", "3")),
    "too few": (b"1", ("1", "", "")),
    "too many": (b"1,2,3,4,5", ("1", "2", "3")),
    "delimiters": (b",,", ("", "", "")),
    "a quoted nothing": (b'""', ("", "", "")),
    "a null byte": (b"1,\0,3", ("1", "\0", "3")),
    "a carriage return": (b"1,x\r2,y,3", ("1", "x\r2", "y")),
    "carriage returns at the end": (b"1,2,3\r\r", ("1", "2", "3\r")),
    "carriage return in quotes": (b'1,"2\r",3\r', ("1", "2\r", "3")),
    "no UTF-8": (b"1,\xff\xfe,3", ("1", "", "3")),
    "half a letter": (b"1,\xc3,\xa9", ("1", "", "")),
    "a surrogate": (b"1,\xed\xa0\x80,3", ("1", "", "3")),
    "a mark of byte order": (b"\xef\xbb\xbf1,2,3", ("\ufeff1", "2", "3")),
    "other ends of lines": (
        b"1\xe2\x80\xa8,2\xc2\x85\x0b\x0c,3\x1c",
        ("1\u2028", "2\x85\x0b\x0c", "3\x1c"),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz", "globbed"])
def test_hostile_lines_keep_to_themselves(tmp_path, name, ending):
    line, row = HOSTILE[name]
    suffix = "csv" if ending == "globbed" else ending
    if "tsv" in ending:
        line = line.replace(b",", b"\t")
        row = tuple(cell.replace(",", "\t") for cell in row)
    comma = b"\t" if "tsv" in ending else b","
    good, header = comma.join((b"7", b"8", b"9")) + b"\n", comma.join((b"a", b"b", b"c")) + b"\n"
    opened = gzip.open if suffix.endswith("gz") else open
    with opened(tmp_path / f"t1.{suffix}", "wb") as file:
        file.write(header + good * 3 + line + b"\n" + good * 2)
    if ending == "globbed":
        (tmp_path / "t2.csv").write_bytes(b"\xef\xbb\xbf" + header.replace(b"\n", b"\r\n") + line)
    columns = read_columns(sorted(tmp_path.glob(f"*.{suffix}")), NAMES)
    rows = list(zip(*columns.values(), strict=True))
    expected = [("7", "8", "9")] * 3 + [row] + [("7", "8", "9")] * 2
    assert rows == ([*expected, row] if ending == "globbed" else expected)


def test_the_end_of_a_file_ends_a_line(tmp_path):
    path = tmp_path / "t.csv"
    for end in (b"", b"\n", b"\r\n", b"\r", b"\n\n\r\n"):
        path.write_bytes(b"a,b,c\r\n1,2,3" + end)
        assert read_columns([path], NAMES) == {"a": ["1"], "b": ["2"], "c": ["3"]}
    for empty in (b"a,b,c", b"a,b,c\n", b"a,b,c\n\n\r\n"):
        path.write_bytes(empty)
        assert read_columns([path], ["c"]) == {"c": []}


@pytest.mark.parametrize("size", [0, 1, 2, 5, 39, 40, 41, 63, 64, 65, 200])
@pytest.mark.parametrize("block", [7, 16, 64])
def test_long_lines_are_rows_too(tmp_path, monkeypatch, size, block):
    """Blocks of a few bytes, and lines longer than any: the same rows as one line at a time."""
    monkeypatch.setattr(delimited, "_BLOCK", block)
    monkeypatch.setattr(delimited, "LONGEST_LINE", 64)
    x = b"x" * size
    lines = [b"1,2,3", x + b",2,3", b'"' + x + b'",",",3', b"1," + x + b"\r", b",".join([x] * 5)]
    lines += [b"4,5,6", b'"' + b'""' * size + b'",2', x, b'1,"' + x, b"7,8,9"]
    path = tmp_path / "t.csv"
    for end in (b"", b"\n"):
        path.write_bytes(b"a,b,c\n" + b"\n".join(lines) + end)
        columns = read_columns([path], NAMES)
        assert list(zip(*columns.values(), strict=True)) == by_definition(lines)


def test_memory_does_not_grow_with_a_line(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b'a,b,c\n1,2,3\n4,"')
        for _ in range(100):
            file.write(b"x," * (1 << 19))
        file.write(b"\n7,8,9\n")
    tracemalloc.start()
    columns = read_columns([path], NAMES)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert columns == {"a": ["1", "4", "7"], "b": ["2", "", "8"], "c": ["3", "", "9"]}
    assert peak < 90e6, "a line of 100 MB"


def test_short_lines_under_a_long_header_come_a_few_at_once(tmp_path, monkeypatch):
    """A million line feeds are no million times as many cells as the header names."""
    monkeypatch.setattr(delimited, "_CELLS", 50)
    names = [f"n{i}" for i in range(20)]
    lines = [b"1", b'"x', b"", b"a,b\r", b",".join([b"7"] * 20), b",", b"\xff", b"y"]
    path = tmp_path / "t.csv"
    path.write_bytes(",".join(names).encode() + b"\n" + b"\n".join(lines))
    found = open_delimited([path])
    blocks = list(found.blocks(Counter()))
    assert b"".join(blocks) == b"\n".join(lines) + b"\n"
    assert max(block.count(b"\n") for block in blocks) == 2
    rows = list(zip(*read_columns([path], names).values(), strict=True))
    assert rows == by_definition(lines, 20)
    monkeypatch.setattr(delimited, "_CELLS", 3)
    assert list(zip(*read_columns([path], names).values(), strict=True)) == rows


def test_a_file_in_another_encoding_is_read_in_time_that_grows_with_its_size(monkeypatch):
    """Each byte is looked at a few times, not once for every bad cell before it."""
    seen = []
    is_text = delimited._is_text
    monkeypatch.setattr(
        delimited, "_is_text", lambda cell: bool(seen.append(len(cell))) or is_text(cell)
    )
    assert parsed([b"1,Gr\xf6\xdfe,\xc3\xa9"] * 1000) == [("1", "", "é")] * 1000
    assert sum(seen) < 2 * 13_000


def test_headers(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"a", b ,"c ""d"""\n1,2,3\n')
    assert open_delimited([path]).names == ("a", "b", 'c "d"')
    for header, words in (
        ("a,b".encode("utf-16"), "seems to be in UTF-16"),
        ("a,b\n".encode("utf-16-le"), "seems to be in UTF-16"),
        (b"a,b\r1,2\r", "carriage return"),
        (b'a,"b\nc"\n', "a quote that does not end in it"),
        (b"a,Gr\xf6\xdfe\n", "not in UTF-8"),
        (b"a" * delimited.LONGEST_LINE + b"b,c\n", "longer than 16 MiB"),
    ):
        path.write_bytes(header)
        with pytest.raises(UnreadableError, match=words) as raised:
            read_columns([path], ["a"])
        assert "data convert" in str(raised.value)
    path.write_bytes(b"a,b,a\n1,2,3\n")
    assert read_columns([path], ["b"]) == {"b": ["2"]}
    with pytest.raises(ValueError, match="got a, which are more than once"):
        read_columns([path], ["a", "b"])
    with pytest.raises(ValueError, match="got x, y, which are not"):
        read_columns([path], ["x", "b", "y"])


def test_a_damaged_file_is_said_to_be_one(tmp_path):
    path = tmp_path / "t.csv.gz"
    whole = gzip.compress(b"a,b,c\n" + b"1,2,3\n" * 1000) + gzip.compress(b"4,5,6\n")
    path.write_bytes(whole)
    assert read_columns([path], ["a"])["a"] == ["1"] * 1000 + ["4"], "several parts"
    for spoilt in (whole[:-9], whole[:40], b"a,b,c\n", whole[:30] + b"\0\0\0" + whole[33:]):
        path.write_bytes(spoilt)
        with pytest.raises(UnreadableError, match="damaged gzip"):
            read_columns([path], ["a"])


def test_another_file_in_its_place_is_an_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,2\n")
    found = open_delimited([path])
    path.write_bytes(b"b,a\n1,2\n")
    with pytest.raises(OSError, match="another first line"):
        list(found.blocks(Counter()))


def test_only_the_curator_is_told_of_odd_lines(tmp_path, caplog, capsys):
    path = tmp_path / "t.csv"
    path.write_bytes(b'a,b\n1,"x\ny"\n\xff,2\n"z,\n')
    CURATOR.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.WARNING):
            read_columns([path], ["a"])
    finally:
        CURATOR.removeHandler(caplog.handler)
    said = [record.getMessage() for record in caplog.records]
    assert any("2 lines with a quote that is still open" in words for words in said)
    assert any("1 cells that are not in UTF-8" in words for words in said)
    assert all("data convert" in words for words in said)
    assert capsys.readouterr() == ("", "")
    assert not CURATOR.propagate


GOOD = b'"x",y\n' * 20


@pytest.mark.parametrize(
    ("block", "found"),
    [
        (b'"a","b"\n', True),
        (b'"a""b",""\n"",x\n', True),
        (b"5' 10\",x\n", False),
        (b'"a"b,x\n', None),
        (b'"a\nb"\n', None),
        (b'x,"a\n"b,y\n', None),
        (b'"a",5\' 10"\n"\n', None),
        (GOOD + b'1,"open\n' + GOOD, GOOD + b'"1","open"\n' + GOOD),
        (b'"one\n' + GOOD * 2 + b'4,5"\n', b'"one",""\n' + GOOD * 2 + b'"4","5"""\n'),
        (GOOD + b'"1"x,2,3\n', GOOD + b'"1x","2"\n'),
    ],
)
def test_quotes_are_put_in_order_where_few_are_not(block, found):
    ordered = in_order(block, 2, ",", Counter())
    assert ordered == (found if found is None else (found, True) if isinstance(found, bytes)
                       else (block, found))  # fmt: skip


def test_endings_and_fields():
    assert is_delimited("x.csv.gz")
    assert not is_delimited("x.csv.bz2")
    assert fields_of(b"", b",") == [b""]
    assert fields_of(b"1,2,3", b",", most=2) == [b"1", b"2"]
