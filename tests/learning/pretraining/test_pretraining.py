"""Random images and what is learnt from them: a function of the seed, and of no data."""

import json

import pytest
import torch
from safetensors import safe_open

from sfumato.learning.clock import OutOfTime
from sfumato.learning.models import make_model
from sfumato.learning.models.wrn import StandardizedConv
from sfumato.learning.pretraining import PROCESSES, Pretraining, pretrain, random_images
from sfumato.learning.pretraining.pretraining import _rescaled
from sfumato.learning.recipes.start import PublicStart

SMALL = Pretraining(options={"depth": 10, "width": 1}, side=8, images=48, steps=4, batch=16)


pytestmark = pytest.mark.usefixtures("one_thread")

# --- images ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES)
def test_images_follow_from_their_seed(process):
    one, two, other = (random_images(process, 20, 16, seed=seed) for seed in (3, 3, 4))
    assert one.shape == (20, 3, 16, 16)
    assert one.dtype == torch.uint8
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("process", PROCESSES)
def test_images_differ_from_each_other_and_within(process):
    images = random_images(process, 32, 16, seed=0).float()
    assert (images.flatten(1).std(1) > 5).float().mean() > 0.9
    apart = torch.cdist(images.flatten(1), images.flatten(1)) + 1e9 * torch.eye(32)
    assert apart.min() > 100
    colours = images.mean((2, 3))
    assert (colours.std(1) > 1).float().mean() > 0.5


def test_near_places_are_alike_as_in_photographs():
    images = random_images("mixed", 64, 32, seed=1).float()
    images -= images.mean((2, 3), keepdim=True)
    near = (images[..., 1:] * images[..., :-1]).mean()
    far = (images[..., 12:] * images[..., :-12]).mean()
    variance = images.square().mean()
    assert near > 0.7 * variance
    assert far < 0.5 * near


def test_torch_own_coins_are_not_touched():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    random_images("mixed", 4, 8, seed=0)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"process": "photographs"}, "process"),
        ({"side": 12}, "power of two"),
        ({"batch": 49}, "at most the images"),
        ({"steps": 0}, "steps"),
        ({"model": "linear", "options": {}}, "pre-trained"),
    ],
)
def test_bad_settings_are_named(changes, said):
    values = SMALL.to_dict() | changes
    with pytest.raises(ValueError, match=said):
        Pretraining(**values)


# --- learning -------------------------------------------------------------------------------------


def test_weights_of_a_body_that_private_training_begins_with(tmp_path):
    path = tmp_path / "w.safetensors"
    weights = pretrain(SMALL, path)
    with safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()["pretraining"])
    assert said["how"] == SMALL.to_dict()
    start = PublicStart(str(path))
    assert start.source == SMALL.source
    model = make_model("wrn", (3, 8, 8), 5, depth=10, width=1)
    start.put_into(model)
    own = model.state_dict()
    assert all(torch.equal(own[name], value) for name, value in weights.items())
    assert set(own) - set(weights) == {n for n in own if n.startswith(f"{len(model) - 1}.")}
    assert not any(parameter.any() for parameter in model[-1].parameters())


def test_who_waits_is_told(tmp_path):
    images, steps = [], []
    pretrain(
        SMALL, tmp_path / "w.safetensors", making=lambda *so_far: images.append(so_far),
        told=lambda *so_far: steps.append(so_far),
    )  # fmt: skip
    assert images == [(48, 48)]
    assert steps == [(n, 4) for n in range(1, 5)]
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]  # nothing beside it


def test_a_place_that_cannot_be_written_to_is_found_before_images_are_made(tmp_path):
    (tmp_path / "file").write_text("")
    made = []
    with pytest.raises(ValueError, match="out must be in a folder"):
        pretrain(SMALL, tmp_path / "file" / "w.safetensors", making=lambda *_: made.append(1))
    assert not made


def test_filters_are_written_at_their_first_scale(tmp_path):
    weights = pretrain(SMALL, tmp_path / "w.safetensors")
    gains = [name.removesuffix("gain") for name in weights if name.endswith(".gain")]
    assert len(gains) > 6
    for name in gains:
        filters = weights[f"{name}weight"].flatten(1)
        assert torch.allclose(filters.norm(dim=1), torch.ones(len(filters)), atol=1e-5)
        assert filters.mean(1).abs().max() < 1e-6


def test_another_scale_is_the_same_function():
    body, _ = SMALL.body()
    with torch.no_grad():
        for part in body.modules():
            if isinstance(part, StandardizedConv):
                part.weight.mul_(0.3).add_(0.01)
                part.weight[0] *= 1e-4  # below what standardisation divides by: stays as it is
    before = {name: value.clone() for name, value in body.state_dict().items()}
    other, _ = SMALL.body()
    other.load_state_dict(_rescaled(other, before))
    images = torch.rand(5, 3, 8, 8)
    with torch.no_grad():
        assert torch.allclose(body(images), other(images), atol=1e-4)
    assert torch.equal(other[0].weight[0], before["0.weight"][0])
    assert not torch.allclose(other[0].weight[1], before["0.weight"][1])


def test_cut_off_it_goes_on_to_the_same_weights(tmp_path):
    whole = pretrain(SMALL, tmp_path / "whole.safetensors")
    path = tmp_path / "pieces.safetensors"
    stops = 0
    while not path.exists():
        try:
            weights = pretrain(SMALL, path, minutes=0.0)
        except OutOfTime:
            stops += 1
    assert stops == SMALL.steps - 1
    assert all(torch.equal(weights[name], value) for name, value in whole.items())


def test_a_file_that_is_there_stays(tmp_path):
    path = tmp_path / "w.safetensors"
    path.write_bytes(b"mine")
    with pytest.raises(ValueError, match="new file"):
        pretrain(SMALL, path)
    assert path.read_bytes() == b"mine"
