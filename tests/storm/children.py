"""Child processes, and how they are killed: at a moment, or at a system call.

What they need is loaded once and then forked: a child costs milliseconds, not seconds. A few are
fresh interpreters, which share nothing: ``python -m tests.storm.children MODULE:WORK SPEC``. A
child's work is a function at the top of a module, called with a spec that is JSON; what it returns
is the child's exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import struct
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

__all__ = ["AT_CALL", "Child", "begin", "fork", "lines", "ready", "tell", "told"]

AT_CALL = 77
"""The exit code of a child that was killed at a system call."""
TROUBLE = 99
"""The exit code of one whose work raised what it should not."""

_Work = Callable[..., Any]
_READY = "STORM_READY"


def lines(path: Path) -> list[str]:
    """All that ended, of a file that may not be there, or of all files in a folder."""
    if path.is_dir():
        return [line for file in sorted(path.iterdir()) for line in lines(file)]
    return path.read_text().split("\n")[:-1] if path.exists() else []


def tell(path: str | Path, **facts: Any) -> None:
    """Appends a line of JSON that no kill takes back: once the call returns, it has left.

    On a disk that is full this would lie; what is told goes to another one.
    """
    file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    try:
        os.write(file, b"\n" + json.dumps(facts).encode() + b"\n")
    finally:
        os.close(file)


def told(path: Path) -> list[dict[str, Any]]:
    """All that was told. A line that a kill tore apart did not leave the process."""
    found: list[dict[str, Any]] = []
    for line in filter(None, lines(path)):
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def ready() -> None:
    """A child says that its work begins now: a fresh one has loaded everything."""
    handle = os.environ.pop(_READY, None)
    if handle is not None:
        os.close(int(handle))


def fork(work: _Work, problem: Callable[[BaseException], Any] = traceback.print_exception) -> int:
    """Runs ``work``, which returns its exit code, in a child; its process id.

    Args:
        work: what it does.
        problem: is told of an exception.
    """
    child = os.fork()
    if child:
        return child
    code = TROUBLE
    try:
        code = int(work() or 0)
    except BaseException as error:
        problem(error)
    finally:
        os._exit(code)


def _tell_problem(path: str | Path, error: BaseException) -> None:
    where = "".join(traceback.format_exception(error))
    tell(path, problem=repr(error)[:500], where=where[-1500:])


@dataclass
class Child:
    """One at work.

    Attributes:
        pid: whom to wait for, and to kill.
        how: "fork", "call" or "fresh".
        spec: what it does.
        begins: a handle that ends when its work begins; None once it did.
    """

    pid: int
    how: str
    spec: dict[str, Any]
    begins: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def has_begun(self) -> bool:
        """Whether its work began."""
        if self.begins is not None:
            os.set_blocking(self.begins, False)
            try:
                os.read(self.begins, 1)
            except BlockingIOError:
                return False
            self._forget()
        return True

    def _forget(self) -> None:
        if self.begins is not None:
            os.close(self.begins)
            self.begins = None

    def ended(self) -> int | None:
        """Its exit code, None while it is at work."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        if not done:
            return None
        self._forget()
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> int:
        """Kills it, if it did not end just now; its exit code."""
        os.kill(self.pid, signal.SIGKILL)
        self._forget()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def begin(work: _Work, spec: dict[str, Any], problems: Path, how: str, call: int = 0) -> Child:
    """Starts a child.

    Args:
        work: a function at the top of a module.
        spec: what to call it with.
        problems: where it tells of exceptions.
        how: "fork"; "call" for one that is killed at its ``call``-th system call on files or
            sockets (its process id is that of whoever watches it); "fresh" for a new interpreter.
        call: at which; an even one is killed before it, an odd one after it.
    """
    problem = partial(_tell_problem, problems)
    if how == "fork":
        return Child(fork(lambda: work(**spec), problem), how, spec)
    if how == "call":
        return Child(fork(lambda: _killed_at(call, work, spec, problem), problem), how, spec)
    readable, writable = os.pipe()
    os.set_inheritable(writable, True)
    name = f"{work.__module__}:{work.__name__}"
    words = [sys.executable, "-m", "tests.storm.children", name, json.dumps(spec), str(problems)]

    def become() -> int:
        os.environ[_READY] = str(writable)
        os.execv(sys.executable, words)

    child = Child(fork(become, problem), how, spec, readable)
    os.close(writable)
    return child


# --- killed at a system call --------------------------------------------------------------------

_TRACEME, _SYSCALL, _OPTIONS, _INFO = 0, 24, 0x4200, 0x420E
_GOOD_STOPS, _DIES_WITH_US = 1, 0x100000
_BY_MACHINE = {
    # pwrite64, fsync, fdatasync, ftruncate, unlink, rename, sendto, write, flock, unlinkat,
    # renameat
    "x86_64": {18, 74, 75, 77, 87, 82, 44, 1, 73, 263, 264},
    "aarch64": {68, 82, 83, 46, 206, 64, 32, 35, 38},
}
CALLS = _BY_MACHINE.get(os.uname().machine, set())
"""What a durable write is made of: between any two of them the disk holds something else."""


def _killed_at(call: int, work: _Work, spec: dict[str, Any], problem: _Work) -> int:
    """Runs the work in a child that is watched, and kills it at a call; its exit code."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long

    def watched() -> Any:
        libc.ptrace(_TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        return work(**spec)

    child, seen, pass_on = fork(watched, problem), 0, 0
    os.waitpid(child, 0)
    libc.ptrace(_OPTIONS, child, None, _GOOD_STOPS | _DIES_WITH_US)
    facts = ctypes.create_string_buffer(88)
    while True:
        libc.ptrace(_SYSCALL, child, None, pass_on)
        _, status = os.waitpid(child, 0)
        if not os.WIFSTOPPED(status):
            return os.waitstatus_to_exitcode(status)
        stop, pass_on = os.WSTOPSIG(status), 0
        if stop != signal.SIGTRAP | 0x80:
            pass_on = stop if stop != signal.SIGTRAP else 0
            continue
        libc.ptrace(_INFO, child, 88, ctypes.addressof(facts))
        entering = facts.raw[0] == 1
        if entering:
            number = struct.unpack_from("Q", facts.raw, 24)[0]
            seen += number in CALLS
        if seen >= call and (entering == (call % 2 == 0)):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return AT_CALL


def _main(name: str, spec: str, problems: str) -> None:
    """A fresh interpreter's work."""
    module, _, work = name.partition(":")
    found = getattr(importlib.import_module(module), work)

    def works() -> Any:
        ready()
        return found(**json.loads(spec))

    code = TROUBLE
    try:
        code = int(works() or 0)
    except BaseException as error:
        _tell_problem(problems, error)
    finally:
        os._exit(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
