"""Tracing: the oracles of theory, a test that finds half at d*, and what epsilon leaves of it."""

import json
import math

import numpy as np
import pytest

from sfumato.attacks import tracing
from sfumato.attacks.tracing import Roc, Statistic, attack, homer, inner_product
from sfumato.core import Neighbours, SeededCoins, Sensitivity
from sfumato.mechanisms.laplace import Laplace


def people(random, p, n):
    """``n`` people with attributes 0 or 1, each 1 with its probability in ``p``."""
    return (random.random((n, len(p))) < p).astype(float)


def scored(random, n, d, draw, noise=None, rounds=25):
    """Scores of members and of others over fresh data sets and populations."""
    members, others = [], []
    for _ in range(rounds):
        p = draw(d)
        data = people(random, p, n)
        released = data.mean(axis=0)
        if noise is not None:
            released = noise(released)
        members.append(inner_product(data, released, p))
        others.append(inner_product(people(random, p, n), released, p))
    return np.array(members), np.array(others)


def beta_population(random):
    return lambda d: random.beta(2, 2, d)


@pytest.mark.parametrize(
    ("n", "d", "mean", "sd", "low", "high"),
    [(100, 1000, 2.0, 0.655, 0.985, 0.99), (100, 100, 0.2, 0.207, 0.75, 0.79)],
)
def test_scores_are_as_theory_says(n, d, mean, sd, low, high):
    """At 2,500 to 20,000 scores, a mean or spread wrong by a tenth fails."""
    random = np.random.default_rng(1)
    rounds = 25 if d == 1000 else 200
    members, others = scored(random, n, d, beta_population(random), rounds=rounds)
    assert members.mean() == pytest.approx(mean, rel=0.05)
    assert others.mean() == pytest.approx(0, abs=0.05 * sd)
    assert others.std() == pytest.approx(sd, rel=0.04)
    roc = Roc.from_scores(members, others)
    assert low - 0.003 <= roc.auc <= high + 0.003
    predicted = tracing.predicted_separation(random.beta(2, 2, 100_000)[:d], n)
    assert predicted.mean == pytest.approx(mean, rel=0.07)
    assert predicted.sd == pytest.approx(sd, rel=0.07)
    assert predicted.auc == pytest.approx(roc.auc, abs=0.02)


def test_the_closed_forms_for_beta_populations():
    """E v = 1/5 and E v^2 = 3/70 for p ~ Beta(2, 2): mean 2.0, sd 0.655 at n = 100, d = 1000."""
    p = np.random.default_rng(2).beta(2, 2, 1_000_000)
    found = tracing.predicted_separation(p, 100_000)
    assert found.mean == pytest.approx(2.0, rel=2e-3)
    assert found.sd == pytest.approx(math.sqrt(1e6 * 3 / 70 / 1e5), rel=2e-3)
    alike = tracing.predicted_separation(np.full(1000, 0.3), 100)
    assert alike.auc == pytest.approx(0.98732, abs=1e-4)  # Phi(sqrt(1000 / 200))
    assert "AUC 0.9873" in str(alike)


@pytest.mark.parametrize(
    ("d", "noise", "expected", "band"),
    [
        (100, 0, 0.10, 0.03),
        (500, 0, 0.44, 0.05),
        (1000, 0, 0.77, 0.05),
        (2000, 0, 0.98, 0.02),
        (2000, 0.05, 0.71, 0.07),
        (2000, 0.2, 0.08, 0.03),
    ],
)
def test_power_at_one_false_alarm_in_a_hundred(d, noise, expected, band):
    random = np.random.default_rng(d)

    def gaussian(averages):
        return averages + random.normal(0, noise, d)

    members, others = scored(random, 100, d, lambda d: random.uniform(0.1, 0.9, d), gaussian, 30)
    assert Roc.from_scores(members, others).power_at(0.01) == pytest.approx(expected, abs=band)


def test_homer_ranks_zeros_and_ones_as_the_inner_product_does():
    random = np.random.default_rng(3)
    p = random.beta(2, 2, 200)
    data, others = people(random, p, 50), people(random, p, 50)
    q = data.mean(axis=0)
    direct = np.abs(data - p).sum(axis=1) - np.abs(data - q).sum(axis=1)
    assert homer(data, q, p) == pytest.approx(direct)
    assert homer(data, q, p) == pytest.approx(2 * (data @ (q - p)) - (q - p).sum())
    by_homer, by_product = attack(data, others, q, p, "homer"), attack(data, others, q, p)
    assert by_homer.auc == pytest.approx(by_product.auc)
    assert by_homer.power == by_product.power


def test_the_inner_product_by_hand():
    assert inner_product([[1, 0], [0, 1]], [0.7, 0.2], [0.5, 0.5]).tolist() == pytest.approx(
        [0.5 * 0.2 + 0.5 * 0.3, -0.5 * 0.2 - 0.5 * 0.3]
    )


# The test with one reference person, on attributes -1 and +1.


def reference_trials(random, n, d, trials):
    """Which of one member and one other per trial are called members."""
    found, alarms = [], []
    for _ in range(trials):
        p = random.random(d)
        sign = 2 * (random.random((n + 2, d)) < p) - 1.0
        data, other, reference = sign[:n], sign[n], sign[n + 1]
        q = data.mean(axis=0)
        called = tracing.reference_test(np.stack([data[0], other]), q, reference, 0.05)
        found.append(called[0])
        alarms.append(called[1])
    return np.mean(found), np.mean(alarms)


def test_half_of_the_members_are_found_at_d_star():
    assert tracing.attributes_needed(5, 0.05, 2 / 3) == pytest.approx(1348, abs=0.5)
    d = tracing.attributes_needed(40, 0.01, 0.8)
    assert d * 0.8 / 40 == pytest.approx(math.sqrt(8 * d * math.log(100)))
    assert tracing.reference_threshold(1350, 0.05) == pytest.approx(179.9, abs=0.05)


@pytest.mark.parametrize(
    ("d", "power", "band"), [(500, 0.0012, 0.003), (1350, 0.5, 0.025), (2000, 0.959, 0.012)]
)
def test_power_of_the_reference_test(d, power, band):
    """A threshold off by a tenth moves the power at 1350 to about 0.25 or 0.77."""
    found, alarms = reference_trials(np.random.default_rng(d), 5, d, 4500)
    assert found == pytest.approx(power, abs=band)
    assert alarms == 0


def test_reference_scores_by_hand_and_one_reference_for_each():
    q, y = np.array([0.5, -0.5]), np.array([[1, -1], [-1, 1]])
    assert tracing.against_reference(y, q, [1, 1]).tolist() == [1.0, -1.0]
    assert tracing.against_reference(y, q, [[1, 1], [1, -1]]).tolist() == [1.0, -2.0]


# What differential privacy leaves of it.


def private_means(n, d, epsilon, coins, sensitivity=None):
    """Averages of d numbers in [0, 1] of n people; replacing one moves them by d / n in L1."""
    bound = d / n if sensitivity is None else sensitivity
    declared = Sensitivity(bound, neighbours=Neighbours.REPLACE_ONE, unit="person", dimension=d)
    mechanism = Laplace.calibrate(declared, epsilon=epsilon)
    return mechanism, lambda averages: mechanism.perturb(averages, coins=coins)


def excess(members, others, epsilon, threshold):
    """TPR - e^eps FPR, and its standard error over data sets, whose scores hang together."""
    gaps = (members > threshold).mean(axis=1) - math.exp(epsilon) * (others > threshold).mean(
        axis=1
    )
    return gaps.mean(), gaps.std(ddof=1) / math.sqrt(len(gaps))


@pytest.mark.parametrize(("n", "d"), [(100, 1000), (5, 4), (2, 1)])
def test_under_dp_members_found_stay_below_e_to_the_epsilon_times_false_alarms(n, d):
    random, rounds = np.random.default_rng(5), 150 if d == 1000 else 20_000
    mechanism, noise = private_means(n, d, 1.0, SeededCoins(6))
    assert mechanism.scale == pytest.approx(d / n)
    assert mechanism.guarantee().epsilon <= 1.0
    members, others = scored(random, n, d, beta_population(random), noise, rounds)
    for false_alarms in (0.5, 0.1, 0.01, 0.001):
        threshold = np.quantile(others, 1 - false_alarms)
        gap, error = excess(members, others, 1.0, threshold)
        assert gap <= 3 * error
    if d == 1000:
        assert mechanism.scale == 10.0
        assert Roc.from_scores(members, others).auc == pytest.approx(0.5, abs=0.02)


def test_a_worst_case_meets_the_bound():
    """One person, one attribute, 1 or replaced by 0: TPR / FPR is e^eps; off by a tenth fails."""
    _, noise = private_means(1, 1, 1.0, SeededCoins(9))
    member, other = (
        inner_product([[1.0]], [q], [0.5])[0] for q in (1.0, 0.0)
    )  # without noise, to place the threshold where the member's score is
    assert (member, other) == (0.25, -0.25)
    scores = [(0.5 * (noise(np.full(400_000, q)) - 0.5)) for q in (1.0, 0.0)]
    found, alarms = ((score > member).mean() for score in scores)
    assert found / alarms == pytest.approx(math.e, rel=0.02)


def test_the_bound_is_broken_by_exact_means_and_by_noise_that_forgets_the_attributes():
    """So that the test above could fail: b = 1/n instead of d/n is no epsilon of 1."""
    random = np.random.default_rng(7)
    _, forgetful = private_means(100, 1000, 1.0, SeededCoins(8), sensitivity=1 / 100)
    for noise in (None, forgetful):
        members, others = scored(random, 100, 1000, beta_population(random), noise, 40)
        gap, error = excess(members, others, 1.0, np.quantile(others, 0.99))
        assert gap > 0.5
        assert gap > 10 * error


# The curve.


def test_the_curve_by_hand():
    roc = Roc.from_scores([3, 2, 2, 0], [2, 1, 0, -1])
    assert roc.false_positive_rates.tolist() == [0, 0, 0.25, 0.5, 0.75, 1]
    assert roc.true_positive_rates.tolist() == [0, 0.25, 0.75, 0.75, 1, 1]
    pairs = [(m > o) + (m == o) / 2 for m in (3, 2, 2, 0) for o in (2, 1, 0, -1)]
    assert roc.auc == pytest.approx(np.mean(pairs))
    assert [roc.power_at(rate) for rate in (0, 0.1, 0.25, 0.3, 1)] == [0.25, 0.25, 0.75, 0.75, 1]


def test_the_area_under_the_curve_is_the_auc():
    random = np.random.default_rng(9)
    roc = Roc.from_scores(random.normal(1, 1, 500).round(1), random.normal(0, 1, 700).round(1))
    area = np.trapezoid(roc.true_positive_rates, roc.false_positive_rates)
    assert area == pytest.approx(roc.auc)
    assert (roc.members, roc.others) == (500, 700)


def test_the_result_says_it_is_for_the_curator():
    found = tracing.evaluate([1.0, 2.0], [0.0, 0.5], attributes=7)
    data = json.loads(json.dumps(found.to_dict()))
    assert data["channel"] == "curator"
    assert (data["auc"], data["attributes"], data["members"]) == (1.0, 7, 2)
    assert data["power"][0] == {"false_alarms": 0.1, "members_found": 1.0}
    assert "AUC 1.000" in str(found)
    assert "100.0% at 0.01" in str(found)


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="targets 2, released 3, population 2"):
        inner_product([[1, 0]], [0.5] * 3, [0.5] * 2)
    with pytest.raises(ValueError, match="released must be"):
        inner_product([[1, 0]], [[0.5] * 2], [0.5] * 2)
    with pytest.raises(ValueError, match="statistic must be 'inner-product' or 'homer'"):
        attack([[1]], [[0]], [0.5], [0.5], "guess")
    with pytest.raises(ValueError, match="member scores must be"):
        Roc.from_scores([], [1])
    with pytest.raises(ValueError, match="other scores must be"):
        Roc.from_scores([1], [math.nan])
    with pytest.raises(ValueError, match="population must be"):
        tracing.predicted_separation([0.0, 1.0], 10)
    with pytest.raises(ValueError, match="false_alarms"):
        tracing.reference_threshold(10, 0)
    assert Statistic("homer") is Statistic.HOMER
