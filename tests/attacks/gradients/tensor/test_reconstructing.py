"""The attack: exact where moments are exact, and as good as derived where they are sample means."""

import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.special import roots_hermitenorm

from sfumato.attacks.gradients.tensor.activations import (
    CUBIC,
    RELU,
    SIGMOID,
    SOFTPLUS,
    TANH,
    Activation,
)
from sfumato.attacks.gradients.tensor.network import unit_inputs
from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
from sfumato.attacks.gradients.tensor.scoring import match_inputs


def everywhere(dimension, each=40):
    """Nodes and masses with which means over hidden units are integrals over N(0, I)."""
    points, masses = roots_hermitenorm(each)
    grid = np.stack(np.meshgrid(*[points] * dimension, indexing="ij"), -1).reshape(-1, dimension)
    products = np.prod(np.meshgrid(*[masses / masses.sum()] * dimension, indexing="ij"), axis=0)
    return grid, products.ravel() * len(grid)


@pytest.mark.parametrize("residuals", [[1.0, 0.6], [-1.0, 0.6], [-1.0, -0.6]], ids=str)
@pytest.mark.parametrize("activation", [CUBIC, TANH, SIGMOID, SOFTPLUS], ids=lambda one: one.name)
def test_exact_moments_give_exact_inputs_and_residuals(activation, residuals):
    """Infinitely many hidden units: no error is left, for any signs of residuals."""
    weights, masses = everywhere(3)
    inputs = unit_inputs(2, 3, generator=np.random.default_rng(5))
    gradient = masses * (activation.value(weights @ inputs.T) @ residuals)
    found = reconstruct_by_tensor(
        gradient, weights, activation, 2, generator=np.random.default_rng(0),
        labels=-np.asarray(residuals), control_variate=False,
    )  # fmt: skip
    match = match_inputs(found, inputs)
    assert match.error < 1e-4
    assert match.signs_right == 1
    np.testing.assert_allclose(found.residuals[match.order], residuals, atol=1e-4)
    assert found.noise_ratio < 1e-5
    assert found.misfit < 1e-4


@pytest.mark.parametrize(
    ("activation", "orders", "limit"),
    [
        (CUBIC, (2, 3), 0.10),
        (TANH, (3, 3), 0.08),
        (SIGMOID, (3, 3), 0.09),
        (SOFTPLUS, (2, 4), 0.08),
        (RELU, (2, 4), 0.06),
    ],
    ids=lambda one: getattr(one, "name", None),
)
def test_every_activation(activation, orders, limit, draw, attack):
    errors = []
    for seed in range(4):
        case = draw(activation, 15, 40_000, 2, seed, labels=[1, 1])
        result = attack(case, labels=case.labels)
        found, match = result.found, result.match
        assert (found.subspace_order, found.tensor_order) == orders
        assert found.signs == ("labels" if activation.odd else "moments")
        assert match.signs_right == 1
        np.testing.assert_allclose(found.residuals, -1, atol=0.25)
        assert found.noise_ratio < 0.5
        errors.append(match.error)
    assert np.mean(errors) < limit


def test_one_input_and_as_many_as_dimensions(draw, attack):
    assert attack(draw(CUBIC, 10, 20_000, 1, seed=0)).match.error < 0.15
    full = attack(draw(CUBIC, 3, 40_000, 3, seed=1))
    assert full.found.noise_ratio == 0
    assert full.match.error < 0.25


def test_directions_are_right_for_any_length(draw, attack):
    case = draw(CUBIC, 15, 40_000, 2, seed=0)
    long = case.network.gradient(case.inputs * [[2.0], [1.5]], case.labels)
    assert attack(case, long).match.error < 0.2


def test_scale_does_not_matter(draw, attack):
    case = draw(CUBIC, 10, 5000, 2, seed=0)
    seen = case.network.gradient(case.inputs, case.labels)
    one, other = attack(case, seen).found, attack(case, 1e-6 * seen).found
    np.testing.assert_allclose(one.inputs, other.inputs, atol=1e-8)
    np.testing.assert_allclose(one.residuals, 1e6 * other.residuals, rtol=1e-6)


# --- the figures ----------------------------------------------------------------------------------


def test_control_variate_and_order_three_are_what_makes_tanh_work(mean_error):
    """0.129 with both steps; 0.30 without the control variate; nothing is found with neither."""

    def error(**options):
        ones = [1.0, 1.0]
        return mean_error(TANH, 50, 20_000, 2, seeds=6, given=ones, labels=ones, **options)

    assert error() == pytest.approx(0.129, rel=0.1)
    assert error(control_variate=False) == pytest.approx(0.30, rel=0.1)
    assert error(control_variate=False, subspace_order=2) > 0.9


@pytest.mark.parametrize("batch", [2, 4, 8])
def test_signs_are_right(batch, draw, attack):
    for seed in range(3):
        case = draw(CUBIC, 20, 40_000, batch, seed)
        assert attack(case).match.signs_right == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [10_000, 40_000])
@pytest.mark.parametrize("dimension", [25, 50, 100])
def test_error_by_root_of_dimension_by_width(dimension, width, mean_error):
    """B = 3: 3.92 to 4.09 where it was derived; the leading term is 4.12 sqrt(1 - 3/d)."""
    error = mean_error(CUBIC, dimension, width, 3, seeds=20)
    scaled = error / np.sqrt(dimension / width)
    assert 3.5 < scaled < 4.5
    leading = np.sqrt(17 * (1 - 3 / dimension))
    assert 0.95 < scaled / leading < 1.13


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "wanted"), [(2, 0.091), (4, 0.109), (8, 0.132)])
def test_error_by_batch(batch, wanted, draw, attack):
    results = [attack(draw(CUBIC, 50, 80_000, batch, seed)).match for seed in range(12)]
    assert np.mean([one.error for one in results]) == pytest.approx(wanted, rel=0.09)
    assert all(one.signs_right == 1 for one in results)


# --- signs of odd activations ---------------------------------------------------------------------


def test_labels_of_one_sign_tell_signs(draw, attack):
    for sign in (1, -1):
        case = draw(TANH, 20, 40_000, 3, seed=1, labels=[sign] * 3)
        result = attack(case, labels=case.labels)
        assert (result.found.signs, result.match.signs_right) == ("labels", 1)
        np.testing.assert_allclose(result.found.residuals, -sign, atol=0.3)


def test_labels_of_different_sizes_tell_signs(draw, attack):
    case = draw(TANH, 20, 40_000, 3, seed=2, labels=[2.0, -1.0, 0.5])
    result = attack(case, labels=case.labels[::-1])
    assert (result.found.signs, result.match.signs_right) == ("labels", 1)


@pytest.mark.parametrize("labels", [None, [1.0, -1.0]])
def test_otherwise_nobody_can_tell(labels, draw, attack):
    case = draw(TANH, 20, 40_000, 2, seed=3, labels=[1.0, -1.0])
    result = attack(case, labels=labels)
    assert result.found.signs == "unknown"
    assert (result.found.residuals > 0).all()
    assert result.match.error_up_to_sign < 0.15


# --- where it runs --------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", [CUBIC, TANH, RELU], ids=lambda one: one.name)
def test_torch_finds_the_same(activation, draw, attack):
    torch = pytest.importorskip("torch")
    case = draw(activation, 10, 5000, 2, seed=0)
    here, there = attack(case).found, attack(case, device="cpu").found
    assert match_inputs(there, here.inputs).error_up_to_sign < 1e-6
    seen = torch.as_tensor(case.network.gradient(case.inputs, case.labels))
    hidden = torch.as_tensor(case.network.hidden)
    again = attack(case, seen, hidden, device="cpu").found
    assert match_inputs(again, here.inputs).error_up_to_sign < 1e-6


def test_numpy_does_without_torch():
    code = (
        "import sys, numpy as np\n"
        "from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs\n"
        "from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor\n"
        "random = np.random.default_rng(0)\n"
        "network = TwoLayerNetwork.draw(5, 2000, generator=random)\n"
        "seen = network.gradient(unit_inputs(1, 5, generator=random), [1.0])\n"
        "reconstruct_by_tensor(seen, network.hidden, network.activation, 1, generator=random)\n"
        "print('torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False"]


# --- records and errors ---------------------------------------------------------------------------


def test_result_says_itself(draw, attack):
    found = attack(draw(CUBIC, 10, 20_000, 2, seed=0)).found
    assert str(found).startswith("tensor reconstruction of 2 inputs of 10 numbers from 20,000 ")
    assert "orders 2 and 3, signs by moments" in str(found)
    record = json.loads(json.dumps(found.to_dict()))
    assert record["channel"] == "curator"
    assert (record["batch"], record["dimension"], record["width"]) == (2, 10, 20_000)
    assert "inputs" not in record
    assert "tensor reconstruction" in found._repr_html_()


GOOD = np.random.default_rng(0).normal(size=(30, 4))
LINEAR = Activation.of("linear", lambda z: z, np.ones_like)
SQUARE = Activation.of("square", lambda z: z**2, lambda z: 2 * z)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"batch": 0}, r"batch must be .* got 0"),
        ({"batch": 5}, r"batch must be at most d = 4, got 5"),
        ({"gradient": np.ones(29)}, r"gradient must be one number for each of 30 .* got \(29,\)"),
        ({"gradient": np.ones(30)}, r"gradient must be finite numbers, not all the same"),
        ({"gradient": np.full(30, np.nan)}, r"gradient must be finite numbers"),
        ({"hidden": GOOD[:5]}, r"hidden must be a row of d weights .* got \(5, 4\)"),
        ({"subspace_order": 4}, r"subspace_order must be 2 or 3, got 4"),
        ({"trials": 0}, r"trials must be .* got 0"),
        ({"activation": LINEAR}, r"activation must be .* got 'linear'"),
        ({"activation": SQUARE}, r"activation must be .* got 'square'"),
        ({"activation": TANH, "labels": [1.0]}, r"labels must be 2 finite numbers, got \[1.0\]"),
    ],
)
def test_bad_parameters_are_told(change, told):
    given = {"gradient": GOOD[:, 0] ** 2, "hidden": GOOD, "activation": CUBIC, "batch": 2} | change
    with pytest.raises(ValueError, match=told):
        reconstruct_by_tensor(**given, generator=np.random.default_rng(0))
