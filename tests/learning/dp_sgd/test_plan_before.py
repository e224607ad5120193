"""What is released before the first step is a part of the run: of its event, cost and identity."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.core.events import ComposedEvent, GaussianEvent, GroupedEvent, compose
from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd import (
    Flat,
    NoiseSchedule,
    PerLayer,
    PoissonLots,
    ShuffledLots,
    TrainingPlan,
)
from sfumato.learning.features import PrivatePCA

DELTA = 1e-5
LOTS = PoissonLots(100, 10_000)
ABADI = [(0.5, 8, 16, 0.2041, 14.3), (2, 4, 7, 0.5025, 103), (8, 2, 4, 0.9263, 306)]


def pca(noise=8.0, neighbours="add-remove", unit="record"):
    return PrivatePCA(3, noise).event(neighbours, unit)


def plan(lots=LOTS, z=1.0, steps=20, before=None, **more):
    return TrainingPlan(lots, Flat(1.0), z, steps, DELTA, before=before, **more)


def make(lots=LOTS, **more):
    return TrainingPlan.make(lots, Flat(1.0), delta=DELTA, **({"before": pca()} | more))


def gaussian(spread):
    """Epsilon of one Gaussian release whose squared distance over its noise is ``spread``."""
    return account(GaussianEvent(1 / math.sqrt(spread)), DELTA).epsilon


# --- against the paper ----------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "sigma", "noise", "alone", "epochs"), ABADI)
def test_the_paper_s_runs_by_its_own_accountant(epsilon, sigma, noise, alone, epochs):
    """Sigma on each of two layers is one release with the multiplier sigma / sqrt(2)."""
    event = PrivatePCA(60, noise).event("add-remove", "record")
    lots, z = PoissonLots(600, 60_000), sigma / math.sqrt(2)
    planned = TrainingPlan(lots, PerLayer(4.0), z, round(100 * epochs), DELTA, before=event)
    by_moments = account(planned.event, DELTA, accountant="moments").epsilon
    assert by_moments == pytest.approx(epsilon, rel=3e-3)
    assert planned.epsilon_after([0])[0] == pytest.approx(alone, abs=6e-5)
    assert alone < planned.guarantee.epsilon < epsilon


@pytest.mark.parametrize(("row", "epochs"), [(0, 51), (1, 172)])
def test_exact_composition_allows_more(row, epochs):
    epsilon, sigma, noise, *_ = ABADI[row]
    event = PrivatePCA(60, noise).event("add-remove", "record")
    planned = TrainingPlan.make(
        PoissonLots(600, 60_000), PerLayer(4.0), delta=DELTA, epsilon=epsilon,
        noise_multiplier=sigma / math.sqrt(2), before=event,
    )  # fmt: skip
    assert planned.steps / 100 == pytest.approx(epochs, rel=2e-3)
    assert planned.guarantee.epsilon <= epsilon
    assert replace(planned, steps=planned.steps + 10).guarantee.epsilon > epsilon


# --- against closed forms: whole lots, so that all is Gaussian ------------------------------------

WHOLE = PoissonLots(50, 50)


@pytest.mark.parametrize(
    ("relation", "per_step", "of_pca"),
    [("add-remove", 1, 1), ("zero-out", 1, 1), ("replace-one", 4, 2)],
)
@settings(max_examples=8)
@given(z=st.floats(2.0, 30.0), noise=st.floats(1.0, 30.0), steps=st.integers(1, 9))
def test_gaussians_add_up(relation, per_step, of_pca, z, noise, steps):
    """Squares of distances over noise; replaced, a row moves a sum by 2 and the PCA by sqrt 2."""
    made = plan(WHOLE, z, steps, pca(noise, relation), neighbours=relation)
    spread = per_step * steps / z**2 + of_pca / noise**2
    assert made.guarantee.epsilon == pytest.approx(gaussian(spread), rel=1e-4)
    assert made.guarantee.neighbours is Neighbours.parse(relation)
    assert made.epsilon_after([0])[0] == pytest.approx(gaussian(of_pca / noise**2), rel=1e-4)


@pytest.mark.parametrize("k", [1, 3])
def test_a_person_with_several_records_moves_both_by_as_many(k):
    made = plan(WHOLE, 20.0, 5, pca(), records_per_unit=k, group_unit="person")
    assert made.guarantee.epsilon == pytest.approx(
        gaussian(k**2 * (5 / 20.0**2 + 1 / 8.0**2)), rel=1e-4
    )
    assert made.guarantee.unit == "person"
    first, _ = made.event.events
    assert first == GroupedEvent(pca(), k, "person")
    assert made.epsilon_after([0, 5])[1] == pytest.approx(made.guarantee.epsilon, rel=1e-3)


@pytest.mark.slow
def test_a_plan_for_people_after_no_step_and_for_an_epsilon():
    made = plan(WHOLE, 20.0, 5, pca(), records_per_unit=3, group_unit="person")
    assert made.epsilon_after([0]) == [pytest.approx(gaussian(9 / 64), rel=1e-4)]
    met = make(epsilon=4, steps=5, records_per_unit=3, group_unit="person", accountant="rdp")
    assert 3.9 < met.guarantee.epsilon <= 4


# --- event and identity ---------------------------------------------------------------------------


def test_the_event_is_both():
    made = plan(before=pca())
    assert made.event == ComposedEvent((pca(), plan().event))
    assert made.event_of(7) == ComposedEvent((pca(), plan().event_of(7)))
    assert made.event_between(3, 9) == plan().event_between(3, 9)  # steps alone
    assert account(compose(pca(), plan().event), DELTA).epsilon == made.guarantee.epsilon
    assert made.guarantee.epsilon > max(plan().guarantee.epsilon, account(pca(), DELTA).epsilon)


def test_json_and_digest():
    made = plan(before=pca())
    stored = json.loads(json.dumps(made.to_dict()))
    assert TrainingPlan.from_dict(stored) == made
    assert TrainingPlan.from_dict(stored).guarantee == made.guarantee
    digests = {p.digest for p in (made, plan(), plan(before=pca(9.0)), replace(made, steps=21))}
    assert len(digests) == 4
    assert TrainingPlan.from_dict(stored).digest == made.digest


def test_plans_without_it_are_as_they_were():
    """Their digests too, so that old runs can be resumed."""
    assert "before" not in plan().to_dict()
    assert plan().event == plan().event_between(0, 20)
    assert plan().epsilon_after([0]) == [0.0]
    assert plan().epsilon_after([0, 20])[0] == 0.0


# --- over time ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accountant": "rdp"},
        {"schedule": NoiseSchedule.linear(1.5, 0.8)},
        {"lots": PoissonLots(100, 10_000, max_size=190), "neighbours": "zero-out"},
        {"lots": PoissonLots(100, 10_000, max_size=190)},
        {"lots": ShuffledLots(5, 20), "neighbours": "zero-out", "z": 6.0},
    ],
)
def test_epsilon_starts_with_its_cost_and_only_grows(options):
    own = {"before": pca(neighbours=options.get("neighbours", "add-remove"))}
    made = plan(**own, **options)
    accountant = options.get("accountant", "pld")
    alone = account(own["before"], DELTA, accountant=accountant).epsilon
    curve = made.epsilon_after([0, 1, 5, 20])
    assert curve[0] == pytest.approx(alone, rel=2e-3)
    assert curve == sorted(curve)
    assert curve[0] < curve[1]
    assert curve[-1] == pytest.approx(made.guarantee.epsilon, rel=1e-4)
    for steps, epsilon in zip((0, 5, 20), (curve[0], curve[2], curve[3]), strict=True):
        assert made.epsilon_after([steps])[0] == pytest.approx(epsilon, rel=2e-3)


# --- meeting a target -----------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_noise_for_an_epsilon_leaves_room_for_it(accountant):
    made = make(epsilon=1, steps=200, accountant=accountant)
    assert 0.99 < made.guarantee.epsilon <= 1
    assert replace(made, before=None).guarantee.epsilon < 0.95  # the rest is what it costs
    less = replace(made, noise_multiplier=0.99 * made.noise_multiplier)
    assert less.guarantee.epsilon > 1


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_steps_for_an_epsilon_leave_room_for_it(accountant):
    made = make(epsilon=1, noise_multiplier=1.5, accountant=accountant)
    assert made.guarantee.epsilon <= 1
    assert replace(made, before=None).guarantee.epsilon < 0.95
    assert replace(made, steps=made.steps + 1).guarantee.epsilon > 1


def test_noise_under_replace_one_leaves_room_for_sqrt_two():
    relation = "replace-one"
    made = make(
        WHOLE, epsilon=4, steps=5, neighbours=relation, before=pca(neighbours=relation)
    )  # fmt: skip
    spread = 4 * 5 / made.noise_multiplier**2 + 2 / 8.0**2
    assert gaussian(spread) == pytest.approx(4, rel=1e-3)


CUT = PoissonLots(100, 10_000, max_size=190)
BLANKS = {"neighbours": "zero-out", "before": pca(neighbours="zero-out")}


def test_lots_that_are_cut_cost_some_delta_besides():
    made = make(CUT, epsilon=1, noise_multiplier=1.5, **BLANKS)
    assert made.guarantee.epsilon <= 1
    assert made.claimed_epsilon == 1
    uncut = replace(made, lots=LOTS, claimed_epsilon=None)
    assert uncut.guarantee.epsilon < made.guarantee.epsilon
    # One that claims no more than its own epsilon, in which the cost before counts.
    often = plan(PoissonLots(100, 10_000, max_size=156), **BLANKS)
    assert often._largest_epsilon >= often.guarantee.epsilon
    assert often.guarantee.epsilon > 1.05 * plan(**BLANKS).guarantee.epsilon


def test_noise_for_an_epsilon_with_lots_that_are_cut():
    made = make(CUT, epsilon=1, steps=200, **BLANKS)
    assert 0.99 < made.guarantee.epsilon <= 1


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [{"steps": 5}, {"noise_multiplier": 3.0}])
def test_features_that_cost_more_than_all(length):
    with pytest.raises(ValueError, match=r"features cost before the first step, 0.4344, got 0.4"):
        make(epsilon=0.4, **length)
    assert make(epsilon=0.5, **length).guarantee.epsilon <= 0.5


def test_noise_for_an_epsilon_just_above_what_features_cost():
    assert make(epsilon=0.45, steps=5).guarantee.epsilon <= 0.45


def test_features_and_steps_that_cost_more_together_than_was_claimed():
    alone = plan(CUT, neighbours="zero-out").guarantee.epsilon
    made = plan(CUT, claimed_epsilon=alone, **BLANKS)
    with pytest.raises(ValueError, match="claimed_epsilon must be at least"):
        _ = made.guarantee


def test_a_release_about_someone_else():
    with pytest.raises(ValueError, match="about one record, as the steps are, got one about one p"):
        plan(before=pca(unit="person"))
    assert plan(before=pca(unit="person"), unit="person").guarantee.unit == "person"


@pytest.mark.parametrize("relation", ["replace-one", "zero-out"])
def test_a_release_under_a_weaker_relation_has_no_guarantee(relation):
    with pytest.raises(ValueError, match=f"{relation} guarantee says nothing about add-remove"):
        make(epsilon=2, steps=5, before=pca(neighbours=relation))
    with pytest.raises(ValueError, match=f"{relation} guarantee says nothing about add-remove"):
        _ = plan(before=pca(neighbours=relation)).guarantee
