import math

import pytest
import torch

from sfumato.learning.pate.students import GAN
from sfumato.learning.pate.students.gan import discriminator_loss, feature_matching_loss


def test_the_discriminators_loss_is_that_of_one_class_more():
    """L_D's unlabelled part is half the cross-entropy of K + 1 classes, the last logit 0."""
    coins = torch.Generator().manual_seed(0)
    known, others, made = (torch.randn(6, 4, generator=coins) for _ in range(3))
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    real, false = (
        torch.cat([logits, torch.zeros(6, 1)], 1).softmax(1)[:, 4] for logits in (others, made)
    )
    expected = (
        torch.nn.functional.cross_entropy(known, labels)
        - 0.5 * (1 - real).log().mean()
        - 0.5 * false.log().mean()
    )
    torch.testing.assert_close(discriminator_loss(known, labels, others, made), expected)


def test_the_discriminators_loss_by_hand():
    """All logits 0, ten classes: ln 10 + ln(11/10) / 2 + ln(11) / 2."""
    zero = torch.zeros(3, 10)
    found = float(discriminator_loss(zero, torch.zeros(3, dtype=torch.int64), zero, zero))
    assert found == pytest.approx(math.log(10) + 0.5 * math.log(1.1) + 0.5 * math.log(11), rel=1e-6)


def test_the_generators_loss_by_hand():
    others = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    made = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert float(feature_matching_loss(others, made)) == (1 + 9) / 2


def test_the_discriminator_has_the_papers_layers():
    network = GAN().network((1, 28, 28))
    widths = [tuple(p.shape) for n, p in network.named_parameters() if n.endswith("direction")]
    assert widths == [(1000, 784), (500, 1000), (250, 500), (250, 250), (250, 250), (10, 250)]


def test_noise_only_while_training():
    network = GAN(classes=3).network((4,))
    rows = torch.rand(5, 4)
    assert torch.equal(network.eval()(rows), network(rows))
    network.train()
    assert not torch.equal(network(rows), network(rows))


def test_it_needs_unlabelled_inputs():
    with pytest.raises(ValueError, match="inputs_unlabelled must be at least two"):
        GAN(steps=1).fit(None, torch.rand(4, 3), torch.tensor([0, 1, 2, 3]))


def test_two_heaps_are_told_apart_from_two_labels():
    torch.manual_seed(0)
    heaps = torch.tensor([0.2, 0.8]).repeat_interleave(100)[:, None].expand(200, 8)
    rows = (heaps + 0.05 * torch.randn(200, 8)).clamp(0, 1)
    student = GAN(classes=2, steps=20, batch=20)
    network = student.fit(rows, rows[[0, 150]], torch.tensor([0, 1]))
    truth = torch.tensor([0, 1]).repeat_interleave(100)
    assert (network(rows).argmax(1) == truth).float().mean() > 0.98
