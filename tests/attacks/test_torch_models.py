"""Torch modules seen through NumPy: softmax and derivatives against other ways to have them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from torch import nn

from sfumato.attacks import torch_models
from sfumato.attacks.torch_models import (
    evaluating,
    input_gradients,
    probabilities,
    weight_gradients,
)


def network(*, dtype=torch.float32):
    """Convolution, normalisation, dropout: what differs between training and evaluation."""
    model = nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.Tanh(), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(12, 4),
    )  # fmt: skip
    model[1].running_mean.uniform_(-1, 1)
    model[1].running_var.uniform_(0.5, 2)
    return model.to(dtype)


def examples(count, seed=1):
    random = np.random.default_rng(seed)
    return random.normal(0, 1, (count, 2, 3, 3)), random.integers(0, 4, count)


@pytest.fixture(autouse=True)
def own_coins():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        yield


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(torch_models, "_BATCH", 4)
    monkeypatch.setattr(torch_models, "_GRADIENTS", 3)


# Probabilities.


@given(st.lists(st.floats(-300, 300, width=32), min_size=2, max_size=6))
def test_the_softmax_is_that_of_scipy_down_to_small_probabilities(logits):
    found = probabilities(nn.Identity(), np.array([logits]))
    assert found.dtype == np.float64
    assert found[0] == pytest.approx(softmax(logits), rel=1e-12, abs=0)


def test_probabilities_smaller_than_float32_can_hold_survive():
    (row,) = probabilities(nn.Identity(), np.array([[0.0, 200.0, -400.0]]))
    assert row[[0, 2]] == pytest.approx(np.exp([-200.0, -600.0]), rel=1e-12)
    assert row[1] == 1


def test_probabilities_of_a_network_in_evaluation_mode():
    model, (inputs, _) = network(), examples(20)
    model.eval()
    with torch.no_grad():
        logits = model(torch.from_numpy(inputs.astype(np.float32))).numpy()
    model.train()
    assert probabilities(model, inputs) == pytest.approx(softmax(logits, axis=1), rel=1e-6)


# Modes, inputs and gradients of others are left as they were.


@pytest.mark.parametrize("modes", [(True, True), (False, False), (True, False), (False, True)])
def test_every_part_is_left_in_its_mode(modes):
    """A part may be in another mode than the whole: a frozen BatchNorm, a dropout that stays."""
    model, (inputs, labels) = network(), examples(3)
    model.train(modes[0])
    model[1].train(modes[1])
    before = [part.training for part in model.modules()]
    seen = []
    model.register_forward_pre_hook(
        lambda whole, _: seen.append([part.training for part in whole.modules()])
    )
    probabilities(model, inputs)
    input_gradients(model, inputs, labels)
    weight_gradients(model, inputs, labels)
    assert [part.training for part in model.modules()] == before
    assert len(seen) >= 3
    assert not any(any(one) for one in seen)
    with pytest.raises(RuntimeError, match=r"shape|channels"):
        probabilities(model, inputs[:, :1])
    assert [part.training for part in model.modules()] == before


def test_evaluating_gives_the_device_and_needs_no_parameters():
    with evaluating(network()) as device:
        assert device == torch.device("cpu")
    with evaluating(nn.Identity()) as device:
        assert device == torch.device("cpu")


def test_running_statistics_and_gradients_are_not_touched():
    model, (inputs, labels) = network().train(), examples(7)
    mean, seen = model[1].running_mean.clone(), model[1].num_batches_tracked.clone()
    probabilities(model, inputs)
    input_gradients(model, inputs, labels)
    weight_gradients(model, inputs, labels)
    assert torch.equal(model[1].running_mean, mean)
    assert torch.equal(model[1].num_batches_tracked, seen)
    assert all(weight.grad is None and weight.requires_grad for weight in model.parameters())


def test_a_module_that_works_in_place_does_not_change_the_inputs():
    plain, hasty = (nn.Sequential(nn.ReLU(inplace=now), nn.Linear(3, 2)) for now in (False, True))
    hasty.load_state_dict(plain.state_dict())
    inputs = np.random.default_rng(1).normal(0, 1, (5, 3)).astype(np.float32)
    inputs.setflags(write=False)
    labels, before = np.array([0, 1, 0, 1, 0]), inputs.copy()
    labels.setflags(write=False)
    for ask in (probabilities, input_gradients, weight_gradients):
        arguments = (inputs,) if ask is probabilities else (inputs, labels)
        assert np.array_equal(ask(hasty, *arguments), ask(plain, *arguments))
    assert np.array_equal(inputs, before)


def test_gradients_are_had_where_they_are_switched_off():
    model, (inputs, labels) = network(), examples(3)
    expected = input_gradients(model, inputs, labels), weight_gradients(model, inputs, labels)
    with torch.no_grad():
        found = input_gradients(model, inputs, labels), weight_gradients(model, inputs, labels)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)
    for weight in model.parameters():
        weight.requires_grad_(False)
    assert np.array_equal(input_gradients(model, inputs, labels), expected[0])
    assert np.array_equal(weight_gradients(model, inputs, labels), expected[1])


# Derivatives.


def test_input_gradients_are_finite_differences_of_log_probabilities():
    model, (inputs, labels) = network(dtype=torch.float64), examples(3)
    step, found = 1e-5, input_gradients(model, inputs, labels)
    assert found.shape == inputs.shape
    assert found.dtype == np.float64
    for place in np.ndindex(*inputs.shape[1:]):
        moved = np.zeros(inputs.shape)
        moved[(slice(None), *place)] = step
        both = [
            np.log(probabilities(model, inputs + sign * moved)[np.arange(3), labels])
            for sign in (1, -1)
        ]
        expected = (both[0] - both[1]) / (2 * step)
        assert found[(slice(None), *place)] == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_input_gradients_of_a_softmax_regression_in_closed_form():
    layer, random = nn.Linear(5, 3).double(), np.random.default_rng(1)
    inputs, classes = random.normal(0, 1, (9, 5)), random.integers(0, 3, 9)
    weights, intercepts = (part.detach().numpy() for part in layer.parameters())
    p = softmax(inputs @ weights.T + intercepts, axis=1)
    expected = weights[classes] - p @ weights
    assert input_gradients(layer, inputs, classes) == pytest.approx(expected, rel=1e-9)


def one_by_one(model, inputs, labels):
    model.eval()
    rows = []
    for one, label in zip(inputs, labels, strict=True):
        model.zero_grad()
        given = torch.from_numpy(one[None]).to(next(model.parameters()))
        nn.functional.cross_entropy(model(given), torch.tensor([label])).backward()
        rows.append(torch.cat([weight.grad.flatten() for weight in model.parameters()]).numpy())
    return np.stack(rows)


def test_weight_gradients_are_those_of_each_example_by_itself(small_batches):
    model, (inputs, labels) = network(), examples(10)
    found = weight_gradients(model, inputs, labels)
    expected = one_by_one(model, inputs, labels)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert np.abs(expected).max() > 0.1


def test_weight_gradients_add_up_to_that_of_the_batch():
    model, (inputs, labels) = network(), examples(300)
    found = weight_gradients(model, inputs, labels)  # more than fit at once
    model.eval()
    logits = model(torch.from_numpy(inputs.astype(np.float32)))
    loss = nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="sum")
    whole = torch.autograd.grad(loss, list(model.parameters()))
    expected = torch.cat([part.flatten() for part in whole]).numpy()
    assert found.sum(axis=0) == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_weight_gradients_of_a_softmax_regression_in_closed_form():
    layer, random = nn.Linear(5, 3), np.random.default_rng(1)
    inputs, labels = random.normal(0, 1, (9, 5)), random.integers(0, 3, 9)
    weights, intercepts = (part.detach().double().numpy() for part in layer.parameters())
    errors = np.exp(log_softmax(inputs @ weights.T + intercepts, axis=1)) - np.eye(3)[labels]
    by_weights = (errors[:, :, None] * inputs[:, None, :]).reshape(9, -1)
    expected = np.concatenate([by_weights, errors], axis=1)
    assert weight_gradients(layer, inputs, labels) == pytest.approx(expected, rel=1e-4, abs=1e-6)


# Sizes.


@pytest.mark.parametrize("count", [1, 3, 4, 5, 11])
def test_batches_do_not_matter(small_batches, monkeypatch, count):
    model, (inputs, labels) = network(), examples(count)
    sizes = []
    model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
    found = [probabilities(model, inputs), input_gradients(model, inputs, labels)]
    assert max(sizes) <= 4
    assert sum(sizes) == 2 * count
    found.append(weight_gradients(model, inputs, labels))
    monkeypatch.undo()
    expected = [
        probabilities(model, inputs),
        input_gradients(model, inputs, labels),
        weight_gradients(model, inputs, labels),
    ]
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-6)


def test_more_examples_than_a_batch_holds():
    inputs = np.random.default_rng(1).normal(0, 1, (2500, 3))
    found = probabilities(nn.Identity(), inputs)
    assert found == pytest.approx(softmax(inputs.astype(np.float32), axis=1), rel=1e-6)
    slopes = input_gradients(nn.Identity(), inputs, np.arange(2500) % 3)
    assert slopes == pytest.approx(np.eye(3)[np.arange(2500) % 3] - found, abs=1e-6)


def test_nothing_asked_has_no_rows_but_all_columns():
    class Viewed(nn.Sequential):
        """What cannot be done with no examples at all: view(0, -1)."""

        def forward(self, inputs):
            return super().forward(inputs.view(len(inputs), -1))

    model, none = Viewed(nn.Linear(6, 4)), np.zeros((0, 2, 3))
    assert probabilities(model, none).shape == (0, 4)
    assert input_gradients(model, none, np.zeros(0)).shape == (0, 2, 3)
    found = weight_gradients(model, none, np.zeros(0))
    assert (found.shape, found.dtype) == ((0, 28), np.float32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_modules_of_other_types_are_asked_in_theirs(dtype):
    model, random = nn.Linear(4, 3).to(dtype), np.random.default_rng(1)
    inputs, labels = random.normal(0, 1, (6, 4)), random.integers(0, 3, 6)
    weights, intercepts = (part.detach().double().numpy() for part in model.parameters())
    exact = softmax(inputs @ weights.T + intercepts, axis=1)
    rounding = 1e-14 if dtype == torch.float64 else 0.02
    assert probabilities(model, inputs) == pytest.approx(exact, abs=rounding)
    assert input_gradients(model, inputs, labels).dtype == np.float64
    assert weight_gradients(model, inputs, labels).dtype == np.float32


def test_inputs_of_whole_numbers_and_of_odd_order():
    layer = nn.Linear(3, 2)
    whole = np.arange(12).reshape(4, 3)
    assert np.array_equal(probabilities(layer, whole), probabilities(layer, whole.astype(float)))
    turned = np.asfortranarray(whole)[::-1]
    assert np.array_equal(probabilities(layer, turned)[::-1], probabilities(layer, whole))


# Refusals.


def test_outputs_that_are_no_logits_are_refused():
    """The softmax of a single logit is 1, whatever it is."""
    for model in (nn.Linear(3, 1), nn.Flatten(0)):
        with pytest.raises(ValueError, match="a module's output must be a row of logits"):
            probabilities(model, np.zeros((2, 3)))
        with pytest.raises(ValueError, match="a module's output must be a row of logits"):
            input_gradients(model, np.zeros((2, 3)), np.zeros(2))
    with pytest.raises(ValueError, match="a module's output must be a row of logits"):
        weight_gradients(nn.Linear(3, 1), np.zeros((2, 3)), np.zeros(2))


@pytest.mark.parametrize("ask", [input_gradients, weight_gradients])
def test_labels_that_do_not_fit_are_refused(ask):
    """Torch passes over a label of -100 without a word."""
    model = nn.Linear(3, 2)
    for labels in ([0, 2], [-100, 1]):
        with pytest.raises(ValueError, match="labels must be classes from 0 to 1"):
            ask(model, np.zeros((2, 3)), np.array(labels))
    for labels in ([0], [0, 1, 0]):
        with pytest.raises(ValueError, match="labels must be one for each of 2 inputs"):
            ask(model, np.zeros((2, 3)), np.array(labels))
