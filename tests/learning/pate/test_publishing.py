"""What answers cost for these data: published once, charged, within the plan's guarantee."""

import dataclasses
import json

import numpy as np
import pytest

from sfumato.core.events import RdpCurveEvent
from sfumato.core.randomness import SeededCoins
from sfumato.learning.pate import (
    Answering,
    AnswerPlan,
    Ballots,
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)
from sfumato.learning.pate.privacy import Sanitiser
from sfumato.learning.pate.publishing import ASSUMED, assumed_votes, parts_of, sanitiser_for
from sfumato.ledger import Budget, Ledger

QUIET = Sanitiser(order=5.0, beta=0.05, sigma=8.0)
VOTES = np.array([[96, 4, 0], [90, 6, 4], [99, 1, 0], [60, 30, 10]])
OPINIONS = np.full((4, 3), 1 / 3)
EACH = {
    "gnmax": GaussianMax(20.0),
    "confident": ConfidentMax(20.0, 50, 30.0),
    "interactive": InteractiveMax(20.0, 20, 30.0, 100),
}


def answering(aggregator=EACH["gnmax"], sanitiser=QUIET, **more):
    plan = AnswerPlan(aggregator, 4, 4, sanitiser=sanitiser)
    return Answering(Ballots(VOTES), plan, **({"coins": SeededCoins(1)} | more))


@pytest.mark.parametrize("kind", EACH)
def test_its_own_cost_is_part_of_the_plan(kind):
    plain = AnswerPlan(EACH[kind], 4, 4)
    published = dataclasses.replace(plain, sanitiser=QUIET)
    assert isinstance(published.event.events[-1], RdpCurveEvent)
    assert not published.event.events[-1].data_dependent
    assert published.guarantee.epsilon > plain.guarantee.epsilon
    assert AnswerPlan.from_dict(json.loads(json.dumps(published.to_dict()))) == published


def test_none_without_one_and_none_for_laplace_noise():
    made = answering(sanitiser=None)
    made.ask(0)
    assert made.publish_cost(100) is None
    with pytest.raises(ValueError, match="None for Laplace noise"):
        AnswerPlan(LaplaceMax(0.1), 4, sanitiser=QUIET)
    with pytest.raises(ValueError, match="with Gaussian noise"):
        parts_of(LaplaceMax(0.1), VOTES, np.ones(4, dtype=bool))


@pytest.mark.parametrize("kind", EACH)
def test_it_is_about_all_that_was_asked(kind):
    made = answering(EACH[kind])
    opinions = dict(enumerate(OPINIONS)) if kind == "interactive" else None
    for question in range(4):
        made.ask(question, OPINIONS[question])
    answered = np.array([answer.by == "teachers" for answer in made.answers])
    parts = parts_of(EACH[kind], VOTES, answered, OPINIONS)
    expected = QUIET.publish(parts, 100, SeededCoins(9))
    found = made.publish_cost(100, opinions)
    true = sum(part.cost(5.0) for part in parts)
    assert found.own_cost == expected.own_cost
    assert found.value > true  # with probability 0.999, and these coins
    assert not found.private


def test_it_is_drawn_once(tmp_path):
    path = tmp_path / "answers.jsonl"
    made = answering(journal=path)
    made.ask(0)
    first = made.publish_cost(100)
    assert made.publish_cost(100) == first
    del made
    again = answering(journal=path, coins=SeededCoins(5))
    assert again.publish_cost(100) == first


def test_killed_while_it_was_drawn_it_is_lost(tmp_path):
    path = tmp_path / "answers.jsonl"
    made = answering(journal=path)
    made.ask(0)
    made.publish_cost(100)
    del made
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    again = answering(journal=path, coins=SeededCoins(5))
    assert again.publish_cost(100) is None


def test_it_is_charged(tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("d", Budget(8.0, 1e-5))
    made = answering(ledger=ledger, dataset="d")
    made.ask(0)
    before = ledger.status("d").reading
    made.publish_cost(100)
    assert ledger.status("d").reading > before
    assert ledger.history("d")[-1].kind == "commit"


def test_what_is_assumed_is_no_ones_votes():
    votes = assumed_votes(200, 250, 10)
    assert (votes.sum(axis=1) == 250).all()
    assert len(votes) == 200
    assert sum(part for _, part in ASSUMED) == 1


@pytest.mark.slow
def test_publishing_pays_where_many_agree():
    """Of 1,000 answers: less than what holds for all data, own cost included."""
    aggregator, teachers = GaussianMax(40.0), 250
    chosen = sanitiser_for(aggregator, 1000, 1000, teachers, 10, 1e-5)
    parts = parts_of(aggregator, assumed_votes(1000, teachers, 10), np.ones(1000, dtype=bool))
    found = chosen.publish(parts, teachers, SeededCoins(3)).epsilon(1e-5)
    assert found < AnswerPlan(aggregator, 1000).guarantee.epsilon
