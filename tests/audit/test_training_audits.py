"""One call for any method: canaries in, scores out."""

import math

import numpy as np
import pytest

from sfumato.accounting import account
from sfumato.audit import Analysis, audit_games, audit_training, audit_two_runs
from sfumato.core.events import dp_sgd
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins


def claimed(multiplier, delta=1e-5):
    return Guarantee(gaussian_epsilon(multiplier, delta), delta, Neighbours.ADD_REMOVE)


class Noisy:
    """Each canary in a coordinate of its own, with noise."""

    def __init__(self, multiplier, seed=1):
        self.multiplier, self.rng, self.calls = multiplier, np.random.default_rng(seed), []

    def __call__(self, included):
        self.calls.append(included)
        return included + self.multiplier * self.rng.standard_normal(len(included))


def test_one_run():
    method = Noisy(1.0)
    finding = audit_training(method, 5000, claim=claimed(1.0), coins=SeededCoins(1))
    assert not finding.refuted
    assert finding.epsilon > 1.5
    assert finding.facts["runs"] == 1
    assert [len(bits) for bits in method.calls] == [5000]


def test_runs_are_pooled():
    """Ten runs of 500 canaries say as much as one of 5000 that do not meet."""
    method, told = Noisy(1.0), []
    finding = audit_training(
        method, 500, runs=10, claim=claimed(1.0), coins=SeededCoins(1),
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert finding.facts["canaries"] == 5000
    assert finding.epsilon > 1.5
    assert told == [(i, 10) for i in range(1, 11)]
    assert len({bits.tobytes() for bits in method.calls}) == 10


def test_many_runs_with_one_canary():
    finding = audit_training(
        Noisy(1.0), 1, runs=4000, claim=claimed(1.0), analysis=Analysis.GAUSSIAN,
        coins=SeededCoins(1),
    )  # fmt: skip
    assert not finding.refuted
    assert finding.epsilon > 0.75 * finding.claim.epsilon
    assert finding.facts["runs"] == 4000


@pytest.mark.parametrize("analysis", list(Analysis))
def test_a_method_that_lies_is_caught(analysis):
    finding = audit_training(
        Noisy(0.3), 1000, claim=claimed(1.0), analysis=analysis, coins=SeededCoins(1)
    )
    assert finding.refuted


def test_games_without_assumptions_bound_epsilon_at_delta():
    rng = np.random.default_rng(1)
    kept = 1 / (1 + math.exp(-1.0))  # randomised response of epsilon 1
    inside = (rng.random(20_000) < kept).astype(float)
    outside = (rng.random(20_000) > kept).astype(float)
    finding = audit_games(inside, outside, delta=0.0, threshold=0.5, analysis=Analysis.GUESSES)
    assert 0.9 < finding.epsilon < 1.0
    learned = audit_games(inside, outside, delta=0.0, analysis=Analysis.GUESSES)
    assert 0.85 < learned.epsilon < 1.0
    assert learned.facts["hits"][1] == 10_000


@pytest.mark.parametrize(("noise", "caught"), [(1.0, False), (0.8, True)])
def test_two_runs_step_by_step(noise, caught):
    """10,000 steps at q = 0.01 with noise multiplier 1, or with four fifths of it."""
    rng = np.random.default_rng(1)
    claim = account(dp_sgd(1.0, 0.01, 10_000), 1e-5)
    finding = audit_two_runs(
        1 + noise * rng.standard_normal(10_000), noise * rng.standard_normal(10_000),
        sample_rate=0.01, claim=claim,
    )  # fmt: skip
    assert finding.refuted == caught
    assert finding.epsilon > 0.75 * claim.epsilon
    assert finding.facts["multiplier_at_most"] > noise
    nothing = audit_two_runs(np.zeros(100), np.zeros(100), sample_rate=0.01, delta=1e-5)
    assert nothing.epsilon == 0


def test_learned_thresholds_do_not_count_their_own_games():
    """Scores that know their own place: what chooses the threshold is not what is counted."""
    alarms = 0
    rng = np.random.default_rng(4)
    for _ in range(200):
        found = audit_games(rng.standard_normal(60), rng.standard_normal(60), delta=1e-5,
                            confidence=0.9)  # fmt: skip
        alarms += found.epsilon > 0
    assert alarms <= 0.1 * 200


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit_training(lambda b: b[:-1], 10, delta=1e-5), "to return 10 scores"),
        (lambda: audit_training(lambda b: b, 0, delta=1e-5), "canaries must be"),
        (lambda: audit_training(lambda b: b, 10, runs=0, delta=1e-5), "runs must be"),
        (lambda: audit_games([1.0], [2.0], delta=1e-5), "at least four games"),
        (lambda: audit_games(np.ones(9), np.ones(9)), "delta must be given"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
