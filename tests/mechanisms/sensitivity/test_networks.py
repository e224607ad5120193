"""Two networks from lectures: exact norms, valid bounds, and printed ones that fail."""

import itertools
import math

import numpy as np
import pytest

from sfumato.core import Neighbours, Norm, Sensitivity
from sfumato.mechanisms.sensitivity import (
    Activation,
    Ball,
    Box,
    Interval,
    NetworkExpansion,
    PrintedTwoLayerGradient,
    Product,
    TwoLayerGradient,
    falsify,
    largest_found,
    network_bound,
    printed_network_bound,
    printed_two_layer_bound,
    two_layer_bound,
)

REP = Neighbours.REPLACE_ONE
UNCLIPPED = 1e12


def pairs(width: int) -> Product:
    return Product((Ball(1.0, width), Interval(-1, 1)))


def random_network(activation: str, hidden: int = 4, width: int = 6) -> TwoLayerGradient:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((hidden, width)), rng.standard_normal(hidden)
    return TwoLayerGradient(*weights, clip=UNCLIPPED, activation=Activation(activation))


def flat_network(hidden: int, width: int, activation: str, weight: float = 1.0):
    """W = 0 and a of both signs, so that the output is 0 and the residual is -y."""
    signs = np.where(np.arange(hidden) % 2, weight, -weight)
    return TwoLayerGradient(
        np.zeros((hidden, width)), signs, clip=UNCLIPPED, activation=Activation(activation)
    )


# The two-layer network.


@pytest.mark.parametrize("activation", list(Activation))
def test_the_gradient_is_the_derivative_of_the_loss(activation: str) -> None:
    network = random_network(activation)
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(6), 0.7

    def loss(parameters: np.ndarray) -> float:
        a, w = parameters[:4], parameters[4:].reshape(4, 6)
        moved = TwoLayerGradient(w, a, UNCLIPPED, Activation(activation))
        return moved.forward((x, y))[1] ** 2

    at = np.concatenate((network.output_weights, np.ravel(network.hidden_weights)))
    steps = 1e-6 * np.eye(len(at))
    numeric = [(loss(at + step) - loss(at - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(network.record_gradient((x, y)), numeric, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("activation", list(Activation))
def test_the_norm_formula_is_exact(activation: str) -> None:
    network = random_network(activation)
    rng = np.random.default_rng(2)
    for _ in range(50):
        record = rng.standard_normal(6), float(rng.standard_normal())
        exact = np.abs(network.record_gradient(record)).sum()
        assert network.record_norm(record) == pytest.approx(exact, rel=1e-12)


def test_clipping_leaves_short_gradients_and_shortens_long_ones() -> None:
    weights = [[1.0, -0.5], [0.3, 0.2]], [1.0, -2.0]
    record = ((0.6, 0.8), 0.9)
    free = TwoLayerGradient(*weights, clip=UNCLIPPED)
    norm = free.record_norm(record)
    np.testing.assert_array_equal(
        TwoLayerGradient(*weights, clip=2 * norm)([record]), free.record_gradient(record)
    )
    short = TwoLayerGradient(*weights, clip=norm / 10)([record])
    assert np.abs(short).sum() == pytest.approx(norm / 10)
    np.testing.assert_allclose(short, free.record_gradient(record) / 10)


def test_the_figure_of_the_notes_is_the_gradient_in_w_alone() -> None:
    """56,000 is 2 m sqrt(d), without the m numbers of the gradient in a."""
    weights = two_layer_bound(1000, 784, activation_bound=0)
    assert weights.bound == 56_000
    assert math.sqrt(2) * weights.bound == pytest.approx(79_196, abs=0.5)
    assert two_layer_bound(1000, 784).bound == 58_000
    assert two_layer_bound(1000, 784, REP).bound == 116_000


def test_the_bound_grows_as_m_times_the_root_of_d() -> None:
    bound = two_layer_bound(100, 10_000).bound
    assert two_layer_bound(300, 10_000).bound == pytest.approx(3 * bound)
    assert two_layer_bound(100, 40_000).bound == pytest.approx(2 * bound, rel=0.01)
    scaled = two_layer_bound(100, 10_000, weight_bound=1 / 100, activation_bound=0).bound
    assert scaled == pytest.approx(2 * math.sqrt(10_000))  # with a_j = 1/m: no m at all


@pytest.mark.parametrize("relation", list(Neighbours))
@pytest.mark.parametrize("activation", ["sigmoid", "tanh"])
def test_the_worst_case_bound_holds_without_a_clip(activation: str, relation: Neighbours) -> None:
    """With W = 0 and tanh only the first block vanishes, and the second is attained."""
    network = flat_network(6, 9, activation)
    slope, fired = {"sigmoid": (0.25, 0.5), "tanh": (1.0, 0.0)}[activation]
    claim = two_layer_bound(6, 9, relation, activation_bound=fired, lipschitz=slope)
    assert falsify(network, pairs(9), claim, budget=200) is None
    found = largest_found(network, pairs(9), claim, budget=1000)
    assert found.ratio == pytest.approx(1.0, rel=1e-6)


def test_a_residual_that_is_only_assumed_to_be_small_is_found_out() -> None:
    """Bounded weights do not bound the residual: six units of weight 1 give r up to 4."""
    network = TwoLayerGradient(np.zeros((6, 9)), np.ones(6), clip=UNCLIPPED)
    assumed = two_layer_bound(6, 9, lipschitz=0.25)
    assert falsify(network, pairs(9), assumed) is not None
    honest = two_layer_bound(6, 9, lipschitz=0.25, residual_bound=6 * 1 * 1 + 1)
    assert falsify(network, pairs(9), honest, budget=500) is None


def test_seed_003_printed_bound_is_refuted() -> None:
    """Equation (4.10): one of two records, and no 2 from the square; a factor of nearly 4."""
    network = flat_network(6, 400, "tanh")
    printed = Sensitivity(
        printed_two_layer_bound(6, 400), Norm.L1, REP, dimension=network.dimension
    )
    witness = falsify(network, pairs(400), printed, budget=400)
    assert witness is not None
    assert largest_found(network, pairs(400), printed, budget=400).ratio > 3
    assert falsify(network, pairs(400), two_layer_bound(6, 400, REP), budget=200) is None


@pytest.mark.parametrize(("weight", "factor"), [(1.0, 2.0), (3.0, 6.0)])
def test_seed_003_printed_norm_does_not_clip(weight: float, factor: float) -> None:
    """The missing 2, then the missing a_j besides: 'clipped to 1' is 2, is 6."""
    network = flat_network(4, 9, "tanh", weight)
    correct = TwoLayerGradient(
        network.hidden_weights, network.output_weights, clip=1.0, activation=Activation.TANH
    )
    claim = correct.sensitivity("add-remove")
    assert falsify(PrintedTwoLayerGradient(correct), pairs(9), claim) is not None
    found = largest_found(PrintedTwoLayerGradient(correct), pairs(9), claim, budget=400)
    assert found.ratio == pytest.approx(factor, rel=1e-6)
    assert falsify(correct, pairs(9), claim, budget=200) is None


@pytest.mark.parametrize("arguments", [(0, 5), (5, 0), (5, 5, "sideways")])
def test_bad_two_layer_bounds_are_errors(arguments) -> None:
    with pytest.raises(ValueError, match="must be"):
        two_layer_bound(*arguments)


@pytest.mark.parametrize("name", ["residual_bound", "weight_bound", "lipschitz", "radius"])
def test_two_layer_bounds_need_finite_public_bounds(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        two_layer_bound(5, 5, **{name: math.inf})


# The quadratic expansion.


@pytest.mark.parametrize(
    ("widths", "value"), [((10, 10), 15.15), ((10, 10, 10), 43.0), ((300, 10), 454.5)]
)
def test_seed_001_theorem_as_printed(widths: tuple[int, ...], value: float) -> None:
    assert printed_network_bound(widths) == pytest.approx(value)


@pytest.mark.parametrize(("inputs", "value"), [(10, 277.8125), (784, 15395.0)])
def test_the_valid_bound(inputs: int, value: float) -> None:
    assert network_bound((10, 10), inputs).bound == pytest.approx(value)
    assert network_bound((10, 10), inputs, "add-remove").bound == pytest.approx(value / 2)
    assert network_bound((10, 10), inputs).dimension == 2 * (10 * inputs + 100)


@pytest.mark.parametrize("widths", [(3,), (4, 2), (5, 3, 2), (2, 3, 4, 1)])
@pytest.mark.parametrize("relation", list(Neighbours))
def test_the_recursion_with_weights_of_one_is_the_bound_by_widths(
    widths: tuple[int, ...], relation: Neighbours
) -> None:
    sizes = (7, *widths)
    shapes = [(after, before) for before, after in itertools.pairwise(sizes)]
    declared = NetworkExpansion([np.ones(s) for s in shapes]).sensitivity(relation)
    stated = network_bound(widths, 7, relation)
    assert declared.bound == pytest.approx(stated.bound)
    assert declared.dimension == stated.dimension
    smaller = NetworkExpansion([np.full(s, 0.5) for s in shapes]).sensitivity(relation)
    assert smaller.bound <= stated.bound


def counterexample() -> NetworkExpansion:
    return NetworkExpansion([np.ones((10, 10)), np.full((10, 10), math.log(2) / 10)])


def test_the_counterexample_inside_the_theorems_assumptions() -> None:
    ones = np.ones(10)
    network = counterexample()
    moved = np.abs(network([(ones, 0 * ones)]) - network([(ones, ones)])).sum()
    assert moved == pytest.approx(29.63, abs=0.005)
    assert printed_network_bound((10, 10)) < moved < network_bound((10, 10), 10).bound


def test_the_search_finds_the_counterexample_by_itself() -> None:
    network = counterexample()
    domain = Product((Box(0, 1, 10), Box(0, 1, 10)))
    printed = Sensitivity(printed_network_bound((10, 10)), Norm.L1, REP, dimension=400)
    witness = falsify(network, domain, printed, budget=400)
    assert witness is not None
    assert falsify(network, domain, network.sensitivity(REP), budget=400) is None


def test_wider_inputs_make_it_worse() -> None:
    """With 784 inputs, hidden units at rest and weights of 0.3: 928 against 15.15."""
    network = NetworkExpansion([np.zeros((10, 784)), np.full((10, 10), 0.3)])
    zero, one = np.zeros(10), np.ones(10)
    moved = np.abs(network([(np.ones(784), zero)]) - network([(np.ones(784), one)])).sum()
    assert moved == pytest.approx(928.6, abs=0.05)
    assert moved < network.sensitivity(REP).bound < network_bound((10, 10), 784).bound


def test_g_is_the_gradient_of_half_the_squared_error() -> None:
    rng = np.random.default_rng(4)
    weights = [rng.uniform(0, 1, (3, 4)), rng.uniform(0, 1, (2, 3))]
    x, t = rng.uniform(0, 1, 4), rng.uniform(0, 1, 2)

    def error(parameters: np.ndarray) -> float:
        z = x
        for w in (parameters[:12].reshape(3, 4), parameters[12:].reshape(2, 3)):
            z = 1 / (1 + np.exp(-w @ z))
        return 0.5 * float(np.square(z - t).sum())

    at = np.concatenate([w.ravel() for w in weights])
    small, large = 1e-6 * np.eye(18), 1e-3 * np.eye(18)
    coefficients = NetworkExpansion(weights).record_coefficients((x, t))
    gradient = [(error(at + s) - error(at - s)) / 2e-6 for s in small]
    np.testing.assert_allclose(coefficients[:18], gradient, rtol=1e-5, atol=1e-9)
    # LeCun's diagonal is exact at the last layer.
    second = [(error(at + s) - 2 * error(at) + error(at - s)) / 1e-6 for s in large]
    np.testing.assert_allclose(coefficients[18 + 12 :], second[12:], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("record", [None, (), ((0,) * 3,), ((0,) * 2, (0,) * 2), "ab", 1.0])
def test_records_that_are_no_pairs_contribute_nothing(record: object) -> None:
    network = NetworkExpansion([np.ones((2, 3)), np.ones((2, 2))])
    assert not network([record]).any()


@pytest.mark.parametrize(
    "make",
    [
        lambda: NetworkExpansion([]),
        lambda: NetworkExpansion([np.ones((2, 3)), np.ones((2, 3))]),
        lambda: NetworkExpansion([[[math.inf]]]),
        lambda: NetworkExpansion([[[1e200]]]),
        lambda: NetworkExpansion([[[1e90]], [[1e90]], [[1e90]], [[1e90]], [[1e90]]]),
        lambda: network_bound((), 3),
        lambda: network_bound((3, 0), 3),
        lambda: network_bound((3,), 0),
        lambda: printed_network_bound(()),
    ],
)
def test_bad_networks_are_errors(make) -> None:
    with pytest.raises(ValueError, match="must"):
        make()
