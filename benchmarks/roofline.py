"""The least time that plain and private steps can take on a GPU, layer by layer.

    python benchmarks/roofline.py --task wrn --precision bf16 [--rows 512] [--peak 990]

A model's shapes are found by one forward pass without data (on torch's "meta" device). Each piece
of work takes at least max(operations / peak, bytes / bandwidth); pieces are added up. Every tensor
is taken to be read and written once, and pointwise work to be free (fused into its neighbours), so
this is a lower bound, not a forecast.

For a batch of B examples, T places in each, and a weight of R x K (a convolution: K = channels
times kernel area), in operations (a multiply-add is two):

===========  ===================================  ============================================
work         operations                           bytes beside inputs x and output gradients g
===========  ===================================  ============================================
forward      2 B T R K                            weights
input-grad   2 B T R K                            weights
weight-grad  2 B T R K                            one gradient, in float32
===========  ===================================  ============================================

A private step has the first two as they are, and instead of the third the cheapest of

===========  ===================================  ============================================
instantiate  2 B T R K + 4 B R K                  all gradients, written once and read once
direct       2 B T R K, and the weight-grad       x and g once more
Gram         B T^2 (R + K), and the weight-grad   x and g once more
===========  ===================================  ============================================

*Instantiate* writes each example's gradient, its norm on the way, and adds them up weighted.
*Direct* forms each example's gradient in registers for its norm alone. *Gram* gets the norm from
two symmetric T x T matrices (half of each formed; for T = 1 from two lengths). Attention counts
forward and, with its scores recomputed, 2.5 times that backward: Dao, arXiv:2307.08691. Gradients,
sums, parameters and the optimizer's state are in float32; noise reads the sum and writes the
gradient. Biases are left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_tasks import Adapted, Attention, Task, tasks
from torch import Tensor, nn

PEAK = {"bf16": 990.0, "tf32": 495.0, "fp32": 67.0}
"""TFLOP/s of an H200, dense."""
BANDWIDTH = 4.8
"""TB/s of an H200."""
WAYS = ("instantiate", "direct", "Gram")


@dataclass(frozen=True)
class Work:
    """Operations and bytes of one kernel."""

    operations: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.operations + other.operations, self.bytes + other.bytes)


@dataclass(frozen=True)
class Machine:
    """Peak rates.

    Attributes:
        peak: operations a second.
        bandwidth: bytes a second.
    """

    peak: float
    bandwidth: float

    def seconds(self, *works: Work) -> float:
        """At least; one after the other."""
        return sum(max(w.operations / self.peak, w.bytes / self.bandwidth) for w in works)


@dataclass
class Layer:
    """One layer's work for the whole batch; ``ways`` holds what replaces the weight-grad."""

    kind: str
    shape: str
    forward: Work
    input_grad: Work = Work()
    weight_grad: Work = Work()
    ways: dict[str, tuple[Work, ...]] = field(default_factory=dict[str, tuple[Work, ...]])

    def plain(self, machine: Machine) -> float:
        """Seconds without privacy."""
        return machine.seconds(self.forward, self.input_grad, self.weight_grad)

    def best(self, machine: Machine) -> tuple[str, float]:
        """The cheapest way to norm and sum, and its seconds."""
        costs = {way: machine.seconds(*works) for way, works in self.ways.items()}
        way = min(costs, key=lambda w: costs[w], default="")
        return way, costs.get(way, 0.0)

    def private(self, machine: Machine) -> float:
        """Seconds with privacy."""
        return machine.seconds(self.forward, self.input_grad) + self.best(machine)[1]


@dataclass(frozen=True)
class Batch:
    """How many examples, and the bytes of an activation."""

    rows: int
    size: int

    def matrix(
        self, kind: str, places: int, rows: int, columns: int, read: float, trained: bool,
        reaches: bool,
    ) -> Layer:  # fmt: skip
        """A linear layer or a convolution.

        Args:
            kind: for the table.
            places: T.
            rows: R.
            columns: K.
            read: numbers in one example's input.
            trained: whether it has a weight-grad.
            reaches: whether its input needs a gradient.
        """
        n, weights = self.rows, rows * columns
        product = 2.0 * n * places * weights
        both = self.size * n * (read + places * rows)
        moved = Work(product, both + self.size * weights)
        layer = Layer(kind, f"{places} x {rows} x {columns}", moved, moved if reaches else Work())
        if not trained:
            return layer
        layer.weight_grad = Work(product, both + 4 * weights)
        side = 1.0 * places**2 if places > 1 else 2.0
        layer.ways = {
            "instantiate": (
                Work(product + 2.0 * n * weights, both + 4.0 * n * weights),
                Work(2.0 * n * weights, 4.0 * n * weights + 4 * weights),
            ),
            "direct": (Work(product + 2.0 * n * weights, both), layer.weight_grad),
            "Gram": (Work(n * side * (rows + columns), both), layer.weight_grad),
        }
        return layer

    def embedding(self, places: int, words: int, width: int, trained: bool) -> Layer:
        """A table of rows; no operations to speak of forward."""
        moved = 1.0 * self.size * self.rows * places * width
        layer = Layer("embedding", f"{places} x {words} x {width}", Work(0, 2 * moved))
        if trained:
            layer.weight_grad = Work(0, moved + 4 * words * width)
            grams = Work(1.0 * self.rows * places**2 * width, moved)
            layer.ways = {
                "direct": (Work(2.0 * self.rows * places * width, moved), layer.weight_grad),
                "Gram": (grams, layer.weight_grad),
            }
        return layer

    def norm(self, kind: str, numbers: int, scales: int, trained: bool) -> Layer:
        """Scale and shift are summed on the way back: for each example if private."""
        moved = self.size * self.rows * numbers
        layer = Layer(kind, f"{numbers}", Work(0, 2 * moved), Work(0, 3 * moved))
        if trained:
            layer.weight_grad = Work(0, 4 * 2 * scales)
            each = 4.0 * self.rows * 2 * scales
            layer.ways = {"instantiate": (Work(2 * each, each), Work(2 * each, each))}
        return layer

    def attention(self, tokens: int, width: int, causal: bool, reaches: bool) -> Layer:
        """Scores and their use, never written."""
        work = 4.0 * self.rows * tokens**2 * width / (2 if causal else 1)
        moved = self.size * self.rows * tokens * width
        back = Work(2.5 * work, 8 * moved) if reaches else Work()
        return Layer("attention", f"{tokens} x {width}", Work(work, 4 * moved), back)


def layers_of(task: Task, batch: Batch) -> list[Layer]:
    """All layers in the order in which they run."""
    with torch.device("meta"):
        model = task.make()
    found: list[Layer] = []
    seen = {"trained": False}

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        layer = _layer(module, inputs[0], output, batch, bool(own), seen["trained"])
        seen["trained"] |= bool(own)
        if layer is not None:
            found.append(layer)

    for module in model.modules():
        if not isinstance(module, (nn.Sequential, Adapted)):
            module.register_forward_hook(record)
    x, _ = task.batch(2, "meta")
    model(x)
    return found


def _layer(
    module: nn.Module, x: Tensor, y: Tensor, batch: Batch, trained: bool, reaches: bool
) -> Layer | None:
    per_example: Callable[[Tensor], int] = lambda t: math.prod(t.shape[1:])  # noqa: E731
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.Embedding):
        size = module.num_embeddings, module.embedding_dim
        return batch.embedding(x.shape[1], *size, trained)
    if isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
        name = type(module).__name__
        return batch.norm(name, per_example(x), module.weight.numel(), trained)
    if isinstance(module, Attention):
        return batch.attention(x.shape[1], x.shape[2], module.causal, reaches)
    if isinstance(weight, Tensor) and weight.ndim in (2, 4):  # standardised convolutions, too
        rows = weight.shape[0]
        kind = "linear" if weight.ndim == 2 else "convolution"
        places = per_example(y) // rows
        columns = weight.numel() // rows
        return batch.matrix(kind, places, rows, columns, per_example(x), trained, reaches)
    return None


def step_layers(task: Task) -> tuple[Layer, Layer]:
    """The optimizer, and the noise that a private step has besides."""
    with torch.device("meta"):
        trained = sum(p.numel() for p in task.make().parameters() if p.requires_grad)
    passes = 7 if task.adam else 5  # gradient, parameter and state read; the last two written
    noise = Layer("noise", f"{trained}", Work())
    noise.ways = {"": (Work(0, 8.0 * trained),)}
    return Layer("optimizer", f"{trained}", Work(0, 4.0 * passes * trained)), noise


def rows_of(layers: list[Layer], machine: Machine) -> list[list[Any]]:
    """Layers of one shape together."""
    groups: dict[tuple[str, str, bool], list[Layer]] = {}
    for layer in layers:
        groups.setdefault((layer.kind, layer.shape, bool(layer.ways)), []).append(layer)
    table: list[list[Any]] = []
    for (kind, shape, _), same in groups.items():
        works = [
            sum((getattr(one, part) for one in same), Work())
            for part in ("forward", "input_grad", "weight_grad")
        ]
        ways = [
            f"{1e3 * sum(machine.seconds(*one.ways[w]) for one in same):.3f}"
            if w in same[0].ways
            else ""
            for w in WAYS
        ]
        plain, private = (
            1e3 * sum(getattr(one, which)(machine) for one in same)
            for which in ("plain", "private")
        )
        table.append([
            f"{len(same)} {kind}", shape, *(f"{w.operations / 1e9:.1f}" for w in works),
            f"{sum(w.bytes for w in works) / 2**20:.0f}", *ways, same[0].best(machine)[0],
            f"{plain:.3f}", f"{private:.3f}",
        ])  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--task", default="wrn", choices=list(tasks()))
    parser.add_argument("--rows", type=int, default=0, help="another batch than the task's")
    parser.add_argument("--precision", default="bf16", choices=list(PEAK))
    parser.add_argument("--peak", type=float, help="TFLOP/s; an H200's by default")
    parser.add_argument("--bandwidth", type=float, default=BANDWIDTH, help="TB/s")
    given = parser.parse_args()
    task = tasks()[given.task]
    rows = given.rows or task.rows
    machine = Machine(1e12 * (given.peak or PEAK[given.precision]), 1e12 * given.bandwidth)
    layers = layers_of(task, Batch(rows, 2 if given.precision == "bf16" else 4))
    layers += step_layers(task)
    print(
        f"{task.name}, batch {rows}, {given.precision}: {machine.peak / 1e12:g} TFLOP/s, "
        f"{given.bandwidth:g} TB/s. T x R x K; GFLOP and MiB of the plain step; ms.\n"
    )
    heads = ["layers", "shape", "forward", "input-grad", "weight-grad", "MiB", *WAYS]
    heads += ["cheapest", "plain ms", "private ms"]
    print(f"| {' | '.join(heads)} |\n| --- | --- |{' ---: |' * 7} --- | ---: | ---: |")
    for row in rows_of(layers, machine):
        print(f"| {' | '.join(row)} |")
    plain = sum(layer.plain(machine) for layer in layers)
    private = sum(layer.private(machine) for layer in layers)
    print(f"\nAt least {1e3 * plain:.2f} ms plain, {1e3 * private:.2f} ms private: "
          f"{private / plain:.2f}x.")  # fmt: skip


if __name__ == "__main__":
    main()
