"""Values that are no doubles: noise is added to what they are, not to the double next to them."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core.randomness import SeededCoins
from sfumato.mechanisms.sampling import add_gaussian, add_laplace, grid_for
from sfumato.mechanisms.sampling.lazy import Source
from sfumato.mechanisms.sampling.rounded import GAUSSIAN, LAPLACE, add_noise

laws = pytest.mark.parametrize("add", [add_gaussian, add_laplace])
DRAWS = 2000
BASES = [2**53, 2**60, 2**63, 10**30, -(2**53), -(2**63), -(10**30)]


def objects(value, size=DRAWS):
    cells = np.empty(size, dtype=object)
    cells[:] = [value] * size
    return cells


def nearest(number):
    """The double next to a fraction, ties to the even one."""
    return number.numerator / number.denominator


def moved(add, value, scale, grid, seed):
    """By hand: noise on the rest alone, in doubles, then the whole in fractions."""
    whole = math.floor(Fraction(value) / Fraction(grid) + Fraction(1, 2))
    rest = Fraction(value) - whole * Fraction(grid)
    assert Fraction(float(rest)) == rest
    noisy = add(np.full(DRAWS, float(rest)), scale, grid, SeededCoins(seed))
    return [nearest(whole * Fraction(grid) + Fraction(float(y))) for y in noisy]


@laws
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("step", [-1, 0, 1, 2, 129])
def test_noise_is_that_of_the_exact_value(add, base, step):
    value = base + step
    for scale, grid in ((1.0, 2.0**-20), (1.0, 1.0), (3.7, 2.0**-9)):
        found = add(objects(value), scale, grid, SeededCoins(3))
        assert found.tolist() == moved(add, value, scale, grid, 3)


@laws
@pytest.mark.parametrize("base", BASES)
def test_one_step_of_the_grid_is_one_step_of_the_output(add, base):
    """On a grid coarse enough for the outputs to be doubles; one off would show in every draw."""
    grid = 2.0**48
    steps = {}
    for k in (0, 1, 2, 5):
        values = objects(base + k * int(grid))
        found = add(values, 2.0**55, grid, SeededCoins(4))
        steps[k] = [Fraction(x) / Fraction(grid) for x in found.tolist()]
        assert all(x.denominator == 1 for x in steps[k])
    for k in (1, 2, 5):
        assert {b - a for a, b in zip(steps[0], steps[k], strict=True)} == {k}


@laws
@pytest.mark.parametrize("base", BASES)
def test_the_edge_between_two_steps_is_where_it_should_be(add, base):
    """Values next to the middle of two grid points, where rounding goes one way or the other."""
    grid, scale = 2.0**12, 2.0**-10 * 2.0**12  # noise of a thousandth of a step
    lower = base // 4096 * 4096
    for rest, least in ((2048 - 200, 0), (2048 + 200, 1)):  # 50 scales away from the middle
        found = add(objects(lower + rest), scale, grid, SeededCoins(5))
        assert set(found.tolist()) == {nearest(Fraction(lower + least * 4096))}


@laws
def test_every_entrance_reads_the_same_number(add):
    def noisy(values):
        return add(values, 1.0, 2.0**-20, SeededCoins(6))

    for whole in (2**53 + 1, 2**60 + 129, 2**63 - 1):
        right = noisy([whole]).tolist()
        one = np.empty((), dtype=object)
        one[()] = whole
        for values in (
            np.array([whole]), np.array([whole], dtype=np.uint64), objects(whole, 1),
            [Fraction(whole)], [Decimal(whole)], [np.int64(whole)], [np.uint64(whole)],
            [None, whole][1:], objects(np.array(whole), 1), (whole,),
        ):  # fmt: skip
            assert noisy(values).tolist() == right
        for scalar in (whole, np.int64(whole), np.array(whole), Fraction(whole), one):
            found = noisy(scalar)
            assert found.shape == ()
            assert found.tolist() == right[0]
    if np.finfo(np.longdouble).nmant >= 63:
        long = np.longdouble(2**60) + np.longdouble(129)
        for values in (np.array([long]), [long], objects(long, 1)):
            assert noisy(values).tolist() == noisy([2**60 + 129]).tolist()


@laws
def test_neighbouring_cells_of_all_kinds_do_not_touch_each_other(add):
    cells = [5, None, 2**60 + 129, math.nan, Fraction(1, 3), "x", 10**400, -0.5, 2**63, True]
    clean = [5, 0, 2**60 + 129, 0, Fraction(1, 3), 0, 10**400, -0.5, 2**63, 1]
    found = add(cells, 1.0, 2.0**-20, SeededCoins(7))
    assert found.tolist() == add(clean, 1.0, 2.0**-20, SeededCoins(7)).tolist()
    assert np.isfinite(found).all()
    assert found[6] == np.finfo(float).max


@laws
@pytest.mark.parametrize("value", [10**400, Decimal("1E+999999999"), 2**1024, 2**1024 - 1])
def test_what_is_beyond_all_doubles_is_held_at_the_largest(add, value):
    """By clamping the noisy result, so that no value jumps to 0 where its neighbour does not."""
    largest = np.finfo(float).max
    for sign in (1, -1):
        signed = value.copy_sign(Decimal(sign)) if isinstance(value, Decimal) else sign * value
        assert add([signed], 1.0, 2.0**-20).tolist() == [sign * largest]


@laws
def test_results_of_neighbours_meet(add):
    """2^60 + 128 and 2^60 + 129 came out as 2^60 and 2^60 + 256, disjoint."""
    for base in (2**53 + 1, 2**60 + 128, 2**63 + 1024, 10**30 // 2**48 * 2**48 + 2**46):
        one, other = (add(objects(base + k), 1.0, 2.0**-20, SeededCoins(8)) for k in (0, 1))
        low, high = min(one.min(), other.min()), max(one.max(), other.max())
        assert set(one.tolist()) & set(other.tolist())
        assert low <= base <= high


@pytest.mark.parametrize("base", [2**53, 2**60 + 128])
def test_laplace_of_neighbours_is_within_epsilon_one(base):
    """The probability of each output, from many draws, on both sides."""
    draws = 400_000
    counts = []
    for k in (0, 1):
        values = np.full(draws, base + k)
        outputs, found = np.unique(add_laplace(values, 1.0, 2.0**-20), return_counts=True)
        counts.append(dict(zip(outputs.tolist(), found.tolist(), strict=True)))
    for output in set(counts[0]) | set(counts[1]):
        a, b = sorted((counts[0].get(output, 0), counts[1].get(output, 0)))
        if b > 1000:
            assert b - math.e * a < 5 * math.sqrt(b + math.e**2 * a)


@laws
def test_refinement_settles_them_exactly(add):
    """With few first bits nearly every draw goes through exact arithmetic, and agrees."""
    noise = GAUSSIAN if add is add_gaussian else LAPLACE
    values = objects(2**60 + 129, 300)
    source = Source(SeededCoins(9), bits=24)
    found = add_noise(values, noise, 2.0**40, 2.0**30, source)
    rest = np.full(300, 129.0)
    again = Source(SeededCoins(9), bits=24)
    right = add_noise(rest, noise, 2.0**40, 2.0**30, again) + 2.0**60
    assert source.refined == again.refined > 0
    assert found.tolist() == right.tolist()


@laws
@given(
    numerator=st.integers(-(10**40), 10**40),
    denominator=st.integers(1, 10**12),
    exponent=st.integers(-40, 60),
)
def test_any_fraction_is_within_its_cell(add, numerator, denominator, exponent):
    """Noise that is far smaller than half a cell leaves the value in its cell."""
    value = Fraction(numerator, denominator)
    grid = 2.0**exponent
    units = value / Fraction(grid)
    whole = math.floor(units + Fraction(1, 2))
    if abs(abs(units - whole) - Fraction(1, 2)) < Fraction(1, 1000):
        return
    (found,) = add([value], grid * 2.0**-30, grid, SeededCoins(10)).tolist()
    assert found == nearest(whole * Fraction(grid))


def test_doubles_are_what_they_were():
    """Whole numbers that are doubles take the path of doubles: nothing about them changed."""
    values = np.array([-7, 0, 3, 2**52, 2**53 - 1])
    for add in (add_laplace, add_gaussian):
        grid = grid_for(2.0)
        whole, double = (
            add(x, 2.0, grid, SeededCoins(1)).tolist() for x in (values, values.astype(float))
        )
        assert whole == double
