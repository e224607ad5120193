"""Clipping: no contribution beyond its bound, and one noise multiplier for everything released."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, PoissonSampledEvent, compose, repeat
from sfumato.learning.dp_sgd.clipping import (
    CLIP_RANGE,
    ROUNDING,
    SMALLEST,
    Adaptive,
    Automatic,
    Clipping,
    Flat,
    PerLayer,
)

NAMES = ["body.0.weight", "body.0.bias", "body.1.weight", "head.weight", "head.bias"]
MAPPED = {"body": 1.0, "head": 3.0}
ALL = [Flat(2.0), PerLayer(2.0), PerLayer(MAPPED), Automatic(2.0), Adaptive(2.0, count_noise=9.0)]
ids = [type(c).__name__ for c in ALL]

norms_of_any_size = st.one_of(
    st.floats(0, 1e30), st.floats(0, 1e-30), st.floats(0.5, 8), st.just(math.inf), st.just(math.nan)
)


@pytest.mark.parametrize("clipping", ALL, ids=ids)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@settings(max_examples=60)
@given(raw=st.lists(norms_of_any_size, min_size=3, max_size=12))
def test_no_contribution_is_beyond_its_bound(clipping, dtype, raw):
    groups = clipping.groups(NAMES)
    bounds = clipping.bounds(groups)
    eta = ROUNDING[str(dtype).removeprefix("torch.")]
    rows = len(raw) // len(groups)
    norms = torch.tensor(raw[: rows * len(groups)], dtype=dtype).view(rows, len(groups))
    factors = clipping.scales(norms, bounds, eta)
    assert factors.shape == norms.shape
    assert factors.dtype == dtype
    assert bool(factors.isfinite().all())
    assert bool((factors >= 0).all())
    finite = norms.isfinite()
    assert bool((factors[~finite] == 0).all())
    exact = torch.where(finite, norms, 0.0).double() * factors.double()
    limits = torch.tensor(bounds, dtype=torch.float64)
    # Computed in float32, a product is at most C (1 - eta) but for rounding that eta covers.
    unit = torch.finfo(dtype).eps
    assert bool((exact <= limits * (1 - eta) * (1 + 2 * unit)).all())
    assert bool((exact <= limits).all())
    if not isinstance(clipping, Automatic):
        assert bool((factors <= 1).all())
        small = finite & (norms <= limits * (1 - eta) * (1 - 2 * unit))
        assert bool((factors[small] == 1).all())


@pytest.mark.parametrize("clipping", ALL, ids=ids)
def test_real_gradients_after_clipping_in_float32(clipping):
    generator = torch.Generator().manual_seed(1)
    groups = clipping.groups(NAMES)
    bounds = clipping.bounds(groups)
    gradients = [
        torch.randn(64, 5000, generator=generator) * 10.0 ** torch.arange(-3.2, 3.2, 0.1)[:, None]
        for _ in groups
    ]
    norms = torch.stack([g.norm(dim=1) for g in gradients], dim=1)
    factors = clipping.scales(norms, bounds, ROUNDING["float32"])
    for group, bound in enumerate(bounds):
        clipped = gradients[group] * factors[:, group, None]
        assert float(clipped.double().norm(dim=1).max()) <= bound
        assert float(clipped.double().norm(dim=1).max()) >= 0.99 * bound  # and no smaller


def test_the_factors():
    norms = torch.tensor([[0.0], [1.0], [4.0], [math.inf], [math.nan]], dtype=torch.float64)
    assert Flat(2.0).scales(norms, (2.0,), 0.0)[:, 0].tolist() == [1, 1, 0.5, 0, 0]
    assert Flat(2.0).scales(norms, (2.0,), 0.25)[:, 0].tolist() == [1, 1, 0.375, 0, 0]
    automatic = Automatic(2.0, gamma=1.0).scales(norms, (2.0,), 0.0)
    assert automatic[:, 0].tolist() == [2, 1, 0.4, 0, 0]
    two = torch.tensor([[4.0, 4.0]])
    assert PerLayer(MAPPED).scales(two, (1.0, 3.0), 0.0).tolist() == [[0.25, 0.75]]
    assert Flat().scales(torch.zeros(0, 1), (1.0,), 0.0).shape == (0, 1)


@pytest.mark.parametrize("clipping", ALL, ids=ids)
@settings(max_examples=40)
@given(z=st.floats(0.05, 17.0))
def test_the_joint_noise_multiplier_is_z(clipping, z):
    bounds = clipping.bounds(clipping.groups(NAMES))
    scales = clipping.noise_scales(z, bounds)
    signal = sum((bound / scale) ** 2 for bound, scale in zip(bounds, scales, strict=True))
    if isinstance(clipping, Adaptive):
        signal += (0.5 / clipping.count_noise) ** 2
    assert signal == pytest.approx(1 / z**2, rel=1e-9)


def test_noise_scales():
    assert Flat(3.0).noise_scales(2.0, (3.0,)) == (6.0,)
    assert Automatic(3.0).noise_scales(2.0, (3.0,)) == (6.0,)
    k = 3
    assert PerLayer(3.0).bounds(PerLayer(3.0).groups(NAMES)) == (3 / math.sqrt(k),) * k
    # One number for the whole: the noise of flat clipping with the same C.
    assert PerLayer(3.0).noise_scales(2.0, (3 / k**0.5,) * k) == pytest.approx((6.0,) * k)
    assert PerLayer(MAPPED).noise_scales(2.0, (1.0, 3.0)) == pytest.approx((8**0.5, 3 * 8**0.5))


def test_layers_are_one_release_and_not_several():
    """Noise z C_l on k layers is a multiplier of z / sqrt(k), after which lots are sampled."""
    z, k, rate, steps = 4.0, 2, 0.01, 2000
    bounds = (1.0, 1.0)
    scales = PerLayer(MAPPED).noise_scales(z / math.sqrt(k), bounds)
    assert scales == pytest.approx((z, z))  # what the printed version adds
    joint = repeat(PoissonSampledEvent(GaussianEvent(z / math.sqrt(k)), rate), steps)
    apart = repeat(compose(*[PoissonSampledEvent(GaussianEvent(z), rate)] * k), steps)
    assert account(joint, 1e-5, accountant="rdp").epsilon > (
        account(apart, 1e-5, accountant="rdp").epsilon
    )


# --- groups -------------------------------------------------------------------------------------


def test_groups():
    whole = (tuple(NAMES),)
    for clipping in (Flat(), Automatic(), Adaptive()):
        assert clipping.groups(NAMES) == whole
        assert clipping.bounds(whole) == (1.0,)
        with pytest.raises(ValueError, match="groups must be the one group"):
            clipping.bounds(((NAMES[0],), (NAMES[1],)))
    assert PerLayer().groups(NAMES) == (tuple(NAMES[:2]), (NAMES[2],), tuple(NAMES[3:]))
    mapped = PerLayer(MAPPED).groups(NAMES)
    assert mapped == (tuple(NAMES[:3]), tuple(NAMES[3:]))
    assert PerLayer(MAPPED).bounds(mapped) == (1.0, 3.0)
    nested = PerLayer({"body": 1.0, "body.1": 5.0, "head": 3.0})
    assert nested.bounds(nested.groups(NAMES)) == (1.0, 5.0, 3.0)
    assert PerLayer().groups(["weight", "bias"]) == (("weight", "bias"),)
    bare = PerLayer({"weight": 1.0, "": 2.0})
    assert bare.bounds(bare.groups(["weight", "bias"])) == (1.0, 2.0)


def test_groups_that_do_not_fit():
    with pytest.raises(ValueError, match=r"clip must cover every trained parameter.*'head\.w"):
        PerLayer({"body": 1.0}).groups(NAMES)
    with pytest.raises(ValueError, match="clip must name layers that are trained, got 'tail'"):
        PerLayer({"body": 1.0, "head": 1.0, "tail": 1.0}).groups(NAMES)
    with pytest.raises(ValueError, match=r"got nothing for 'bodyguard\.weight'"):
        PerLayer({"body": 1.0}).groups(["body.weight", "bodyguard.weight"])
    for names in ([], ["a", "a"]):
        with pytest.raises(ValueError, match="names must be"):
            Flat().groups(names)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Flat(0.0),
        lambda: Flat(math.inf),
        lambda: PerLayer(-1.0),
        lambda: PerLayer({}),
        lambda: PerLayer({"a": 0.0}),
        lambda: Automatic(1.0, gamma=0.0),
        lambda: Adaptive(quantile=1.0),
        lambda: Adaptive(learning_rate=0.0),
        lambda: Adaptive(count_noise=0.0),
        lambda: Flat().noise_scales(0.0, (1.0,)),
    ],
)
def test_bad_parameters(make):
    with pytest.raises(ValueError, match="must be"):
        make()


@pytest.mark.parametrize("clipping", [*ALL, Adaptive()], ids=[*ids, "unresolved"])
def test_json(clipping):
    back = Clipping.from_dict(json.loads(json.dumps(clipping.to_dict())))
    assert back == clipping
    assert hash(back) == hash(clipping)
    assert type(back) is type(clipping)
    with pytest.raises(ValueError, match="kind must be one of adaptive, automatic, flat, per-laye"):
        Clipping.from_dict({"kind": "no"})


# --- adaptive -----------------------------------------------------------------------------------


def test_the_count_is_paid_for():
    adaptive = Adaptive(1.0, count_noise=2.0)
    (scale,) = adaptive.noise_scales(2.0, (1.0,))
    assert scale == pytest.approx((2.0**-2 - 4.0**-2) ** -0.5)  # 2.309, not 2
    assert adaptive.noise_scales(2.0, (7.0,)) == pytest.approx((7 * scale,))
    with pytest.raises(ValueError, match="count_noise must be above half the noise multiplier"):
        adaptive.noise_scales(4.0, (1.0,))
    with pytest.raises(ValueError, match="count_noise must be known"):
        Adaptive().noise_scales(1.0, (1.0,))


def test_the_default_count_noise_follows_the_lot_size():
    assert Adaptive().resolved(600).count_noise == 30.0
    assert Adaptive(count_noise=4.0).resolved(600).count_noise == 4.0
    assert Flat().resolved(600) == Flat()


def test_the_count_moves_by_a_half():
    norms = torch.tensor([[0.5], [1.0], [1.5], [math.nan], [math.inf]])
    adaptive = Adaptive(1.0)
    assert float(adaptive.count(norms, (1.0,))) == -0.5
    assert float(adaptive.count(norms[:2], (1.0,))) == 1.0
    assert float(adaptive.count(norms[:0], (1.0,))) == 0.0
    for i in range(5):
        rest = torch.cat([norms[:i], norms[i + 1 :]])
        moved = adaptive.count(norms, (1.0,)) - adaptive.count(rest, (1.0,))
        assert abs(float(moved)) == 0.5
    present = torch.tensor([1, 1, 0, 0, 0])
    assert float(adaptive.count(norms, (1.0,), present)) == 1.0


def test_the_clip_norm_finds_the_quantile():
    adaptive, lot, clip = Adaptive(10.0, quantile=0.7), 1000.0, 10.0
    norms = torch.linspace(0, 1, 1000)[:, None]
    for _ in range(200):
        clip = adaptive.updated(clip, float(adaptive.count(norms, (clip,))), lot)
    assert clip == pytest.approx(0.7, abs=0.01)
    # The formula: C exp(-learning_rate (fraction - quantile)), with the declared lot size.
    assert Adaptive().updated(2.0, 100.0, 400.0) == pytest.approx(2 * math.exp(-0.2 * 0.25))


@given(st.floats(-1e300, 1e300), st.floats(1e-6, 1e6))
def test_the_clip_norm_stays_in_its_public_range(count, clip):
    moved = Adaptive(1.0).updated(clip, count, 10.0)
    assert 1 / CLIP_RANGE <= moved <= CLIP_RANGE


@pytest.mark.parametrize(
    "make",
    [
        Flat,
        PerLayer,
        lambda clip: PerLayer({"": clip}),
        lambda clip: Automatic(clip, 0.1),
        lambda clip: Automatic(1.0, clip),
        Adaptive,
    ],
)
def test_a_clip_norm_is_never_lost_in_rounding(make):
    """Beside smaller ones the allowance for rounding would be nothing."""
    with pytest.raises(ValueError, match="at least 1e-12"):
        make(SMALLEST * 0.99)
    make(SMALLEST)
