"""kill -9 at random moments: charged once, no step run twice, the run comes to its end.

One process imports torch and then forks a child for every attempt, kills it after a random time,
and looks at what it left behind. The children train on real rows, with the system's own coins, a
checkpoint folder and a ledger in SQLite.
"""

import itertools
import json
import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
import json, os, random, signal, sys, time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from sfumato.learning.dp_sgd import DPSGD, Adaptive, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.checkpoints import Checkpoints
from sfumato.ledger import Budget, Ledger

torch.set_num_threads(1)
home, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
X, Y = torch.randn(60, 3), torch.randint(0, 2, (60,))
STEPS = 40
plan = TrainingPlan(PoissonLots(10, 60), Adaptive(1.0), 0.9, STEPS, 1e-5)
epsilon = plan.guarantee.epsilon


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
            os.write(ready, b"!")  # the charge is made, and the first checkpoint written
            ready = None
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
    assert trainer.steps_taken == STEPS, trainer.steps_taken
    os.write(truth, b"end %d\\n" % began)


def attempt(run, fresh, delay):
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(readable)
            child(run, writable)
            os._exit(0)
        except BaseException as error:
            print(json.dumps({"problem": repr(error)}), flush=True)
            os._exit(1)
    os.close(writable)
    if fresh:
        os.read(readable, 1)
    end = time.monotonic() + delay
    status = None
    while time.monotonic() < end and status is None:
        done, found = os.waitpid(pid, os.WNOHANG)
        status = found if done else None
        time.sleep(0.0005)
    os.close(readable)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)


def look(run):
    lines = (run / "truth").read_text().split("\\n") if (run / "truth").exists() else []
    steps = [int(line) for line in lines if line.isdigit()]
    store = Checkpoints(run / "run", plan.digest)
    ledger = Ledger(run / "privacy.db", create=False)
    kinds = [entry.kind for entry in ledger.history("people")]
    left = ledger.status("people", declared=False).left
    verified = bool(ledger.verify("people"))
    ledger.close()
    found = store.load()
    return {
        "steps": steps, "started": store.started, "checkpoint": found.step if found else None,
        "kinds": kinds, "left": left, "verified": verified,
    }


random.seed(seed)
done = number = 0
while done < kills:
    run = home / str(number)
    run.mkdir(parents=True)
    number += 1
    ledger = Ledger(run / "privacy.db")
    ledger.create("people", Budget(1.5 * epsilon, 1e-4))
    ledger.close()
    fresh, window, before = True, 0.2, 0
    while True:
        killed, code = attempt(run, fresh, random.uniform(0, window) if done < kills else 60)
        done += killed
        fresh, found = False, look(run)
        print(json.dumps({"run": number, "killed": killed, "code": code} | found), flush=True)
        if not killed:
            break
        # A busy machine needs longer to come as far as a step: wait longer where none was begun.
        window = 0.2 if found["started"] > before else min(1.5 * window, 10.0)
        before = found["started"]
print(json.dumps({"epsilon": epsilon, "budget": 1.5 * epsilon, "steps": STEPS}), flush=True)
"""


def killed_runs(folder, kills, seed):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    *seen, facts = [json.loads(line) for line in done.stdout.splitlines()]
    return seen, facts


def check(seen, facts, kills):
    assert not [line for line in seen if "problem" in line]
    assert sum(line["killed"] for line in seen) >= kills
    for line in seen:
        steps = line["steps"]
        # No step was ever run twice, or behind one that may have run.
        assert all(a < b for a, b in itertools.pairwise(steps)), steps
        # What was run was noted, and what is noted was charged.
        assert (steps[-1] + 1 if steps else 0) <= line["started"] <= facts["steps"]
        assert line["checkpoint"] is not None
        assert line["checkpoint"] <= line["started"]
        # Charged once, in full, however often it was killed.
        charges = [kind for kind in line["kinds"] if kind not in ("commit", "resume")]
        assert charges == ["open", "plan", "reserve"]
        assert line["left"] == pytest.approx(facts["budget"] - facts["epsilon"], abs=1e-6)
        assert line["verified"]
        if not line["killed"]:
            assert line["code"] == 0
            assert line["started"] == facts["steps"]
    last = {line["run"]: line for line in seen}
    assert all(not line["killed"] for line in last.values())  # every run came to its end
    cut = [line for line in seen if line["killed"] and 0 < line["started"] < facts["steps"]]
    assert len(cut) > kills / 4  # the kills did hit runs, and steps after their checkpoints
    assert any(line["checkpoint"] < line["started"] for line in cut)


def test_killed_runs_are_charged_once_and_come_to_their_end(tmp_path):
    seen, facts = killed_runs(tmp_path, kills=15, seed=1)
    check(seen, facts, 15)


@pytest.mark.slow
def test_many_killed_runs_are_charged_once_and_come_to_their_end(tmp_path):
    seen, facts = killed_runs(tmp_path, kills=150, seed=2)
    check(seen, facts, 150)
