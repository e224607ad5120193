"""Laplace or Gaussian: the dimension at which the answer changes, by brute force."""

import math

import numpy as np
import pytest

from sfumato.core import Norm, Sensitivity
from sfumato.mechanisms import crossover
from sfumato.mechanisms.crossover import (
    Criterion,
    crossover_curve,
    crossover_dimension,
    laplace_or_gaussian,
)
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace

TARGETS = [(1.0, 1e-5), (0.1, 1e-5), (8.0, 1e-5), (1.0, 1e-2), (50.0, 1e-6), (0.01, 1e-9)]
every_criterion = pytest.mark.parametrize("criterion", Criterion)


def mechanisms(epsilon, delta, k):
    """Each calibrated by its own code, for k numbers that all move by 1."""
    step = Sensitivity(1.0, Norm.LINF, dimension=k)
    return (
        Laplace.calibrate(step.to(Norm.L1), epsilon=epsilon),
        Gaussian.calibrate(step.to(Norm.L2), epsilon=epsilon, delta=delta),
    )


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
@pytest.mark.parametrize("k", [1, 2, 7, 100])
def test_errors_are_those_of_the_mechanisms(epsilon, delta, k):
    laplace, gaussian = mechanisms(epsilon, delta, k)
    by_sd = laplace_or_gaussian(epsilon, delta, k)
    assert by_sd.laplace == pytest.approx(laplace.standard_deviation)
    assert by_sd.gaussian == pytest.approx(gaussian.standard_deviation)
    by_l1 = laplace_or_gaussian(epsilon, delta, k, "l1")
    assert by_l1.laplace == pytest.approx(k * laplace.expected_error)
    assert by_l1.gaussian == pytest.approx(k * gaussian.expected_error)


@every_criterion
@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_the_crossover_is_the_first_dimension_the_gaussian_wins(epsilon, delta, criterion):
    found = crossover_dimension(epsilon, delta, criterion)
    winners = [laplace_or_gaussian(epsilon, delta, k, criterion).better for k in range(1, 80)]
    assert winners == ["laplace"] * (found - 1) + ["gaussian"] * (80 - found)


@pytest.mark.parametrize(
    ("criterion", "dimension"), [("standard-deviation", 7), ("l1", 9), ("l2", 8)]
)
def test_at_epsilon_one(criterion, dimension):
    assert crossover_dimension(1.0, 1e-5, criterion) == dimension


def test_closed_forms():
    sigma = Gaussian.calibrate(Sensitivity(1.0), epsilon=1.0, delta=1e-5).sigma
    assert crossover_dimension(1.0, 1e-5) == math.floor(sigma**2 / 2) + 1
    assert crossover_dimension(1.0, 1e-5, "l1") == math.floor(2 * sigma**2 / math.pi) + 1


@pytest.mark.parametrize("k", [1, 2, 5, 40])
def test_lengths_by_simulation(k):
    generator = np.random.default_rng(k)
    draws = 200_000
    for sample, length in (
        (generator.laplace(size=(draws, k)), crossover._laplace_length(k)),
        (generator.normal(size=(draws, k)), crossover._gaussian_length(k)),
    ):
        norms = np.linalg.norm(sample, axis=1)
        assert norms.mean() == pytest.approx(length, abs=4 * norms.std() / math.sqrt(draws))


def test_lengths_at_the_ends():
    assert crossover._laplace_length(1) == pytest.approx(1.0, rel=1e-11)
    assert crossover._gaussian_length(1) == pytest.approx(math.sqrt(2 / math.pi))
    for k in (10**4, 10**6):
        # sqrt(E ||Y||^2) less the effect of its spread: sqrt(2k) (1 - Var / 8 mean^2).
        assert crossover._laplace_length(k) == pytest.approx(
            math.sqrt(2 * k) * (1 - 20 / (8 * 4 * k)), rel=1e-7
        )
        assert crossover._gaussian_length(k) == pytest.approx(math.sqrt(k), rel=1e-4)


@every_criterion
def test_the_curve_is_ready_to_plot(criterion):
    curve = crossover_curve(1.0, 1e-5, range(1, 30), criterion)
    assert curve.dimensions.tolist() == list(range(1, 30))
    assert np.all(np.diff(curve.laplace) > 0)
    assert np.all(np.diff(curve.gaussian) > 0)
    gaussian_wins = curve.gaussian < curve.laplace
    assert curve.dimensions[gaussian_wins].min() == curve.crossover
    assert curve.crossover == crossover_dimension(1.0, 1e-5, criterion)
    assert curve.laplace[4] == laplace_or_gaussian(1.0, 1e-5, 5, criterion).laplace
    assert crossover_curve(1.0, 1e-5, [], criterion).laplace.shape == (0,)


def test_bad_arguments():
    with pytest.raises(ValueError, match="dimension must be"):
        laplace_or_gaussian(1.0, 1e-5, 0)
    with pytest.raises(ValueError, match="delta must be"):
        crossover_dimension(1.0, 0.0)
    with pytest.raises(ValueError, match="epsilon must be"):
        crossover_curve(-1.0, 1e-5, [1, 2])
    with pytest.raises(ValueError, match="criterion must be"):
        crossover_dimension(1.0, 1e-5, "linf")
