"""What every way keeps: its event beforehand, no error on any row, no noise equals no privacy."""

import numpy as np
import pytest

from sfumato.core.events import (
    EpsilonDeltaEvent,
    GaussianEvent,
    LaplaceEvent,
    event_from_dict,
)
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm.losses import SimplexLogistic
from sfumato.learning.erm.solving import Accuracy, Objective, minimise
from sfumato.learning.erm.tasks import Quadratic, Task
from sfumato.learning.erm.ways import way_names, way_of

LOSS = SimplexLogistic(2)
TWO = Quadratic(0.25, 0.5, 0.5, 1.0)


def task(**changes):
    given = {"loss": LOSS, "records": 500, "columns": 3, "epsilon": 1.0, "delta": 1e-5}
    return Task(**(given | {"quadratic": TWO} | changes))


def rows_and_labels(count=500, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 3))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    return rows, (rows[:, 0] > 0).astype(np.int64)


def fitted(way, rows, labels, seed=1):
    return way.fit(rows, labels, LOSS.codes[labels], SeededCoins(seed))


@pytest.mark.parametrize("name", way_names())
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_the_event_meets_the_target_and_goes_through_json(name, delta):
    way = way_of(name, task(delta=delta))
    assert event_from_dict(way.event.to_dict()) == way.event
    assert way.event.relation is Neighbours.REPLACE_ONE
    assert 0.999 < way.guarantee.epsilon <= 1 + 1e-12
    assert way.guarantee.delta <= delta
    kinds = {"objective": EpsilonDeltaEvent, "functional": LaplaceEvent, "input": LaplaceEvent}
    wanted = GaussianEvent if delta and name != "objective" else kinds.get(name, EpsilonDeltaEvent)
    assert type(way.event) is wanted


@pytest.mark.parametrize("name", ["objective", "output", "functional"])
def test_less_noise_where_one_is_added_or_removed(name):
    replaced, added = (
        way_of(name, task(neighbours=relation, regularisation=0.1)) for relation in Neighbours
        if relation is not Neighbours.ZERO_OUT
    )  # fmt: skip
    if replaced.event.relation is Neighbours.ADD_REMOVE:
        replaced, added = added, replaced
    ratio = replaced.facts["noise_scale"] / added.facts["noise_scale"]
    assert 1.7 < ratio < 2.1


@pytest.mark.parametrize("name", ["sgd", "input"])
def test_some_are_for_replacements_alone(name):
    with pytest.raises(ValueError, match="neighbours must be 'replace-one'"):
        way_of(name, task(neighbours="add-remove"))


@pytest.mark.parametrize("name", ["objective", "output", "sgd"])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_with_hardly_any_noise_it_is_the_minimiser(name, delta):
    rows, labels = rows_and_labels()
    way = way_of(name, task(epsilon=1e6, delta=delta, regularisation=0.1))
    plain = minimise(Objective(Accuracy(LOSS, 500, 3, 0.1), rows, labels))
    assert np.abs(fitted(way, rows, labels) - plain).max() < (0.1 if name == "sgd" else 1e-3)


@pytest.mark.parametrize("name", way_names())
@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_no_table_is_an_error_and_none_changes_what_is_said(name, delta):
    """Non-interference: with the same coins, nothing but the weights depends on the rows."""
    rows, labels = rows_and_labels()
    tables = [
        (rows, labels),
        (np.zeros_like(rows), labels),
        (np.repeat(rows[:1], 500, axis=0), np.zeros(500, dtype=np.int64)),
        (rows * 1e-300, labels),
    ]
    said = set()
    for one, other in tables:
        way = way_of(name, task(delta=delta))
        weights = fitted(way, one, other)
        assert weights.shape == (3, 1)
        assert np.isfinite(weights).all()
        said.add(str((way.facts, way.event, way.regularisation)))
    assert len(said) == 1


@pytest.mark.parametrize("name", ["objective", "output", "functional"])
def test_no_rows_at_all(name):
    way = way_of(name, task(neighbours="add-remove"))
    assert np.isfinite(fitted(way, np.zeros((0, 3)), np.zeros(0, dtype=np.int64))).all()


@pytest.mark.parametrize("name", way_names())
def test_noise_is_fresh(name):
    rows, labels = rows_and_labels(100)
    way = way_of(name, task(records=100))
    assert (fitted(way, rows, labels, 1) == fitted(way, rows, labels, 1)).all()
    assert (fitted(way, rows, labels, 1) != fitted(way, rows, labels, 2)).any()


def test_the_noise_of_output_perturbation():
    """By hand: 3.7306 times 2 / (500 0.1), and the spread of what is released."""
    way = way_of("output", task(regularisation=0.1))
    assert way.facts["sensitivity"] == pytest.approx(0.04, rel=1e-4)
    assert way.facts["noise_scale"] == pytest.approx(3.7306 * 0.04, rel=1e-4)
    rows, labels = rows_and_labels()
    drawn = np.array([fitted(way, rows, labels, seed).ravel() for seed in range(150)])
    assert drawn.std(axis=0).mean() == pytest.approx(3.7306 * 0.04, rel=0.2)


def test_a_small_regularisation_is_raised_for_the_determinants():
    way = way_of("objective", task(regularisation=1e-9))
    assert way.facts["determinants"] == pytest.approx(0.15, rel=0.01)
    assert way.regularisation > 1e-4
    assert way_of("objective", task(regularisation=0.3)).regularisation == 0.3


def test_unknown_ways_and_bad_tasks():
    with pytest.raises(ValueError, match="way must be one of objective, output"):
        way_of("magic", task())
    for changes in ({"epsilon": 0}, {"delta": 1}, {"records": 0}, {"regularisation": -1}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            task(**changes)


@pytest.mark.parametrize("name", ["objective", "output", "functional", "sgd"])
def test_usual_regularisation_falls_with_rows_and_epsilon(name):
    few, many, generous = (
        way_of(name, task(records=n, epsilon=e)).regularisation
        for n, e in ((500, 1.0), (50_000, 1.0), (500, 20.0))
    )
    assert few > many
    assert few > generous


@pytest.mark.parametrize("name", ["objective", "output", "functional"])
def test_more_than_four_rows_for_each_declared_one(name):
    """A bad parameter where the number of rows is public, and nothing at all where it is not."""
    rows, labels = rows_and_labels(500)
    with pytest.raises(ValueError, match="public_size must be 125 at least for 500 rows"):
        fitted(way_of(name, task(records=124)), rows, labels)
    assert np.isfinite(fitted(way_of(name, task(records=125)), rows, labels)).all()
    private = way_of(name, task(records=10, neighbours="add-remove"))
    said = str(private.facts)
    assert np.isfinite(fitted(private, rows, labels)).all()
    assert str(private.facts) == said


@pytest.mark.parametrize("name", ["objective", "output"])
def test_what_takes_too_long_to_solve_is_refused_beforehand(name):
    with pytest.raises(ValueError, match="regularisation must be greater"):
        way_of(name, task(regularisation=1e-11, records=10**12, epsilon=100.0))
    for epsilon in (1e-3, 1.0, 1e6):
        assert way_of(name, task(records=10**9, epsilon=epsilon)).regularisation >= 2.5e-8
