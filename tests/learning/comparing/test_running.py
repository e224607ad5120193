"""Runs are trained by their own functions, once; what is done stays done, and is paid for once."""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sfumato.data import Examples
from sfumato.learning.comparing import compare
from sfumato.learning.comparing.cells import Cell, planned
from sfumato.learning.comparing.methods import Payer
from sfumato.learning.comparing.running import train_cell
from sfumato.learning.comparing.store import Store
from sfumato.learning.comparing.tasks import Task
from sfumato.learning.features import Plain
from sfumato.learning.recipes import load_run
from sfumato.learning.runs import RunFolder
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError

from .conftest import made_up

QUICK = ["erm-objective", "erm-output", "plain"]


class Watching:
    """Who is told: keeps which cells were begun."""

    def __init__(self):
        self.begun = []

    def __call__(self, done, total, running, last):
        self.begun += [cell.key for cell in running]


def records_of(folder):
    return {path.parent.name: path.read_bytes() for path in folder.glob("runs/*/record.json")}


@pytest.mark.slow
def test_a_table_from_real_runs(table, tmp_path):
    methods = ["erm-objective", "dp-sgd", "plain"]
    found = compare(table, [8.0], out=tmp_path / "c", methods=methods)
    assert found.finished
    assert [row.method for row in found.rows] == methods
    assert [row["seconds"] for row in found.to_dict()["rows"]] == [None] * 3  # by private rows
    for row in found.rows[:-1]:
        assert row.guarantee.epsilon == pytest.approx(8.0, rel=0.02)
        run = load_run(tmp_path / "c" / "runs" / Cell(row.method, row.epsilon).key)
        assert run.record.guarantee == row.guarantee  # as recorded, no number of its own
        assert run.record.facts["accuracy"] == row.mean
    assert found.rows[-1].mean > 0.9  # without privacy the task is easy
    assert [cost.guarantee.epsilon for cost in found.costs] == [pytest.approx(16.0, rel=0.02)]
    assert len(found.advice) == 1
    json.dumps(found.to_dict(), allow_nan=False)


def test_methods_for_few_inputs_from_real_runs(table, tmp_path):
    methods = ["adaptive-laplace", "functional-network", "autoencoder"]
    found = compare(table, [50.0], out=tmp_path / "c", methods=methods)
    assert [row.method for row in found.rows] == methods
    relations = [row.guarantee.neighbours.value for row in found.rows]
    assert relations == ["replace-one", "add-remove", "add-remove"]
    assert [row.guarantee.delta for row in found.rows] == [0.0, 0.0, 1e-5]
    for row in found.rows:
        record = RunFolder(tmp_path / "c" / "runs" / Cell(row.method, row.epsilon).key).record()
        assert record["guarantee"] == row.guarantee.to_dict()
        assert record["facts"]["accuracy"] == row.mean
        assert "quick settings" in record["facts"]["tuning"]
    assert min(row.mean for row in found.rows) > 0.6
    assert {(c.guarantee.neighbours.value, c.runs, c.in_all) for c in found.costs} == {
        ("replace-one", 1, False), ("add-remove", 2, False), ("replace-one", 3, True)
    }  # fmt: skip


@pytest.mark.parametrize("method", ["functional-network", "autoencoder"])
def test_a_ledger_pays_for_them_first(table, tmp_path, method):
    book = Ledger(tmp_path / "l.db")
    book.create("people", Budget(3.0, 1e-4))
    paid = {"ledger": tmp_path / "l.db", "dataset": "people"}
    compare(table, [2.0], out=tmp_path / "c", methods=[method], **paid)
    assert book.status("people").left < 1.5
    with pytest.raises(BudgetExceeded):
        compare(table, [2.0], out=tmp_path / "c", methods=[method], repeats=2, **paid)


def test_only_the_owner_may_open_it(table, tmp_path):
    compare(table, [1.0], out=tmp_path / "c", methods=QUICK)
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o700


def test_nothing_is_trained_twice_and_more_is_added(table, tmp_path):
    first = compare(table, [1.0], out=tmp_path / "c", methods=QUICK)
    before, watching = records_of(tmp_path / "c"), Watching()
    again = compare(table, [1.0], out=tmp_path / "c", methods=QUICK, told=watching)
    assert watching.begun == []
    assert again.rows == first.rows
    more = compare(table, [1.0, 2.0], out=tmp_path / "c", methods=QUICK, told=watching)
    assert watching.begun == ["erm-objective-epsilon-2.0-run-1", "erm-output-epsilon-2.0-run-1"]
    assert before.items() <= records_of(tmp_path / "c").items()
    assert {row for row in more.rows if row.epsilon != 2.0} == set(first.rows)
    last = compare(table, [2.0], out=tmp_path / "c", methods=QUICK)
    (cost,) = last.costs  # a choice depends on what was done before, too
    assert (cost.runs, cost.guarantee.epsilon) == (4, pytest.approx(6.0, rel=0.02))


def test_a_run_that_ended_unwritten_is_read_from_its_folder(table, tmp_path):
    first = compare(table, [1.0], out=tmp_path / "c", methods=QUICK)
    before, lines = records_of(tmp_path / "c"), tmp_path / "c" / "results.jsonl"
    kept = lines.read_bytes().splitlines(keepends=True)
    lines.write_bytes(b"".join(kept[:-1]) + kept[-1][:20])  # cut off in its last line
    again = compare(table, [1.0], out=tmp_path / "c", methods=QUICK)
    assert records_of(tmp_path / "c") == before
    assert [row.mean for row in again.rows] == [row.mean for row in first.rows]


@pytest.mark.parametrize(
    ("method", "anew"),
    [("erm-output", True), pytest.param("dp-sgd", False, marks=pytest.mark.slow)],
)
def test_a_run_that_was_cut_off_goes_on_or_begins_anew(table, tmp_path, method, anew):
    task, cell = Task(table, Plain()), Cell(method, 2.0)
    out = tmp_path / "whole"
    train_cell(task, cell, out, Payer())
    request = RunFolder(out).request()
    cut = RunFolder(tmp_path / "cut")
    cut.begin(request)
    (cut.curator / "mark").touch()
    result = train_cell(task, cell, cut.path, Payer())
    assert result.accuracy is not None
    assert (cut.curator / "mark").exists() is not anew


def test_a_folder_of_another_task_is_refused_and_left_alone(table, tmp_path):
    compare(table, [1.0], out=tmp_path / "c", methods=QUICK)
    before = records_of(tmp_path / "c")
    with pytest.raises(ValueError, match="delta 1e-05 instead of 1e-06"):
        compare(table, [1.0], out=tmp_path / "c", methods=QUICK, delta=1e-6)
    with pytest.raises(ValueError, match="other examples"):
        compare(made_up(1), [1.0], out=tmp_path / "c", methods=QUICK)
    owned = replace(table, owners=np.arange(len(table.train.labels)) // 2)
    with pytest.raises(ValueError, match="other examples"):
        compare(owned, [1.0], out=tmp_path / "c", methods=["dp-sgd"])
    Ledger(tmp_path / "l.db").create("people", Budget(1.0, 1e-4))
    with pytest.raises(ValueError, match=r"charged None instead of \['people', ''\]"):
        compare(table, [1.0], out=tmp_path / "c", methods=["erm-objective"],
                ledger=tmp_path / "l.db", dataset="people")  # fmt: skip
    assert records_of(tmp_path / "c") == before
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "letter.txt").touch()
    with pytest.raises(ValueError, match="holds other things"):
        compare(table, [1.0], out=tmp_path / "d", methods=QUICK)
    with pytest.raises(ValueError, match="is a file"):
        compare(table, [1.0], out=tmp_path / "d" / "letter.txt", methods=QUICK)


def test_one_process_at_a_time(table, tmp_path):
    asked = Task(table, Plain()).to_dict()
    store = Store(tmp_path / "c", asked)
    with pytest.raises(ValueError, match="another process is at work"):
        Store(tmp_path / "c", asked)
    store.close()
    Store(tmp_path / "c", asked).close()


def test_after_so_many_minutes_nothing_is_begun_and_the_same_call_goes_on(table, tmp_path):
    some = compare(table, [1.0], out=tmp_path / "c", methods=QUICK, minutes=1e-9)
    assert not some.finished
    assert some.rows == ()
    assert compare(table, [1.0], out=tmp_path / "c", methods=QUICK).finished


def test_an_error_of_a_run_has_its_name_and_keeps_the_others(table, tmp_path):
    ill = replace(table, train=Examples(table.train.inputs, table.train.labels[:-1]))
    with pytest.raises(ValueError, match=r"^dp-sgd at epsilon 1: labels to train on"):
        compare(ill, [1.0], out=tmp_path / "c", methods=["dp-sgd"])
    with pytest.raises(ValueError, match="jobs"):
        compare(table, [1.0], out=tmp_path / "d", methods=QUICK, jobs=0)
    assert not (tmp_path / "d").exists()


# --- budgets --------------------------------------------------------------------------------------


def test_each_run_is_charged_once_by_its_own_function(table, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("people", Budget(10.0, 1e-4))
    paying = {"ledger": tmp_path / "l.db", "dataset": "people", "methods": QUICK}
    compare(table, [1.0, 2.0], out=tmp_path / "c", **paying)
    left = ledger.status("people").left
    assert 3.5 < left <= 4.01  # four runs: 1 + 1 + 2 + 2, and nothing for the one without privacy
    compare(table, [1.0, 2.0], out=tmp_path / "c", **paying)
    assert ledger.status("people").left == left
    with pytest.raises(BudgetExceeded):
        compare(table, [1.0, 2.0, 9.0], out=tmp_path / "c", **paying)
    assert ledger.status("people").left == left
    assert compare(table, [1.0, 2.0], out=tmp_path / "c", **paying).finished


def test_a_ledger_that_is_not_there_leaves_nothing_behind(table, tmp_path):
    with pytest.raises(ValueError, match=r"there is no ledger|no such"):
        compare(table, [1.0], out=tmp_path / "c", methods=QUICK, ledger=tmp_path / "typo.db",
                dataset="people")  # fmt: skip
    assert list(tmp_path.iterdir()) == []
    Ledger(tmp_path / "l.db").create("people", Budget(1.0, 1e-4))
    with pytest.raises(LedgerError, match="no dataset 'persons'"):
        compare(table, [1.0], out=tmp_path / "c", methods=QUICK, ledger=tmp_path / "l.db",
                dataset="persons")  # fmt: skip
    assert not (tmp_path / "c").exists()


def test_first_rows_are_not_charged_under_add_or_remove(table, tmp_path):
    Ledger(tmp_path / "l.db").create("people", Budget(10.0, 1e-4))
    few = replace(table, rows=400)
    with pytest.raises(ValueError, match="rows must be left out with a ledger"):
        compare(few, [1.0], out=tmp_path / "c", ledger=tmp_path / "l.db", dataset="people",
                methods=QUICK)  # fmt: skip
    assert Ledger(tmp_path / "l.db").status("people").left == 10.0


# --- nothing but what is released depends on the rows ---------------------------------------------


@pytest.mark.parametrize("methods", [QUICK, pytest.param(["dp-sgd"], marks=pytest.mark.slow)])
def test_what_is_said_and_done_does_not_depend_on_private_rows(tmp_path, methods):
    """Neighbours, one of them with a row of nonsense: the same runs, promises and files."""
    first = made_up(public=False)
    inputs, labels = (part.copy() for part in first.train)
    inputs[7], labels[7] = np.nan, -3
    told = []
    for number, train in enumerate([first.train, Examples(inputs, labels)]):
        out, watching = tmp_path / str(number), Watching()
        data = replace(first, train=train)
        found = compare(data, [2.0], out=out, methods=methods, told=watching)
        files = sorted(str(path.relative_to(out)) for path in out.rglob("*"))
        promises = [(row.method, row.epsilon, row.guarantee) for row in found.rows]
        said = found.warnings, found.plan.left_out, found.costs
        told.append((watching.begun, files, promises, said))
    assert told[0] == told[1]


def test_accuracy_on_private_rows_is_in_no_record_and_comes_with_a_warning(tmp_path):
    found = compare(made_up(public=False), [2.0], out=tmp_path / "c", methods=QUICK)
    assert all(row.mean is not None for row in found.rows)  # for the curator
    for record in records_of(tmp_path / "c").values():
        assert "accuracy" not in json.loads(record)["facts"]
    assert "For your eyes only" in found.warnings[0]
    assert found.to_dict()["channel"] == "curator"
    # One run each, and how many test rows there are is not public: no method is preferred.
    assert all("Too close to tell" in said for said in found.advice)


def test_a_public_test_set_is_not_enough_to_choose_for_free(table, tmp_path):
    private = ["erm-objective", "erm-output"]
    found = compare(table, [2.0], out=tmp_path / "c", methods=private)
    assert "the choice costs the whole sum" in found.warnings[0]
    assert found.to_dict()["channel"] == "public"
    both = compare(table, [2.0], out=tmp_path / "c", methods=QUICK)
    assert both.to_dict()["channel"] == "curator"  # the line without privacy is in it


# --- teachers -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_teachers_are_trained_once_and_answer_each_epsilon_with_noise_of_its_own(tmp_path):
    data = made_up(rows=1000)
    found = compare(data, [1.0, 50.0], out=tmp_path / "c", methods=["pate"])
    runs = [tmp_path / "c" / "runs" / Cell("pate", row.epsilon).key for row in found.rows]
    salts = [(run / "curator" / "salt").read_bytes() for run in runs]
    assert salts[0] == salts[1]
    answers = [(run / "curator" / "answers.jsonl").read_bytes() for run in runs]
    assert answers[0] != answers[1]
    assert [row.guarantee.epsilon for row in found.rows] == [
        pytest.approx(1.0, rel=0.02), pytest.approx(50.0, rel=0.02),
    ]  # fmt: skip
    assert found.rows[1].mean > 0.7


@pytest.mark.slow
def test_teachers_that_were_lent_half_belong_to_one_way_of_dealing_the_rows(tmp_path, monkeypatch):
    """A kill while they are copied: whoever is trained later goes by the lender's salt."""
    data, copied = made_up(rows=1000), shutil.copytree

    def cut_off(source, target):
        copied(source, target)
        raise KeyboardInterrupt

    compare(data, [1.0], out=tmp_path / "c", methods=["pate"])
    monkeypatch.setattr(shutil, "copytree", cut_off)
    with pytest.raises(KeyboardInterrupt):
        compare(data, [1.0, 50.0], out=tmp_path / "c", methods=["pate"])
    monkeypatch.setattr(shutil, "copytree", copied)
    assert compare(data, [1.0, 50.0], out=tmp_path / "c", methods=["pate"]).finished
    runs = [tmp_path / "c" / "runs" / Cell("pate", price).key for price in (1.0, 50.0)]
    salts, models, claimed = (
        [(run / "curator" / name).read_bytes() for run in runs]
        for name in ("salt", "teachers/models-000.safetensors", "teachers/ensemble.json")
    )
    assert salts[0] == salts[1]
    assert models[0] == models[1]  # trained anew, to the same
    assert claimed[0] == claimed[1]
    assert not list(tmp_path.glob("c/runs/*/curator/*.new"))


@pytest.mark.slow
def test_with_a_ledger_teachers_are_not_lent(tmp_path):
    Ledger(tmp_path / "l.db").create("people", Budget(20.0, 1e-3))
    compare(made_up(rows=1000), [1.0, 2.0], out=tmp_path / "c", methods=["pate"],
            ledger=tmp_path / "l.db", dataset="people")  # fmt: skip
    salts = {path.read_bytes() for path in (tmp_path / "c").glob("runs/*/curator/salt")}
    assert len(salts) == 2


# --- processes ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_side_by_side_gives_the_same_table(table, tmp_path):
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    found = compare(table, [1.0, 8.0], out=tmp_path / "c", methods=[*QUICK, "dp-sgd"], jobs=2)
    assert found.finished
    assert len(found.rows) == 7
    assert before == {name: os.environ.get(name) for name in before}
    ill = replace(table, train=Examples(table.train.inputs, table.train.labels[:-1]))
    with pytest.raises(ValueError, match=r"at epsilon (1|8): labels to train on"):
        compare(ill, [1.0, 8.0], out=tmp_path / "d", methods=["dp-sgd"], jobs=2)


@pytest.mark.slow
def test_an_interruption_loses_nothing(tmp_path):
    """A real process, interrupted as by ctrl-C, and the same command again."""
    command = [str(Path(sys.executable).parent / "sfumato"), "compare", "--data", "digits",
               "--epsilon", "1", "--epsilon", "8", "--methods", "erm-objective,dp-sgd,plain",
               "--out", str(tmp_path / "c"), "--json"]  # fmt: skip
    lines = tmp_path / "c" / "results.jsonl"
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    while process.poll() is None and not (lines.exists() and lines.read_bytes().count(b"\n") > 2):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert "the same command goes on" in errors
    assert "Traceback" not in errors
    kept = lines.read_bytes().splitlines()
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout)["finished"]
    assert lines.read_bytes().splitlines()[: len(kept)] == kept
    assert (
        len({json.dumps(planned_cell(line)) for line in lines.read_bytes().splitlines()[1:]}) == 5
    )


def planned_cell(line):
    found = json.loads(line)
    return [found[name] for name in ("method", "epsilon", "repeat")]


def test_the_plan_is_the_one_that_is_run(table, tmp_path):
    watching, plan = Watching(), planned(Task(table, Plain()), [1.0, 2.0], QUICK)
    compare(table, [1.0, 2.0], out=tmp_path / "c", methods=QUICK, told=watching)
    assert watching.begun == [cell.key for cell in plan.cells]
