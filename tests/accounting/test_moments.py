"""The classic moments accountant: the published runs, reproduced to the step. Delta is 1e-5."""

import math

import pytest

import sfumato as sf
from sfumato import events
from sfumato.accounting.moments import moments_delta, moments_epsilon


def most_steps(epsilon, noise, rate, besides=None):
    return sf.calibrate_steps(
        epsilon=epsilon,
        delta=1e-5,
        noise_multiplier=noise,
        sample_rate=rate,
        accountant="moments",
        besides=besides,
    )


@pytest.mark.parametrize(
    ("epsilon", "noise", "pca", "one", "two"),
    [(0.5, 8, 16, 29.0, 14.3), (2, 4, 7, 215, 103), (8, 2, 4, 706, 306)],
)
def test_epochs_of_the_digits_run_after_a_private_pca(epsilon, noise, pca, one, two):
    """A hundred steps an epoch; two layers clipped apart are one release of noise sigma/sqrt(2)."""
    for layers, epochs in ((1, one), (2, two)):
        steps = most_steps(epsilon, noise / math.sqrt(layers), 0.01, events.GaussianEvent(pca))
        assert steps / 100 == pytest.approx(epochs, rel=4e-3)


@pytest.mark.parametrize(
    ("rate", "epsilon", "steps"), [(0.04, 2, 3509), (0.08, 4, 3264), (0.08, 8, 11_497)]
)
def test_steps_of_the_images_run(rate, epsilon, steps):
    assert most_steps(epsilon, 6, rate) == steps


def test_it_is_looser_than_rdp_and_rdp_than_pld():
    for run in (sf.dp_sgd(4, 0.01, 10_000), sf.dp_sgd(1.1, 0.00427, 14_063)):
        pld, rdp, moments = (
            sf.account(run, 1e-5, accountant=name).epsilon for name in ("pld", "rdp", "moments")
        )
        assert pld < rdp < moments


@pytest.mark.parametrize("besides", [(), (events.EpsilonDeltaEvent(0.1, 1e-7),)])
def test_its_two_directions_agree(besides):
    """The delta at the epsilon of a delta is that delta, and at 0 no more than 1."""
    event = sf.compose(sf.dp_sgd(1.5, 0.05, 500), *besides)
    for delta in (1e-3, 1e-6):
        found = moments_epsilon(event, delta, sf.Neighbours.ADD_REMOVE)
        assert moments_delta(event, found, sf.Neighbours.ADD_REMOVE) == pytest.approx(delta)
        assert moments_delta(event, 0.9 * found, sf.Neighbours.ADD_REMOVE) > delta
    assert moments_delta(event, 0.0, sf.Neighbours.ADD_REMOVE) == 1.0
    assert moments_delta(event, 1e3, sf.Neighbours.ADD_REMOVE) >= (1e-7 if besides else 0.0)
