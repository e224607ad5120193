"""Gradient inversion on a GPU, where its steps are recorded: as on a CPU."""

import numpy as np
import pytest
import torch

from sfumato.attacks.gradients.defences import Dropout, LocalSteps, PrivateSteps, Pruning
from sfumato.attacks.gradients.matching import Matching, invert_gradient
from sfumato.attacks.gradients.networks import leaky_cnn, relu_cnn
from sfumato.attacks.gradients.sharing import share_gradient
from sfumato.attacks.gradients.utility import accuracy, train_on_updates

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHAPE = (3, 16, 16)


@pytest.mark.parametrize("make", [leaky_cnn, relu_cnn])
@pytest.mark.parametrize(
    "defences",
    [(), (LocalSteps(3, 0.05),), (Dropout(0.2), Pruning(0.5)), (PrivateSteps(1.0, 0.1),)],
    ids=str,
)
def test_what_is_found_has_the_gradient(make, defences):
    torch.manual_seed(0)
    model = make(SHAPE, 10).cuda()
    x, y = torch.rand(2, *SHAPE).cuda(), torch.tensor([1, 7]).cuda()
    sent = share_gradient(model, x, y, defences=defences, generator=np.random.default_rng(0))
    how = Matching(iterations=200, rate=0.05, trials=3)
    found = invert_gradient(
        model, sent, SHAPE, generator=np.random.default_rng(1), matching=how, labels=[1, 7]
    )
    start = Matching(iterations=1, rate=1e-9, trials=3)
    before = invert_gradient(
        model, sent, SHAPE, generator=np.random.default_rng(1), matching=start, labels=[1, 7]
    )
    assert found.cost < before.cost
    assert np.isfinite(found.images).all()


def test_training_on_updates():
    torch.manual_seed(0)
    x = torch.rand(400, 1, 2, 2).cuda()
    y = (x[:, 0, 0, 0] > 0.5).long()
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2)).cuda()
    trained = train_on_updates(
        model, x, y, rounds=200, batch=4, participants=8, rate=0.5,
        generator=np.random.default_rng(0),
    )  # fmt: skip
    assert accuracy(trained, x, y) > 0.9
