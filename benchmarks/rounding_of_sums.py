"""What sums of bounded rounding cost: whole private steps with them, and with sums in one piece.

    python benchmarks/rounding_of_sums.py [--lot 2048] [--rounds 7] [--only cnn,perceptron,...]

The trainer's own step on given batches (passes, norms, sums, noise, SGD), beside the same
step whose weighted sums are single float32 products over the lot, as they were before: of those,
one row may move a sum by several clip norms. Steps alternate; ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from training import cnn

from sfumato.learning.dp_sgd import Flat, PoissonLots, TrainingPlan
from sfumato.learning.dp_sgd.gradients import convolution, summing
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.noise import CoinNoise
from sfumato.learning.dp_sgd.recording import Recorder, trainable
from sfumato.learning.dp_sgd.stepping import NoisyStep


class Encoder(nn.Module):
    """Two blocks of attention over 64 places, and a perceptron after each."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Ten scores."""
        return self.head(self.body(x).mean(1))


def perceptron(width: int) -> nn.Module:
    """Three layers."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, 10),
    )  # fmt: skip


TASKS = {
    "cnn": (cnn, (1, 28, 28), 1),
    "perceptron, 256 wide": (lambda: perceptron(256), (784,), 1),
    "perceptron, 1000 wide": (lambda: perceptron(1000), (784,), 1),
    "transformer, 64 places": (Encoder, (64, 128), 8),
}


def in_one_piece_product(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """As :func:`summing.product` was before."""
    out: Tensor | None = None
    most = max(1, 2**19 * len(right) // max(1, right.numel()))
    for few, many, weight in zip(*(p.split(most) for p in (left, right, weights)), strict=True):
        one = summing.weigh(few, weight).flatten(0, 1).mT
        two = summing.zero_rows(many, weight, owned=False).flatten(0, 1)
        out = one @ two if out is None else out.addmm_(one, two)
    assert out is not None
    return out


def in_one_piece_rows(flat: Tensor, weights: Tensor, most: int = 0) -> Tensor:
    """As :func:`summing.rows` was before."""
    return weights.to(flat.dtype) @ flat


NEW = summing.product, summing.rows, summing.blocks
OLD = in_one_piece_product, in_one_piece_rows, lambda units, most=0: iter([slice(0, units)])


def steps_of(name: str, lot: int):
    """Takes one step, as now or as before, when it is called."""
    make, shape, less = TASKS[name]
    torch.manual_seed(0)
    lot //= less
    model = make()
    images, labels = torch.randn(lot, *shape), torch.randint(0, 10, (lot,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    plan = TrainingPlan(PoissonLots(lot, 60_000), Flat(1.0), 1.0, 10, 1e-5)
    recorder = Recorder(model, Tape(trainable(model)))
    step = NoisyStep(plan, trainable(model), optimizer, None, CoinNoise(), 1.0)
    weights = np.ones(lot)

    def take(how: tuple, learning: bool = False) -> float:
        summing.product, summing.rows, summing.blocks = how
        assert convolution.summing is summing
        start = time.perf_counter()
        with recorder.attached(), recorder.tape.recording(lot, lot, learning=learning):
            losses = F.cross_entropy(model(images), labels, reduction="none")
        step.add(recorder.tape, losses, weights)
        step.apply(0)
        return time.perf_counter() - start

    take(NEW, learning=True)
    return take


def main() -> None:
    """The table."""
    options = argparse.ArgumentParser()
    options.add_argument("--lot", type=int, default=2048)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--only", default=",".join(TASKS))
    asked = options.parse_args()
    print("| network | parameters | rows | ms a step | of one piece |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in TASKS:
        if not any(name.startswith(one) for one in asked.only.split(",")):
            continue
        take, times = steps_of(name, asked.lot), []
        size = sum(p.numel() for p in TASKS[name][0]().parameters())
        for turn in range(asked.rounds):
            both = {how: take(how) for how in ((NEW, OLD) if turn % 2 else (OLD, NEW))}
            times.append((both[NEW], both[NEW] / both[OLD]))
        taken, ratio = (statistics.median(t) for t in zip(*times, strict=True))
        rows = asked.lot // TASKS[name][2]
        print(f"| {name} | {size:,} | {rows:,} | {1e3 * taken:.0f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
