"""kill -9 of real searches, at any moment, and ``sfumato tune --resume``.

One process imports torch and forks a child for each attempt, which runs the command as people type
it; every draw, and every run's beginning, leaves a line before it is used: the truth to compare
with.
"""

import itertools

import pytest
from tests.learning.killing import attempts_and_end, run_script

SCRIPT = """
import json, os, random, sys
from pathlib import Path

import torch

import sfumato.cli.main  # what children need is loaded once
from killing import kill_command, look_at_command, tell, write_rows
from sfumato.accounting import Trials
from sfumato.learning.recipes import Rate, Recipe, train
from sfumato.learning.recipes import tuning
from sfumato.learning.recipes.search import Search

torch.set_num_threads(1)
home, searches, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.chdir(home)
chosen = random.Random(seed)
BEGIN = (
    "tune --data rows.npz --declared rows.toml --test rows.npz --epsilon 8 --delta 1e-3 "
    "--vary learning-rate=0.1,1 --vary steps=30 --vary lot-size=20 --trials 4 --dataset people "
    "--json"
)
train(Recipe("linear", 20, Rate(0.1), noise_multiplier=2.0, steps=2), write_rows())
Trials(4).draw()


def prepare(truth):
    draw, begin = Search.draw, tuning.train

    def noted_draw(self, coins):
        found = draw(self, coins)
        os.write(truth, b"draw %d\\n" % len(found))
        return found

    def noted_train(*arguments, out, **more):
        os.write(truth, b"run %d\\n" % int(out.name))
        return begin(*arguments, out=out, **more)

    Search.draw, tuning.train = noted_draw, noted_train


def look(run):
    ended = sorted((run / "run/curator/trials").glob("*/record.json"))
    models = {path.parent.name: path.with_name("model.safetensors") for path in ended}
    tails = {name: path.read_bytes().hex()[-80:] for name, path in models.items()}
    return look_at_command(run) | {"models": tails}


def after(wait):
    return lambda new, seconds: seconds > wait


for number in range(searches):
    run = home / str(number)
    moments = [after(chosen.uniform(0.05, 1.5)) for _ in range(chosen.randrange(2, 6))]
    kill_command(run, BEGIN, "tune --resume", prepare, moments, look)
    record = json.loads((run / "run" / "record.json").read_text())
    lines = (run / "run" / "curator" / "search.jsonl").read_text().split("\\n")
    drawn = [json.loads(line) for line in lines if '"drawn"' in line]
    tell(run=number, record=record, drawn=drawn)
"""


def check(attempts, end):
    last = attempts[-1]
    assert last["finished"]
    assert last["killed"] or last["code"] == 0
    # One charge, taken up as often as it was left, and ended once.
    assert last["kinds"][:2] == ["open", "reserve"]
    assert last["kinds"].count("reserve") == last["kinds"].count("commit") == 1
    assert set(last["kinds"]) <= {"open", "reserve", "resume", "commit"}
    assert last["verified"]
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


@pytest.mark.slow
def test_searches_killed_at_random_are_charged_once_and_come_to_their_end(tmp_path):
    told = run_script(SCRIPT, tmp_path, 8, 1)
    found = [attempts_and_end(told, search) for search in range(8)]
    for attempts, end in found:
        check(attempts, end)
    assert sum(attempt["killed"] for attempts, _ in found for attempt in attempts) >= 8
