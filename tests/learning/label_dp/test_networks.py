"""Networks by name, and what makes their inputs."""

import pytest
import torch

from sfumato.learning.label_dp.features import Projection, check_components, public_features
from sfumato.learning.label_dp.networks import make_network, network_names


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (12,), {"hidden": 8}),
        ("mlp", (1, 8, 8), {"layers": 1}),
        ("small-cnn", (1, 28, 28), {"width": 4}),
        ("resnet18", (3, 32, 32), {"width": 4}),
        ("linear", (12,), {}),
    ],
)
def test_logits_of_every_class(name, shape, options) -> None:
    network = make_network(name, shape, 7, **options)
    assert network(torch.rand(3, *shape)).shape == (3, 7)
    assert name in network_names()


def test_resnet18_is_the_usual_one() -> None:
    """11,173,962 weights for ten classes; four stages that halve the sides three times."""
    network = make_network("resnet18", (3, 32, 32), 10)
    assert sum(p.numel() for p in network.parameters()) == 11_173_962
    with torch.no_grad():
        before_mean = network[:-3](torch.rand(1, 3, 32, 32))
    assert before_mean.shape == (1, 512, 4, 4)


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="network must be one of"):
        make_network("os:system", (3,), 2)
    with pytest.raises(ValueError, match="option of 'mlp' must be one of hidden"):
        make_network("mlp", (3,), 2, widht=3)
    with pytest.raises(ValueError, match="at least 8x8"):
        make_network("resnet18", (3, 4, 4), 2)


def test_a_projection_keeps_the_main_directions() -> None:
    """Of points in a plane of ten dimensions: two numbers, about as large as each other."""
    generator = torch.Generator().manual_seed(0)
    plane = torch.linalg.qr(torch.randn(10, 2, generator=generator)).Q
    flat = torch.randn(2000, 2, generator=generator) * torch.tensor([3.0, 2.0])
    rows = 5 + flat @ plane.T
    projection = Projection(10, 2)
    projection.fit(rows, seed=0)
    found = projection(rows)
    assert found.mean(dim=0).abs().max() < 1e-3
    assert found.std(dim=0).numpy() == pytest.approx([1, 1], abs=0.02)
    back = torch.linalg.lstsq(found, flat).solution
    assert (found @ back - flat + flat.mean(dim=0)).abs().max() < 0.05


def test_features_of_images() -> None:
    images = torch.rand(40, 1, 8, 8)
    module = public_features((1, 8, 8), 12, images, seed=1)
    assert module(images[:3]).shape == (3, 12)
    again = public_features((1, 8, 8), 12, images, seed=1)
    assert torch.equal(module(images), again(images))
    with pytest.raises(ValueError, match="components must be at most 40"):
        check_components((1, 8, 8), 41, rows=40)
    with pytest.raises(ValueError, match="at most 324"):
        check_components((1, 8, 8), 400, rows=5000)
