from __future__ import annotations

import json
import math

import numpy as np
import pytest

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, compose, repeat
from sfumato.learning.pate.aggregators import (
    ConfidentMax,
    GaussianMax,
    InteractiveMax,
    LaplaceMax,
)
from sfumato.learning.pate.privacy.costs import answer_costs, passing, winning
from sfumato.learning.pate.privacy.planning import (
    epsilon_after,
    explore,
    least_noise,
    most_answers,
)

CONFIDENT = ConfidentMax(sigma=40, threshold=200, sigma_check=150)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_epsilon_is_that_of_checks_and_answers(accountant) -> None:
    found = epsilon_after(CONFIDENT, 286, 1e-5, questions=640, accountant=accountant)
    event = compose(
        repeat(GaussianEvent(150.0), 640), repeat(GaussianEvent(40 / math.sqrt(2)), 286)
    )
    expected = account(event, 1e-5, accountant=accountant)
    assert found.epsilon == pytest.approx(expected.epsilon, rel=1e-9)


@pytest.mark.parametrize("aggregator", [LaplaceMax(0.01), GaussianMax(60.0), CONFIDENT])
def test_most_answers_fit_and_one_more_does_not(aggregator) -> None:
    ratio = 2.3 if aggregator.asks_first else 1.0
    most = most_answers(aggregator, 2, 1e-5, questions_per_answer=ratio, accountant="rdp")
    for answers, fits in ((most, True), (most + 1, False)):
        questions = math.ceil(answers * ratio)
        found = epsilon_after(aggregator, answers, 1e-5, questions=questions, accountant="rdp")
        assert (found.epsilon <= 2) == fits


def test_least_noise_fits_and_a_percent_less_does_not() -> None:
    sigma = least_noise(GaussianMax, 300, 1.5, 1e-5)
    assert epsilon_after(GaussianMax(sigma), 300, 1e-5).epsilon <= 1.5
    assert epsilon_after(GaussianMax(0.99 * sigma), 300, 1e-5).epsilon > 1.5
    scale = least_noise(lambda x: LaplaceMax(1 / x), 100, 2, 1e-5, accountant="rdp")
    assert epsilon_after(LaplaceMax(1 / scale), 100, 1e-5, accountant="rdp").epsilon <= 2


def test_not_even_one() -> None:
    assert most_answers(GaussianMax(0.1), 0.1, 1e-5) == 0
    forecast = explore([(250, GaussianMax(0.1))], [[1, 0]], 0.1, 1e-5)[0]
    assert (forecast.answers, forecast.questions, forecast.epsilon) == (0, 0, 0.0)


def test_forecast_of_one_kind_of_question() -> None:
    votes = [180, 30, 40]
    found = explore([(250, CONFIDENT)], [np.array(votes) / 250], 2, 1e-5)[0]
    assert found.answered_share == pytest.approx(0.446965, abs=5e-7)
    assert found.questions == math.ceil(found.answers / found.answered_share)
    assert 1.9 < found.epsilon <= 2
    assert found.epsilon_if_assumed < found.epsilon
    assert found.plurality == pytest.approx(winning(CONFIDENT, votes)[0])
    assert json.loads(json.dumps(found.to_dict()))["aggregator"]["kind"] == "confident"


@pytest.mark.parametrize("aggregator", [LaplaceMax(0.05), GaussianMax(40.0)])
def test_plurality_by_drawing(aggregator) -> None:
    rng = np.random.default_rng(3)
    votes = np.array([100.0, 70.0, 60.0])
    noise = (
        rng.laplace(0, 20, (200_000, 3))
        if aggregator.kind == "lnmax"
        else rng.normal(0, 40, (200_000, 3))
    )
    drawn = ((votes + noise).argmax(axis=1) == 0).mean()
    assert winning(aggregator, votes)[0] == pytest.approx(drawn, abs=0.005)


def test_more_teachers_and_more_noise_answer_more() -> None:
    options = [(n, GaussianMax(40.0 * n / 250)) for n in (100, 250, 1000)]
    found = explore(options, [[0.8, 0.1, 0.1]], 2, 1e-5)
    answers = [each.answers for each in found]
    assert answers == sorted(answers)
    assert answers[0] < answers[2]
    assert [each.plurality for each in found] == pytest.approx([found[0].plurality] * 3)
    less = explore(options, lambda n: [[0.9 - n / 5000, 0.1, 0.0]], 2, 1e-5)
    assert less[0].plurality > less[2].plurality


def test_limits_and_interactive() -> None:
    few = explore([(250, CONFIDENT)], [[0.9, 0.1]], 2, 1e-5, most_questions=50)[0]
    assert few.questions <= 50
    asks = InteractiveMax(sigma=40, threshold=100, sigma_check=150, teachers=250)
    with pytest.raises(ValueError, match="opinions must be given"):
        explore([(250, asks)], [[0.9, 0.1]], 2, 1e-5)
    differs = explore([(250, asks)], [[0.9, 0.1]], 2, 1e-5, opinions=[[0.1, 0.9]])[0]
    agrees = explore([(250, asks)], [[0.9, 0.1]], 2, 1e-5, opinions=[[0.9, 0.1]])[0]
    assert differs.answered_share > agrees.answered_share
    assert passing(asks, [[225, 25]], [[0.9, 0.1]])[0] == pytest.approx(agrees.answered_share)


def test_bad_parameters() -> None:
    with pytest.raises(ValueError, match="agreement must be"):
        explore([(250, CONFIDENT)], [[0.9, 0.9]], 2, 1e-5)
    with pytest.raises(ValueError, match="questions_per_answer must be 1 or above"):
        most_answers(CONFIDENT, 2, 1e-5, questions_per_answer=0.5)
    with pytest.raises(ValueError, match="questions must be"):
        epsilon_after(CONFIDENT, 10, 1e-5, questions=5)


def test_costs_by_aggregator_never_exceed_the_events(exact) -> None:
    from sfumato.accounting.rdp import rdp_vector
    from sfumato.core.neighbours import Neighbours

    orders = (1.5, 4.0, 16.0)
    for aggregator in (LaplaceMax(0.05), GaussianMax(40.0), CONFIDENT):
        vector = rdp_vector(aggregator.answer_event("record"), Neighbours.ADD_REMOVE, orders)
        for votes in (exact.spread, [25] * 10):
            costs = answer_costs(aggregator, votes, orders)[0]
            assert (costs <= vector.values * (1 + 1e-9)).all()
