"""Files of JSON lines: what a crash tears says nothing, and one process writes."""

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from sfumato.learning.durable import JsonLines


def opened(path):
    return JsonLines(path, "it must not be in use")


def test_what_was_written_is_read_again(tmp_path):
    lines = opened(tmp_path / "a/b")
    assert lines.entries == []
    lines.write({"x": 1})
    lines.write({"y": [2]})
    lines.close()
    assert opened(tmp_path / "a/b").entries == [{"x": 1}, {"y": [2]}]
    assert os.stat(tmp_path / "a/b").st_mode & 0o077 == 0  # the owner's alone


def test_one_process_at_a_time(tmp_path):
    held = opened(tmp_path / "b")
    with pytest.raises(ValueError, match="must not be in use"):
        opened(tmp_path / "b")
    held.close()
    opened(tmp_path / "b").close()


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced by a copy"])
def test_whose_file_lost_its_name_writes_no_more(tmp_path, monkeypatch, how):
    """Its lock holds nobody off who opens the file that has the name now."""
    path = tmp_path / "b"
    monkeypatch.chdir(tmp_path)
    held = JsonLines(Path("b"), "in use")
    monkeypatch.chdir("/")
    held.write({"x": 1})
    shutil.copy(path, tmp_path / "copy")
    if how == "deleted":
        path.unlink()
    else:
        os.replace(*((path, tmp_path / "c") if how == "moved" else (tmp_path / "copy", path)))
    opened(path).close()
    with pytest.raises(OSError, match="deleted, moved or replaced"):
        held.write({"x": 2})
    held.close()


def test_a_file_that_is_replaced_while_it_is_opened_is_not_taken(tmp_path, monkeypatch):
    path = tmp_path / "b"
    opened(path).close()
    lock = fcntl.flock

    def replaced(file, how):
        lock(file, how)
        path.unlink()
        path.touch()

    monkeypatch.setattr(fcntl, "flock", replaced)
    with pytest.raises(ValueError, match="must not be in use"):
        opened(path)


@pytest.mark.parametrize("left", range(1, 9))
def test_a_torn_line_says_nothing_and_stays_a_line(tmp_path, left):
    path = tmp_path / "b"
    path.write_bytes(b'{"x":1}\n' + b'{"y":22}'[:left])
    lines = opened(path)
    expected = [{"x": 1}, {"y": 22} if left == 8 else None]
    assert lines.entries == expected
    assert path.read_bytes().count(b"\n") == 1  # nothing is written before it is asked for
    lines.write({"z": 3})
    lines.close()
    assert opened(path).entries == [*expected, {"z": 3}]


def test_cut_off_in_its_first_line_it_is_empty(tmp_path):
    path = tmp_path / "b"
    path.write_bytes(b'{"x":')
    lines = opened(path)
    assert lines.entries == []
    lines.write({"x": 1})
    assert path.read_bytes() == b'{"x":1}\n'


def test_after_a_failure_it_takes_no_more(tmp_path, monkeypatch):
    lines = opened(tmp_path / "b")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            lines.write({"x": 1})
    with pytest.raises(OSError, match="takes no more"):
        lines.write({"x": 1})
