"""The moving average of weights: the formula, and a model that is left as it was."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato.learning.dp_sgd.averaging import WeightAverage


def bits(model):
    """Bytes, so that NaN and -0 count too."""
    return {n: p.detach().view(torch.uint8).numpy().tobytes() for n, p in model.named_parameters()}


def walk(model, values):
    for value in values:
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(value)
        yield value


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.5, 0.9, 0.999]),
    st.booleans(),
)
def test_the_average_is_the_formula(values, decay, warmup):
    model = nn.Linear(2, 1).double()
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    average = WeightAverage(model, decay, warmup)
    expected = {n: t.numpy().copy() for n, t in start.items()}
    for t, value in enumerate(walk(model, values)):
        average.update()
        d = min(decay, (1 + t) / (10 + t)) if warmup else decay
        expected = {n: d * e + (1 - d) * value for n, e in expected.items()}
    with average.applied():
        for name, p in model.named_parameters():
            np.testing.assert_allclose(p.detach().numpy(), expected[name], rtol=1e-12, atol=1e-12)


def test_the_first_steps_weigh_as_in_the_paper():
    model = nn.Linear(1, 1, bias=False).double()
    average = WeightAverage(model, 0.9999)
    with torch.no_grad():
        model.weight.zero_()
    average.load_state(average.state() | {"average.weight": torch.ones(1, 1).double()})
    average.update()  # d_0 = 1/10
    assert average.state()["average.weight"].item() == pytest.approx(0.1, rel=1e-12)
    average.update()  # d_1 = 2/11
    assert average.state()["average.weight"].item() == pytest.approx(0.1 * 2 / 11, rel=1e-12)


def test_constant_weights_are_their_own_average():
    model = nn.Linear(50, 50)
    before = bits(model)
    average = WeightAverage(model, 0.99)
    for _ in range(20):
        average.update()
    with average.applied():
        assert bits(model) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("fails", [False, True])
def test_applying_leaves_the_model_as_it_was(dtype, fails):
    model = nn.Linear(3, 2).to(dtype)
    average = WeightAverage(model, 0.9)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[float("nan"), -0.0, 1e-40], [1, 2, 3]]))
    average.update()
    before = bits(model)
    places = [(p, p.data_ptr()) for p in model.parameters()]
    try:
        with average.applied() as same:
            assert same is model
            assert average.is_applied
            assert bits(model) != before
            with torch.no_grad():
                model.bias.fill_(7)
            if fails:
                raise KeyError
    except KeyError:
        assert fails
    assert bits(model) == before
    assert not average.is_applied
    for p, (parameter, place) in zip(model.parameters(), places, strict=True):
        assert p is parameter
        assert p.data_ptr() == place
        assert p.requires_grad
        assert p.grad is None


def test_a_failure_while_applying_restores_too(monkeypatch):
    model = nn.Linear(3, 2)
    average = WeightAverage(model, 0.9)
    before = bits(model)
    average._averages["bias"] = torch.zeros(5)  # does not fit: fails after the weight was changed
    average._averages["weight"].zero_()
    with pytest.raises(RuntimeError), average.applied():
        pass
    assert bits(model) == before


def test_bfloat16_is_averaged_in_float32():
    """In bfloat16 itself steps of a thousandth would be lost, and the average never move."""
    model = nn.Linear(1, 1, bias=False).bfloat16()
    average = WeightAverage(model, 0.999, warmup=False)
    average.load_state(average.state() | {"average.weight": torch.ones(1, 1)})
    with torch.no_grad():
        model.weight.fill_(2)
    for _ in range(1000):
        average.update()
    found = average.state()["average.weight"]
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(2 - 0.999**1000, rel=1e-3)


def test_only_trainable_parameters_are_kept_and_tied_ones_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].requires_grad_(False)
    model[2].weight = model[0].weight
    assert set(WeightAverage(model, 0.9).state()) == {
        "average.0.weight", "average.0.bias", "average.2.bias", "updates",
    }  # fmt: skip


def test_going_on_from_a_state_is_going_on():
    def trained(model, average, values):
        for _ in walk(model, values):
            average.update()
        return average

    torch.manual_seed(1)
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    whole = trained(one, WeightAverage(one, 0.9), [1, 2, 3, 4, 5])
    half = trained(two, WeightAverage(two, 0.9), [0])
    torch.manual_seed(1)
    first = nn.Linear(2, 2)
    half.load_state(trained(first, WeightAverage(first, 0.9), [1, 2]).state())
    trained(two, half, [3, 4, 5])
    assert half.updates == 5
    for name, tensor in whole.state().items():
        assert torch.equal(tensor, half.state()[name])


@pytest.mark.parametrize(
    "wrong",
    [
        {"updates": torch.tensor(1)},
        {
            "average.weight": torch.ones(3),
            "average.bias": torch.ones(1),
            "updates": torch.tensor(1),
        },
        {
            "average.weight": torch.ones(1, 2).double(),
            "average.bias": torch.ones(1),
            "updates": torch.tensor(1),
        },
    ],
)
def test_another_models_state_is_refused(wrong):
    average = WeightAverage(nn.Linear(2, 1), 0.9)
    before = {n: t.clone() for n, t in average.state().items()}
    with pytest.raises(ValueError, match="state"):
        average.load_state(wrong)
    assert all(torch.equal(t, average.state()[n]) for n, t in before.items())


def test_misuse_is_an_error():
    average = WeightAverage(nn.Linear(2, 1), 0.9)
    with average.applied():
        with pytest.raises(RuntimeError, match="update outside"):
            average.update()
        with pytest.raises(RuntimeError, match="nest"), average.applied():
            pass
    for decay in (1.0, -0.1, float("nan")):
        with pytest.raises(ValueError, match="decay"):
            WeightAverage(nn.Linear(2, 1), decay)
