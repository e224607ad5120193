"""``sfumato audit pate`` and ``audit --run`` of a PATE run: below the claim, and with teeth."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from sfumato.cli.audit_pate import (
    _plan,
    audit_answers,
    audit_law,
    audit_pate_run,
    audit_student,
    telling_votes,
    worst_votes,
)
from sfumato.cli.audit_pate_noise import audit_noise
from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate import (
    AnswerPlan,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
    aggregators,
)
from sfumato.learning.runs import RunFolder

pytestmark = pytest.mark.usefixtures("steady_coins")

TEACHERS = 50
ONE_LOUD = GaussianMax(2.0)  # one answer at epsilon 2.97
SEVERAL = (
    AnswerPlan(GaussianMax(6.0), answers=4),
    AnswerPlan(LaplaceMax(0.3), answers=4),
    AnswerPlan(ConfidentMax(2.0, threshold=25, sigma_check=4.0), answers=3, questions=6),
    AnswerPlan(InteractiveMax(2.0, 25, 4.0, TEACHERS), answers=4),
)


def played(plan, claimed=None, games=2000, seed=1):
    tables = telling_votes(claimed or plan, TEACHERS)
    return audit_answers(plan, tables, games=games, claimed=claimed, coins=SeededCoins(seed))


def test_one_loud_answer_comes_close_to_its_claim():
    plan = AnswerPlan(ONE_LOUD, answers=1)
    found = played(plan)
    exact = audit_law(plan, worst_votes(plan, TEACHERS))
    assert 0.8 * exact.claim.epsilon < exact.epsilon < exact.claim.epsilon
    assert 0 < found.epsilon < exact.epsilon
    assert found.facts["games"] == 2000
    assert found.facts["analysis"] == "guesses"


def usual(name):
    """As the command makes it: 10 answers at epsilon 2, 250 teachers."""
    return _plan(name, 2.0, 1e-5, 10, None, 250)


def with_less(plan, **shares):
    made = plan.aggregator
    changed = {name: getattr(made, name) * share for name, share in shares.items()}
    return replace(plan, aggregator=replace(made, **changed))


MUTANTS = [
    ("gnmax", "answers", {"sigma": 0.5}),
    ("confident", "answers", {"sigma": 0.5}),
    ("confident", "checks", {"sigma_check": 0.5}),
    ("interactive", "answers", {"sigma": 0.5}),
    ("interactive", "checks", {"sigma_check": 0.5}),
    ("lnmax", "answers", {"gamma": 2.0}),
]


@pytest.mark.parametrize(("name", "which", "shares"), MUTANTS)
def test_noise_of_half_the_size_is_caught(name, which, shares):
    claimed = usual(name)
    less = with_less(claimed, **shares)
    found = audit_noise(less, games=800, claimed=claimed, coins=SeededCoins(3))
    for noise, finding in found.items():
        assert finding.refuted == (noise == f"noise of {which}")
        assert finding.game.refutes_below > 0.6
    caught = found[f"noise of {which}"]
    assert caught.as_of_epsilon > claimed.guarantee.epsilon
    assert caught.as_of_epsilon < less.guarantee.epsilon


@pytest.mark.parametrize("name", ["gnmax", "confident", "interactive", "lnmax"])
def test_noise_as_declared_stands(name):
    found = audit_noise(usual(name), games=800, coins=SeededCoins(4))
    assert len(found) == (2 if name in ("confident", "interactive") else 1)
    for finding in found.values():
        assert not finding.refuted
        assert finding.as_of_epsilon < usual(name).guarantee.epsilon


@pytest.mark.parametrize("name", ["gnmax", "confident", "interactive", "lnmax"])
def test_the_codes_own_noise_is_what_is_played(name, monkeypatch):
    """A sampler that draws half of what it is asked for is found by the command."""
    for draw, place in (("add_gaussian", 1), ("noisy_argmax", 2)):
        whole = getattr(aggregators, draw)

        def half(*given, _whole=whole, _place=place):
            return _whole(*given[:_place], given[_place] / 2, *given[_place + 1 :])

        monkeypatch.setattr(aggregators, draw, half)
    found = audit_noise(usual(name), games=800, coins=SeededCoins(5))
    assert all(finding.refuted for finding in found.values())


def test_a_turned_vote_counted_once_is_caught():
    """As the first paper's text: noise Lap(1/gamma) at a claim of gamma, where 2 gamma holds."""
    gamma = 1.0
    told = AnswerPlan(LaplaceMax(gamma / 2), answers=1, delta=0.0)  # what costs gamma
    assert told.guarantee.epsilon == pytest.approx(gamma)
    really = AnswerPlan(LaplaceMax(gamma), answers=1, delta=0.0)
    assert played(really, told, games=4000).refuted
    assert not played(really).refuted
    assert not played(told).refuted


@pytest.mark.parametrize("plan", SEVERAL, ids=lambda plan: plan.aggregator.kind)
def test_every_aggregator_is_within_its_claim_and_tells_something(plan):
    exact = audit_law(plan, worst_votes(plan, TEACHERS))
    assert 0.3 * exact.claim.epsilon < exact.epsilon < exact.claim.epsilon
    found = played(plan, games=600)
    assert not found.refuted
    assert found.epsilon < exact.epsilon


def test_votes_of_both_tables_differ_by_one():
    for plan in SEVERAL:
        for votes in (worst_votes, telling_votes):
            one, other = votes(plan, TEACHERS)
            assert one.shape == other.shape == (plan.most_questions, 2)
            assert (one.sum(axis=1) == TEACHERS).all()
            assert (np.abs(one - other).sum(axis=1) == 2).all()


class Parrot:
    """A student that learns how many labels of each class there were, at once."""

    def fit(self, model, inputs, labels, *, seed):
        shares = torch.tensor([(labels == k).mean() + 1e-3 for k in (0, 1)]).float()
        return Said(shares.log())


class Said(torch.nn.Module):
    """The same of every input."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits, requires_grad=False)

    def forward(self, x):
        return self.logits.expand(len(x), -1)


@pytest.mark.parametrize(
    "aggregator",
    [GaussianMax(0.5), ConfidentMax(0.5, 25, 2.0), InteractiveMax(0.5, 25, 2.0, TEACHERS)],
    ids=lambda one: one.kind,
)
def test_a_student_shows_no_more_than_its_labels_but_something(aggregator):
    plan = AnswerPlan(aggregator, answers=2)
    tables = telling_votes(plan, TEACHERS)
    found = audit_student(plan, tables, games=400, student=Parrot(), coins=SeededCoins(2))
    assert 0 < found.epsilon < found.claim.epsilon
    hits, alarms = found.facts["hits"], found.facts["false_alarms"]
    assert abs(hits[1] + alarms[1] - 200) <= 1  # the others chose what to go by
    assert alarms[0] < alarms[1]  # not always "in"


def test_the_command(run, monkeypatch):
    monkeypatch.setattr("sfumato.cli.audit_pate._STUDENT_STEPS", 2)
    sure = "--confidence 0.9999999999 --games 400"
    code, out, err = run(f"audit pate --answers 2 --teachers 20 --student 40 --json {sure}")
    assert code == 0, err
    found = json.loads(out)
    assert found["plan"]["aggregator"]["kind"] == "gnmax"
    names = ["labels, by law", "labels, played", "student", "noise of answers"]
    assert list(found["audits"]) == names
    for one in found["audits"].values():
        assert one["verdict"] == "consistent"
    for name in names[:3]:
        assert found["audits"][name]["claim"]["epsilon"] == pytest.approx(2.0, abs=1e-3)
    exact = found["audits"]["labels, by law"]["epsilon_at_least"]
    assert found["audits"]["labels, played"]["epsilon_at_least"] < exact
    noise = found["audits"]["noise of answers"]
    assert "epsilon_at_least" not in noise
    assert 0 < noise["refutes_noise_below"] < noise["noise_declared"] < noise["noise_at_most"]
    assert 0 < noise["noise_as_of_epsilon"] < 2
    wrong = sum(1 - one["confidence"] for one in found["audits"].values())
    assert wrong == pytest.approx(1e-10, rel=1e-3)  # of all together


@pytest.mark.parametrize("name", ["lnmax", "confident"])
def test_the_command_says_what_it_would_find(run, name):
    sure = "--confidence 0.9999999999 --games 500"
    code, out, _ = run(f"audit pate --aggregator {name} --answers 1 --teachers 20 {sure}")
    assert code == 0
    assert "consistent" in out
    assert "finds below" in out
    assert ("checks" in out) == (name == "confident")
    assert "…" not in out


def test_a_run_is_not_audited_as_if_labels_were_gaussian(tmp_path):
    with pytest.raises(ValueError, match="analysis must be guesses"):
        audit_pate_run(RunFolder(tmp_path), 100, 0.95, "gaussian")


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
