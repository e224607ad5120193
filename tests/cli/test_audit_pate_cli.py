"""``sfumato audit pate`` and ``audit --run`` of a PATE run: below the claim, and with teeth."""

import json

import numpy as np
import pytest

from sfumato.cli.audit_pate import (
    audit_answers,
    audit_law,
    audit_student,
    telling_votes,
    worst_votes,
)
from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate import AnswerPlan, ConfidentMax, GaussianMax, InteractiveMax, LaplaceMax
from sfumato.learning.pate.students import make_student

TEACHERS = 50
ONE_LOUD = GaussianMax(2.0)  # one answer at epsilon 2.97
SEVERAL = (
    AnswerPlan(GaussianMax(6.0), answers=4),
    AnswerPlan(LaplaceMax(0.3), answers=4),
    AnswerPlan(ConfidentMax(2.0, threshold=25, sigma_check=4.0), answers=3, questions=6),
    AnswerPlan(InteractiveMax(2.0, 25, 4.0, TEACHERS), answers=4),
)


def played(plan, claimed=None, games=2500, seed=1):
    tables = telling_votes(claimed or plan, TEACHERS)
    return audit_answers(plan, tables, games=games, claimed=claimed, coins=SeededCoins(seed))


def test_one_loud_answer_comes_close_to_its_claim():
    plan = AnswerPlan(ONE_LOUD, answers=1)
    found = played(plan)
    assert 0.7 * found.claim.epsilon < found.epsilon < found.claim.epsilon
    assert found.facts["games"] == 2500
    exact = audit_law(plan, worst_votes(plan, TEACHERS))
    assert 0.8 * exact.claim.epsilon < exact.epsilon < exact.claim.epsilon


def test_noise_of_half_the_size_is_caught():
    claimed = AnswerPlan(ONE_LOUD, answers=1)
    assert played(AnswerPlan(GaussianMax(1.0), answers=1), claimed).refuted
    several = AnswerPlan(GaussianMax(6.0), answers=4)
    assert played(AnswerPlan(GaussianMax(3.0), answers=4), several, games=1500).refuted


def test_a_turned_vote_counted_once_is_caught():
    """As the first paper's text: noise Lap(1/gamma) at a claim of gamma, where 2 gamma holds."""
    gamma = 1.0
    told = AnswerPlan(LaplaceMax(gamma / 2), answers=1, delta=0.0)  # what costs gamma
    assert told.guarantee.epsilon == pytest.approx(gamma)
    really = AnswerPlan(LaplaceMax(gamma), answers=1, delta=0.0)
    assert played(really, told).refuted
    assert not played(really).refuted
    assert not played(told).refuted


@pytest.mark.parametrize("plan", SEVERAL, ids=lambda plan: plan.aggregator.kind)
def test_every_aggregator_is_within_its_claim_and_tells_something(plan):
    exact = audit_law(plan, worst_votes(plan, TEACHERS))
    assert 0.3 * exact.claim.epsilon < exact.epsilon < exact.claim.epsilon
    found = played(plan, games=600)
    assert not found.refuted
    assert found.facts["mu_at_least"] > 0


def test_votes_of_both_tables_differ_by_one():
    for plan in SEVERAL:
        for votes in (worst_votes, telling_votes):
            one, other = votes(plan, TEACHERS)
            assert one.shape == other.shape == (plan.most_questions, 2)
            assert (one.sum(axis=1) == TEACHERS).all()
            assert (np.abs(one - other).sum(axis=1) == 2).all()


def test_a_student_shows_no_more_than_its_labels_but_something():
    plan = AnswerPlan(GaussianMax(0.5), answers=3)
    tables = telling_votes(plan, TEACHERS)
    quick = make_student(
        "supervised", classes=2, features="scattering", steps=5, rate=0.05, smoothing=0.0,
        average=0.5,
    )  # fmt: skip
    found = audit_student(plan, tables, games=40, student=quick, coins=SeededCoins(2))
    labels = audit_answers(plan, tables, games=1000, coins=SeededCoins(2))
    assert 0 < found.epsilon < labels.epsilon < found.claim.epsilon


def test_the_command(run):
    code, out, err = run("audit pate --answers 2 --games 400 --teachers 20 --student 40 --json")
    assert code == 0, err
    found = json.loads(out)
    assert found["plan"]["aggregator"]["kind"] == "gnmax"
    assert list(found["audits"]) == ["labels, by law", "labels, played", "student"]
    for one in found["audits"].values():
        assert one["verdict"] == "consistent"
        assert one["claim"]["epsilon"] == pytest.approx(2.0, abs=1e-3)
    code, out, _ = run("audit pate --aggregator lnmax --answers 1 --games 500 --teachers 20")
    assert code == 0
    assert "consistent" in out
    assert "…" not in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--aggregator median", "aggregator must be one of"),
        ("--teachers 1", "teachers must be"),
        ("--epsilon 0", "epsilon must be"),
        ("--games 3", "games must be"),
        ("--answers 400 --games 40 --student 40", "questions must be at most 360"),
    ],
)
def test_mistakes(run, options, message):
    code, out, error = run(f"audit pate {options}")
    assert code == 2
    assert not out
    assert message in " ".join(error.split())
