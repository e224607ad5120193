"""The curve: closed forms, exact small cases, and intervals that cover as often as they say."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, kstest, mannwhitneyu, norm

from sfumato.attacks import tracing
from sfumato.attacks.roc import Roc

FEW = st.lists(st.integers(-4, 4), min_size=2, max_size=12)


def normal_scores(random, shift, members, others=None):
    return random.normal(shift, 1, members), random.normal(0, 1, others or members)


def pairs_won(members, others):
    """For every pair: 1 if the member scores higher, 1/2 if they tie."""
    above = np.asarray(members)[:, None] - np.asarray(others)[None, :]
    return (above > 0) + (above == 0) / 2


# Closed forms.


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5])
def test_normal_scores_give_the_curve_of_theory(shift):
    """With 200,000 a side a shift wrong by a tenth of 0.5 moves the AUC by 13 standard errors."""
    roc = Roc.from_scores(*normal_scores(np.random.default_rng(1), shift, 200_000))
    assert roc.auc == pytest.approx(norm.cdf(shift / math.sqrt(2)), abs=4 * roc.auc_error)
    for rate in (0.3, 0.01, 0.001):
        found = norm.cdf(shift + norm.ppf(rate))
        # The threshold's own error moves the power along the slope of the curve.
        slope = norm.pdf(shift + norm.ppf(rate)) / norm.pdf(norm.ppf(rate))
        error = math.sqrt((found * (1 - found) + slope**2 * rate) / 200_000)
        assert roc.power_at(rate) == pytest.approx(found, abs=4 * error)
    assert roc.advantage == pytest.approx(2 * norm.cdf(shift / 2) - 1, abs=0.006)
    assert roc.balanced_accuracy == (1 + roc.advantage) / 2
    assert shift == 0 or roc.balanced_threshold == pytest.approx(shift / 2, abs=0.1)


def test_guessing_has_the_advantage_that_the_docstring_states():
    """sqrt(pi / 8) sqrt(2 / n) = 0.886 / sqrt(n): the mean of Smirnov's one-sided distance."""
    random, n = np.random.default_rng(2), 1000
    gaps = [Roc.from_scores(*normal_scores(random, 0, n)).advantage for _ in range(800)]
    assert np.mean(gaps) * math.sqrt(n) == pytest.approx(math.sqrt(math.pi) / 2, rel=0.07)


# Exact small cases, and other people's programs.


@given(FEW, FEW)
def test_the_area_and_its_error_by_all_pairs(members, others):
    roc, won = Roc.from_scores(members, others), pairs_won(members, others)
    assert roc.auc == pytest.approx(won.mean())
    variance = won.mean(axis=1).var(ddof=1) / len(members)
    variance += won.mean(axis=0).var(ddof=1) / len(others)
    assert roc.auc_error == pytest.approx(math.sqrt(variance), abs=1e-12)


@given(FEW, FEW)
def test_every_threshold_by_counting(members, others):
    roc = Roc.from_scores(members, others)
    ins, outs = np.array(members), np.array(others)
    for alarms, found, threshold in zip(
        roc.false_positive_rates, roc.true_positive_rates, roc.thresholds, strict=True
    ):
        assert (ins >= threshold).mean() == found
        assert (outs >= threshold).mean() == alarms
    best = max((ins >= t).mean() - (outs >= t).mean() for t in [*members, *others, 99])
    assert roc.advantage == pytest.approx(best)
    called = roc.balanced_threshold
    assert (ins >= called).mean() - (outs >= called).mean() == pytest.approx(best)


@given(FEW, FEW)
def test_the_p_value_is_that_of_scipy(members, others):
    roc = Roc.from_scores(members, others)
    if len({*members, *others}) == 1:
        assert roc.p_value == 1
        return
    expected = mannwhitneyu(members, others, alternative="greater", method="asymptotic")
    assert roc.p_value == pytest.approx(expected.pvalue)


def test_the_p_value_is_near_the_exact_one_of_all_orders():
    members, others = [2.1, 3.4, 5.0, 4.2, 6.1, 0.3], [1.0, 2.0, 0.5, 3.0, 0.1, 1.5]
    roc, all_scores = Roc.from_scores(members, others), np.array(members + others)
    orders = list(itertools.combinations(range(12), 6))
    areas = [
        pairs_won(all_scores[list(chosen)], np.delete(all_scores, chosen)).mean()
        for chosen in orders
    ]
    assert roc.p_value == pytest.approx(np.mean(np.array(areas) >= roc.auc - 1e-12), abs=0.01)


def test_scikit_learn_agrees():
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(3)
    members, others = (scores.round(1) for scores in normal_scores(random, 0.7, 800, 500))
    roc = Roc.from_scores(members, others)
    truth, scores = np.repeat([1, 0], [800, 500]), np.concatenate([members, others])
    assert roc.auc == pytest.approx(metrics.roc_auc_score(truth, scores))
    rates = metrics.roc_curve(truth, scores, drop_intermediate=False)
    assert roc.false_positive_rates == pytest.approx(rates[0])
    assert roc.true_positive_rates == pytest.approx(rates[1])
    assert roc.thresholds == pytest.approx(rates[2])


# Laws.


@given(FEW, FEW, st.sampled_from([np.exp, np.arctan, lambda x: x**3, lambda x: 5 * x - 2]))
def test_only_the_order_of_scores_counts(members, others, rising):
    before = Roc.from_scores(members, others)
    after = Roc.from_scores(rising(np.array(members, float)), rising(np.array(others, float)))
    assert after.true_positive_rates.tolist() == before.true_positive_rates.tolist()
    assert after.false_positive_rates.tolist() == before.false_positive_rates.tolist()
    assert (after.auc, after.p_value) == (before.auc, before.p_value)
    assert after.auc_interval(0.9) == before.auc_interval(0.9)
    assert after.excess(0.1, 0.01) == before.excess(0.1, 0.01)


@given(FEW, FEW)
def test_exchanging_members_and_others_mirrors_the_curve(members, others):
    forth = Roc.from_scores(members, others)
    back = Roc.from_scores(np.negative(others), np.negative(members))
    assert back.auc == pytest.approx(forth.auc)
    assert back.auc_interval() == pytest.approx(forth.auc_interval())
    assert back.excess(0.1).margin == pytest.approx(forth.excess(0.1).margin)
    names = {"members above": "others below", "others below": "members above"}
    if not math.isclose(*(_best(roc) for roc in (forth, back)), abs_tol=1e-9):
        assert back.excess(0.1).side == names[forth.excess(0.1).side]


def _best(roc):
    """The largest margin of members above."""
    return max(low - math.exp(0.1) * high for low, high in roc._limits(0.025))


# Intervals.


def test_the_interval_of_power_is_that_of_a_binomial():
    members, others = np.arange(100.0), np.arange(50, 150.0)
    found = Roc.from_scores(members + 30, others).power_interval(0.1, 0.9)
    assert (found.found, found.alarms, found.threshold) == (0.0, 0.1, 140.0)
    found = Roc.from_scores(members + 60, others).power_interval(0.1, 0.9)
    assert (found.found, found.alarms) == (0.2, 0.1)
    exact = binomtest(20, 100).proportion_ci(0.9, "exact")
    assert found.interval == pytest.approx((exact.low, exact.high))
    exact = binomtest(10, 100).proportion_ci(0.9, "exact")
    assert found.alarms_interval == pytest.approx((exact.low, exact.high))


def test_intervals_cover_as_often_as_they_say():
    """2,500 data sets: shares within 4 standard errors, or above where limits are conservative."""
    random, rounds, shift, rate = np.random.default_rng(4), 2500, 1.0, 0.1
    hits = {"auc": [], "found": [], "alarms": []}
    for _ in range(rounds):
        roc = Roc.from_scores(*normal_scores(random, shift, 120, 80))
        power = roc.power_interval(rate, 0.9)
        # What the chosen threshold truly finds: just above the ninth highest other.
        at = roc.thresholds[roc.thresholds >= power.threshold][-1]
        low, high = power.interval
        hits["found"].append(low <= norm.sf(at - shift) <= high)
        low, high = power.alarms_interval
        hits["alarms"].append(low <= norm.sf(at) <= high)
        low, high = roc.auc_interval(0.9)
        hits["auc"].append(low <= norm.cdf(shift / math.sqrt(2)) <= high)
    error = 4 * math.sqrt(0.09 / rounds)
    assert np.mean(hits["auc"]) == pytest.approx(0.9, abs=error)
    assert 0.9 - error <= np.mean(hits["found"]) <= 0.95
    assert 0.9 - error <= np.mean(hits["alarms"]) <= 0.97


def test_the_rate_above_an_order_statistic_has_the_law_of_the_docstring():
    random = np.random.default_rng(5)
    fourth = np.sort(random.normal(size=(2000, 50)), axis=1)[:, -4]
    assert kstest(norm.sf(fourth), beta(4, 47).cdf).pvalue > 1e-3
    assert kstest(norm.sf(fourth), beta(3, 48).cdf).pvalue < 1e-6  # so that it could fail


@pytest.mark.parametrize("confidence", [0.9, 0.99])
def test_without_an_error_the_interval_does_not_pretend_to_certainty(confidence):
    roc = Roc.from_scores(np.arange(50) + 100, np.arange(80))
    low, high = roc.auc_interval(confidence)
    assert high == 1
    assert low**50 == pytest.approx((1 - confidence) / 2)  # the chance of 50 pairs all right
    worst = Roc.from_scores(np.arange(50), np.arange(80) + 100)
    assert worst.auc_interval(confidence) == pytest.approx((0, 1 - low))


def test_ties_alone_and_single_people_get_wide_limits():
    tied = Roc.from_scores(np.zeros(200), np.zeros(300))
    low, high = tied.auc_interval(0.95)
    assert (low + high) / 2 == tied.auc == 0.5
    assert 2 * math.exp(-2 * 200 * (high - 0.5) ** 2) == pytest.approx(0.05)
    alone = Roc.from_scores([1.0], [0.0, 2.0, 3.0])
    assert math.isnan(alone.auc_error)
    assert alone.auc_interval() == (0, 1)
    extreme = Roc.from_scores([*np.arange(2, 2000), 0.5], np.zeros(2000) + np.arange(2000) / 2000)
    assert 0.99 < extreme.auc_interval()[0] < extreme.auc < extreme.auc_interval()[1] < 1


def test_a_band_is_an_interval_at_each_rate():
    roc = Roc.from_scores(*normal_scores(np.random.default_rng(6), 1, 300))
    rates = [0.01, 0.1, 0.5]
    lower, upper = roc.band(rates, 0.9)
    expected = [roc.power_interval(rate, 0.9).interval for rate in rates]
    assert list(zip(lower, upper, strict=True)) == expected


def test_guesses_are_called_significant_at_the_stated_rate():
    """1,000 null data sets: 5 % within 4 standard errors, 2.2 % to 7.8 %; with ties, too."""
    random = np.random.default_rng(7)
    for digits in (8, 0):
        small = [
            Roc.from_scores(*(s.round(digits) for s in normal_scores(random, 0, 90, 60))).p_value
            for _ in range(1000)
        ]
        share = np.mean(np.array(small) < 0.05)
        assert share == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 1000))


# What differential privacy allows.


def laplace_scores(random, epsilon, size):
    """One count with Laplace noise, a person more or less: the bound is met on half the curve."""
    return random.laplace(epsilon, 1, size), random.laplace(0, 1, size)


def _searched(roc):
    """Whether some threshold of all exceeds epsilon 1 by limits that hold for one at 80 %."""
    found, alarms = roc.true_positive_rates[1:-1] * 300, roc.false_positive_rates[1:-1] * 300
    lower = beta.ppf(0.1, np.maximum(found, 0.5), 301 - found)
    upper = beta.ppf(0.9, alarms + 1, np.maximum(300 - alarms, 0.5))
    return bool((lower > math.e * upper).any())


def test_a_true_claim_is_exceeded_no_more_often_than_stated():
    """An uncorrected search through all thresholds does so in a third of the rounds, not 20 %."""
    random, rounds, broken, uncorrected = np.random.default_rng(8), 400, 0, 0
    for _ in range(rounds):
        roc = Roc.from_scores(*laplace_scores(random, 1.0, 300))
        broken += roc.excess(1.0, 0.0, 0.8).exceeds
        uncorrected += _searched(roc) or _searched(roc._mirrored())
    assert broken / rounds <= 0.2
    assert uncorrected / rounds > 0.25


@pytest.mark.parametrize("digits", [9, 0])
def test_limits_at_each_rank_by_hand(digits):
    """At rank k: members above the (k + 1)-th highest other, ties with it left out."""
    members, others = (s.round(digits) for s in normal_scores(np.random.default_rng(11), 1, 40, 25))
    ranks, highest = [0, 1, 2, 3, 4, 6, 8, 11, 16, 23], np.sort(others)[::-1]
    each = 0.1 / 20
    for rank, (low, high) in zip(ranks, Roc.from_scores(members, others)._limits(0.1), strict=True):
        found = int((members > highest[rank]).sum())
        assert low == pytest.approx(beta.ppf(each, found, 41 - found) if found else 0)
        assert high == pytest.approx(beta.ppf(1 - each, rank + 1, 25 - rank))


def test_a_claim_a_fifth_too_low_is_exceeded():
    """Scores of epsilon 1 are (0.8, delta) for delta = (1 - e^-0.2) / 2 = 0.0906."""
    random = np.random.default_rng(9)
    for mirrored in (False, True):
        members, others = laplace_scores(random, 1.0, 100_000)
        roc = Roc.from_scores(-others, -members) if mirrored else Roc.from_scores(members, others)
        assert not roc.excess(1.0).exceeds
        assert roc.excess(0.8).exceeds
        assert roc.excess(0.8, 0.06).exceeds
        assert not roc.excess(0.8, 0.0906).exceeds
        assert not roc.excess(800.0).exceeds


def test_both_sides_of_the_curve_are_looked_at():
    """Few members score high beyond others; then few others score low beyond members."""
    random = np.random.default_rng(10)
    common = random.normal(size=(2, 10_000))
    common[0, :500] += 20
    above = Roc.from_scores(common[0], common[1]).excess(1.0)
    assert above.exceeds
    assert above.side == "members above"
    below = Roc.from_scores(-common[1], -common[0]).excess(1.0)
    assert below.exceeds
    assert below.side == "others below"
    assert below.margin == pytest.approx(above.margin)
    # By hand: 500 members above all others; the rank 0 and its share of the error.
    each = 0.05 / 2 / (2 * 27)
    larger, smaller = beta.ppf(each, 500, 9501), 1 - each ** (1 / 10_000)
    assert above.larger == pytest.approx(larger, rel=0.05)
    assert above.smaller == pytest.approx(smaller, rel=1e-9)


def test_the_old_home_of_the_curve_still_has_it():
    assert tracing.Roc is Roc


def test_results_in_words_and_in_json():
    roc = Roc.from_scores(np.arange(50) + 25.0, np.arange(100.0))
    power = roc.power_interval(0.001)
    assert str(power) == "too few non-members to measure 0.1%"
    assert roc.power_interval(0.01).measurable
    data = json.loads(json.dumps(power.to_dict()))
    assert (data["measurable"], data["members_found"]) == (False, 0.0)
    assert str(roc.excess(3.0, 1e-5)).startswith("the rates are consistent with epsilon 3, delta")
    with pytest.raises(ValueError, match="confidence must be"):
        roc.auc_interval(1.0)
    with pytest.raises(ValueError, match="epsilon must be"):
        roc.excess(-1.0)
    with pytest.raises(ValueError, match="delta must be"):
        roc.excess(1.0, 1.0)
    with pytest.raises(ValueError, match="false_alarms must be"):
        roc.power_interval(-0.1)
    with pytest.raises(ValueError, match="member scores must be"):
        Roc.from_scores([math.nan], [1])
