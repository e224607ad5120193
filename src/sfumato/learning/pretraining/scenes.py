"""Scenes: one made-up thing each, before a background, seen twice.

A *thing* is a plan of parts: a body, and parts that sit on it or on each other, many in pairs as
legs, wheels and wings are. Two pictures of one thing have its plan in common and nothing else for
sure: where it is, how it is turned, how its parts bend, its light, its textures, its background
and, by a coin, its colours are drawn anew for each. So a network that is to tell things apart has
to look at shapes and how they are put together, which is what names of things go by; crops of a
single picture can be told by their colours and textures alone.

No data is in it: sizes, joints, colours and lights are random numbers within constants below.

References: learning from made-up images: Baradad et al., arXiv:2106.05963; pairs that a generator
draws twice from one description: Jahanian et al., "Generative models as a data source for
multiview representation learning", arXiv:2106.05258. The things are our own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from sfumato.learning.pretraining.draws import between, normal, uniform
from sfumato.learning.pretraining.oriented import oriented_images

__all__ = ["scenes"]

_PARTS = 10  # of a thing, the body included
_THERE = 0.75  # how often a part is
_PAIRED = 0.6  # how many things are symmetric
_MATERIALS = 3
_POWERS = (1.2, 2.0, 2.0, 3.0, 8.0)  # of superellipses: from diamonds to boxes
_BODY = (0.2, 0.42)  # half its length, as a share of the picture's side
_SAME_COLOURS = 0.5  # how many pairs share them
_EDGE = 0.6  # pixels over which an edge is soft


@dataclass(frozen=True)
class _Things:
    """Plans of n things, (n, parts) each; lengths are shares of the picture's side.

    The body is part 0, centred, its length along the first axis.
    """

    places: Tensor  # (n, parts, 2)
    lengths: Tensor
    widths: Tensor
    angles: Tensor
    powers: Tensor
    tapers: Tensor
    there: Tensor
    behind: Tensor
    materials: Tensor


def scenes(count: int, side: int, coins: torch.Generator) -> Tensor:
    """Two pictures of each of so many things: (count, 2, 3, side, side) in [0, 1].

    Args:
        count: how many things.
        side: in pixels: 8, 16, 32, ...
        coins: a generator; pictures are made on its device.
    """
    things = _things(count, coins)
    shared = uniform((count, 1, 1), coins) < _SAME_COLOURS
    first, second = _palette(count, coins), _palette(count, coins)
    pictures = [
        _picture(things, colours, side, coins)
        for colours in (first, torch.where(shared, first, second))
    ]
    return torch.stack(pictures, 1)


# --- things ---------------------------------------------------------------------------------------


def _things(n: int, coins: torch.Generator) -> _Things:
    lengths, widths, angles = (torch.zeros(n, _PARTS, device=coins.device) for _ in range(3))
    places = torch.zeros(n, _PARTS, 2, device=coins.device)
    lengths[:, 0] = between(*_BODY, (n,), coins)
    widths[:, 0] = lengths[:, 0] * between(0.35, 1.0, (n,), coins)
    paired = uniform((n,), coins) < _PAIRED
    for part in range(1, _PARTS):
        _join(part, places, lengths, widths, angles, coins)
        if part % 2 == 0:
            _mirror(part, paired, places, lengths, widths, angles)
    powers = torch.tensor(_POWERS, device=coins.device)
    like = _pairwise(torch.randint(len(_POWERS), (n, _PARTS), generator=coins, device=coins.device),
                     paired)  # fmt: skip
    materials = torch.randint(_MATERIALS, (n, _PARTS), generator=coins, device=coins.device)
    there = _pairwise(uniform((n, _PARTS), coins) < _THERE, paired)
    there[:, 0] = True
    behind = _pairwise(uniform((n, _PARTS), coins) < 0.5, paired)
    behind[:, 0] = False
    return _Things(
        places, lengths, widths, angles, powers[like],
        _pairwise(between(-0.6, 0.6, (n, _PARTS), coins), paired), there, behind,
        _pairwise(materials, paired),
    )  # fmt: skip


def _join(
    part: int, places: Tensor, lengths: Tensor, widths: Tensor, angles: Tensor, coins
) -> None:
    """Puts a part onto the edge of the body or of one that is there already, or inside of it."""
    n = len(places)
    rows = torch.arange(n, device=places.device)
    earlier = torch.randint(part, (n,), generator=coins, device=places.device)
    parent = torch.where(uniform((n,), coins) < 0.7, 0, earlier)
    around = 2 * math.pi * uniform((n,), coins)
    far = between(0.4, 1.1, (n,), coins)
    along = far * lengths[rows, parent] * around.cos()
    across = far * widths[rows, parent] * around.sin()
    turn = angles[rows, parent]
    where = torch.stack(
        [turn.cos() * along - turn.sin() * across, turn.sin() * along + turn.cos() * across], 1
    )
    places[:, part] = places[rows, parent] + where
    size = (lengths[rows, parent] * widths[rows, parent]).sqrt()
    lengths[:, part] = (size * between(0.2, 0.9, (n,), coins)).clamp(min=0.025)
    widths[:, part] = lengths[:, part] * between(0.2, 1.0, (n,), coins)
    outwards = torch.atan2(where[:, 1], where[:, 0])
    angles[:, part] = outwards + 0.5 * normal((n,), coins)


def _mirror(part: int, paired: Tensor, places, lengths, widths, angles) -> None:
    """The same part as the one before it, on the other side of the body."""
    for values in (lengths, widths):
        values[:, part] = torch.where(paired, values[:, part - 1], values[:, part])
    other = places[:, part - 1] * places.new_tensor([-1.0, 1.0])
    places[:, part] = torch.where(paired.unsqueeze(1), other, places[:, part])
    angles[:, part] = torch.where(paired, math.pi - angles[:, part - 1], angles[:, part])


def _pairwise(values: Tensor, paired: Tensor) -> Tensor:
    """Parts 2, 4, ... of symmetric things have what parts 1, 3, ... have."""
    same = values.clone()
    last = 2 * ((_PARTS - 1) // 2)
    same[:, 2 : last + 1 : 2] = values[:, 1:last:2]
    return torch.where(paired.unsqueeze(1), same, values)


# --- pictures -------------------------------------------------------------------------------------


def _picture(things: _Things, colours: Tensor, side: int, coins: torch.Generator) -> Tensor:
    """One picture of each thing, in a pose, a light and before a background of its own."""
    n = len(colours)
    textures = oriented_images(2 * n, side, coins)
    textures = textures - textures.mean((2, 3), keepdim=True)
    surface, ground = textures.chunk(2)
    picture = _background(ground, coins)
    rows, columns = _pose(n, side, coins)
    light = between(0.0, 2 * math.pi, (n, 1, 1), coins)
    relief = between(0.0, 0.5, (n, 1, 1), coins)
    rough = between(-0.4, 1.2, (n, _MATERIALS), coins).clamp(min=0)
    seen = _bent(things, coins)
    for part in range(_PARTS):
        cover, shade = _part(seen, part, rows, columns, light, side)
        material = seen.materials[:, part].view(n, 1, 1).expand(n, 1, 3)
        colour = colours.gather(1, material).view(n, 3, 1, 1)
        grain = rough.gather(1, seen.materials[:, part : part + 1]).view(n, 1, 1, 1)
        filled = (colour + grain * surface) * (1 + relief * shade).unsqueeze(1)
        cover = (cover * seen.there[:, part].view(n, 1, 1)).unsqueeze(1)
        picture = picture + cover * (filled - picture)
    return _seen(picture, coins)


def _bent(things: _Things, coins: torch.Generator) -> _Things:
    """Parts a little turned and grown, but for the body's turn; those behind come first."""
    turned = 0.2 * normal(things.angles.shape, coins)
    turned[:, 0] = 0.0
    grown = (0.12 * normal(things.places.shape, coins)).exp()
    changed = replace(
        things, angles=things.angles + turned, lengths=things.lengths * grown[..., 0],
        widths=things.widths * grown[..., 1],
    )  # fmt: skip
    order = things.behind.logical_not().int().argsort(dim=1, stable=True)
    rows = torch.arange(len(order), device=order.device).unsqueeze(1)
    return _Things(*(getattr(changed, field.name)[rows, order] for field in fields(changed)))


def _part(
    things: _Things, part: int, rows: Tensor, columns: Tensor, light: Tensor, side: int
) -> tuple[Tensor, Tensor]:
    """How much of each pixel a part covers, and how its roundness is lit there."""
    each = (len(rows), 1, 1)
    right = columns - things.places[:, part, 0].view(each)
    down = rows - things.places[:, part, 1].view(each)
    angle = things.angles[:, part].view(each)
    along = angle.cos() * right + angle.sin() * down
    across = angle.cos() * down - angle.sin() * right
    length, width = things.lengths[:, part].view(each), things.widths[:, part].view(each)
    x = along / length
    narrow = (1 + things.tapers[:, part].view(each) * x.clamp(-1, 1)).clamp(min=0.2)
    y = across / (width * narrow)
    power = things.powers[:, part].view(each)
    distance = (x.abs().clamp(max=4) ** power + y.abs().clamp(max=4) ** power + 1e-9) ** (1 / power)
    cover = ((1 - distance) * (width * side) / _EDGE).clamp(-8, 8).sigmoid()
    shade = (light - angle).cos() * x + (light - angle).sin() * y
    return cover, shade.clamp(-1, 1)


def _pose(n: int, side: int, coins: torch.Generator) -> tuple[Tensor, Tensor]:
    """Where pixels are on the plane of the things: turned, mirrored, moved and scaled."""
    places = (torch.arange(side, device=coins.device) + 0.5) / side - 0.5
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    turn = 0.3 * normal((n, 1, 1), coins)
    scale = between(0.75, 1.35, (n, 1, 1), coins)
    mirrored = torch.where(uniform((n, 1, 1), coins) < 0.5, -1.0, 1.0)
    down = rows - between(-0.12, 0.12, (n, 1, 1), coins)
    right = columns - between(-0.12, 0.12, (n, 1, 1), coins)
    along = mirrored * (turn.cos() * right + turn.sin() * down)
    return (turn.cos() * down - turn.sin() * right) / scale, along / scale


def _background(texture: Tensor, coins: torch.Generator) -> Tensor:
    """Two colours that pass into each other, slowly or at a horizon, with some texture."""
    n, side = len(texture), texture.shape[-1]
    places = (torch.arange(side, device=coins.device) + 0.5) / side - 0.5
    rows, columns = torch.meshgrid(places, places, indexing="ij")
    angle = 0.5 * normal((n, 1, 1), coins)
    steep = between(0.5, 4.0, (n, 1, 1), coins).exp()
    level = between(-0.3, 0.3, (n, 1, 1), coins)
    share = (steep * (angle.cos() * rows + angle.sin() * columns - level)).sigmoid().unsqueeze(1)
    above, below = _colours((n, 3), coins), _colours((n, 3), coins)
    above, below = above.view(n, 3, 1, 1), below.view(n, 3, 1, 1)
    strength = between(-0.2, 1.2, (n, 1, 1, 1), coins).clamp(min=0)
    return above + share * (below - above) + strength * texture


def _palette(n: int, coins: torch.Generator) -> Tensor:
    return _colours((n, _MATERIALS, 3), coins)


def _colours(shape: tuple[int, ...], coins: torch.Generator) -> Tensor:
    """Colours, more of them near grey than not."""
    hues, greys = uniform(shape, coins), uniform((*shape[:-1], 1), coins)
    saturation = uniform((*shape[:-1], 1), coins).square()
    return greys + (0.1 + 0.7 * saturation) * (hues - greys)


def _seen(picture: Tensor, coins: torch.Generator) -> Tensor:
    """Through a lens: blurred by a coin, with a little noise."""
    n = len(picture)
    blurred = F.avg_pool2d(F.pad(picture, [1] * 4, mode="replicate"), 3, 1)
    share = between(-0.5, 1.0, (n, 1, 1, 1), coins).clamp(min=0)
    noise = normal(picture.shape, coins)
    grain = 0.03 * uniform((n, 1, 1, 1), coins)
    return (picture + share * (blurred - picture) + grain * noise).clamp(0, 1)
