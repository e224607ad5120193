"""The functions of the seed documents: their values, their bounds in print, their bad rows."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from sfumato.core import Neighbours, Norm
from sfumato.mechanisms.sensitivity import (
    NULL,
    BoundedSum,
    Count,
    GroupSum,
    Histogram,
    Mean,
    RoundedCount,
    SumAndCount,
    TwoLayerGradient,
    VectorSum,
)

BAD_NUMBERS = [math.nan, None, "7", b"7", [], {}, 1j, Decimal(7), object(), np.array([7.0, 8.0])]


class Hostile(float):
    """A number that fails on every use."""

    def __float__(self) -> float:
        raise RuntimeError

    def __gt__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError


# What the seed documents print, where it is right.


def test_seed_000_count_rounded_up_to_fives() -> None:
    rounded = RoundedCount(5)
    assert [float(rounded(range(n))) for n in (0, 1, 5, 10, 11)] == [0, 5, 5, 10, 15]
    assert rounded.sensitivity("add-remove").bound == 5


def test_seed_004_heights_salaries_and_mean() -> None:
    assert BoundedSum(0, 7).sensitivity().bound == 7
    assert GroupSum(50_000, 4).sensitivity().bound == 200_000
    assert Mean(0, 1, size=1000).sensitivity("replace-one").bound == pytest.approx(1e-3)


@pytest.mark.parametrize("relation", list(Neighbours))
def test_the_group_sum_is_group_privacy_of_the_bounded_sum(relation: Neighbours) -> None:
    member = BoundedSum(0, 50_000).sensitivity(relation)
    assert GroupSum(50_000, 4).sensitivity(relation) == member.for_group(4)


def test_seed_004_l1_and_l2_of_k_dimensions() -> None:
    ones = VectorSum(9, Norm.LINF, 1.0)
    assert ones.sensitivity(norm="l1").bound == pytest.approx(9)
    assert ones.sensitivity(norm="l2").bound == pytest.approx(3)


# The mean.


def test_the_mean_refuses_add_remove_and_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"noisy sum and a noisy count.*SumAndCount"):
        Mean(0, 1, size=10).sensitivity("add-remove")


def test_the_mean_divides_by_the_declared_size() -> None:
    assert float(Mean(0, 1, size=10)([1.0] * 4)) == pytest.approx(0.4)
    assert float(Mean(0, 1, size=10)([])) == 0


@pytest.mark.parametrize(
    ("relation", "norm", "bound"),
    [
        ("add-remove", "l1", 4.0),
        ("add-remove", "l2", math.sqrt(10)),
        ("add-remove", "linf", 3.0),
        ("zero-out", "l2", math.sqrt(10)),
        ("replace-one", "l1", 2.0),
        ("replace-one", "l2", 2.0),
    ],
)
def test_sum_and_count_in_each_norm(relation: str, norm: str, bound: float) -> None:
    assert SumAndCount(1, 3).sensitivity(relation, norm).bound == pytest.approx(bound)


def test_a_mean_from_a_released_sum_and_count_stays_within_the_bounds() -> None:
    pair = SumAndCount(-1, 3)
    assert pair.mean_from(*pair([0.0, 1.0, 5.0])) == pytest.approx(4 / 3)
    assert pair.mean_from(1e9, 2) == 3
    assert pair.mean_from(-1e9, -50) == -1
    assert pair.mean_from(0, 0) == 0
    with pytest.raises(ValueError, match="count"):
        pair.mean_from(1.0, math.nan)


# Bad rows.


@pytest.mark.parametrize("row", [*BAD_NUMBERS, Hostile(7.0)], ids=lambda row: type(row).__name__)
def test_a_row_that_is_no_number_counts_as_the_default(row: object) -> None:
    assert float(BoundedSum(-5, 5)([row, 2.0])) == 2
    assert float(BoundedSum(1, 5)([row, 2.0])) == 3
    assert float(BoundedSum(1, 5, default=4)([row, 2.0])) == 6
    assert SumAndCount(1, 5)([row, 2.0]).tolist() == [3, 2]


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (math.inf, 5),
        (-math.inf, -5),
        (10**400, 5),
        (-(10**400), -5),
        (Fraction(10**400), 5),
        (True, 1),
        (np.bool_(True), 1),
        (np.float32(0.5), 0.5),
        (np.int64(-9), -5),
    ],
)
def test_numbers_are_clamped(row: object, value: float) -> None:
    assert float(BoundedSum(-5, 5)([row])) == value


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.uint8, bool])
def test_an_array_gives_what_a_list_gives(kind: type) -> None:
    array = np.array([0, 1, 1, 200, 3], dtype=kind)
    summed = BoundedSum(0.5, 100)
    assert float(summed(array)) == float(summed(array.tolist()))


def test_an_array_with_nan_gives_what_a_list_gives() -> None:
    array = np.array([math.nan, math.inf, -math.inf, 1e308, 2.0])
    summed = BoundedSum(1, 5)
    assert float(summed(array)) == float(summed(array.tolist())) == 1 + 5 + 1 + 5 + 2


def test_a_blank_contributes_nothing_but_a_bad_row_does() -> None:
    assert float(BoundedSum(10, 20)([NULL, 15])) == 15
    assert float(BoundedSum(10, 20)(np.array([NULL, 15], dtype=object))) == 15
    assert float(BoundedSum(10, 20)([None, 15])) == 25
    assert float(Count()([NULL, None])) == 1
    assert Histogram((1, 2), default=1)([NULL, None]).tolist() == [1, 0]
    assert repr(NULL) == "NULL"


def test_a_predicate_that_fails_is_false() -> None:
    above = Count(lambda row: 1 / row > 0)
    assert float(above([1, 0, "x", None, np.array([1.0, 2.0])])) == 1
    assert float(above([np.float64(0.0), np.float64(-0.0), np.float64("nan")])) == 1  # unwarned


def test_rows_in_no_category_are_ignored_or_put_into_the_declared_bin() -> None:
    rows = ["a", "z", math.nan, [], Hostile(1.0), "b", "a"]
    assert Histogram(("a", "b"))(rows).tolist() == [2, 1]
    assert Histogram(("a", "b"), default="b")(rows).tolist() == [2, 5]


def test_groups_that_are_too_large_or_no_groups() -> None:
    total = GroupSum(10, 2)
    assert float(total([[1, 2, 3], 7, None, "ab", [math.nan, 99], Hostile(1.0), NULL])) == 13


@pytest.mark.parametrize(
    "row", [None, "abc", 1.0, [1.0, 2.0], [1.0, 2.0, math.nan], [1j, 0, 0], [[1.0, 2.0, 3.0]]]
)
def test_rows_that_are_no_vectors_contribute_zero(row: object) -> None:
    assert VectorSum(3, Norm.L2, 1.0)([row, [0, 0, 0.5]]).tolist() == [0, 0, 0.5]


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("size", [1e-300, 0.1, 1.0, 1e300, 1.7e308])
def test_a_clipped_vector_never_exceeds_its_bound(norm: Norm, size: float) -> None:
    clipped = VectorSum(4, norm, 0.7)([[size, -size, size / 3, 0]])
    order = {Norm.L1: 1, Norm.L2: 2, Norm.LINF: math.inf}[norm]
    assert np.linalg.norm(clipped, order) <= 0.7
    assert clipped[0] == -clipped[1] > 0


@pytest.mark.parametrize("norm", list(Norm))
def test_a_clipped_vector_never_exceeds_its_bound_in_exact_arithmetic(norm: Norm) -> None:
    """Rounding alone would leave about every other clipped vector a unit too long."""
    rng = np.random.default_rng(3)
    for bound in rng.uniform(0.1, 10, 200).tolist():
        clipped = VectorSum(5, norm, bound)([rng.normal(scale=20, size=5)]).tolist()
        sizes = [abs(Fraction(entry)) for entry in clipped]
        if norm is Norm.L2:
            assert sum(size**2 for size in sizes) <= Fraction(bound) ** 2
        else:
            assert (sum(sizes) if norm is Norm.L1 else max(sizes)) <= Fraction(bound)


@pytest.mark.parametrize(
    "record",
    [None, 3, (), ((0, 0),), ((0, 0), 1, 1), ((0, 0), None), ((math.nan, 0), 1), ((0,), 1)],
)
def test_records_that_are_no_pairs_have_no_gradient(record: object) -> None:
    gradient = TwoLayerGradient([[1.0, 0.5]], [1.0], clip=1.0)
    assert not gradient([record]).any()


# Floating point.


def test_no_row_warns() -> None:
    """Under the tests' settings a warning is an error; the rows count as they did."""
    signalling = np.array([0x7FA00000, 0], dtype=np.uint32).view(np.float32)
    huge = np.array([np.finfo(np.longdouble).max, 0])
    for data, first in ((signalling, 1.0), (huge, 2.0)):
        assert float(BoundedSum(1, 2)(data)) == first + 1
        assert float(BoundedSum(1, 2)(list(data))) == first + 1
        for rows in (data.reshape(1, 2), [data], [data.tolist()], [list(data)]):
            assert not VectorSum(2, Norm.L2, 1.0)(rows).any()
    assert not VectorSum(2, Norm.L2, 1.0)([[np.ma.masked, 1.0], ["1", "2"]]).any()
    assert VectorSum(2, Norm.L1, 3.0)([(np.float32(1), True), range(2)]).tolist() == [1, 2]


@pytest.mark.parametrize("lower", [-1e-17, -0.1, 0.3, -1 / 3])
@pytest.mark.parametrize("upper", [1.0, 0.7, 1 + 2**-52, 1e5 / 3])
def test_bounds_are_never_rounded_down(lower: float, upper: float) -> None:
    low, high = Fraction(lower), Fraction(upper)
    largest = max(abs(low), high)
    assert Fraction(BoundedSum(lower, upper).sensitivity("replace-one").bound) >= high - low
    for relation, moved in (("replace-one", high - low), ("zero-out", largest)):
        assert Fraction(Mean(lower, upper, 7).sensitivity(relation).bound) >= moved / 7
    pair = SumAndCount(lower, upper)
    assert Fraction(pair.sensitivity("replace-one").bound) >= high - low
    assert Fraction(pair.sensitivity("add-remove", "l1").bound) >= largest + 1
    assert Fraction(pair.sensitivity("add-remove", "l2").bound) ** 2 >= largest**2 + 1
    assert Fraction(GroupSum(upper, 7).sensitivity().bound) >= 7 * high


def test_a_sum_does_not_depend_on_the_order_of_its_rows() -> None:
    """Where a plain sum, 0 or 1000, would (Casacuberta et al., arXiv:2207.10635)."""
    rows = [1e16, *[1.0] * 1000, -1e16]
    summed = BoundedSum(-1e16, 1e16)
    vectors = VectorSum(1, Norm.L2, 2e16)
    assert sum(rows) != 1000
    assert float(summed(rows)) == float(summed(sorted(rows))) == 1000
    assert vectors([[r] for r in rows]) == vectors([[r] for r in sorted(rows)]) == 1000


# Parameters.


@pytest.mark.parametrize(
    "make",
    [
        lambda: BoundedSum(2, 1),
        lambda: BoundedSum(1, 1),
        lambda: BoundedSum(math.nan, 1),
        lambda: BoundedSum(0, math.inf),
        lambda: BoundedSum(0, 1e300),
        lambda: BoundedSum(0, 1, default=2),
        lambda: BoundedSum(0, 1, default=math.nan),
        lambda: Mean(0, 1, size=0),
        lambda: Mean(1, 0, size=5),
        lambda: SumAndCount(1, 0),
        lambda: GroupSum(0, 4),
        lambda: GroupSum(-1, 4),
        lambda: GroupSum(1, 0),
        lambda: RoundedCount(0),
        lambda: RoundedCount(2.5),  # type: ignore[arg-type]
        lambda: Histogram(()),
        lambda: Histogram(("a", "a")),
        lambda: Histogram((1.0, math.nan)),
        lambda: Histogram(("a",), default="b"),
        lambda: VectorSum(0, Norm.L1, 1.0),
        lambda: VectorSum(3, "l3", 1.0),  # type: ignore[arg-type]
        lambda: VectorSum(3, Norm.L1, 0.0),
        lambda: VectorSum(3, Norm.L1, math.inf),
        lambda: TwoLayerGradient([[1.0]], [1.0, 2.0], clip=1.0),
        lambda: TwoLayerGradient([1.0], [1.0], clip=1.0),
        lambda: TwoLayerGradient([[math.nan]], [1.0], clip=1.0),
        lambda: TwoLayerGradient([["x"]], [1.0], clip=1.0),
        lambda: TwoLayerGradient([[1.0]], [1.0], clip=-1.0),
        lambda: TwoLayerGradient([[1.0]], [1.0], 1.0, activation="sine"),  # type: ignore[arg-type]
        lambda: Count().sensitivity("remove-two"),
        lambda: Count().sensitivity(norm="l7"),
    ],
)
def test_bad_parameters_are_errors(make) -> None:
    with pytest.raises(ValueError, match="must"):
        make()


def test_functions_are_frozen_and_comparable() -> None:
    assert BoundedSum(0, 1) == BoundedSum(0.0, 1.0, default=0)
    assert hash(Histogram(("a", "b"))) == hash(Histogram(("a", "b")))
    with pytest.raises(AttributeError):
        BoundedSum(0, 1).upper = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(TwoLayerGradient([[1.0]], [1.0], clip=1.0).hidden_weights)[0] = 2
