"""Files that are read as a whole: regular ones, not too large, and at fault for what they hold."""

import json
import os
import threading

import pytest

from sfumato.core import json_files
from sfumato.core.json_files import as_written, read_json, read_text
from sfumato.ledger import LedgerError


@pytest.mark.parametrize("text", ["{}", '\ufeff{"a": [1, "é"]}', '{\r\n"a": 1\r}'])
def test_what_is_written_is_read(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_bytes(text.encode())
    assert read_json(path) == json.loads(text.removeprefix("\ufeff"))
    assert "\r" not in read_text(path)


def test_a_pipe_that_nobody_writes_to_is_refused_at_once(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found = []

    def read():
        with pytest.raises(ValueError, match="must be a regular file, but is a pipe") as error:
            read_text(path)
        found.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(20)
    assert found


def test_a_device_without_an_end_is_refused():
    with pytest.raises(ValueError, match="/dev/zero must be a regular file"):
        read_json("/dev/zero")


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    path.write_text('"' + "a" * 98 + '"')
    monkeypatch.setattr(json_files, "MOST_BYTES", 100)
    assert len(read_json(path)) == 98
    path.write_text('"' + "a" * 99 + '"')
    with pytest.raises(ValueError, match="must be at most"):
        read_json(path)


def test_a_folder_and_nothing_are_the_systems_errors(tmp_path):
    with pytest.raises(IsADirectoryError):
        read_text(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_text(tmp_path / "none")


@pytest.mark.parametrize(
    "fails",
    [
        lambda: {}["recipe"],
        lambda: [][0],
        lambda: "x".source,  # type: ignore[attr-defined]
        lambda: None.recipe,  # type: ignore[attr-defined]
        lambda: dict(**5),  # type: ignore[arg-type]
        lambda: int("x"),
    ],
)
def test_the_file_is_at_fault_for_what_it_holds(fails):
    said = pytest.raises(ValueError, match=r"^run/record\.json is damaged or was edited")
    with said, as_written("run/record.json"):
        fails()


def test_other_errors_stay_as_they_are():
    for error in (OSError("a"), LedgerError("b"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as raised, as_written("run/record.json"):
            raise error
        assert raised.value is error
