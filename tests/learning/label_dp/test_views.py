"""Random views of images: their shapes, their range, coins of their own."""

import colorsys

import pytest
import torch

from sfumato.learning.label_dp.views import cropped, recoloured, viewed


@pytest.mark.parametrize("channels", [1, 3])
def test_views_keep_shape_and_range(channels) -> None:
    torch.manual_seed(0)
    images = torch.rand(64, channels, 12, 8)
    found = viewed(images)
    assert found.shape == images.shape
    assert found.dtype == images.dtype
    assert 0 <= found.min() < 0.05
    assert 0.95 < found.max() <= 1
    assert not torch.equal(found, viewed(images))


def test_each_image_has_its_own_coins_and_no_part_of_another() -> None:
    """With the same coins, another image in one place changes that place alone."""
    images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    other = images.clone()
    other[3] = 1 - other[3]
    found = []
    for batch in (images, other, images[:1].expand(8, -1, -1, -1)):
        torch.manual_seed(5)
        found.append(viewed(batch))
    same = [torch.equal(a, b) for a, b in zip(found[0], found[1], strict=True)]
    assert same == [True, True, True, False, True, True, True, True]
    assert len({tuple(view.flatten().tolist()) for view in found[2]}) == 8


def ramp():
    """Red tells the column, green the row, each from 0 to 1 at the edges of the image."""
    places = (torch.arange(64) + 0.5) / 64
    return torch.stack([places.expand(64, 64), places[:, None].expand(64, 64), torch.ones(64, 64)])


def test_crops_have_the_stated_law() -> None:
    """Areas from a fifth to all, sides 3:4 to 4:3, anywhere, mirrored half of the time."""
    torch.manual_seed(0)
    crops = cropped(ramp().expand(3000, -1, -1, -1))
    stretch = 64 / 40  # between places 12 and 52, away from the border
    wide = (crops[:, 0, 32, 52] - crops[:, 0, 32, 12]) * stretch
    tall = (crops[:, 1, 52, 32] - crops[:, 1, 12, 32]) * stretch
    area = wide.abs() * tall
    assert (wide < 0).double().mean() == pytest.approx(0.5, abs=0.03)
    assert 0.195 < area.min() < 0.22
    assert area.max() <= 1.001
    assert area.mean() == pytest.approx(0.59, abs=0.02)  # 0.6, less where a side would be too long
    ratio = wide.abs() / tall
    assert 0.745 < ratio.min() < 0.76
    assert 1.31 < ratio.max() < 1.34
    middle = crops[:, 0, 32, 32]
    assert middle.mean() == pytest.approx(0.5, abs=0.01)
    assert (
        cropped(ramp()[None].expand(50, -1, -1, -1), mirrored=False)[:, 0].diff(dim=2) >= 0
    ).all()


def test_colours_have_the_stated_law() -> None:
    torch.manual_seed(0)
    grey = torch.full((4000, 3, 2, 2), 0.5)  # brightness alone changes it
    found = recoloured(grey)
    assert (found - found.mean(dim=(1, 2, 3), keepdim=True)).abs().max() < 1e-5
    factor = found[:, 0, 0, 0] / 0.5
    assert (factor == 1).double().mean() < 0.25
    assert ((factor - 1).abs() < 1e-4).double().mean() == pytest.approx(0.2, abs=0.03)
    assert factor.min() == pytest.approx(0.6, abs=0.01)
    assert factor.max() == pytest.approx(1.4, abs=0.01)
    colour = torch.tensor([0.6, 0.4, 0.3]).view(1, 3, 1, 1).expand(4000, 3, 2, 2)
    found = recoloured(colour)[:, :, 0, 0]
    spread = found.max(dim=1).values - found.min(dim=1).values
    assert (spread < 1e-5).double().mean() == pytest.approx(0.2, abs=0.03)
    hues = torch.tensor([colorsys.rgb_to_hsv(*row)[0] for row in found[spread > 0.05].tolist()])
    turned = (hues - colorsys.rgb_to_hsv(0.6, 0.4, 0.3)[0] + 0.5) % 1 - 0.5
    assert turned.abs().max() < 0.16  # a tenth of a turn, in another plane
    assert turned.max() > 0.07
    assert turned.min() < -0.07


def test_recolouring_leaves_lightness_to_brightness_and_contrast() -> None:
    """Hue and saturation move no lightness; contrast moves none on the average of an image."""
    torch.manual_seed(3)
    images = 0.4 + 0.1 * torch.rand(200, 3, 6, 6)
    luma = torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)
    before, after = ((x * luma).sum(dim=1) for x in (images, recoloured(images)))
    factor = after.mean(dim=(1, 2)) / before.mean(dim=(1, 2))
    assert 0.599 < factor.min() < factor.max() < 1.401
    spread = (after.std(dim=(1, 2)) / before.std(dim=(1, 2))) / factor
    assert 0.599 < spread.min() < 0.65
    assert 1.35 < spread.max() < 1.401
