"""Pieces: one parameter's per-example gradients, in whatever form is cheapest to keep.

Every piece answers three questions: each unit's squared norm, the weighted sum over units, and, if
need be, all gradients written out. Norms are formed in float32 at least, sums in blocks that
float64 adds up (:mod:`~sfumato.learning.dp_sgd.gradients.summing`).

Units whose weight is 0 contribute exactly nothing, even where their numbers are NaN or infinite:
they are blanked, not multiplied away.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.gradients import summing
from sfumato.learning.dp_sgd.gradients.cost import prefer_ghost
from sfumato.learning.dp_sgd.gradients.summing import weigh, zero_rows

__all__ = [
    "Direct",
    "Outer",
    "Piece",
    "Stacked",
    "Tied",
    "combine",
    "exact",
    "exact_type",
    "gram_norms",
    "named_norms",
    "row_norms",
]

_BLOCK, _LONG = 1024, 8192


def exact_type(dtype: torch.dtype) -> torch.dtype:
    """The precision of norms and sums: float32, or float64 for float64."""
    return dtype if dtype == torch.float64 else torch.float32


def exact(tensor: Tensor) -> Tensor:
    """The same numbers in the precision of norms and sums."""
    return tensor.to(exact_type(tensor.dtype))


def gram_norms(left: Tensor, right: Tensor, spread: float = math.inf) -> Tensor:
    """|sum_t left_t right_t^T|^2 for each of (n, T, rows) and (n, T, columns).

    It is sum_{t,s} (left_t . left_s)(right_t . right_s). The terms may cancel where their rounding
    does not: with n-term inner products in unit roundoff u the error is about sqrt(n) u S^2, S =
    sum_t |left_t| |right_t| (Higham and Mary, "A new approach to probabilistic rounding error
    analysis", 2019). Four times that is added, so that no gradient passes for shorter than it is;
    so is what products too small for the number format may have lost, each at most ``tiny``. No
    norm is below S / ``spread``: of less, the sum over units could lose more than it is allowed.
    """
    left_gram, right_gram = _gram(left), _gram(right)
    total = (left_gram * right_gram).flatten(1).sum(1)
    widths = left.shape[2], right.shape[2]
    small = [width * torch.finfo(right.dtype).tiny for width in widths]
    lengths = [
        (gram.diagonal(dim1=1, dim2=2) + lost).sqrt()
        for gram, lost in zip((left_gram, right_gram), small, strict=True)
    ]
    slack = 4 * math.sqrt(right.shape[1] + sum(widths)) * torch.finfo(right.dtype).eps / 2
    whole = (lengths[0] * lengths[1]).sum(1).square()
    lost = [s * other.sum(1).square() for s, other in zip(small, reversed(lengths), strict=True)]
    found = total.clamp(min=0) + slack * whole + lost[0] + lost[1]
    return torch.maximum(found, whole / spread**2)


def named_norms(names: Tensor, right: Tensor) -> Tensor:
    """|sum_t e_{names_t} right_t^T|^2 for each of (n, T) names of rows and (n, T, columns).

    Places of the same name are added up at the first of them: a gradient of the sequence's length,
    not the vocabulary's. Added up in another order for the sum, where places cancel it may differ
    by about sqrt(T) u sum_t |right_t|: four times that is added.
    """
    count, places, columns = right.shape
    position = torch.arange(places, device=names.device)
    same = names.unsqueeze(1) == names.unsqueeze(2)
    first = torch.where(same, position, places).amin(2)
    start = torch.arange(count, device=names.device).view(-1, 1) * places
    sums = right.new_zeros((count * places, columns))
    sums = sums.index_add(0, (first + start).flatten(), right.flatten(0, 1))
    norms = row_norms(sums.view(count, places * columns))
    slack = 4 * math.sqrt(places) * torch.finfo(right.dtype).eps / 2
    return (norms + slack * torch.linalg.vector_norm(right, dim=2).sum(1)).square()


def _gram(factor: Tensor) -> Tensor:
    """(n, T, T) inner products; long ones in parts, for the reason given at :func:`row_norms`."""
    if factor.shape[2] <= _LONG:
        return torch.bmm(factor, factor.mT)
    parts = [torch.bmm(part, part.mT).double() for part in factor.split(_LONG, 2)]
    return torch.stack(parts).sum(0).to(factor.dtype)


def row_norms(rows: Tensor) -> Tensor:
    """(n,): each row's norm, in blocks: a long running sum in float32 would lose its small terms.

    Within a block of 1024 additions the relative error is at most 1024 u = 2^-14 and typically some
    u; blocks are added in float64. What squares too small for the format may have lost is added.
    """
    width = rows.shape[1]
    whole = width - width % _BLOCK
    blocks = [torch.linalg.vector_norm(rows[:, whole:], dim=1, keepdim=True)]
    if whole:
        split = rows[:, :whole].unflatten(1, (-1, _BLOCK))
        blocks.append(torch.linalg.vector_norm(split, dim=2))
    both = torch.cat(blocks, 1).double() if whole else blocks[0]
    norms = torch.linalg.vector_norm(both, dim=1).to(rows.dtype)
    return norms + math.sqrt(width * torch.finfo(rows.dtype).tiny)


class Piece(ABC):
    """One parameter's gradients for U units."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """(U,): each unit's squared L2 norm, rounded to the safe (larger) side."""

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The parameter's shape, in float64: the sum over units of weight times gradient.

        Its rounding is bounded as :mod:`~sfumato.learning.dp_sgd.gradients.summing` says.
        """

    @abstractmethod
    def written(self) -> Tensor:
        """(U, *shape): every unit's gradient."""

    def settle(self) -> Piece:
        """Decides how the norms are found, and lets go of what is no longer needed."""
        return self


@final
@dataclass
class Direct(Piece):
    """Gradients written out: (U, *shape)."""

    gradients: Tensor

    @property
    def _flat(self) -> Tensor:
        shape = self.gradients.shape
        return self.gradients.reshape(shape[0], math.prod(shape[1:]))

    def squared_norms(self) -> Tensor:
        """The sums of squares."""
        return row_norms(self._flat).square()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Products of a vector with a matrix."""
        flat = zero_rows(self._flat, weights, owned=True)
        return summing.rows(flat, weights).view(self.gradients.shape[1:])

    def written(self) -> Tensor:
        """As they are."""
        return self.gradients


@final
@dataclass
class Outer(Piece):
    """Gradients of a matrix in factors: each the sum over places of ``left`` times ``right``.

    ``left`` is (U, T, rows), or (U, T) whole numbers that name one row each (an embedding). The
    gradient of unit u is sum_t left[u, t] right[u, t]^T, in ``shape`` = (rows, columns). Factors
    may come in the model's own precision; here they are used in float32. ``finite`` says that all
    numbers of ``left`` are known to be.
    """

    left: Tensor
    right: Tensor
    shape: Sequence[int]
    transposed: bool = False
    finite: bool = False

    @property
    def _named(self) -> bool:
        return not self.left.is_floating_point()

    def exactly(self) -> Outer:
        """The same with factors in the precision of norms and sums."""
        left = self.left if self._named else exact(self.left)
        return Outer(left, exact(self.right), self.shape, self.transposed)

    def settle(self) -> Piece:
        """Writes the gradients out where that is cheaper."""
        units, places, columns = self.right.shape
        if prefer_ghost(units, places, self.shape[0], columns, self.right.device.type):
            return self.exactly()
        return Direct(self.written())

    def squared_norms(self) -> Tensor:
        """From Gram matrices; of one place, the product of the factors' norms."""
        if self._named:
            return named_norms(self.left, self.right)
        if self.right.shape[1] == 1:
            norms = [row_norms(f.flatten(1)) for f in (self.left, self.right)]
            return (norms[0] * norms[1]).square()
        return gram_norms(
            self.left, self.right, summing.spread(self.right.shape[1], self.right.dtype)
        )

    def terms(self) -> Tensor:
        """(U,): the sum over places of |left| |right|."""
        lengths = torch.linalg.vector_norm(self.right, dim=2)
        if not self._named:
            lengths = lengths * torch.linalg.vector_norm(self.left, dim=2)
        return lengths.sum(1)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Ordinary weight gradients."""
        if self._named:
            right = weigh(self.right, weights).flatten(0, 1).double()
            zeros = right.new_zeros(tuple(self.shape))
            return self._oriented(zeros.index_add(0, self.left.flatten(), right))
        return self._oriented(_weighted_product(self.left, self.right, weights))

    def written(self) -> Tensor:
        """(U, rows, columns)."""
        if not self._named:
            return self._oriented(torch.bmm(exact(self.left).mT, exact(self.right)))
        units, _, columns = self.right.shape
        rows = self.shape[0]
        flat = self.right.new_zeros((units * rows, columns))
        starts = torch.arange(units, device=self.left.device).view(-1, 1) * rows
        flat = flat.index_add(0, (self.left + starts).flatten(), self.right.flatten(0, 1))
        return self._oriented(flat.view(units, rows, columns))

    def _oriented(self, matrix: Tensor) -> Tensor:
        return matrix.mT if self.transposed else matrix

    def turned(self) -> Outer:
        """The same gradients as those of the transposed matrix."""
        if not self._named:  # factors change places, and can then be joined with others
            return Outer(self.right, self.left, tuple(reversed(self.shape)), self.transposed)
        return Outer(self.left, self.right, self.shape, not self.transposed)


def _weighted_product(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """Sum over units of weight times left^T right, in float64; the smaller factor is weighted."""
    if left.numel() > right.numel():
        return summing.product(right, left, weights).mT
    return summing.product(left, right, weights)


def combine(pieces: Sequence[Piece]) -> Piece:
    """The gradients of a parameter used several times: the sum of its uses.

    Norms of sums are not sums of norms. Factors of one kind are joined as more places of one use;
    an embedding tied to an output layer keeps its factors, too; anything else is written out.
    """
    if len(pieces) == 1:
        return pieces[0]
    joined: list[Piece] = []
    outers = [p.exactly() for p in pieces if isinstance(p, Outer)]
    for named in (True, False):
        for transposed in (True, False):
            same = [p for p in outers if (p._named, p.transposed) == (named, transposed)]
            if same:
                left, right = (
                    torch.cat([getattr(p, f) for p in same], 1) for f in ("left", "right")
                )
                joined.append(Outer(left, right, same[0].shape, transposed))
    others = [p for p in pieces if not isinstance(p, Outer)]
    if len(joined) == 1 and not others:
        return joined[0]
    if not others and len(joined) == 2 and isinstance(joined[0], Outer):
        tied = _tie(joined[0], joined[1])  # pyright: ignore[reportArgumentType]
        if tied is not None:
            return tied
    return Direct(torch.stack([p.written() for p in [*joined, *others]]).sum(0))


def _tie(embedding: Outer, head: Piece) -> Piece | None:
    if not isinstance(head, Outer) or not embedding._named or head._named:
        return None
    if embedding.transposed != head.transposed:
        return None
    return Tied(embedding, head)


@final
@dataclass
class Tied(Piece):
    """One matrix that both names rows (an embedding) and multiplies (an output layer).

    |E + H|^2 = |E|^2 + |H|^2 + 2 <E, H>, with <E, H> = sum_{t,s} left_H[s, row_t] (right_E[t] .
    right_H[s]): two T x T matrices instead of a gradient of the vocabulary's size.
    """

    embedding: Outer
    head: Outer

    def settle(self) -> Piece:
        """Writes the gradients out where that is cheaper."""
        units, places, columns = self.head.right.shape
        places += self.embedding.right.shape[1]
        if prefer_ghost(units, places, self.head.shape[0], columns, self.head.right.device.type):
            return self
        return Direct(self.written())

    def squared_norms(self) -> Tensor:
        """With the rounding of the parts, and of their product, added."""
        parts = self.embedding.squared_norms(), self.head.squared_norms()
        places = self.embedding.left.shape[1]
        index = self.embedding.left.unsqueeze(1).expand(-1, self.head.left.shape[1], -1)
        left = self.head.left.gather(2, index)  # (U, S, T)
        right = torch.bmm(self.head.right, self.embedding.right.mT)
        cross = (left * right).flatten(1).sum(1)
        lengths = [
            torch.linalg.vector_norm(p, dim=2) for p in (self.head.right, self.embedding.right)
        ]
        bound = torch.bmm(left.abs(), lengths[1].unsqueeze(2)).squeeze(2) * lengths[0]
        terms = right.shape[1] + places + self.head.right.shape[2]
        slack = 8 * math.sqrt(terms) * torch.finfo(right.dtype).eps / 2
        total = parts[0] + parts[1] + 2 * cross + slack * bound.sum(1)
        spread = summing.spread(self.head.left.shape[1], right.dtype)
        return torch.maximum(total, (self.head.terms() / spread).square())

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of both."""
        return self.embedding.weighted_sum(weights) + self.head.weighted_sum(weights)

    def written(self) -> Tensor:
        """The sum of both."""
        return self.embedding.written() + self.head.written()


@final
@dataclass
class Stacked(Piece):
    """A parameter cut into parts along its first dimension, each with gradients of its own."""

    parts: Sequence[Piece]

    def squared_norms(self) -> Tensor:
        """Parts do not overlap: their squared norms add."""
        return torch.stack([part.squared_norms() for part in self.parts]).sum(0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """One below the other."""
        return torch.cat([part.weighted_sum(weights) for part in self.parts])

    def written(self) -> Tensor:
        """One below the other."""
        return torch.cat([part.written() for part in self.parts], 1)
