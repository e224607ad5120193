"""The audit of steps: our engine passes, broken ones are caught."""

import numpy as np
import pytest

from sfumato.audit import audit_step
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import Automatic
from sfumato.learning.dp_sgd.clipping import ROUNDING
from sfumato.learning.dp_sgd.games import EngineSteps
from sfumato.learning.dp_sgd.gradients.summing import ALLOWANCE
from sfumato.learning.dp_sgd.noise import CoinNoise


def audited(engine, games=30_000, seed=1, **more):
    coins = SeededCoins(seed)
    return audit_step(engine, multiplier=engine.multiplier, games=games, coins=coins, **more)


class Altered:
    """The engine's noise with a fault."""

    name, private = "altered", True

    def __init__(self, factor=1.0, reused=False):
        self.inner, self.factor = CoinNoise(SeededCoins(2)), factor
        self.reused, self.kept = reused, None

    def normal(self, like, std):
        if self.kept is None or not self.reused:
            self.kept = self.factor * self.inner.normal(like, std)
        return self.kept.clone()


@pytest.mark.parametrize(
    "engine",
    [
        EngineSteps(1.0, coins=SeededCoins(2)),
        EngineSteps(0.7, steps=3, coins=SeededCoins(3)),
        EngineSteps(5.0, coins=SeededCoins(4)),
        EngineSteps(1.0, Automatic(0.3), coins=SeededCoins(5)),
        EngineSteps(1.0, batch_size=4096, coins=SeededCoins(6)),
    ],
    ids=["one step", "three steps", "much noise", "automatic clipping", "physical batches"],
)
def test_our_steps_are_as_noisy_as_they_say(engine):
    finding = audited(engine, 60_000)
    assert not finding.refuted
    # Contributions are shorter than claimed by the allowance for rounding, 1.8 %.
    assert 0.83 * finding.claim.epsilon < finding.epsilon
    assert finding.claim.epsilon == gaussian_epsilon(engine.multiplier, 1e-5)
    assert 1 <= finding.facts["multiplier_at_most"] / engine.multiplier < 1.16


@pytest.mark.parametrize("multiplier", [0.7, 1.0, 5.0])
def test_noise_a_fifth_too_small_is_caught(multiplier):
    assert audited(EngineSteps(multiplier, noise=Altered(0.8))).refuted


def test_noise_used_twice_is_caught():
    """Up and down with the same noise: the difference has none."""
    finding = audited(EngineSteps(1.0, steps=2, noise=Altered(reused=True)), 2000)
    assert finding.refuted
    assert not audited(EngineSteps(1.0, steps=2, coins=SeededCoins(2)), 2000).refuted
    assert finding.epsilon > 10


def test_clipping_after_averaging_is_caught():
    """A numpy engine that clips the mean of the lot's gradients to C = 1, noise C / L on it."""
    rng = np.random.default_rng(1)

    def step(included):
        games = len(included)
        mean = 1000.0 * included / games
        mean /= max(1.0, float(np.linalg.norm(mean)))
        return ((mean + rng.standard_normal(games) / games) * games)[:, None]

    assert audit_step(step, multiplier=1.0, games=2000, coins=SeededCoins(1)).refuted


def test_clipping_that_does_not_clip_is_caught():
    rng = np.random.default_rng(1)

    def step(included):
        return 3.0 * included[:, None] + rng.standard_normal((len(included), 1))

    assert audit_step(step, multiplier=1.0, games=2000, coins=SeededCoins(1)).refuted


def test_true_claims_are_refuted_no_more_often_than_stated():
    rng = np.random.default_rng(2)

    def step(included):
        return included[:, None] + rng.standard_normal((len(included), 1))

    coins = SeededCoins(3)
    refuted = sum(
        audit_step(step, multiplier=1.0, games=900, confidence=0.8, coins=coins).refuted
        for _ in range(200)
    )
    assert refuted <= 0.2 * 200


def test_a_step_that_shows_nothing():
    finding = audit_step(lambda included: np.zeros((len(included), 2)), multiplier=1.0, games=300)
    assert finding.epsilon == 0


def test_the_games_of_the_engine():
    """Canaries that are in push by one clip norm, at the noise that was asked for.

    The clip norm less the allowance for rounding.
    """
    engine = EngineSteps(0.01, copies=1, steps=2, coins=SeededCoins(1))
    included = np.array([True, False] * 100)
    shown = engine(included)
    pushed = included[:, None] * (1 - ROUNDING["float32"] - ALLOWANCE["float32"])
    assert np.allclose(shown, pushed, atol=0.06)
    assert 0.009 < (shown - pushed).std() < 0.011
    assert EngineSteps(4.2).copies == 4
    assert EngineSteps(1.0, steps=4, copies=2).multiplier == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"games": 10}, "games must be"),
        ({"multiplier": 0}, "multiplier must be"),
        ({"step": lambda included: included}, "step must be to return"),
    ],
)
def test_mistakes(changes, message):
    given = {"step": lambda b: b[:, None] * 1.0, "multiplier": 1.0, "games": 200} | changes
    with pytest.raises(ValueError, match=message):
        audit_step(given.pop("step"), **given)
