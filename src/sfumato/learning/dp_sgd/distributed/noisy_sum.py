"""A lot's sum across replicas: noise once in total, each rank for the part that it owns.

With W ranks and clipped sums S_1 .. S_W (each rank's share of one lot), concatenated over all
parameters, a step releases (S_1 + .. + S_W + Z) / L. Here

1. *reduce-scatter*: rank j gets coordinates [j n/W, (j+1) n/W) of S = S_1 + .. + S_W,
2. rank j adds fresh noise to those coordinates, from its own source, and divides by L,
3. *all-gather*: every rank gets all noisy coordinates.

That is the traffic of one all-reduce, its first half in float64: in float32 a sum of many units
would be rounded by more than clipping allows for (:mod:`.gradients.summing`).

Formal guarantee. The release is exactly the plan's: S + Z with independent N(0, s_l^2) on every
coordinate of group l, once. For each coordinate has one owner; the owners' sources are independent
(keys of their own from the operating system); padding has no coordinate. S is the sum of the whole
lot, which one unit moves by at most C_l in group l, because a unit is with one rank
(:mod:`~sfumato.learning.dp_sgd.distributed.shares`) and that rank clips it. The divisor L is the
plan's expected lot size for the whole lot, not a rank's. No rank ever receives a coordinate with
less than full noise, but the part it owns and what it computed itself; ranks are trusted.

What would go wrong otherwise: W ranks that each add the full noise release more noise than is
accounted (and a rank that leaves takes its noise along); W ranks that each add 1/W of its variance
hold sums with too little noise; one rank's noise seeded like another's repeats it in two places.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from sfumato.learning.dp_sgd.distributed.ranks import Ranks
from sfumato.learning.dp_sgd.neighbouring import in_one_piece
from sfumato.learning.dp_sgd.noise_source import NoiseSource, as_noise_needs

__all__ = ["BUCKET", "noisy_means"]

BUCKET = 1 << 25
"""Numbers that are exchanged at a time: 128 MiB in float32."""

Piece = tuple[Tensor, float]
"""A vector, and the standard deviation of its noise."""


@torch.no_grad()
def noisy_means(
    ranks: Ranks,
    noise: NoiseSource,
    sums: Iterable[tuple[Iterable[Tensor], float]],
    size: float,
    watched: bool = False,
    precision: torch.dtype = torch.float64,
    bucket: int = BUCKET,
) -> tuple[list[Tensor], float]:
    """Turns every rank's clean sums, in place, into the one noisy mean of all ranks' sums.

    Args:
        ranks: who takes part; all of them must, with sums of the same shapes.
        noise: this rank's own source.
        sums: for each group its tensors, none of them in another's memory, and the standard
            deviation of its noise.
        size: the expected lot size.
        watched: whether the clean total's norms are wanted, for the operator.
        precision: of the parameters, which noise need not exceed.
        bucket: the most numbers at a time.

    Returns:
        The norms of the clean total's parts that this rank owns, if watched; and their noise's
        expected square.
    """
    pieces = [(vector, std) for tensors, std in sums for vector in in_one_piece(tensors)]
    signal: list[Tensor] = []
    spread = 0.0
    for alike in _by_kind(pieces):
        for some in _buckets(alike, bucket):
            spread += _exchange(ranks, noise, some, size, signal if watched else None, precision)
    return signal, spread


def _exchange(
    ranks: Ranks,
    noise: NoiseSource,
    pieces: list[Piece],
    size: float,
    signal: list[Tensor] | None,
    precision: torch.dtype,
) -> float:
    length = sum(len(vector) for vector, _ in pieces)
    each = -(-length // ranks.count)
    parts = pieces[0][0].new_zeros(each * ranks.count)
    torch.cat([vector for vector, _ in pieces], out=parts[:length])
    own = parts.new_empty(each)
    ranks.reduce_scatter(own, parts)
    spread, start, first = 0.0, 0, ranks.rank * each
    for vector, std in pieces:
        begin, end = max(start, first) - first, min(start + len(vector), first + each) - first
        if begin < end:
            mine = own[begin:end]
            if signal is not None:
                signal.append(torch.linalg.vector_norm(mine))
            drawn = noise.normal(as_noise_needs(noise, mine, precision), std)
            mine.add_(drawn).div_(size)
            spread += (end - begin) * std**2
        start += len(vector)
    noisy_parts = parts.to(precision) if parts.dtype != precision else parts
    ranks.all_gather(noisy_parts, own.to(precision))
    lengths = [len(vector) for vector, _ in pieces]
    for (vector, _), noisy in zip(pieces, noisy_parts[:length].split(lengths), strict=True):
        vector.copy_(noisy)
    return spread


def _by_kind(pieces: list[Piece]) -> list[list[Piece]]:
    found: dict[object, list[Piece]] = {}
    for vector, std in pieces:
        found.setdefault((vector.device, vector.dtype), []).append((vector, std))
    return list(found.values())


def _buckets(pieces: list[Piece], most: int) -> Iterator[list[Piece]]:
    """The same numbers, some at a time."""
    some: list[Piece] = []
    room = most
    for vector, std in pieces:
        rest = vector
        while len(rest):
            taken, rest = rest[:room], rest[room:]
            some.append((taken, std))
            room -= len(taken)
            if not room:
                yield some
                some, room = [], most
    if some:
        yield some
