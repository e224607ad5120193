"""Audits by sampling: below every true claim, above false ones, and only from held-out draws."""

import json
import math

import numpy as np
import pytest

from sfumato.audit.mechanism import audit_mechanism, draws_of, searched_pairs
from sfumato.core import SeededCoins, Sensitivity
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.local import LocalLaplace
from sfumato.mechanisms.noisy_max import ReportNoisyMax
from sfumato.mechanisms.permute_and_flip import PermuteAndFlip
from sfumato.mechanisms.randomized_response import RandomizedResponse
from sfumato.mechanisms.sparse_vector import SparseVector

ONE = Sensitivity(1.0)
CLAIM = Guarantee(1.0, 0.0, Neighbours.ADD_REMOVE)

# Each with the share of its claim that its audit must reach.
IN_BULK = [
    (Laplace.calibrate(ONE, epsilon=1.0), 0.9),
    (Laplace.calibrate(Sensitivity(3.0, dimension=5), epsilon=1.0), 0.9),
    (DiscreteLaplace.calibrate(Sensitivity(3), epsilon=1.0), 0.9),
    (DiscreteLaplace.calibrate(Sensitivity(2, dimension=3), epsilon=1.0), 0.9),
    (LocalLaplace(1.0, -3.0, 5.5), 0.9),
    (RandomizedResponse(1.0), 0.9),
    (RandomizedResponse(2.0, categories=5), 0.9),
    (Gaussian.calibrate(ONE, epsilon=1.0, delta=1e-5), 0.2),
    (Gaussian.calibrate(Sensitivity(2.0, "l2", dimension=4), epsilon=1.0, delta=1e-5), 0.2),
    (DiscreteGaussian.calibrate(ONE, epsilon=1.0, delta=1e-5), 0.2),
    (
        DiscreteGaussian.calibrate(
            Sensitivity(math.sqrt(3), "l2", dimension=3), epsilon=1.0, delta=1e-5
        ),
        0.1,
    ),
]
ONE_BY_ONE = [
    (Exponential(2.0, ONE), 0.4),
    (Exponential(2.0, ONE, monotone=True), 0.4),
    (PermuteAndFlip(2.0, ONE), 0.6),
    (ReportNoisyMax(2.0, ONE), 0.6),
    (ReportNoisyMax(2.0, ONE, noise="laplace", monotone=True), 0.4),
    (ReportNoisyMax(2.0, ONE, noise="gumbel"), 0.4),
    (SparseVector(4.0, ONE, threshold=10.0), 0.2),
]


def called(mechanism):
    return type(mechanism).__name__


@pytest.mark.parametrize(("mechanism", "share"), IN_BULK, ids=called)
def test_every_additive_mechanism_stays_below_its_claim_and_comes_near(mechanism, share):
    finding = audit_mechanism(mechanism, samples=60_000, coins=SeededCoins(11))
    assert not finding.refuted
    assert finding.claim == mechanism.guarantee(finding.delta)
    assert finding.epsilon > share * finding.claim.epsilon


@pytest.mark.parametrize(("mechanism", "share"), ONE_BY_ONE, ids=called)
def test_every_choice_stays_below_its_claim_and_comes_near(mechanism, share):
    finding = audit_mechanism(mechanism, samples=4000, coins=SeededCoins(12))
    assert not finding.refuted
    assert finding.epsilon > share * finding.claim.epsilon


def test_a_scale_that_is_a_fifth_too_small_is_caught():
    wrong = Laplace(0.8, ONE)
    for seed in range(5):
        finding = audit_mechanism(wrong, claim=CLAIM, samples=20_000, coins=SeededCoins(seed))
        assert finding.refuted
    assert "REFUTES the claimed epsilon 1" in str(finding)
    assert str(finding).endswith(f", by the event '{finding.facts['event']}'")


@pytest.mark.parametrize("shape", [(), (3,)])
def test_draws_that_are_no_numbers_are_refused(shape):
    """They are alike on all inputs, and would read as "consistent"."""

    def broken(value, count):
        return np.full((count, *shape), np.nan)

    with pytest.raises(ValueError, match=r"draw must be .*NaN in every draw"):
        audit_mechanism(broken, [(0, 1)], claim=CLAIM, samples=1000)


def test_a_sigma_that_is_a_fifth_too_small_is_caught_by_its_mu():
    right = Gaussian.calibrate(ONE, epsilon=1.0, delta=1e-5)
    claim = right.guarantee(1e-5)
    for sigma, refuted in ((right.sigma, False), (0.8 * right.sigma, True)):
        noise = Gaussian(sigma, ONE, delta=1e-5)
        found = audit_mechanism(noise, claim=claim, gaussian=True, coins=SeededCoins(3))
        assert found.refuted is refuted
        assert found.epsilon > 0.8
        assert 0.8 / sigma < found.facts["mu_at_least"] < 1 / sigma


def test_gaussian_is_refused_where_the_noise_is_not():
    small = DiscreteGaussian.calibrate(ONE, epsilon=4.0, delta=1e-6)
    with pytest.raises(ValueError, match="gaussian must be False where the noise is not Gaussian"):
        audit_mechanism(small, gaussian=True)


def test_choices_without_the_two_are_caught():
    """The exponential mechanism as it is often printed: a claim of half its epsilon."""
    printed = Exponential(4.0, ONE)
    claim = Guarantee(2.0, 0.0, Neighbours.ADD_REMOVE)
    assert audit_mechanism(printed, claim=claim, samples=4000, coins=SeededCoins(1)).refuted


def test_noise_added_in_floating_point_is_caught_where_this_package_is_not():
    rng = np.random.default_rng(1)

    def textbook(value, count):
        return value + np.sign(rng.random(count) - 0.5) * np.log(1 - rng.random(count))

    finding = audit_mechanism(textbook, [(0.0, 1.0)], claim=CLAIM, samples=20_000)
    assert finding.epsilon > 5
    ours = draws_of(Laplace(1.0, ONE), SeededCoins(1))
    assert not audit_mechanism(ours, [(0.0, 1.0)], claim=CLAIM, samples=20_000).refuted


def coin(rng, rates):
    return lambda value, count: (rng.random(count) < rates[value]).astype(int)


def excesses(draw, pairs, claimed, repetitions, confidence, samples=400):
    found = [
        audit_mechanism(draw, pairs, confidence=confidence, samples=samples).epsilon
        for _ in range(repetitions)
    ]
    return sum(epsilon > claimed for epsilon in found)


def allowed(repetitions, rate):
    """Four standard deviations above the expected number."""
    return repetitions * rate + 4 * math.sqrt(repetitions * rate * (1 - rate))


def test_the_bound_exceeds_a_tight_claim_no_more_often_than_it_says():
    keep = math.e / (1 + math.e)
    draw = coin(np.random.default_rng(7), {0: keep, 1: 1 - keep})
    assert excesses(draw, [(0, 1)], 1.0, 300, 0.8) <= allowed(300, 0.2)


@pytest.mark.slow
def test_a_search_over_many_pairs_is_covered_by_the_confidence():
    """All pairs are alike and the claim is 0: whatever the search keeps, it kept by luck."""
    rng = np.random.default_rng(8)

    def draw(value, count):
        return np.round(rng.normal(size=count), 2)

    pairs = [(0, i) for i in range(8)]
    assert excesses(draw, pairs, 0.0, 80, 0.8, samples=300) <= allowed(80, 0.2)


@pytest.mark.slow
def test_coverage_at_length():
    rng = np.random.default_rng(9)
    keep = math.e / (1 + math.e)
    assert excesses(coin(rng, {0: keep, 1: 1 - keep}), [(0, 1)], 1.0, 4000, 0.9) <= allowed(
        4000, 0.1
    )

    def laplace(value, count):
        return np.round((value + rng.laplace(size=count)) * 2**10)

    assert excesses(laplace, [(0, 1), (1, 0)], 1.0, 2000, 0.9, 1000) <= allowed(2000, 0.1)


class Recorder:
    """Draws that tell everything apart while the audit learns, and nothing afterwards."""

    def __init__(self, learning_calls):
        self.learning_calls = learning_calls
        self.calls = []

    def __call__(self, value, count):
        self.calls.append((value, count))
        learning = len(self.calls) <= self.learning_calls
        return np.full(count, value if learning else 0.0)


def test_what_is_reported_comes_from_the_held_out_half_alone():
    draw = Recorder(learning_calls=2)
    finding = audit_mechanism(draw, [(0.0, 1.0)], samples=1000)
    assert finding.epsilon == 0
    assert draw.calls == [(0.0, 500), (1.0, 500), (0.0, 500), (1.0, 500)]
    # The event was perfect on what it was learned from: all of one input, none of the other.
    assert finding.facts["inside"] == finding.facts["outside"]
    honest = audit_mechanism(Recorder(learning_calls=99), [(0.0, 1.0)], samples=1000)
    assert honest.epsilon > 4


def test_the_same_event_gets_the_same_bound_whatever_was_seen_while_learning():
    """Non-interference: the learning draws reach the finding through the event only."""
    held = np.random.default_rng(1).random((2, 500)) < [[0.8], [0.3]]

    def scripted(strength):
        calls = []

        def draw(value, count):
            calls.append(value)
            if len(calls) > 2:
                return held[value].astype(float)
            rate = 0.5 + (strength if value == 0 else -strength)
            return (np.arange(count) < count * rate).astype(float)

        return draw

    weak, strong = (audit_mechanism(scripted(s), [(0, 1)], samples=1000) for s in (0.2, 0.3))
    assert weak.facts["event"] == strong.facts["event"]
    assert weak.epsilon == strong.epsilon > 0


def test_the_best_pair_is_searched_for():
    """Noise that depends on the value: only near 30 is it too small. Nobody said where."""
    rng = np.random.default_rng(4)

    def draw(value, count):
        scale = 0.3 if 29 <= value <= 31 else 1.0
        return np.round((value + scale * rng.laplace(size=count)) * 2**10)

    pairs = searched_pairs(range(0, 60, 3), lambda value: [value + 1, value - 1], most=30)
    finding = audit_mechanism(draw, pairs, claim=CLAIM, samples=8000)
    assert finding.refuted
    assert 30 in finding.facts["pair"]
    assert finding.facts["pairs_tried"] == 30


def test_a_finding_can_be_repeated_doubted_and_stored():
    mechanism = SparseVector(4.0, Sensitivity(0.1), threshold=0.3)
    finding = audit_mechanism(mechanism, samples=200, coins=SeededCoins(1))
    known = json.loads(json.dumps(finding.to_dict()))
    assert known["facts"]["samples"] == 200
    assert known["facts"]["inside"][1] == 100
    assert known["confidence"] == 0.99
    assert {"pair", "event", "likelier_on", "outside", "pairs_tried"} <= set(known["facts"])
    assert not finding.private
    marked = audit_mechanism(draws_of(mechanism), [([0.1], [0.2])], samples=200, private=True)
    assert marked.private


def test_draws_are_in_bulk_where_they_can_be():
    vector = Laplace(1.0, Sensitivity(1.0, dimension=3))
    draws = draws_of(vector, SeededCoins(1))
    assert draws.in_bulk
    assert draws(np.zeros(3), 7).shape == (7, 3)
    assert draws_of(RandomizedResponse(1.0), SeededCoins(1))(1, 5).shape == (5,)
    chosen = draws_of(Exponential(1.0, ONE), SeededCoins(1))
    assert not chosen.in_bulk
    assert set(chosen([0, 0], 50)) == {0, 1}


def test_arguments_are_checked():
    draw = coin(np.random.default_rng(1), {0: 0.5, 1: 0.5})
    with pytest.raises(ValueError, match="pairs must be at least one pair"):
        audit_mechanism(draw, [])
    with pytest.raises(ValueError, match="pairs must be at least one pair"):
        audit_mechanism(draw)
    with pytest.raises(ValueError, match="samples must be a whole number, 128 or above"):
        audit_mechanism(draw, [(0, 1)], samples=100)
    with pytest.raises(ValueError, match=r"draw must be a function that returns 64 outputs"):
        audit_mechanism(lambda value, count: np.zeros(3), [(0, 1)], samples=128)
    with pytest.raises(ValueError, match="confidence must be strictly between 0 and 1"):
        audit_mechanism(draw, [(0, 1)], confidence=1.0)
    with pytest.raises(ValueError, match=r"draw must be a function"):
        audit_mechanism(3.0, [(0, 1)])


def test_long_inputs_are_not_copied_into_the_record():
    rng = np.random.default_rng(1)
    pair = (np.zeros((50, 4)), [0.0] * 100)
    finding = audit_mechanism(lambda value, count: rng.normal(size=count), [pair], samples=200)
    assert finding.facts["pair"] == ["array of shape (50, 4)", "100 entries"]
