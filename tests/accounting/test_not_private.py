"""A release without protection: an infinite epsilon, whoever counts and whatever is beside it."""

import math

import numpy as np
import pytest

import sfumato as sf
from sfumato import events
from sfumato.accounting import Accountant, dpa
from sfumato.accounting.pld import atom_pld
from sfumato.accounting.rdp import rdp_vector

NOTHING = events.NotPrivateEvent()
NOISE = events.GaussianEvent(50.0)
WHOLES = {
    "alone": NOTHING,
    "three times": sf.repeat(NOTHING, 3),
    "with others": sf.compose(NOISE, NOTHING, events.EpsilonDeltaEvent(0.1, 1e-9)),
    "in one of two parts": events.ParallelEvent((NOTHING, NOISE)),
    "of a person": events.GroupedEvent(NOTHING, 3, "person"),
}


@pytest.mark.parametrize("whole", WHOLES.values(), ids=WHOLES)
@pytest.mark.parametrize("relation", list(sf.Neighbours))
@pytest.mark.parametrize("name", list(Accountant))
def test_epsilon_is_infinite(whole, relation, name):
    for delta in (1e-13, 1e-5, 0.9):
        found = sf.account(whole, delta, accountant=name, neighbours=relation)
        assert found.epsilon == math.inf
        assert (found.neighbours, found.unit) == (relation, whole.unit_name)


@pytest.mark.parametrize("declared", list(sf.Neighbours))
@pytest.mark.parametrize("asked", list(sf.Neighbours))
def test_nothing_is_promised_under_any_relation(declared, asked):
    found = sf.account(events.NotPrivateEvent(declared), 0.0, neighbours=asked)
    assert (found.epsilon, found.delta, found.note) == (math.inf, 0.0, "")


@pytest.mark.parametrize("whole", WHOLES.values(), ids=WHOLES)
def test_the_best_attack_is_always_right(whole):
    profile = sf.privacy_profile(whole)
    assert profile.advantage == 1.0
    assert not profile.betas.any()
    assert profile.power_at(1e-6) == 1.0
    assert all(math.isinf(guarantee.epsilon) for guarantee in profile.guarantees)


def test_the_curve_is_infinite_from_the_first_step():
    assert sf.epsilon_curve(NOTHING, [0, 1, 100], 1e-5).tolist() == [0.0, math.inf, math.inf]
    after = sf.epsilon_curve(NOTHING, [0, 2], 1e-5, before=NOISE)
    assert after.tolist() == [sf.account(NOISE, 1e-5).epsilon, math.inf]
    before = sf.epsilon_curve(NOISE, [0, 2], 1e-5, before=NOTHING)
    assert before.tolist() == [math.inf, math.inf]


def test_what_accountants_are_built_of_knows_it():
    assert np.isinf(rdp_vector(NOTHING, sf.Neighbours.ADD_REMOVE).values).all()
    assert dpa.infinite_mass(atom_pld(NOTHING, 1e-4)) == 1.0
