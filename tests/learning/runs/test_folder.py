"""Run folders: each file whole or not at all, two doors, and nothing in anybody's way."""

import json
import os
import stat

import pytest
import torch

from sfumato.learning.runs import RunFolder


def mode(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


def begun(path):
    folder = RunFolder(path)
    folder.begin({"recipe": {"model": "linear"}})
    return folder


def test_a_run_from_its_beginning_to_its_end(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "a")
    assert not folder.begun
    folder.begin({"recipe": {"model": "linear"}})
    assert folder.begun
    assert not folder.finished
    assert folder.request() == {"recipe": {"model": "linear"}}
    folder.write_curator("results.json", [1.5, None])
    folder.write_curator_tensors("features.safetensors", {"basis": torch.eye(2)})
    folder.write_model({"w": torch.ones(3)})
    assert not folder.finished
    with pytest.raises(ValueError, match=r"must hold a finished run, but has no record\.json"):
        folder.record()
    folder.write_record({"method": "dp-sgd"})
    again = RunFolder(str(tmp_path / "runs" / "a"))
    assert again.finished
    assert again.record() == {"method": "dp-sgd"}
    assert again.read_curator("results.json") == [1.5, None]
    assert again.read_curator_tensors("features.safetensors")["basis"].tolist() == [[1, 0], [0, 1]]
    assert again.read_curator_tensors("nothing.safetensors") is None
    assert again.model()["w"].tolist() == [1, 1, 1]


def test_two_doors(tmp_path):
    folder = begun(tmp_path / "a")
    folder.curator.chmod(0o700)
    folder.write_curator("x.json", 1)
    folder.write_curator_tensors("x.safetensors", {"x": torch.ones(1)})
    folder.write_model({"w": torch.ones(3)})
    folder.write_record({})
    assert mode(folder.curator) == "0o700"
    assert {mode(p) for p in folder.curator.iterdir()} == {"0o600"}
    assert mode(folder.record_file) == mode(folder.model_file) == "0o644"
    assert folder.checkpoints.parent == folder.curator
    assert folder.curve.parent == folder.path


def test_rights_do_not_depend_on_the_process(tmp_path):
    old = os.umask(0)
    try:
        folder = begun(tmp_path / "a")
        folder.write_curator("x.json", 1)
    finally:
        os.umask(old)
    assert mode(folder.curator) == "0o700"
    assert mode(folder.curator / "x.json") == "0o600"


def test_what_is_there_is_not_overwritten(tmp_path):
    with pytest.raises(ValueError, match=r"cut off: go on with it \(sfumato train resume"):
        RunFolder(begun(tmp_path / "a").path).begin({})
    folder = begun(tmp_path / "b")
    folder.write_record({})
    with pytest.raises(ValueError, match="holds a finished run: give another"):
        RunFolder(tmp_path / "b").begin({})
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x").touch()
    (tmp_path / "d").touch()
    for name in "cd":
        with pytest.raises(ValueError, match=r"must be a new or empty folder, but .* is neither"):
            RunFolder(tmp_path / name).begin({})
    (tmp_path / "e").mkdir()
    begun(tmp_path / "e")


def test_a_run_that_came_to_nothing_leaves_nothing(tmp_path):
    folder = begun(tmp_path / "x" / "y" / "a")
    (folder.checkpoints).mkdir()
    folder.abandon()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    folder = begun(tmp_path / "mine" / "a")
    (tmp_path / "mine" / "a" / "letter").touch()  # somebody else's, meanwhile
    folder.abandon()
    assert [p.name for p in (tmp_path / "mine" / "a").iterdir()] == ["letter"]
    (tmp_path / "empty").mkdir()
    begun(tmp_path / "empty").abandon()
    assert (tmp_path / "empty").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_what_is_no_json_is_refused_before_a_folder_is_made(tmp_path, value):
    with pytest.raises(ValueError, match="must be JSON"):
        RunFolder(tmp_path / "a").begin({"x": value})
    assert not (tmp_path / "a").exists()


def test_a_file_is_there_as_a_whole_or_as_it_was(tmp_path, monkeypatch):
    folder = begun(tmp_path / "a")
    folder.write_curator("x.json", [1])
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        folder.write_curator("x.json", [2])
    assert folder.read_curator("x.json") == [1]
    with pytest.raises(ValueError, match="must be JSON"):
        folder.write_curator("x.json", float("nan"))
    assert json.loads((folder.curator / "x.json").read_text()) == [1]


def test_tensors_that_share_memory_are_stored_each(tmp_path):
    folder, shared = begun(tmp_path / "a"), torch.arange(6.0)
    folder.write_model({"a": shared, "b": shared, "c": shared.view(2, 3).T})
    found = folder.model()
    assert found["a"].tolist() == found["b"].tolist() == shared.tolist()
    assert found["c"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_nothing_there(tmp_path):
    with pytest.raises(ValueError, match=r"must hold a run, but has no curator/request\.json"):
        RunFolder(tmp_path).request()


# --- without privacy ------------------------------------------------------------------------------


def test_of_a_run_without_privacy_everything_is_the_owner_s(tmp_path):
    (tmp_path / "there").mkdir(mode=0o755)
    for name in ("there", "new"):
        folder = RunFolder(tmp_path / name, public=False)
        folder.begin({"recipe": {}})
        folder.write_model({"w": torch.ones(3)})
        folder.write_record({})
        assert mode(folder.path) == mode(folder.curator) == "0o700"
        assert mode(folder.record_file) == mode(folder.model_file) == "0o600"
        assert RunFolder(folder.path).without_privacy
    assert not begun(tmp_path / "private").without_privacy
    assert not RunFolder(tmp_path / "nowhere").without_privacy


def test_a_run_without_privacy_that_was_killed_says_what_to_do(tmp_path):
    RunFolder(tmp_path / "a b", public=False).begin({})
    with pytest.raises(ValueError, match=r"cannot be gone on with: remove it \(rm -r '.*a b'\)"):
        RunFolder(tmp_path / "a b").require_new()


def test_an_abandoned_run_without_privacy_leaves_no_model(tmp_path):
    folder = RunFolder(tmp_path / "a", public=False)
    folder.begin({})
    folder.write_model({"w": torch.ones(3)})
    folder.abandon()
    assert list(tmp_path.iterdir()) == []
