"""Means over squares of pixels, which several methods share."""

import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.learning import functional
from sfumato.learning.adaptive_laplace import AdaptiveLaplaceRecipe
from sfumato.learning.features import FeatureMap, MeanPool


def test_means_over_squares():
    pool = MeanPool(2)
    images = torch.arange(2 * 5 * 4).reshape(2, 1, 5, 4).float()
    expected = torch.nn.functional.avg_pool2d(images, 2)
    assert torch.equal(pool.build((1, 5, 4))(images), expected)
    assert pool.out_shape((1, 5, 4)) == (1, 2, 2)
    assert pool.fit(torch.nn.Identity(), images, SeededCoins(1)) is None
    with pytest.raises(ValueError, match="side must be at most 4"):
        MeanPool(5).out_shape((1, 5, 4))


def test_an_image_has_its_means_to_the_bit_and_within_its_range():
    images = torch.rand(500, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    images[0] = 1.0
    module = MeanPool(3).build((1, 28, 28))
    together = module(images)
    alone = torch.cat([module(image[None]) for image in images])
    assert torch.equal(together, alone)
    assert together.min() >= 0
    assert together.max() <= 1


def test_it_is_one_class_for_all():
    assert functional.MeanPool is MeanPool
    assert FeatureMap.from_dict({"kind": "mean-pool", "side": 3}) == MeanPool(3)
    assert AdaptiveLaplaceRecipe(1.0, pool=3).pooling == MeanPool(3)
    assert AdaptiveLaplaceRecipe(1.0).pooling.kind == "none"
