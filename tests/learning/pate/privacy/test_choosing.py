from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from sfumato.learning.pate.aggregators import GaussianMax
from sfumato.learning.pate.named import aggregator_called
from sfumato.learning.pate.privacy.assumed import (
    Assumed,
    as_assumed,
    mnist_agreement,
    two_classes,
)
from sfumato.learning.pate.privacy.choosing import (
    best_of,
    chance,
    for_answers,
    for_certainty,
)
from sfumato.learning.pate.privacy.costs import winning
from sfumato.learning.pate.privacy.planning import (
    epsilon_after,
    explore,
    least_noise,
    planned_cost,
)

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
ASSUMED = two_classes([0.95, 0.8])


def made(name, teachers=250):
    return partial(aggregator_called, name, teachers=teachers)


# --- assumptions ----------------------------------------------------------------------------------


def test_measured_agreement_at_a_measured_number_of_rows() -> None:
    found = mnist_agreement(60_000)(250)
    assert found.shares.shape == (10, 10)
    assert found.shares.sum(axis=1) == pytest.approx(np.ones(10))
    assert found.shares[0, :2] == pytest.approx([0.620, 0.287])
    assert found.right is not None
    assert found.right.mean() == pytest.approx(0.954, abs=5e-4)  # the plurality's accuracy


def test_more_teachers_agree_less_and_are_right_less_often() -> None:
    several = [mnist_agreement(60_000)(n) for n in (10, 70, 150, 400, 1000)]
    first = [one.shares[:, 0].mean() for one in several]
    right = [one.right.mean() for one in several if one.right is not None]
    assert (np.diff(first) < 0).all()
    assert (np.diff(right) < 0).all()


def test_agreement_depends_on_the_rows_of_each_teacher_alone() -> None:
    few, many = mnist_agreement(6_000)(20), mnist_agreement(60_000)(200)
    assert few.shares == pytest.approx(many.shares)
    assert mnist_agreement(10**7)(10).shares == pytest.approx(mnist_agreement(60_000)(10).shares)
    with pytest.raises(ValueError, match="at most 1000 for 60000 rows"):
        mnist_agreement(60_000)(1001)


@pytest.mark.parametrize("bad", [[[0.7, 0.4]], [[-0.1, 0.5]], [[1.0]], [[np.nan, 0.1]]])
def test_what_are_no_shares_is_refused(bad) -> None:
    with pytest.raises(ValueError, match="agreement must be"):
        as_assumed(bad)


def test_shares_of_the_first_class_are_half_or_more() -> None:
    with pytest.raises(ValueError, match="agreement must be"):
        two_classes([0.4])


# --- choices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "accountant"),
    [("lnmax", "rdp"), ("gnmax", "rdp"), ("confident", "rdp"), ("gnmax", "pld")],
)
def test_so_many_answers_with_the_least_noise(name, accountant) -> None:
    found = for_answers(made(name), 250, ASSUMED, answers=60, accountant=accountant, **BUDGET)
    assert found.answers == 60
    assert 1.99 < found.epsilon <= 2
    noise = found.aggregator.get("sigma") or 1 / found.aggregator["gamma"]
    less = explore([(250, made(name)(0.99 * noise))], ASSUMED, 2.0, 1e-5, accountant=accountant)[0]
    assert less.answers < 60


def test_noise_for_answers_is_the_calibrated_one() -> None:
    found = for_answers(made("gnmax"), 250, ASSUMED, answers=200, **BUDGET)
    assert found.aggregator["sigma"] == least_noise(GaussianMax, 200, 2, 1e-5)


@pytest.mark.parametrize("name", ["lnmax", "gnmax", "confident"])
def test_as_much_noise_as_answers_bear(name) -> None:
    found = for_certainty(made(name), 250, ASSUMED, sure=0.97, accountant="rdp", **BUDGET)
    assert found is not None
    assert 0.97 <= chance(found) < 0.9705
    assert found.epsilon <= 2
    noise = found.aggregator.get("sigma") or 1 / found.aggregator["gamma"]
    more = explore([(250, made(name)(1.02 * noise))], ASSUMED, 2.0, 1e-5)[0]
    assert chance(more) < 0.97
    assert more.answers > found.answers  # which is why it is the most noise


def test_right_is_the_pluralitys_chance_times_its_own() -> None:
    assumed = Assumed(ASSUMED.shares, np.array([0.9, 0.6]))
    found = explore([(250, GaussianMax(60.0))], assumed, 2.0, 1e-5)[0]
    wins = winning(GaussianMax(60.0), 250 * ASSUMED.shares)
    assert found.right == pytest.approx((wins * [0.9, 0.6]).mean())
    assert found.plurality == pytest.approx(wins.mean())
    assert chance(found) == found.right
    assert for_certainty(made("gnmax"), 250, assumed, sure=0.8, **BUDGET) is None


def test_the_best() -> None:
    several = [
        for_answers(made("gnmax", n), n, mnist_agreement()(n), answers=100, **BUDGET)
        for n in (50, 250, 1000)
    ]
    assert best_of(several, by_answers=False) == 1  # few drown in noise, many have too few rows
    sure = [for_certainty(made("gnmax", n), n, ASSUMED, sure=0.95, **BUDGET) for n in (50, 250)]
    assert best_of([*sure, None], by_answers=True) == 1
    assert best_of([None, None], by_answers=True) is None


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_planned_cost_is_the_accountants_at_every_point(accountant) -> None:
    checks = made("confident")(40.0)
    found = planned_cost(
        checks, 90, 1e-5, questions_per_answer=2.5, accountant=accountant, points=4
    )
    assert found.answers == (1, 30, 60, 90)
    assert found.questions == (3, 75, 150, 225)
    for answers, questions, epsilon in zip(
        found.answers, found.questions, found.epsilons, strict=True
    ):
        known = epsilon_after(checks, answers, 1e-5, questions=questions, accountant=accountant)
        assert epsilon == known.epsilon
    assert found.to_dict()["accountant"] == accountant
