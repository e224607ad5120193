import math
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.mechanisms.sampling import add_gaussian, add_laplace, grid_for, lazy
from sfumato.mechanisms.sampling.lazy import Source
from sfumato.mechanisms.sampling.rounded import GAUSSIAN, LAPLACE, add_noise

MILLION = 1_000_000
LAWS = [
    pytest.param(add_gaussian, GAUSSIAN, stats.norm, id="gaussian"),
    pytest.param(add_laplace, LAPLACE, stats.laplace, id="laplace"),
]
laws = pytest.mark.parametrize(("add", "noise", "law"), LAWS)


def kolmogorov_smirnov(ordered: np.ndarray, law) -> float:
    """The asymptotic p-value, for draws already in order."""
    steps = np.arange(ordered.size + 1) / ordered.size
    cumulative = law.cdf(ordered)
    distance = max((steps[1:] - cumulative).max(), (cumulative - steps[:-1]).max())
    return stats.kstwobign.sf(distance * math.sqrt(ordered.size))


@laws
@pytest.mark.parametrize(("value", "scale"), [(0.0, 1.0), (1 / 3, 3.7e-5), (-1e6, 1e4)])
def test_law_on_the_default_grid_at_a_million_draws(add, noise, law, value, scale, continuous_fit):
    result = add(np.full(MILLION, value), scale, grid_for(scale), SeededCoins(31)) - value
    assert continuous_fit(result, law(scale=scale)) > 0.001
    assert continuous_fit(result, law(scale=1.01 * scale)) < 1e-6
    result.sort()
    assert kolmogorov_smirnov(result, law(scale=scale)) > 0.001
    assert kolmogorov_smirnov(result, law(scale=1.01 * scale)) < 1e-3
    spread = np.mean((result / scale) ** 2) / law().var()
    error = math.sqrt({"norm": 2, "laplace": 5}[law.name] / MILLION)
    assert abs(spread - 1) < 4 * error
    assert abs(spread / 1.01**2 - 1) > 4 * error


def cell_weights(law, value: float, scale: float, grid: float) -> tuple[int, np.ndarray]:
    centre = round(value / grid)
    reach = math.ceil(40 * scale / grid) + 2
    edges = (np.arange(-reach, reach + 2) + centre - 0.5) * grid - value
    return centre - reach, np.diff(law(scale=scale).cdf(edges))


@laws
@pytest.mark.parametrize(
    ("value", "scale", "grid"), [(0.3, 0.8, 1.0), (-7.125, 2.5, 0.25), (0.5, 0.4, 1.0)]
)
def test_every_cell_of_a_coarse_grid(add, noise, law, value, scale, grid, integer_fit):
    result = add(np.full(MILLION, value), scale, grid, SeededCoins(32)) / grid
    draws = result.astype(np.int64)
    assert np.array_equal(draws, result)
    assert integer_fit(draws, *cell_weights(law, value, scale, grid)) > 0.001
    assert integer_fit(draws, *cell_weights(law, value, 1.01 * scale, grid)) < 1e-6


@laws
@pytest.mark.parametrize(("bits", "grid"), [(6, 0.5), (10, 0.125), (26, 0.0625)])
def test_short_first_words_give_the_law_through_refinement(
    add, noise, law, bits, grid, integer_fit
):
    source = Source(SeededCoins(33), bits)
    result = add_noise(np.full(10_000, 0.3), noise, 1.0, grid, source) / grid
    assert source.refined > (8000 if bits < 20 else 500)
    draws = result.astype(np.int64)
    assert integer_fit(draws, *cell_weights(law, 0.3, 1.0, grid)) > 0.001


@laws
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.9])
def test_filter_and_exact_arithmetic_agree_draw_by_draw(monkeypatch, add, noise, law, scale):
    values = np.concatenate([np.linspace(-3, 3, 900), [0.0, 1e300, -1e300, 5e-324, 2.0**60]])
    grid = grid_for(1.0)
    quick = add_noise(values, noise, scale, grid, Source(SeededCoins(34)))
    monkeypatch.setattr(lazy, "RELATIVE", 1e9)
    source = Source(SeededCoins(34))
    slow = add_noise(values, noise, scale, grid, source)
    assert source.refined >= values.size - 1
    assert np.array_equal(quick, slow)


@laws
@pytest.mark.parametrize("value", [0.0, 1 / 3, -5.9])
def test_words_next_to_a_boundary_fall_on_its_right_side(add, noise, law, value, scripted):
    """Where floating point cannot tell, the answer is still the exact one."""
    grid = grid_for(1.0)
    for z in (0.001, 0.1, 1.0, 2.5, 4.0, 8.0):
        k = math.floor((value + z) / grid)
        boundary = (k + Fraction(1, 2)) * Fraction(grid) - Fraction(value)
        low, high = noise.tail(boundary, 64)
        gaps = [1 << j for j in range(3, 20, 2)]
        words = [low - gap for gap in gaps if gap < low] + [high + gap for gap in gaps]
        result = add(np.full(len(words), value), 1.0, grid, scripted(*words))
        beyond = result > (k + 0.25) * grid
        assert np.array_equal(beyond, [word < low for word in words])


@laws
@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, -12345.678, 2.0**-53, 1e-300, 1e300, 1e15])
def test_results_are_on_the_grid_whatever_the_value(add, noise, law, value):
    """The floating-point share test: diffprivlib gives 100% against 33% here."""
    result = add(np.full(20_000, value), 1.0, grid_for(1.0), SeededCoins(35))
    shares = {bits: np.mean(np.remainder(result, 2.0**-bits) == 0) for bits in (20, 40, 53)}
    assert shares == {20: 1.0, 40: 1.0, 53: 1.0}


@laws
@pytest.mark.parametrize("value", [0.0, 1.0, 1 / 3, math.pi * 1e6])
@pytest.mark.parametrize("shift", [0, 8])
def test_low_bits_are_uniform_whatever_the_value(add, noise, law, value, shift, integer_fit):
    result = add(np.full(200_000, value), 1.0, grid_for(1.0), SeededCoins(36))
    steps = (result * 2.0**20).astype(np.int64)
    assert integer_fit((steps >> shift) & 63, 0, np.ones(64)) > 0.001


@laws
def test_zero_has_one_sign(add, noise, law):
    values = np.tile([-0.4, 0.4, 0.0, -0.0, -1.4, 0.9], 2000)
    result = add(values, 0.5, 1.0, SeededCoins(37))
    zeros = result[result == 0]
    assert zeros.size > 1000
    assert not np.signbit(zeros).any()


@laws
def test_non_finite_values_count_as_zero(add, noise, law):
    values = np.array([[math.nan, math.inf], [-math.inf, 0.0]])
    result = add(values, 1.0, grid_for(1.0), SeededCoins(38))
    plain = add(np.zeros((2, 2)), 1.0, grid_for(1.0), SeededCoins(38))
    assert np.array_equal(result, plain)


@laws
@pytest.mark.parametrize("sign", [1, -1])
def test_extreme_values_stay_finite(add, noise, law, sign):
    largest = sys.float_info.max
    values = sign * np.array([largest, 1e300, 5e-324, 2.0**1000])
    for scale in (2.0**-900, 1.0, 2.0**900):
        result = add(values, scale, grid_for(scale), SeededCoins(39))
        assert np.isfinite(result).all()
    huge = add(np.full(1000, sign * largest), 2.0**900, 2.0**870, SeededCoins(40))
    assert np.isfinite(huge).all()


@laws
def test_shapes_and_inputs(add, noise, law):
    assert add(3.0, 1.0, 0.5, SeededCoins(41)).shape == ()
    assert add([], 1.0, 0.5, SeededCoins(41)).shape == (0,)
    assert add([[1, 2, 3]], 1.0, 0.5, SeededCoins(41)).shape == (1, 3)
    values = np.arange(100_000.0).reshape(100, 1000)
    result = add(values, 1.0, 0.5, SYSTEM)
    assert result.shape == values.shape
    assert result.dtype == np.float64
    assert np.abs(result - values).max() < 40
    assert values[0, 1] == 1.0


@laws
@pytest.mark.parametrize("value", [0.0, -0.7])
def test_the_far_tail_is_right(add, noise, law, value, scripted):
    """A tail probability of 2^-65 or 2^-129, where doubles of the uniform would be 0."""
    for zeros in (1, 2):
        q = mpmath.mpf(2) ** (-64 * zeros - 1)
        with mpmath.workprec(400):
            if noise is LAPLACE:
                z = -mpmath.log(2 * q)
            else:
                z = mpmath.findroot(lambda x, q=q: mpmath.log(mpmath.ncdf(-x) / q), (9, 13))
            expected = int(mpmath.nint((z + value) / mpmath.mpf(2) ** -10))
        words = [0] * zeros + [1 << 63] + [0] * 5
        result = add([value], 1.0, 2.0**-10, scripted(*words))[0]
        assert abs(result * 2**10) == expected


@given(
    value=st.floats(allow_nan=True, allow_infinity=True),
    exponent=st.integers(-300, 300),
    mantissa=st.floats(min_value=1, max_value=2, exclude_max=True),
)
@settings(max_examples=200, deadline=None)
def test_any_value_and_scale(value, exponent, mantissa):
    scale = math.ldexp(mantissa, exponent)
    grid = grid_for(scale)
    for add in (add_gaussian, add_laplace):
        result = float(add([value], scale, grid, SeededCoins(42))[0])
        clean = value if math.isfinite(value) else 0.0
        assert math.isfinite(result)
        assert abs(result / 2 - clean / 2) <= 50 * scale + abs(clean) * 2.0**-52
        assert math.fmod(result, grid) == 0


@pytest.mark.parametrize("scale", [1.0, 1.999, 2.0, 3e-7, 1e200])
def test_default_grid(scale):
    grid = grid_for(scale)
    assert math.frexp(grid)[0] == 0.5
    assert scale * 2.0**-21 < grid <= scale * 2.0**-20


@pytest.mark.parametrize("scale", [0, -1.0, math.nan, math.inf, "1", 5e-324, 1e308])
def test_bad_scales_are_errors(scale):
    with pytest.raises(ValueError, match="scale"):
        grid_for(scale)
    with pytest.raises(ValueError, match="scale"):
        add_laplace([0.0], scale, 1.0)
    with pytest.raises(ValueError, match=r"sigma|scale"):
        add_gaussian([0.0], scale, 1.0)


@pytest.mark.parametrize("grid", [0, -1.0, 0.3, math.nan, math.inf, "1", 2.0**-31, 5e-324])
def test_bad_grids_are_errors(grid):
    for add in (add_gaussian, add_laplace):
        with pytest.raises(ValueError, match="grid"):
            add([0.0], 1.0, grid)


@pytest.mark.parametrize("noise", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("bits", [8, 24])
def test_numbers_that_are_no_doubles_are_settled_as_the_doubles_next_to_them(noise, bits):
    """With few bits known, draws are settled exactly: by the whole value, its rest included."""
    for value in (Fraction(1, 3), Fraction(-7, 5), Fraction(2, 3) + 4):
        found, near = (
            add_noise(cells, noise, 1.0, 0.25, Source(SeededCoins(35), bits))
            for cells in ([value] * 400, np.full(400, float(value)))
        )
        assert np.array_equal(found, near)
