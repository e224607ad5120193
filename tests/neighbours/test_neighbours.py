"""A short slice of the neighbours' fuzzer, the same every time; and that it sees what is broken."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from tests.databases import has_java, server_programs
from tests.neighbours import folders
from tests.neighbours.federations import FederationCase, Lie
from tests.neighbours.folders import FolderCase
from tests.neighbours.fuzz import hunt
from tests.neighbours.harness import script
from tests.neighbours.lines import LinesCase
from tests.neighbours.loops import LoopCase
from tests.neighbours.tables import Column, Question, TableCase
from tests.odd_objects import Odd

CORPUS = Path(__file__).with_name("corpus")
PIECE = {
    "tables": 10, "objects": 5, "postgres": 6, "spark": 3, "units": 6, "lines": 12, "declared": 60,
    "loops": 12, "folders": 15, "federations": 40,
}  # fmt: skip
KINDS_HERE = [
    pytest.param(kind, marks=pytest.mark.slow) if kind == "spark" else kind for kind in PIECE
]


@pytest.mark.parametrize("kind", KINDS_HERE)
@pytest.mark.filterwarnings("ignore")  # cases compare warnings themselves
def test_neighbours_cannot_be_told_apart(kind):
    if kind == "postgres" and not server_programs():
        pytest.skip("PostgreSQL with ICU is not installed: make setup")
    if kind == "spark" and not has_java():
        pytest.skip("Spark needs Java, and there is none")
    tried, unusable, case = hunt(kind, 35, PIECE[kind], shrink=False)
    assert case is None, script(case, case.broken())[1]
    assert tried > unusable


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.py")), ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_what_was_found_once_is_found_no_more(path):
    assert runpy.run_path(str(path))["case"].broken() == []


# --- what is planted is found -------------------------------------------------------------------

TABLE = TableCase(
    "arrow",
    (Column("person", "int64", (1, 1, 1, 2)), Column("city", "string", (b"a", b"a", b"a", b"b"))),
    (0, 1, 2), "person", 1, questions=(Question(), Question(where=('"city" = \'a\'',))),
)  # fmt: skip


def test_bounds_that_are_dropped_are_seen(monkeypatch):
    from sfumato.queries import protected

    assert not TABLE.broken()
    monkeypatch.setattr(protected, "bound_rows", lambda table, *_: table)
    assert len(TABLE.broken()) == 2


def test_an_error_that_depends_on_a_row_is_seen(monkeypatch):
    from sfumato.queries import protected

    real = protected.fetch

    def fetch(expression, *rest):
        rows = real(expression, *rest)
        if any(3 in row.values() for row in rows):
            raise RuntimeError("three")
        return rows

    case = TableCase("arrow", (Column("x", "int64", (1, 2, 3)),), (2,))
    assert not case.broken()
    monkeypatch.setattr(protected, "fetch", fetch)
    assert [law for law in case.broken() if "three" in law]


def test_keys_of_one_alone_are_seen(monkeypatch):
    from sfumato.queries import private_keys

    cells = (*(b"rome",) * 9, b"bari")
    columns = Column("x", "int64", tuple(range(10))), Column("city", "string", cells)
    questions = (Question(by=("city",), private_keys=True),)
    case = TableCase("arrow", columns, (9,), "x", questions=questions)
    assert not case.broken()
    monkeypatch.setattr(private_keys, "threshold", lambda *_: -(10**9))
    assert [law for law in case.broken() if "bari" in law]


def test_lines_that_reach_others_are_seen(monkeypatch):
    from sfumato.queries import lines as room

    case = LinesCase(b"x", (b"1", b'"2', b"3", b"4"), 1)
    assert not case.broken()
    real = room.batch_of
    monkeypatch.setattr(
        room, "batch_of", lambda block, files: real(block.partition(b'"')[0], files)
    )
    assert case.broken()


@pytest.mark.filterwarnings("ignore")
def test_masks_that_are_known_are_seen(monkeypatch):
    from sfumato.learning.dp_sgd import lots
    from sfumato.learning.secret_coins import ModelCoins

    case = LoopCase(dropout="half", count=20, place=0)
    assert not case.broken()
    monkeypatch.setattr(lots, "arrangement", lambda count, _: np.arange(count))
    words = ModelCoins().draw()
    monkeypatch.setattr(ModelCoins, "draw", lambda self: words)
    assert [law for law in case.broken() if "C apart" in law]


def test_lots_beyond_the_charge_are_seen(monkeypatch):
    deeds = (("run", "a", 3), ("copy", "a", "b"), ("run", "a", 9), ("run", "b", 9))
    case = FolderCase("training", deeds)
    assert not case.broken()
    monkeypatch.setattr(folders.World, "paid", lambda self: 4)
    assert case.broken()


def test_contributions_that_are_not_clipped_are_seen(monkeypatch):
    from sfumato.federated import rounds

    case = FederationCase("lies", lie=Lie("numbers", value=7.0))
    assert not case.broken()
    monkeypatch.setattr(rounds, "_reach", lambda federation, clip, length: 1e6)
    assert [law for law in case.broken() if "apart" in law]


def test_categories_that_other_rows_decide_are_seen(monkeypatch):
    from sfumato.queries import sources

    wards = Column("ward", "text of numbers", (1, 1, 1, 2, 2.5))
    counts = Question("histogram", ("ward",), (("keys", ("1", "2")),))
    case = TableCase("pandas, objects", (wards,), (4,), questions=(counts,))
    assert not case.broken()
    monkeypatch.setattr(sources, "texts_of_categories", lambda _: None)
    assert [law for law in case.broken() if law.startswith("an answer moves")]


@pytest.mark.parametrize("what", ["dead", "class", "exit", "metaclass", "log"])
def test_cells_that_speak_for_themselves_are_seen(what, monkeypatch):
    from sfumato.queries import sources

    case = TableCase("pandas, objects", (Column("c", "text of objects", ("a", Odd(what))),), (1,))
    assert not case.broken()
    monkeypatch.setattr(sources, "are_all", lambda cells, *_: bool({*map(type, cells)}) and False)
    monkeypatch.setattr(sources, "is_a", isinstance)
    monkeypatch.setattr(sources, "read_each", lambda read, cells, _: [*map(read, cells)])
    assert case.broken()
