"""Claims about fitted models: their laws are what is said, and their constants decide."""

import math

import numpy as np
import pytest

from sfumato.audit.claims import claim, run_claims
from sfumato.audit.claims.estimators import (
    TiltedLogistic,
    above_law,
    least_squares_law,
    range_of_squares,
    seeded_reports,
    stopped_solver,
    with_the_determinant,
)
from sfumato.audit.exact import audit_density, audit_finite
from sfumato.core.neighbours import Neighbours
from sfumato.learning.erm.functional import Functional
from sfumato.learning.erm.losses import HuberHinge, HuberSquare
from sfumato.learning.erm.printed import printed_split
from sfumato.learning.erm.sensitivity import minimiser_bound
from sfumato.learning.erm.tasks import Quadratic, Task

NAMES = (
    "minimiser-never-reached",
    "objective-without-its-determinant",
    "lower-bound-taken-twice",
    "label-noise-with-a-fixed-seed",
)


@pytest.fixture(scope="module")
def results():
    """Of these alone."""
    return {result.claim.name: result for result in run_claims(NAMES)}


def found(results, name):
    return results[name].found.epsilon


def shown(moves, scales):
    return audit_finite(*above_law(moves, scales)).epsilon


# --- laws of noisy numbers ----------------------------------------------------------------------


def test_numbers_above_their_first_value_are_a_law():
    for law in above_law([1.0, 0.5, 0.0], [2.0, 0.0, 1.0]):
        assert law.sum() == pytest.approx(1.0)
        assert len(law) == 8


def test_losses_of_independent_noise_add_up():
    assert shown([1.0], [2.0]) == pytest.approx(0.5, abs=1e-9)
    assert shown([1.0, 3.0], [2.0, 4.0]) == pytest.approx(1.25, abs=1e-9)


def test_a_number_without_noise_tells_only_if_it_moves():
    assert shown([1.0, 0.1], [2.0, 0.0]) == math.inf
    assert shown([1.0, 0.0], [2.0, 0.0]) == pytest.approx(0.5, abs=1e-9)


# --- a solver that stops ------------------------------------------------------------------------


def test_a_stopped_solver_moves_three_and_a_half_times_as_far(results):
    assert found(results, "minimiser-never-reached") == pytest.approx(3.5, abs=1e-9)
    corrected = results["minimiser-never-reached"].corrected.epsilon
    assert corrected == pytest.approx(7 / 14, abs=1e-9)


def test_of_exact_minimisers_the_printed_constant_is_true_and_tight():
    """The same two tables, and a solver that goes on: epsilon 1; a tenth less noise is seen."""
    first, second = (stopped_solver(s / 60_000, 1e-3, 1e-15) for s in (7, 5))
    constant = 2 / (60_000 * 1e-3)
    assert shown([first - second], [constant]) == pytest.approx(1.0, abs=1e-6)
    assert shown([first - second], [0.9 * constant]) > 1.1


def test_nothing_passes_the_bound_with_the_tolerance_in_it():
    rng, worst = np.random.default_rng(3), 0.0
    for _ in range(2_000):
        records, convexity, tolerance = (
            rng.integers(2, 500),
            rng.uniform(0.01, 1),
            rng.uniform(0, 1),
        )
        mean = rng.choice([tolerance - 1 / records, rng.uniform(-1, 1)])
        moved = [stopped_solver(m, convexity, tolerance + 1e-9) for m in (mean, mean + 2 / records)]
        bound = 2 / (records * convexity) + 2 * (tolerance + 1e-9) / convexity
        worst = max(worst, abs(moved[1] - moved[0]) / bound)
    assert 0.5 < worst <= 1  # a solver that oversteps would come nearer


def test_our_own_bound_counts_the_distance_from_the_minimiser():
    distance = 1e-4 / 1e-3
    ours = minimiser_bound(HuberHinge(), 60_000, 1e-3, Neighbours.REPLACE_ONE, distance)
    assert ours == pytest.approx(2 / 60 + 2 * distance, rel=1e-9)


def test_scikit_learn_stops_where_it_starts():
    """Its default tolerance, on neighbouring tables: weights more than 2 G C apart.

    It divides the objective by n, which makes mu = 1 / (C n), and 2 G / (n mu) = 2 C.
    """
    linear_model = pytest.importorskip("sklearn.linear_model")
    records, strength = 60_000, 0.01
    labels = np.tile([1, -1], records // 2)

    def weight(last):
        rows = np.zeros(records)
        rows[:11_500] = 1e-3 * labels[:11_500]
        rows[-1] = last * labels[-1]
        model = linear_model.LogisticRegression(C=strength, fit_intercept=False)
        return model.fit(rows[:, None], labels).coef_.item()

    assert weight(-1.0) == 0.0
    assert weight(1.0) > 2.5 * 2 * strength


# --- noise in the objective ---------------------------------------------------------------------

LAWS = [TiltedLogistic(x, s, r) for x in (1.0, 0.0, -0.5) for s, r in ((1.0, 0.05), (9.9, 0.025))]


@pytest.mark.parametrize("law", LAWS)
def test_the_density_is_that_of_the_minimiser(law):
    """Between two weights lies what lies between their tilts: exactly, by Laplace's own law."""

    def above(b):
        return 0.5 * math.exp(-law.rate * b) if b > 0 else 1 - 0.5 * math.exp(law.rate * b)

    for low, high in ((-3.0, -1.0), (-1.0, 0.2), (0.2, 5.0)):
        exact = above(float(law.tilt(high))) - above(float(law.tilt(low)))
        places = np.unique(np.append(np.linspace(low, high, 20_001), law.kink))
        places = places[(places >= low) & (places <= high)]
        assert np.trapezoid(law(places), places) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_the_tilt_is_minus_the_gradient(law):
    for w in (-2.0, 0.0, law.kink, 3.0):
        step = 1e-5
        losses = [
            math.log1p(math.exp(-law.x * v)) + law.strength / 2 * v * v
            for v in (w - step, w + step)
        ]
        assert float(law.tilt(w)) == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-7)
    assert float(law.tilt(law.kink)) == pytest.approx(0.0, abs=1e-12)


def audited(epsilon, left, strength, pair=(1.0, 0.0)):
    laws = [TiltedLogistic(x, strength, left / 2) for x in pair]
    breaks = sorted({law.kink for law in laws})
    return audit_density(*laws, (-12.0, 12.0), breaks=breaks, cells=512).epsilon


def test_the_determinant_is_what_was_forgotten(results):
    """The supremum of the log ratio, on a grid; most of it is ln 1.25."""
    with_it, without = (TiltedLogistic(x, 1.0, 0.05) for x in (1.0, 0.0))
    w = np.append(np.linspace(-3, 3, 60_001), with_it.kink)  # where it is largest
    exact = float(np.log(with_it(w) / without(w)).max())
    shown = found(results, "objective-without-its-determinant")
    assert exact - 1e-4 < shown <= exact + 1e-9
    assert shown == pytest.approx(0.2353, abs=1e-4)
    noise = 0.05 * np.abs(without.tilt(w) - with_it.tilt(w)).max()
    assert noise < 0.1 < shown - noise


def test_the_repair_is_the_one_printed_in_2011():
    for epsilon, records, regularisation in ((1.0, 1000, 0.01), (0.1, 1000, 0.001)):
        left, strength = with_the_determinant(epsilon, records, regularisation)
        known, extra = printed_split(epsilon, records, regularisation)
        assert (left, strength - regularisation) == pytest.approx((known, extra), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.05, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("strength", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("pair", [(1.0, 0.0), (1.0, -1.0), (0.0, -1.0)])
def test_the_repair_holds_and_the_printed_version_does_not_where_little_is_added(
    epsilon, strength, pair
):
    left, repaired = with_the_determinant(epsilon, 1, strength)
    assert audited(epsilon, left, repaired, pair) <= epsilon
    if 0.0 in pair and math.log1p(0.25 / strength) > 1.3 * epsilon:
        assert audited(epsilon, epsilon, strength, pair) > epsilon


# --- squares without noise ----------------------------------------------------------------------


def least_squares(lower, upper, squares):
    return audit_finite(*least_squares_law(lower, upper, squares, 1.0)).epsilon


def test_no_noise_on_squares_tells_all(results):
    assert found(results, "lower-bound-taken-twice") == math.inf
    corrected = results["lower-bound-taken-twice"].corrected.epsilon
    assert corrected == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("lower", "upper", "exact"),
    [(0.5, 1.0, (0.75 + 1 + 0.75 / 0.25) / 3), (0.2, 1.0, (0.96 + 1 + 0.96 / 0.04) / 3)],
)
def test_a_low_bound_above_zero_gives_too_little_noise(lower, upper, exact):
    printed = range_of_squares(lower, lower)
    assert least_squares(lower, upper, printed) == pytest.approx(exact, abs=1e-9)
    assert least_squares(lower, upper, range_of_squares(lower, upper)) <= 1


def test_a_tenth_less_noise_on_squares_would_be_seen():
    assert least_squares(0.0, 1.0, 0.9) == pytest.approx(1 + (1 / 0.9 - 1) / 3, abs=1e-9)


def test_bounds_around_zero_are_treated_rightly():
    assert range_of_squares(-1.0, -1.0) == range_of_squares(-1.0, 1.0) == 1.0
    assert range_of_squares(-0.5, 2.0) == 4.0


def test_the_fitted_weight_alone_tells_as_much_as_one_likes():
    """(sum of x y + noise) / (sum of x^2), the latter 2 or 1: the farther out, the surer."""

    def density(total, squares):
        return lambda w: squares / 6 * np.exp(-np.abs(squares * w - total) / 3)

    for reach in (30.0, 300.0, 900.0):
        found = audit_density(density(2.0, 2.0), density(1.0, 1.0), (1.0, reach)).epsilon
        assert found == pytest.approx(reach / 3 - 1 / 3 - math.log(2), rel=0.02)


def test_the_functional_mechanism_has_noise_for_every_coefficient():
    squares = Quadratic(1.0, 1.0, 1.0, 2.0)  # x'x / 2 and x y, for |x|, |y| <= 1
    relation = Neighbours.REPLACE_ONE
    task = Task(HuberSquare(), 1000, 1, 1.0, 0.0, relation, quadratic=squares)
    scale = Functional(task).mechanism.scale
    rng, worst = np.random.default_rng(5), 0.0
    for _ in range(300):
        (x, y), (z, t) = rng.choice([-1.0, 0.0, 1.0, 0.5], (2, 2))
        moves = sorted([abs(x * y - z * t), abs(x * x - z * z) / 2])
        worst = max(worst, shown(moves, [scale, scale]))
    assert 0.6 < worst <= 1


# --- labels and seeds ---------------------------------------------------------------------------


def test_whoever_has_the_seed_has_the_labels(results):
    result = results["label-noise-with-a-fixed-seed"]
    assert result.found.epsilon == math.inf
    assert result.corrected.epsilon == pytest.approx(1.0, abs=1e-9)
    assert result.claim.claimed.unit == "label"


@pytest.mark.parametrize(("classes", "epsilon"), [(10, 1.0), (3, 0.2), (2, 2.0)])
def test_the_seeded_reports_have_the_right_law(classes, epsilon):
    """Only the coins are at fault: shares are within 7 standard errors, at fixed seeds."""
    count = 60_000
    keep = math.exp(epsilon) / (math.exp(epsilon) + classes - 1)
    for label in range(min(classes, 3)):
        reports = seeded_reports(np.full(count, label), classes, epsilon, seed=7 + label)
        seen = np.bincount(reports, minlength=classes) / count
        expected = np.full(classes, (1 - keep) / (classes - 1))
        expected[label] = keep
        assert len(seen) == classes
        assert np.abs(seen - expected).max() < 7 * 0.5 / math.sqrt(count)


def test_the_coins_of_a_seed_say_which_reports_are_true():
    """Computed without the labels: from reports of other labels, with the same seed."""
    labels = np.random.default_rng(1).integers(0, 10, 1_000)
    reports = seeded_reports(labels, 10, 1.0, seed=2019)
    replayed = [seeded_reports(np.full(1_000, k), 10, 1.0, seed=2019) for k in range(10)]
    true = np.all([told == k for k, told in enumerate(replayed)], axis=0)
    assert 0.17 < true.mean() < 0.3
    assert np.array_equal(reports[true], labels[true])


def test_the_audit_finds_nothing_in_a_label_that_does_not_move():
    labels = np.zeros(100, np.int64)
    same = (seeded_reports(labels, 10, 1.0, 2019) for _ in range(2))
    assert np.array_equal(*same)
    assert claim("label-noise-with-a-fixed-seed").audit().facts["likelier_on"] == "first"
