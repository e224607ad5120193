"""DP-SGD beside plain training and Opacus, in one run: time of an epoch and peak memory.

    python benchmarks/training.py [--lot 2048] [--rounds 5] [--steps 8] [--device cpu]

The CNN is the one of Opacus' MNIST example, on made-up images of MNIST's shape (values do not
change the time), SGD with momentum. Every engine takes the same steps on fixed physical batches of
one lot; ours adds noise from the operating system's cryptographic generator, Opacus from torch's.

Each engine runs in a process of its own, so that peak memory is its own: what the process held at
most beyond what it held before its first step. Rounds alternate between the engines; times are
medians over all steps, ratios are taken within a round and their median is shown.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import warnings

ENGINES = ("plain", "sfumato", "sfumato, compiled", "opacus", "opacus ghost")
SIZE = 60_000


def cnn():
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def engine_steps(name, lot, steps, device):
    """Yields once before the first step and once after each."""
    import torch
    from torch.nn import functional as F

    torch.manual_seed(0)
    model = cnn().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(steps, lot, 1, 28, 28).to(device)
    labels = torch.randint(0, 10, (steps, lot)).to(device)
    if name == "plain":
        yield
        for x, y in zip(images, labels, strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            yield
    elif name.startswith("sfumato"):
        yield from ours(model, optimizer, images, labels, "compiled" in name)
    else:
        yield from theirs(model, optimizer, images, labels, "ghost" in name)


def ours(model, optimizer, images, labels, compiled):
    """The trainer's own step, on given batches instead of sampled ones."""
    import numpy as np
    from torch.nn import functional as F

    from sfumato.learning.dp_sgd import Flat, PoissonLots, TrainingPlan
    from sfumato.learning.dp_sgd.gradients.tape import Tape
    from sfumato.learning.dp_sgd.noise import CoinNoise
    from sfumato.learning.dp_sgd.physical import Part
    from sfumato.learning.dp_sgd.recording import Recorder, trainable
    from sfumato.learning.dp_sgd.stepping import NoisyStep

    lot = len(labels[0])
    plan = TrainingPlan(PoissonLots(lot, SIZE), Flat(1.0), 1.0, len(labels), 1e-5)
    recorder = Recorder(model, Tape(trainable(model)))
    step = NoisyStep(plan, trainable(model), optimizer, None, CoinNoise(), 1.0)

    def loss(model, x, y):
        return F.cross_entropy(model(x), y, reduction="none")

    with recorder.attached():
        recorder.expect(11, 11, learning=True)
        recorder.tape.gradients(loss(model, images[0][:11], labels[0][:11]).sum())
        if compiled:
            step.compile(model, loss, recorder.tape)
        weights = np.ones(lot)
        part = Part(0, np.arange(lot), weights, lot, last=True)
        yield
        for i, (x, y) in enumerate(zip(images, labels, strict=True)):
            if compiled:
                recorder.take()
                step.add_compiled((x, y), part)
            else:
                recorder.expect(lot, lot)
                step.add(recorder.tape, loss(model, x, y), weights)
            step.apply(i)
            yield


def theirs(model, optimizer, images, labels, ghost):
    import torch
    from opacus.grad_sample import GradSampleModule
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
        GradSampleModuleFastGradientClipping,
    )
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    from torch import nn

    lot = len(labels[0])
    options = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": lot}
    if ghost:
        wrapped = GradSampleModuleFastGradientClipping(
            model, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="mean"
        )
        private = DPOptimizerFastGradientClipping(optimizer, **options)
        criterion = DPLossFastGradientClipping(
            wrapped, private, nn.CrossEntropyLoss(reduction="mean"), loss_reduction="mean"
        )
    else:
        wrapped, criterion = GradSampleModule(model), nn.CrossEntropyLoss()
        private = DPOptimizer(optimizer, **options)
    assert torch.is_grad_enabled()
    yield
    for x, y in zip(images, labels, strict=True):
        private.zero_grad()
        criterion(wrapped(x), y).backward()
        private.step()
        yield


def measure(name, lot, steps, device):
    """One process: seconds of each step but the first two, and peak memory."""
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(2)
    run = engine_steps(name, lot, steps + 2, device)
    next(run)
    before = memory(device)
    times = []
    while True:
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        try:
            next(run)
        except StopIteration:
            break
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    print(json.dumps({"times": times[2:], "memory": memory(device) - before}))


def memory(device):
    """Peak so far, in bytes."""
    if device != "cpu":
        import torch

        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lot", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--engine", help="run one engine in this process, and print JSON")
    parser.add_argument("--engines", default=",".join(ENGINES).replace(", ", "/"))
    given = parser.parse_args()
    if given.engine:
        measure(given.engine, given.lot, given.steps, given.device)
        return
    engines = [name.replace("/", ", ") for name in given.engines.split(",")]
    results = {name: [] for name in engines}
    for _ in range(given.rounds):
        for name in engines:
            command = [
                sys.executable, __file__, "--engine", name, "--lot", str(given.lot),
                "--steps", str(given.steps), "--device", given.device,
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                print(f"{name} failed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                continue
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    table(results, given.lot)


def table(results, lot):
    plain = [statistics.median(r["times"]) for r in results["plain"]]
    print(f"| engine | ms a step | s an epoch ({SIZE:,}) | of plain | peak MiB | of plain |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    base = statistics.median(r["memory"] for r in results["plain"])
    for name, rounds in results.items():
        if not rounds:
            continue
        medians = [statistics.median(r["times"]) for r in rounds]
        ratio = statistics.median(a / b for a, b in zip(medians, plain, strict=False))
        peak = statistics.median(r["memory"] for r in rounds)
        one = statistics.median(medians)
        print(
            f"| {name} | {1e3 * one:.1f} | {one * SIZE / lot:.2f} | {ratio:.2f}x "
            f"| {peak / 2**20:.0f} | {peak / base:.2f}x |"
        )


if __name__ == "__main__":
    main()
