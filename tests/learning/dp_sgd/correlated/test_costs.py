"""Plans with correlated noise: what they cost, and what they refuse."""

import json
import math

import pytest

import sfumato as sf
from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, GroupedEvent, RepeatedEvent, dp_sgd
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd import TrainingPlan

STREAM = sf.StreamedLots(50, 1000)  # 20 steps an epoch
CYCLIC = sf.CyclicPoissonLots(50, 10_000, 8)
DELTA = 1e-5
ALL = [sf.IndependentNoise(), sf.BandedNoise(8), sf.BandedNoise(30), sf.BufferedNoise(3),
       sf.TreeNoise(), sf.TreeNoise(restart=20)]  # fmt: skip


def plan(correlation, lots=STREAM, z=2.0, steps=20, neighbours="zero-out", clipping=None, **more):
    return TrainingPlan(
        lots, clipping or sf.Flat(1.0), z, steps, DELTA, Neighbours.parse(neighbours),
        correlation=correlation, **more,
    )  # fmt: skip


@pytest.mark.parametrize("correlation", ALL)
def test_one_epoch_is_one_gaussian_release(correlation):
    for steps in (1, 7, 20):
        assert plan(correlation, steps=steps).event == GaussianEvent(2.0, Neighbours.ZERO_OUT)


@pytest.mark.parametrize("correlation", ALL)
@pytest.mark.parametrize(("relation", "factor"), [("zero-out", 1), ("replace-one", 2)])
def test_epochs_cost_the_strategy_s_sensitivity(correlation, relation, factor):
    """A replaced record moves the release twice as far: accounted so, for every strategy."""
    made = plan(correlation, steps=60, neighbours=relation)
    sensitivity = factor * math.sqrt(correlation.cost(60, 3, 20))
    wanted = gaussian_epsilon(2.0 / sensitivity, DELTA)
    assert made.guarantee.epsilon == pytest.approx(wanted, rel=1e-3)
    assert made.guarantee.epsilon >= wanted * (1 - 1e-6)


def test_orthogonal_columns_are_repeated_releases():
    for correlation in (sf.IndependentNoise(), sf.BandedNoise(20), sf.TreeNoise(restart=20)):
        event = plan(correlation, steps=60).event
        assert event == RepeatedEvent(GaussianEvent(2.0, Neighbours.ZERO_OUT), 3)
    assert plan(sf.BandedNoise(21), steps=60).guarantee.epsilon > (
        plan(sf.BandedNoise(20), steps=60).guarantee.epsilon
    )


def test_one_band_is_dp_sgd_in_cost():
    one = sf.BandedNoise(1)
    cyclic = plan(one, sf.CyclicPoissonLots(50, 10_000, 1), steps=100, neighbours="add-remove")
    assert cyclic.event == dp_sgd(2.0, 0.005, 100)
    assert plan(one, sf.PoissonLots(50, 10_000), steps=100, neighbours="add-remove").event == (
        dp_sgd(2.0, 0.005, 100)
    )


@pytest.mark.parametrize("relation", ["add-remove", "zero-out", "replace-one"])
def test_bands_within_the_groups_are_amplified(relation):
    made = plan(sf.BandedNoise(8), CYCLIC, steps=100, neighbours=relation)
    independent = plan(sf.IndependentNoise(), CYCLIC, steps=100, neighbours=relation)
    poisson = plan(
        sf.IndependentNoise(), sf.PoissonLots(400, 10_000), steps=13, neighbours=relation
    )
    assert made.event == independent.event == poisson.event


@pytest.mark.parametrize("correlation", ALL)
@pytest.mark.parametrize("epochs", [1, 3])
def test_calibration_meets_its_target(correlation, epochs):
    made = TrainingPlan.make(
        STREAM, sf.Flat(1.0), delta=DELTA, epsilon=2, epochs=epochs, neighbours="zero-out",
        correlation=correlation,
    )  # fmt: skip
    assert 1.98 < made.guarantee.epsilon <= 2
    assert made.steps == 20 * epochs
    assert made.correlation == correlation.resolved(made.steps)
    curve = made.epsilon_after([0, 1, made.steps])
    assert curve[0] == 0
    assert curve[-1] == pytest.approx(made.guarantee.epsilon)
    assert curve == sorted(curve)


def test_calibration_with_sampling_and_the_length_that_fits():
    made = TrainingPlan.make(
        CYCLIC, sf.Flat(1.0), delta=DELTA, epsilon=2, steps=200, correlation=sf.BandedNoise(8)
    )
    assert 1.98 < made.guarantee.epsilon <= 2
    longest = TrainingPlan.make(
        CYCLIC, sf.Flat(1.0), delta=DELTA, epsilon=2, noise_multiplier=made.noise_multiplier,
        correlation=sf.BandedNoise(8),
    )  # fmt: skip
    assert longest.steps == 200  # 25 turns; one step more begins another
    assert longest.guarantee.epsilon <= 2
    points = [1, 8, 9, 100, 200]
    singly = [account(made.event_of(n), DELTA).epsilon for n in points]
    assert made.epsilon_after(points) == pytest.approx(singly, rel=1e-3)


@pytest.mark.parametrize("correlation", ALL)
@pytest.mark.parametrize(
    "lots", [STREAM, CYCLIC, sf.CyclicPoissonLots(50, 200, 4), sf.ShuffledLots(50, 1000)]
)
def test_epsilon_after_is_never_below_the_account_of_those_steps(correlation, lots):
    """Where columns overlap, a later turn costs more than the first did, without sampling, too."""
    steps = 20 if lots.kind == "shuffled" else 40
    if lots.sample_rate < 1 and correlation.reach > lots.cycle:
        with pytest.raises(ValueError, match="not reach further"):
            plan(correlation, lots, 4.0, steps)
        return
    made, points = plan(correlation, lots, 4.0, steps), [1, 9, 20, steps]
    singly = [account(made.event_of(n), DELTA, neighbours="zero-out").epsilon for n in points]
    together = made.epsilon_after(points)
    assert all(one >= two * (1 - 1e-3) for one, two in zip(together, singly, strict=True))
    assert together[-1] >= made.guarantee.epsilon * (1 - 1e-3)


def test_parts_of_a_run_count_everything_before():
    made = plan(sf.BandedNoise(8), steps=60)
    assert made.event_between(30, 40) == made.event_of(40)
    assert made.event_of(0) == plan(sf.IndependentNoise()).event_of(0)


@pytest.mark.parametrize("correlation", ALL)
def test_json_and_digest(correlation):
    made = plan(correlation)
    stored = json.loads(json.dumps(made.to_dict()))
    back = TrainingPlan.from_dict(stored)
    assert back == made
    assert back.digest == made.digest
    assert ("correlation" in stored) == (correlation != sf.IndependentNoise())
    digests = {plan(other).digest for other in ALL}
    assert len(digests) == len(ALL)


@pytest.mark.parametrize("make", [sf.BandedNoise, sf.BufferedNoise])
def test_a_plan_keeps_the_numbers_that_were_found(make, monkeypatch):
    """What another machine would find by the same search does not matter any more."""
    made = plan(make(3), steps=60)
    stored = json.loads(json.dumps(made.to_dict()))

    def elsewhere(*_):
        raise AssertionError("searched again")

    monkeypatch.setattr("sfumato.learning.dp_sgd.correlated.toeplitz.best_banded", elsewhere)
    monkeypatch.setattr("sfumato.learning.dp_sgd.correlated.buffers.best_buffers", elsewhere)
    back = TrainingPlan.from_dict(stored)
    assert (back, back.digest, back.event) == (made, made.digest, made.event)
    assert back.guarantee.epsilon == made.guarantee.epsilon
    assert back.correlation.recursion(60).scale == made.correlation.recursion(60).scale


def test_other_numbers_are_another_plan():
    one = plan(sf.BandedNoise(2, (1.0, 0.5)))
    assert one.digest != plan(sf.BandedNoise(2, (1.0, 0.5 + 1e-6))).digest
    assert one.digest == plan(sf.BandedNoise(2, (2.0, 1.0))).digest  # the same C


def test_the_length_that_fits_has_noise_for_that_length():
    for correlation in (sf.BandedNoise(4), sf.BandedNoise(30), sf.BufferedNoise(2)):
        made = TrainingPlan.make(
            STREAM, sf.Flat(1.0), delta=DELTA, epsilon=4, noise_multiplier=2.0,
            neighbours="zero-out", correlation=correlation,
        )  # fmt: skip
        assert made.steps > 30
        assert made.correlation == correlation.resolved(made.steps)
        assert made.guarantee.epsilon <= 4


def test_groups_of_records():
    made = plan(sf.BandedNoise(8), records_per_unit=2, group_unit="person")
    assert made.event == GroupedEvent(GaussianEvent(2.0, Neighbours.ZERO_OUT), 2, "person")
    assert made.guarantee.epsilon == pytest.approx(gaussian_epsilon(1.0, DELTA), rel=1e-3)


@pytest.mark.parametrize(
    ("correlation", "more", "message"),
    [
        (sf.TreeNoise(), {"lots": sf.PoissonLots(5, 100)}, "got poisson lots: use StreamedLots"),
        (sf.BandedNoise(4), {"lots": sf.FixedSizeLots(5, 100)}, "got fixed-size lots"),
        (sf.BandedNoise(4), {"lots": sf.ShuffledLots(5, 100), "steps": 21}, "got shuffled lots"),
        (sf.BandedNoise(9), {"lots": CYCLIC}, "not reach further than 8 steps in lots of 8 groups"),
        (sf.TreeNoise(), {"lots": CYCLIC}, "got inf: use BandedNoise"),
        (sf.BufferedNoise(), {"lots": CYCLIC}, "got inf: use BandedNoise"),
        (sf.TreeNoise(), {"clipping": sf.Adaptive()}, "clipping must not adapt with tree noise"),
        (
            sf.BandedNoise(4),
            {"schedule": sf.NoiseSchedule.linear(1.5, 0.5, phases=2)},
            "schedule must be constant with banded noise",
        ),
        (
            sf.BandedNoise(4),
            {"neighbours": "add-remove"},
            "neighbours must be 'replace-one' or 'zero-out'",
        ),
    ],
)
def test_combinations_without_a_theorem_are_refused(correlation, more, message):
    with pytest.raises(ValueError, match=message):
        plan(correlation, **more)


def test_a_shuffled_epoch_bounds_participation():
    made = plan(sf.TreeNoise(), sf.ShuffledLots(50, 1000), steps=20)
    assert made.event == GaussianEvent(2.0, Neighbours.ZERO_OUT)


def test_trees_restart_within_the_groups():
    """A tree that ends within a turn of the parts has columns that do not overlap, either."""
    made = plan(sf.TreeNoise(restart=8), CYCLIC, steps=64, neighbours="add-remove")
    assert (
        made.event == plan(sf.IndependentNoise(), CYCLIC, steps=64, neighbours="add-remove").event
    )


def test_best_bands():
    made = sf.best_bands(50, 200, epsilon=4, delta=DELTA, epochs=5)
    assert made.guarantee.epsilon <= 4
    assert made.lots.groups == made.correlation.bands == 2  # 4 would not be sampled at all
    error = sf.prefix_error(made.correlation, made.steps, made.noise_multiplier).mean
    plain = TrainingPlan.make(
        sf.PoissonLots(50, 200), sf.Flat(1.0), epsilon=4, delta=DELTA, epochs=5
    )
    usual = sf.prefix_error(plain.correlation, plain.steps, plain.noise_multiplier).mean
    assert error < usual
