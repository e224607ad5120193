"""Private keys: a group of one unit alone shows with the promised probability at most."""

import math

import ibis.expr.datatypes as dt
import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.core import Neighbours
from sfumato.queries import Count, GroupBy, MostCommon, Sum
from sfumato.queries.facts import Facts
from sfumato.queries.private_keys import threshold

COLUMNS = {
    "person": dt.int64, "x": dt.float64, "city": dt.string, "year": dt.int64, "at": dt.timestamp,
}  # fmt: skip


def facts(rows=1, groups=1, neighbours="add-remove"):
    relation = Neighbours.parse(neighbours)
    return Facts(COLUMNS, "person", "person", rows, groups, relation)


def passes(scale, at):
    """Pr[1 + Y >= at], Y discrete Laplace, to fifty digits."""
    with mpmath.workdps(50):
        p = mpmath.exp(-1 / mpmath.mpf(scale))
        return p ** (at - 1) / (1 + p)


@given(st.floats(0.05, 1e4), st.integers(1, 50), st.floats(1e-12, 0.1))
def test_a_group_of_one_unit_hardly_ever_shows(scale, groups, delta):
    at = threshold(scale, groups, delta)
    assert at >= 2
    assert groups * passes(scale, at) <= delta
    if at > 2:  # no threshold that is much lower would do
        assert groups * passes(scale, at - 2) > delta


def test_a_threshold_that_lies_on_a_whole_number_is_not_below_it():
    """There the noise is just as likely to reach it as delta says."""
    for steps in (3, 10, 40):
        for scale in (0.5, 2.0, 7.0):
            p = math.exp(-1 / scale)
            exact = p**steps / (1 + p)
            for delta in (exact, math.nextafter(exact, 0), math.nextafter(exact, 1)):
                assert passes(scale, threshold(scale, 1, delta)) <= mpmath.mpf(delta)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("of", [Count(epsilon=0.5, delta=1e-6),
                                Sum("x", -7.0, -1.0, epsilon=0.5, delta=1e-6)])  # fmt: skip
def test_names_and_measures_share_epsilon(share, groups, of):
    query = GroupBy(("city", "year"), of, private_keys=True, key_share=share)
    plan = query.plan(facts(groups, groups))
    assert plan.selection.scale == pytest.approx(groups / (0.5 * share), rel=1e-9)
    assert plan.threshold == threshold(plan.selection.scale, groups, 1e-6)
    basic = account(plan.event, 1e-6, accountant="basic").epsilon
    assert basic == pytest.approx(0.5, rel=1e-4)


def test_what_cannot_be_a_key_is_refused():
    of = Count(epsilon=0.5, delta=1e-6)
    for columns, word in ((("city", "city"), "different from each other"), (("x",), "must hold"),
                          (("at",), "must hold"), (("nowhere",), "nowhere")):  # fmt: skip
        with pytest.raises(ValueError, match=word):
            GroupBy(columns, of, private_keys=True).plan(facts())
    with pytest.raises(ValueError, match="private keys need add-remove or zero-out"):
        GroupBy(("city",), of, private_keys=True).plan(facts(neighbours="replace-one"))
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match="key_share"):
            GroupBy(("city",), of, private_keys=True, key_share=share).plan(facts())


@pytest.mark.parametrize("winners", [1, 2])
def test_winners_share_epsilon_and_their_price_is_checked(winners):
    cities = ("Rome", "Milan", "Bari")
    plan = MostCommon("city", cities, winners, epsilon=0.6).plan(facts(3, 3))
    assert plan.choice.epsilon == pytest.approx(0.6 / winners)
    assert account(plan.event, 0.0).epsilon == pytest.approx(0.6)
    assert plan.choice.sensitivity.bound == 3
    for wrong in ({"epsilon": 2e6}, {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 1.0, "delta": 2}):
        with pytest.raises(ValueError, match=r"(epsilon|delta) must be"):
            MostCommon("city", cities, **wrong).plan(facts())
