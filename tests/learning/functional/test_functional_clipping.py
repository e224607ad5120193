"""One record moves the sum by what is claimed and never more; the noise knows nothing of rows."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.core.sensitivity import Norm
from sfumato.learning.functional.clipping import UNITS, held, record_norms, record_units, unit_sums
from sfumato.learning.functional.expansion import expand
from sfumato.learning.functional.networks import Topology
from sfumato.learning.functional.plan import FunctionalPlan
from sfumato.learning.functional.recipe import FunctionalRecipe
from sfumato.learning.functional.release import Stepper, clipped_sums, noisy_sums

ADD, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE_ONE
BOTH = [Norm.L1, Norm.L2]


def order(norm):
    return 1 if norm is Norm.L1 else 2


def lengths(units, norm):
    """Exact: of whole numbers."""
    whole = units.astype(object)
    if norm is Norm.L1:
        return [int(sum(abs(n) for n in row)) for row in whole]
    return [math.isqrt(int(sum(n * n for n in row))) for row in whole]


def expansion(seed=0, count=30, hidden=(4,), scale=2.0, curvature="gauss-newton"):
    topology = Topology(5, hidden, 3)
    generator = torch.Generator().manual_seed(seed)
    weights = [
        scale * torch.randn(s, generator=generator, dtype=torch.float64) for s in topology.shapes
    ]
    x = torch.rand(count, 5, generator=generator)
    return expand(topology, weights, x, torch.arange(count) % 3, curvature)


@pytest.mark.parametrize("norm", BOTH)
@pytest.mark.parametrize("curvature", ["gauss-newton", "lecun", "none"])
def test_norms_are_those_of_the_whole_vectors(norm, curvature):
    made = expansion(curvature=curvature)
    parts = [made.gradients()]
    if curvature != "none":
        parts.append(0.7 * made.diagonals())
    expected = torch.linalg.vector_norm(torch.cat(parts, dim=1), order(norm), dim=1)
    assert torch.allclose(record_norms(made, 0.7, norm), expected, rtol=1e-12)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([0.0, 1e-8, 0.3, 3.0, 100.0]),
    clip=st.sampled_from([1e-6, 0.37, 1.0, 5.0, 1e6]),
    kappa=st.sampled_from([1e-3, 1.0, 30.0]),
    norm=st.sampled_from(BOTH),
    curvature=st.sampled_from(["gauss-newton", "lecun"]),
)
def test_no_record_is_ever_longer_than_the_clip(seed, scale, clip, kappa, norm, curvature):
    made = expansion(seed, 6, scale=scale, curvature=curvature)
    units = record_units(made, clip, kappa, norm)
    assert max(lengths(units, norm)) <= UNITS
    long = (record_norms(made, kappa, norm) > clip).numpy()
    if long.any():  # and what is clipped is not much shorter
        assert min(np.array(lengths(units, norm))[long]) >= UNITS * (1 - 1e-6)


def test_short_records_stay_as_they_are():
    made = expansion()
    for norm in BOTH:
        units = record_units(made, 1000.0, 0.5, norm)
        both = torch.cat([made.gradients(), 0.5 * made.diagonals()], dim=1).numpy()
        assert units * (1000 / UNITS) == pytest.approx(both, abs=2 * 1000 / UNITS)


def test_sums_are_exact_in_any_order():
    made = expansion(count=501)
    whole = record_units(made, 1.0, 1.0, Norm.L1)
    assert (unit_sums(made, 1.0, 1.0, Norm.L1) == whole.sum(axis=0)).all()
    assert held(np.array([2**60, -(2**60), 5])).tolist() == [2.0**53, -(2.0**53), 5.0]


def test_what_is_not_finite_counts_as_nothing():
    topology = Topology(2, (), 2)
    weights = [torch.ones(2, 3, dtype=torch.float64)]
    x = torch.tensor([[math.nan, 0.0], [math.inf, 1.0], [1.0, 1.0]])
    units = record_units(
        expand(topology, weights, x, torch.tensor([0, 1, 0])), 1.0, 1.0, Norm.L1
    )  # fmt: skip
    assert (units[:2] == 0).all()
    assert (units[2] != 0).any()


# --- neighbours ---------------------------------------------------------------------------------


def plan(neighbours=ADD, delta=0.0, curvature="gauss-newton", records=20, **changes):
    recipe = FunctionalRecipe(
        1.0, delta, neighbours, curvature=curvature,
        **({"clip": 0.1, "rounds": 2} | changes),
    )  # fmt: skip
    return FunctionalPlan(recipe, (3,), 2, records)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize(("neighbours", "curvature"), [(ADD, "gauss-newton"), (REPLACE, "none")])
def test_neighbouring_sums_are_as_far_apart_as_claimed_and_never_farther(
    neighbours, curvature, delta
):
    """Random tables, and one in which a record's slopes are turned around."""
    made = plan(neighbours, delta, curvature)
    bound, rng, farthest = made.sensitivity.bound, np.random.default_rng(3), 0.0
    for trial in range(60):
        weights = made.topology.initial(seed=trial)
        if trial % 2:
            weights = [w + torch.from_numpy(rng.normal(size=w.shape)) for w in weights]
        x, y = torch.from_numpy(rng.random((8, 3))), torch.from_numpy(rng.integers(0, 2, 8))
        one = clipped_sums(made, weights, x, y)
        if neighbours is ADD:
            other = clipped_sums(made, weights, x[1:], y[1:])
        else:
            z, t = x.clone(), y.clone()
            t[0] = 1 - t[0]
            if trial % 3:
                z[0] = torch.from_numpy(rng.random(3))
            other = clipped_sums(made, weights, z, t)
        moved = lengths((one - other)[None], made.recipe.norm)[0]
        farthest = max(farthest, moved / bound)
        assert moved <= bound
    assert farthest > 0.999


@pytest.mark.parametrize("neighbours", [ADD, REPLACE])
def test_scale_of_the_noise(neighbours):
    """Delta / eps_r with Delta = C, or 2 C, and R rounds of eps_r: R Delta / epsilon."""
    made = plan(neighbours, clip=3.0)
    steps = 2 if neighbours is REPLACE else 1
    assert made.noise_scale == pytest.approx(2 * steps * 3.0 / 1.0, rel=1e-9)
    assert made.guarantee.epsilon <= 1.0
    assert made.guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
    assert made.guarantee.delta == 0
    assert made.guarantee.neighbours is neighbours


def test_rounds_follow_from_public_facts():
    """N epsilon over three times the numbers of a round: 8 weights, or 16 with curvatures."""

    def rounds(neighbours=ADD, records=1000, **changes):
        return plan(neighbours, records=records, **({"rounds": None} | changes)).rounds

    assert rounds(curvature="none") == 32
    assert rounds(records=300, curvature="none") == 300 // 24
    assert rounds(records=300) == 300 // 48
    assert rounds(REPLACE, records=300) == 300 // 96
    assert rounds(records=20) == 2
    assert rounds(records=20, delta=1e-5) == 32
    assert rounds(records=20, rounds=7) == 7


def test_the_noise_is_what_the_plan_says():
    """Laplace: the mean absolute deviation is b, over 4000 draws within 6 standard errors."""
    made = plan(curvature="none")
    x, y = torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
    weights = made.topology.initial(0)
    coins = SeededCoins(5)
    drawn = np.concatenate([noisy_sums(made, weights, x, y, coins)[0] for _ in range(500)])
    assert len(drawn) == 4000
    assert np.abs(drawn).mean() == pytest.approx(made.noise_scale, rel=6 / math.sqrt(4000))
    assert drawn.mean() == pytest.approx(0, abs=6 * made.noise_deviation / math.sqrt(4000))


def test_normal_noise_is_calibrated_by_its_losses():
    from sfumato.accounting import account
    from sfumato.core.events import GaussianEvent, repeat

    made = plan(delta=1e-5, clip=2.0)
    multiplier = made.noise_scale / 2.0
    expected = account(repeat(GaussianEvent(multiplier), 2), 1e-5).epsilon
    assert made.guarantee.epsilon == pytest.approx(expected)
    assert 0.99 < expected <= 1.0
    less = account(repeat(GaussianEvent(0.95 * multiplier), 2), 1e-5).epsilon
    assert less > 1.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_sampling_costs_less_noise_for_the_same_promise(delta):
    whole, sampled = plan(delta=delta), plan(delta=delta, sample_rate=0.25)
    assert sampled.guarantee.epsilon <= 1.0
    assert sampled.guarantee.epsilon == pytest.approx(1.0, rel=1e-3)
    if delta == 0:
        inside = sampled.recipe.clip / sampled.noise_scale
        assert math.log1p(0.25 * math.expm1(inside)) == pytest.approx(0.5, rel=1e-9)
    assert sampled.noise_scale < 0.5 * whole.noise_scale


def test_each_record_enters_by_its_own_coin():
    made = plan(sample_rate=0.25, curvature="none", clip=1e6, records=12_000)
    x, y = torch.ones(12_000, 3, dtype=torch.float64), torch.zeros(12_000, dtype=torch.int64)
    weights = made.topology.initial(0)
    seen = []
    real = made.mechanism.perturb

    class Silent:
        def perturb(self, values, coins):
            seen.append(values)
            return real(values, coins=coins)

    object.__setattr__(made, "mechanism", Silent())
    noisy_sums(made, weights, x, y, SeededCoins(2))
    share = seen[0] / clipped_sums(made, weights, x, y)
    assert share == pytest.approx(0.25, abs=6 * math.sqrt(0.25 * 0.75 / 12_000))


def test_the_noise_does_not_depend_on_the_rows():
    """With the same coins, releases of two tables differ by their sums alone."""
    made = plan()
    rng, weights = np.random.default_rng(0), plan().topology.initial(0)
    tables = [
        (torch.from_numpy(rng.random((n, 3))), torch.from_numpy(rng.integers(0, 2, n)))
        for n in (8, 50)
    ]
    noise = []
    for x, y in tables:
        slopes, curvatures = noisy_sums(made, weights, x, y, SeededCoins(1))
        sums = clipped_sums(made, weights, x, y) * (made.recipe.clip / UNITS)
        noise.append(np.concatenate([slopes, curvatures]) - sums)
    grid = made.mechanism.resolution * made.recipe.clip / UNITS
    assert noise[0] == pytest.approx(noise[1], abs=1.01 * grid)
    assert grid < 1e-4 * made.noise_scale


# --- steps --------------------------------------------------------------------------------------


def test_a_step_is_the_minimiser_of_the_parabola():
    made = plan(rate=1.0, memory=0.0, reach=100.0, damping=0.5, records=20)
    count = made.topology.parameters
    slopes, curvatures = np.linspace(-3, 3, count), np.linspace(1, 2, count)
    floor = 0.5 * 20 + made.noise_deviation / made.recipe.kappa
    found = Stepper(made).step_of(slopes, curvatures).numpy()
    assert found == pytest.approx(-slopes / (curvatures + floor))


def test_steps_stay_within_reach_whatever_was_released():
    made = plan(rate=1.0, memory=0.0, reach=0.3, damping=1e-9)
    count = made.topology.parameters
    found = Stepper(made).step_of(np.full(count, 1e12), np.full(count, -1e12)).numpy()
    assert (found == -0.3).all()


def test_memory_is_a_running_mean():
    made = plan(rate=1.0, memory=0.5, reach=1e9, curvature="none", damping=1.0, records=1)
    count, none = made.topology.parameters, np.zeros(0)
    stepper = Stepper(made)
    assert stepper.step_of(np.full(count, 4.0), none).numpy() == pytest.approx(-4.0)
    assert stepper.step_of(np.full(count, 1.0), none).numpy() == pytest.approx(-(4 / 3 + 2 / 3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": math.inf}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"clip": -1.0}, "clip must be"),
        ({"kappa": 0.0}, "kappa must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"sample_rate": 0.0}, "sample_rate must be"),
        ({"sample_rate": 0.5, "neighbours": "replace-one"}, "sample_rate must be 1"),
        ({"neighbours": "zero-out"}, "neighbours must be 'add-remove' or 'replace-one'"),
        ({"memory": 1.0}, "memory must be"),
        ({"curvature": "fisher"}, "curvature must be one of"),
        ({"hidden": (0,)}, "hidden must be"),
        ({"activation": "gelu"}, "activation must be one of"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_recipes_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        FunctionalRecipe(**({"epsilon": 1.0} | change))
