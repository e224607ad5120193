"""Runs tests against one mutant, in a process of its own that is served the mutated module."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.making import Mutant, code_of
from tests.mutants.rooms import OPTIONS, ROOT, SOURCE, mirrors_of, room_of

__all__ = ["LIMIT", "Verdict", "module_of", "run", "run_code", "serve"]

LIMIT = 600.0
"""Seconds after which a mutant counts as killed: it hangs, or takes what no one would wait for."""
_OVERLAY = Path(__file__).with_name("overlay")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Attributes:
        verdict: killed, excused or alive; or error, if the tests could not be run at all.
        by: the test that failed, or what else ended it.
        seconds: how long it took.
    """

    verdict: str
    by: str
    seconds: float


def module_of(file: str) -> str:
    """The name that a file below ``src/sfumato`` is imported by."""
    return "sfumato." + file.removesuffix(".py").replace("/", ".")


def run(mutant: Mutant, limit: float = LIMIT, source: Path = SOURCE) -> Verdict:
    """Whether the tests of its file notice a mutant."""
    path = source / mutant.file
    code = code_of(mutant, path.read_text("utf-8"), path)
    tests = [*OPTIONS.get(room_of(mutant.file), ()), *mirrors_of(mutant.file)]
    return run_code(module_of(mutant.file), code, tests, limit)


def run_code(
    module: str, code: bytes, tests: Sequence[str], limit: float = LIMIT, paths: Sequence[str] = ()
) -> Verdict:
    """Whether tests fail while ``module`` is served by ``code``; the checkout is not edited.

    Args:
        module: its name.
        code: as ``marshal`` writes it.
        tests: test files, or single tests, and options of pytest's.
        limit: seconds.
        paths: more folders to import from.
    """
    began = time.monotonic()
    command = [
        sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=line", *tests,
    ]  # fmt: skip
    code_returned, text, taken = serve(module, code, command, limit, paths)
    return _verdict(code_returned, text, taken, time.monotonic() - began)


def serve(
    module: str, code: bytes, command: Sequence[str], limit: float, paths: Sequence[str] = ()
) -> tuple[int | None, str, bool]:
    """Runs a command to which ``module`` is served by ``code``.

    Returns:
        Its status, None if it was ended after ``limit`` seconds; what it wrote; and whether it
        imported the module at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        served, taken = Path(folder, "mutant"), Path(folder, "taken")
        served.write_bytes(code)
        search = [str(_OVERLAY), *paths, str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, search)),
            "SFUMATO_MUTANT": json.dumps([module, str(served), str(taken)]),
            "OMP_NUM_THREADS": "1",
        }
        # Not those of a surrounding run of pytest.
        environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_")}
        with Path(folder, "out").open("w+") as out:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(process)
            out.seek(0)
            return status, out.read(), taken.exists()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


def _verdict(code: int | None, text: str, taken: bool, seconds: float) -> Verdict:
    seconds = round(seconds, 1)
    if code is None:
        return Verdict("killed", "time", seconds)
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    by = found.group(1) if found else text.strip().rpartition("\n")[2][:200]
    if not taken and code in (0, 1):
        return Verdict("error", "the tests never import the mutated module", seconds)
    if code == 0:
        return Verdict("alive", "", seconds)
    # 1: a test failed; 2, 3: a module would not even import; 4: conftest.py would not.
    if code == 1 or (code in (2, 3, 4) and taken):
        return Verdict("killed", by, seconds)
    if code < 0:
        return Verdict("killed", f"signal {-code}", seconds)
    return Verdict("error", by, seconds)
