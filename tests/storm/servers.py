"""Kind ``postgres``: spenders on a server, whose own processes are killed, too.

Children are killed at a moment, or where they send; now and then one of the server's backends is,
after which the server throws everybody out and replays its journal; and once in a while the whole
server at once, which is started again. The children go on when it is back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from tests.databases import Server, server_programs
from tests.storm.spenders import at_work_on
from tests.storm.storm import Storm

__all__ = ["postgres"]

_BACKEND, _SERVER = 0.03, 0.01


def postgres(storm: Storm) -> None:
    """A server of our own, and four at a time."""
    if not server_programs():
        raise RuntimeError("PostgreSQL is not installed: make setup")
    server = Server()
    server.start()

    def strike() -> None:
        drawn = storm.random.random()
        if drawn < _BACKEND:
            backends = [pid for pid, words in _children(server.pid) if b" postgres " in words]
            if backends:
                _kill(storm.random.choice(backends))
                storm.tally.others += 1
        elif drawn < _BACKEND + _SERVER:
            _kill_all(server)
            storm.tally.others += 1
            time.sleep(storm.random.uniform(0, 0.3))
            server.start()

    try:
        at_work_on(
            storm, server.url, storm.folder / "told", together=4, patience=30.0, meanwhile=strike
        )
    finally:
        server.stop()


def _children(parent: int) -> list[tuple[int, bytes]]:
    """The server's processes, with what they call themselves."""
    found: list[tuple[int, bytes]] = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            number = int(folder.name)
            above = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if above == parent:
                found.append((number, (folder / "cmdline").read_bytes().replace(b"\0", b" ")))
    return found


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _kill_all(server: Server) -> None:
    """The whole server; returns when nothing is left of it."""
    first = server.pid
    os.kill(first, signal.SIGSTOP)  # so that it makes no more of them
    while Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    everyone = [first, *(pid for pid, _ in _children(first))]
    for pid in everyone:
        _kill(pid)
    while any(_is_there(pid) for pid in everyone):
        time.sleep(0.005)


def _is_there(pid: int) -> bool:
    """Also while nobody has asked how it ended: PostgreSQL does not start beside such a one."""
    return Path(f"/proc/{pid}").exists()
