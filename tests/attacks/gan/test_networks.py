"""Generators: pictures of every size, within bounds, each from its own code alone."""

import pytest
import torch

from sfumato.attacks.gan.networks import make_network


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("bounds", [(0.0, 1.0), (-1.0, 3.0)])
def test_pictures_have_the_shape_and_stay_within_the_bounds(shape, bounds):
    network = make_network(shape, code=5, width=8, bounds=bounds)
    made = network(100 * torch.randn(6, 5)).detach()
    assert made.shape == (6, *shape)
    assert bounds[0] <= float(made.min()) < float(made.max()) <= bounds[1]


def test_a_picture_depends_on_its_own_code_alone():
    network = make_network((1, 8, 8), code=5, width=8)
    codes = torch.randn(4, 5)
    for mode in (True, False):
        network.train(mode)
        assert torch.allclose(network(codes)[2:3], network(codes[2:3]), atol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"shape": (1, 30, 30)}, r"shape must be .* got \(1, 30, 30\)"),
        ({"shape": (1, 28, 32)}, r"shape must be .* got \(1, 28, 32\)"),
        ({"shape": (28, 28)}, r"shape must be .* got \(28, 28\)"),
        ({"shape": (0, 28, 28)}, "shape must be .* got 0"),
        ({"code": 0}, "code must be .* got 0"),
        ({"width": 6}, "width must be a multiple of 4, got 6"),
        ({"bounds": (1.0, 1.0)}, "bounds must have"),
    ],
)
def test_bad_parameters_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        make_network(**({"shape": (1, 8, 8)} | wrong))
