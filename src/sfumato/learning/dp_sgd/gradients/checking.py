"""Whether kernels compute what PyTorch does: on this GPU, for these sizes.

A compiler can be wrong where its source is right: for one size of a convolution, ptxas 12.8 left
four places out of a sum (see :mod:`~sfumato.learning.dp_sgd.kernels.products_triton`). If norms and
sums speak of different vectors, nothing bounds what one unit contributes. So a kernel is believed
only after it has been compared, once for each size and type, with its twin.

Factors are made up of 1 and -1, and weights of 0, 1 and 2. Products are whole numbers then, exact
in float32, and one term too few in a sum of millions shows as a difference of 1. Numbers of the
data are never looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Hashable
from typing import Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from sfumato.learning.dp_sgd.kernels import products, twins

__all__ = ["Use", "believed", "forget"]

Use = Literal["written", "gram", "gram, scaled", "direct", "one place", "row facts"]
"""A way to the norms, and to the sum that goes with it."""

_UNITS = 64  # are compared, whatever the lot
_AT_ONCE = 1 << 26  # numbers of a part of the twin's work
_MOST_OFF, _ROUNDING = 1e-4, 1e-5  # of squares
_believed: dict[Hashable, bool] = {}


def forget() -> None:
    """All is compared anew."""
    _believed.clear()


def believed(
    use: Use, x: Tensor, g: Tensor, geometry: list[int], units: int, everywhere: bool = False
) -> bool:
    """Whether to take the kernels; if not, a warning says so.

    Args:
        use: which ones.
        x: (n, height, width, channels), real or made up by a tracer: its sizes matter.
        g: (n, out height, out width, rows).
        geometry: kernel, stride, padding, dilation.
        units: U.
        everywhere: also where no kernels run, for tests.
    """
    if not (everywhere or products.by_kernel(x)):
        return True
    copies = len(x) // units
    sizes = tuple(x.shape[1:]), tuple(g.shape[1:]), tuple(geometry), copies  # lots differ in length
    key = (use, str(x.device), x.dtype, sizes)
    if key not in _believed:
        with (
            _disable_current_modes(),  # real tensors, also while a graph is traced
            torch.no_grad(),
            torch.autocast(x.device.type, enabled=False),
        ):
            rows = _UNITS * copies
            made = [_signs(f, (rows, *f.shape[1:]), seed) for seed, f in enumerate((x, g))]
            _believed[key] = _CHECKS[use](_Made(made[0], made[1], geometry, _UNITS))
        if not _believed[key]:
            warnings.warn(
                f"the kernels for {use!r} differ from PyTorch for inputs of {sizes[0]} and output "
                f"gradients of {sizes[1]} on {x.device}: PyTorch's own functions are used there, "
                "which take more time and memory. Please report it, with the versions of torch and "
                "triton",
                RuntimeWarning,
                stacklevel=2,
            )
    return _believed[key]


def _signs(like: Tensor, shape: tuple[int, ...], seed: int) -> Tensor:
    """1 and -1, the same every time."""
    generator = torch.Generator(like.device).manual_seed(seed)
    drawn = torch.randint(0, 2, shape, generator=generator, device=like.device, dtype=torch.int8)
    return (2 * drawn - 1).to(like.dtype)


class _Made:
    """Factors, weights, and what the twin says of them, part by part."""

    def __init__(self, x: Tensor, g: Tensor, geometry: list[int], units: int) -> None:
        self.x, self.g, self.geometry, self.units = x, g, geometry, units
        self.weights = (torch.arange(units, device=x.device) % 3).float()

    @property
    def all(self) -> tuple[Tensor, Tensor, list[int], int]:
        """What operators take."""
        return self.x, self.g, self.geometry, self.units

    def parts(self) -> Generator[tuple[slice, Tensor, Tensor]]:
        """Some units at a time: which ones, and their factors."""
        shape = products.shape_of(*self.all)
        each = shape.places * (shape.columns + shape.rows + shape.places)
        several = max(1, _AT_ONCE // max(each, shape.rows * shape.columns))
        copies = len(self.x) // self.units
        for first in range(0, self.units, several):
            last = min(self.units, first + several)
            rows = slice(first * copies, last * copies)
            yield slice(first, last), self.x[rows], self.g[rows]

    def formed(self) -> Generator[tuple[slice, Tensor]]:
        """Some units' products at a time."""
        for which, x, g in self.parts():
            yield which, twins.written(x, g, self.geometry, which.stop - which.start)

    def sums_to(self, found: Tensor) -> bool:
        """Whether this is the weighted sum."""
        total = torch.zeros_like(found)
        for which, every in self.formed():
            total += (self.weights[which].view(-1, 1, 1) * every).sum(0)
        return _same(found, total)

    def has_squares(self, found: Tensor) -> bool:
        """Whether these are the squared norms."""
        return all(
            self.near(found[which], every.flatten(1).square().sum(1))
            for which, every in self.formed()
        )

    def near(self, found: Tensor, expected: Tensor) -> bool:
        """Of sums of squares, of which one place too few takes about one part in all places."""
        off = min(_MOST_OFF, max(_ROUNDING, 0.25 / products.shape_of(*self.all).places))
        return bool(((found - expected).abs() <= 0.5 + off * expected.abs()).all())


def _same(found: Tensor, expected: Tensor) -> bool:
    """Of whole numbers, which float32 holds up to 2^24; beyond, as near as it does."""
    return bool(((found - expected).abs() <= 0.5 + 2.0**-22 * expected.abs()).all())


def _written(made: _Made) -> bool:
    squares, every = products.written(*made.all)
    formed = all(_same(every[which], expected) for which, expected in made.formed())
    return formed and made.has_squares(squares)


def _direct(made: _Made) -> bool:
    return made.has_squares(products.direct_norms(*made.all)) and _summed(made)


def _summed(made: _Made) -> bool:
    x, g, geometry, units = made.all
    return made.sums_to(products.weighted_sum(x, g, made.weights, geometry, units))


def _grams(made: _Made) -> bool:
    pairs, places = products.gram_facts(*made.all)
    for which, x, g in made.parts():
        expected = twins.gram(x, g, made.geometry, which.stop - which.start)
        found = pairs[which], places[which]
        if not all(made.near(*both) for both in zip(found, expected, strict=True)):
            return False
    return True


def _gram(made: _Made) -> bool:
    return _grams(made) and _summed(made)


def _gram_scaled(made: _Made) -> bool:
    summed = products.scaled_sum(made.x, made.g, made.weights, made.units)
    return _grams(made) and made.sums_to(summed)


def _one_place(made: _Made) -> bool:
    rows = made.x.flatten(1), made.g.flatten(1)
    lengths = all(
        made.near(products.row_lengths(row).square(), row.float().square().sum(1)) for row in rows
    )
    return lengths and made.sums_to(products.weighted_rows(*rows, made.weights))


def _row_facts(made: _Made) -> bool:
    x, g, geometry, units = made.all
    shape = products.shape_of(x, g, geometry, units)
    like = x.new_empty(0, dtype=torch.float32)
    directions = _signs(like, (shape.rows, shape.columns), 2)
    facts = products.row_facts(x, g, directions, geometry, units)
    for which, every in made.formed():
        expected = every.square(), every, every * directions
        if not made.near(facts[which], torch.stack([part.sum(2) for part in expected], 2)):
            return False
    return _summed(made)


_CHECKS: dict[Use, Callable[[_Made], bool]] = {
    "written": _written,
    "gram": _gram,
    "gram, scaled": _gram_scaled,
    "direct": _direct,
    "one place": _one_place,
    "row facts": _row_facts,
}
