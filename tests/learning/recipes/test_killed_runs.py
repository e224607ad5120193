"""kill -9 of real runs, while features are fitted and while steps are taken, and ``train resume``.

One process imports torch and forks a child for each attempt, which runs the command as people type
it; every fit and every step leaves a line before it is begun: the truth to compare with.
"""

import itertools

import pytest
from tests.learning.killing import attempts_and_end, check_charged_once, run_script

SCRIPT = """
import json, os, random, sys, time
from pathlib import Path

import torch

import sfumato.cli.main  # what children need is loaded once
from killing import attempt, kill_command, look_at_command, never, tell, write_rows
from sfumato.learning.dp_sgd.stepping import NoisyStep
from sfumato.learning.features import PrivatePCA
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.reports import training_figures

torch.set_num_threads(1)
home, runs, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.chdir(home)
chosen = random.Random(seed)
BEGIN = (
    "train dp-sgd --data rows.npz --declared rows.toml --test rows.npz --noise-multiplier 2 "
    "--steps 60 --lot-size 20 --features pca --feature-option components=2 "
    "--feature-option noise_multiplier=5 --ema-decay 0.9 --evaluations 20 --checkpoint-every 7 "
    "--dataset people --json"
)
recipe = Recipe("linear", 20, Rate(0.1), PrivatePCA(2, 5.0), noise_multiplier=2.0, steps=2)
train(recipe, write_rows())  # so that children need not import what it takes


def prepare(truth):
    apply, fit = NoisyStep.apply, PrivatePCA.fit

    def noted_step(self, step):
        os.write(truth, b"step %d\\n" % step)
        apply(self, step)

    def noted_fit(self, *more):
        os.write(truth, b"fit\\n")
        fit(self, *more)
        time.sleep(0.05)  # so that it is hit

    NoisyStep.apply, PrivatePCA.fit = noted_step, noted_fit


def look(run):
    curve, kept = run / "run/curator/curve.json", run / "run/curator/features.safetensors"
    return look_at_command(run) | {
        "curve": json.loads(curve.read_text()) if curve.exists() else [],
        "features": kept.read_bytes().hex() if kept.exists() else None,
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
    kill_command(run, BEGIN, "train resume", prepare, planned(number), look)
    shown = json.loads((run / "out").read_text() or "null")
    record = json.loads((run / "run" / "record.json").read_text())
    again = attempt(run, ["train", "resume", str(run / "run")], prepare, never)[1]
    tell(run=number, shown=shown, record=record, again=again)
"""


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
    check_charged_once(last, 100 - end["record"]["guarantee"]["epsilon"])
    assert end["record"]["event"]["events"][0]["noise_multiplier"] == 5.0
    shown = last["curve"][-1]["accuracy"] if last["killed"] else end["shown"]["accuracy"]
    assert shown == facts["accuracy"] == last["curve"][-1]["accuracy"]
    assert facts["curve"] == last["curve"]
    assert end["again"] == 2  # it came to its end


@pytest.mark.slow
def test_a_run_killed_in_its_fit_and_in_its_steps_comes_to_its_end(tmp_path):
    attempts, end = attempts_and_end(run_script(SCRIPT, tmp_path, 1, 1), 0)
    check(attempts, end)
    assert [attempt["killed"] for attempt in attempts] == [True, True, True, False]
    fits = [attempt["truth"].count("fit") for attempt in attempts]
    assert fits == [1, 2, 2, 2]  # the first died unseen
    assert [attempt["features"] is None for attempt in attempts] == [True, False, False, False]
    assert len(attempts[2]["curve"]) > 5


@pytest.mark.slow
def test_many_runs_killed_at_random_come_to_their_end(tmp_path):
    found = run_script(SCRIPT, tmp_path, 12, 2)
    for run in range(12):
        check(*attempts_and_end(found, run))
