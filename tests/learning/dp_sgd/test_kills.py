"""kill -9 at random moments: charged once, no step run twice, the run comes to its end.

One process imports torch and then forks a child for every attempt, kills it after a random time,
and looks at what it left behind. The children train on real rows, with the system's own coins, a
checkpoint folder and a ledger in SQLite.
"""

import pytest
from tests.learning.killing import check_charged_once, check_steps, run_script

SCRIPT = """
import os, random, sys, time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from killing import kill_one, kill_trainers, lines
from sfumato.learning.dp_sgd import DPSGD, Adaptive, PoissonLots, TrainingPlan
from sfumato.ledger import Ledger

torch.set_num_threads(1)
home, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
X, Y = torch.randn(60, 3), torch.randint(0, 2, (60,))
STEPS = 40
plan = TrainingPlan(PoissonLots(10, 60), Adaptive(1.0), 0.9, STEPS, 1e-5)


def child(run, ready):
    # Every noisy step leaves a line, before it is taken: the truth to compare with.
    truth = os.open(run / "truth", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    ledger = Ledger(run / "privacy.db")
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    trainer = DPSGD(
        model, optimizer, (X, Y), plan=plan, ema_decay=0.9, progress=False, batch_size=4,
        ledger=ledger, dataset="people", checkpoints=run / "run", checkpoint_every=6,
    )
    apply = trainer._step.apply

    def noted(step):
        os.write(truth, b"%d\\n" % step)
        apply(step)
        time.sleep(0.002)

    trainer._step.apply = noted
    trainer.resume()
    began = trainer.steps_taken
    for x, y in trainer:
        if not trainer.rehearsing and ready is not None:
            ready()  # the charge is made, and the first checkpoint written
            ready = None
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
    assert trainer.steps_taken == STEPS, trainer.steps_taken
    os.write(truth, b"end %d\\n" % began)
    return 0


def attempt(run, number, delay):
    killed, (code,) = kill_one(
        [lambda ready: child(run, ready)], lambda seconds: seconds >= delay, wait=number == 0
    )
    return killed, not killed, {"code": code}


def look(run):
    return {"steps": [int(line) for line in lines(run / "truth") if line.isdigit()]}


random.seed(seed)
kill_trainers(home, kills, plan, 0.2, attempt, look)
"""


def check(seen, facts, kills):
    assert sum(line["killed"] for line in seen) >= kills
    for line in seen:
        check_steps(line["steps"], line["started"], facts["steps"])
        assert line["checkpoint"] is not None
        assert line["checkpoint"] <= line["started"]
        check_charged_once(line, facts["budget"] - facts["epsilon"])
        if not line["killed"]:
            assert line["code"] == 0
            assert line["started"] == facts["steps"]
    last = {line["run"]: line for line in seen}
    assert all(not line["killed"] for line in last.values())  # every run came to its end
    cut = [line for line in seen if line["killed"] and 0 < line["started"] < facts["steps"]]
    assert len(cut) > kills / 4  # the kills did hit runs, and steps after their checkpoints
    assert any(line["checkpoint"] < line["started"] for line in cut)


def test_killed_runs_are_charged_once_and_come_to_their_end(tmp_path):
    *seen, facts = run_script(SCRIPT, tmp_path, 15, 1)
    check(seen, facts, 15)


@pytest.mark.slow
def test_many_killed_runs_are_charged_once_and_come_to_their_end(tmp_path):
    *seen, facts = run_script(SCRIPT, tmp_path, 150, 2)
    check(seen, facts, 150)
