"""Each defence does what it says, with its constants."""

import math

import numpy as np
import pytest
import torch

from sfumato.attacks.gradients.defences import (
    Clipping,
    Dropout,
    GaussianNoise,
    LocalSteps,
    PrivateSteps,
    Pruning,
)


def gradient(size=40_000, seed=0):
    """One participant's, as a row."""
    numbers = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return {"a": numbers[: size // 4].reshape(1, -1, 2), "b": numbers[None, size // 4 :]}


def flat(parts):
    return torch.cat([part.flatten() for part in parts.values()])


def norm_of(parts):
    return flat(parts).double().norm()


def coins():
    return np.random.default_rng(7)


def test_clipping_keeps_the_direction():
    found = Clipping(3.0).on_updates(gradient(), None)
    assert float(norm_of(found)) == pytest.approx(3.0, rel=1e-5)
    assert torch.allclose(flat(found) * float(norm_of(gradient())) / 3, flat(gradient()), atol=1e-4)
    assert torch.equal(flat(Clipping(1e9).on_updates(gradient(), None)), flat(gradient()))


def test_noise_has_its_deviation():
    """Of 40,000 numbers the deviation is known to 0.35 %: a tenth too little would show."""
    noise = flat(GaussianNoise(0.5).on_updates(gradient(), coins())) - flat(gradient())
    assert float(noise.std()) == pytest.approx(0.5, rel=0.02)
    assert abs(float(noise.mean())) < 0.01


def test_private_noise_is_that_of_the_sum_over_the_batch():
    """z C / B, the same on every number."""
    private = PrivateSteps(clip=0.4, noise_multiplier=3.0)
    noise = flat(private.on_step(gradient(), 8, coins())) - flat(gradient())
    assert float(noise.std()) == pytest.approx(3.0 * 0.4 / 8, rel=0.02)
    assert private.event().noise_multiplier == 3.0


def test_examples_are_clipped_one_by_one():
    each = {"a": torch.tensor([[3.0, 0.0], [0.3, 0.0], [torch.nan, 1.0], [torch.inf, 1.0]])}
    each["b"] = torch.tensor([[4.0], [0.4], [1.0], [1.0]])
    found = PrivateSteps(1.0, 1.0).on_examples(each)
    rows = torch.cat([found["a"], found["b"]], dim=1)
    assert rows.tolist()[0] == pytest.approx([0.6, 0.0, 0.8])
    assert rows.tolist()[1] == pytest.approx([0.3, 0.0, 0.4])
    assert torch.all(rows[2:] == 0)


def test_every_participant_is_treated_by_herself():
    """As if she had come alone, but for the draws."""
    both = {n: torch.cat([gradient(seed=1)[n], 3 * gradient(seed=2)[n]]) for n in ("a", "b")}
    for defence in (Clipping(2.0), Clipping(300.0), Pruning(0.7)):
        found = defence.on_updates(both, None)
        for row, alone in enumerate(
            (gradient(seed=1), {n: 3 * p for n, p in gradient(seed=2).items()})
        ):
            wanted = defence.on_updates(alone, None)
            assert torch.allclose(found["a"][row], wanted["a"][0])
            assert torch.allclose(found["b"][row], wanted["b"][0])
    noise = GaussianNoise(1.0).on_updates({n: 0 * p for n, p in both.items()}, coins())
    assert abs(float(torch.corrcoef(noise["b"])[0, 1])) < 0.05


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_pruning_leaves_the_largest(share):
    before, after = flat(gradient(1000)), flat(Pruning(share).on_updates(gradient(1000), None))
    left = after != 0
    assert int(left.sum()) == 1000 - round(1000 * share)
    assert torch.equal(after[left], before[left])
    assert before[left].abs().min() > before[~left].abs().max()


def test_pruning_leaves_something():
    assert int((flat(Pruning(0.999).on_updates(gradient(8), None)) != 0).sum()) == 1
    one = {"a": torch.tensor([[2.0]])}
    assert Pruning(0.9).on_updates(one, None)["a"].tolist() == [[2.0]]


def test_masks_leave_out_their_share():
    model = torch.nn.Sequential(torch.nn.Linear(4, 2000), torch.nn.Tanh())
    masks = Dropout(0.3).masks(model, torch.zeros(5, 4), 3, coins())
    assert list(masks) == ["1"]
    assert masks["1"].shape == (3, 1, 2000)
    assert float((masks["1"] == 0).double().mean()) == pytest.approx(0.3, abs=0.02)
    assert float(masks["1"].mean()) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Clipping(0.0),
        lambda: Clipping(math.nan),
        lambda: GaussianNoise(-1.0),
        lambda: PrivateSteps(0.0, 1.0),
        lambda: PrivateSteps(1.0, 0.0),
        lambda: PrivateSteps(1.0, math.inf),
        lambda: Dropout(1.0),
        lambda: Pruning(1.5),
        lambda: LocalSteps(0),
        lambda: LocalSteps(1, rate=0.0),
        lambda: LocalSteps(1, batch=0),
    ],
)
def test_bad_parameters_are_refused(make):
    with pytest.raises(ValueError, match="must be"):
        make()


def test_defences_say_what_they_are():
    said = [LocalSteps(), LocalSteps(5), Clipping(2), GaussianNoise(0.1), Dropout(0.3)]
    said += [Pruning(0.99), PrivateSteps(1, 2)]
    assert [str(each) for each in said] == [
        "1 local step", "5 local steps", "clipped to 2", "noise 0.1", "dropout 30 %",
        "pruning 99 %", "DP-SGD, clip 1, noise multiplier 2",
    ]  # fmt: skip
