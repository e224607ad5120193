"""Worst cases: every mechanism has one, it is a neighbour, and the law there reaches the claim."""

import importlib
import inspect
import math
import pkgutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import sfumato.mechanisms
from sfumato.audit.exact import hockey_stick
from sfumato.audit.mechanism import draws_of
from sfumato.audit.pairs import audit_law, exact_laws, worst_pairs
from sfumato.core import SeededCoins, Sensitivity
from sfumato.core.rounding import at_least_root
from sfumato.mechanisms.discrete_gaussian import DiscreteGaussian
from sfumato.mechanisms.discrete_laplace import DiscreteLaplace
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.gaussian import Gaussian
from sfumato.mechanisms.laplace import Laplace
from sfumato.mechanisms.local import LocalLaplace
from sfumato.mechanisms.noisy_max import ReportNoisyMax
from sfumato.mechanisms.permute_and_flip import PermuteAndFlip
from sfumato.mechanisms.randomized_response import RandomizedResponse
from sfumato.mechanisms.skellam import Skellam
from sfumato.mechanisms.sparse_vector import SparseVector

THIRD = Sensitivity(0.3)  # no power of two, so that sums of it round
SEVERAL = Sensitivity(at_least_root(3), "l2", dimension=4)


def examples(epsilon):
    """Every mechanism, with the share of its claim that its law must reach."""
    yield Laplace.calibrate(THIRD, epsilon=epsilon), 0.0, 0.999999
    yield Laplace.calibrate(THIRD, epsilon=epsilon), 1e-3, 0.9999
    yield Laplace.calibrate(Sensitivity(2.0, dimension=3), epsilon=epsilon), 0.0, 0.999999
    yield Laplace(1 / epsilon, Sensitivity(1.0), grid=1.0), 0.0, 0.5
    yield DiscreteLaplace.calibrate(Sensitivity(3), epsilon=epsilon), 0.0, 0.999999
    yield DiscreteLaplace.calibrate(Sensitivity(3), epsilon=epsilon), 0.01, 0.999999
    yield DiscreteLaplace.calibrate(Sensitivity(2, dimension=3), epsilon=epsilon), 0.0, 0.999999
    yield Gaussian.calibrate(THIRD, epsilon=epsilon, delta=1e-6), None, 0.99999
    yield DiscreteGaussian.calibrate(Sensitivity(1), epsilon=epsilon, delta=1e-6), None, 0.999999
    yield DiscreteGaussian.calibrate(SEVERAL, epsilon=epsilon, delta=1e-6), None, 0.4
    yield Skellam.calibrate(Sensitivity(3), epsilon=epsilon, delta=1e-6), None, 0.75  # RDP's slack
    yield Skellam.calibrate(SEVERAL, epsilon=epsilon, delta=1e-6), None, 0.3
    yield LocalLaplace(epsilon, -3.0, 5.5), 0.0, 0.999999
    yield RandomizedResponse(epsilon), 0.0, 0.999999
    yield RandomizedResponse(epsilon, categories=10), 0.0, 0.999999
    for monotone in (False, True):
        yield Exponential(epsilon, THIRD, monotone=monotone), 0.0, 0.999
        yield PermuteAndFlip(epsilon, THIRD, monotone=monotone), 0.0, 0.99999
        for noise, share in (("exponential", 0.99999), ("laplace", 0.9), ("gumbel", 0.999)):
            choice = ReportNoisyMax(epsilon, THIRD, noise=noise, monotone=monotone)
            yield choice, 0.0, share
        yield SparseVector(epsilon, THIRD, 10.0, 2, monotone), 0.0, 0.99


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_no_law_exceeds_its_claim_and_nearly_all_reach_it(epsilon):
    for mechanism, delta, share in examples(epsilon):
        finding = audit_law(mechanism, delta=delta)
        assert not finding.refuted, mechanism
        assert finding.epsilon > share * finding.claim.epsilon, mechanism
        assert finding.confidence == 1


def test_a_claim_that_is_a_hundredth_too_small_is_refuted_without_a_draw():
    for mechanism, delta, share in examples(1.0):
        if share > 0.999 and not isinstance(mechanism, SparseVector):
            claim = mechanism.guarantee(mechanism.delta if delta is None else delta)
            less = replace(claim, epsilon=0.99 * claim.epsilon)
            assert audit_law(mechanism, delta=delta, claim=less).refuted, mechanism


def test_every_mechanism_of_the_package_has_a_worst_case():
    known = {type(mechanism) for mechanism, _, _ in examples(1.0)}
    found = set()
    for module in pkgutil.iter_modules(sfumato.mechanisms.__path__, "sfumato.mechanisms."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            promises = hasattr(kind, "release") and hasattr(kind, "guarantee")
            if promises and not inspect.isabstract(kind) and kind.__module__ == module.name:
                found.add(kind)
    found = {kind for kind in found if not getattr(kind, "_is_protocol", False)}
    assert found == known


def distance(pair, norm):
    gaps = [abs(Fraction(x) - Fraction(y)) for x, y in zip(*map(as_list, pair), strict=True)]
    if norm == "l1":
        return sum(gaps)
    return max(gaps) if norm == "linf" else math.sqrt(sum(gap**2 for gap in gaps))


def as_list(value):
    if isinstance(value, list):
        return value
    return value.tolist() if isinstance(value, np.ndarray) else [value]


@pytest.mark.parametrize("exact", [False, True])
def test_worst_cases_are_neighbours_to_the_last_digit(exact):
    norms = {Laplace: "l1", DiscreteLaplace: "l1"}
    norms |= {Gaussian: "l2", DiscreteGaussian: "l2", Skellam: "l2"}
    for mechanism, _, _ in examples(0.7):
        if not hasattr(mechanism, "sensitivity"):
            continue
        for pair in worst_pairs(mechanism, exact=exact):
            moved = distance(pair, norms.get(type(mechanism), "linf"))
            assert 0 < moved <= Fraction(mechanism.sensitivity.bound)
            if getattr(mechanism, "monotone", False):
                assert all(Fraction(x) <= Fraction(y) for x, y in zip(*pair, strict=True))


def test_an_l2_bound_is_used_by_as_many_coordinates_as_it_takes():
    several = DiscreteGaussian(5.0, SEVERAL)
    ((_, moved),) = worst_pairs(several)
    assert moved.tolist() == [1, 1, 1, 0]
    ((_, moved),) = worst_pairs(replace(several, sensitivity=Sensitivity(3.0, "l2", dimension=2)))
    assert moved.tolist() == [3, 0]


@pytest.mark.parametrize(
    "mechanism",
    [
        Laplace(0.7, THIRD),
        Laplace(0.7, Sensitivity(1.0), grid=0.5),
        Gaussian(1.3, Sensitivity(1.0)),
        DiscreteLaplace(1.7, Sensitivity(2)),
        DiscreteGaussian(1.7, Sensitivity(2)),
        Skellam(2.9, Sensitivity(2)),
        LocalLaplace(2.0, 0.0, 1.0),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_the_law_of_noise_is_the_one_that_is_drawn(mechanism):
    """Symmetric noise with one peak: the outputs nearer to one input show all of the distance."""
    pair = worst_pairs(mechanism, exact=True)[0]
    laws = exact_laws(mechanism, pair)
    assert laws.p.sum() == pytest.approx(1, abs=1e-12)
    assert laws.q.sum() == pytest.approx(1, abs=1e-12)
    draws = draws_of(mechanism, SeededCoins(3))
    first, second = (np.mean(draws(value, 200_000) <= sum(pair) / 2) for value in pair)
    assert hockey_stick(laws.p, laws.q, 0.0) == pytest.approx(first - second, abs=0.006)


@pytest.mark.parametrize(
    "mechanism",
    [
        Exponential(1.0, THIRD),
        PermuteAndFlip(1.0, THIRD, monotone=True),
        ReportNoisyMax(1.0, THIRD, noise="laplace"),
        RandomizedResponse(1.0),
        SparseVector(2.0, THIRD, 1.0, positives=2),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_the_law_of_a_choice_is_the_one_that_is_drawn(mechanism):
    pair = worst_pairs(mechanism)[0]
    laws = exact_laws(mechanism, pair)
    drawn = draws_of(mechanism, SeededCoins(4))(pair[0], 3000)
    if isinstance(mechanism, SparseVector):
        drawn = [first_deviation(answers, len(pair[0]), 2) for answers in drawn]
    seen = np.bincount(drawn, minlength=len(laws.p)) / 3000
    errors = np.sqrt(laws.p * (1 - laws.p) / 3000)
    assert np.all(np.abs(seen - laws.p) <= 5 * errors + 1e-12)


def first_deviation(answers, values, positives):
    expected = [False] * (values - positives) + [True] * positives
    pairs = enumerate(zip(answers, expected, strict=False))
    return next((i for i, (answer, other) in pairs if answer != other), values)


def test_a_coarse_grid_hides_something_and_its_law_knows():
    fine, coarse = (Laplace(1.0, Sensitivity(1.0), grid=grid) for grid in (None, 4.0))
    assert audit_law(coarse, delta=0.1).epsilon < audit_law(fine, delta=0.1).epsilon - 0.1


def test_pairs_of_ones_own():
    noise = Laplace(1.0, Sensitivity(1.0))
    near = audit_law(noise, pairs=[(1e6, 1e6 + 0.25), (3.0, 3.5)])
    assert near.epsilon == pytest.approx(0.5, abs=1e-5)
    assert near.facts["pair"] == [3.0, 3.5]
    with pytest.raises(ValueError, match="pairs must be at least one pair"):
        audit_law(noise, pairs=[])


def test_where_there_is_no_law_it_says_so():
    several = DiscreteGaussian(5.0, SEVERAL)
    with pytest.raises(ValueError, match="two inputs that differ in one coordinate"):
        exact_laws(several, worst_pairs(several)[0])
    with pytest.raises(ValueError, match="noise must be smaller for its law"):
        exact_laws(DiscreteGaussian(1e8, Sensitivity(1)), (0, 1))
    with pytest.raises(ValueError, match="pair must be two different answers"):
        exact_laws(RandomizedResponse(1.0), (0, 7))

    class Unheard:
        pass

    with pytest.raises(ValueError, match=r"one of DiscreteGaussian, .*; give pairs for any other"):
        worst_pairs(Unheard())


@pytest.mark.slow
@pytest.mark.parametrize("positives", [1, 3])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 8.0])
def test_sessions_of_several_positives(epsilon, positives):
    for monotone in (False, True):
        session = SparseVector(epsilon, Sensitivity(2.0), 10.0, positives, monotone)
        finding = audit_law(session)
        assert 0.99 * epsilon < finding.epsilon <= epsilon
