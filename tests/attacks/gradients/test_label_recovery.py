"""Which classes were in a batch, from the last layer."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.attacks.gradients.label_recovery import recover_labels
from sfumato.attacks.gradients.sharing import share_gradient


def network(bias=True, classes=10):
    torch.manual_seed(1)
    body = nn.Sequential(nn.Flatten(), nn.Linear(48, 64), nn.ReLU())
    return nn.Sequential(body, nn.Linear(64, classes, bias=bias))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("label", range(10))
def test_one_label_is_always_right(label, bias):
    model = network(bias)
    x = torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(label))
    sent = share_gradient(model, x, torch.tensor([label]))
    assert recover_labels(model, sent, (3, 4, 4)).tolist() == [label]


@pytest.mark.parametrize(("bias", "least"), [(True, 1.0), (False, 0.9)])
@pytest.mark.parametrize("batch", [2, 8, 32])
def test_most_labels_of_a_batch(batch, bias, least):
    model, random = network(bias), np.random.default_rng(batch)
    right = 0
    for _ in range(20):
        y = np.sort(random.integers(0, 10, batch))
        x = torch.from_numpy(random.random((batch, 3, 4, 4), dtype=np.float32))
        found = recover_labels(model, share_gradient(model, x, torch.from_numpy(y)), (3, 4, 4))
        assert len(found) == batch
        right += np.minimum(np.bincount(y, minlength=10), np.bincount(found, minlength=10)).sum()
    assert right >= least * 20 * batch


def test_a_model_without_a_linear_layer_is_refused():
    model = nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten())
    sent = share_gradient(model, torch.rand(1, 1, 4, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match="ends with a linear layer"):
        recover_labels(model, sent, (1, 4, 4))


def test_a_frozen_last_layer_is_refused():
    model = network()
    model[1].requires_grad_(False)
    sent = share_gradient(model, torch.rand(1, 3, 4, 4), torch.tensor([0]))
    with pytest.raises(ValueError, match="gradients of 1"):
        recover_labels(model, sent, (3, 4, 4))
