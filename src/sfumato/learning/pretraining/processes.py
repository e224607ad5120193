"""Random processes by name.

>>> random_images("mixed", 4, 16, seed=7).shape
torch.Size([4, 3, 16, 16])
>>> random_pairs("scenes", 4, 16, seed=7).shape
torch.Size([4, 2, 3, 16, 16])
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.pretraining.leaves import dead_leaves
from sfumato.learning.pretraining.oriented import oriented_images
from sfumato.learning.pretraining.scenes import scenes

__all__ = ["PROCESSES", "process_called", "random_images", "random_pairs"]

_Process = Callable[[int, int, torch.Generator], Tensor]
_CHUNK = 1024  # pairs made at a time


def _leaves(count: int, side: int, coins: torch.Generator) -> Tensor:
    return _twice(dead_leaves(count, side, coins))


def _oriented(count: int, side: int, coins: torch.Generator) -> Tensor:
    return _twice(oriented_images(count, side, coins))


def _mixed(count: int, side: int, coins: torch.Generator) -> Tensor:
    """Every other pair is of a scene; leaves and oriented images share the rest."""
    quarter = -(-count // 4)
    things = scenes(2 * quarter, side, coins).chunk(2)
    others = _leaves(quarter, side, coins), _oriented(quarter, side, coins)
    return torch.stack([things[0], others[0], things[1], others[1]], 1).flatten(0, 1)[:count]


def _twice(images: Tensor) -> Tensor:
    """Each image as a pair with itself."""
    return images.unsqueeze(1).expand(-1, 2, -1, -1, -1)


PROCESSES: dict[str, _Process] = {
    "mixed": _mixed,
    "scenes": scenes,
    "dead-leaves": _leaves,
    "oriented": _oriented,
}
"""From a name to a function of (count, side, coins) that gives two images of each thing."""


def process_called(name: str) -> _Process:
    """The process of this name.

    Raises:
        ValueError: if there is none.
    """
    if name not in PROCESSES:
        validation.fail("process", f"one of {', '.join(PROCESSES)}", name)
    return PROCESSES[name]


def random_images(
    name: str, count: int, side: int, *, seed: int, device: str | torch.device = "cpu"
) -> Tensor:
    """The first images of :func:`random_pairs`: (count, 3, side, side)."""
    return random_pairs(name, count, side, seed=seed, device=device)[:, 0]


def random_pairs(
    name: str,
    count: int,
    side: int,
    *,
    seed: int,
    device: str | torch.device = "cpu",
    told: Callable[[int, int], object] = lambda done, total: None,
) -> Tensor:
    """Two images of each of so many things, as bytes; a function of the seed and the device.

    Of scenes they are two pictures; of processes that make one image of a thing, that image twice.

    Args:
        name: one of :data:`PROCESSES`.
        count: how many things.
        side: in pixels, 8 or above, a power of two.
        seed: of everything that is drawn.
        device: where they are made, and stay.
        told: how many are made, of how many.

    Returns:
        (count, 2, 3, side, side)
    """
    process = process_called(name)
    validation.count("count", count)
    if validation.at_least("side", side, 8) & (side - 1):
        validation.fail("side", "a power of two", side)
    coins = torch.Generator(device).manual_seed(seed)
    found = torch.empty(count, 2, 3, side, side, dtype=torch.uint8, device=device)
    for start in range(0, count, _CHUNK):
        made = process(min(_CHUNK, count - start), side, coins)
        found[start : start + len(made)] = (255 * made).round().to(torch.uint8)
        told(start + len(made), count)
    return found
