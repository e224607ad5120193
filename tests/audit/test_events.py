"""Learned events: whatever tells two samples apart is found, and luck is not taken for it."""

import dataclasses
import math

import numpy as np
import pytest

from sfumato.audit.event_scores import fitted_scores
from sfumato.audit.events import as_outputs, learn_event
from sfumato.audit.intervals import epsilon_from_counts


def grid(values):
    """On a grid of powers of two, as this package's noise is: low bits tell nothing."""
    return np.round(np.asarray(values) * 2**20) / 2**20


def held_out(draw_first, draw_second, number=8000, delta=0.0, seed=1):
    """The event, and the bound that fresh draws give for it."""
    rng = np.random.default_rng(seed)
    event = learn_event(draw_first(rng, number), draw_second(rng, number), delta=delta)
    counts = [
        (int(event.contains(draw(rng, number)).sum()), number) for draw in (draw_first, draw_second)
    ]
    inside, outside = counts if event.on_first else counts[::-1]
    return event, epsilon_from_counts(inside, outside, delta, 0.99)


def test_half_lines_of_laplace_noise():
    event, bound = held_out(
        lambda rng, n: grid(rng.laplace(size=n)), lambda rng, n: grid(rng.laplace(1.0, size=n))
    )
    assert 0.85 < bound < 1
    assert "\n" not in event.description


def test_an_atom_of_a_continuous_law_is_found():
    def clamped(rng, n):  # a rare path returns exactly 0.5
        return np.where(rng.random(n) < 0.03, 0.5, grid(rng.laplace(size=n)))

    event, bound = held_out(clamped, lambda rng, n: grid(rng.laplace(size=n)))
    assert bound > 3
    assert "0.5" in event.description
    assert event.contains([0.5, 0.5 + 2**-20]).tolist() == [True, False]


def test_a_gap_in_the_support_is_found():
    def uniform(rng, n):
        return grid(rng.random(n))

    def with_gap(rng, n):
        values = uniform(rng, n)
        return np.where((values > 0.4) & (values < 0.45), values + 0.25, values)

    event, bound = held_out(uniform, with_gap)
    assert bound > 3
    assert event.on_first


def test_noise_added_in_floating_point_is_betrayed_by_its_lowest_bits():
    """Mironov (2012): 0 + noise has bits below 2^-53 that 1 + noise cannot have."""
    event, bound = held_out(
        lambda rng, n: 0.0 + rng.laplace(size=n), lambda rng, n: 1.0 + rng.laplace(size=n)
    )
    assert bound > 5
    assert event.description.startswith("output an odd multiple of 2^k")
    event, bound = held_out(
        lambda rng, n: rng.normal(size=(n, 3)),
        lambda rng, n: np.array([0.1, 0, 0]) + rng.normal(size=(n, 3)),
    )
    assert bound > 2
    assert "lowest bits" in event.description


def test_values_that_only_one_input_can_reach_are_found():
    """Noise of few values: hardly two draws alike, and none shared by the two inputs."""
    values = np.random.default_rng(0).laplace(size=2**11)

    def noisy(start):
        return lambda rng, n: grid(start + values[rng.integers(len(values), size=n)])

    event, bound = held_out(noisy(0.0), noisy(1 / 3))
    assert bound > 4
    assert "input only" in event.description


def test_a_larger_spread_is_found():
    _, bound = held_out(
        lambda rng, n: grid(rng.normal(size=n)), lambda rng, n: grid(rng.normal(0, 2, n))
    )
    assert bound > 1.5
    _, bound = held_out(
        lambda rng, n: grid(rng.normal(size=(n, 4))),
        lambda rng, n: grid(rng.normal(size=(n, 4)) * [1, 1, 2, 1]),
    )
    assert bound > 1.5


def test_a_covariance_is_found_though_each_coordinate_looks_alike():
    turned = np.array([[0.8, 0.6], [0.6, 0.8]])
    event, bound = held_out(
        lambda rng, n: grid(rng.normal(size=(n, 2))),
        lambda rng, n: grid(rng.normal(size=(n, 2)) @ turned),
    )
    assert bound > 2
    assert event.description.startswith("quadratic")


def test_many_coordinates_that_move_a_little():
    moved = np.full(300, 0.06)
    _, bound = held_out(
        lambda rng, n: grid(rng.normal(size=(n, 300))),
        lambda rng, n: grid(moved + rng.normal(size=(n, 300))),
        number=4000,
    )
    assert bound > 0.5  # one coordinate alone would show nothing


@pytest.mark.parametrize(
    "kind", [int, str, lambda code: (code % 2 == 0, code > 1), lambda c: [c, 0]]
)
def test_choices_of_any_kind(kind):
    def choices(likely):
        shares = np.full(4, 0.1)
        shares[likely] = 0.7
        return lambda rng, n: [kind(int(code)) for code in rng.choice(4, size=n, p=shares)]

    _, bound = held_out(choices(0), choices(3), number=4000)
    assert 0.8 * math.log(7) < bound < math.log(7)


def test_an_output_that_is_no_number_gives_itself_away():
    def noisy(rng, n):
        return grid(rng.laplace(size=n))

    def failing(value):
        def draw(rng, n):
            outputs = noisy(rng, n)
            return [value if rng.random() < 0.02 else output for output in outputs.tolist()]

        return draw

    for value in (math.nan, math.inf, None, "failed"):
        _, bound = held_out(failing(value), noisy, number=4000)
        assert bound > 1.5
    _, bound = held_out(lambda rng, n: np.zeros(n), lambda rng, n: np.full(n, -0.0), number=1000)
    assert bound > 4


@pytest.mark.parametrize("width", [1, 3])
def test_nothing_is_shown_where_there_is_nothing(width):
    """Every value is "seen on one input only" here; held out, that means nothing."""

    def noise(rng, n):
        return rng.normal(size=(n, width))

    for seed in range(10):
        _, bound = held_out(noise, noise, number=1000, seed=seed)
        assert bound == 0


def test_degenerate_samples_are_no_trouble():
    for first, second in (
        (np.zeros(10), np.zeros(10)),
        (np.zeros((10, 3)), np.ones((10, 3))),
        (np.full(8, np.nan), np.full(8, np.inf)),
        (np.full((8, 2), 1e300), np.full((8, 2), -1e300)),
        (["a"] * 4, ["a"] * 9),
    ):
        event = learn_event(first, second)
        assert event.contains(first).dtype == bool
        assert "\n" not in event.description


@pytest.mark.parametrize("rows", [False, True])
def test_every_event_is_a_function_of_one_output_by_itself(rows):
    """Not of the batch it came in, or counts of it would not be binomial."""
    rng = np.random.default_rng(5)
    first, second = (np.round(rng.normal(m, 1, size=(400, 2) if rows else 400), 1) for m in (0, 1))
    mixed = [*np.asarray(second[:20]).tolist(), None, "x", 7, [1.0, 2.0], [1.0, 2.0, 3.0], True]
    for score in fitted_scores(first, second):
        event = dataclasses.replace(learn_event(first, second), score=score, threshold=0.1)
        together = event.contains(mixed)
        alone = [bool(event.contains([output])[0]) for output in mixed]
        assert together.tolist() == alone
        assert event.contains(second[:20]).tolist() == alone[:20]
    outcomes = learn_event(["a", "b"] * 40, [3.0, "b"] * 40)
    together = outcomes.contains([3, 3.0, "a", None])
    assert together.tolist() == [bool(outcomes.contains([o])[0]) for o in (3, 3.0, "a", None)]


def test_events_are_frozen():
    event = learn_event(np.zeros(10), np.ones(10))
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.threshold = 3.0


def test_outputs_become_floats_rows_or_objects():
    assert as_outputs(np.arange(3, dtype=np.int8)).dtype == np.float64
    assert as_outputs(np.zeros((5, 1))).shape == (5,)
    assert as_outputs(np.zeros((5, 2, 3))).shape == (5, 6)
    assert as_outputs([[1, 2.5], [3, 4]]).shape == (2, 2)
    assert as_outputs([10**400, 1]).dtype == object
    assert as_outputs([{"a": 1}, {"b": 2}]).tolist() == ["{'a': 1}", "{'b': 2}"]
    with pytest.raises(ValueError, match="outputs must be one entry for each draw"):
        as_outputs(np.array(3.0))
    with pytest.raises(ValueError, match="at least 4 outputs each"):
        learn_event([1.0, 2.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="of one shape"):
        learn_event(np.zeros((10, 2)), np.zeros((10, 3)))
