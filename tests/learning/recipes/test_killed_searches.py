"""kill -9 of real searches, at any moment, and ``sfumato tune --resume``.

One process imports torch and forks a child for each attempt, which runs the command as people type
it; every draw, and every run's beginning, leaves a line before it is used: the truth to compare
with.
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

from sfumato.accounting import Trials
from sfumato.cli.main import main
from sfumato.data import load_dataset, read_declaration
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.learning.recipes import tuning
from sfumato.learning.recipes.search import Search
from sfumato.ledger import Budget, Ledger

torch.set_num_threads(1)
home, searches, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.chdir(home)
chosen = random.Random(seed)
np.savez("rows.npz", **{f"c{i}": np.random.default_rng(i).random(200) for i in range(4)},
         label=np.arange(200) % 2)
columns = "".join(f"[columns.c{i}]\\nlower = 0\\nupper = 1\\n" for i in range(4))
Path("rows.toml").write_text(
    'label = "label"\\nclasses = [0, 1]\\nrecords = 200\\npublic_test = true\\n' + columns
)
BEGIN = (
    "tune --data rows.npz --declared rows.toml --test rows.npz --epsilon 8 --delta 1e-3 "
    "--vary learning-rate=0.1,1 --vary steps=30 --vary lot-size=20 --trials 4 --dataset people "
    "--json"
)
data = load_dataset("rows.npz", read_declaration("rows.toml"))
train(Recipe("linear", 20, Rate(0.1), noise_multiplier=2.0, steps=2), data)
Trials(4).draw()


def child(run, words):
    truth = os.open(run / "truth", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    draw, begin = Search.draw, tuning.train

    def noted_draw(self, coins):
        found = draw(self, coins)
        os.write(truth, b"draw %d\\n" % len(found))
        return found

    def noted_train(*arguments, out, **more):
        os.write(truth, b"run %d\\n" % int(out.name))
        return begin(*arguments, out=out, **more)

    Search.draw, tuning.train = noted_draw, noted_train
    sys.stdout = open(run / "out", "w")
    try:
        main(words)
    except SystemExit as end:
        sys.stdout.flush()
        os._exit(end.code)


def attempt(run, words, seconds):
    pid = os.fork()
    if not pid:
        try:
            child(run, words)
        finally:
            os._exit(99)
    began = time.monotonic()
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return False, os.waitstatus_to_exitcode(status)
        if seconds is not None and time.monotonic() - began > seconds:
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            return os.WIFSIGNALED(status), os.waitstatus_to_exitcode(status)
        time.sleep(0.002)


def look(run):
    ledger = Ledger(run / "privacy.db", create=False)
    kinds = [entry.kind for entry in ledger.history("people")]
    left = ledger.status("people").left
    ledger.close()
    folder, curator = run / "run", run / "run" / "curator"
    truth = (run / "truth").read_text().split("\\n")[:-1] if (run / "truth").exists() else []
    trials = curator / "trials"
    ended = sorted(p.parent.name for p in trials.glob("*/record.json")) if trials.exists() else []
    files = {name: trials / name / "model.safetensors" for name in ended}
    models = {name: path.read_bytes().hex()[-80:] for name, path in files.items()}
    return {
        "truth": truth, "kinds": kinds, "left": left, "models": models,
        "begun": (curator / "request.json").exists(),
        "finished": (folder / "record.json").exists(),
    }


for number in range(searches):
    run = home / str(number)
    run.mkdir()
    ledger = Ledger(run / "privacy.db")
    ledger.create("people", Budget(100.0, 1e-2))
    ledger.close()
    where = ["--out", str(run / "run"), "--ledger", str(run / "privacy.db")]
    waits = [chosen.uniform(0.05, 1.5) for _ in range(chosen.randrange(2, 6))]
    for seconds in [*waits, None]:
        seen = look(run)
        if seen["finished"]:
            break
        words = ["tune", "--resume", str(run / "run"), "--json"]
        killed, code = attempt(run, words if seen["begun"] else BEGIN.split() + where, seconds)
        print(json.dumps({"run": number, "killed": killed, "code": code} | look(run)), flush=True)
    record = json.loads((run / "run" / "record.json").read_text())
    lines = (run / "run" / "curator" / "search.jsonl").read_text().split("\\n")
    drawn = [json.loads(line) for line in lines if '"drawn"' in line]
    print(json.dumps({"run": number, "record": record, "drawn": drawn}), flush=True)
"""


def check(attempts, end):
    last = attempts[-1]
    assert last["finished"]
    assert last["killed"] or last["code"] == 0
    # One charge, taken up as often as it was left, and ended once.
    assert last["kinds"][:2] == ["open", "reserve"]
    assert last["kinds"].count("reserve") == last["kinds"].count("commit") == 1
    assert set(last["kinds"]) <= {"open", "reserve", "resume", "commit"}
    (drawn,) = end["drawn"]
    assert len(last["models"]) == len(drawn["drawn"])
    for one, two in itertools.pairwise(attempts):
        assert one["killed"]
        for name, tail in one["models"].items():  # what ended is never made again
            assert two["models"][name] == tail
    begun = [int(line.split()[1]) for line in last["truth"] if line.startswith("run")]
    assert begun == sorted(begun)
    assert set(begun) == set(range(len(drawn["drawn"])))
    # Nothing was begun with draws that were not kept.
    first = last["truth"].index(f"run {begun[0]}")
    assert not [line for line in last["truth"][first:] if line.startswith("draw")]
    event = end["record"]["event"]
    assert (event["kind"], end["record"]["private"]) == ("rdp-curve", True)


def killed_searches(folder, searches, seed):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(folder), str(searches), str(seed)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        ([x for x in found if x["run"] == run and "truth" in x],
         next(x for x in found if x["run"] == run and "record" in x))
        for run in range(searches)
    ]  # fmt: skip


@pytest.mark.slow
def test_searches_killed_at_random_are_charged_once_and_come_to_their_end(tmp_path):
    found = killed_searches(tmp_path, 8, seed=1)
    for attempts, end in found:
        check(attempts, end)
    assert sum(attempt["killed"] for attempts, _ in found for attempt in attempts) >= 8
