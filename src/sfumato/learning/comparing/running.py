"""Trains cell by cell, or some side by side, and keeps each as soon as it is done."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import final

import torch

from sfumato.core.guarantee import Guarantee
from sfumato.learning.comparing.cells import Cell
from sfumato.learning.comparing.methods import Payer, Training
from sfumato.learning.comparing.registry import method_called
from sfumato.learning.comparing.store import Result, Store, accuracy_in, clear_unfinished
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.runs.folder import RunFolder

__all__ = ["Told", "run_cells", "train_cell"]

Told = Callable[[int, int, tuple[Cell, ...], Result | None], object]
"""Told how many cells are done, of how many, which are at work, and what was done last."""

_DIED = (
    "a process that trained a run was killed, perhaps for want of memory: what is done is kept, "
    "and the same command goes on; with jobs 1 (--jobs 1) it takes less memory"
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@final
@dataclass
class _Deadline:
    """After it no cell is begun."""

    minutes: float | None
    begun: float = field(default_factory=time.monotonic)

    @property
    def past(self) -> bool:
        return self.minutes is not None and time.monotonic() - self.begun > 60 * self.minutes


def train_cell(task: Task, cell: Cell, out: Path, payer: Payer, device: str = "cpu") -> Result:
    """Trains what is left of a cell, and reads its result off its folder.

    A run that was cut off goes on from its last checkpoint, if its method can; otherwise it begins
    anew, and is charged anew.
    """
    method, begun, used = method_called(cell.method), time.monotonic(), time.process_time()
    folder = RunFolder(out)
    if not folder.finished:
        resume = clear_unfinished(out, method.goes_on)
        how = Training(cell.epsilon, cell.repeat, out, resume, payer, device)
        method.train(task, how)
    guarantee = Guarantee.from_dict(folder.record()["guarantee"])
    took = time.monotonic() - begun, time.process_time() - used
    return Result(cell, guarantee, accuracy_in(folder), *took)


def run_cells(
    task: Task,
    cells: tuple[Cell, ...],
    store: Store,
    payer: Payer,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    device: str = "cpu",
    told: Told | None = None,
) -> bool:
    """Trains all cells that the store has no result of.

    Args:
        task: what every method is given.
        cells: which.
        store: where results are kept as they come.
        payer: whose budgets are charged.
        jobs: so many at once, each in a process of its own; 1 for this process.
        minutes: begin no cell after so many.
        device: such as "cuda".
        told: who is told how far it is.

    Returns:
        Whether all is done.

    Raises:
        ValueError: of a cell, with its name; what was done before is kept.
    """
    left = [cell for cell in cells if cell not in store.results]
    total, say = len(cells), told or _nobody

    def running(at_work: tuple[Cell, ...], last: Result | None = None) -> None:
        say(sum(cell in store.results for cell in cells), total, at_work, last)

    def keep(result: Result) -> None:
        store.keep(result)
        running((), result)

    work = _Work(task, payer, device, store.folder, _Deadline(minutes), running, keep)
    if jobs == 1 or len(left) < 2:
        work.one_by_one(left)
    else:
        work.side_by_side(left, jobs)
    return all(cell in store.results for cell in cells)


@final
@dataclass(frozen=True, eq=False)
class _Work:
    """What is done to cells, and who is told of it."""

    task: Task
    payer: Payer
    device: str
    folder: Callable[[Cell], Path]
    deadline: _Deadline
    running: Callable[[tuple[Cell, ...]], None]
    keep: Callable[[Result], None]

    def one_by_one(self, left: list[Cell]) -> None:
        """In this process."""
        for cell in left:
            if self.deadline.past:
                return
            self.running((cell,))
            with _named(cell):
                made = train_cell(self.task, cell, self.folder(cell), self.payer, self.device)
            self.keep(made)

    def side_by_side(self, left: list[Cell], jobs: int) -> None:
        """In processes that are started anew, so that none inherits threads or locks of this."""
        threads = max(1, (os.cpu_count() or 1) // jobs)
        given = self.task, self.payer, self.device, threads
        with (
            _few_threads(threads),
            ProcessPoolExecutor(jobs, get_context("spawn"), _begin_work, given) as pool,
        ):
            at_work: dict[Future[Result], Cell] = {}
            try:
                self._feed(pool, list(left), jobs, at_work)
            except BrokenProcessPool:
                raise OSError(_DIED) from None
            except BaseException:
                self._keep_those_that_finish(at_work)
                raise

    def _feed(
        self,
        pool: ProcessPoolExecutor,
        waiting: list[Cell],
        jobs: int,
        at_work: dict[Future[Result], Cell],
    ) -> None:
        while waiting or at_work:
            while waiting and len(at_work) < jobs and not self.deadline.past:
                cell = waiting.pop(0)
                at_work[pool.submit(_work, cell, self.folder(cell))] = cell
            if not at_work:
                return
            self.running(tuple(at_work.values()))
            done, _ = wait(at_work, return_when=FIRST_COMPLETED)
            for future in done:
                with _named(at_work.pop(future)):
                    made = future.result()
                self.keep(made)

    def _keep_those_that_finish(self, at_work: dict[Future[Result], Cell]) -> None:
        """After an error of one cell: others that were at work are not lost."""
        for future in at_work:
            if not future.cancel() and future.exception() is None:
                self.keep(future.result())


@contextmanager
def _named(cell: Cell) -> Generator[None]:
    """Errors about parameters say which cell they are of."""
    try:
        yield
    except ValueError as error:
        error.args = (f"{cell}: {error}",)
        raise


@contextmanager
def _few_threads(threads: int) -> Generator[None]:
    """Libraries of processes that begin now use so many: more would wait for each other."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# --- in a process of its own ----------------------------------------------------------------------

_given: list[tuple[Task, Payer, str]] = []


def _begin_work(task: Task, payer: Payer, device: str, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who waits for work has nothing to interrupt
    torch.set_num_threads(threads)
    _given[:] = [(task, payer, device)]


def _work(cell: Cell, out: Path) -> Result:
    task, payer, device = _given[0]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return train_cell(task, cell, out, payer, device)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _nobody(done: int, total: int, running: tuple[Cell, ...], last: Result | None) -> None:
    """Without anybody to tell."""
