"""Private training on paper: memory, traffic, time, noise for 1 to 1,000 GPUs, 1B to 70B weights.

    python benchmarks/scale.py

Nothing here was run at such sizes. The formulas say what the code of this package holds and sends
(a test compares the traffic with what two ranks count); the times extend what one H200 measured.
docs/scale.md explains them and shows the tables as this script prints them.

Symbols: P parameters, W ranks, L the lot, b rows of a physical batch on one rank, S tokens of a
row, d width, f inner width, V words, n layers, z the noise multiplier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXACT, WIDE, SHORT = 8, 4, 2  # bytes: float64 for sums; float32 for weights, moments and means;
# bfloat16 for passes
BUCKET = 1 << 25  # numbers that are exchanged at a time: see noisy_sum.BUCKET

RATIO = 1.14  # private over plain time of a step: the GPT of benchmarks/RESULTS.md, bf16
PLAIN_SECONDS = 13.25e-3  # of that plain step, 32 rows of 256 tokens, on one H200
BANDWIDTH = 50e9  # bytes a second and GPU between machines: 400 Gb/s


@dataclass(frozen=True)
class Shape:
    """A decoder: n layers of attention and a perceptron of ``matrices`` matrices d by f."""

    name: str
    layers: int
    width: int
    inner: int
    words: int
    matrices: int = 3

    @property
    def layer(self) -> int:
        """Weights of one layer: 4 d^2 for attention, the rest for the perceptron."""
        return 4 * self.width**2 + self.matrices * self.width * self.inner

    @property
    def parameters(self) -> int:
        """P: all layers, words in and words out."""
        return self.layers * self.layer + 2 * self.words * self.width

    @property
    def multiplied(self) -> int:
        """Weights that take part in products: all but the words that come in."""
        return self.parameters - self.words * self.width

    @property
    def largest(self) -> int:
        """Numbers of the largest matrix."""
        return max(self.width * self.inner, self.words * self.width)


MEASURED = Shape("measured", 12, 768, 3072, 8192, matrices=2)
SHAPES = (
    Shape("1B", 16, 2048, 8192, 32_768),
    Shape("7B", 32, 4096, 11_008, 32_768),
    Shape("70B", 80, 8192, 24_576, 32_768),
)


# --- memory, bytes on one rank --------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """What one rank holds, in bytes."""

    weights: float
    optimizer: float
    clipped_sum: float
    exchange: float
    factors: float
    norms: float

    @property
    def total(self) -> float:
        """All of it."""
        parts = (self.weights, self.optimizer, self.clipped_sum, self.exchange)
        return sum(parts) + self.factors + self.norms


def memory(shape: Shape, ranks: int, rows: int, tokens: int, sharded: bool) -> Memory:
    """Adam in float32, passes in bfloat16, ``rows`` of a physical batch on each rank.

    Replicated: 4P weights and 2P of a copy in bfloat16, 8P moments, 8P clipped sum (the noisy mean
    takes its place), and a bucket with a rank's part of it. Sharded: a W-th of each, and for the
    moment a layer's weights in bfloat16, twice (the next is on its way), and the whole clipped sum
    of one matrix, or of a bucket.
    """
    share = 1 / ranks if sharded else 1.0
    whole = 2 * SHORT * max(shape.layer, shape.words * shape.width) if sharded else 0.0
    copies = 0.0 if sharded else SHORT * shape.parameters
    exchanged = BUCKET + shape.largest if sharded else BUCKET
    return Memory(
        weights=WIDE * shape.parameters * share + copies + whole,
        optimizer=2 * WIDE * shape.parameters * share,
        clipped_sum=EXACT * shape.parameters * share,
        exchange=EXACT * exchanged * (1 + 1 / ranks),
        factors=factors(shape, rows, tokens),
        norms=norm_workspace(shape, rows, tokens),
    )


def factors(shape: Shape, rows: int, tokens: int) -> float:
    """What book-keeping holds from the passes until norms are known, in bfloat16.

    Of each matrix its input and its output's gradient: a layer's inputs are 3d + f numbers for each
    token (attention's, its projection's, the perceptron's, the last matrix's), its outputs'
    gradients 5d and f for each further matrix; of the head d + V.
    """
    inputs = 3 * shape.width + shape.inner
    outputs = 5 * shape.width + (shape.matrices - 1) * shape.inner
    head = shape.width + shape.words
    return SHORT * rows * tokens * (shape.layers * (inputs + outputs) + head)


def norm_workspace(shape: Shape, rows: int, tokens: int) -> float:
    """For one matrix at a time: two Gram matrices of S by S for each row, or its gradients."""
    return WIDE * rows * min(2 * tokens**2, shape.largest)


# --- traffic and time -----------------------------------------------------------------------------


def sent(parameters: int, ranks: int) -> float:
    """Bytes that a rank of replicas sends in a step: sums scattered, noisy means gathered."""
    return (EXACT + WIDE) * parameters * (ranks - 1) / ranks


def sent_sharded(parameters: int, ranks: int) -> float:
    """Bytes of clipped sums that a rank sends for one physical batch."""
    return EXACT * parameters * (ranks - 1) / ranks


def gathered(parameters: int, ranks: int) -> float:
    """Bytes that ``fully_shard`` sends for it: parameters in bfloat16, forward and backward."""
    return 2 * SHORT * parameters * (ranks - 1) / ranks


def seconds(shape: Shape, tokens: int, ratio: float = 1.0) -> float:
    """One rank's time for so many tokens, at the rate of the measured step."""
    rate = 6 * MEASURED.multiplied * 32 * 256 / PLAIN_SECONDS
    return ratio * 6 * shape.multiplied * tokens / rate


@dataclass(frozen=True)
class Step:
    """One step of a lot, in seconds."""

    parts: int
    compute: float
    traffic: float
    plain_compute: float
    plain_traffic: float

    @property
    def slowest(self) -> float:
        """Private over plain if nothing overlaps."""
        return (self.compute + self.traffic) / (self.plain_compute + self.plain_traffic)


def step(shape: Shape, ranks: int, lot: int, rows: int, tokens: int, sharded: bool) -> Step:
    """A lot split over ranks, ``rows`` at a time; plain training with the same layout beside it.

    Plain training sends gradients in bfloat16 if it likes; private sums go in float64. Replicas
    exchange once a lot, shards once for each physical batch.
    """
    share = math.ceil(lot / ranks)
    parts = math.ceil(share / rows)
    p = shape.parameters
    if sharded:
        traffic = parts * (sent_sharded(p, ranks) + gathered(p, ranks))
        plain = parts * (sent_sharded(p, ranks) * SHORT / EXACT + gathered(p, ranks))
    else:
        traffic, plain = sent(p, ranks), sent(p, ranks) * 2 * SHORT / (EXACT + WIDE)
    return Step(
        parts=parts,
        compute=seconds(shape, share * tokens, RATIO),
        traffic=traffic / BANDWIDTH,
        plain_compute=seconds(shape, share * tokens),
        plain_traffic=plain / BANDWIDTH,
    )


# --- noise ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """What a lot's size buys."""

    lot: int
    steps: int
    multiplier: float

    def over_clip(self, parameters: int) -> float:
        """The length of the noise in the mean gradient, over the clip norm: z sqrt(P) / L."""
        return self.multiplier * math.sqrt(parameters) / self.lot


def noise(population: int, lot: int, epsilon: float, delta: float, epochs: float) -> Noise:
    """The least noise for so many passes over the data, by the exact accountant."""
    import sfumato as sf

    steps = max(1, round(epochs * population / lot))
    found = sf.calibrate_noise(
        epsilon=epsilon, delta=delta, sample_rate=lot / population, steps=steps
    )
    return Noise(lot, steps, found)


# --- tables ---------------------------------------------------------------------------------------

ROWS, TOKENS, LOT = 4, 1024, 65_536
POPULATION, EPSILON, EPOCHS = 100_000_000, 8.0, 1.0
DELTA = 1e-9
RANKS = (1, 8, 64, 1000)
LOTS = (4_096, 65_536, 1_048_576)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _gib(number: float) -> str:
    size = number / 2**30
    return f"{size:,.0f}" if size >= 10 else f"{size:.2g}"


def memory_table() -> str:
    """Gibibytes on one rank."""
    head = ["model, layout, ranks", "weights", "optimizer", "clipped sum", "exchange", "factors",
            "norms", "all, GiB"]  # fmt: skip
    rows: list[list[str]] = []
    for shape in SHAPES:
        for sharded, counts in ((False, (8,)), (True, (8, 64, 1000))):
            for count in counts:
                m = memory(shape, count, ROWS, TOKENS, sharded)
                parts = (m.weights, m.optimizer, m.clipped_sum, m.exchange, m.factors, m.norms)
                layout = "sharded" if sharded else "replicated"
                rows.append([f"{shape.name}, {layout}, {count}", *map(_gib, (*parts, m.total))])
    return table(head, rows)


def step_table() -> str:
    """Seconds of a step."""
    head = ["model, layout, ranks", "physical batches", "compute, s", "traffic, s",
            "plain compute, s", "plain traffic, s", "private / plain"]  # fmt: skip
    rows: list[list[str]] = []
    for shape in SHAPES:
        for count in RANKS:
            sharded = shape.name != "1B"
            s = step(shape, count, LOT, ROWS, TOKENS, sharded)
            times = (s.compute, s.traffic, s.plain_compute, s.plain_traffic)
            layout = "sharded" if sharded else "replicated"
            rows.append(
                [f"{shape.name}, {layout}, {count}", f"{s.parts:,}"]
                + [f"{t:,.3g}" if t < 1000 else f"{t:,.0f}" for t in times]
                + [f"{s.slowest:.2f}"]
            )
    return table(head, rows)


def noise_table() -> str:
    """Noise multipliers, and the noise's length over the clip norm."""
    head = ["lot", "steps", "z"] + [f"noise / C, {shape.name}" for shape in SHAPES]
    head.append("noise / C, LoRA of 10M")
    rows: list[list[str]] = []
    for lot in LOTS:
        found = noise(POPULATION, lot, EPSILON, DELTA, EPOCHS)
        lengths = [found.over_clip(shape.parameters) for shape in SHAPES]
        lengths.append(found.over_clip(10_000_000))
        rows.append(
            [f"{lot:,}", f"{found.steps:,}", f"{found.multiplier:.3f}"]
            + [f"{length:.3g}" for length in lengths]
        )
    return table(head, rows)


def main() -> None:
    """All tables."""
    for made in (memory_table(), step_table(), noise_table()):
        print(made, end="\n\n")


if __name__ == "__main__":
    main()
