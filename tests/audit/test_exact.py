"""Audits without sampling: against closed forms, against brute force, and never above the truth."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from sfumato.audit.exact import (
    audit_density,
    audit_finite,
    audit_half_lines,
    exact_epsilon,
    hockey_stick,
    integrate_cells,
)
from sfumato.core.gaussian_profile import gaussian_delta, gaussian_epsilon
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.exponential import softmax
from sfumato.mechanisms.randomized_response import RandomizedResponse

weights = st.lists(st.integers(0, 1000), min_size=2, max_size=6)


def claimed(epsilon, delta=0.0):
    return Guarantee(epsilon, delta, Neighbours.ADD_REMOVE)


def laws(first, second):
    size = min(len(first), len(second))
    p, q = (np.array(side[:size], float) + (np.arange(size) == 0) for side in (first, second))
    return p / p.sum(), q / q.sum()


def normal(mean, sigma):
    return lambda x: np.exp(-(((x - mean) / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi))


def laplace(mean, scale):
    return lambda x: np.exp(-np.abs(x - mean) / scale) / (2 * scale)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.7, 1.0, math.log(3), 5.0, 12.0])
@pytest.mark.parametrize("categories", [2, 10])
def test_randomised_response_is_exactly_epsilon(epsilon, categories):
    survey = RandomizedResponse(epsilon, categories)
    p = [survey.keep] + [survey.switch] * (categories - 1)
    finding = audit_finite(p, p[1:] + p[:1], claim=survey.guarantee())
    assert not finding.refuted
    assert finding.confidence == 1
    assert finding.epsilon == pytest.approx(epsilon, rel=1e-9)


def test_the_exponential_mechanism_without_its_two_loses_twice_as_much():
    scores = np.array([0.0] + [1.0] * 999)
    finding = audit_finite(softmax(scores), softmax(1 - scores), claim=claimed(1.0))
    assert finding.epsilon == pytest.approx(1.9977, abs=5e-5)
    assert finding.refuted
    assert finding.facts["outcomes"] == 1000


def test_the_textbook_gaussian_at_epsilon_ten():
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    cells = integrate_cells(normal(1, sigma), normal(0, sigma), np.linspace(-6, 7, 4001))
    assert hockey_stick(cells.low_p, cells.high_q, 10.0) == pytest.approx(2.27e-5, abs=1e-7)
    finding = audit_density(
        normal(1, sigma), normal(0, sigma), (-6.0, 7.0), claim=claimed(10.0, 1e-5)
    )
    assert finding.refuted
    assert finding.delta == 1e-5
    exact = gaussian_epsilon(sigma, 1e-5)
    assert exact * (1 - 1e-9) < finding.epsilon < exact


@given(weights, weights, st.floats(0, 5))
def test_the_hockey_stick_is_rounded_down(first, second, epsilon):
    p, q = laws(first, second)
    found = Fraction(hockey_stick(p, q, epsilon))
    # e^epsilon between two fractions, one unit in the last place around the float.
    low, high = (Fraction(math.nextafter(math.exp(epsilon), to)) for to in (0, math.inf))
    pairs = [(Fraction(x), Fraction(y)) for x, y in zip(p.tolist(), q.tolist(), strict=True)]
    above = sum(max(x - low * y, Fraction(0)) for x, y in pairs)
    below = sum(max(x - high * y, Fraction(0)) for x, y in pairs)
    assert found <= above
    assert found >= below - Fraction(1, 10**14)


@given(weights, weights, st.sampled_from([0.0, 1e-3, 0.05, 0.3]))
def test_epsilon_is_the_best_of_all_events(first, second, delta):
    p, q = laws(first, second)
    best = 0.0
    for size in range(1, len(p) + 1):
        for event in itertools.combinations(range(len(p)), size):
            for x, y in ((p, q), (q, p)):
                inside, outside = x[list(event)].sum(), y[list(event)].sum()
                if inside > delta + 1e-12:
                    best = max(best, math.log((inside - delta) / outside) if outside else math.inf)
    found = exact_epsilon(p, q, delta)
    assert found <= best
    assert found == pytest.approx(best, rel=1e-6, abs=1e-9)


@given(weights, weights, st.sampled_from([1e-3, 0.05, 0.3]))
def test_epsilon_inverts_the_hockey_stick(first, second, delta):
    p, q = laws(first, second)
    found = exact_epsilon(p, q, delta)

    def worse(epsilon):
        return max(hockey_stick(p, q, epsilon), hockey_stick(q, p, epsilon))

    if found > 1e-9:
        assert worse(found * (1 - 1e-9)) >= delta - 1e-12
    if math.isfinite(found):
        assert worse(found + 1e-9) <= delta


def test_what_is_impossible_on_one_side_is_infinite_unless_delta_covers_it():
    p, q = [0.5, 0.5, 0.0], [0.5, 0.4, 0.1]
    assert exact_epsilon(p, q, 0.0) == math.inf
    assert exact_epsilon(p, q, 0.1) == pytest.approx(0.0, abs=1e-9)
    assert hockey_stick(q, p, math.inf) == pytest.approx(0.1)
    assert hockey_stick(q, p, 1e4) == pytest.approx(0.1)


def test_a_tail_that_is_left_out_only_lowers():
    p, q = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.3, 0.4])
    for delta in (0.0, 0.1, 0.25):
        assert exact_epsilon(p[:2], q[:2], delta) <= exact_epsilon(p, q, delta)


def test_probabilities_lost_to_underflow_prove_nothing():
    assert exact_epsilon([1.0, 5e-324], [1.0, 0.0], 0.0) == 0.0


def test_known_inaccuracy_is_charged():
    p, q = [0.75, 0.25], [0.25, 0.75]
    assert exact_epsilon(p, q, 0.0, accuracy=0.01) == pytest.approx(math.log(3 * 0.99 / 1.01))


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3, 0.1, 0.3])
@pytest.mark.parametrize("scale", [0.25, 1.0, 5.0])
def test_laplace_densities_follow_their_curve_from_below(scale, delta):
    support = (-40 * scale, 1 + 40 * scale)
    found = audit_density(laplace(0, scale), laplace(1, scale), support, delta=delta, breaks=(0, 1))
    exact = max(0.0, 1 / scale + 2 * math.log1p(-delta))
    assert found.epsilon <= exact
    assert found.epsilon == pytest.approx(exact, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize(("sigma", "delta"), [(0.4, 1e-8), (1.0, 1e-5), (4.0, 1e-3)])
def test_gaussian_densities_and_tails_follow_their_curve_from_below(sigma, delta):
    exact = gaussian_epsilon(sigma, delta)
    support = (-12 * sigma, 1 + 12 * sigma)
    by_cells = audit_density(normal(0, sigma), normal(1, sigma), support, delta=delta)
    tails = [lambda t, mean=mean: ndtr((mean - t) / sigma) for mean in (0.0, 1.0)]
    by_tails = audit_half_lines(*tails, np.linspace(*support, 20_001), delta=delta)
    for finding in (by_cells, by_tails):
        assert finding.epsilon <= exact
        assert finding.epsilon == pytest.approx(exact, rel=1e-6)
    assert gaussian_delta(sigma, by_tails.epsilon) >= delta


def test_a_jump_that_nobody_declared_is_charged_as_an_error():
    def uniform(start):
        return lambda x: ((x >= start) & (x < start + 1)).astype(float)

    # At distance 0.1234567 the true epsilon is 0 at delta 0.1234567, and infinite below.
    shift = 0.1234567
    blind = audit_density(uniform(0), uniform(shift), (-1.0, 2.5), delta=shift)
    assert blind.epsilon <= 1e-6
    seen = audit_density(
        uniform(0), uniform(shift), (-1.0, 2.5), delta=0.1, breaks=(0, shift, 1, 1 + shift)
    )
    assert seen.epsilon == math.inf


def test_half_lines_see_both_ends_and_both_directions():
    tails = [lambda t, scale=scale: np.exp(-t / scale) for scale in (1.0, 2.0)]
    # Exponential laws: "at most t" shows ln 2 for small t, "above t" shows t / 2 the other way.
    short = audit_half_lines(*tails, [1e-3], delta=0.0)
    assert short.epsilon == pytest.approx(math.log(2), abs=1e-3)
    assert short.facts["likelier_on"] == "first"
    far = audit_half_lines(*tails, [1e-3, 10.0], delta=0.0)
    assert far.epsilon == pytest.approx(5.0)
    assert far.facts["likelier_on"] == "second"
    assert far.facts["event"] == "above 10"


def test_the_claims_delta_is_the_default_and_its_own_is_needed_above_it():
    finding = audit_finite([0.9, 0.1], [0.1, 0.9], claim=claimed(1.0, 0.2))
    assert finding.delta == 0.2
    with pytest.raises(ValueError, match=r"at least the claim.s 0\.2"):
        audit_finite([0.9, 0.1], [0.1, 0.9], delta=0.1, claim=claimed(1.0, 0.2))


@pytest.mark.parametrize(
    ("p", "q", "message"),
    [
        ([0.5, 0.6], [0.5, 0.5], "p must be probabilities that add up to 1"),
        ([0.5, 0.5], [1.0], "q must be a probability for each of the 2"),
        ([0.5, math.nan], [0.5, 0.5], "p must be at least one probability"),
        ([0.5, 0.5], [-0.5, 0.5], "q must be at least one probability"),
        ([], [], "p must be at least one probability"),
    ],
)
def test_what_is_no_law_is_refused(p, q, message):
    with pytest.raises(ValueError, match=message):
        exact_epsilon(p, q, 0.0)
    with pytest.raises(ValueError, match=message):
        hockey_stick(p, q, 1.0)


def test_what_is_no_density_is_refused():
    with pytest.raises(ValueError, match="p must be a density, whose integral is at most 1"):
        audit_density(lambda x: np.ones_like(x), normal(0, 1), (0.0, 2.0), delta=0.0)
    with pytest.raises(ValueError, match="q must be a density: finite and never below 0"):
        audit_density(normal(0, 1), lambda x: -np.ones_like(x), (0.0, 2.0), delta=0.0)
    with pytest.raises(ValueError, match="support must have its lower bound below"):
        audit_density(normal(0, 1), normal(1, 1), (2.0, 0.0), delta=0.0)
