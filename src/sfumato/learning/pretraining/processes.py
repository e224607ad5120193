"""Random processes by name.

>>> random_images("mixed", 4, 16, seed=7).shape
torch.Size([4, 3, 16, 16])
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.core import validation
from sfumato.learning.pretraining.leaves import dead_leaves
from sfumato.learning.pretraining.oriented import oriented_images

__all__ = ["PROCESSES", "process_called", "random_images"]

_Process = Callable[[int, int, torch.Generator], Tensor]
_CHUNK = 1024  # images made at a time


def _mixed(count: int, side: int, coins: torch.Generator) -> Tensor:
    """Every other image of each."""
    leaves = dead_leaves(-(-count // 2), side, coins)
    oriented = oriented_images(-(-count // 2), side, coins)
    return torch.stack([leaves, oriented], 1).flatten(0, 1)[:count]


PROCESSES: dict[str, _Process] = {
    "mixed": _mixed,
    "dead-leaves": dead_leaves,
    "oriented": oriented_images,
}
"""From a name to a function of (count, side, coins)."""


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
    """Images (count, 3, side, side) of a process, as bytes; a function of the seed and the device.

    Args:
        name: one of :data:`PROCESSES`.
        count: how many.
        side: in pixels, 8 or above, a power of two.
        seed: of everything that is drawn.
        device: where they are made, and stay.
    """
    process = process_called(name)
    validation.count("count", count)
    if validation.at_least("side", side, 8) & (side - 1):
        validation.fail("side", "a power of two", side)
    coins = torch.Generator(device).manual_seed(seed)
    found = torch.empty(count, 3, side, side, dtype=torch.uint8, device=device)
    for start in range(0, count, _CHUNK):
        made = process(min(_CHUNK, count - start), side, coins)
        found[start : start + len(made)] = (255 * made).round().to(torch.uint8)
    return found
