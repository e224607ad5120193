"""Engines of the GPU benchmark, each in a process of its own: see dp_sgd_gpu.py."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

Result = dict[str, Any]
READY = "ready"
BENCHMARK = str(Path(__file__).with_name("dp_sgd_gpu.py"))


class Apart:
    """One engine in a process of its own; whatever goes wrong there becomes a result."""

    def __init__(
        self,
        given: argparse.Namespace,
        job: tuple[str, str, str],
        trial: int = 0,
        clip: float = 0.0,
    ) -> None:
        task, precision, engine = job
        command = [
            sys.executable, BENCHMARK, "--one", "--tasks", task, "--precisions", precision,
            "--engines", engine, "--steps", str(given.steps), "--device", given.device,
            "--memory", str(given.memory), "--fastdp", given.fastdp, "--rows", str(given.rows),
            "--trial", str(trial), "--clip", str(clip), "--turns", *["--tiny"] * given.tiny,
        ]  # fmt: skip
        threads = {"TORCHINDUCTOR_COMPILE_THREADS": "2"} if given.together > 1 else {}
        self.trial = trial
        self.job, self.until = job, time.monotonic() + given.limit
        self.started, self.last = time.perf_counter(), ""
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # as long as the process
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            env=os.environ | threads,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.ready = threading.Event()
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last = line
            if line.strip() == READY:
                self.ready.set()
        self.ready.set()  # over, one way or the other

    def prepared(self) -> None:
        """Waits until it is ready, or over."""
        self.ready.wait(max(0.0, self.until - time.monotonic()))

    def result(self) -> Result:
        """Tells it to go on, and waits for the end."""
        if not self.ready.is_set() and not self.trial:
            self.process.kill()
        with contextlib.suppress(BrokenPipeError):
            assert self.process.stdin is not None
            self.process.stdin.write("go\n")
            self.process.stdin.close()
        try:
            code = self.process.wait(max(30.0, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.reader.join(10)
        self.errors.seek(0)
        return self._told(code, self.errors.read())

    def _told(self, code: int, said: str) -> Result:
        if code == 0 and self.last.startswith("{"):
            return json.loads(self.last)
        if code < 0:
            return {"failed": "took too long"}
        if "out of memory" in said:
            return {"failed": "out of memory"}
        lines = [line for line in said.splitlines() if line.strip()]
        errors = [x for x in lines if "Error" in x.partition(":")[0]] or lines or ["no reason"]
        return {"failed": errors[-1].strip()[:160], "stderr": said[-3000:]}
