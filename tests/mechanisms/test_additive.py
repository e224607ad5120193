"""What every additive mechanism owes: unbiased noise of the stated size, honest error bars, a
release that no value can break, and a stamp on seeded coins."""

import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.core import SYSTEM, Neighbours, Norm, SeededCoins, Sensitivity
from sfumato.core.events import event_from_dict
from sfumato.mechanisms.additive import as_floats, as_whole, saturating_sum
from sfumato.mechanisms.base import AdditiveMechanism
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

DRAWS = 200_000
LARGEST = 2**63 - 1


def make(kind, dimension=1, bound=1.0, neighbours="add-remove", unit="record"):
    """One mechanism of each kind at (1, 1e-5), for ``dimension`` numbers."""
    norm = Norm.L1 if kind in (Laplace, DiscreteLaplace) else Norm.L2
    sensitivity = Sensitivity(bound, norm, Neighbours(neighbours), unit, dimension)
    target = {"epsilon": 1.0} if norm is Norm.L1 else {"epsilon": 1.0, "delta": 1e-5}
    return kind.calibrate(sensitivity, **target)


KINDS = [Laplace, Gaussian, DiscreteLaplace, DiscreteGaussian]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
SMALL = [
    Laplace(0.3, Sensitivity(1)),
    Laplace(0.3, Sensitivity(1), grid=0.25),
    Gaussian(0.4, Sensitivity(1)),
    Gaussian(0.4, Sensitivity(1), grid=0.5),
    DiscreteLaplace(0.4, Sensitivity(1)),
    DiscreteLaplace(25.0, Sensitivity(1)),
    DiscreteGaussian(0.6, Sensitivity(1)),
    DiscreteGaussian(25.0, Sensitivity(1)),
]


def sd_matches(noise, sd):
    """Whether the sample's second moment is sd^2 within four standard errors."""
    squares = np.asarray(noise, dtype=float) ** 2
    return abs(squares.mean() - sd**2) < 4 * squares.std() / math.sqrt(squares.size)


@every_kind
def test_noise_is_unbiased_and_as_large_as_stated(kind):
    mechanism = make(kind)
    noise = mechanism.perturb(np.full(DRAWS, 1000), coins=SeededCoins(11)) - 1000.0
    sd, error = mechanism.standard_deviation, mechanism.expected_error
    assert abs(noise.mean()) < 4 * sd / math.sqrt(DRAWS)
    assert sd_matches(noise, sd)
    assert abs(np.abs(noise).mean() - error) < 4 * np.abs(noise).std() / math.sqrt(DRAWS)
    # The check has teeth: noise 3% too small or too large does not pass.
    assert not sd_matches(noise, sd * 1.03)
    assert not sd_matches(noise, sd / 1.03)


@every_kind
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_the_half_width_covers_as_often_as_it_says(kind, confidence):
    mechanism = make(kind)
    half_width = mechanism.half_width(confidence)
    noise = mechanism.perturb(np.full(DRAWS, -7), coins=SeededCoins(12)) + 7.0
    tolerance = 4 * math.sqrt(confidence * (1 - confidence) / DRAWS)
    assert np.mean(np.abs(noise) <= half_width) > confidence - tolerance
    # No wider than needed: a step less (an integer, or 2% for continuous noise) covers less often.
    narrower = half_width * 0.98 if kind in (Laplace, Gaussian) else half_width - 1
    assert np.mean(np.abs(noise) <= narrower) < confidence + tolerance


@pytest.mark.parametrize("mechanism", SMALL, ids=repr)
def test_coverage_of_coarse_and_fine_noise(mechanism):
    # Values anywhere between the points of the grid: the worst case must be covered too.
    whole = isinstance(mechanism, DiscreteLaplace | DiscreteGaussian)
    values = np.zeros(DRAWS) if whole else np.linspace(0, 1, DRAWS)
    error = np.abs(mechanism.perturb(values, coins=SeededCoins(13)) - values)
    for confidence in (0.6, 0.95):
        tolerance = 4 * math.sqrt(confidence * (1 - confidence) / DRAWS)
        assert np.mean(error <= mechanism.half_width(confidence)) > confidence - tolerance


@every_kind
def test_simultaneous_coverage_over_all_coordinates(kind):
    dimension, trials = 10, 20_000
    mechanism = make(kind, dimension=dimension)
    noise = mechanism.perturb(np.zeros((trials, dimension)), coins=SeededCoins(14))
    largest = np.abs(noise).max(axis=1)
    tolerance = 4 * math.sqrt(0.9 * 0.1 / trials)
    assert np.mean(largest <= mechanism.half_width(0.9, simultaneous=True)) > 0.9 - tolerance
    assert np.mean(largest <= mechanism.half_width(0.9)) < 0.6
    if kind in (Laplace, Gaussian):
        hit = np.mean(largest <= mechanism.half_width(0.9, simultaneous=True))
        assert hit < 0.9 + tolerance


@every_kind
def test_simultaneous_in_a_million_dimensions_is_not_swallowed_by_rounding(kind):
    mechanism = make(kind, dimension=1_000_000)
    wide, one = mechanism.half_width(0.95, simultaneous=True), mechanism.half_width(0.95)
    assert one < wide < 20 * one


@every_kind
def test_the_protocol_is_kept(kind):
    mechanism: AdditiveMechanism = make(kind)
    release = mechanism.release(3, coins=SeededCoins(1))
    assert event_from_dict(mechanism.event.to_dict()) == mechanism.event == release.event
    assert release.guarantee.epsilon <= 1.0
    assert release.guarantee.epsilon == pytest.approx(1.0, abs=1e-9)
    assert release.half_width == mechanism.half_width(0.95)
    json.dumps(release.to_dict())


@every_kind
def test_scalars_give_numbers_and_arrays_give_lists(kind):
    number = int if kind in (DiscreteLaplace, DiscreteGaussian) else float
    assert type(make(kind).release(3).value) is number
    assert type(make(kind).release(np.float32(3)).value) is number
    one = make(kind).release([3]).value
    assert type(one) is list
    assert type(one[0]) is number
    table = make(kind, dimension=6).release(np.zeros((2, 3))).value
    assert np.shape(table) == (2, 3)
    assert type(table[1][2]) is number
    assert make(kind).perturb(np.zeros((4, 5, 6))).shape == (4, 5, 6)


@every_kind
def test_another_number_of_entries_is_an_error(kind):
    with pytest.raises(ValueError, match=r"value must have 3 entries.*got 2"):
        make(kind, dimension=3).release([1, 2])
    with pytest.raises(ValueError, match=r"value must have 3 entries.*got 1"):
        make(kind, dimension=3).release(1)


BAD = [
    math.nan,
    math.inf,
    -math.inf,
    None,
    "seven",
    b"7",
    10**400,
    -(10**400),
    1e308,
    2**63,
    2 + 3j,
    Decimal("NaN"),
    object(),
    np.datetime64("2020-01-01"),
]


@every_kind
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: type(bad).__name__)
def test_no_private_value_raises_or_changes_another(kind, bad):
    mechanism = make(kind, dimension=3)
    cells = np.empty(3, dtype=object)
    cells[:] = [5, bad, 2**53 + 1]
    for value in (cells, list(cells)):
        release = mechanism.release(value, coins=SeededCoins(5))
        clean = mechanism.release([5, 0, 2**53 + 1], coins=SeededCoins(5))
        assert [type(x) for x in release.value] == [type(x) for x in clean.value]
        assert release.value[0] == clean.value[0]
        assert release.value[2] == clean.value[2]
        assert release.to_dict().keys() == clean.to_dict().keys()
        assert all(math.isfinite(x) for x in release.value)


@every_kind
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, None, "seven"], ids=repr)
def test_what_is_no_finite_number_counts_as_zero(kind, bad):
    mechanism = make(kind)
    released = mechanism.release(bad, coins=SeededCoins(6))
    assert released == mechanism.release(0, coins=SeededCoins(6))
    assert mechanism.perturb([bad], coins=SeededCoins(6)).tolist() == [released.value]


@every_kind
def test_seeded_coins_are_stamped_and_repeat(kind):
    mechanism = make(kind)
    seeded = mechanism.release(3, coins=SeededCoins(2))
    assert not seeded.private
    assert "NOT PRIVATE" in seeded.to_dict()["warning"]
    assert seeded == mechanism.release(3, coins=SeededCoins(2))
    fresh = [mechanism.release(3, coins=SYSTEM) for _ in range(40)]
    assert all(release.private for release in fresh)
    assert len({release.value for release in fresh}) > 1


@every_kind
def test_the_same_function_under_another_relation(kind):
    declared = Sensitivity(1.0, Norm.L1 if "Laplace" in kind.__name__ else Norm.L2, unit="person")
    delta = {} if declared.norm is Norm.L1 else {"delta": 1e-5}
    one = kind.calibrate(declared, epsilon=0.5, **delta)
    replaced = kind.calibrate(declared.under("replace-one"), epsilon=0.5, **delta)
    blanked = kind.calibrate(declared.under("zero-out"), epsilon=0.5, **delta)
    # Twice the sensitivity, twice the noise (on integers, up to their effect).
    assert replaced.standard_deviation == pytest.approx(2 * one.standard_deviation, rel=2e-2)
    assert blanked.standard_deviation == one.standard_deviation
    for mechanism, relation in ((replaced, "replace-one"), (blanked, "zero-out")):
        assert mechanism.guarantee(1e-5).neighbours == relation
        assert mechanism.guarantee(1e-5).unit == "person"
        assert mechanism.event.relation == relation
        assert mechanism.event.unit_name == "person"
        assert mechanism.guarantee(1e-5).epsilon <= 0.5


@every_kind
def test_a_bound_in_the_wrong_norm_is_refused(kind):
    wrong = Norm.L2 if "Laplace" in kind.__name__ else Norm.L1
    delta = {} if wrong is Norm.L2 else {"delta": 1e-5}
    with pytest.raises(ValueError, match=r"sensitivity must be an l[12] bound"):
        kind.calibrate(Sensitivity(1.0, wrong, dimension=4), epsilon=1.0, **delta)
    with pytest.raises(ValueError, match=r"sensitivity must be an l[12] bound"):
        kind(2.0, Sensitivity(1.0, wrong, dimension=4))
    kind.calibrate(Sensitivity(1.0, wrong), epsilon=1.0, **delta)  # one dimension: all norms agree
    with pytest.raises(ValueError, match="above 0"):
        kind.calibrate(Sensitivity(0.0), epsilon=1.0, **delta)


@every_kind
@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None])
def test_bad_targets_are_errors(kind, epsilon):
    delta = {} if "Laplace" in kind.__name__ else {"delta": 1e-5}
    with pytest.raises(ValueError, match="epsilon must be"):
        kind.calibrate(Sensitivity(1.0), epsilon=epsilon, **delta)


@every_kind
def test_bad_parameters_are_errors_before_any_value(kind):
    for size in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="must be"):
            kind(size, Sensitivity(1))
    for confidence in (0, 1, 1.5, math.nan):
        with pytest.raises(ValueError, match="confidence"):
            make(kind).half_width(confidence)
    with pytest.raises(ValueError, match="delta"):
        make(kind).guarantee(1.0)


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
@pytest.mark.parametrize("grid", [0.3, -1.0, 0.0, 2.0**-45])
def test_a_bad_grid_is_an_error_at_once(kind, grid):
    with pytest.raises(ValueError, match="grid must be"):
        kind(1.0, Sensitivity(1), grid=grid)


@pytest.mark.parametrize("kind", [Laplace, Gaussian])
def test_low_bits_do_not_tell_the_value(kind):
    """Mironov's attack: the doubles an ordinary sampler can return differ between 0 and 1."""
    mechanism = make(kind)
    outputs = {
        value: mechanism.perturb(np.full(50_000, value), coins=SeededCoins(21))
        for value in (0.0, 1.0, 1 / 3)
    }
    share = lambda noisy: np.mean((noisy * 2.0**53) % 1 == 0)  # noqa: E731
    for noisy in outputs.values():
        assert np.all(noisy % mechanism.resolution == 0)
        assert share(noisy) == 1.0
    # What the attack sees in a textbook sampler: small results are possible for 0 alone.
    textbook = np.random.default_rng(1).laplace(size=50_000)
    assert share(textbook) < 0.97 < share(1.0 + textbook)
    assert mechanism.resolution <= 2.0**-20 * mechanism.standard_deviation
    coarse = [np.mean((noisy / mechanism.resolution) % 2 == 0) for noisy in outputs.values()]
    assert np.ptp(coarse) < 4 * math.sqrt(0.25 / 50_000) * 2


@given(st.lists(st.integers(-(2**80), 2**80)), st.integers(-(2**63), LARGEST))
def test_sums_saturate(values, noise):
    left = as_whole(values)
    assert left.tolist() == [min(max(v, -(2**63)), LARGEST) for v in values]
    total = saturating_sum(left, np.full(left.shape, noise))
    assert total.tolist() == [min(max(v + noise, -(2**63)), LARGEST) for v in left.tolist()]


@given(st.floats(), st.floats())
def test_floats_are_rounded_to_the_nearest_integer(x, y):
    for values in ([x, y], np.array([x, y]), (Decimal(x), y)):
        whole = as_whole(values)
        assert whole.dtype == np.int64
        for number, original in zip(whole.tolist(), (x, y), strict=True):
            if not math.isfinite(original):
                assert number == 0
            else:
                nearest = math.floor(Fraction(original) + Fraction(1, 2))
                assert number == min(max(nearest, -(2**63)), LARGEST)


@given(st.integers(-(2**62), 2**62), st.integers(-(2**12), 2**12), st.integers(1, 2**12))
def test_rounding_moves_an_integer_by_the_move_rounded_up_at_most(base, step, places):
    """Half stars: a sum that goes from 0.5 to 1.5 moves by 1, and so must its rounding."""
    step, base = Fraction(step, places), Fraction(base, 2)
    for wrap in (lambda x: [x], lambda x: np.array([float(x)])):
        ends = [wrap(base), wrap(base + step)]
        moved = abs(Fraction(ends[1][0]) - Fraction(ends[0][0]))
        before, after = (as_whole(end).tolist()[0] for end in ends)
        assert abs(after - before) <= math.ceil(moved)
    assert as_whole([0.5, 1.5, 2.5, -0.5, -1.5]).tolist() == [1, 2, 3, 0, -1]
    assert as_whole(np.array([0.49999999999999994, -1e-20])).tolist() == [0, 0]


def test_arrays_of_every_type_are_read():
    assert as_whole(np.array([2**64 - 1, 3], dtype=np.uint64)).tolist() == [LARGEST, 3]
    assert as_whole(np.array([True, False])).tolist() == [1, 0]
    assert as_whole(np.array([2.5, 3.5], dtype=np.float16)).tolist() == [3, 4]
    assert as_whole([2**60 + 1, math.nan]).tolist() == [2**60 + 1, 0]
    assert as_whole([2**63, -1]).tolist() == [LARGEST, -1]
    assert as_floats([1, "x", None, True]).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert as_floats([[1, 2], [3, 4]]).shape == (2, 2)
    assert as_floats(np.float32(0.5)).shape == ()


@every_kind
def test_cells_that_numpy_can_not_read_or_stack_are_no_numbers(kind):
    """Under the tests' settings a warning is an error, too."""
    quiet = make(kind).perturb([0.0, 0.0], coins=SeededCoins(5))
    signalling = np.array([0x7FA00000, 0], dtype=np.uint32).view(np.float32)
    for values in (signalling, [np.zeros((2, 2)), np.zeros((2, 3))], [0.0, Unreadable(1, 3)]):
        assert np.array_equal(make(kind).perturb(values, coins=SeededCoins(5)), quiet)


class Unreadable(Fraction):
    """A number that is none."""

    def __float__(self):
        raise TypeError

    def as_integer_ratio(self):
        return 1, 0


@every_kind
@pytest.mark.parametrize("given", [1.0, 1, "1", None])
def test_a_sensitivity_is_declared_as_one(kind, given):
    delta = {} if kind in (Laplace, DiscreteLaplace) else {"delta": 1e-5}
    with pytest.raises(ValueError, match=r"a Sensitivity, such as Sensitivity\(1\.0\), got"):
        kind.calibrate(given, epsilon=1.0, **delta)
    with pytest.raises(ValueError, match=r"a Sensitivity, such as Sensitivity\(1\.0\), got"):
        kind(1.0, given)
