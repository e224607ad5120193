"""One network on targets: mixing, cropping, optimizers; cut off, the same weights."""

import pytest
import torch

from sfumato.learning.label_dp.fitting import (
    Clock,
    OutOfTime,
    augmented,
    fit_network,
    logits_of,
    mixed,
)
from sfumato.learning.label_dp.networks import make_network
from sfumato.learning.label_dp.recipe import LabelRecipe


def test_mixing_is_one_line_between_two_examples() -> None:
    torch.manual_seed(0)
    x, t = torch.rand(6, 4), torch.eye(6)
    mixed_x, mixed_t = mixed(x, t, alpha=1.0)
    assert mixed_t.sum(dim=1).numpy() == pytest.approx([1.0] * 6)
    assert torch.allclose(mixed_t @ x, mixed_x, atol=1e-6)
    assert (mixed_t > 1e-6).sum(dim=1).max() <= 2


def test_shares_of_a_mix_have_the_beta_law() -> None:
    """Beta(8, 8) has the standard deviation 0.1213; of 1,000 draws within 12 %."""
    torch.manual_seed(0)
    one = torch.tensor([[0.0], [1.0]])
    shares = []
    while len(shares) < 1000:
        x, _ = mixed(one, one, alpha=8.0)
        if not torch.equal(x, one):
            shares.append(float(x[0]))
    assert torch.tensor(shares).std() == pytest.approx(0.1213, rel=0.12)


def test_crops_are_shifts_of_the_padded_image() -> None:
    torch.manual_seed(0)
    images = torch.rand(50, 3, 16, 16)
    changed = augmented(images, "crop-flip")
    assert changed.shape == images.shape
    padded = torch.nn.functional.pad(images, (2,) * 4)
    mirrored = 0
    for one, big in zip(changed, padded, strict=True):
        crops = [big[:, a : a + 16, b : b + 16] for a in range(5) for b in range(5)]
        plain = any(torch.equal(one, crop) for crop in crops)
        turned = any(torch.equal(one, crop.flip(2)) for crop in crops)
        assert plain or turned
        mirrored += turned and not plain
    assert 10 < mirrored < 40
    assert torch.equal(augmented(images, "none"), images)
    assert augmented(images, "shift").shape == images.shape


def task():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(400, 5, generator=generator)
    labels = (x.sum(dim=1) > 2.5).long()
    return x, labels, torch.nn.functional.one_hot(labels, 2).float()


@pytest.mark.parametrize(("optimizer", "rate"), [("adamw", 5e-3), ("sgd", 0.1)])
def test_it_learns(optimizer, rate) -> None:
    x, labels, targets = task()
    recipe = LabelRecipe(1.0, epochs=20, batch=50, optimizer=optimizer, rate=rate)
    options = {"hidden": 16, "dropout": 0.0}
    model = fit_network(
        lambda: make_network("mlp", (5,), 2, **options), x, targets, recipe, mixup=0.0, seed=0
    )
    assert (logits_of(model, x).argmax(dim=1) == labels).double().mean() > 0.95


def test_half_precision_runs() -> None:
    x, labels, targets = task()
    recipe = LabelRecipe(1.0, epochs=10, batch=50, rate=5e-3)
    model = fit_network(
        lambda: make_network("mlp", (5,), 2, hidden=16), x, targets, recipe, mixup=0.2, seed=0,
        half=True,
    )  # fmt: skip
    assert logits_of(model, x, half=True).dtype == torch.float32
    assert (logits_of(model, x).argmax(dim=1) == labels).double().mean() > 0.9


@pytest.mark.slow
def test_a_compiled_network_is_the_same(monkeypatch) -> None:
    x, _, targets = task()
    recipe, compiled = LabelRecipe(1.0, epochs=2, batch=100), torch.compile
    asked = []

    def eagerly(model, **options):
        asked.append(options)
        return compiled(model, backend="aot_eager", **options)

    monkeypatch.setattr(torch, "compile", eagerly)
    one, other = (
        fit_network(
            lambda: make_network("mlp", (5,), 2, hidden=16, dropout=0.0), x, targets, recipe,
            mixup=0.2, seed=0, compile=wanted,
        ).state_dict()
        for wanted in (False, True)
    )  # fmt: skip
    assert asked == [{"dynamic": False}]
    for name, value in one.items():
        torch.testing.assert_close(value, other[name])


def test_cut_off_it_ends_with_the_same_weights(tmp_path) -> None:
    x, _, targets = task()
    recipe = LabelRecipe(1.0, epochs=2, batch=100)

    def fitted(folder, clock=None):
        return fit_network(
            lambda: make_network("mlp", (5,), 2, hidden=8), x, targets, recipe, mixup=1.0, seed=3,
            folder=folder, clock=clock,
        ).state_dict()  # fmt: skip

    whole, stops = fitted(tmp_path / "a"), 0
    while True:
        try:
            found = fitted(tmp_path / "b", Clock(0))  # a step at a time
            break
        except OutOfTime:
            stops += 1
    assert stops == 7
    assert all(torch.equal(weight, found[name]) for name, weight in whole.items())
    assert not (tmp_path / "b/checkpoint.safetensors").exists()
