r"""Processes we start, watch and end: each leads a group of its own, and logs to a file.

>>> import sys, tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> process = start("greeting", [sys.executable, "-c", "print('hello')"], folder.name)
>>> process.wait(60.0), process.log.read_text()
(0, 'hello\n')
>>> folder.cleanup()
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import final

__all__ = ["Started", "free_port", "start", "wait_until"]

_PDEATHSIG = 1  # of prctl
_BEGAN = 19  # the place in /proc/N/stat, counted from the state on, of when it began


@final
class Started:
    """A process that we started, with whatever it starts itself.

    Args:
        name: for messages.
        process: the leader of a group of its own.
        log: what it and its children say.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.process = process
        self.log = log

    @property
    def alive(self) -> bool:
        """Whether it runs. Asking also reaps it, so that its children see that it is gone."""
        return self.process.poll() is None

    def wait(self, timeout: float) -> int:
        """Its exit status.

        Raises:
            TimeoutError: if it still runs after so many seconds.
        """
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} still runs after {timeout:g} s") from None

    def stop(self, grace: float = 10.0) -> None:
        """Asks it to end; after so many seconds of grace, kills it.

        Whatever it started is ended too, also what left its group and what it left behind.
        """
        children = _descendants(self.process.pid) if self.alive else {}
        if self.alive:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                self.wait(grace)
        self.kill()
        _kill(children)

    def kill(self) -> None:
        """Ends it, its group and all it started, without asking. Doing so twice does no harm."""
        children = _descendants(self.process.pid) if self.alive else {}
        self._signal(signal.SIGKILL)
        _kill(children)
        self.process.wait()

    def last_words(self, most: int = 2_000) -> str:
        """The end of its log, for an error message."""
        return self.log.read_text(errors="replace")[-most:] if self.log.exists() else ""

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


def start(
    name: str,
    command: Sequence[str],
    folder: str | Path,
    *,
    environment: Mapping[str, str] | None = None,
    bound: bool = False,
    handles: Sequence[int] = (),
) -> Started:
    """Starts one, in a group of its own; its files and its log are for its owner only.

    Args:
        name: its log is ``name.log``, to which it appends.
        command: program and arguments.
        folder: where its log goes.
        environment: this process's if None.
        bound: whether it is killed when the thread that starts it ends, even by kill -9 (on Linux).
        handles: open files that it is to have, too, such as those of locks.
    """
    log = Path(folder) / f"{name}.log"
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=subprocess.STDOUT,
            env=None if environment is None else dict(environment),
            start_new_session=True,
            umask=0o077,
            pass_fds=tuple(handles),
            preexec_fn=_die_with_parent() if bound else None,
        )
    finally:
        os.close(handle)
    return Started(name, process, log)


def _die_with_parent() -> Callable[[], None] | None:
    """Asks the kernel for a signal at the parent's end; found before the fork, called after it."""
    if sys.platform != "linux":
        return None
    prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    return lambda: (prctl(_PDEATHSIG, signal.SIGKILL), None)[1]


def wait_until(
    what: str,
    true: Callable[[], bool],
    *,
    timeout: float,
    processes: Sequence[Started] = (),
    pause: float = 0.1,
) -> None:
    """Looks again and again until it is so.

    Raises:
        RuntimeError: if one of the processes on which it depends ends first.
        TimeoutError: if it is not so within so many seconds.
    """
    end = time.monotonic() + timeout
    while not true():
        for process in processes:
            if not process.alive:
                raise RuntimeError(f"{process.name} ended before {what}: {process.last_words()}")
        if time.monotonic() > end:
            words = "; ".join(f"{process.name}: {process.last_words()}" for process in processes)
            raise TimeoutError(f"not within {timeout:g} s: {what}. {words}")
        time.sleep(pause)


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


def _descendants(ancestor: int) -> dict[int, str]:
    """Its children and theirs, where the system has /proc; some leave the group they started in.

    Returns:
        When each began, by its number: numbers are given again.
    """
    children: dict[int, list[int]] = {}
    began: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            facts, number = _facts(entry), int(entry.parent.name)
            children.setdefault(int(facts[1]), []).append(number)
            began[number] = facts[_BEGAN]
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        born = children.get(waiting.pop(), [])
        found += born
        waiting += born
    return {number: began[number] for number in found}


def _facts(stat: Path) -> list[str]:
    """What /proc says of a process, from its state on."""
    return stat.read_text().rpartition(")")[2].split()


def _kill(processes: Mapping[int, str]) -> None:
    """Those of them that are still the same."""
    for number, began in processes.items():
        with contextlib.suppress(OSError, IndexError):
            if _facts(Path(f"/proc/{number}/stat"))[_BEGAN] == began:
                os.kill(number, signal.SIGKILL)
