"""Sums of losses by FFT: what is cut off and what rounding moves is bounded, and charged."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sfumato as sf
from sfumato import events
from sfumato.accounting import convolution, curve, dpa, theorems
from sfumato.accounting.convolution import (
    circle_size,
    convolved,
    log_sizes,
    power,
    repeated,
    rounding,
    transform,
    window,
)
from sfumato.accounting.dpa import LossMasses
from sfumato.accounting.pld import (
    _tails,
    atom_pld,
    delta_at,
    epsilon_at,
    loss_distribution,
    summing_error,
)

GRID = 0.1


def exact_sum(step, count, start=(1,)):
    """The masses of ``start`` and ``count`` steps, in rational numbers."""
    total = [Fraction(p) for p in start]
    for _ in range(count):
        grown = [Fraction(0)] * (len(total) + len(step.probs) - 1)
        for i, mass in enumerate(total):
            for j, p in enumerate(step.probs.tolist()):
                grown[i + j] += mass * Fraction(p)
        total = grown
    return total


def steps(smallest=2, largest=8):
    weights = st.lists(st.floats(0, 1), min_size=smallest, max_size=largest)
    return st.builds(
        lambda w, lowest, infinite: LossMasses(
            lowest,
            (np.array(w) + 1e-3) / (np.sum(w) + 1e-3 * len(w)) * (1 - infinite),
            infinite,
            GRID,
        ),
        weights,
        st.integers(-7, 3),
        st.sampled_from([0.0, 1e-3, 0.1, 0.5]),
    )


@settings(max_examples=40, deadline=None)
@given(steps(), st.integers(2, 12), st.booleans())
def test_rounding_is_within_its_bound(step, count, extended):
    """Also in plain doubles, whose forward transform is worse."""
    wide = convolution._WIDE
    try:
        convolution._WIDE = wide if extended else np.float64
        low, high = count * step.lowest, count * (step.lowest + len(step.probs) - 1)
        size = circle_size(high - low + 1)
        one = transform(step, size)
        charged = rounding(log_sizes(one, size), count, size)
        found = np.roll(np.fft.irfft(power(one, count), size), -low)
    finally:
        convolution._WIDE = wide
    truth = exact_sum(step, count)
    off = sum(abs(Fraction(p) - t) for p, t in zip(found.tolist(), truth, strict=False))
    assert float(off) <= charged
    assert charged < 1e-11


def test_masses_folded_many_times_over_a_small_circle_are_not_lost(monkeypatch):
    """One by one, each of them would vanish beside the first."""
    monkeypatch.setattr(convolution, "_WIDE", np.float64)
    size, turns = 8, 2**15
    probs = np.zeros(size * turns)
    probs[0], probs[size::size] = 0.5, 2.0**-56
    step = LossMasses(0, probs, 0.0, GRID)
    one = transform(step, size)
    found = np.fft.irfft(one, size)
    truth = 0.5 + (turns - 1) * 2.0**-56
    assert abs(found[0] - truth) + abs(found[1:]).sum() <= rounding(log_sizes(one, size), 1, size)


def test_the_bound_on_rounding_is_of_the_size_of_rounding():
    """What is charged for many steps: within 10 and 1,000 times what is seen."""
    probs = np.exp(-(np.linspace(-4, 4, 41) ** 2) / 2)
    step, count = LossMasses(-20, probs / probs.sum(), 0.0, GRID), 4096
    size = circle_size(count * 40 // 8)
    found = np.fft.irfft(power(transform(step, size), count), size)
    exact = transform(step, size).astype(np.clongdouble)
    for _ in range(12):
        exact = exact * exact
    from scipy import fft

    truth = fft.irfft(exact, size)
    off = float(np.abs(found - truth).sum())
    charged = rounding(log_sizes(transform(step, size), size), count, size)
    assert off <= charged <= max(1e4 * off, 1e-9)


def test_powers_are_products():
    values = np.exp(2j * np.pi * np.linspace(0, 1, 7)) * np.linspace(0.1, 1, 7)
    assert power(values, 0) == pytest.approx(np.ones(7))
    for count in (1, 2, 3, 10, 257):
        assert power(values, count) == pytest.approx(values**count, rel=1e-12, abs=1e-300)


@settings(max_examples=40, deadline=None)
@given(steps(), st.lists(st.integers(0, 40), min_size=1, max_size=4), st.sampled_from([1e-3, 1e-9]))
def test_the_window_holds_every_count(step, counts, tail):
    start = LossMasses(-1, np.array([0.2, 0.5, 0.3]), 0.0, GRID)
    low, high = window(step, start, np.array(counts), tail)
    for n in counts:
        probs = start.probs
        for _ in range(n):
            probs = np.convolve(probs, step.probs)
        at = start.lowest + n * step.lowest + np.arange(len(probs))
        assert probs[at > high].sum() <= tail
        assert probs[at < low].sum() <= tail


@pytest.mark.parametrize(
    ("epsilon", "each", "counts", "delta"),
    [
        (1.0, 0.1, [1, 1000], 0.15),
        (1.0, 0.1, [1, 2, 1000], 0.3),
        (0.1, 1e-3, [1, 10, 100, 100_000], 0.2),
        (1.0, 0.5, [1, 50], 0.6),
        (0.1, 0.005, [1, 60_000], 0.01),
        (0.05, 1e-4, [1000, 300_000], 0.1),
    ],
)
def test_few_steps_beside_many_that_promise_nothing(epsilon, each, counts, delta):
    """Each has a release that is private to no extent with probability ``each``."""
    found = sf.epsilon_curve(events.EpsilonDeltaEvent(epsilon, each), counts, delta)
    for n, value in zip(counts, found.tolist(), strict=True):
        truth = theorems.optimal(epsilon, each, n, delta)
        assert value >= truth * (1 - 1e-9)
        assert value <= truth * 1.02 or math.isinf(truth)


def test_steps_whose_finite_losses_drift_down():
    """Nine in ten losses are infinite or low: the largest finite one is highest after few steps."""
    step = LossMasses(-30, np.array([0.6, *[0.0] * 39, 0.2]), 0.2, GRID)
    start = LossMasses(0, np.ones(1), 0.0, GRID)
    counts, delta = np.array([1, 2, 3]), 0.55
    found = curve._powers(step, start, counts, delta)
    one, two, three = (
        delta_at(repeated(step, n, 1e-15), np.array(found)[[i]])[0] for i, n in enumerate((1, 2, 3))
    )
    assert max(one, two, three) <= delta + 1e-9


@pytest.mark.parametrize("name", ["rounding", "_TAIL"])
def test_curves_charge_what_is_cut_and_what_is_rounded(monkeypatch, name):
    step, delta = sf.dp_sgd(2.0, 0.05, 1), 1e-5
    (before,) = sf.epsilon_curve(step, [100], delta)
    more = delta / 4
    monkeypatch.setattr(curve, name, (lambda *_: more) if name == "rounding" else more / 2)
    (after,) = sf.epsilon_curve(step, [100], delta)
    less = sf.epsilon_curve(step, [100], delta - more)[0] if name == "rounding" else before
    monkeypatch.undo()
    (expected,) = sf.epsilon_curve(step, [100], delta - more)
    assert after == pytest.approx(expected, rel=2e-3)
    assert after > before * 1.001
    assert less >= before


def test_repetition_charges_what_is_cut_and_what_is_rounded():
    probs = np.exp(-(np.linspace(-4, 4, 41) ** 2) / 2)
    step = LossMasses(-20, probs / probs.sum() * (1 - 1e-6), 1e-6, GRID)
    for tail in (1e-15, 1e-6):
        found, count = repeated(step, 1000, tail), 1000
        size = len(found.probs)
        charged = rounding(log_sizes(transform(step, size), size), count, size)
        plain = -math.expm1(count * math.log1p(-1e-6))
        assert charged > 1e-15 * count
        assert found.infinite - plain == pytest.approx(tail + charged, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(steps(), steps(40, 60), st.sampled_from([0.0, 1e-15, 1e-4]))
def test_two_losses_added(first, second, tail):
    """By copies where one has few losses, else by transform; never below, hardly above."""
    wide = LossMasses(first.lowest, np.resize(first.probs, 50) / 50, first.infinite, GRID)
    for one in (first, wide):
        truth = np.array([float(p) for p in exact_sum(second, 1, one.probs.tolist())])
        both = one.infinite + second.infinite - one.infinite * second.infinite
        exact = LossMasses(one.lowest + second.lowest, truth, both, GRID)
        found = convolved(one, second, tail)
        at = np.linspace(-3, 5, 41)
        below, above = delta_at(exact, at), delta_at(found, at)
        assert np.all(above >= below * (1 - 1e-12))
        assert np.all(above <= below + tail + 1e-12)
        swapped = delta_at(convolved(second, one, tail), at)
        assert swapped == pytest.approx(above, abs=1e-12)


@pytest.mark.parametrize("extended", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_rounding_of_a_sum_of_two_is_charged(monkeypatch, seed, extended):
    monkeypatch.setattr(convolution, "_WIDE", convolution._WIDE if extended else np.float64)
    rng = np.random.default_rng(seed)
    first, second = (
        LossMasses(-20, weights / weights.sum(), 0.0, GRID) for weights in rng.random((2, 60)) ** 4
    )
    found = convolved(first, second, 0.0)
    truth = exact_sum(second, 1, first.probs.tolist())
    off = sum(abs(Fraction(p) - t) for p, t in zip(found.probs.tolist(), truth, strict=True))
    assert 0 < float(off) <= found.infinite < 1e-12


def test_what_a_composition_cuts_is_charged(monkeypatch):
    event = sf.compose(events.LaplaceEvent(2.0), events.GaussianEvent(3.0))
    exact = loss_distribution(event, sf.Neighbours.ADD_REMOVE, 1e-3)
    monkeypatch.setattr("sfumato.accounting.pld._TAIL", 2e-4)
    loss_distribution.cache_clear()
    cut = loss_distribution(event, sf.Neighbours.ADD_REMOVE, 1e-3)
    loss_distribution.cache_clear()
    at = np.linspace(0, 2, 9)
    assert np.all(cut.delta(at) >= exact.delta(at))
    lost = cut.directions[0].infinite - exact.directions[0].infinite
    assert 0.5e-4 < lost <= 2e-4  # half for each end of two


def test_running_sums_are_rounded_up():
    assert summing_error(1000) == 0
    assert summing_error(10**6) == pytest.approx(10**6 * 2.0**-53, rel=1e-4)
    probs = np.full(5000, 1 / 5000)
    masses = LossMasses(0, probs, 0.0, 1e-3)
    assert delta_at(masses, np.array([-1e9]))[0] == 1.0
    _, upper, lower = _tails(masses)
    assert upper[0] > math.fsum(probs)
    assert lower[0] < math.fsum(probs * np.exp(-masses.losses))


def test_running_sums_that_lose_or_gain_at_every_addition_are_on_the_safe_side():
    """Masses of less than half a unit in the sum's last place vanish; of more, they grow."""
    cells, unit = 20_000, 2.0**-53
    for share in (0.4, 0.6):
        probs = np.append(np.full(cells, share * unit), 0.5)
        exact = Fraction(0.5) + cells * Fraction(share * unit)
        _, upper, lower = _tails(LossMasses(0, probs, 0.0, 1e-300))
        assert Fraction(lower[0]) <= exact <= Fraction(upper[0])
    far = LossMasses(0, np.append(np.full(cells, 0.4 * unit), 0.5), 0.0, 40.0)
    delta = 0.5 + 0.2 * cells * unit  # exceeded from the middle of the losses on down
    reader = curve._Reader(0, cells + 1, far.grid, delta)
    for found in (epsilon_at(far, delta), reader.epsilon(far.probs, 0.0)):
        assert found >= 40.0 * (cells // 2 - 1)


@pytest.mark.parametrize("sigma", [0.3, 1.0, 30.0])
def test_what_is_cut_from_a_discrete_gaussian_is_charged(sigma):
    (masses, *_) = dpa.masses(atom_pld(events.DiscreteGaussianEvent(sigma), 1e-3))
    reach = math.ceil(10 * sigma) + 1
    with mpmath.workdps(40):

        def mass(at):
            return mpmath.exp(-((mpmath.mpf(at) / sigma) ** 2) / 2)

        beyond = (
            2
            * mpmath.nsum(mass, [reach + 1, mpmath.inf])
            / mpmath.nsum(mass, [-mpmath.inf, mpmath.inf])
        )
        assert 0 < beyond <= masses.infinite <= 2e-15
