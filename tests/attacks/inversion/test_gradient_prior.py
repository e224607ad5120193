"""Inversion with a prior: pictures from trained models, none from untrained ones."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sfumato.attacks.inversion.gradient_prior import Loss, Objective, Views, invert_with_prior
from sfumato.attacks.inversion.priors import LearnedPrior, total_variation
from sfumato.attacks.inversion.scoring import recognition
from sfumato.attacks.targets import NotSeen, Target

STILL = Views(count=1, shift=0, noise=0.0, selecting=1)


def attack(module, digits, prior=None, seed=1, **options):
    options = {"views": Views(shift=1, noise=0.2), "steps": 100, "rate": 0.1} | options
    return invert_with_prior(
        Target.of_module(module, view="gradients"), digits.classes, digits.shape, prior=prior,
        generator=np.random.default_rng(seed), **options,
    )  # fmt: skip


@pytest.mark.parametrize("loss", list(Loss))
def test_others_recognise_what_comes_out(digits, mlp, judge, prior, loss):
    objective = Objective(loss, code=0.02 if loss is Loss.CROSS_ENTROPY else 0.2)
    found = attack(mlp, digits, prior, objective=objective)
    assert found.probability.mean() > 0.9
    assert recognition(found.images, found.labels, judge).accuracy >= 0.9


def test_the_prior_by_itself_gives_nothing_away(digits, judge, prior):
    with torch.random.fork_rng():
        torch.manual_seed(5)
        untrained = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    found = attack(untrained, digits, prior, restarts=2, kept=2)
    assert recognition(found.images, found.labels, judge).accuracy <= 0.4


def test_without_a_generator_weights_keep_pixels_smooth_and_dark(digits, mlp, judge):
    rough = attack(mlp, digits, restarts=1)
    smooth = attack(mlp, digits, restarts=1, objective=Objective("margin", variation=12.0))
    dark = attack(mlp, digits, restarts=1, objective=Objective(energy=20.0))
    variations = [total_variation(torch.tensor(found.images)).mean() for found in (rough, smooth)]
    assert variations[1] < 0.7 * variations[0]
    assert (dark.images**2).mean() < (rough.images**2).mean() / 2
    assert recognition(smooth.images, smooth.labels, judge).accuracy >= 0.8


def test_the_choice_is_by_the_target_over_views(digits, mlp, prior):
    options = {"views": STILL, "steps": 3, "restarts": 4}
    every = attack(mlp, digits, prior, kept=4, **options)
    assert every.labels.tolist() == np.repeat(digits.classes, 4).tolist()
    assert (np.diff(every.probability.reshape(10, 4), axis=1) <= 0).all()
    best = attack(mlp, digits, prior, kept=1, **options)
    assert np.array_equal(best.images, every.images[::4])


@pytest.mark.parametrize(("loss", "asked"), [("cross-entropy", 1), ("margin", 3)])
def test_queries_are_counted(digits, mlp, prior, loss, asked):
    found = attack(
        mlp, digits, prior, objective=Objective(loss), steps=7, restarts=3, kept=2,
        views=Views(count=5, shift=1, selecting=11),
    )  # fmt: skip
    assert found.queries == 30 * 5 * 7 * asked + 30 * 11 + 20
    assert found.iterations.tolist() == [7] * 20
    assert "images" not in found.to_dict()


@pytest.mark.parametrize("label", [0, 1, 2])
@pytest.mark.parametrize("loss", list(Loss))
def test_the_first_step_goes_down_the_loss_of_a_linear_model(loss, label):
    """Adam's first step is the rate, against the sign of the slope of every pixel."""
    layer = nn.Linear(3, 3, bias=False)
    w = np.array([[2.0, -1, 0.5], [1.5, 1, -2], [-3, 2, 1]], dtype=np.float32)
    layer.weight.data = torch.tensor(w)
    options = {"views": STILL, "restarts": 1, "rate": 0.01, "objective": Objective(loss)}
    target, bounds = Target.of_module(layer), (-1.0, 1.0)

    def after(steps):
        return invert_with_prior(
            target, [label], (3,), generator=np.random.default_rng(1), steps=steps, bounds=bounds,
            **options,
        ).images[0]  # fmt: skip

    start = -1 + 0.2 * np.random.default_rng(1).random((1, 3), dtype=np.float32)[0]
    logits = w @ start
    shares = np.exp(logits) / np.exp(logits).sum()
    others = np.delete(np.arange(3), label)
    rival = shares @ w if loss is Loss.CROSS_ENTROPY else w[others[logits[others].argmax()]]
    slope = rival - w[label]
    assert after(1) == pytest.approx(start - 0.01 * np.sign(slope), abs=1e-4)


@given(st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_a_view_is_a_shift_with_repeated_borders(shift, seed):
    generator = np.random.default_rng(seed)
    images = torch.rand(2, 1, 5, 6, generator=torch.Generator().manual_seed(seed))
    seen = Views(shift=shift, noise=0.0).of(images, 3, (0.0, 1.0), generator=generator)
    assert seen.shape == (6, 1, 5, 6)
    padded = nn.functional.pad(images, (shift,) * 4, mode="replicate") if shift else images
    every = [
        padded[:, :, y : y + 5, x : x + 6]
        for y in range(2 * shift + 1)
        for x in range(2 * shift + 1)
    ]
    for view in seen.split(2):
        assert any(torch.equal(view, one) for one in every)


def test_noise_is_a_share_of_the_bounds_and_stays_within():
    images = torch.full((1, 1, 200, 200), 1.0)
    seen = Views(shift=0, noise=0.05).of(images, 1, (-2.0, 4.0), generator=np.random.default_rng(1))
    assert float(seen.std()) == pytest.approx(0.3, rel=0.03)
    assert float(seen.mean()) == pytest.approx(1.0, abs=0.01)
    loud = Views(shift=0, noise=2.0).of(images, 1, (-2.0, 4.0), generator=np.random.default_rng(1))
    assert (float(loud.min()), float(loud.max())) == (-2.0, 4.0)


def test_images_and_queries_stay_within_the_bounds():
    seen = []

    class Watching(nn.Module):
        def forward(self, x):
            seen.append((float(x.detach().min()), float(x.detach().max())))
            return torch.stack([x.flatten(1).sum(1), -x.flatten(1).sum(1)], dim=1)

    decoder = nn.Sequential(nn.Linear(2, 4), nn.Unflatten(1, (1, 2, 2)))
    for prior in (None, LearnedPrior(decoder, (2,))):
        found = invert_with_prior(
            Target.of_module(Watching()), [0, 1], (1, 2, 2), generator=np.random.default_rng(1),
            prior=prior, bounds=(-0.25, 0.5), steps=20, rate=0.5, restarts=2,
        )  # fmt: skip
        assert found.images.min() >= -0.25
        assert found.images.max() <= 0.5
    assert min(low for low, _ in seen) >= -0.25
    assert max(high for _, high in seen) <= 0.5
    assert all(weights.grad is None for weights in decoder.parameters())


def test_the_same_coins_give_the_same_images(digits, softmax, prior):
    one, two, three = (attack(softmax, digits, prior, seed, steps=5) for seed in (1, 1, 2))
    assert np.array_equal(one.images, two.images)
    assert not np.array_equal(one.images, three.images)


def test_a_target_that_shows_too_little_is_not_even_asked(digits, mlp):
    target = Target.of_module(mlp)
    for view in ("labels", "scores", "losses"):
        with pytest.raises(NotSeen):
            invert_with_prior(
                target.showing(view), [0], digits.shape, generator=np.random.default_rng(1)
            )
    assert target.queries == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": [1, 1]}, "each named once"),
        ({"kept": 5}, "kept must be at most the restarts"),
        ({"steps": 0}, "steps must be"),
        ({"rate": 0}, "rate must be"),
        ({"restarts": 0}, "restarts must be"),
        ({"shape": (64,)}, "shift must be 0"),
        ({"prior": LearnedPrior(nn.Linear(2, 3), (2,))}, "prior must be"),
    ],
)
def test_bad_parameters_are_refused(mlp, wrong, message):
    good = {"labels": [0], "shape": (1, 8, 8), "steps": 1}
    with pytest.raises(ValueError, match=message):
        invert_with_prior(
            Target.of_module(mlp), generator=np.random.default_rng(1), **(good | wrong)
        )


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="loss must be"):
        Objective("hinge")
    for name in ("variation", "energy", "code"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            Objective(**{name: -1})
    for name in ("count", "shift", "noise", "selecting"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            Views(**{name: -1})
