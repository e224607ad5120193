"""Strategies: sensitivities against all patterns of participation, and the noise that is drawn."""

import copy
import itertools
import json
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd.correlated.drawing import CorrelatedNoise
from sfumato.learning.dp_sgd.correlated.strategies import (
    BandedNoise,
    BufferedNoise,
    Correlation,
    IndependentNoise,
    TreeNoise,
)
from sfumato.learning.dp_sgd.noise import ChaChaNoise, CoinNoise

ALL = [
    IndependentNoise(),
    BandedNoise(1),
    BandedNoise(3),
    BandedNoise(5),
    BandedNoise(3, (2.0, 1.5, 0.5)),
    BandedNoise(4, (0.3, 0.1, 0.1, 0.0)),  # not single-precision numbers, over the first
    BandedNoise.square_root(8),
    BufferedNoise(2),
    BufferedNoise(3, (0.9, 0.3), (0.2, 0.1)),
    TreeNoise(),
    TreeNoise(restart=3),
    TreeNoise(restart=4),
]
strategies = st.sampled_from(ALL)


def names(strategy):
    return json.dumps(strategy.to_dict())


def blocks(matrix, cuts):
    """What C becomes in a run that is cut off before each of these steps and begins afresh."""
    steps, out = len(matrix), np.zeros_like(matrix)
    for first, last in itertools.pairwise([0, *cuts, steps]):
        out[first:last, first:last] = matrix[: last - first, : last - first]
    return out


def every_cut(steps):
    return itertools.chain.from_iterable(
        itertools.combinations(range(1, steps), n) for n in range(steps)
    )


def worst(matrix, pattern):
    """The largest ||C u||^2 over u with rows of norm 1 at these steps, if none cancels."""
    columns = matrix[:, list(pattern)]
    return np.abs(columns.T @ columns).sum()


# --- sensitivity ----------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ALL, ids=names)
@pytest.mark.parametrize("steps", [1, 2, 7, 16])
def test_columns_have_norm_one_at_most(strategy, steps):
    matrix = strategy.matrix(steps)
    assert (np.triu(matrix, 1) == 0).all()
    assert (np.diag(matrix) > 0).all()
    assert matrix.min() > -1e-12  # so that contributions which agree are the worst
    longest = np.linalg.norm(matrix, axis=0).max()
    assert longest <= 1 + 1e-9
    assert longest == pytest.approx(1)  # and no noise is wasted


@pytest.mark.parametrize("strategy", ALL, ids=names)
@pytest.mark.parametrize("separation", [1, 2, 3, 4])
def test_sensitivity_is_never_below_the_truth(strategy, separation):
    """Over all places of a unit, and over all ways in which a run can be cut off and go on."""
    steps = 8
    matrix, truth = strategy.matrix(steps), 0.0
    for count in range(1, math.ceil(steps / separation) + 1):
        cost = strategy.cost(steps, count, separation)
        assert cost >= count
        for cuts in every_cut(steps):
            cut = blocks(matrix, cuts)
            for first in range(separation):
                pattern = range(first, steps, separation)[:count]
                truth = worst(cut, pattern)
                assert truth <= cost * (1 + 1e-9), (count, cuts, first)
        assert strategy.cost(steps, 1, separation) == 1


@pytest.mark.parametrize("strategy", [s for s in ALL if not isinstance(s, TreeNoise)], ids=names)
@pytest.mark.parametrize(("separation", "count"), [(1, 3), (2, 4), (3, 2), (5, 2)])
def test_toeplitz_sensitivity_is_exact(strategy, separation, count):
    matrix = strategy.matrix(10)
    truth = max(worst(matrix, range(first, 10, separation)[:count]) for first in range(separation))
    assert strategy.cost(10, count, separation) == pytest.approx(max(truth, count))


def test_tree_sensitivity_is_not_far_off():
    for strategy, steps, separation in ((TreeNoise(), 16, 4), (TreeNoise(restart=4), 16, 4)):
        count = steps // separation
        truth = max(
            worst(strategy.matrix(steps), range(first, steps, separation))
            for first in range(separation)
        )
        assert truth <= strategy.cost(steps, count, separation) <= 1.5 * truth


@pytest.mark.parametrize("bands", [1, 2, 3, 4])
def test_banded_columns_at_least_that_far_apart_are_orthogonal(bands):
    """Whatever the distances: every pattern with so many steps in between."""
    steps, strategy = 9, BandedNoise(bands)
    matrix = strategy.matrix(steps)
    for count in range(1, steps + 1):
        for pattern in itertools.combinations(range(steps), count):
            if all(b - a >= bands for a, b in itertools.pairwise(pattern)):
                assert worst(matrix, pattern) <= strategy.cost(steps, count, bands) * (1 + 1e-12)
                assert strategy.cost(steps, count, bands) == count


@settings(max_examples=200, deadline=None)
@given(strategies, st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_no_contribution_moves_the_release_further(strategy, steps, separation, seed):
    rng = np.random.default_rng(seed)
    u = np.zeros((steps, 3))
    taken = np.arange(rng.integers(separation), steps, separation)
    u[taken] = rng.normal(size=(len(taken), 3))
    u[taken] /= np.linalg.norm(u[taken], axis=1, keepdims=True)
    if not len(taken):
        return
    cuts = sorted(set(rng.integers(1, steps + 1, size=2).tolist()) - {steps})
    moved = np.square(blocks(strategy.matrix(steps), cuts) @ u).sum()
    assert moved <= strategy.cost(steps, len(taken), separation) * (1 + 1e-9)


# --- noise ----------------------------------------------------------------------------------------


class Unit:
    """Fresh noise as unit vectors, one after the other: what is drawn shows the whole recursion."""

    name, private = "unit", False

    def __init__(self):
        self.drawn = 0

    def normal(self, like, std):
        out = torch.zeros_like(like)
        out.view(-1)[self.drawn] = std
        self.drawn += 1
        return out


def drawn(strategy, steps, std=1.0, restart_at=()):
    """The matrix that takes fresh noise to each step's noise."""
    noise, like = CorrelatedNoise(strategy.recursion(steps), Unit()), torch.zeros(2, steps).double()
    rows = []
    for step in range(steps):
        if step in restart_at:
            noise.start()
        rows.append(noise.noise_for("w", like, std).view(-1).numpy())
    return np.array(rows)


@pytest.mark.parametrize("strategy", ALL, ids=names)
@pytest.mark.parametrize("steps", [1, 2, 5, 16, 21])
def test_what_is_drawn_is_the_inverse_exactly(strategy, steps):
    rows = drawn(strategy, steps)
    inverse = np.linalg.inv(strategy.matrix(steps))
    assert rows @ rows.T == pytest.approx(inverse @ inverse.T, rel=1e-6, abs=1e-6)
    if not isinstance(strategy, TreeNoise):
        assert rows[:, :steps] == pytest.approx(inverse, abs=1e-9)


@pytest.mark.parametrize("strategy", ALL, ids=names)
def test_a_new_block_keeps_nothing(strategy):
    rows = drawn(strategy, 11, restart_at=(4, 9))
    inverse = np.linalg.inv(blocks(strategy.matrix(11), (4, 9)))
    assert rows @ rows.T == pytest.approx(inverse @ inverse.T, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("strategy", ALL, ids=names)
@pytest.mark.parametrize("steps", [1, 5, 12])
def test_errors_are_those_of_what_is_drawn(strategy, steps):
    prefixes = np.cumsum(drawn(strategy, steps), axis=0)
    variances = np.square(prefixes).sum(1)
    assert strategy.prefix_variances(steps) == pytest.approx(variances, rel=1e-9)
    found = sf.prefix_error(strategy, steps, noise_multiplier=3.0)
    assert found.mean == pytest.approx(3 * math.sqrt(variances.mean()))
    assert found.largest == pytest.approx(3 * math.sqrt(variances.max()))


@pytest.mark.parametrize("source", [CoinNoise, ChaChaNoise])
@pytest.mark.parametrize("strategy", ALL, ids=names)
def test_covariance_of_noise_over_steps(strategy, source):
    steps, count, std = 6, 40_000, 2.5
    noise = CorrelatedNoise(strategy.recursion(steps), source(SeededCoins(7)))
    like = torch.zeros(200, count // 200)
    seen = np.array([noise.noise_for("w", like, std).view(-1).numpy() for _ in range(steps)])
    inverse = np.linalg.inv(strategy.matrix(steps))
    wanted = std**2 * inverse @ inverse.T
    spread = np.sqrt(np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / math.sqrt(count)
    # Five standard errors, of which one is 0.7 % of a variance: 10 % would be fourteen.
    assert (np.abs(np.cov(seen) - wanted) < 5 * spread).all()


def test_parameters_have_noise_of_their_own():
    noise = CorrelatedNoise(BandedNoise(4).recursion(10), CoinNoise(SeededCoins(3)))
    like = torch.zeros(20_000)
    one, two = (
        np.array(rows)
        for rows in zip(
            *([noise.noise_for(name, like, 1.0).numpy() for name in ("a", "b")] for _ in range(5)),
            strict=True,
        )
    )
    assert np.abs(np.corrcoef(np.concatenate([one, two]))[:5, 5:]).max() < 0.04


def test_noise_keeps_the_sum_s_type_and_is_never_copied():
    noise = CorrelatedNoise(BandedNoise(3).recursion(4), CoinNoise(SeededCoins(1)))
    like = torch.zeros(2, 3, dtype=torch.float64)
    for _ in range(3):
        found = noise.noise_for("w", like, 1.0)
        assert (found.shape, found.dtype) == (like.shape, like.dtype)
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied"):
            way(noise)


@pytest.mark.parametrize("strategy", ALL, ids=names)
def test_memory(strategy):
    steps = 20
    noise = CorrelatedNoise(strategy.recursion(steps), CoinNoise(SeededCoins(1)))
    most = 0
    for _ in range(steps):
        noise.noise_for("w", torch.zeros(10), 1.0)
        state, _ = noise._states["w"]
        held = [getattr(state, "_kept", None), *getattr(state, "_pending", [])]
        most = max(most, sum(t.numel() for t in held if t is not None) // 10)
    assert most <= strategy.memory(steps) <= most + 1


# --- configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ALL, ids=names)
def test_json(strategy):
    back = Correlation.from_dict(json.loads(json.dumps(strategy.to_dict())))
    assert back == strategy
    assert type(back) is type(strategy)
    assert hash(back) == hash(strategy)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BandedNoise(0), "bands must be a whole number, 1 or above, got 0"),
        (lambda: BandedNoise(2, (1.0,)), "coefficients must be 2 numbers"),
        (lambda: BandedNoise(2, (0.0, 1.0)), "the first of them above 0"),
        (lambda: BandedNoise(2, (1.0, -0.1)), "coefficients must be a finite number, 0 or above"),
        (lambda: BandedNoise(2, (1.0, 3.0)), "coefficients must not rise.*leave them out"),
        (lambda: BandedNoise(4, (2, 1, 0, 0.5)), "coefficients must not rise"),
        (lambda: BandedNoise(2, (1e-300, 1e10)), "coefficients must not rise"),
        (lambda: BandedNoise(2, (math.inf, 1.0)), "coefficients must be a finite number"),
        (lambda: BufferedNoise(2, (0.5,)), "theta must be 1 to 2 numbers below 1, and omega as"),
        (lambda: BufferedNoise(1, (0.5, 0.4), (0.1, 0.1)), "theta must be 1 to 1 numbers"),
        (lambda: BufferedNoise(1, (1.0,), (0.1,)), "theta must be 1 to 1 numbers below 1"),
        (lambda: BufferedNoise(1, (0.5,), (1.6,)), "omega must be weights whose sum"),
        (lambda: BufferedNoise(1, (0.5,), (-0.1,)), "omega must be a finite number, 0 or above"),
        (lambda: BufferedNoise(9), "buffers must be at most 8"),
        (lambda: BufferedNoise(0), "buffers must be a whole number"),
        (lambda: TreeNoise(0), "restart must be a whole number"),
        (lambda: Correlation.from_dict({"kind": "white"}), "kind must be one of banded, buffered"),
        (lambda: sf.prefix_error(TreeNoise(), 0), "steps must be a whole number"),
    ],
)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("strategy", ALL, ids=names)
@pytest.mark.parametrize("steps", [1, 2, 9, 300])
def test_filled_in_numbers_are_those_that_were_used(strategy, steps):
    found = strategy.resolved(steps)
    assert found.resolved(7) == found.resolved(steps) == found
    assert (found.matrix(steps) == strategy.matrix(steps)).all()
    assert found.cost(steps, 3, 2) == strategy.cost(steps, 3, 2)
    assert Correlation.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize("strategy", ALL, ids=names)
def test_sensitivity_is_of_the_very_numbers_that_noise_is_drawn_with(strategy):
    """In single precision too: nothing is rounded on the way to the device."""
    recursion = strategy.recursion(40)
    names = ("coefficients", "theta", "omega", "weights")
    numbers = list(itertools.chain.from_iterable(getattr(recursion, n, ()) for n in names))
    assert numbers
    for number in [*numbers, *(1 - v for v in getattr(recursion, "weights", ()))]:
        assert number == float(np.float32(number))


@pytest.mark.parametrize("steps", [50, 4096, pytest.param(16_384, marks=pytest.mark.slow)])
def test_more_buffers_are_never_noisier(steps):
    errors = [sf.prefix_error(BufferedNoise(n), steps).mean for n in range(1, 9)]
    assert errors == sorted(errors, reverse=True)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6), st.floats(1e-300, 1e6))
def test_noise_of_falling_coefficients_does_not_explode(rest, first):
    falling = sorted([first, *rest], reverse=True)
    variances = BandedNoise(len(falling), falling).prefix_variances(500)
    # (1 - x) c(x) = 1 - p(x), p what c falls by at each step: a distribution. So its inverse is a
    # renewal sequence, within 0 and 1, whose squares sum to 500; and c's are at most 1 each.
    assert variances.max() <= 500 * len(falling) * 1.001


def test_errors_fall_in_the_known_order():
    errors = [
        sf.prefix_error(strategy, 1000).mean
        for strategy in (
            IndependentNoise(), BandedNoise(4), TreeNoise(), BandedNoise(64), BufferedNoise(),
        )
    ]  # fmt: skip
    assert errors == sorted(errors, reverse=True)
    assert errors[0] == pytest.approx(math.sqrt(1001 / 2))
    # Tree: half the levels' estimates on average, each of variance above 1/2.
    assert errors[2] == pytest.approx(4.956, abs=1e-3)


def test_more_bands_are_never_noisier():
    errors = [sf.prefix_error(BandedNoise(2**k), 500).mean for k in range(10)]
    assert all(b <= a * (1 + 1e-6) for a, b in itertools.pairwise(errors))
