"""Delimited files in DuckDB: the rows that the lines have, whichever parser reads a block."""

import gzip
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.data import delimited
from sfumato.data.delimited import Delimited, cells_in, open_delimited, read_columns, row_of
from sfumato.ledger import Budget
from sfumato.queries import lines as lines_module
from sfumato.queries.engine import fetch
from sfumato.queries.lines import LineStream, batch_of
from sfumato.queries.sources import open_source

USUAL = [b"a", b"12", b"", b'"x"', b'""', b'"p,q"', b'"d""d"', b"\xc3\xa9", b"x y", b"5'", b"\x0b"]
ODD = [*USUAL, b'"', b"\r", b"\0", b"\xff", b'"a"b', b"1,2", b"\xed\xa0\x80", b"\xef\xbb\xbf"]


@st.composite
def blocks(draw):
    width = draw(st.integers(1, 3))
    cells = st.sampled_from(USUAL if draw(st.booleans()) else ODD)
    least = draw(st.sampled_from([width, width, 0]))
    lines = st.lists(cells, min_size=least, max_size=2 * width - least).map(b",".join)
    return width, draw(st.lists(lines, max_size=8)), draw(st.sampled_from([b"\n", b"\r\n"]))


@settings(max_examples=400)
@given(blocks(), st.sampled_from([1, 4]))
def test_both_parsers_give_the_rows_of_the_lines(drawn, few):
    width, lines, end = drawn
    block = b"".join(line + end for line in lines) or end
    files = Delimited((Path("t.csv"),), tuple("abc"[:width]), ",")
    rows = (row_of((line + end)[:-1], width, ",") for line in lines)
    expected = [tuple(cell or None for cell in row) for row in rows if row is not None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "_FEW", few)  # how many lines are put in order for Arrow
        usual = lines_module._usual(block, files, Counter())
    careful = lines_module._arrow(cells_in(block, width, ",", Counter()), files.names)
    for batch in (usual, careful, batch_of(block, files)[0]):
        if batch is not None:
            batch.validate(full=True)
            assert [tuple(row.values()) for row in batch.to_pylist()] == expected


PIECES = [*ODD, b",", b" ", b"\t", b"\x0c", b"\xe2\x80\xa8", b"\xc2\x85", b"x" * 30, b",,,,,,,,"]
ANY = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join),
    st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")),
)


@settings(max_examples=100)
@given(
    lines=st.lists(ANY, max_size=12),
    others=st.lists(ANY, max_size=4),
    width=st.integers(1, 4),
    end=st.sampled_from([b"", b"\n", b"\r\n"]),
    sizes=st.sampled_from([(8, 64, 3), (64, 64, 1000), (1 << 21, 1 << 24, 1 << 22)]),
    packed=st.booleans(),
)
def test_whatever_lines_hold_each_is_its_row_for_questions_and_for_training(
    tmp_path_factory, lines, others, width, end, sizes, packed
):
    """Two files by a star, the second with a mark of byte order: the rows are those of each line.

    So a line more, less or in another's place changes this row alone, and nothing is an error.
    """
    folder, names, found = tmp_path_factory.mktemp("law"), tuple("abcd"[:width]), []
    ending = "csv.gz" if packed else "csv"
    for name, mark, some in (("1", b"", lines), ("2", b"\xef\xbb\xbf", others)):
        content = b"\n".join([mark + ",".join(names).encode(), *some]) + end
        (folder / f"{name}.{ending}").write_bytes(gzip.compress(content) if packed else content)
        found += content.split(b"\n")[1:]
    with pytest.MonkeyPatch.context() as patch:
        for name, size in zip(("_BLOCK", "LONGEST_LINE", "_CELLS"), sizes, strict=True):
            patch.setattr(delimited, name, size)
        rows = [row_of(line, width, ",") for line in found]
        expected = [row for row in rows if row is not None]
        paths = sorted(folder.iterdir())
        table = pa.table(LineStream(open_delimited(paths)))
        columns = read_columns(paths, names)
    assert list(zip(*columns.values(), strict=True)) == expected
    asked = [tuple(cell or "" for cell in row.values()) for row in table.to_pylist()]
    assert asked == expected


def test_ordinary_blocks_take_the_fast_way():
    files = Delimited((Path("t.csv"),), ("a", "b"), ",")
    for block in (
        b"1,2\n",
        b"1,2\r\n",
        b'"1","2"\n',
        b"5' 10\",2\n",
        "é,ß\n".encode(),
        b"1,\n\n3,4\n",
    ):
        assert lines_module._usual(block, files, Counter()) is not None, block
    for good in (b"1,2\n", b'"1",2\n'):
        for odd in (b"1", b"1,2,3", b'1,"2', b'"1"x,"2"'):  # one among many
            block = good * 20 + odd + b"\n" + good * 20
            assert lines_module._usual(block, files, Counter()) is not None, block
    for block in (b"1\n", b"1,2,3\n", b"1,\0\n", b'1,"2\n', b"1\r,2\n", b"1,\xff\n", b"\n"):
        assert lines_module._usual(block, files, Counter()) is None, block


def rows_at(path, **options):
    return [tuple(row.values()) for row in fetch(open_source(path, **options).table, "testing")]


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "tsv.gz"])
def test_one_line_more_is_one_row_more(tmp_path, ending):
    """Each hostile line alone, and all of them between ordinary ones."""
    comma = b"\t" if "tsv" in ending else b","
    opened = gzip.open if ending.endswith("gz") else open
    hostile = [b'1,"he said: 5 feet', b"2,x\r7,y", b"3", b"4,5,6", b"\xff\xfe,\0", b'"6', b"7,\xff"]
    hostile = [line.replace(b",", comma) for line in hostile]
    header, good = comma.join((b"a", b"b")) + b"\n", comma.join((b"7", b"good")) + b"\n"

    def rows(*lines):
        with opened(tmp_path / f"t.{ending}", "wb") as file:
            file.write(header + b"".join(lines))
        return rows_at(tmp_path / f"t.{ending}")

    alone = [rows(line + b"\n") for line in hostile]
    assert [len(found) for found in alone] == [1] * len(hostile)
    assert alone[0] == [("1", "he said: 5 feet")]
    assert alone[1] == [("2", "x\r7")]
    everything = rows(*(good + line + b"\n" for line in hostile), good)
    expected = [row for found in alone for row in [("7", "good"), *found]] + [("7", "good")]
    assert everything == expected


def test_files_by_a_star_are_one_table(tmp_path):
    (tmp_path / "p1.csv").write_bytes(b'a,b\n1,"open\n')
    (tmp_path / "p2.csv").write_bytes(b'\xef\xbb\xbfa,"b"\r\n2,x\r\n')
    with gzip.open(tmp_path / "p3.csv", "wb") as file:
        file.write(b"not read: its name does not say that it is compressed")
    (tmp_path / "p3.csv").unlink()
    assert rows_at(tmp_path / "p*.csv") == [("1", "open"), ("2", "x")]


def test_many_blocks_come_in_order_and_each_question_reads_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK", 1000)
    path = tmp_path / "t.csv"
    path.write_text("n,t\n" + "".join(f"{i},{'x' * (i % 7)}\n" for i in range(5000)))
    table = open_source(path, types={"n": "int64"}).table
    before = threading.active_count()
    for _ in range(2):
        assert [row["n"] for row in fetch(table.select("n"), "testing")] == list(range(5000))
    assert len(fetch(table.limit(3), "testing")) == 3
    more = threading.active_count() - before
    assert more < 10, "the threads of a reader that is not read to its end"


def test_opening_and_pricing_read_no_row(tmp_path, protected, monkeypatch):
    path = tmp_path / "t.csv"
    path.write_text("person,age\n1,50\n2,60\n")
    table = protected(path, unit="person", max_rows_per_unit=1, types={"age": "float64"})
    read = []
    whole = Delimited.blocks
    monkeypatch.setattr(Delimited, "blocks", lambda self, odd: read.append(1) or whole(self, odd))
    spend = table.ledger.spend

    def reserve(*arguments, **rest):
        assert not read, "before anything is charged"
        return spend(*arguments, **rest)

    monkeypatch.setattr(table.ledger, "spend", reserve)
    assert table.where("age > 55").count(epsilon=100.0).value == 1
    assert read


def test_a_damaged_or_foreign_file_is_refused_before_anything_is_charged(tmp_path, protected):
    whole = gzip.compress(b"person,age\n" + np.random.default_rng(0).bytes(20_000))
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-2000])
    (tmp_path / "wide.csv").write_text("person,age\n1,2\n", encoding="utf-16")
    (tmp_path / "mac.csv").write_bytes(b"person,age\r1,2\r")
    (tmp_path / "broken.csv").write_bytes(b'person,"age\nin years"\n1,2\n')
    (tmp_path / "semicolons.csv").write_bytes(b"person;age\n1;2\n")
    for name, words in {
        "cut.csv.gz": "damaged gzip",
        "wide.csv": "data convert",
        "mac.csv": "data convert",
        "broken.csv": "data convert",
        "semicolons.csv": "data convert",
    }.items():
        with pytest.raises(ValueError, match=words) as raised:
            protected(tmp_path / name, unit="person", max_rows_per_unit=1, budget=Budget(1))
        assert "1,2" not in str(raised.value)
        assert "1;2" not in str(raised.value)


def test_columns_that_the_engine_takes_for_one_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("a,A\n1,2\n")
    with pytest.raises(ValueError, match="must name its columns, each once"):
        open_source(tmp_path / "t.csv")


def test_the_stream_can_be_asked_for_more_than_once(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n2\n")
    stream = LineStream(open_delimited([tmp_path / "t.csv"]))
    for _ in range(2):
        assert pa.table(stream).to_pydict() == {"a": ["1", "2"]}
