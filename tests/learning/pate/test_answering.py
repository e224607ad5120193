"""Questions within a plan and a budget: charged before votes are read, and never drawn twice."""

import json
import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.pate import (
    Answering,
    AnswerPlan,
    Ballots,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
    NoMoreAnswers,
)
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded, LedgerError

SURE = ConfidentMax(sigma=1.0, threshold=60, sigma_check=1.0)


def ballots(*tops, teachers=100):
    return Ballots(np.array([[top, teachers - top, 0] for top in tops]))


def test_answers_come_in_order_until_the_plan_is_used_up():
    plan = AnswerPlan(GaussianMax(1.0), answers=2)
    answering = Answering(ballots(90, 10, 95), plan, coins=SeededCoins(1))
    found = list(answering.ask_all([1, 0, 2]))
    assert [(a.question, a.label, a.by) for a in found] == [(1, 1, "teachers"), (0, 0, "teachers")]
    assert (answering.asked, answering.answered) == (2, 2)
    with pytest.raises(NoMoreAnswers, match="all 2 questions"):
        answering.ask(2)


def test_what_was_asked_before_is_answered_as_before_at_no_cost():
    plan = AnswerPlan(GaussianMax(1000.0), answers=1)
    answering = Answering(ballots(50), plan)
    first = answering.ask(0)
    assert all(answering.ask(0) == first for _ in range(20))
    assert answering.asked == 1


def test_a_check_that_does_not_pass_takes_a_question_and_no_answer():
    plan = AnswerPlan(SURE, answers=1, questions=3)
    answering = Answering(ballots(51, 99, 99), plan, coins=SeededCoins(1))
    assert answering.ask(0).by == "nobody"
    assert answering.ask(1).label == 0
    assert (answering.asked, answering.answered) == (2, 1)
    with pytest.raises(NoMoreAnswers, match="all 1 answers"):
        answering.ask(2)


def test_the_students_own_answer_is_confirmed():
    aggregator = InteractiveMax(1.0, threshold=50, sigma_check=1.0, teachers=100)
    answering = Answering(ballots(98, 97), AnswerPlan(aggregator, 2, 2), coins=SeededCoins(1))
    confirmed = answering.ask(0, np.array([0.95, 0.05, 0.0]))
    assert (confirmed.label, confirmed.by) == (0, "student")
    assert answering.ask(1, np.array([0.1, 0.8, 0.1])).by == "teachers"
    facts = answering.record().facts
    assert facts == {"questions": 2, "answers": 1, "confirmed": 1, "lost": 0}


def test_a_missing_opinion_costs_nothing(tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("d", Budget(1.0, 1e-5))
    aggregator = InteractiveMax(40.0, threshold=50, sigma_check=100.0, teachers=100)
    answering = Answering(ballots(98), AnswerPlan(aggregator, 1), ledger=ledger, dataset="d")
    with pytest.raises(ValueError, match="opinion must be given"):
        answering.ask(0)
    assert answering.asked == 0
    assert ledger.status("d").reading == 0


# --- the plan -----------------------------------------------------------------------------------


def test_the_guarantee_does_not_depend_on_what_was_answered():
    plan = AnswerPlan(SURE, answers=3, questions=5)
    sure, unsure = (Answering(ballots(*tops), plan) for tops in ([99] * 5, [50] * 5))
    assert len(list(sure.ask_all(range(5)))) == 3
    assert len(list(unsure.ask_all(range(5)))) == 5
    records = [a.record() for a in (sure, unsure)]
    assert records[0].guarantee == records[1].guarantee == plan.guarantee
    assert records[0].event == plan.event
    assert records[0].private


def test_published_parameters_by_an_exact_accountant():
    confident = AnswerPlan(ConfidentMax(40.0, 200, 150.0), 286, 640)
    assert confident.guarantee.epsilon == pytest.approx(2.543, abs=0.002)  # by RDP 3.1753
    first = AnswerPlan(LaplaceMax(0.05), 100)
    assert first.guarantee.epsilon == pytest.approx(2.894, abs=0.002)  # by moments 5.3026
    assert AnswerPlan(LaplaceMax(0.05), 100, delta=0.0).guarantee.epsilon == pytest.approx(10)


def test_plans_as_json():
    plan = AnswerPlan(ConfidentMax(40.0, 200, 150.0), 286, 640, 1e-6, "person")
    assert AnswerPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    with pytest.raises(ValueError, match="questions must be at least as many as the 5 answers"):
        AnswerPlan(GaussianMax(1.0), 5, 4)


# --- the ledger ---------------------------------------------------------------------------------


def ledger_with(tmp_path, epsilon, unit="record"):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.create("patients", Budget(epsilon, 1e-5), unit=unit)
    return ledger


def test_each_check_and_each_answer_is_charged_before_votes_are_read(tmp_path):
    ledger = ledger_with(tmp_path, 8.0)
    plan = AnswerPlan(ConfidentMax(20.0, 60, 20.0), 2, 3)
    read, entries = [], lambda: [e.kind for e in ledger.history("patients")]

    class Watched:
        classes = 3

        def __contains__(self, question):
            return question in range(3)

        def of(self, question):
            read.append((question, entries()[-1]))
            return np.array([99, 1, 0]) if question else np.array([0, 0, 0])

    answering = Answering(Watched(), plan, ledger=ledger, dataset="patients", coins=SeededCoins(1))
    answering.ask(0)
    answering.ask(1)
    assert read == [(0, "reserve"), (1, "reserve"), (1, "reserve")]
    events = [
        e.data["event"]["noise_multiplier"]
        for e in ledger.history("patients")
        if e.kind == "reserve"
    ]
    assert events == pytest.approx([20, 20, 20 / 2**0.5])
    assert entries().count("commit") == 3


def test_questions_are_refused_when_the_ledger_says_so(tmp_path):
    ledger = ledger_with(tmp_path, 1.0)
    plan = AnswerPlan(GaussianMax(20.0), 1000)
    answering = Answering(ballots(*[90] * 1000), plan, ledger=ledger, dataset="patients")
    with pytest.raises(BudgetExceeded):
        list(map(answering.ask, range(1000)))
    given = answering.answered
    assert 0 < given < 50
    assert answering.asked == given  # the one that was refused was not asked
    assert ledger.status("patients").reading <= 1.0
    with pytest.raises(BudgetExceeded):
        answering.ask(999)
    assert answering.answered == given


def test_a_budget_for_other_units_is_refused(tmp_path):
    ledger = ledger_with(tmp_path, 1.0, unit="person")
    with pytest.raises(LedgerError, match="protects one person, the plan one record"):
        Answering(ballots(9), AnswerPlan(GaussianMax(9.0), 1), ledger=ledger, dataset="patients")


# --- going on -----------------------------------------------------------------------------------


def test_going_on_returns_what_was_there_and_no_more_than_the_plan(tmp_path):
    path, plan = tmp_path / "curator" / "answers.jsonl", AnswerPlan(GaussianMax(30.0), 3)
    votes = ballots(50, 50, 50, 50)
    first = Answering(votes, plan, journal=path)
    given = [first.ask(0), first.ask(1)]
    del first
    second = Answering(votes, plan, journal=path)
    assert list(second.answers) == given
    assert [second.ask(q) for q in (0, 1)] == given
    second.ask(2)
    with pytest.raises(NoMoreAnswers):
        second.ask(3)
    assert path.stat().st_mode & 0o777 == 0o600


def test_another_plan_does_not_go_on_with_it(tmp_path):
    path = tmp_path / "answers.jsonl"
    Answering(ballots(9), AnswerPlan(GaussianMax(30.0), 3), journal=path)
    with pytest.raises(ValueError, match="must hold answers of this plan"):
        Answering(ballots(9), AnswerPlan(GaussianMax(30.0), 4), journal=path)


def test_two_at_a_time_are_refused(tmp_path):
    path, plan = tmp_path / "answers.jsonl", AnswerPlan(GaussianMax(30.0), 3)
    first = Answering(ballots(9), plan, journal=path)
    with pytest.raises(ValueError, match="another process asks"):
        Answering(ballots(9), plan, journal=path)
    del first
    Answering(ballots(9), plan, journal=path)


def test_a_journal_cut_off_in_its_first_line_begins_anew(tmp_path):
    path, plan = tmp_path / "answers.jsonl", AnswerPlan(GaussianMax(30.0), 3)
    Answering(ballots(9), plan, journal=path)
    path.write_bytes(path.read_bytes()[:-20])
    answering = Answering(ballots(9), plan, journal=path)
    answering.ask(0)
    del answering
    assert Answering(ballots(9), plan, journal=path).answered == 1


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_journal_cut_anywhere_never_gives_more_answers(tmp_path, cut):
    path, plan = tmp_path / "answers.jsonl", AnswerPlan(SURE, 2, 3)
    first = Answering(ballots(51, 99, 99), plan, journal=path, coins=SeededCoins(1))
    told = {q: first.ask(q) for q in (0, 1)}
    del first
    whole = path.read_bytes()
    left = whole[: len(whole) - cut]
    path.write_bytes(left)
    if not left.splitlines()[1:]:
        return
    second = Answering(ballots(51, 99, 99), plan, journal=path, coins=SeededCoins(2))
    begun = sum(b'"begin"' in line and line.endswith(b"}") for line in left.splitlines())
    assert second.asked == begun
    for answer in second.answers:
        assert told[answer.question] == answer
    lost = set(range(begun)) - {a.question for a in second.answers}
    for question in lost:
        assert second.ask(question).by == "nobody"  # not drawn a second time
    assert second.answered >= sum(a.by == "teachers" for a in second.answers) + len(lost)


def test_threads_do_not_get_more_than_the_plan():
    plan = AnswerPlan(GaussianMax(50.0), answers=3)
    answering = Answering(ballots(*[50] * 40), plan)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda q: _told(answering, q % 5), range(40)))
    assert answering.answered == 3
    for question in range(5):
        assert len({answer for answer in found if answer and answer.question == question}) <= 1


def _told(answering, question):
    try:
        return answering.ask(question)
    except NoMoreAnswers:
        return None


def test_seeded_coins_stamp_whoever_goes_on(tmp_path):
    path, plan = tmp_path / "answers.jsonl", AnswerPlan(GaussianMax(30.0), 3)
    Answering(ballots(9, 9, 9), plan, journal=path, coins=SeededCoins(1)).ask(0)
    again = Answering(ballots(9, 9, 9), plan, journal=path)
    again.ask(1)
    assert not again.record().private


def test_a_journal_that_cannot_be_written_takes_no_more(tmp_path, monkeypatch):
    plan = AnswerPlan(GaussianMax(30.0), 3)
    answering = Answering(ballots(9, 9, 9), plan, journal=tmp_path / "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            answering.ask(0)
    with pytest.raises(OSError, match="takes no more"):
        answering.ask(1)


KILLED = """
import os, signal, sys
import numpy as np
from sfumato.learning.pate import *
from sfumato.learning.pate import aggregators
plan = AnswerPlan(GaussianMax(30.0), 5)
def killed(self, votes, coins):
    os.kill(os.getpid(), signal.SIGKILL)
answering = Answering(Ballots(np.array([[9, 1]] * 5)), plan, journal=sys.argv[1])
answering.ask(0)
aggregators.GaussianMax.answer = killed
answering.ask(1)
"""


def test_killed_while_noise_was_drawn_the_answer_counts(tmp_path):
    path = tmp_path / "answers.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    answering = Answering(
        Ballots(np.array([[9, 1]] * 5)), AnswerPlan(GaussianMax(30.0), 5), journal=path
    )
    assert (answering.asked, answering.answered, len(answering.answers)) == (2, 2, 1)
    assert answering.ask(1).label is None
    assert answering.record().facts["lost"] == 1


# --- votes stay ---------------------------------------------------------------------------------


def test_votes_do_not_slip_out(tmp_path):
    held = ballots(97, 3)
    assert "97" not in repr(held)
    assert "97" not in repr(Answering(held, AnswerPlan(GaussianMax(30.0), 1)))
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(held)
    held.save(tmp_path / "votes")
    assert os.stat(tmp_path / "votes").st_mode & 0o777 == 0o600
    assert (Ballots.load(tmp_path / "votes").curator_counts() == held.curator_counts()).all()
    (tmp_path / "votes").write_bytes(b"\x01" * 17)
    with pytest.raises(ValueError, match="must hold votes"):
        Ballots.load(tmp_path / "votes")


def test_bad_tables_and_questions():
    for bad in (np.zeros((2, 3)), np.zeros(3, dtype=int), np.zeros((2, 0), dtype=int)):
        with pytest.raises(ValueError, match="a table of whole numbers"):
            Ballots(bad)
    answering = Answering(ballots(9), AnswerPlan(GaussianMax(30.0), 1))
    for bad in (-1, 1, 2.5):
        with pytest.raises(ValueError, match="question must be"):
            answering.ask(bad)
    assert answering.asked == 0


def test_seeded_coins_stamp_the_record():
    for coins, private in ((SYSTEM, True), (SeededCoins(1), False)):
        answering = Answering(ballots(9), AnswerPlan(GaussianMax(30.0), 1), coins=coins)
        assert answering.record().private is private
