"""The epsilon curve at its edges: other units, private curves, windows that dip, tiny deltas."""

import math

import numpy as np
import pytest

import sfumato as sf
from sfumato import events
from sfumato.accounting import curve, dpa
from sfumato.accounting.atoms import flatten
from sfumato.accounting.curve import _never_falling
from sfumato.accounting.pld import compose_atoms


def test_units_other_than_records():
    step = sf.dp_sgd(4, 0.01, 1, unit="person")
    assert sf.epsilon_curve(step, [100], 1e-5)[0] > 0
    with pytest.raises(ValueError, match="different units"):
        sf.epsilon_curve(step, [100], 1e-5, before=events.GaussianEvent(7))


@pytest.mark.parametrize("place", ["step", "before", "inside"])
def test_data_dependent_curves_are_refused(place):
    private = events.RdpCurveEvent((2.0, 8.0), (0.1, 0.2), data_dependent=True)
    open_step = events.GaussianEvent(4)
    step = {"step": private, "before": open_step, "inside": sf.repeat(private, 2)}[place]
    before = private if place == "before" else None
    with pytest.raises(ValueError, match="data-dependent"):
        sf.epsilon_curve(step, [1, 2], 1e-5, before=before)


def test_a_few_steps_between_one_and_very_many():
    """The loss spreads before it drifts: a window fitted to the ends alone would wrap around."""
    step = events.LaplaceEvent(1.0)
    counts = [1, 10, 100, 10_000]
    for n, found in zip(counts, sf.epsilon_curve(step, counts, 1e-5), strict=True):
        exact = sf.account(sf.repeat(step, n), 1e-5).epsilon
        assert exact * (1 - 1e-6) <= found <= min(exact * 1.005, n)


@pytest.mark.parametrize("delta", [1e-9, 1e-11, 1e-13])
def test_small_deltas_take_the_better_of_pld_and_rdp(delta):
    step, counts = sf.dp_sgd(4, 0.01, 1), [10, 1000, 10_000]
    found = sf.epsilon_curve(step, counts, delta)
    rough = [sf.account(sf.repeat(step, n), delta, accountant="rdp").epsilon for n in counts]
    assert np.all(found <= np.array(rough) * (1 + 1e-9))
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) > 0)


def test_zero_steps_cost_what_came_before():
    step, before = sf.dp_sgd(4, 0.01, 1), events.LaplaceEvent(10.0)
    none, nothing = (
        sf.epsilon_curve(step, [0], 1e-5, before=before),
        sf.epsilon_curve(step, [0], 1e-5),
    )
    assert none[0] == pytest.approx(sf.account(before, 1e-5).epsilon, abs=2e-3)
    assert nothing[0] == 0.0


def test_a_relation_without_a_guarantee():
    step = events.FixedSizeSampledEvent(events.GaussianEvent(4), 1, 10)
    with pytest.raises(ValueError, match="no add-remove guarantee"):
        sf.epsilon_curve(step, [1], 1e-5, neighbours="add-remove")
    assert math.isfinite(sf.epsilon_curve(step, [1], 1e-5)[0])


@pytest.mark.parametrize("delta", [1e-12, 3e-12, 1e-11, 1e-5])
def test_a_curve_never_falls(delta):
    """At tiny deltas rounding is charged by the window, and PLD and RDP take turns."""
    step = sf.dp_sgd(1.0, 0.01, 1)
    counts = [0, 1, 2, 3, 5, 6, 7, 10, 20, 50, 100, 101, 300]
    found = sf.epsilon_curve(step, counts, delta)
    assert (np.diff(found) >= 0).all()
    assert sf.epsilon_curve(step, counts[::-1], delta).tolist() == found[::-1].tolist()


def test_what_bounds_more_steps_bounds_fewer():
    counts, bounds = np.array([5, 1, 3, 3, 9]), np.array([2.0, 2.5, 1.0, 4.0, np.inf])
    assert _never_falling(counts, bounds).tolist() == [2.0, 1.0, 1.0, 2.0, np.inf]


def test_each_direction_of_what_came_before_is_composed_with_the_steps(monkeypatch):
    """Steps alike in both directions, after a release whose second direction is the worse one."""
    step = flatten(events.LaplaceEvent(20.0), sf.Neighbours.ADD_REMOVE)
    before = flatten(events.EpsilonDeltaEvent(0.5), sf.Neighbours.ADD_REMOVE)
    counts, delta = np.array([1, 5]), 1e-5
    expected = curve._pld_curve(step, before, counts, delta)

    def two_sided(atoms, grid):
        (bad,) = dpa.masses(compose_atoms(atoms, grid))
        (good,) = dpa.masses(dpa.identity(grid))
        return dpa.from_masses([good, bad])

    monkeypatch.setattr(curve, "compose_atoms", two_sided)
    assert curve._pld_curve(step, before, counts, delta) == pytest.approx(expected)
