"""kill -9 of real runs, while features are fitted and while steps are taken, and ``train resume``.

One process imports torch and forks a child for each attempt, which runs the command as people type
it; every fit and every step leaves a line before it is begun: the truth to compare with.
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

import numpy as np
import torch

from sfumato.cli.main import main
from sfumato.learning.dp_sgd.stepping import NoisyStep
from sfumato.learning.features import PrivatePCA
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.ledger import Budget, Ledger
from sfumato.data import load_dataset, read_declaration
from sfumato.reports import training_figures

torch.set_num_threads(1)
home, runs, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.chdir(home)
chosen = random.Random(seed)
STEPS = 60
np.savez("rows.npz", **{f"c{i}": np.random.default_rng(i).random(200) for i in range(4)},
         label=np.arange(200) % 2)
columns = "".join(f"[columns.c{i}]\\nlower = 0\\nupper = 1\\n" for i in range(4))
Path("rows.toml").write_text(
    'label = "label"\\nclasses = [0, 1]\\nrecords = 200\\npublic_test = true\\n' + columns
)
BEGIN = (
    "train dp-sgd --data rows.npz --declared rows.toml --test rows.npz --noise-multiplier 2 "
    f"--steps {STEPS} --lot-size 20 --features pca --feature-option components=2 "
    "--feature-option noise_multiplier=5 --ema-decay 0.9 --evaluations 20 --checkpoint-every 7 "
    "--dataset people --json"
)


data = load_dataset("rows.npz", read_declaration("rows.toml"))
recipe = Recipe("linear", 20, Rate(0.1), PrivatePCA(2, 5.0), noise_multiplier=2.0, steps=2)
train(recipe, data)  # so that children need not import what it takes


def child(run, words):
    truth = os.open(run / "truth", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    apply, fit = NoisyStep.apply, PrivatePCA.fit

    def noted_step(self, step):
        os.write(truth, b"step %d\\n" % step)
        apply(self, step)

    def noted_fit(self, *more):
        os.write(truth, b"fit\\n")
        fit(self, *more)
        time.sleep(0.05)  # so that it is hit

    NoisyStep.apply, PrivatePCA.fit = noted_step, noted_fit
    sys.stdout = open(run / "out", "w")
    try:
        main(words)
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code)


def lines(run):
    return (run / "truth").read_text().split("\\n")[:-1] if (run / "truth").exists() else []


def attempt(run, words, when):
    pid = os.fork()
    if not pid:
        try:
            child(run, words)
        finally:
            os._exit(99)
    began, old = time.monotonic(), len(lines(run))
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return False, os.waitstatus_to_exitcode(status)
        new = lines(run)[old:]
        if when(new, time.monotonic() - began):
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            return os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)
        time.sleep(0.001)


def look(run):
    ledger = Ledger(run / "privacy.db", create=False)
    kinds = [entry.kind for entry in ledger.history("people")]
    left = ledger.status("people", declared=False).left
    ledger.close()
    curator, curve = run / "run" / "curator", []
    if (curator / "curve.json").exists():
        curve = json.loads((curator / "curve.json").read_text())
    kept = curator / "features.safetensors"
    return {
        "truth": lines(run), "kinds": kinds, "left": left, "curve": curve,
        "features": kept.read_bytes().hex() if kept.exists() else None,
        "begun": (curator / "request.json").exists(),
        "finished": (run / "run" / "record.json").exists(),
    }


def in_the_fit(new, elapsed):
    return "fit" in new


def after_some_steps(count):
    return lambda new, elapsed: sum(line.startswith("step") for line in new) >= count


def after(seconds):
    return lambda new, elapsed: bool(new) and elapsed > seconds


def planned(number):
    if number == 0:
        return [in_the_fit, after_some_steps(5), after_some_steps(20)]
    moments = [in_the_fit] if chosen.random() < 0.5 else []
    return [*moments, *(after(chosen.uniform(0, 1.5)) for _ in range(chosen.randrange(1, 5)))]


for number in range(runs):
    run = home / str(number)
    run.mkdir()
    ledger = Ledger(run / "privacy.db")
    ledger.create("people", Budget(100.0, 1e-2))
    ledger.close()
    where = ["--out", str(run / "run"), "--ledger", str(run / "privacy.db")]
    for when in [*planned(number), lambda new, elapsed: False]:
        seen = look(run)
        if seen["finished"]:
            break
        words = ["train", "resume", str(run / "run"), "--json"]
        killed, code = attempt(run, words if seen["begun"] else BEGIN.split() + where, when)
        print(json.dumps({"run": number, "killed": killed, "code": code} | look(run)), flush=True)
    shown = json.loads((run / "out").read_text() or "null")
    record = json.loads((run / "run" / "record.json").read_text())
    code = attempt(run, ["train", "resume", str(run / "run")], lambda *_: False)[1]
    print(json.dumps({"run": number, "shown": shown, "record": record, "again": code}), flush=True)
"""


def killed_runs(folder, runs, seed):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(runs), str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        ([x for x in found if x["run"] == run and "truth" in x],
         next(x for x in found if x["run"] == run and "record" in x))
        for run in range(runs)
    ]  # fmt: skip


def check(attempts, end):
    steps = [int(x.split()[1]) for x in attempts[-1]["truth"] if x.startswith("step")]
    assert all(a < b for a, b in itertools.pairwise(steps)), steps  # none twice, none behind
    assert steps[-1] <= 59
    plan, facts = end["record"]["parameters"]["plan"], end["record"]["facts"]
    assert plan["steps"] == 60
    assert facts["steps_lost"] >= 60 - len(steps)
    for one, two in itertools.pairwise(attempts):
        assert one["killed"]
        # What was written stays: features, and the curve's points.
        if one["features"] is not None:
            assert two["features"] == one["features"]
            assert two["truth"].count("fit") == one["truth"].count("fit")
        assert two["curve"][: len(one["curve"])] == one["curve"]
    last = attempts[-1]
    assert last["finished"]
    assert last["killed"] or last["code"] == 0
    charges = [kind for kind in last["kinds"] if kind not in ("resume", "commit")]
    assert charges == ["open", "plan", "reserve"]
    epsilon = end["record"]["guarantee"]["epsilon"]
    assert last["left"] == pytest.approx(100 - epsilon, abs=1e-6)
    assert end["record"]["event"]["events"][0]["noise_multiplier"] == 5.0
    shown = last["curve"][-1]["accuracy"] if last["killed"] else end["shown"]["accuracy"]
    assert shown == facts["accuracy"] == last["curve"][-1]["accuracy"]
    assert facts["curve"] == last["curve"]
    assert end["again"] == 2  # it came to its end


@pytest.mark.slow
def test_a_run_killed_in_its_fit_and_in_its_steps_comes_to_its_end(tmp_path):
    ((attempts, end),) = killed_runs(tmp_path, 1, seed=1)
    check(attempts, end)
    assert [attempt["killed"] for attempt in attempts] == [True, True, True, False]
    fits = [attempt["truth"].count("fit") for attempt in attempts]
    assert fits == [1, 2, 2, 2]  # the first died unseen
    assert [attempt["features"] is None for attempt in attempts] == [True, False, False, False]
    assert len(attempts[2]["curve"]) > 5


@pytest.mark.slow
def test_many_runs_killed_at_random_come_to_their_end(tmp_path):
    for attempts, end in killed_runs(tmp_path, 12, seed=2):
        check(attempts, end)
