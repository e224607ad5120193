"""One-run audits: validity under the null and under true claims, and the ceilings they reach."""

import math

import numpy as np
import pytest
from scipy import stats

from sfumato.audit import Analysis, audit_scores
from sfumato.audit.guesses import (
    epsilon_from_guesses,
    gaussian_from_guesses,
    guessing_p_value,
    mu_from_guesses,
)
from sfumato.audit.one_run import planned_guesses
from sfumato.core.gaussian_profile import least_multiplier
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins, fair_coins

# Of an adversary who sees each canary's own Gaussian output, at delta 1e-5: by guesses, by f-DP.
CEILINGS = {
    (1000, 1.0): (0.22, 0.32), (1000, 2.0): (0.65, 0.99),
    (1000, 4.0): (1.46, 2.20), (1000, 8.0): (2.78, 4.59),
    (5000, 1.0): (0.40, 0.53), (5000, 2.0): (0.94, 1.23),
    (5000, 4.0): (1.91, 2.63), (5000, 8.0): (3.50, 5.22),
}  # fmt: skip


def claimed(epsilon, delta=1e-5):
    return Guarantee(epsilon, delta, Neighbours.ADD_REMOVE)


def ideal(count, epsilon, rng):
    """Scores of a Gaussian mechanism that is exactly (epsilon, 1e-5)-DP for each canary."""
    included = rng.random(count) < 0.5
    return included + least_multiplier(epsilon, 1e-5) * rng.standard_normal(count), included


# --- p-values -----------------------------------------------------------------------------------


def test_the_p_value_without_delta_is_a_binomial_tail():
    rate = 1 / (1 + math.exp(-1.3))
    assert guessing_p_value(70, 100, 500, 1.3, 0.0) == pytest.approx(stats.binom.sf(69, 100, rate))


def test_the_p_value_with_delta_is_the_theorem_s():
    """Steinke et al., theorem 5.2, term by term."""
    right, made, count, epsilon, delta = 70, 90, 400, 1.0, 1e-4
    rate = 1 / (1 + math.exp(-epsilon))

    def tail(v):
        return stats.binom.sf(v - 1, made, rate)

    slope = max((tail(right - i) - tail(right)) / i for i in range(1, right + 1))
    expected = tail(right) + 2 * count * delta * slope
    assert guessing_p_value(right, made, count, epsilon, delta) == pytest.approx(expected)
    assert guessing_p_value(right, made, count, epsilon, 0.5) == 1.0


@pytest.mark.parametrize(
    ("correct", "guesses", "canaries", "name"),
    [
        (-1, 10, 20, "correct"), (11, 10, 20, "correct"), (0, 0, 20, "guesses"),
        (5, 21, 20, "guesses"), (1, 1, 0, "canaries"),
    ],
)  # fmt: skip
def test_counts_that_cannot_be_are_refused(correct, guesses, canaries, name):
    """More right guesses than guesses would prove any epsilon."""
    with pytest.raises(ValueError, match=f"{name} must be"):
        guessing_p_value(correct, guesses, canaries, 1.0, 0.0)
    with pytest.raises(ValueError, match=f"{name} must be"):
        mu_from_guesses(correct, guesses, canaries, 0.95)


def test_bounds_grow_with_right_guesses():
    bounds = [epsilon_from_guesses(v, 200, 1000, 1e-5, 0.95) for v in (100, 130, 160, 190, 200)]
    assert bounds[0] == 0
    assert bounds == sorted(bounds)
    mus = [mu_from_guesses(v, 200, 1000, 0.95) for v in (100, 130, 160, 190, 200)]
    assert mus[0] == 0
    assert mus == sorted(mus)
    assert gaussian_from_guesses(100, 200, 1000, 1e-5, 0.95) == 0


# --- ceilings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "epsilon"), list(CEILINGS))
def test_the_ideal_adversary_s_ceilings(count, epsilon):
    rng = np.random.default_rng(round(epsilon) + count)
    found = {
        how: [
            audit_scores(*ideal(count, epsilon, rng), claim=claimed(epsilon), analysis=how).epsilon
            for _ in range(60 if how is Analysis.GUESSES else 12)
        ]
        for how in Analysis
    }
    for how, ceiling in zip(Analysis, CEILINGS[count, epsilon], strict=True):
        values = np.array(found[how])
        error = values.std() / math.sqrt(len(values))
        assert abs(values.mean() - ceiling) < 0.07 * ceiling + 3 * error + 0.03
        assert values.mean() < epsilon
        assert (values > epsilon).sum() <= 2 + 0.05 * len(values)


# --- validity -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", list(Analysis))
@pytest.mark.parametrize("planned", [True, False])
def test_under_the_null_few_audits_find_anything(how, planned):
    """At most 70 of 1,000 at 95 % confidence (a true rate of 5 % exceeds it once in 500)."""
    rng = np.random.default_rng(3)
    audits = 1000 if how is Analysis.GUESSES else 300
    given = {"claim": claimed(2.0)} if planned else {"delta": 1e-5}
    alarms = 0
    for _ in range(audits):
        included = rng.random(400) < 0.5
        finding = audit_scores(rng.standard_normal(400), included, analysis=how, **given)
        alarms += finding.epsilon > 0
    assert alarms <= 0.07 * audits


@pytest.mark.parametrize("how", list(Analysis))
def test_true_claims_survive(how):
    """Pure randomised response of each canary, which is where the bound is tight."""
    rng = np.random.default_rng(5)
    kept = 1 / (1 + math.exp(-1.0))
    above = 0
    for _ in range(300):
        included = rng.random(300) < 0.5
        told = np.where(rng.random(300) < kept, included, ~included)
        scores = told + 0.01 * rng.random(300)
        finding = audit_scores(scores, included, delta=0.0 if how is Analysis.GUESSES else 1e-5,
                               guesses=300, analysis=how)  # fmt: skip
        if how is Analysis.GUESSES:
            above += finding.epsilon > 1.0
        else:  # a response of epsilon 1 is 2 Phi^-1(e / (1 + e))-Gaussian DP
            above += finding.epsilon > 2.7
    assert above <= 0.07 * 300


def test_a_search_is_paid_for():
    """With one number of guesses the level is 5 %, with ten it is 0.5 % each."""
    rng = np.random.default_rng(1)
    scores, included = ideal(2000, 4.0, rng)
    free = audit_scores(scores, included, delta=1e-5)
    assert free.facts["numbers_of_guesses_tried"] == 10
    best = max(
        audit_scores(scores, included, delta=1e-5, guesses=max(2, round(2000 * 2.0**-k))).epsilon
        for k in range(10)
    )
    assert 0 < free.epsilon < best


# --- the rest -----------------------------------------------------------------------------------


def test_broken_training_is_refuted():
    rng = np.random.default_rng(2)
    included = rng.random(1000) < 0.5
    finding = audit_scores(included + 0.01 * rng.random(1000), included, claim=claimed(2.0))
    assert finding.refuted
    assert "REFUTES" in str(finding)
    assert finding.to_dict()["verdict"] == "refuted"


def test_the_number_of_guesses_does_not_depend_on_the_coins():
    claim = claimed(4.0)
    expected = planned_guesses(500, 4.0, 1e-5, 0.95, Analysis.GUESSES)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        finding = audit_scores(*ideal(500, 1.0 + seed, rng), claim=claim)
        assert finding.facts["guesses"] == expected


def test_coins_are_fair_and_fresh():
    bits = fair_coins(100_000, SeededCoins(1))
    assert bits.dtype == bool
    assert abs(bits.mean() - 0.5) < 0.006
    assert abs(np.corrcoef(bits[:-1], bits[1:])[0, 1]) < 0.013
    assert not np.array_equal(fair_coins(100), fair_coins(100))


def test_scores_that_are_no_numbers_are_refused():
    """They would read as "at least epsilon 0": as if nothing leaked."""
    included = np.array([True, False] * 50)
    scores = np.where(included, 1.0, np.nan)
    with pytest.raises(ValueError, match=r"scores must be numbers .*NaN in 50 of 100"):
        audit_scores(scores, included, delta=0.0, guesses=100)


@pytest.mark.parametrize("heads", [0, 100, 1000, 2000])
def test_coins_that_cannot_have_been_fair_are_refused(heads):
    included = np.arange(2000) < heads
    if heads == 1000:
        audit_scores(np.arange(2000.0), included, delta=0.0)
        return
    with pytest.raises(ValueError, match=rf"included must be fair .*{heads} of 2000 True"):
        audit_scores(np.arange(2000.0), included, delta=0.0)


def test_a_few_coins_may_fall_alike():
    assert audit_scores([1.0, 2.0, 3.0], np.array([True] * 3), delta=0.0).epsilon == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"included": [1, 0, 1, 0]}, "included must be 4 booleans"),
        ({"scores": [[1.0]]}, "one number for each of at least two"),
        ({"delta": None}, "delta must be given where there is no claim"),
        ({"guesses": 9}, "at most the number of canaries, 4"),
        ({"guesses": 1}, "guesses must be"),
        ({"confidence": 1.0}, "confidence must be"),
        ({"analysis": "magic"}, "analysis must be"),
        ({"claim": claimed(1.0), "delta": 1e-6}, "delta must be at least the claim's"),
    ],
)
def test_mistakes(changes, message):
    given = {"scores": np.arange(4.0), "included": np.array([True, False, True, False]),
             "delta": 1e-5, "guesses": 4} | changes  # fmt: skip
    with pytest.raises(ValueError, match=message):
        audit_scores(given.pop("scores"), given.pop("included"), **given)
