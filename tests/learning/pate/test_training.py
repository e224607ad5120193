"""Whole runs on small data: stages, going on, the ledger, and what leaves the curator's folder."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.data import Dataset, Examples, load_dataset
from sfumato.learning.pate import (
    AnswerPlan,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    dealing,
    training,
)
from sfumato.learning.pate.privacy import Sanitiser
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.students import make_student
from sfumato.learning.pate.teachers import TeacherSchedule, teacher_recipe
from sfumato.learning.pate.training import train_pate
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded, LedgerError

STUDENT = make_student("supervised", steps=30)
PLAN = AnswerPlan(GaussianMax(2.0), answers=40)


@pytest.fixture(autouse=True)
def quick_teachers(monkeypatch):
    """Few steps of a linear model."""

    def recipe(name, shape, classes):
        made = teacher_recipe("cnn-small", shape, classes)
        model = lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))  # noqa: E731
        schedule = TeacherSchedule(steps=40, batch_size=16, rate=0.5)
        return dataclasses.replace(made, make=model, schedule=schedule, engine="stacked")

    monkeypatch.setattr(training, "teacher_recipe", recipe)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def recipe(plan=PLAN, **more):
    return PateRecipe(plan, **({"student": STUDENT, "teachers": 8, "test_rows": 100} | more))


def files_of(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.usefixtures("steady_coins")
def test_a_run_from_private_rows_to_a_student(digits, tmp_path):
    out = tmp_path / "run"
    trained = train_pate(recipe(), digits, out=out)
    assert len(trained.answers) == 40
    assert trained.accuracy > 0.5
    record = json.loads((out / "record.json").read_text())
    assert record["method"] == "pate"
    assert record["private"] is True
    assert record["facts"]["answers"] == 40
    assert record["guarantee"]["epsilon"] == PLAN.guarantee.epsilon
    assert PateRecipe.from_dict(record["parameters"]["recipe"]) == recipe()
    public = [name for name in files_of(out) if not name.startswith("curator/")]
    assert public == ["model.safetensors", "record.json"]
    assert (out / "curator").stat().st_mode & 0o777 == 0o700
    seen = json.loads((out / "curator" / "results.json").read_text())
    assert seen["curator_only"] is True
    assert sum(seen["agreement"]["counts"]) == 40
    assert seen["curve"]["dependent"][-1] <= seen["curve"]["independent"][-1]
    for name in ("votes-0", "answers.jsonl", "salt", "results.json"):
        assert (out / "curator" / name).stat().st_mode & 0o777 == 0o600


def test_nothing_public_is_read_off_private_rows(digits, tmp_path):
    """With other private rows but the same answers, the record is the same."""
    noiseless = AnswerPlan(GaussianMax(1e-6), answers=5)
    other = dataclasses.replace(
        digits, train=Examples(digits.train.inputs[:700], digits.train.labels[:700])
    )
    records = []
    for number, data in enumerate((digits, other)):
        out = tmp_path / str(number)
        trained = train_pate(recipe(noiseless), data, out=out)
        records.append(trained.record.to_dict())
    for record in records:
        record["facts"].pop("accuracy")
    assert records[0] == records[1]


@pytest.mark.parametrize("stage", ["teachers", "votes", "answers", "student", "record"])
def test_cut_off_anywhere_it_goes_on_to_the_same_answers(digits, tmp_path, stage):
    whole = train_pate(recipe(), digits, out=tmp_path / "whole", coins=SeededCoins(1))
    cut = tmp_path / "cut"
    shutil.copytree(tmp_path / "whole", cut)
    curator = cut / "curator"
    (cut / "record.json").unlink()
    (cut / "model.safetensors").unlink()
    if stage in ("teachers", "votes", "answers", "student"):
        shutil.rmtree(curator / "student-0")
    if stage in ("teachers", "votes", "answers"):
        lines = (curator / "answers.jsonl").read_bytes().splitlines(keepends=True)
        kept = 21 if stage == "answers" else 1
        (curator / "answers.jsonl").write_bytes(b"".join(lines[:kept]))
    if stage in ("teachers", "votes"):
        (curator / "votes-0").unlink()
    if stage == "teachers":
        shutil.rmtree(curator / "teachers")
    again = train_pate(recipe(), digits, out=cut, resume=True, coins=SeededCoins(2))
    kept = 10 if stage == "answers" else 0 if stage in ("teachers", "votes") else 40
    assert again.answers[:kept] == whole.answers[:kept]
    assert len(again.answers) == 40
    if stage in ("student", "record"):
        weights = zip(again.model.parameters(), whole.model.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in weights)
    with pytest.raises(ValueError, match="came to its end"):
        train_pate(recipe(), digits, out=cut, resume=True)


def test_the_ledger_pays_for_what_was_answered_and_stops_it(digits, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("digits", Budget(80.0, 1e-5))
    trained = train_pate(recipe(), digits, out=tmp_path / "a", ledger=ledger, dataset="digits")
    assert not trained.record.facts["stopped_by_the_ledger"]
    assert len(trained.answers) == 40
    reserved = [e for e in ledger.history("digits") if e.kind == "reserve"]
    assert len(reserved) == 40
    ledger.create("small", Budget(10.0, 1e-5))
    few = train_pate(recipe(), digits, out=tmp_path / "b", ledger=ledger, dataset="small")
    assert few.record.facts["stopped_by_the_ledger"]
    assert 0 < len(few.answers) < 40
    assert ledger.status("small").reading <= 10.0
    with pytest.raises(BudgetExceeded, match="no room for a single answer"):
        train_pate(recipe(), digits, out=tmp_path / "c", ledger=ledger, dataset="small")
    assert not (tmp_path / "c").exists()
    persons = recipe(dataclasses.replace(PLAN, unit="person"))
    owned = dataclasses.replace(digits, owners=np.arange(len(digits.train.labels)))
    with pytest.raises(LedgerError, match="protects one record, the plan one person"):
        train_pate(persons, owned, out=tmp_path / "c", ledger=ledger, dataset="digits")


def test_checks_and_rounds(digits, tmp_path):
    confident = AnswerPlan(ConfidentMax(1.0, threshold=6, sigma_check=1.0), 20, 60)
    trained = train_pate(recipe(confident), digits, out=tmp_path / "a")
    facts = trained.record.facts
    assert facts["answers"] <= 20
    assert facts["answers"] <= facts["questions"] <= 60
    interactive = AnswerPlan(InteractiveMax(1.0, 3, 1.0, 8), 30, 30)
    trained = train_pate(recipe(interactive, rounds=2), digits, out=tmp_path / "b")
    assert (tmp_path / "b" / "curator" / "votes-1").exists()
    assert (tmp_path / "b" / "curator" / "student-1").exists()
    assert trained.record.facts["questions"] == 30
    assert (tmp_path / "b" / "curator" / "results.json").exists()
    questions = [answer.question for answer in trained.answers]
    assert len(set(questions)) == len(questions)


def test_rounds_that_were_cut_off_go_on(digits, tmp_path):
    made = recipe(AnswerPlan(InteractiveMax(1.0, 3, 1.0, 8), 30, 30), rounds=2)
    out = tmp_path / "a"
    first = train_pate(made, digits, out=out)
    (out / "record.json").unlink()
    again = train_pate(made, digits, out=out, resume=True)
    assert again.answers == first.answers


def test_a_run_goes_on_as_it_began(digits, tmp_path):
    ledger, out = Ledger(tmp_path / "ledger.db"), tmp_path / "a"
    ledger.create("digits", Budget(80.0, 1e-5))
    charged = {"ledger": ledger, "dataset": "digits"}
    train_pate(recipe(), digits, out=out, coins=SeededCoins(1), **charged)
    (out / "record.json").unlink()
    with pytest.raises(ValueError, match="began with another recipe"):
        train_pate(recipe(teachers=9), digits, out=out, resume=True, **charged)
    with pytest.raises(ValueError, match="began with the budget of 'digits', not of None"):
        train_pate(recipe(), digits, out=out, resume=True)
    again = train_pate(recipe(), digits, out=out, resume=True, **charged)
    assert not again.record.private  # its noise was seeded


def test_a_person_needs_a_column_that_says_who(digits, tmp_path):
    with pytest.raises(ValueError, match="unit must be 'record' where rows have no owners"):
        train_pate(recipe(dataclasses.replace(PLAN, unit="person")), digits, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_a_cost_that_is_not_paid_for_is_not_published(digits, tmp_path):
    sanitiser = Sanitiser(order=3.0, beta=0.05, sigma=0.05)
    plan = dataclasses.replace(PLAN, sanitiser=sanitiser)
    free = train_pate(recipe(plan), digits, out=tmp_path / "a")
    assert free.record.facts["data_dependent"]["order"] == 3
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("digits", Budget(40.0, 1e-5))
    few = train_pate(recipe(plan), digits, out=tmp_path / "b", ledger=ledger, dataset="digits")
    assert few.record.facts["stopped_by_the_ledger"]
    assert "data_dependent" not in few.record.facts
    assert (tmp_path / "b" / "record.json").exists()


def test_no_answers_no_student(digits, tmp_path):
    never = AnswerPlan(ConfidentMax(1.0, threshold=1000, sigma_check=1.0), 5, 10)
    with pytest.raises(ValueError, match="no question was answered"):
        train_pate(recipe(never), digits, out=tmp_path / "a")


def test_owners_lie_in_one_part(digits, tmp_path, monkeypatch):
    owners = np.arange(len(digits.train.labels)) // 3
    seen = []
    assign = dealing.assign_units
    monkeypatch.setattr(
        dealing, "assign_units", lambda ids, *a: seen.append(ids) or assign(ids, *a)
    )
    data = dataclasses.replace(digits, owners=owners)
    train_pate(recipe(dataclasses.replace(PLAN, unit="person")), data, out=tmp_path / "a")
    assert (seen[0] == owners).all()


def test_public_inputs_of_ones_own(digits, tmp_path):
    hidden = dataclasses.replace(digits, test_is_public=False)
    with pytest.raises(ValueError, match="needs public inputs"):
        train_pate(recipe(), hidden, out=tmp_path / "a")
    assert not os.path.exists(tmp_path / "a")
    trained = train_pate(recipe(), hidden, out=tmp_path / "a", unlabelled=digits.test.inputs)
    assert trained.accuracy is None
    assert "accuracy" not in trained.record.facts
    with pytest.raises(ValueError, match="unlabelled must be inputs of shape"):
        train_pate(recipe(), digits, out=tmp_path / "b", unlabelled=np.zeros((50, 3)))
    with pytest.raises(ValueError, match="for all 40 questions of the plan, but there are 20"):
        train_pate(recipe(), digits, out=tmp_path / "b", unlabelled=digits.test.inputs[:20])


def test_a_student_that_cannot_take_the_inputs_is_refused_first(digits, tmp_path):
    wide = dataclasses.replace(digits, shape=(64,))
    flat = digits.test.inputs.reshape(-1, 64)
    images = recipe(student=make_student("fixmatch"), kind="own")
    with pytest.raises(ValueError, match="takes images, got rows of 64 columns"):
        train_pate(images, wide, out=tmp_path / "a", unlabelled=flat, votes=np.ones((360, 10)))
    two = recipe(student=make_student("supervised", classes=2))
    with pytest.raises(ValueError, match="classes of the student must be 10, got 2"):
        train_pate(two, digits, out=tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_bad_private_rows_do_not_show(tmp_path, digits):
    inputs = digits.train.inputs.astype(np.float64)[:100]
    inputs[::7] = np.nan
    inputs[1::7] = np.inf
    labels = digits.train.labels[:100].copy()
    labels[::5] = -3
    for rows in (100, 0):
        train = Examples(inputs[:rows], labels[:rows])
        data = dataclasses.replace(digits, train=train)
        trained = train_pate(recipe(), data, out=tmp_path / str(rows))
        assert len(trained.answers) == 40


# --- teachers of one's own ------------------------------------------------------------------------


def right_votes(data, rows, teachers=8, wrong=1):
    """Seven teachers know, one says the next class."""
    labels = data.test.labels[:rows]
    votes = np.zeros((rows, 10), dtype=np.int64)
    votes[np.arange(rows), labels] = teachers - wrong
    votes[np.arange(rows), (labels + 1) % 10] += wrong
    return votes


def test_votes_are_brought_along_and_no_private_row_is_read(digits, tmp_path):
    nothing = Examples(None, None)  # would raise if it were looked at
    data = dataclasses.replace(digits, train=nothing)
    sharp = AnswerPlan(GaussianMax(0.01), answers=40)
    own, votes = recipe(sharp, kind="own"), right_votes(digits, 260)
    trained = train_pate(own, data, out=tmp_path / "a", votes=votes)
    given = {answer.question: answer.label for answer in trained.answers}
    assert given == {question: digits.test.labels[question] for question in given}
    assert not (tmp_path / "a" / "curator" / "teachers").exists()
    seen = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert seen["agreement"]["counts"][17] == 40  # seven of eight
    facts = trained.record.facts
    assert facts["parts_made_disjoint_by"].startswith("whoever brought the teachers")
    assert "votes" not in json.dumps(trained.record.to_dict())


def test_votes_of_ones_own_go_on_where_they_were_cut_off(digits, tmp_path):
    own, votes, out = recipe(kind="own"), right_votes(digits, 260), tmp_path / "a"
    first = train_pate(own, digits, out=out, votes=votes)
    (out / "record.json").unlink()
    with pytest.raises(ValueError, match=r"votes must be given .* got none for 'own'"):
        train_pate(own, digits, out=out, resume=True)
    again = train_pate(own, digits, out=out, votes=votes, resume=True)
    assert again.answers == first.answers


def test_bad_cells_of_votes_raise_nothing_and_bad_tables_do(digits, tmp_path):
    votes = right_votes(digits, 260).astype(np.float64)
    votes[::3] = np.nan
    votes[1::3] = -7.5
    votes[2::3] *= 1e300
    trained = train_pate(recipe(kind="own"), digits, out=tmp_path / "a", votes=votes)
    assert len(trained.answers) == 40
    cases = [
        ({"kind": "own"}, None, "got none for 'own'"),
        ({}, votes, "got some for 'linear'"),
        ({"kind": "own"}, votes[:200], "a row for each of the 260 public inputs"),
        ({"kind": "own"}, votes[:, :9], "10 classes wide"),
    ]
    for change, given, message in cases:
        with pytest.raises(ValueError, match=message):
            train_pate(recipe(**change), digits, out=tmp_path / "b", votes=given)
    assert not (tmp_path / "b").exists()


def test_whoever_brings_teachers_names_the_unit(digits, tmp_path):
    plan = dataclasses.replace(PLAN, unit="hospital")
    votes = right_votes(digits, 260)
    trained = train_pate(recipe(plan, kind="own"), digits, out=tmp_path / "a", votes=votes)
    assert trained.record.guarantee.unit == "hospital"


# --- what is public, and what is not --------------------------------------------------------------


def test_who_made_the_parts_and_what_was_public_is_on_record(digits, tmp_path):
    owned = dataclasses.replace(digits, owners=np.arange(len(digits.train.labels)))
    person = recipe(dataclasses.replace(PLAN, unit="person"))
    for number, (made, data, given, words) in enumerate(
        [
            (recipe(), digits, None, ("each record", "the public test set")),
            (person, owned, digits.test.inputs, ("each one's rows", "given as public")),
        ]
    ):
        out = tmp_path / str(number)
        facts = train_pate(made, data, out=out, unlabelled=given).record.facts
        assert words[0] in facts["parts_made_disjoint_by"]
        assert facts["public_inputs_are"].startswith(words[1])


def test_accuracy_on_private_rows_is_the_curator_s(digits, tmp_path):
    hidden = dataclasses.replace(digits, test_is_public=False)
    out = tmp_path / "a"
    trained = train_pate(recipe(), hidden, out=out, unlabelled=digits.test.inputs)
    assert trained.accuracy is None
    assert trained.record.facts["test_set"].startswith("none that is public")
    assert json.loads((out / "curator" / "results.json").read_text())["accuracy"] > 0.3
    assert "accuracy" not in (out / "record.json").read_text()


def test_the_first_rows_are_on_record_and_no_budget_is_charged_for_them(digits, tmp_path):
    first = dataclasses.replace(digits, rows=500)
    assert train_pate(recipe(), first, out=tmp_path / "a").record.facts["data"]["rows"] == 500
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("digits", Budget(80.0, 1e-5))
    with pytest.raises(ValueError, match="rows must be left out with a ledger"):
        train_pate(recipe(), first, out=tmp_path / "b", ledger=ledger, dataset="digits")
    assert ledger.status("digits").reading == 0


def test_a_test_set_smaller_than_what_is_kept_leaves_no_inputs(digits, tmp_path):
    with pytest.raises(ValueError, match=r"but there are 0: .*--test-rows"):
        train_pate(recipe(test_rows=1000), digits, out=tmp_path / "a")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"teachers": 1}, "at least 2"),
        ({"kind": "oak"}, "kind of teachers"),
        ({"rule": "best"}, "rule must be one of"),
        ({"rounds": 2}, "rounds must be 1"),
        ({"plan": AnswerPlan(InteractiveMax(1.0, 3, 1.0, 7), 5)}, "teachers must be 7"),
        ({"seed": -1}, "seed"),
        ({"test_rows": 0}, "test_rows"),
    ],
)
def test_bad_recipes(change, message):
    with pytest.raises(ValueError, match=message):
        recipe(**change)


def test_datasets_have_what_runs_ask_for(digits):
    assert isinstance(digits, Dataset)
    assert digits.test_is_public
