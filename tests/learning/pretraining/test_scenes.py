"""Two pictures of one made-up thing."""

import torch

from sfumato.learning.pretraining import random_images, random_pairs
from sfumato.learning.pretraining.scenes import _things, scenes


def coins(seed=0):
    return torch.Generator().manual_seed(seed)


def test_pictures_come_in_pairs_between_0_and_1():
    pairs = scenes(6, 16, coins())
    assert pairs.shape == (6, 2, 3, 16, 16)
    assert pairs.isfinite().all()
    assert pairs.min() >= 0
    assert pairs.max() <= 1
    assert not torch.equal(pairs[:, 0], pairs[:, 1])


def test_two_pictures_of_one_thing_are_more_alike_than_those_of_two_things():
    """In the middle, where things are: their colours are the same for half of the pairs."""
    pairs = scenes(256, 32, coins(1))[..., 10:22, 10:22].mean((3, 4))
    apart = torch.cdist(pairs[:, 0], pairs[:, 1])
    same, other = apart.diagonal(), apart[~torch.eye(256, dtype=torch.bool)]
    assert same.mean() < 0.9 * other.mean()
    assert same.max() > 0.5 * other.mean()  # and of the other half they are not


def test_symmetric_things_have_their_parts_in_pairs():
    things = _things(200, coins(2))
    left, right = things.places[:, 1::2][:, :4], things.places[:, 2::2]
    mirrored = (left * torch.tensor([-1.0, 1.0]) == right).all(dim=(1, 2))
    assert 0.45 < mirrored.float().mean() < 0.75
    for values in (things.lengths, things.widths, things.there, things.materials):
        assert torch.equal(values[mirrored][:, 1::2][:, :4], values[mirrored][:, 2::2])
    assert things.there[:, 0].all()
    assert not things.behind[:, 0].any()


def test_a_single_image_is_the_first_of_its_pair():
    pairs = random_pairs("mixed", 9, 16, seed=4)
    assert torch.equal(random_images("mixed", 9, 16, seed=4), pairs[:, 0])
    same = (pairs[:, 0] == pairs[:, 1]).flatten(1).all(1)
    assert same.tolist() == [False, True] * 4 + [False]  # every other one is a scene
