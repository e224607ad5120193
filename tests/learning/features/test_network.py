"""Features from a public network."""

import hashlib

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from sfumato.learning.features import FeatureMap, PublicNetwork
from sfumato.learning.models import make_model

SHAPE = (1, 8, 8)


@pytest.fixture
def model():
    return make_model("mlp", SHAPE, 7, hidden=(12, 5), activation="tanh")


@pytest.fixture
def path(tmp_path, model):
    own = tmp_path / "weights.safetensors"
    save_file(model.state_dict(), own)
    return own


def declared(path, **more):
    options = {"hidden": [12, 5], "activation": "tanh"}
    return PublicNetwork(str(path), **({"model": "mlp", "source": "s", "options": options} | more))


@pytest.mark.parametrize(("layers", "kept"), [(1, 5), (2, 3)])
def test_it_is_the_network_without_its_last_layers(path, model, layers, kept):
    images = torch.rand(4, *SHAPE)
    features = declared(path, layers=layers)
    found = features.build(SHAPE)(images)
    assert torch.equal(found, model[:kept](images))
    assert features.out_shape(SHAPE) == found.shape[1:]


def test_the_record_names_source_and_digest(path):
    features = declared(path, source="trained on public pages")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert features.to_dict()["sha256"] == digest
    assert "trained on public pages" in features.provenance
    assert digest in features.provenance
    assert str(path) not in features.provenance
    again = FeatureMap.from_dict(features.to_dict())
    path.unlink()
    assert FeatureMap.from_dict(again.to_dict()) == features  # the record outlives the file
    with pytest.raises(FileNotFoundError, match="a file that is there"):
        again.build(SHAPE)


def test_a_file_that_changed_is_refused(path, model):
    features = declared(path)
    save_file({k: v + 1 for k, v in model.state_dict().items()}, path)
    with pytest.raises(ValueError, match="restore the file"):
        features.build(SHAPE)


@pytest.mark.parametrize("module", [nn.Identity(), nn.BatchNorm2d(1)])
def test_the_file_of_a_run_will_do(path, model, module):
    features = declared(path).build(SHAPE)
    save_file(nn.Sequential(module, model).state_dict(), path)
    images = torch.rand(3, *SHAPE)
    assert torch.equal(declared(path).build(SHAPE)(images), features(images))


def test_the_kept_part_alone_is_enough(path, model):
    save_file(model[:5].state_dict(), path)
    declared(path).build(SHAPE)


def test_it_stays_as_it_is(path):
    module = declared(path).build(SHAPE)
    module.requires_grad_(True)
    nn.Sequential(module).train()
    assert not any(part.training for part in module.modules())
    assert not list(module.parameters())
    images = torch.rand(2, *SHAPE)
    assert not module(images).requires_grad
    again = declared(path).build(SHAPE)
    again.load_state_dict(module.state_dict())


def test_errors_name_what_is_wrong(path, tmp_path, model):
    with pytest.raises(FileNotFoundError, match="a file that is there"):
        declared(tmp_path / "none.safetensors")
    with pytest.raises(FileNotFoundError, match="a file that is there"):
        declared(tmp_path)
    with pytest.raises(ValueError, match="source"):
        declared(path, source="")
    with pytest.raises(ValueError, match="one line"):
        declared(path, source="two\nlines")
    with pytest.raises(ValueError, match="sha256"):
        declared(path, sha256="12")
    with pytest.raises(ValueError, match=r"'1.weight' with shape \(12, 81\), got \(12, 64\)"):
        declared(path).build((1, 9, 9))
    with pytest.raises(ValueError, match=r"which has '5\.bias'"):
        declared(path, options={"hidden": 12}).build(SHAPE)
    with pytest.raises(ValueError, match=r"which misses '0\.bias'"):
        declared(path, model="cnn", options={}).build(SHAPE)
    with pytest.raises(ValueError, match="below the 3 layers"):
        declared(path, layers=3).build(SHAPE)
    save_file({k: v / 0 for k, v in model.state_dict().items()}, path)
    with pytest.raises(ValueError, match="finite"):
        declared(path).build(SHAPE)


def test_nothing_is_unpickled(path, model):
    torch.save(model.state_dict(), path)
    with pytest.raises(ValueError, match="a safetensors file"):
        declared(path).build(SHAPE)
