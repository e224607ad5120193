"""Every claim as printed is refuted, every correction survives, and known figures are met."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from sfumato.accounting import account
from sfumato.accounting.theorems import optimal
from sfumato.audit.claims import Kind, claim, claims
from sfumato.audit.claims import mechanisms as mechanism_claims
from sfumato.audit.exact import hockey_stick
from sfumato.core.events import dp_sgd
from sfumato.core.gaussian_profile import gaussian_delta, gaussian_epsilon

NAMES = [known.name for known in claims()]


@pytest.mark.parametrize("name", NAMES)
def test_the_version_as_printed_is_refuted(name, results):
    result = results[name]
    assert result.refuted
    assert result.found.refuted  # the finding says so, too
    assert result.found.claim == result.claim.claimed


@pytest.mark.parametrize("name", NAMES)
def test_the_corrected_version_survives(name, results):
    result = results[name]
    assert result.repaired
    assert not result.corrected.refuted
    assert result.corrected.claim == result.claim.holds


@pytest.mark.parametrize("name", NAMES)
def test_the_corrected_version_holds_for_the_same_setting(name):
    known = claim(name)
    assert known.holds.epsilon >= known.claimed.epsilon
    assert known.holds.delta == known.claimed.delta
    assert known.holds.neighbours is known.claimed.neighbours


@pytest.mark.parametrize("name", NAMES)
def test_exact_audits_do_not_sample(name, results):
    result = results[name]
    exact = result.claim.kind is Kind.EXACT
    assert result.found.confidence == (1.0 if exact else 0.99)


@pytest.mark.parametrize("name", [name for name in NAMES if claim(name).kind is Kind.EXACT])
def test_exact_findings_repeat(name, results):
    assert claim(name).audit().epsilon == results[name].found.epsilon


# --- known figures ------------------------------------------------------------------------------


def found(results, name):
    return results[name].found.epsilon


def test_the_missing_2_costs_nearly_a_factor_2(results):
    assert found(results, "exponential-without-the-2") == pytest.approx(1.9977, abs=1e-4)


@pytest.mark.parametrize(("constant", "first_false"), [(1.25, 8.42), (2.0, 9.40), (1.0, 7.97)])
def test_the_gaussian_formulas_fail_from_some_epsilon_on(constant, first_false):
    for epsilon, holds in ((first_false - 0.01, True), (first_false + 0.01, False)):
        sigma = math.sqrt(2 * math.log(constant / 1e-5)) / epsilon
        assert (gaussian_delta(sigma, epsilon) <= 1e-5) is holds


def test_the_gaussian_audit_is_the_exact_curve(results):
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    assert gaussian_delta(sigma, 10.0) == pytest.approx(2.27e-5, rel=3e-3)
    exact = gaussian_epsilon(sigma, 1e-5)
    assert found(results, "gaussian-formula-with-1-25") == pytest.approx(exact, abs=1e-5)
    assert found(results, "gaussian-formula-with-1-25") <= exact


def test_a_replaced_record_moves_twice_as_far(results):
    assert found(results, "gaussian-replaced-as-removed") == pytest.approx(1.99309, abs=1e-4)


def test_a_mean_over_two_is_twice_as_sharp_as_one_over_one(results):
    assert found(results, "mean-over-a-private-count") == pytest.approx(
        math.log(2) + 0.05, abs=1e-3
    )


def test_a_turned_vote_moves_the_gap_by_two(results):
    exact = 0.1 - math.log((2 + 12.5) / (2 + 12.4))
    assert found(results, "votes-counted-once") == pytest.approx(exact, abs=1e-9)


def test_fresh_noise_adds_up(results):
    assert found(results, "fifty-answers-for-one") == pytest.approx(50 / math.sqrt(2), abs=1e-6)


def test_sampling_is_a_logarithm(results):
    one = math.log1p(0.01 * math.expm1(2.0))
    assert found(results, "sampling-multiplies-epsilon") == pytest.approx(10 * one, abs=1e-6)
    one = math.log1p(0.01 * math.expm1(3.0))
    assert found(results, "sampling-at-most-twice") == pytest.approx(one, abs=1e-6)
    assert math.log1p(0.01 * math.expm1(1.25)) < 0.02 * 1.25


def test_ten_thousand_answers_reach_the_optimal_bound(results):
    exact = optimal(1.2, 0.0, 10_000, 0.1)
    shown = found(results, "strong-composition-without-its-terms")
    assert exact * (1 - 1e-5) <= shown <= exact


@pytest.mark.parametrize(
    ("name", "noise", "steps"),
    [
        ("moments-without-their-constant", 1.0, 100),
        ("layers-as-separate-lots", 1 / math.sqrt(2), 1_000),
    ],
)
def test_losses_rounded_down_stay_below_the_accountant(name, noise, steps, results):
    upper = account(dp_sgd(noise, 0.01, steps), 1e-5).epsilon
    assert upper - 1e-5 * steps <= found(results, name) <= upper


def test_shuffling_lies_between_poisson_and_no_amplification(results):
    shown = found(results, "shuffled-as-poisson")
    assert 0.9 * gaussian_epsilon(1.0, 1e-5) < shown < gaussian_epsilon(1.0, 1e-5)


def test_the_largest_batch_is_as_large_as_simulated():
    rng = np.random.default_rng(1)
    batches = rng.standard_normal((20_000, 100))
    batches[:, 0] += 2
    for threshold in (2.0, 3.0, 4.0):
        exact = 1 - ndtr(threshold) ** 99 * ndtr(threshold - 2)
        assert (batches.max(axis=1) > threshold).mean() == pytest.approx(exact, abs=0.015)


def test_a_person_who_was_never_skipped_is_certain(results):
    assert found(results, "empty-lots-skipped") == math.inf


def test_the_size_of_the_noise_tells_the_number_of_people(results):
    # The squared length has relative deviation sqrt(2 / d) = 0.0014, and moves by 0.02.
    assert found(results, "size-read-off-the-noise") > 100


@pytest.mark.parametrize(
    ("name", "multiplier"),
    [
        ("mean-of-the-realised-batch", 3.2 / 2),
        ("batch-clipped-as-a-whole", 2.0 / 2),
        ("noise-split-among-workers", 2.0 / math.sqrt(8)),
    ],
)
def test_sampled_audits_stay_below_the_noise_there_is(name, multiplier, results):
    assert found(results, name) < gaussian_epsilon(multiplier, 1e-5)


def test_two_coins_are_a_law():
    law = mechanism_claims._two_coins(0.3)
    assert sum(law) == pytest.approx(1.0)
    assert hockey_stick(law, law, 0.0) == 0.0
