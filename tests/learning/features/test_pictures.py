"""What is known of photographs: opponent colours, and mirror images that have the same features."""

import pytest
import torch
from torch import nn

from sfumato.learning.features import ScatteringFeatures, StandardizedScattering
from sfumato.learning.features.pictures import Mirrored, OpponentColours


@pytest.fixture
def images():
    return torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(1))


def test_opponent_colours_are_brightness_and_two_differences():
    red, green, blue = torch.eye(3).reshape(3, 1, 3, 1, 1)
    found = {
        name: OpponentColours()(colour).flatten()
        for name, colour in {"red": red, "green": green, "blue": blue}.items()
    }
    assert torch.allclose(found["red"], torch.tensor([1 / 3, 2.5, -0.5]))
    assert torch.allclose(found["green"], torch.tensor([1 / 3, 0.5, 2.5]))
    assert torch.allclose(found["blue"], torch.tensor([1 / 3, -1.5, -0.5]))


def test_the_axes_of_colours_are_orthogonal():
    axes = OpponentColours().axes
    products = axes @ axes.T
    assert torch.allclose(products, torch.diag(products.diagonal()), atol=1e-6)


def test_grey_has_no_colour():
    grey = torch.rand(2, 1, 4, 4).expand(2, 3, 4, 4)
    found = OpponentColours()(grey)
    assert torch.allclose(found[:, 0], grey[:, 0])
    assert torch.allclose(found[:, 1:], torch.full((2, 2, 4, 4), 0.5), atol=1e-6)


@pytest.mark.parametrize(("width", "kept"), [(4, 2), (5, 3), (1, 1)])
def test_mirrored_is_the_left_half_of_the_mean(width, kept):
    images = torch.arange(2.0 * width).reshape(1, 2, 1, width)
    found = Mirrored(nn.Identity())(images)
    assert found.shape == (1, 2, 1, kept)
    assert torch.equal(found, ((images + images.flip(-1)) / 2)[..., :kept])


@pytest.mark.parametrize("kind", [ScatteringFeatures, StandardizedScattering])
def test_a_mirror_image_has_the_same_features(kind, images):
    features = kind(opponent=True, mirrored=True)
    module = features.build((3, 16, 16))
    found = module(images)
    assert found.shape[1:] == features.out_shape((3, 16, 16)) == (243, 4, 2)
    assert torch.equal(found, module(images.flip(-1)))
    unmirrored = kind(opponent=True).build((3, 16, 16))
    assert not torch.allclose(unmirrored(images), unmirrored(images.flip(-1)), atol=0.1)


def test_opponent_colours_are_for_colours():
    with pytest.raises(ValueError, match=r"3 channels, got \(1, 16, 16\): leave them out"):
        ScatteringFeatures(opponent=True).build((1, 16, 16))


def test_the_record_says_so():
    public = StandardizedScattering(None, opponent=True, mirrored=True).provenance
    assert "opponent colours" in public
    assert "mirror images" in public
    assert "mirror" not in ScatteringFeatures().provenance
