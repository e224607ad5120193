"""Claims about noisy expansions, noisy inputs and noisy objectives: their laws, their constants."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.audit.claims import Kind, claim, run_claims
from sfumato.audit.claims.network_specimens import (
    clipped_sum,
    far_records,
    inverted_clip,
    largest_of_those_there,
    mean_relevance,
    objective,
    objective_bound,
    table_with,
    three_objectives,
    trained_weights,
)
from sfumato.audit.claims.networks import corner_law
from sfumato.audit.exact import audit_finite
from sfumato.audit.mechanism import audit_mechanism
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.adaptive_laplace import printed as adaptive
from sfumato.learning.autoencoder import printed as autoencoder
from sfumato.learning.functional import printed as functional
from sfumato.learning.relevance import explain
from sfumato.learning.relevance.private import scaled_relevance
from sfumato.mechanisms.sensitivity import network_bound, printed_network_bound

EXACT = {
    "clip-upside-down": (10.0, 1.0),
    "scale-of-those-who-are-there": (24.75, 1.0),
    "noise-by-topology": (1.95573, 0.10665),
    "noise-over-the-batch": (10.8, 0.075),
    "noise-shared-by-the-batch": (math.inf, 1.0),
    "relevance-of-a-trained-network": (499.5, 1.0),
    "epsilon-three-times": (2.1, 2.1),
}


@pytest.fixture(scope="module")
def results():
    """Of these alone."""
    return {result.claim.name: result for result in run_claims(EXACT)}


@pytest.mark.parametrize(("name", "figures"), EXACT.items())
def test_figures(name, figures, results):
    found, corrected = figures
    assert claim(name).kind is Kind.EXACT
    assert results[name].found.epsilon == pytest.approx(found, rel=1e-5)
    assert results[name].corrected.epsilon == pytest.approx(corrected, rel=1e-4)


def shown(first, second, scale):
    return audit_finite(*corner_law(first, second, scale)).epsilon


# --- the law ------------------------------------------------------------------------------------


def test_a_corner_shows_the_whole_distance():
    assert shown([0.0, 1.0, 5.0], [2.0, 0.5, 5.0], 2.0) == pytest.approx(1.25, abs=1e-9)
    assert shown([3.0], [3.0], 1.0) == 0.0
    assert shown([3.0], [3.1], 0.0) == math.inf
    assert shown([3.0], [3.0], 0.0) == 0.0


def test_a_corner_is_counted_as_often_as_computed():
    rng, first, second = np.random.default_rng(5), np.array([0.0, 1.0]), np.array([0.7, 0.4])
    (near, _), (far, _) = corner_law(first, second, 0.8)
    side = np.sign(first - second)
    for centre, exact in ((first, near), (second, far)):
        outputs = centre + rng.laplace(0, 0.8, (200_000, 2))
        counted = ((outputs - first) * side > 0).all(axis=1).mean()
        assert counted == pytest.approx(exact, abs=5 * math.sqrt(exact / 200_000))


def test_a_loss_too_large_for_doubles_is_rounded_down_and_not_up_to_infinity():
    assert 600 < shown([0.0], [1.0], 1e-4) < 700
    assert shown(np.zeros(900), np.ones(900), 0.1) <= 9_000


# --- the functional network ---------------------------------------------------------------------


@pytest.mark.parametrize("length", [0.0, 0.1, 0.5, 1.0, 100.0])
def test_the_clip_is_that_of_the_method_as_presented(length):
    vector = length * np.array([0.6, -0.8])
    assert inverted_clip(vector, 1.0) == pytest.approx(functional.inverted_clip(vector, 1.0))
    assert np.linalg.norm(inverted_clip(vector, 1.0)) == pytest.approx(
        0.0 if length == 0 else max(length, 1 / length)
    )


def test_the_right_clip_is_never_longer_than_it_says():
    rng, worst = np.random.default_rng(6), 0.0
    for _ in range(500):
        rows = rng.standard_normal((3, 2)) * 10 ** rng.uniform(-2, 2)
        other = rows.copy()
        other[1] = rng.standard_normal(2) * 10 ** rng.uniform(-2, 2)
        moved = np.abs(clipped_sum(rows, 1.5) - clipped_sum(other, 1.5)).sum()
        worst = max(worst, moved / 3.0)
    assert 0.95 < worst <= 1 + 1e-12


def test_both_clips_on_the_same_slopes():
    short = [np.array([s * 0.1]) for s in (1, -1)]
    first, second = (inverted_clip(slope, 1.0) for slope in short)
    assert shown(first, second, 0.2) == pytest.approx(100, rel=1e-9)
    first, second = (clipped_sum(slope[None], 1.0) for slope in short)
    assert shown(first, second, 2.0) == pytest.approx(0.1, rel=1e-9)


def test_the_scale_is_read_off_the_records():
    rows = np.array([[1.0, -3.0], [2.0, 0.5]])
    assert largest_of_those_there(rows) == 2 * (2 + 3)
    ours = functional.data_dependent_scale((rows, np.zeros_like(rows)))
    assert largest_of_those_there(rows) == ours


def test_the_farther_out_the_more_a_scale_tells(results):
    """(t - 1) / 4, by the two laws themselves, and without limit."""
    facts = results["scale-of-those-who-are-there"].found.facts
    assert (facts["first_scale"], facts["second_scale"]) == (2.0, 4.0)
    for point in (10.0, 100.0, 1000.0):
        loss = (point - 2) / facts["first_scale"] - (point - 3) / facts["second_scale"]
        assert loss == pytest.approx((point - 1) / 4)


def test_where_all_slopes_are_zero_there_is_no_noise():
    assert largest_of_those_there(np.zeros((2, 1))) == 0.0
    assert shown([0.0], [1.0], largest_of_those_there(np.zeros((2, 1)))) == math.inf


def test_two_records_are_twice_as_far_apart_as_the_theorem_allows():
    first, second = far_records()
    for ours, theirs in zip((first, second), functional.counterexample(), strict=True):
        assert ours.tolist() == theirs.tolist()
    apart = np.abs(first - second).sum()
    assert apart == pytest.approx(29.63, abs=0.005)
    assert printed_network_bound((10, 10)) == pytest.approx(15.15, abs=1e-9)
    assert network_bound((10, 10), 10).bound == 277.8125


# --- the adaptive Laplace mechanism -------------------------------------------------------------


def test_divided_noise_promises_what_the_formula_says(results):
    formula = adaptive.inputs_epsilon(0.075, lot=1800, sensitivity=9800, shares=784)
    assert results["noise-over-the-batch"].found.epsilon == pytest.approx(formula, rel=1e-9)


def test_divided_noise_is_caught_by_running_it_too():
    specimen, coins = adaptive.DividedNoise(1.0, lot=5), SeededCoins(1709)

    def draw(record, count):
        return specimen.perturb(np.tile(record, (count, 1)), coins=coins)

    promised = Guarantee(1.0, 0.0, Neighbours.REPLACE_ONE)
    pair = (np.zeros(2), np.ones(2))
    found = audit_mechanism(draw, [pair], claim=promised, samples=10_000, confidence=0.999)
    assert found.refuted
    assert found.epsilon < shown(*pair, 2 / 5) == pytest.approx(5.0, rel=1e-9)


def test_a_batch_with_one_draw_has_differences_without_noise():
    specimen = adaptive.SharedNoise(1.0)
    for x in (0.0, 1.0):
        told = specimen.perturb([[x, x], [0.5, 0.5]], coins=SeededCoins(3))
        assert (told[0] - told[1]).tolist() == [x - 0.5, x - 0.5]


@pytest.mark.parametrize(("last", "weights"), [((1.0, 0.0), [0, 1]), ((0.0, 1.0), [1, 0])])
def test_one_record_decides_which_input_matters(last, weights):
    inputs, labels = table_with(last, 1_000)
    found = trained_weights(inputs, labels)
    assert found == pytest.approx(weights, abs=1e-9)
    assert inputs @ found == pytest.approx(labels, abs=1e-9)  # it fits
    assert np.abs(found * inputs).max() <= 1 + 1e-9  # as the lemma asks
    expected = 0.999 * np.array(weights)
    assert mean_relevance(found, inputs, scaled=False) == pytest.approx(expected, abs=1e-9)


def test_relevance_is_what_propagation_gives():
    rng = np.random.default_rng(8)
    inputs, weights = rng.uniform(0, 1, (6, 2)), np.array([2.0, -0.7])
    layer = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weights)[None])
    found = explain(nn.Sequential(layer), torch.tensor(inputs), rule="z").values
    assert mean_relevance(weights, inputs, scaled=False) == pytest.approx(
        found.mean(0).numpy(), abs=1e-9
    )
    assert mean_relevance(weights, inputs, scaled=True) == pytest.approx(
        scaled_relevance(found).mean(0).numpy(), abs=1e-8
    )


@pytest.mark.parametrize("records", [10, 100, 1_000])
def test_relevance_of_a_trained_network_moves_by_two_for_everybody(records):
    tables = [table_with(last, records) for last in ((1.0, 0.0), (0.0, 1.0))]
    means = [mean_relevance(trained_weights(x, y), x, scaled=False) for x, y in tables]
    assert np.abs(means[0] - means[1]).sum() == pytest.approx(2 * (records - 1) / records)
    public = [mean_relevance(np.ones(2), x, scaled=True) for x, _ in tables]
    assert np.abs(public[0] - public[1]).sum() == pytest.approx(2 / records)


# --- the private auto-encoder -------------------------------------------------------------------


def test_the_objective_is_an_expansion_of_the_cross_entropy():
    """To second order around w = 0, by finite differences."""
    x, h, step = np.array([0.3]), np.array([0.6, 0.9]), 1e-3

    def loss(w):
        z = float(h @ w)
        return math.log1p(math.exp(z)) - x[0] * z

    rng = np.random.default_rng(9)
    coefficients = objective(x, h)
    for _ in range(5):
        w = step * rng.standard_normal(2)
        quadratic = coefficients[:2] @ w + w @ coefficients[2:].reshape(2, 2) @ w
        assert loss(w) - math.log(2) == pytest.approx(quadratic, abs=1e-11)


def test_the_bound_is_the_printed_one_and_valid():
    assert objective_bound(784, 25) == autoencoder.printed_bound(784, 25) == 142_100
    rng, worst = np.random.default_rng(10), 0.0
    for inputs, codes in ((1, 1), (1, 3), (3, 2), (2, 8)):
        for _ in range(300):
            rows = [(rng.integers(0, 2, inputs), rng.integers(0, 2, codes)) for _ in range(2)]
            first, second = (objective(x.astype(float), h.astype(float)) for x, h in rows)
            moved = np.abs(first - second).sum() / objective_bound(inputs, codes)
            worst = max(worst, moved)
    assert worst == pytest.approx(0.8)  # one input and one code: 1 of 1.25


def test_three_objectives_move_at_once():
    black, white = three_objectives(0.0), three_objectives(1.0)
    moved = [np.abs(one - other).sum() for one, other in zip(black, white, strict=True)]
    assert moved == pytest.approx([0.625, 1.0, 1.0], abs=1e-9)


@pytest.mark.parametrize("width", [1, 5, 25])
def test_at_any_width_half_of_each_epsilon_is_seen(width):
    """All inputs, codes and labels 0 against all 1: half of the printed bound, three times."""
    zeros, ones = np.zeros(width), np.ones(width)
    moved = np.abs(objective(zeros, zeros) - objective(ones, ones)).sum()
    assert 3 * moved / objective_bound(width, width) == pytest.approx(1.5)


def test_no_record_of_that_network_shows_more():
    """First codes p and q, second codes r and s of the two records: 2.1 at most, on a grid."""
    ends = np.linspace(0, 1, 6)
    worst = 0.0
    for p in ends:
        for q in ends:
            for r in (0.0, 0.5, 1.0):
                for s in (0.0, 0.5, 1.0):
                    rows = [(0.0, p, r), (1.0, q, s)]
                    parts = [
                        np.concatenate(
                            [
                                objective(np.array([x]), np.array([a])),
                                objective(np.array([a]), np.array([b])),
                                objective(np.array([x]), np.array([b])),
                            ]
                        )
                        for x, a, b in rows
                    ]
                    worst = max(worst, np.abs(parts[0] - parts[1]).sum() / 1.25)
    assert worst == pytest.approx(2.1)
