"""The GAN adversary: what she learns in a round, and what she must leave alone."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sfumato.attacks.gan.adversary import GanAdversary, GanSettings

SHAPE = (1, 8, 8)


def model(classes=4, seed=3):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32), nn.Tanh(), nn.Dropout(0.5), nn.Linear(32, classes)
        )


def adversary(seed=1, settings=None, **options):
    return GanAdversary(
        SHAPE, 0, 3, seed=seed, settings=settings or GanSettings(steps=3), **options
    )


def test_the_shared_model_stays_as_it_was():
    shared = model()
    shared[0].eval()  # parts may be in different modes
    before = copy.deepcopy(shared.state_dict())
    modes = [part.training for part in shared.modules()]
    adversary().round(shared)
    assert [part.training for part in shared.modules()] == modes
    for name, weight in shared.named_parameters():
        assert torch.equal(weight, before[name])
        assert weight.requires_grad
        assert weight.grad is None


def test_models_of_other_precision_are_taken_as_well():
    every = [adversary().round(model().to(kind)) for kind in (torch.float32, torch.float64)]
    assert np.array_equal(every[0].inputs, every[1].inputs)
    assert 0 < adversary().round(model().to(torch.bfloat16)).probability < 1


def test_torchs_own_coins_are_not_touched():
    before = torch.random.get_rng_state()
    adversary().round(model())
    assert torch.equal(torch.random.get_rng_state(), before)


def test_poison_carries_the_fake_label():
    poison = adversary(settings=GanSettings(steps=1, fakes=11)).round(model())
    assert poison.inputs.shape == (11, *SHAPE)
    assert poison.inputs.dtype == np.float32
    assert poison.labels.tolist() == [3] * 11
    assert poison.to_dict() == {
        "channel": "curator", "examples": 11, "label": 3, "probability": poison.probability,
    }  # fmt: skip
    assert "11 generated examples labelled 3" in str(poison)


def test_examples_are_fakes_among_own_rows():
    own = np.arange(20)[:, None, None, None] * np.ones((1, *SHAPE))
    for share, fakes, others in ((0.5, 12, 12), (0.25, 4, 12), (1.0, 7, 0), (0.1, 10, 90)):
        one = adversary(settings=GanSettings(steps=1, fakes=fakes, share=share))
        inputs, labels = one.examples(model(), own, np.full(20, 2))
        assert labels.tolist() == [2] * others + [3] * fakes
        assert inputs.shape == (others + fakes, *SHAPE)
        drawn = inputs[:others, 0, 0, 0]
        assert np.isin(drawn, np.arange(20)).all()
        if others <= 20:  # no row twice, while they last
            assert len(np.unique(drawn)) == others


def test_no_rows_are_needed_if_she_trains_on_fakes_alone():
    _, labels = adversary(settings=GanSettings(steps=1, fakes=5, share=1)).examples(model(), [], [])
    assert labels.tolist() == [3] * 5


def test_a_passive_adversary_trains_on_rows_of_her_own_alone():
    own = np.ones((20, *SHAPE))
    one = adversary(settings=GanSettings(steps=1, fakes=6, share=0.5, poisoning=False))
    before = one.images(1)
    inputs, labels = one.examples(model(), own, np.full(20, 2))
    assert labels.tolist() == [2] * 12
    assert (inputs == 1).all()
    assert not np.array_equal(one.images(1), before)


def test_the_first_step_goes_down_the_cross_entropy_of_the_victims_class():
    """Adam's first step is the rate, against the sign of every slope."""
    shared, made = model().eval(), []

    def network():
        made.append(nn.Sequential(nn.Linear(5, 64), nn.Unflatten(1, SHAPE)))
        return made[0]

    settings = GanSettings(steps=1, batch_size=7, rate=0.01)
    one = adversary(network=network, code=5, settings=settings)
    before = copy.deepcopy(made[0])
    random = copy.deepcopy(one._random)
    one.round(shared)
    codes = torch.from_numpy(random.standard_normal((7, 5), dtype=np.float32))
    F.cross_entropy(shared(before(codes)), torch.zeros(7, dtype=torch.long)).backward()
    for old, new in zip(before.parameters(), made[0].parameters(), strict=True):
        assert torch.allclose(new, old - 0.01 * old.grad.sign(), atol=1e-4)


def test_the_model_comes_to_take_pictures_for_the_victims_class():
    one, shared = adversary(2, GanSettings(steps=100)), model().eval()
    shared[4].weight.data *= 10  # an untrained model is sure of nothing

    def sure(images):
        with torch.no_grad():
            return float(shared(torch.from_numpy(images)).softmax(dim=1)[:, 0].mean())

    assert sure(one.images(64)) < 0.5
    poison = one.round(shared)
    assert poison.probability > 0.8
    assert poison.probability == pytest.approx(sure(poison.inputs), abs=1e-6)


def test_the_same_seed_gives_the_same_pictures():
    every = [adversary(seed) for seed in (1, 1, 2)]
    poisons = [one.round(model()) for one in every]
    images = [one.images(4) for one in every]
    assert np.array_equal(images[0], images[1])
    assert np.array_equal(poisons[0].inputs, poisons[1].inputs)
    assert not np.allclose(images[0], images[2])


def test_looking_at_pictures_changes_nothing():
    one, two = adversary(), adversary()
    one.round(model())
    two.round(model())
    assert np.array_equal(two.images(9)[:4], two.images(4))
    two.result()
    assert np.array_equal(one.round(model()).inputs, two.round(model()).inputs)


def test_results_keep_pictures_of_some_rounds_and_of_the_last():
    one = adversary(settings=GanSettings(steps=1, pictures=3, every=2))
    with pytest.raises(ValueError, match="before the first round"):
        one.result()
    poisons = [one.round(model()) for _ in range(5)]
    found = one.result()
    assert found.kept.tolist() == [2, 4, 5]
    assert found.pictures.shape == (3, 3, *SHAPE)
    assert np.array_equal(found.pictures[-1], one.images(3))
    assert found.probability.tolist() == [poison.probability for poison in poisons]
    assert (found.victim_class, found.fake_class, found.bounds) == (0, 3, (0.0, 1.0))
    assert (found.rounds, found.skipped) == (5, 0)


def test_a_model_that_diverged_does_no_harm_to_the_generator():
    one, broken = adversary(), model()
    one.round(model())
    before = one.images(4)
    broken[1].weight.data.fill_(float("nan"))
    poison = one.round(broken)
    assert poison.probability == 0
    assert np.array_equal(one.images(4), before)
    assert one.result().skipped == 1
    one.round(model())
    assert not np.array_equal(one.images(4), before)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shape": (1, 9, 9)}, r"shape must be .* got \(1, 9, 9\)"),
        ({"victim_class": -1}, "victim_class must be .* got -1"),
        ({"fake_class": 1.5}, "fake_class must be .* got 1.5"),
        ({"fake_class": 0}, "fake_class must be another than the victim's, got 0"),
        ({"code": 0}, "code must be .* got 0"),
        ({"bounds": (1, 0)}, r"bounds must have .* got \(1, 0\)"),
        ({"seed": -3}, "seed must be .* got -3"),
        ({"network": lambda: nn.Linear(64, 5)}, r"network must be .* got \(2, 5\)"),
    ],
)
def test_bad_parameters_are_refused(wrong, message):
    good = {"shape": SHAPE, "victim_class": 0, "fake_class": 3}
    with pytest.raises(ValueError, match=message):
        GanAdversary(**(good | wrong))


@pytest.mark.parametrize("name", ["steps", "batch_size", "fakes", "pictures", "every", "rate"])
def test_bad_settings_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be .* got 0"):
        GanSettings(**{name: 0})


@pytest.mark.parametrize(("name", "value"), [("share", 0), ("share", 1.2), ("momentum", 1)])
def test_bad_shares_are_refused(name, value):
    with pytest.raises(ValueError, match=f"{name} must be .* got {value}"):
        GanSettings(**{name: value})


def test_models_without_her_label_are_refused():
    with pytest.raises(ValueError, match="fake_class must be one of the model's 3 classes, got 3"):
        adversary().round(model(classes=3))
    with pytest.raises(ValueError, match="the model's output must be a row of logits"):
        adversary().round(nn.Conv2d(1, 2, 3))


def test_rows_of_her_own_must_fit():
    with pytest.raises(ValueError, match="labels must be one for each of 2 inputs, got 1"):
        adversary().examples(model(), np.zeros((2, *SHAPE)), [1])
    for rows in (np.zeros((0, *SHAPE)), np.zeros((2, 64))):
        with pytest.raises(ValueError, match="inputs must be rows of shape"):
            adversary().examples(model(), rows, [1] * len(rows))
