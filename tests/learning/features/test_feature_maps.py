"""What every feature map promises: a fixed function of each row alone, and what fitting costs."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.learning.features import (
    FeatureMap,
    Plain,
    PrivatePCA,
    PublicNetwork,
    ScatteringFeatures,
)
from sfumato.learning.models import make_model

SHAPE = (2, 8, 8)


@pytest.fixture(params=["none", "scattering", "pca", "network"])
def features(request, tmp_path):
    if request.param == "network":
        path = tmp_path / "public.safetensors"
        save_file(make_model("cnn", SHAPE, 3).state_dict(), path)
        return PublicNetwork(str(path), "cnn", source="made up")
    return {
        "none": Plain(),
        "scattering": ScatteringFeatures(scales=1, orientations=4, groups=5),
        "pca": PrivatePCA(components=4, noise_multiplier=2.0),
    }[request.param]


@pytest.fixture
def images():
    return torch.rand(6, *SHAPE, generator=torch.Generator().manual_seed(1))


def fitted(features, images, seed=1):
    module = features.build(SHAPE)
    features.fit(module, images, SeededCoins(seed))
    return module


def test_it_is_a_json_ready_record(features):
    data = json.loads(json.dumps(features.to_dict()))
    assert data["kind"] == features.kind
    again = FeatureMap.from_dict(data)
    assert again == features
    assert hash(again) == hash(features)


def test_shapes_are_known_in_advance(features, images):
    found = fitted(features, images)(images)
    assert found.shape == (6, *features.out_shape(SHAPE))
    assert found.dtype == torch.float32


def test_nothing_can_be_trained(features, images):
    module = fitted(features, images).train()
    assert list(module.parameters()) == []
    assert not any(buffer.requires_grad for buffer in module.buffers())
    assert not module(images).requires_grad


def test_each_row_by_itself(features, images):
    module = fitted(features, images)
    found, moved = module(images), images.clone()
    moved[0] = 1 - moved[0]
    other = module(moved)
    assert torch.equal(other[1:], found[1:])
    assert not torch.equal(other[0], found[0])


def test_fitting_is_total(features, images):
    bad = images.clone()
    bad[0], bad[1], bad[2, 0, 0, 0] = math.nan, math.inf, -math.inf
    bad[3] = 0
    for rows in (bad, bad[:3], bad[3:4], bad[:0], bad * 1e38, bad * 1e-42):
        assert fitted(features, rows)(images).isfinite().all()


def test_only_private_components_release_anything(features):
    event = features.event(Neighbours.ADD_REMOVE, "person")
    assert (event is None) == (features.kind != "pca")
    assert features.provenance
    assert "\n" not in features.provenance


def test_public_maps_draw_no_coins_and_read_no_rows(features, images):
    if features.kind != "pca":
        one, two = fitted(features, images), fitted(features, images * math.nan, seed=2)
        assert torch.equal(one(images), two(images))


def test_it_moves_to_another_device_and_type(features, images):
    """On torch's device without data, any tensor left behind on the CPU would be an error."""
    module = fitted(features, images)
    assert module.to("meta")(images.to("meta")).shape == (6, *features.out_shape(SHAPE))
    module = fitted(features, images).to(torch.float64)
    assert module(images.double()).dtype == torch.float64


def test_no_rows_have_no_features(features, images):
    assert fitted(features, images)(images[:0]).shape == (0, *features.out_shape(SHAPE))


def test_unknown_kinds():
    with pytest.raises(ValueError, match="network, none, pca, relevance, scattering"):
        FeatureMap.from_dict({"kind": "magic"})


# --- scattering ---------------------------------------------------------------------------------


def test_scattering_of_colours_is_stacked_and_normalised():
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    raw = ScatteringFeatures(groups=None).build((3, 16, 16))(images)
    found = ScatteringFeatures().build((3, 16, 16))(images)
    assert raw.shape == found.shape == (2, 243, 4, 4)
    one = ScatteringFeatures(groups=None).build((1, 16, 16))(images[:, 1:2])
    assert torch.equal(raw[:, 81:162], one)
    groups = found.reshape(2, 27, -1)
    assert torch.allclose(groups.mean(2), torch.zeros(2, 27), atol=1e-4)
    expected = raw.reshape(2, 27, -1)
    centred = expected - expected.mean(2, keepdim=True)
    scaled = centred / (expected.var(2, keepdim=True, correction=0) + 1e-5).sqrt()
    assert torch.allclose(groups, scaled, atol=1e-4)


def test_scattering_names_the_remedy():
    with pytest.raises(ValueError, match="pad or resize the images to 32x28, or choose fewer"):
        ScatteringFeatures().build((1, 30, 28))
    with pytest.raises(ValueError, match="divide the 81 channels"):
        ScatteringFeatures(groups=8).build((1, 28, 28))
    with pytest.raises(ValueError, match="for images"):
        ScatteringFeatures().build((784,))
    with pytest.raises(ValueError, match="scales"):
        ScatteringFeatures(scales=0)
