"""One charge, one run: folders, copies of them, trainers and ledgers cannot multiply its steps."""

import copy
import gc
import math
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, Flat, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd import checkpoints as checkpoints_module
from sfumato.learning.dp_sgd.charging import Charge
from sfumato.learning.dp_sgd.checkpoints import Checkpoints
from sfumato.learning.journal import lots_taken
from sfumato.ledger import Budget, BudgetExceeded, LedgerError, WentOnElsewhere

pytestmark = pytest.mark.usefixtures("singles")
ROWS, STEPS = 20, 10
generator = torch.Generator().manual_seed(6)
X = torch.randn(ROWS, 3, generator=generator)
Y = torch.randint(0, 2, (ROWS,), generator=generator)
AT_WORK = "another trainer is at work"


def loss(m, x, y):
    return F.cross_entropy(m(x), y, reduction="none")


def plan_for(**more):
    return TrainingPlan(PoissonLots(ROWS / 2, ROWS), Flat(1.0), 5.0, STEPS, 1e-5, **more)


class Runs:
    """Trainers of one plan; counts every noisy step that any of them takes."""

    def __init__(self, folder, ledger):
        self.folder, self.ledger, self.steps = folder, ledger, 0

    def trainer(self, name="run", ledger=True, dataset="people", **more):
        model = nn.Linear(3, 2)
        charged = {"ledger": self.ledger, "dataset": dataset} if ledger else {}
        made = DPSGD(
            model, torch.optim.SGD(model.parameters(), lr=0.1), (X, Y),
            checkpoints=None if name is None else self.folder / name, checkpoint_every=2,
            progress=False, **{"plan": plan_for(), **charged, **more},
        )  # fmt: skip
        apply = made._step.apply

        def counted(step):
            self.steps += 1
            apply(step)

        made._step.apply = counted
        return made

    def some(self, trainer, steps):
        """So many steps; then the loop is left."""
        loop = iter(trainer)
        self.open(loop, trainer, steps)
        loop.close()
        return trainer

    @staticmethod
    def open(loop, trainer, steps):
        """So many steps of a loop that stays open."""
        done = 0
        for batch in loop:
            rehearsing = trainer.rehearsing
            trainer.backward(loss(trainer.model, *batch))
            done += not rehearsing
            if done == steps:
                return

    def copied(self, *names):
        for name in names:
            shutil.copytree(self.folder / "run", self.folder / name)

    def kinds(self, dataset="people"):
        """Of all entries but turns."""
        return [e.kind for e in self.ledger.history(dataset) if e.kind != "resume"]


@pytest.fixture
def runs(tmp_path, ledger):
    return Runs(tmp_path, ledger)


# --- one folder -----------------------------------------------------------------------------------


@pytest.mark.parametrize("charged", [True, False], ids=["ledger", "no ledger"])
def test_two_trainers_on_one_folder(runs, charged):
    first = runs.trainer(ledger=charged)
    loop = iter(first)
    runs.open(loop, first, 3)
    second = runs.trainer(ledger=charged)
    with pytest.raises(ValueError, match=AT_WORK):
        second.resume()
    loop.close()
    second = runs.trainer(ledger=charged).resume()
    with pytest.raises(ValueError, match=AT_WORK):
        first.fit(loss)
    second.fit(loss)
    with pytest.raises(ValueError, match="another trainer went on with this folder"):
        first.fit(loss)
    assert second.steps_taken == STEPS
    assert runs.steps <= STEPS


@pytest.mark.parametrize("charged", [True, False], ids=["ledger", "no ledger"])
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_a_trainer_made_before_another_ran(runs, steps, charged):
    first, stale = runs.trainer(ledger=charged), runs.trainer(ledger=charged)
    runs.some(first, steps)
    with pytest.raises(ValueError, match=r"began already: call resume\(\)"):
        runs.trainer(ledger=charged).fit(loss)
    stale.resume()
    assert stale.steps_taken >= steps
    stale.fit(loss)
    assert runs.steps <= STEPS


def test_a_loop_that_was_left_goes_on(runs):
    trainer = runs.trainer()
    for _ in range(3):
        runs.some(trainer, 2)
    trainer.fit(loss)
    assert runs.steps <= STEPS
    assert runs.kinds().count("reserve") == runs.kinds().count("commit") == 1
    assert runs.ledger.verify("people").ok


@pytest.mark.slow
def test_a_second_handle_does_not_let_go_of_the_first_ones_lock(tmp_path):
    folder = tmp_path / "run"
    first = Checkpoints(folder, "abc")
    first.note_started(0)
    second = Checkpoints(folder, "abc")
    with pytest.raises(ValueError, match=AT_WORK):
        second.note_started(1)
    second.close()
    del second
    gc.collect()
    script = (
        "from sfumato.learning.dp_sgd.checkpoints import Checkpoints\n"
        f"Checkpoints({str(folder)!r}, 'abc').note_started(1)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert AT_WORK in done.stderr
    first.close()
    Checkpoints(folder, "abc").note_started(1)


def test_who_is_refused_lets_go_of_the_folder(runs):
    small = "small"
    runs.ledger.create(small, Budget(1e-3, 1e-4))
    refused = runs.trainer(dataset=small)
    with pytest.raises(BudgetExceeded):
        refused.fit(loss)
    runs.some(runs.trainer(), 2)
    other = runs.trainer(dataset=small)
    with pytest.raises(LedgerError, match="was charged to 'people', not 'small'"):
        other.resume()
    runs.trainer().resume().fit(loss)
    assert runs.steps <= STEPS


# --- copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_copies_are_not_second_runs(runs, accountant):
    runs.ledger.create("few", Budget(100.0, 1e-3))
    options = {"plan": plan_for(accountant=accountant), "dataset": "few"}
    runs.some(runs.trainer(**options), 2)
    reading = runs.ledger.status("few").reading
    runs.copied("second", "third")
    original, second = runs.trainer(**options).resume(), runs.trainer("second", **options)
    for _ in range(3):
        with pytest.raises(WentOnElsewhere, match=r"turn 3 is another one's.*begin a new run"):
            second.resume()
    assert second.steps_taken == 0
    original.fit(loss)
    with pytest.raises(LedgerError, match="has ended"):
        runs.trainer("third", **options).resume()
    assert runs.steps <= STEPS
    assert runs.ledger.status("few").reading == reading
    assert runs.ledger.verify("few").ok


def test_the_first_trainer_does_not_go_on_beside_a_copy(runs):
    first = runs.some(runs.trainer(), 3)
    runs.copied("copy")
    runs.trainer("copy").resume().fit(loss)
    for _ in range(3):
        with pytest.raises(WentOnElsewhere):
            first.fit(loss)
    assert runs.steps <= STEPS


def test_the_first_trainer_does_not_go_on_beside_an_unfinished_copy(runs):
    first = runs.some(runs.trainer(), 3)
    runs.copied("copy")
    runs.some(runs.trainer("copy").resume(), 2)
    for _ in range(3):
        with pytest.raises(WentOnElsewhere):
            first.fit(loss)


def test_a_backup_is_older_than_the_ledger(runs):
    runs.some(runs.trainer(), 2)
    runs.copied("backup")
    runs.some(runs.trainer().resume(), 2)
    shutil.rmtree(runs.folder / "run")
    shutil.copytree(runs.folder / "backup", runs.folder / "run")
    for _ in range(3):
        with pytest.raises(WentOnElsewhere):
            runs.trainer().resume()


def test_a_process_still_at_work_is_stopped_once_its_copy_goes_on(runs):
    """Each lot is one turn here: the lot after the one at work is the copy's, or nobody's."""
    first = runs.trainer()
    loop = iter(first)
    runs.open(loop, first, 3)
    runs.copied("copy")
    copy = runs.some(runs.trainer("copy").resume(), 2)
    with pytest.raises(WentOnElsewhere):
        runs.open(loop, first, STEPS)
    copy.fit(loss)
    assert copy.steps_taken == STEPS
    assert runs.steps == STEPS
    assert runs.kinds() == ["open", "plan", "reserve", "commit"]


@pytest.fixture
def old(runs, monkeypatch):
    """A run as the first version left it after four steps and two resumptions."""
    number = runs.some(runs.trainer(None), 1).record.facts["ledger"]["entry"]
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints_module, "_FORMAT", "1")
        patched.setattr(Charge, "stored", lambda self: {"dataset": "people", "entry": number})
        runs.some(runs.trainer(ledger=False), 4)
    for turn in (1, 2):
        runs.ledger.resume("people", number, plan_for().event, turn=turn)
    folder = runs.folder / "run"
    (folder / "journal.jsonl").unlink()
    (folder / "started.journal").write_bytes(b"".join(b"%015d\n" % step for step in range(4)))
    (folder / "resumed").write_text("2")
    runs.steps = 4
    return runs


def test_a_folder_of_the_first_version_goes_on_and_its_copy_does_not(old):
    old.copied("copy")
    again = old.trainer().resume()
    assert again.steps_taken == 4
    old.some(again, 2)
    for _ in range(3):
        with pytest.raises(WentOnElsewhere):
            old.trainer("copy").resume()
    old.trainer().resume().fit(loss)
    assert old.steps == STEPS
    assert old.kinds() == ["open", "plan", "reserve", "commit"]
    assert old.ledger.verify("people").ok


@pytest.mark.parametrize("counted", [None, 1, 3])
def test_a_folder_of_the_first_version_that_lacks_a_turn_is_a_copy(old, counted):
    held = old.folder / "run" / "resumed"
    held.unlink() if counted is None else held.write_text(str(counted))
    for _ in range(3):
        with pytest.raises(LedgerError, match="went on elsewhere"):
            old.trainer().resume()
    assert old.steps == 4


def test_a_run_whose_journal_is_lost_is_refused(runs):
    """It cannot be told from a copy that had another one's put in its place."""
    runs.some(runs.trainer(), 4)
    (runs.folder / "run" / "journal.jsonl").unlink()
    for _ in range(3):
        with (
            pytest.warns(UserWarning, match="cut or replaced"),
            pytest.raises(LedgerError, match="is that of run"),
        ):
            runs.trainer().resume()


def test_blocks_of_a_long_run(tmp_path, ledger):
    """A loop that is left gives back the rest of its block; a process that is killed cannot."""
    runs = Runs(tmp_path, ledger)
    plan = TrainingPlan(PoissonLots(5, ROWS), Flat(1.0), 9.0, 500, 1e-5)  # blocks of four
    runs.some(runs.trainer(plan=plan), 6)
    assert lots_taken(tmp_path / "run" / "journal.jsonl") == 6
    killed = runs.trainer(plan=plan).resume()
    assert killed.steps_taken == 6
    loop = iter(killed)
    runs.open(loop, killed, 4)  # steps 6 to 9, of blocks that end at 8 and 12
    killed._resuming._store._steps._charge = None  # as one who cannot say so any more
    loop.close()
    assert runs.trainer(plan=plan).resume().steps_taken == 12
    assert len([e for e in ledger.history("people") if e.kind == "resume"]) <= 8


def test_a_run_goes_on_with_its_own_dataset_alone(runs):
    runs.ledger.create("others", Budget(1000.0, 1e-3))
    runs.some(runs.trainer(), 1)
    runs.some(runs.trainer("decoy", dataset="others"), 1)  # the same entry number there
    with pytest.raises(LedgerError, match="was charged to 'people', not 'others'"):
        runs.trainer(dataset="others").resume()
    with pytest.raises(LedgerError, match="make the trainer with that ledger"):
        runs.trainer(ledger=False).resume()
    assert runs.kinds() == ["open", "plan", "reserve"]


# --- trainers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("steps_taken", 0), ("plan", None)])
def test_what_was_done_cannot_be_assigned(runs, name, value):
    trainer = runs.trainer(None).fit(loss)
    with pytest.raises(AttributeError, match=name):
        setattr(trainer, name, value)
    trainer.fit(loss)
    assert runs.steps == STEPS


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_trainer_cannot_be_copied(runs, how):
    trainer = runs.some(runs.trainer(None), 1)
    with pytest.raises(TypeError, match="cannot be copied: its run was charged once"):
        how(trainer)


def test_seeded_coins_before_a_resumption_are_not_forgotten(runs):
    first = runs.some(runs.trainer(coins=SeededCoins(3)), 5)
    assert not first.record.private
    again = runs.trainer().resume().fit(loss)
    assert not again.record.private
    runs.some(runs.trainer("other"), 5)
    assert runs.trainer("other").resume().fit(loss).record.private
    runs.some(runs.trainer("last"), 5)
    seeded = runs.trainer("last", coins=SeededCoins(3)).resume().fit(loss)
    assert not seeded.record.private
    assert not runs.trainer("last").resume().record.private  # also where nothing is left to run


# --- cut lots -------------------------------------------------------------------------------------


def cut_plan(**more):
    lots = PoissonLots(10, 100, max_size=38)
    more = {"neighbours": "zero-out"} | more
    return TrainingPlan.make(lots, Flat(1.0), noise_multiplier=2.0, steps=5, delta=1e-4, **more)


@pytest.mark.parametrize(
    ("accountant", "neighbours", "message"),
    [
        ("rdp", "zero-out", "accounted up to the budget's epsilon 12.*claimed_epsilon=12"),
        ("rdp", "replace-one", "accounted for zero-out neighbours"),
        ("pld", "replace-one", "accounted for zero-out neighbours"),
    ],
)
def test_the_delta_of_cut_lots_covers_what_the_ledger_states(runs, accountant, neighbours, message):
    runs.ledger.create("cut", Budget(12.0, 1e-2), neighbours=neighbours)
    with pytest.raises(LedgerError, match=message):
        runs.trainer(None, dataset="cut", plan=cut_plan(accountant=accountant))
    assert runs.kinds("cut") == ["open"]


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_cut_lots_under_add_remove_pay_no_delta_and_are_for_that_relation(runs, accountant):
    plan = cut_plan(accountant=accountant, neighbours="add-remove")
    runs.ledger.create("blanks", Budget(12.0, 1e-2), neighbours="zero-out")
    with pytest.raises(LedgerError, match="accounted for add-remove neighbours"):
        runs.trainer(None, dataset="blanks", plan=plan)
    runs.ledger.create("cut", Budget(12.0, 1e-2))
    runs.trainer(None, dataset="cut", plan=plan).fit(loss)
    assert runs.ledger.verify("cut").ok


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_a_table_beyond_the_declared_size_is_refused_before_anything_is_spent(runs, neighbours):
    runs.ledger.create("cut", Budget(12.0, 1e-2), neighbours=neighbours)
    lots = PoissonLots(5, ROWS - 1, max_size=15)
    plan = TrainingPlan.make(
        lots, Flat(1.0), noise_multiplier=9.0, steps=5, delta=1e-4, neighbours=neighbours,
        claimed_epsilon=1.0,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"population .* must be at least the 20 units"):
        runs.trainer(None, dataset="cut", plan=plan)
    assert runs.kinds("cut") == ["open"]


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_cut_lots_within_what_they_are_accounted_for(runs, accountant):
    runs.ledger.create("cut", Budget(12.0, 1e-2), neighbours="zero-out")
    plan = cut_plan(accountant=accountant, claimed_epsilon=12.0)
    runs.trainer(None, dataset="cut", plan=plan).fit(loss)
    wanted = plan.lots.overflow(plan.steps, plan.neighbours) * (1 + math.exp(12.0))
    if accountant == "pld":
        (declared,) = [e.data for e in runs.ledger.history("cut") if e.kind == "plan"]
        assert declared["epsilon"] <= 12.0
        assert declared["delta"] >= wanted
    assert runs.ledger.verify("cut").ok
