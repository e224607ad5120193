"""How much noise a network's shape asks for: by the valid bound, by the printed one, and clipped.

    >>> one = noise_bounds((10, 10), inputs=10)
    >>> round(one.printed, 2), one.valid, one.clipped
    (15.15, 277.8125, 2.0)
    >>> round(noise_bounds((10, 10, 10), inputs=10).printed, 1)
    43.0
    >>> round(noise_bounds((300, 10), inputs=784).printed, 1), noise_bounds((10, 10), 784).valid
    (454.5, 15395.0)

Without clipping, one record's slopes and curvatures can be as large as weights and activations let
them, and the noise grows with the product of the widths: depth multiplies. Clipping to C makes the
noise 2 C / epsilon for a replacement whatever the shape; what grows instead is the number of sums
that it is added to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.mechanisms.sensitivity import network_bound, printed_network_bound

if TYPE_CHECKING:
    from sfumato.reports.style import Drawing

__all__ = ["NoiseBounds", "noise_bounds", "noise_figure"]


@final
@dataclass(frozen=True)
class NoiseBounds:
    """L1 sensitivities for a replaced record; divided by epsilon they are scales of noise.

    Attributes:
        widths: of the layers, the outputs last.
        inputs: how many.
        printed: the theorem as presented. **Not a bound**: see
            :func:`~sfumato.learning.functional.printed.counterexample`.
        valid: of every network of sigmoids with weights between -1 and 1, inputs and targets
            between 0 and 1.
        clipped: 2 C.
    """

    widths: tuple[int, ...]
    inputs: int
    printed: float
    valid: float
    clipped: float


def noise_bounds(widths: Sequence[int], inputs: int, clip: float = 1.0) -> NoiseBounds:
    """All three for one shape, without biases.

    Raises:
        ValueError: for widths that are no whole numbers above 0.
    """
    valid = network_bound(widths, inputs, Neighbours.REPLACE_ONE).bound
    twice = 2 * validation.positive("clip", clip)
    return NoiseBounds(tuple(widths), inputs, printed_network_bound(widths), valid, twice)


def noise_figure(
    widths: Sequence[int] = (2, 5, 10, 20, 50, 100),
    depths: Sequence[int] = (1, 2, 3, 4),
    *,
    inputs: int = 10,
    clip: float = 1.0,
) -> Drawing:
    """The valid bound against the width of all layers, a line for each depth; dashed, as printed.

    Nothing in it is private. ``.save("noise.png")`` writes it.
    """
    from sfumato.reports.style import COLOURS, INK, new_figure

    title = "Noise at epsilon 1, by the network's shape"
    figure, axes = new_figure(title, "units in each layer", "scale of Laplace noise")
    for place, depth in enumerate(depths):
        known = [noise_bounds((width,) * depth, inputs, clip) for width in widths]
        colour = COLOURS[place % len(COLOURS)]
        name = f"{depth} layer{'s' if depth > 1 else ''}"
        axes.plot(list(widths), [k.valid for k in known], color=colour, label=f"{name}, valid")
        axes.plot(
            list(widths), [k.printed for k in known], color=colour, linestyle="--",
            label=f"{name}, as printed",
        )  # fmt: skip
    axes.axhline(2 * clip, color=INK, linestyle=":", label=f"clipped to {clip:g}, any shape")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(frameon=False, fontsize=8, ncols=2)
    return figure
