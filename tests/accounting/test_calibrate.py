"""Calibration never exceeds its target, under any accountant and relation, and wastes nothing."""

import pytest

import sfumato as sf
from sfumato import events

QUICK = {"delta": 1e-5, "accountant": "rdp"}
BESIDES = events.GaussianEvent(12.0)


def cost(noise, rate, steps, besides=None, neighbours=None, unit="record"):
    event = sf.dp_sgd(noise, rate, steps, unit)
    whole = event if besides is None else sf.compose(event, besides)
    return sf.account(whole, 1e-5, neighbours=neighbours, accountant="rdp").epsilon


@pytest.mark.parametrize(
    ("noise", "steps", "besides", "neighbours", "digits"),
    [
        (1.0, 100, None, None, 2),
        (3.0, 10_000, BESIDES, None, 3),
        # Each account is an integral.
        pytest.param(1.0, 100, None, "replace-one", 1, marks=pytest.mark.slow),
    ],
)
def test_a_sample_rate_is_the_largest_that_fits(noise, steps, besides, neighbours, digits):
    known = {"noise_multiplier": noise, "steps": steps, "besides": besides, "digits": digits}
    rate = sf.calibrate_sample_rate(epsilon=2.0, neighbours=neighbours, **known, **QUICK)
    assert float(f"{rate:.{digits}g}") == rate  # as many digits as asked for
    more = rate * (1 + 2 * 10.0 ** (1 - digits))
    assert cost(noise, rate, steps, besides, neighbours) <= 2.0
    assert cost(noise, more, steps, besides, neighbours) > 2.0


def test_everything_may_be_sampled_where_it_fits():
    known = {"noise_multiplier": 50.0, "steps": 1, **QUICK}
    assert sf.calibrate_sample_rate(epsilon=5.0, **known) == 1.0
    least = cost(50.0, 1.0, 1)
    assert sf.calibrate_sample_rate(epsilon=least, **known) == 1.0
    assert sf.calibrate_sample_rate(epsilon=least * 0.99, **known) < 1.0


def test_no_sample_rate_is_small_enough():
    with pytest.raises(ValueError, match=r"no sample rate meets epsilon 0.5 with 10 steps"):
        sf.calibrate_sample_rate(
            epsilon=0.5, noise_multiplier=1.0, steps=10, besides=events.GaussianEvent(1.0), **QUICK
        )


@pytest.mark.parametrize(
    ("besides", "neighbours"), [(None, None), (BESIDES, None), (None, "replace-one")]
)
def test_steps_are_the_most_that_fit(besides, neighbours):
    known = {"noise_multiplier": 2.0, "sample_rate": 0.02, "besides": besides}
    steps = sf.calibrate_steps(epsilon=1.0, neighbours=neighbours, **known, **QUICK)
    assert cost(2.0, 0.02, steps, besides, neighbours) <= 1.0
    assert cost(2.0, 0.02, steps + 1, besides, neighbours) > 1.0


def test_one_step_that_just_fits():
    least = cost(3.0, 0.1, 1)
    known = {"noise_multiplier": 3.0, "sample_rate": 0.1, **QUICK}
    assert sf.calibrate_steps(epsilon=least, **known) == 1
    with pytest.raises(ValueError, match="in one step"):
        sf.calibrate_steps(epsilon=least * 0.999, **known)


def test_noise_is_the_least_that_fits():
    known = {"sample_rate": 0.02, "steps": 500, "besides": BESIDES}
    noise = sf.calibrate_noise(epsilon=1.0, **known, **QUICK)
    assert cost(noise, 0.02, 500, BESIDES) <= 1.0 < cost(noise * (1 - 1e-4), 0.02, 500, BESIDES)


def test_what_is_released_besides_leaves_room():
    alone = sf.account(BESIDES, 1e-5, accountant="rdp").epsilon
    known = {"sample_rate": 0.02, "steps": 500, "besides": BESIDES, **QUICK}
    with pytest.raises(ValueError, match="must exceed what is released besides"):
        sf.calibrate_noise(epsilon=alone, **known)


def test_the_unit_is_that_of_what_is_calibrated():
    """Releases for other units do not compose, so a wrong one would be an error."""
    unit = "person"
    besides = events.GaussianEvent(12.0, unit=unit)
    common = {"epsilon": 1.0, "besides": besides, "unit": unit, **QUICK}
    noise = sf.calibrate_noise(sample_rate=0.02, steps=100, **common)
    steps = sf.calibrate_steps(noise_multiplier=noise, sample_rate=0.02, **common)
    rate = sf.calibrate_sample_rate(noise_multiplier=noise, steps=100, digits=2, **common)
    assert steps >= 100
    assert 0.019 <= rate <= 0.02


@pytest.mark.parametrize("digits", [2, 3, 5])
def test_digits_are_as_many_as_asked_and_rounded_up(digits):
    found = sf.calibrate(lambda x: events.LaplaceEvent(x), 0.3, 0.0, digits=digits)
    assert float(f"{found:.{digits}g}") == found
    assert 1 / found <= 0.3 < 1 / (found - 2 * 10.0 ** (1 - digits))
