"""Every declared sensitivity, attacked: it holds, and a thousandth less would not."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.core import Neighbours, Norm
from sfumato.mechanisms.sensitivity import (
    NULL,
    Ball,
    BoundedSum,
    Box,
    Categories,
    Count,
    Domain,
    Groups,
    GroupSum,
    Histogram,
    Interval,
    Mean,
    NetworkExpansion,
    Product,
    RoundedCount,
    SumAndCount,
    TwoLayerGradient,
    VectorSum,
    falsify,
    largest_found,
)
from sfumato.mechanisms.sensitivity.falsifier import distance


def is_bad(rating: object) -> bool:
    return rating == "bad"


RATINGS = Categories(("bad", "normal", "good"), raw=True)
WEIGHTS = np.array([[0.5, -1.0, 0.25], [1.0, 0.0, -0.5]]), np.array([2.0, -1.0])
PAIRS = Product((Ball(1.0, 3, raw=True), Interval(-1, 1, raw=True)), raw=True)
UNIT_PAIRS = Product((Box(0, 1, 3, raw=True), Box(0, 1, 2, raw=True)), raw=True)


@dataclass(frozen=True)
class Case:
    name: str
    function: Any
    domain: Domain
    tight: tuple[Norm, ...] = tuple(Norm)

    def relations(self) -> list[Neighbours]:
        refused = {Neighbours.ADD_REMOVE} if isinstance(self.function, Mean) else set()
        return [relation for relation in Neighbours if relation not in refused]


CASES = [
    Case("total count", Count(), RATINGS),
    Case("predicate count", Count(is_bad), RATINGS),
    Case("rounded count", RoundedCount(5), RATINGS),
    Case("rounded predicate count", RoundedCount(7, is_bad), RATINGS),
    Case("histogram, unknown ignored", Histogram(("bad", "normal", "good")), RATINGS),
    Case("histogram, unknown normal", Histogram(("bad", "normal"), default="normal"), RATINGS),
    Case("histogram, one bin", Histogram(("bad",)), RATINGS),
    Case("histogram, one bin for all", Histogram(("bad",), default="bad"), RATINGS),
    Case("positive sum", BoundedSum(10, 20), Interval(10, 20, raw=True)),
    Case("signed sum", BoundedSum(-3, 2), Interval(-3, 2, raw=True)),
    Case("negative sum", BoundedSum(-4, -1), Interval(-4, -1, raw=True)),
    Case("sum of huge values", BoundedSum(-1e290, 1e290), Interval(-1e290, 1e290, raw=True)),
    Case("mean", Mean(-1, 3, size=50), Interval(-1, 3, raw=True)),
    Case("sum and count", SumAndCount(-2, 0.5), Interval(-2, 0.5, raw=True)),
    Case("sum and count, small values", SumAndCount(0.1, 0.5), Interval(0.1, 0.5, raw=True)),
    Case("group sum", GroupSum(50_000, 4), Groups(Interval(0, 50_000, raw=True), 4, raw=True)),
    *(
        Case(f"vector sum, {norm}", VectorSum(5, norm, 2.5), Ball(2.5, 5, norm, raw=True))
        for norm in Norm
    ),
    Case("vector sum, one number", VectorSum(1, Norm.L2, 2.0), Ball(2.0, 1, raw=True)),
    Case("two-layer gradient", TwoLayerGradient(*WEIGHTS, clip=0.3), PAIRS, (Norm.L1,)),
    Case(
        "network expansion",
        NetworkExpansion([np.full((2, 3), 0.7), np.array([[1.0, -0.5], [0.2, 0.9]])]),
        UNIT_PAIRS,
        (),
    ),
]

COMBINATIONS = [
    pytest.param(case, relation, norm, id=f"{case.name}, {relation}, {norm}")
    for case in CASES
    for relation in case.relations()
    for norm in Norm
]


def is_tight(case: Case, relation: Neighbours, norm: Norm) -> bool:
    return norm in case.tight and case.function.sensitivity(relation, norm).bound > 0


TIGHT = [combination for combination in COMBINATIONS if is_tight(*combination.values)]


@pytest.mark.parametrize(("case", "relation", "norm"), COMBINATIONS)
def test_nothing_exceeds_the_declared_bound(case: Case, relation: Neighbours, norm: Norm) -> None:
    claim = case.function.sensitivity(relation, norm)
    assert (claim.norm, claim.neighbours) == (norm, relation)
    witness = falsify(case.function, case.domain, claim, budget=300, seed=1)
    assert witness is None, str(witness)


@pytest.mark.parametrize(("case", "relation", "norm"), TIGHT)
def test_a_thousandth_less_is_refuted(case: Case, relation: Neighbours, norm: Norm) -> None:
    """So a constant that is wrong by a percent, either way, fails one test or the other."""
    claim = case.function.sensitivity(relation, norm)
    witness = falsify(case.function, case.domain, replace(claim, bound=0.999 * claim.bound))
    assert witness is not None
    assert witness.violates
    assert witness.distance <= claim.bound * (1 + 1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_norm_defaults_to_the_one_that_is_bounded(case: Case) -> None:
    relation = case.relations()[-1]
    default = case.function.sensitivity(relation)
    assert default == case.function.sensitivity(relation, default.norm)
    assert default.norm is getattr(case.function, "norm", Norm.L1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_empty_table_has_a_finite_value(case: Case) -> None:
    value = np.asarray(case.function([]))
    assert np.isfinite(value).all()
    assert value.size == case.function.sensitivity("zero-out").dimension
    assert value.dtype == np.float64


def test_how_tight_the_bounds_without_a_matching_pair_are() -> None:
    """The network's bound is loose: sigma' and sigma'' do not peak at the same place."""
    case = CASES[-1]
    claim = case.function.sensitivity("replace-one")
    found = largest_found(case.function, case.domain, claim, budget=1000)
    assert 0.2 < found.ratio < 1
    assert not found.violates


# Tables of anything at all.

NUMBERS = st.one_of(
    st.floats(width=64),
    st.floats(-25, 25),
    st.sampled_from([0.0, -0.0, 1.0, -3.0, 10.0, 20.0, 5e-324, 1.7e308, -1.7e308, 10**400]),
    st.integers(),
)
VALUES = st.one_of(NUMBERS, st.sampled_from([None, "bad", "normal", "good", True, 1j]), st.text())
VECTORS = st.one_of(*(st.lists(NUMBERS, min_size=k, max_size=k) for k in (1, 2, 3, 5)))
RECORDS = st.one_of(
    VALUES,
    VECTORS,
    st.tuples(VECTORS, NUMBERS),
    st.tuples(VECTORS, VECTORS),
    st.lists(VALUES, max_size=6),
)


@st.composite
def neighbouring_tables(draw: st.DrawFn) -> tuple[Neighbours, list[Any], list[Any]]:
    relation = draw(st.sampled_from(list(Neighbours)))
    table = draw(st.lists(RECORDS, max_size=8)) * draw(st.integers(1, 4))
    place = draw(st.integers(0, len(table)))
    before, after = table[:place], table[place:]
    first = [*before, draw(RECORDS), *after]
    if relation is Neighbours.ADD_REMOVE:
        return relation, first, table
    put = NULL if relation is Neighbours.ZERO_OUT else draw(RECORDS)
    return relation, first, [*before, put, *after]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=80, deadline=None)
@given(pair=neighbouring_tables())
def test_no_two_neighbouring_tables_are_further_apart_than_declared(case: Case, pair) -> None:
    relation, first, second = pair
    values = np.atleast_1d(case.function(first)), np.atleast_1d(case.function(second))
    assert all(np.isfinite(value).all() for value in values)
    for norm in Norm:
        if relation in case.relations():
            bound = case.function.sensitivity(relation, norm).bound
            rounding = 1e-15 * sum(np.abs(value).sum() for value in values)
            assert distance(*values, norm) <= bound * (1 + 1e-9) + rounding


def typed(case: Case) -> st.SearchStrategy[Any]:
    """Records of the kind that the case's function is for, so that they count."""
    k = case.function.sensitivity("zero-out").dimension
    unit = st.floats(-1, 1)
    match case.function:
        case VectorSum():
            return st.lists(NUMBERS, min_size=k, max_size=k)
        case TwoLayerGradient():
            return st.tuples(st.lists(unit, min_size=3, max_size=3), st.floats(-1e3, 1e3))
        case NetworkExpansion():
            vectors = [st.lists(st.floats(-1, 2), min_size=n, max_size=n) for n in (3, 2)]
            return st.tuples(*vectors)
        case GroupSum():
            return st.lists(NUMBERS, max_size=6)
        case _:
            return VALUES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_two_well_formed_tables_are_further_apart_than_declared(case: Case, data) -> None:
    records = typed(case)
    table = data.draw(st.lists(records, max_size=6))
    old, new = data.draw(records), data.draw(records)
    steps = {
        Neighbours.ADD_REMOVE: table,
        Neighbours.REPLACE_ONE: [*table, new],
        Neighbours.ZERO_OUT: [*table, NULL],
    }
    first = np.atleast_1d(case.function([*table, old]))
    for relation in case.relations():
        second = np.atleast_1d(case.function(steps[relation]))
        rounding = 1e-15 * (np.abs(first).sum() + np.abs(second).sum())
        for norm in Norm:
            bound = case.function.sensitivity(relation, norm).bound
            assert distance(first, second, norm) <= bound * (1 + 1e-9) + rounding
            assert math.isfinite(bound)
