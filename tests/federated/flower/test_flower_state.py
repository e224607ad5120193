"""What a participant remembers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flwr.app import Context, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sfumato.federated.flower.state import FolderState, RecordState


def context() -> Context:
    return Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=20), st.binary(max_size=50), max_size=4
    )
)
def test_a_folder_is_a_mapping_that_stays(tmp_path: Path, values: dict[str, bytes]) -> None:
    with FolderState(tmp_path / "state") as state:
        state.clear()
        state.update(values)
    with FolderState(tmp_path / "state") as state:
        assert dict(state) == values
        assert len(state) == len(values)
        assert all(state.pop(name) == value for name, value in values.items())
        assert not state


def test_files_are_the_owners_and_stay_in_the_folder(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with FolderState(tmp_path / "state") as state:
            state["../escape"] = b"secret"
    finally:
        os.umask(old)
    (file,) = (tmp_path / "state").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == [tmp_path / "state"]


def test_one_process_at_a_time_and_a_killed_one_lets_go(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from sfumato.federated.flower.state import FolderState\n"
        "state = FolderState(sys.argv[1]); state['round'] = b'3'\n"
        "print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(BlockingIOError, match="in use"):
                FolderState(tmp_path)
        finally:
            holder.kill()
    with FolderState(tmp_path) as state:
        assert state["round"] == b"3"
        state.close()
        state.close()


def test_missing_names_are_key_errors(tmp_path: Path) -> None:
    with FolderState(tmp_path) as state:
        assert state.get("none") is None
        with pytest.raises(KeyError):
            del state["none"]


def test_a_record_is_a_mapping_that_travels_with_the_context() -> None:
    travels = context()
    state = RecordState(travels)
    state["a"], state["b"] = b"1", b"2"
    del state["b"]
    assert dict(RecordState(travels)) == {"a": b"1"}
    assert len(state) == 1
