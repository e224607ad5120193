import math

import pytest
import torch

from sfumato.learning.pate.students.augmenting import erased, flipped, moved, strong, weak


def test_no_change_is_no_change():
    images = torch.rand(3, 2, 9, 7)
    torch.testing.assert_close(moved(images), images)
    assert torch.equal(erased(images, 0.0), images)


def test_a_shift_is_as_large_as_it_may_be():
    """A dot in the middle, shifted by up to 2 of 21 pixels: its mean square is 2^2 / 3 a side."""
    torch.manual_seed(0)
    images = torch.zeros(4000, 1, 21, 21)
    images[:, 0, 10, 10] = 1.0
    changed = moved(images, shift=2 / 21)[:, 0]
    torch.testing.assert_close(changed.sum((1, 2)), torch.ones(4000))  # linear between pixels
    places = torch.arange(21.0) - 10
    for offset in ((changed.sum(1) * places).sum(1), (changed.sum(2) * places).sum(1)):
        assert offset.abs().max() <= 2 + 1e-4
        assert float(offset.square().mean()) == pytest.approx(4 / 3, rel=0.06)


def test_a_turn_is_as_large_as_it_may_be():
    """A dot right of the middle goes to an angle, uniform up to 0.3 radians."""
    torch.manual_seed(0)
    images = torch.zeros(4000, 1, 41, 41)
    images[:, 0, 20, 35] = 1.0
    changed = moved(images, turn=0.3)[:, 0]
    places = torch.arange(41.0) - 20
    total = changed.sum((1, 2))
    x, y = (changed.sum(1) * places).sum(1) / total, (changed.sum(2) * places).sum(1) / total
    angles = torch.atan2(y, x)
    assert angles.abs().max() < 0.3 + 0.05  # half a pixel of 15
    assert float(angles.square().mean()) == pytest.approx(0.3**2 / 3, rel=0.06)


def test_an_image_is_zoomed_both_ways():
    torch.manual_seed(0)
    images = torch.zeros(2000, 1, 40, 40)
    images[:, :, 10:30, 10:30] = 1.0
    sizes = moved(images, zoom=0.25).sum((1, 2, 3)) / 400
    assert sizes.max() <= 1.25**2 + 0.02
    assert sizes.min() >= 1.25**-2 - 0.02
    logs = sizes.log()  # the sum of two uniform ones up to log 1.25
    assert float(logs.square().mean()) == pytest.approx(2 * math.log(1.25) ** 2 / 3, rel=0.08)


def test_what_is_erased_is_a_quarter_of_the_share_squared():
    torch.manual_seed(0)
    gone = 1 - erased(torch.ones(4000, 1, 50, 50), 0.4).mean((1, 2, 3))
    assert gone.max() <= 0.4**2 + 0.03
    assert float(gone.mean()) == pytest.approx(0.4**2 / 4, rel=0.05)


def test_half_are_mirrored():
    torch.manual_seed(0)
    images = torch.zeros(1000, 1, 2, 2)
    images[..., 0] = 1.0
    assert 437 < int(flipped(images)[:, 0, 0, 1].sum()) < 563


@pytest.mark.parametrize("change", [weak, strong])
def test_each_image_is_changed_by_itself_and_stays_in_range(change):
    torch.manual_seed(1)
    images = torch.rand(4, 3, 12, 16)
    torch.manual_seed(2)
    whole = change(images)
    images[1:] = 0
    torch.manual_seed(2)
    assert torch.equal(change(images)[0], whole[0])
    assert whole.shape == images.shape
    assert 0 <= whole.min() <= whole.max() <= 1
    assert change(images, flips=True).shape == images.shape
