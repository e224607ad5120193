"""Which way to a weight's per-example norms is cheaper: the whole cost model.

For U units, T places, and a weight of ``rows x columns``:

===========  ==========================================  =================================
way          arithmetic (multiply-adds)                  memory moved (numbers)
===========  ==========================================  =================================
instantiate  U T rows columns                            3 U rows columns
ghost        U T^2 (rows + columns) + U T rows columns   4 U T^2 + U T (rows + columns)
===========  ==========================================  =================================

*Instantiate* writes every example's gradient, reads it for the norm and reads it for the sum.
*Ghost* forms two T x T Gram matrices for the norm and one ordinary weight gradient for the sum. A
number moved costs as much as ``MOVE`` multiply-adds on the device. Ways that would fill the memory
are avoided while the other does not.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LARGEST", "MOVE", "prefer_ghost"]

MOVE: Mapping[str, float] = {"cpu": 3.0, "cuda": 64.0}
"""Multiply-adds in the time that one number takes to or from memory, by device."""

LARGEST = 2**29
"""The most numbers to hold at once (2 GiB in float32)."""


def prefer_ghost(units: int, places: int, rows: int, columns: int, device: str = "cpu") -> bool:
    """Whether Gram matrices beat writing every example's gradient."""
    if places == 1:
        return True  # the norm of an outer product is the product of the norms
    grams, written = 2 * units * places**2, units * rows * columns
    if max(grams, written) > LARGEST:
        return grams < written
    move = MOVE.get(device, MOVE["cuda"])
    gram = places**2 * (rows + columns) + move * (4 * places**2 + places * (rows + columns))
    return gram < move * 3 * rows * columns
