"""What holds for every mechanism that chooses one candidate."""

import json
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core import SYSTEM, Neighbours, Norm, SeededCoins, Sensitivity
from sfumato.core.events import event_from_dict
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.noisy_max import ReportNoisyMax
from sfumato.mechanisms.permute_and_flip import PermuteAndFlip
from sfumato.mechanisms.selection import privacy_loss

VOTE = Sensitivity(1.0, unit="person")


def noisy_max(noise):
    return lambda epsilon, sensitivity, **rest: ReportNoisyMax(epsilon, sensitivity, noise, **rest)


MECHANISMS = {
    "exponential": Exponential,
    "permute-and-flip": PermuteAndFlip,
    "noisy-max-exponential": noisy_max("exponential"),
    "noisy-max-laplace": noisy_max("laplace"),
    "noisy-max-gumbel": noisy_max("gumbel"),
}

every_mechanism = pytest.mark.parametrize("make", MECHANISMS.values(), ids=MECHANISMS)
monotone_or_not = pytest.mark.parametrize("monotone", [False, True])


@every_mechanism
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, True, 1e-300])
def test_bad_epsilon(make, epsilon) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        make(epsilon, VOTE)


@every_mechanism
def test_bad_parameters(make) -> None:
    for sensitivity in (1.0, None, Sensitivity(0.0), Sensitivity(1.0, Norm.L1, dimension=3)):
        with pytest.raises(ValueError, match="sensitivity must be"):
            make(1.0, sensitivity)
    with pytest.raises(ValueError, match="monotone must be False under replace-one"):
        make(1.0, Sensitivity(1.0, neighbours=Neighbours.REPLACE_ONE), monotone=True)
    with pytest.raises(ValueError, match="monotone must be True or False"):
        make(1.0, VOTE, monotone=1)
    with pytest.raises(ValueError, match="default must be"):
        make(1.0, VOTE, default=math.nan)
    mechanism = make(1.0, VOTE)
    for scores, candidates in (([], None), ({}, None), ([1, 2], ["a"]), ({"a": 1}, [])):
        with pytest.raises(ValueError, match="candidates must be"):
            mechanism.release(scores, candidates)
    with pytest.raises(ValueError, match="scores must be one number for each"):
        mechanism.release(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="delta must be"):
        mechanism.guarantee(delta=1)
    with pytest.raises(ValueError, match="confidence must be"):
        mechanism.score_gap(10, confidence=1)


@every_mechanism
def test_accepted_sensitivities(make) -> None:
    for sensitivity in (
        Sensitivity(2.0, Norm.L1),
        Sensitivity(2.0, Norm.LINF, dimension=7),
        Sensitivity(2.0, Norm.L2, dimension=7).to("linf"),
    ):
        assert make(1.0, sensitivity).release([0, 1]).value in (0, 1)
    zero_out = Sensitivity(1.0, neighbours=Neighbours.ZERO_OUT)
    assert make(1.0, zero_out, monotone=True).guarantee().neighbours is Neighbours.ZERO_OUT


@every_mechanism
def test_release_is_stamped_and_its_event_survives_json(make) -> None:
    mechanism = make(0.5, VOTE, monotone=True)
    tested = mechanism.release({"a": 1, "b": 2}, ["a", "b"], coins=SeededCoins(3))
    assert not tested.private
    assert "NOT PRIVATE" in tested.to_dict()["warning"]
    assert (
        tested.value == mechanism.release({"a": 1, "b": 2}, ["a", "b"], coins=SeededCoins(3)).value
    )
    assert mechanism.release([1, 2], coins=SYSTEM).private
    event = mechanism.event
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert event.epsilon == 0.5
    assert (event.relation, event.unit_name) == (Neighbours.ADD_REMOVE, "person")
    assert str(mechanism.guarantee()) == "epsilon 0.5, delta 0, add or remove one person"
    assert mechanism.guarantee(1e-6) == mechanism.guarantee()


@every_mechanism
def test_candidates_are_the_declared_ones(make) -> None:
    mechanism = make(50.0, VOTE)
    votes = {"b": 40, "a": 3, "written in by one person": 1000}
    assert mechanism.release(votes, ["a", "b", "nobody's"]).value == "b"
    with pytest.raises(ValueError, match="names in a private table are private"):
        mechanism.release(votes)
    assert mechanism.release([3, 40], ["a", "b"]).value == "b"
    value = mechanism.release(np.array([3.0, 40.0])).value
    assert value == 1
    assert type(value) is int
    assert mechanism.release((0,)).value == 0


@every_mechanism
def test_no_data_raises_an_error(make) -> None:
    mechanism = make(60.0, VOTE, default=-5.0)
    for odd in (math.nan, math.inf, -math.inf, None, "9", [], 1j, np.nan):
        assert mechanism.log_weights([odd, 0]).tolist() == mechanism.log_weights([-5, 0]).tolist()
        assert mechanism.release([odd, 40, odd]).value == 1
        assert mechanism.release(np.array([odd, 40], dtype=object)).value == 1
        assert mechanism.release({"a": odd, "b": 40}, ["a", "b"]).value == "b"
    for extreme in (1.7e308, -1.7e308, 5e-324, 10**400, Fraction(1, 10**400)):
        assert mechanism.release([extreme, 0, -extreme]).value in (0, 1, 2)
        weights = mechanism.log_weights([extreme, 0, -extreme])
        assert np.isfinite(weights).all()
        assert weights.max() == 0


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 3.7, 1e4, 1e12])
@pytest.mark.parametrize("bound", [1.0, 0.1, 3e-7, 12345.678])
@monotone_or_not
def test_one_step_never_moves_log_weights_by_more_than_allowed(epsilon, bound, monotone) -> None:
    """Exactly, in rationals: the span of w - w' over all candidates is at most epsilon."""
    mechanism = Exponential(epsilon, Sensitivity(bound), monotone=monotone)
    rng = random.Random(repr((epsilon, bound, monotone)))
    delta = Fraction(bound)
    widest = Fraction(0)
    for size in (1e-3, 1.0, 1e3, 1e9, 1e30):
        # Rational scores, so that neighbours can be exactly delta apart.
        scores = [Fraction(rng.gauss(0, size * bound)) for _ in range(40)]
        steps = [delta * (1 if monotone else rng.choice([-1, 1])) for _ in scores]
        steps = [step * rng.choice([0, 1, Fraction(rng.random())]) for step in steps]
        moved = [score + step for score, step in zip(scores, steps, strict=True)]
        before, after = mechanism.log_weights(scores), mechanism.log_weights(moved)
        losses = [Fraction(a) - Fraction(b) for a, b in zip(after, before, strict=True)]
        assert max(losses) - min(losses) <= Fraction(epsilon)
        widest = max(widest, max(losses) - min(losses))
    if epsilon < 1e3:  # beyond, far candidates tie
        assert widest >= (1 - 2**-18) * epsilon  # and not by less than need be


@monotone_or_not
def test_log_weights_are_the_formula(monotone) -> None:
    mechanism = Exponential(0.7, Sensitivity(0.3), monotone=monotone)
    rate = 0.7 / 0.3 / (1 if monotone else 2)
    scores = np.random.default_rng(1).normal(size=50)
    expected = rate * (scores - scores.max())
    assert np.allclose(mechanism.log_weights(scores.tolist()), expected, rtol=2e-6, atol=1e-6)
    exact = Exponential(1.0, Sensitivity(1.0), monotone=monotone).log_weights([5, 3, 0])
    assert exact.tolist() == ([0, -2, -5] if monotone else [0, -1, -2.5])


def test_far_candidates_tie_harmlessly() -> None:
    mechanism = Exponential(1.0, VOTE)
    assert mechanism.log_weights([0, -1e5, -1e30]).tolist() == [0, -4096, -4096]
    # The limit follows epsilon: without privacy the best candidate always wins.
    assert Exponential(1e9, VOTE).log_weights([1, 1 - 1e-3, 0])[1] < -1e5


# Two scores lists one step apart between which the loss comes close to epsilon.
TIGHT = {
    "exponential": ([0] + [1] * 999, [1] + [0] * 999),
    "noisy-max-gumbel": ([0] + [1] * 999, [1] + [0] * 999),
    "permute-and-flip": ([0, 10], [1, 9]),
    "noisy-max-exponential": ([0, 10], [1, 9]),
    "noisy-max-laplace": ([0, 100], [1, 99]),
}
TIGHT_MONOTONE = {
    "exponential": ([0] * 1000, [0] + [1] * 999),
    "noisy-max-gumbel": ([0] * 1000, [0] + [1] * 999),
    "permute-and-flip": ([0, 10], [0, 9]),
    "noisy-max-exponential": ([0, 10], [0, 9]),
    "noisy-max-laplace": ([0, 100], [0, 99]),
}


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@monotone_or_not
@pytest.mark.parametrize("name", MECHANISMS)
def test_privacy_loss_reaches_epsilon_and_no_more(name, monotone, epsilon) -> None:
    """A scale wrong by 10% either way fails."""
    mechanism = MECHANISMS[name](epsilon, VOTE, monotone=monotone)
    one, other = (TIGHT_MONOTONE if monotone else TIGHT)[name]
    loss = privacy_loss(mechanism.probabilities(one), mechanism.probabilities(other))
    assert 0.95 * epsilon <= loss <= epsilon * (1 + 1e-12)


@monotone_or_not
@pytest.mark.parametrize("name", MECHANISMS)
def test_privacy_loss_on_random_neighbours(name, monotone) -> None:
    mechanism = MECHANISMS[name](1.5, VOTE, monotone=monotone)
    rng = np.random.default_rng(5)
    for _ in range(100):
        scores = rng.normal(scale=rng.choice([0.5, 2, 10]), size=rng.integers(2, 8))
        moved = scores + rng.uniform(0 if monotone else -1, 1, scores.size)
        laws = [mechanism.probabilities(s.tolist()) for s in (scores, moved)]
        assert np.allclose([law.sum() for law in laws], 1, rtol=1e-12)
        assert privacy_loss(*laws) <= 1.5 * (1 + 1e-9)


@every_mechanism
@pytest.mark.parametrize("candidates", [2, 100])
def test_score_gap_holds_with_its_confidence(make, candidates) -> None:
    mechanism = make(0.8, Sensitivity(0.5))
    for confidence in (0.5, 0.95, 0.999):
        gap = mechanism.score_gap(candidates, confidence)
        worst = mechanism.probabilities([0.0] + [-gap] * (candidates - 1))
        assert worst[1:].sum() <= 1 - confidence
        # Not vacuous: at 70% of the gap it fails.
        near = mechanism.probabilities([0.0] + [-0.7 * gap] * (candidates - 1))
        assert candidates == 2 or near[1:].sum() > 1 - confidence


@every_mechanism
def test_expected_error_shrinks_to_nothing_with_the_noise(make) -> None:
    errors = [make(epsilon, VOTE).expected_error([3, 2, math.nan]) for epsilon in (0.1, 1, 10, 1e3)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(4 / 3, rel=0.1)
    assert errors[-1] < 1e-12
