"""Nothing is admitted twice, in whatever process."""

import subprocess
import sys

from sfumato.federated.secure.sessions import FolderLog, MemoryLog


def test_once_each(tmp_path):
    for log in (MemoryLog(), FolderLog(tmp_path / "log")):
        for session in (b"one", b"two"):
            for stage in ("share", "unmask"):
                assert log.admit(session, stage)
                assert not log.admit(session, stage)


def test_over_processes(tmp_path):
    assert FolderLog(tmp_path / "log").admit(b"s", "unmask")
    assert not FolderLog(tmp_path / "log").admit(b"s", "unmask")
    code = (
        "from sfumato.federated.secure.sessions import FolderLog;"
        f"print(FolderLog({str(tmp_path / 'log')!r}).admit(b's', 'unmask'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert (tmp_path / "log").stat().st_mode & 0o077 == 0
