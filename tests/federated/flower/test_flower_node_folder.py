"""One process at a time has a participant's folder, and the next one changes nothing in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sfumato.federated.flower.deployment import join, node_command
from sfumato.federated.flower.node_folder import NodeFolder
from sfumato.federated.flower.processes import start, wait_until


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_a_second_join_changes_nothing(tmp_path: Path) -> None:
    with NodeFolder(tmp_path / "ward") as held:
        node_command(held, "lab:1", "ca.pem", "key", "town:make", {"who": "first"})
        before = contents(tmp_path)
        assert b"first" in before[str(tmp_path / "ward" / "node.json")][0]
        with pytest.raises(BlockingIOError, match="in use"):
            join(tmp_path / "ward", "lab:2", "ca.pem", "key", "town:make", {"who": "second"})
        assert contents(tmp_path) == before
    NodeFolder(tmp_path / "ward").close()


def test_a_process_that_was_given_it_has_it_until_it_ends(tmp_path: Path) -> None:
    with NodeFolder(tmp_path / "ward", "files") as held:
        assert held.prepare() == tmp_path / "ward" / "files"
        assert held.files.stat().st_mode & 0o777 == 0o700
        process = start(
            "node", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path,
            handles=[held.handle],
        )  # fmt: skip
    held.close()
    try:
        with pytest.raises(BlockingIOError, match="in use"):
            NodeFolder(tmp_path / "ward")
    finally:
        process.kill()
    NodeFolder(tmp_path / "ward").close()


def test_what_a_process_turns_into_has_it(tmp_path: Path) -> None:
    turning = (
        "import os, sys; from sfumato.federated.flower.node_folder import NodeFolder\n"
        "with NodeFolder(sys.argv[1]) as held:\n"
        "    held.hand_on()\n"
        "    os.execv(sys.executable, [sys.executable, '-c',\n"
        "        'import time; print(\"turned\", flush=True); time.sleep(600)'])"
    )
    process = start("node", [sys.executable, "-c", turning, str(tmp_path / "ward")], tmp_path)
    try:
        wait_until(
            "it has turned", lambda: "turned" in process.last_words(), timeout=60.0,
            processes=[process],
        )  # fmt: skip
        with pytest.raises(BlockingIOError, match="in use"):
            NodeFolder(tmp_path / "ward")
    finally:
        process.kill()
    held = NodeFolder(tmp_path / "ward")
    assert not os.get_inheritable(held.handle)
    held.close()
