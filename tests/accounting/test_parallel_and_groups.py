"""Parts of the data: what one unit can change, by explicit distributions."""

import itertools
import math

import numpy as np
import pytest
from scipy import signal

import sfumato as sf
from sfumato import events
from sfumato.accounting import dpa
from sfumato.accounting.gaussian_losses import gaussian_losses
from sfumato.accounting.pld import delta_at, loss_distribution

ADD, REPLACE = sf.Neighbours.ADD_REMOVE, sf.Neighbours.REPLACE_ONE
AT = np.linspace(0, 6, 61)


def curve(event, relation=ADD, grid=1e-3):
    return loss_distribution(event, relation, grid).delta(AT)


@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.5), (1.0, 0.1), (1.0, 0.9), (2.0, 0.3)])
def test_a_replaced_unit_leaves_one_part_and_enters_another(sigma, q):
    """One part sees a removal, the other an addition: neither twice the same."""
    part = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    removed, added = gaussian_losses(sigma, q, False, 1e-3)
    both = dpa.LossMasses(
        removed.lowest + added.lowest,
        signal.fftconvolve(removed.probs, added.probs),
        removed.infinite + added.infinite,
        1e-3,
    )
    moved = delta_at(both, AT)
    stayed = curve(part, REPLACE)
    found = curve(events.ParallelEvent((part, part)), REPLACE)
    assert np.all(found >= np.maximum(moved, stayed) * (1 - 1e-9) - 1e-12)
    assert found == pytest.approx(np.maximum(moved, stayed), rel=1e-3, abs=1e-9)


def test_parts_whose_sizes_are_public_cannot_lose_a_unit():
    """Zero-out noise covers a blanked record, not one that moves and so changes two sizes."""
    part = events.GaussianEvent(1.0, neighbours="zero-out")
    parts = events.ParallelEvent((part, part))
    assert sf.account(parts, 1e-5).epsilon == pytest.approx(sf.account(part, 1e-5).epsilon)
    with pytest.raises(ValueError, match="declared under add-remove"):
        sf.account(parts, 1e-5, neighbours="replace-one")


PARTS = [
    events.GaussianEvent(1.0),
    events.GaussianEvent(0.5),
    events.LaplaceEvent(1.0),
    events.LaplaceEvent(0.5),
    events.ExponentialEvent(2.0),
    events.EpsilonDeltaEvent(0.5, 1e-3),
    events.EpsilonDeltaEvent(0.0, 0.01),
    sf.repeat(events.LaplaceEvent(3.0), 4),
]


@pytest.mark.parametrize("pair", list(itertools.combinations(PARTS, 2)))
def test_a_person_may_have_one_record_in_each_part(pair):
    one_each = curve(sf.compose(*pair))
    stated = curve(events.GroupedEvent(events.ParallelEvent(pair), 2, "person"))
    assert np.all(one_each <= stated * (1 + 1e-6) + 1e-11)


def test_sampled_parts_are_not_accounted_for_groups():
    part = events.PoissonSampledEvent(events.GaussianEvent(1.0), 0.1)
    grouped = events.GroupedEvent(events.ParallelEvent((part, part)), 2, "person")
    with pytest.raises(ValueError, match="Sample whole units"):
        sf.account(grouped, 1e-5)


def test_several_groups_per_unit_compose():
    part = events.LaplaceEvent(2.0)
    three = events.ParallelEvent((part,) * 10, groups_per_unit=3)
    assert curve(three) == pytest.approx(curve(sf.repeat(part, 3)), rel=1e-6, abs=1e-9)
    assert sf.account(three, 0.0).epsilon == 1.5
    assert sf.account(three, 0.0, neighbours="replace-one").epsilon == 3.0


def normal(x, centre, sigma):
    return np.exp(-(((x - centre) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("q", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_a_replaced_record_is_worst_when_turned_around(sigma, q):
    """Of all records inside the clip norm, opposite ones on its edge are hardest to hide."""
    h = 2e-3 * sigma
    x = np.arange(-1 - 9 * sigma, 1 + 9 * sigma, h)
    absent = (1 - q) * normal(x, 0, sigma)
    step = events.PoissonSampledEvent(events.GaussianEvent(sigma), q)
    for epsilon in (0.0, 0.1, 1.0, 2.0):
        stated = loss_distribution(step, REPLACE, 1e-3).delta(epsilon)[0]
        for old, new in itertools.product((1.0, 0.6, 0.2, -0.5), (-1.0, -0.7, 0.0, 0.5, 1.0)):
            here = absent + q * normal(x, old, sigma)
            there = absent + q * normal(x, new, sigma)
            true = np.maximum(here - math.exp(epsilon) * there, 0).sum() * h
            assert true <= stated + 1e-6
