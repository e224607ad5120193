"""Both searches find minima, within bounds, each trial for itself."""

import numpy as np
import pytest
import torch

from sfumato.attacks.gradients.searching import adam_on_signs, lbfgs

WANTED = torch.tensor([[0.2, 0.7, 0.5], [0.9, 0.1, 1.5]])


def costs(images):
    return (images - WANTED).square().sum(dim=1)


def starts():
    return torch.full((2, 3), 0.5)


def check(found, cost, tolerance):
    assert torch.allclose(found, WANTED.clamp(0, 1), atol=tolerance)
    assert cost == pytest.approx(costs(found).double().numpy(), abs=1e-6)


def test_by_signs():
    check(*adam_on_signs(costs, starts(), (0.0, 1.0), 400, 0.05), 5e-3)


def test_by_curvature():
    """Every trial by itself, from its own start."""
    begin = torch.tensor([[0.5, 0.5, 0.5], [0.0, 1.0, 0.3]])
    found, cost = lbfgs(lambda x: (x - WANTED[1]).square().sum(dim=1), begin, (0.0, 1.0), 50)
    assert torch.allclose(found, WANTED[1].clamp(0, 1).expand(2, 3), atol=1e-5)
    assert cost == pytest.approx([0.25, 0.25], abs=1e-5)


def test_trials_do_not_see_each_other():
    together, _ = adam_on_signs(costs, starts(), (0.0, 1.0), 50, 0.05)
    alone, _ = adam_on_signs(
        lambda x: (x - WANTED[1:]).square().sum(dim=1), starts()[1:], (0.0, 1.0), 50, 0.05
    )
    assert torch.equal(together[1:], alone)


def test_a_trial_that_fails_is_known_as_such():
    def broken(images):
        return costs(images) / (images[:, 0] > 10)  # infinite everywhere

    found, cost = lbfgs(broken, starts(), (0.0, 1.0), 5)
    assert np.isinf(cost).all()
    assert torch.equal(found, starts())


def test_progress_is_told():
    seen = []
    adam_on_signs(costs, starts(), (0.0, 1.0), 250, 0.05, lambda *now: seen.append(now))
    assert seen == [(1, 250), (101, 250), (201, 250), (250, 250)]
    seen.clear()
    lbfgs(costs, starts(), (0.0, 1.0), 5, lambda *now: seen.append(now))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_recorded_search_is_the_same():
    here, cost = adam_on_signs(costs, starts(), (0.0, 1.0), 300, 0.05)
    wanted = WANTED.cuda()  # before the recording, which may not wait for it
    there, other = adam_on_signs(
        lambda x: (x - wanted).square().sum(dim=1), starts().cuda(), (0.0, 1.0), 300, 0.05
    )
    assert torch.allclose(here, there.cpu(), atol=1e-4)
    assert cost == pytest.approx(other, abs=1e-4)
