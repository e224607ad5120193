"""What records may be: draws within bounds and as common as declared; changes where asked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from sfumato.attacks.membership.record_features import Binary, Marginal, Within, some_features


@given(
    features=st.integers(1, 40),
    counts=st.lists(st.integers(0, 50), min_size=1, max_size=20),
    seed=st.integers(0, 2**32 - 1),
)
def test_exactly_as_many_features_are_picked_as_asked(features, counts, seed):
    where = some_features(np.array(counts), features, generator=np.random.default_rng(seed))
    assert where.sum(axis=1).tolist() == [min(count, features) for count in counts]


def test_every_feature_is_picked_as_often():
    where = some_features(np.full(20_000, 3), 10, generator=np.random.default_rng(1))
    assert where.mean(axis=0) == pytest.approx(0.3, abs=4.5 * np.sqrt(0.21 / 20_000))
    together = (where[:, 0] & where[:, 1]).mean()
    assert together == pytest.approx(3 / 10 * 2 / 9, abs=4 * np.sqrt(0.0622 / 20_000))


@given(seed=st.integers(0, 2**32 - 1))
def test_changes_are_where_asked_and_nowhere_else(seed):
    random = np.random.default_rng(seed)
    where = random.random((5, 7)) < 0.4
    for kind in (Binary(7), Within.alike(7, -2.0, 3.0)):
        before = kind.draw(5, generator=random)
        assert np.array_equal(kind.changed(before, where, generator=random) != before, where)


def test_draws_are_uniform():
    random = np.random.default_rng(2)
    assert Binary(100).draw(400, generator=random).mean() == pytest.approx(0.5, abs=4 * 0.5 / 200)
    both = Within((0.0, 10.0), (1.0, 30.0))
    assert both.count == 2
    drawn = both.draw(5000, generator=random)
    assert kstest(drawn[:, 0], "uniform").pvalue > 1e-3
    assert kstest(drawn[:, 1], "uniform", args=(10, 20)).pvalue > 1e-3


def test_marginals_are_as_common_as_declared():
    random = np.random.default_rng(3)
    values = Marginal((1.0, 5.0, 9.0), (0.2, 0.5, 0.3)).draw(20_000, generator=random)
    for value, share in ((1, 0.2), (5, 0.5), (9, 0.3)):
        assert (values == value).mean() == pytest.approx(share, abs=4 * np.sqrt(0.25 / 20_000))
    assert Marginal.binary(0.1).draw(20_000, generator=random).mean() == pytest.approx(
        0.1, abs=0.0085
    )
    ages = Marginal.histogram([0, 20, 100], [0.25, 0.75]).draw(20_000, generator=random)
    assert (ages < 20).mean() == pytest.approx(0.25, abs=4 * np.sqrt(0.1875 / 20_000))
    assert kstest(ages[ages >= 20], "uniform", args=(20, 80)).pvalue > 1e-3


def test_bad_parameters_are_refused():
    with pytest.raises(ValueError, match="count must be"):
        Binary(0)
    with pytest.raises(ValueError, match="one lower and one upper"):
        Within((0.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match="lower bound below its upper"):
        Within((1.0,), (1.0,))
    with pytest.raises(ValueError, match="add to 1"):
        Marginal((0.0, 1.0), (0.5, 0.6))
    with pytest.raises(ValueError, match="as many values as probabilities"):
        Marginal((0.0, 1.0), (1.0,))
    with pytest.raises(ValueError, match="probabilities must be"):
        Marginal((0.0, 1.0), (1.5, -0.5))
    with pytest.raises(ValueError, match="edges must be"):
        Marginal.histogram([0, 0, 1], [0.5, 0.5])
