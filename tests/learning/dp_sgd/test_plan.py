"""The plan: sampler, noise and guarantee from one object, and calibration that never exceeds."""

import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest

import sfumato as sf
from sfumato.accounting import account
from sfumato.core.events import ComposedEvent, GroupedEvent, dp_sgd
from sfumato.core.gaussian_profile import gaussian_epsilon, least_multiplier
from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd.clipping import Adaptive, Automatic, Flat, PerLayer
from sfumato.learning.dp_sgd.lots import FixedSizeLots, PoissonLots, ShuffledLots
from sfumato.learning.dp_sgd.plan import LEAST_NOISE, TrainingPlan
from sfumato.learning.dp_sgd.schedules import NoiseSchedule

LOTS = PoissonLots(600, 60_000)
CUT = PoissonLots(600, 60_000, max_size=800)
DELTA = 1e-5
ZERO, REPLACE = Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE


def plan_of(lots=LOTS, clipping=None, noise=1.2, steps=500, **more):
    return TrainingPlan(lots, clipping or Flat(), noise, steps, DELTA, **more)


def make(lots=LOTS, clipping=None, **more):
    return TrainingPlan.make(lots, clipping or Flat(), delta=DELTA, **more)


# --- oracles ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.5, 5.515), (2, 1.711), (8, 0.7818)])
@pytest.mark.slow
def test_sixty_epochs_of_mnist(epsilon, sigma):
    plan = make(epsilon=epsilon, epochs=60)
    assert plan.steps == 6000
    assert plan.noise_multiplier == pytest.approx(sigma, rel=6e-4)
    assert plan.guarantee.epsilon <= epsilon
    assert plan.guarantee.epsilon == pytest.approx(epsilon, rel=1e-4)


def test_the_event_is_dp_sgd():
    plan = plan_of()
    assert plan.event == dp_sgd(1.2, 0.01, 500)
    assert plan.event_of(7) == dp_sgd(1.2, 0.01, 7)
    assert plan.event_between(7, 10) == dp_sgd(1.2, 0.01, 3)
    assert plan.event_of(0) == ComposedEvent()
    assert plan.guarantee == account(dp_sgd(1.2, 0.01, 500), DELTA)
    with pytest.raises(ValueError, match="first and last must be"):
        plan.event_of(501)


def test_clipping_does_not_change_the_cost():
    for clipping in (PerLayer(4.0), Automatic(), Adaptive(3.0)):
        assert plan_of(clipping=clipping).event == plan_of().event


def test_what_a_run_of_ten_thousand_steps_costs_under_each_relation():
    for relation, epsilon in (("add-remove", 0.947), ("zero-out", 0.947), ("replace-one", 1.993)):
        plan = make(noise_multiplier=4.0, steps=10_000, neighbours=relation)
        assert plan.guarantee.epsilon == pytest.approx(epsilon, abs=2e-3)
        assert plan.guarantee.neighbours is Neighbours(relation)


def test_shuffled_lots_by_closed_form():
    lots = ShuffledLots(600, 60_000)
    plan = make(lots, epsilon=2, epochs=4, neighbours="zero-out")
    assert plan.noise_multiplier == pytest.approx(2 * least_multiplier(2, DELTA), rel=1e-4)
    twice = make(lots, epsilon=2, epochs=4, neighbours="replace-one")
    assert twice.noise_multiplier == pytest.approx(4 * least_multiplier(2, DELTA), rel=1e-4)
    longest = make(lots, epsilon=2, noise_multiplier=4.0, neighbours="zero-out")
    epochs = math.floor((4.0 / least_multiplier(2, DELTA)) ** 2 + 1e-6)
    assert longest.steps == 100 * epochs


# --- two of three -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lots", "relation", "accountant", "epsilon", "steps"),
    [
        (LOTS, "add-remove", "pld", 0.3, 30),
        (LOTS, "add-remove", "rdp", 3.0, 400),
        pytest.param(CUT, "replace-one", "pld", 1.0, 400, marks=pytest.mark.slow),
        (CUT, "zero-out", "rdp", 1.0, 30),
        pytest.param(FixedSizeLots(60, 6000), "zero-out", "pld", 1.0, 400, marks=pytest.mark.slow),
        pytest.param(
            FixedSizeLots(60, 6000), "replace-one", "rdp", 3.0, 30, marks=pytest.mark.slow
        ),
        (ShuffledLots(60, 6000), "replace-one", "pld", 1.0, 350),
    ],
)
def test_calibration_never_exceeds_its_target(lots, relation, accountant, epsilon, steps):
    plan = make(lots, epsilon=epsilon, steps=steps, neighbours=relation, accountant=accountant)
    assert plan.guarantee.epsilon <= epsilon
    less = replace(plan, noise_multiplier=plan.noise_multiplier * 0.999)
    found = account(less.event, DELTA, neighbours=relation, accountant=accountant)
    assert found.epsilon > epsilon


@pytest.mark.slow
def test_the_most_steps():
    for more in ({}, {"accountant": "rdp"}, {"schedule": NoiseSchedule.linear(1.5, 0.7, 3)}):
        plan = make(epsilon=1.0, noise_multiplier=1.5, **more)
        assert plan.guarantee.epsilon <= 1.0
        assert replace(plan, steps=plan.steps + 2).guarantee.epsilon > 1.0


def test_the_most_steps_is_that_of_plain_calibration():
    ours = make(epsilon=1.0, noise_multiplier=1.5).steps
    theirs = sf.calibrate_steps(epsilon=1.0, delta=DELTA, noise_multiplier=1.5, sample_rate=0.01)
    assert ours == theirs


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({}, "got none"),
        ({"epsilon": 2}, "got epsilon 2"),
        ({"epsilon": 2, "noise_multiplier": 1.0, "steps": 5}, "got epsilon 2, noise_multiplier 1"),
        ({"epochs": 3}, r"got steps \(or epochs\) 300"),
        ({"epsilon": 1, "steps": 5, "epochs": 5}, "give steps or epochs, not both, got 5 and 5"),
        ({"noise_multiplier": 0, "steps": 5}, "noise_multiplier must be .* above 0, got 0"),
        ({"noise_multiplier": 1e-3, "steps": 5}, "noise_multiplier must be at least 0.01"),
        ({"epsilon": 0.01, "noise_multiplier": 0.5}, "noise_multiplier must be larger .* one step"),
        ({"epsilon": 0, "steps": 5}, "epsilon must be .* above 0, got 0"),
        ({"epsilon": 1, "steps": 0}, "steps must be a whole number, 1 or above, got 0"),
        ({"epsilon": 1, "steps": 9, "accountant": "basic"}, "accountant must be 'pld' or 'rdp'"),
    ],
)
def test_errors_name_the_value_and_the_remedy(given_, message):
    with pytest.raises(ValueError, match=message):
        make(**given_)


@pytest.mark.slow
def test_a_schedule_may_not_go_below_the_least_noise():
    schedule = NoiseSchedule(((0.5, 1.0), (0.5, 0.001)))
    with pytest.raises(ValueError, match="noise_multiplier must be at least"):
        plan_of(schedule=schedule)
    plan = make(schedule=schedule, epsilon=3000.0, steps=2)
    assert plan.noise_multiplier * 0.001 >= LEAST_NOISE


def test_lots_and_neighbours_must_agree():
    for lots in (FixedSizeLots(6, 60), ShuffledLots(6, 60)):
        with pytest.raises(ValueError, match="whose sizes are public, got 'add-remove'"):
            plan_of(lots)
    with pytest.raises(ValueError, match="records_per_unit must be 1"):
        plan_of(FixedSizeLots(6, 60), neighbours=ZERO, records_per_unit=2, group_unit="person")


# --- units --------------------------------------------------------------------------------------


def test_units():
    users = plan_of(unit="user")
    assert users.event == dp_sgd(1.2, 0.01, 500, "user")
    assert users.guarantee.unit == users.protected_unit == "user"
    people = plan_of(records_per_unit=3, group_unit="person")
    assert people.event == GroupedEvent(dp_sgd(1.2, 0.01, 500), 3, "person")
    assert people.guarantee.unit == people.protected_unit == "person"
    assert people.guarantee.epsilon > 2 * plan_of().guarantee.epsilon
    single = plan_of(group_unit="person")  # one record each
    assert single.guarantee.epsilon == plan_of().guarantee.epsilon
    for group in (None, "record"):
        with pytest.raises(ValueError, match="group_unit must name whoever holds up to 3"):
            plan_of(records_per_unit=3, group_unit=group)


# --- over time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "slack"),
    [
        (plan_of(), 5e-3),
        (plan_of(CUT), 5e-3),
        (plan_of(accountant="rdp"), 0),
        (plan_of(schedule=NoiseSchedule.linear(1.5, 0.8, 2)), 0),
        (plan_of(ShuffledLots(600, 6000), neighbours=ZERO, steps=30), 0),
        (plan_of(FixedSizeLots(60, 6000), neighbours=REPLACE, steps=200), 1e-2),
    ],
    ids=["poisson", "cut", "rdp", "schedule", "shuffled", "fixed"],
)
def test_epsilon_over_time(plan, slack):
    half = plan.steps // 2 + 1
    found = plan.epsilon_after([0, half, plan.steps])
    exact = account(
        plan.event_of(half), DELTA, neighbours=plan.neighbours, accountant=plan.accountant
    ).epsilon
    assert found[0] == 0
    assert exact * (1 - 1e-6) <= found[1] <= exact * (1 + slack) + 1e-9
    assert plan.guarantee.epsilon * (1 - 1e-6) <= found[2]
    assert found[2] <= plan.guarantee.epsilon * (1 + slack) + 1e-9
    assert found[1] < found[2]
    assert plan.epsilon_after([half])[0] == pytest.approx(exact)
    with pytest.raises(ValueError, match="steps must be at most the plan's"):
        plan.epsilon_after([plan.steps + 1])


def test_noise_over_time():
    plan = plan_of(noise=2.0, steps=10, schedule=NoiseSchedule(((0.5, 1.5), (0.5, 0.5))))
    assert [plan.noise_at(step) for step in range(10)] == [3.0] * 5 + [1.0] * 5
    assert plan.event == ComposedEvent((dp_sgd(3.0, 0.01, 5), dp_sgd(1.0, 0.01, 5)))
    assert plan.event_between(4, 6) == ComposedEvent((dp_sgd(3.0, 0.01, 1), dp_sgd(1.0, 0.01, 1)))
    with pytest.raises(ValueError, match="step must be from 0 to 9"):
        plan.noise_at(10)


def test_a_shuffled_epoch_that_was_started_is_charged():
    plan = plan_of(ShuffledLots(10, 100), neighbours=ZERO, noise=4.0, steps=30)
    assert plan.epsilon_after([1, 10]) == [gaussian_epsilon(4.0, DELTA)] * 2
    assert plan.epsilon_after([11]) == pytest.approx([gaussian_epsilon(4 / 2**0.5, DELTA)])
    assert plan.event_between(10, 20) == plan.event_of(10)
    assert account(plan.event_between(5, 15), DELTA) == account(plan.event_of(20), DELTA)


# --- cut lots -----------------------------------------------------------------------------------


def test_cut_lots_are_paid_for_at_the_runs_own_epsilon():
    plan, uncut = plan_of(CUT, neighbours="zero-out"), plan_of(neighbours="zero-out")
    extra = plan.event.events[1].delta
    epsilon = plan.guarantee.epsilon
    assert epsilon >= uncut.guarantee.epsilon
    eta = CUT.overflow(500, plan.neighbours)
    assert extra >= (1 + math.exp(epsilon)) * eta
    assert extra == pytest.approx((1 + math.exp(epsilon)) * eta, rel=0.02)


def test_the_target_includes_the_extra_delta():
    tight = PoissonLots(600, 60_000, max_size=755)
    target = {"epsilon": 2.0, "steps": 500, "neighbours": "zero-out"}
    plan, uncut = make(tight, **target), make(**target)
    assert plan.claimed_epsilon == 2.0
    assert plan.guarantee.epsilon <= 2.0
    share = plan.event.events[1].delta / DELTA
    assert 0.01 < share < 1
    assert plan.noise_multiplier > uncut.noise_multiplier
    assert plan.event.events[1].delta >= (1 + math.e**2) * tight.overflow(500, ZERO)


def test_claims_that_do_not_hold_are_refused():
    plan = plan_of(CUT, claimed_epsilon=0.1, neighbours="zero-out")
    with pytest.raises(ValueError, match=r"claimed_epsilon must be at least the run's epsilon"):
        _ = plan.guarantee
    budget = plan_of(CUT, claimed_epsilon=5.0, neighbours="zero-out")  # a ledger's
    own = plan_of(CUT, neighbours="zero-out")
    assert budget.event.events[1].delta > own.event.events[1].delta
    with pytest.raises(ValueError, match="max_size must be larger, got 650"):
        make(PoissonLots(600, 60_000, max_size=650), epsilon=2.0, steps=500, neighbours=REPLACE)
    with pytest.raises(ValueError, match="max_size must be larger, got 700"):
        _ = plan_of(PoissonLots(600, 60_000, max_size=700), neighbours="zero-out").guarantee


def test_cut_lots_under_add_remove_promise_what_half_the_noise_does():
    """The claim of 5.41 for lots of at most 100 of "100": two tables were 10.5 apart."""
    plan = TrainingPlan.make(
        PoissonLots(30, 100, max_size=100), Flat(), delta=DELTA, noise_multiplier=2.0, steps=50
    )
    assert plan.guarantee == account(dp_sgd(1.0, 0.3, 50), DELTA)
    assert plan.guarantee.epsilon > 10.51
    assert plan.epsilon_after([1, 50])[1] == pytest.approx(plan.guarantee.epsilon, rel=1e-4)
    halved = make(CUT, epsilon=2.0, steps=500).noise_multiplier
    assert halved == pytest.approx(2 * make(epsilon=2.0, steps=500).noise_multiplier, rel=1e-6)


# --- clipping -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_adaptive_count_is_part_of_the_plan():
    plan = plan_of(clipping=Adaptive(1.0))
    assert plan.clipping == Adaptive(1.0, count_noise=30.0)
    (scale,) = plan.clipping.noise_scales(plan.noise_at(0), (1.0,))
    assert scale == pytest.approx((1.2**-2 - 60.0**-2) ** -0.5)
    with pytest.raises(ValueError, match="count_noise must be above half the noise multiplier"):
        plan_of(clipping=Adaptive(count_noise=0.6))
    with pytest.raises(ValueError, match="count_noise must be above half"):
        make(clipping=Adaptive(count_noise=0.3), epsilon=1.0, steps=500)
    # Judged by the calibrated noise, not by one on the way there.
    small = make(clipping=Adaptive(count_noise=0.45), epsilon=6.0, steps=500)
    assert small.noise_multiplier < 0.9


# --- JSON, ledger -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plan",
    [
        plan_of(),
        plan_of(CUT, claimed_epsilon=3.0, unit="user", neighbours=ZERO),
        plan_of(CUT, unit="user"),
        plan_of(ShuffledLots(60, 6000), PerLayer({"a": 1.0, "b": 2.0}), neighbours=ZERO),
        plan_of(clipping=Adaptive(), records_per_unit=3, group_unit="person", accountant="rdp"),
        plan_of(FixedSizeLots(60, 6000), neighbours=REPLACE, schedule=NoiseSchedule.linear(2, 1)),
    ],
)
def test_json(plan):
    back = TrainingPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    assert back == plan
    assert back.digest == plan.digest
    assert back.event == plan.event
    assert hash(back) == hash(plan)


def test_the_digest_is_of_everything():
    plan = plan_of()
    others = [
        replace(plan, steps=501),
        replace(plan, noise_multiplier=1.21),
        replace(plan, clipping=Flat(2.0)),
        replace(plan, lots=PoissonLots(600, 60_001)),
        replace(plan, unit="user"),
        replace(plan, schedule=NoiseSchedule.linear(2, 1)),
    ]
    assert len({plan.digest, *(other.digest for other in others)}) == 7
    with pytest.raises(FrozenInstanceError):
        plan.steps = 3


def test_a_ledger_charges_the_plan_as_a_whole_or_by_steps(tmp_path):
    plan = make(epsilon=1.0, steps=300)
    assert plan.currency == "whole"
    ledger = sf.Ledger(tmp_path / "privacy.db")
    ledger.create("mnist", sf.Budget(1.0, DELTA, opaque_delta=DELTA))
    declared = ledger.declare("mnist", [plan.event], delta=DELTA)
    assert declared.guarantee.epsilon == plan.guarantee.epsilon
    stepwise = make(epsilon=1.0, steps=300, accountant="rdp")
    assert stepwise.currency == "steps"
    assert stepwise.noise_multiplier > plan.noise_multiplier
