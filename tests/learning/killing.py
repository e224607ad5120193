"""kill -9 of real work: a script imports torch once and forks the children of every attempt.

Tests start such a script with a fresh interpreter, by :func:`run_script`, because a test runner's
threads do not survive forks. The script has this file as ``killing``. Everything of a run lies in
one folder: ``privacy.db``, its ledger; ``run``, what it writes; ``truth``, lines that the test's
own code in a child wrote before each thing it did: the truth to compare with.
"""

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from functools import partial
from pathlib import Path

from tests.storm.children import fork, lines

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PEOPLE = "people"


# --- in the test --------------------------------------------------------------------------------


def run_script(script, *arguments, timeout=600):
    """What a script printed: a JSON object a line, none of them of a child's problem."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    path = os.pathsep.join(filter(None, [str(HERE), str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    problems = [line for line in found if "problem" in line]
    assert not problems, problems
    return found


def attempts_and_end(found, run):
    """Of what was printed of one run: its attempts, and what was made of it in the end."""
    own = [line for line in found if line["run"] == run]
    return [x for x in own if "truth" in x], next(x for x in own if "record" in x)


def check_steps(steps, started, total):
    """Checks that no step ran twice or behind one that may have run, and all that ran is noted."""
    assert all(a < b for a, b in itertools.pairwise(steps)), steps
    assert (steps[-1] + 1 if steps else 0) <= started <= total, (steps, started, total)


def check_charged_once(found, left):
    """Checks that a plan was charged once, in full, however often its run was killed."""
    charges = [kind for kind in found["kinds"] if kind not in ("commit", "resume")]
    assert charges == ["open", "plan", "reserve"], charges
    assert abs(found["left"] - left) <= 1e-6, (found["left"], left)
    assert found["verified"], found


# --- in the script: children --------------------------------------------------------------------


def tell(**facts):
    """Prints what the test is to hear."""
    print(json.dumps(facts), flush=True)


def _tell_problem(error):
    tell(problem=repr(error))


def kill_one(works, moment, *, victim=0, wait=False):
    """Runs each of ``works`` in a child; kills one. Whether that hit it, and everyone's exit code.

    Args:
        works: given a function to call when they are ready; they return their exit codes.
        moment: whether to kill, after so many seconds.
        victim: whom.
        wait: until one of them is ready; seconds count from then on.
    """
    readable, writable = os.pipe()
    ready = partial(os.write, writable, b"!")
    children = [fork(partial(work, ready), _tell_problem) for work in works]
    os.close(writable)
    if wait:
        os.read(readable, 1)
    began, codes = time.monotonic(), {}
    while len(codes) < len(children) and not moment(time.monotonic() - began):
        for child in children:
            if child not in codes:
                done, status = os.waitpid(child, os.WNOHANG)
                codes |= {child: os.waitstatus_to_exitcode(status)} if done else {}
        time.sleep(0.0005)
    hit = children[victim] not in codes
    if hit:
        os.kill(children[victim], signal.SIGKILL)
    for child in children:
        if child not in codes:
            codes[child] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(readable)
    return hit and codes[children[victim]] == -signal.SIGKILL, [codes[c] for c in children]


# --- in the script: ledgers ---------------------------------------------------------------------


def open_ledger(run, epsilon, delta):
    """Makes the ledger of a run."""
    from sfumato.ledger import Budget, Ledger

    ledger = Ledger(run / "privacy.db")
    ledger.create(PEOPLE, Budget(epsilon, delta))
    ledger.close()


def read_ledger(run):
    """What it says afterwards."""
    from sfumato.ledger import Ledger

    ledger = Ledger(run / "privacy.db", create=False)
    kinds = [entry.kind for entry in ledger.history(PEOPLE)]
    left = ledger.status(PEOPLE, declared=False).left
    verified = bool(ledger.verify(PEOPLE))
    ledger.close()
    return {"kinds": kinds, "left": left, "verified": verified}


# --- in the script: trainers --------------------------------------------------------------------


def read_checkpoints(run, plan):
    """How many steps are noted as begun, and where the run goes on."""
    from sfumato.learning.dp_sgd.checkpoints import Checkpoints

    store = Checkpoints(run / "run", plan.digest)
    found = store.load()
    return {"started": store.started, "checkpoint": found.step if found else None}


def kill_trainers(home, kills, plan, window, attempt, look):
    """Makes runs and kills them at random moments, until there were so many kills; tells of each.

    Args:
        home: where the runs' folders are made.
        kills: how many.
        plan: of every run; it is told at the end.
        window: seconds within which attempts are killed. A busy machine needs longer to come as far
            as a step: it grows where none was begun.
        attempt: ``attempt(run, number, delay)``: whether it was killed, whether the run is over,
            and what else is to be told.
        look: ``look(run)``: what it left behind.
    """
    epsilon = plan.guarantee.epsilon
    done = 0
    for number in itertools.count():
        if done >= kills:
            break
        run = home / str(number)
        run.mkdir(parents=True)
        open_ledger(run, 1.5 * epsilon, 1e-4)
        longest, before = window, 0
        for tries in itertools.count():
            delay = random.uniform(0, longest) if done < kills else 60
            killed, over, facts = attempt(run, tries, delay)
            done += killed
            left_behind = look(run) | read_checkpoints(run, plan) | read_ledger(run)
            tell(run=number, killed=killed, **facts, **left_behind)
            if over:
                break
            started = left_behind["started"]
            longest = window if started > before else min(1.5 * longest, 10.0)
            before = started
    tell(epsilon=epsilon, budget=1.5 * epsilon, steps=plan.steps)


# --- in the script: commands --------------------------------------------------------------------


def write_rows():
    """``rows.npz`` and ``rows.toml`` in this folder; they are loaded."""
    import numpy as np

    from sfumato.data import load_dataset, read_declaration

    columns = {f"c{i}": np.random.default_rng(i).random(200) for i in range(4)}
    np.savez("rows.npz", **columns, label=np.arange(200) % 2)
    Path("rows.toml").write_text(
        'label = "label"\nclasses = [0, 1]\nrecords = 200\npublic_test = true\n'
        + "".join(f"[columns.{name}]\nlower = 0\nupper = 1\n" for name in columns)
    )
    return load_dataset("rows.npz", read_declaration("rows.toml"))


def run_command(run, words):
    """Runs ``sfumato`` with these words; its exit code. What it prints goes to ``out``."""
    from sfumato.cli.main import main

    sys.stdout = (run / "out").open("w")
    try:
        main(words)
    except SystemExit as end:
        sys.stdout.flush()
        return end.code
    return 98  # it always exits


def look_at_command(run):
    """What a command left behind."""
    return read_ledger(run) | {
        "truth": lines(run / "truth"),
        "begun": (run / "run" / "curator" / "request.json").exists(),
        "finished": (run / "run" / "record.json").exists(),
    }


def attempt(run, words, prepare, moment):
    """Runs a command in a child and kills it; whether that hit it, and its exit code.

    Args:
        run: its folder.
        words: the command's.
        prepare: ``prepare(truth)``, in the child: has what is done noted in this open file.
        moment: ``moment(new, seconds)``: whether to kill, by the lines noted so far.
    """

    def work(ready):
        prepare(os.open(run / "truth", os.O_CREAT | os.O_WRONLY | os.O_APPEND))
        return run_command(run, words)

    old = len(lines(run / "truth"))
    killed, (code,) = kill_one([work], lambda s: moment(lines(run / "truth")[old:], s))
    return killed, code


def kill_command(run, begin, resume, prepare, moments, look):
    """Begins a command, kills and resumes it until it came to its end; tells of each attempt.

    Args:
        run: the folder to make for it.
        begin: its words, but for where it writes.
        resume: the words to go on with, but for the folder.
        prepare: as for :func:`attempt`.
        moments: of each attempt but the last, which is not killed.
        look: ``look(run)``: what it left behind.
    """
    run.mkdir()
    open_ledger(run, 100.0, 1e-2)
    first = [*begin.split(), "--out", str(run / "run"), "--ledger", str(run / "privacy.db")]
    again = [*resume.split(), str(run / "run"), "--json"]
    for moment in [*moments, never]:
        seen = look(run)
        if seen["finished"]:
            break
        killed, code = attempt(run, again if seen["begun"] else first, prepare, moment)
        tell(run=int(run.name), killed=killed, code=code, **look(run))


def never(new, seconds):
    """No moment to kill at."""
    return False
