"""Sensitivities: norms checked and converted, relations, groups."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sfumato.core import Neighbours, Norm, Sensitivity

ORDER = {Norm.L1: 1, Norm.L2: 2, Norm.LINF: np.inf}
norms = st.sampled_from(list(Norm))


@given(arrays(float, 7, elements=st.floats(-10, 10).map(lambda x: round(x, 9))), norms, norms)
def test_a_converted_bound_still_bounds(change, source, target):
    declared = Sensitivity(np.linalg.norm(change, ORDER[source]), source, dimension=7)
    converted = declared.to(target)
    assert converted.norm is target
    assert np.linalg.norm(change, ORDER[target]) <= converted.bound * (1 + 1e-9)


def test_conversions_are_attained():
    assert Sensitivity(1, "linf", dimension=16).to("l2").bound == 4
    assert Sensitivity(1, "linf", dimension=16).to("l1").bound == 16
    assert Sensitivity(1, "l2", dimension=16).to("l1").bound == 4
    assert Sensitivity(1, "l1", dimension=16).to("l2").bound == 1


@given(st.floats(1e-9, 1e9), st.integers(2, 10_000))
def test_bounds_are_never_rounded_down(bound, dimension):
    exact = Fraction(bound)
    declared = Sensitivity(bound, "l2", dimension=dimension)
    assert Fraction(declared.to("l1").bound) ** 2 >= exact**2 * dimension
    assert Fraction(declared.for_group(dimension).bound) >= exact * dimension


def test_the_wrong_norm_is_an_error_with_a_remedy():
    with pytest.raises(ValueError, match=r"l2 bound.*\.to\('l2'\)"):
        Sensitivity(1, "l1", dimension=2).require(Norm.L2)
    assert Sensitivity(3, "l1").require(Norm.L2) == 3  # in one dimension all norms agree


def test_what_no_unit_can_change_needs_no_noise():
    with pytest.raises(ValueError, match="needs no noise"):
        Sensitivity(0.0).require(Norm.L1)


def test_groups_and_relations():
    salary = Sensitivity(50_000, unit="person")
    assert salary.for_group(4, "team").bound == 200_000
    assert salary.for_group(4).unit == "group of 4 persons"
    assert salary.under("replace-one").bound == 100_000
    assert salary.under("zero-out").bound == 50_000
    with pytest.raises(ValueError, match="says nothing about"):
        Sensitivity(1, neighbours=Neighbours.REPLACE_ONE).under("add-remove")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"bound": -1}, "sensitivity"),
        ({"bound": math.nan}, "sensitivity"),
        ({"bound": math.inf}, "sensitivity"),
        ({"bound": "1"}, "sensitivity"),
        ({"bound": 1, "norm": "l3"}, "norm"),
        ({"bound": 1, "dimension": 0}, "dimension"),
        ({"bound": 1, "neighbours": "x"}, "neighbours"),
        ({"bound": 1, "unit": ""}, "unit"),
    ],
)
def test_nonsense_is_refused(options, named):
    with pytest.raises(ValueError, match=named):
        Sensitivity(**options)
