"""Kinds ``trainings`` and ``trainings on a full disk``: DP-SGD, killed and gone on with to its end.

Killed at its charge, too, and while it takes up what an earlier process left. Now and then two
processes go on with one folder at once, or a copy of the folder is tried afterwards. Every noisy
step is told before it is taken.
"""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from tests.storm.children import tell
from tests.storm.children import told as told_in
from tests.storm.disks import Disk
from tests.storm.storm import Storm
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd import DPSGD, Adaptive, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.checkpoints import Checkpoints
from sfumato.ledger import Budget, Ledger, LedgerError

__all__ = ["go_through", "train", "trainings"]

STEPS, PEOPLE = 24, "people"
_TWICE, _COPIED = 0.15, 0.3
_IN_USE, _ELSEWHERE, FULL = 4, 5, 6


def plan() -> TrainingPlan:
    """The run's."""
    return TrainingPlan(PoissonLots(10, 60), Adaptive(1.0), 0.9, STEPS, 1e-5)


def train(run: str, told: str, folder: str = "run") -> int:
    """A child's work: begins the run in a folder, or goes on with it, to its end."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    X, Y = torch.randn(60, 3), torch.randint(0, 2, (60,))
    model = nn.Linear(3, 2)
    try:
        trainer = DPSGD(
            model, torch.optim.Adam(model.parameters(), lr=0.1), (X, Y), plan=plan(),
            ema_decay=0.9, progress=False, batch_size=4, ledger=Ledger(Path(run) / "privacy.db"),
            dataset=PEOPLE, checkpoints=Path(run) / folder, checkpoint_every=5,
        )  # fmt: skip
        apply = trainer._step.apply

        def noted(step: int) -> None:
            tell(told, step=step)
            apply(step)

        trainer._step.apply = noted
        trainer.resume()
        for x, y in trainer:
            trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
    except LedgerError as error:
        if "went on elsewhere" not in str(error) and "has ended" not in str(error):
            raise
        return _ELSEWHERE
    except ValueError as error:
        if "at work in" not in str(error):
            raise
        return _IN_USE
    return 0 if trainer.steps_taken == STEPS else 1


def trainings(storm: Storm) -> None:
    """One run after the other."""
    _runs(storm, storm.folder)


def train_on_full_disk(run: str, told: str, folder: str = "run") -> int:
    """A child's work: as far as there is room, then an error that says that there is none."""
    try:
        return train(run, told, folder)
    except (OSError, LedgerError, SafetensorError) as error:
        if not any(sign in str(error) for sign in _FULL):
            raise
    return FULL


_FULL = ("No space left", "is full", "could not be written", "StorageFull")


def trainings_on_full_disk(storm: Storm) -> None:
    """The same where there is little room, or none, in two of three attempts."""
    disk = Disk(storm)

    def between(attempt: int) -> None:
        disk.make_room()
        if attempt % 3:
            disk.fill()

    _runs(storm, disk.folder, train_on_full_disk, between)


def _runs(
    storm: Storm,
    place: Path,
    work: Callable[..., int] = train,
    between: Callable[[int], None] = lambda attempt: None,
) -> None:
    train_once(storm)
    for number in itertools.count():
        if storm.over:
            break
        run, told = place / str(number), storm.folder / f"told {number}"
        between(0)
        run.mkdir()
        ledger = Ledger(run / "privacy.db")
        ledger.create(PEOPLE, Budget(1.5 * plan().guarantee.epsilon, 1e-4))
        ledger.close()
        go_through(storm, run, told, work, between)
        shutil.rmtree(run)
    storm.note_problems()


def train_once(storm: Storm) -> None:
    """So that forks need not import what it takes."""
    run = storm.folder / "first"
    run.mkdir()
    Ledger(run / "privacy.db").create(PEOPLE, Budget(1.5 * plan().guarantee.epsilon, 1e-4))
    train(str(run), str(run / "told"))


def go_through(
    storm: Storm,
    run: Path,
    told: Path,
    work: Callable[..., int],
    between: Callable[[int], None],
) -> None:
    """Kills a run and goes on with it, until it came to its end; then looks at all that it left."""
    copied = False
    for attempt in range(1, 60):
        if not copied and told_in(told) and storm.random.random() < _COPIED:
            shutil.copytree(run / "run", run / "copy")
            copied = True
        between(attempt)
        twice = storm.random.random() < _TWICE
        for _ in range(1 + twice):
            storm.start(work, run=str(run), told=str(told))
        codes: list[int] = []
        while storm.at_work:
            codes += [code for _, code in storm.wait()]
        storm.tally.others += codes.count(FULL)
        between(0)
        if _ELSEWHERE in codes and len(codes) == 1:
            storm.find("wrong", f"{run.name} was refused, though nobody else went on with it")
        ended = 0 in codes
        with storm.expecting(f"looking at {run.name}"):
            judge(storm, run, told, ended)
        if ended:
            break
    else:
        storm.find("wrong", f"{run.name} did not come to its end in 60 attempts")
    if copied:
        before = told_in(told)
        code = storm.spare(train, run=str(run), told=str(told), folder="copy")
        if told_in(told) != before or code not in (
            0,
            _ELSEWHERE,
        ):  # 0: its weights alone are wanted
            storm.find("double", f"a copy of {run.name} was gone on with: {code}")


def judge(storm: Storm, run: Path, told: Path, ended: bool) -> None:
    """What a run left behind."""
    steps = [line["step"] for line in told_in(told)]
    again = [step for step, times in Counter(steps).items() if times > 1]
    if again or steps != sorted(steps):
        storm.find("double", f"steps ran twice, or behind others: {steps}")
    started = 0
    if (run / "run" / "plan.json").exists():
        store = Checkpoints(run / "run", plan().digest)
        started, found = store.started, store.load()
        if found is not None and found.step > started:
            storm.find("wrong", f"a checkpoint of step {found.step}, {started} were started")
    if started > STEPS or len(steps) > STEPS:
        storm.find("overspent", f"{len(steps)} steps ran, {started} started, {STEPS} are paid")
    if steps and steps[-1] + 1 > started:
        storm.find("lost", f"step {steps[-1]} ran, and {started} are noted as started")
    if ended and started != STEPS:
        storm.find("wrong", f"it ended after {started} of {STEPS} steps")
    judge_charge(storm, run, bool(steps))


def judge_charge(storm: Storm, run: Path, began: bool) -> None:
    """One plan, drawn once, and charged in full before the first step."""
    ledger = Ledger(run / "privacy.db", create=False)
    for problem in ledger.verify(PEOPLE).problems:
        storm.find("wrong", f"verify: {problem}")
    kinds = [entry.kind for entry in ledger.history(PEOPLE)]
    left = ledger.status(PEOPLE, declared=False).left
    ledger.close()
    if kinds.count("plan") > 1 or kinds.count("reserve") > 1 or kinds.count("commit") > 1:
        storm.find("double", f"one run was charged by {kinds}")
    if began and (kinds.count("plan"), kinds.count("reserve")) != (1, 1):
        storm.find("lost", f"steps ran, charged by {kinds}")
    epsilon = plan().guarantee.epsilon
    if began and left > 0.5 * epsilon + 1e-6:
        storm.find("lost", f"{left} are left of {1.5 * epsilon}, and {epsilon} were spent")
