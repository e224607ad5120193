"""Three ways to a private network, side by side: why DP-SGD is needed.

    python benchmarks/naive.py [--out naive.png] [--runs 3] [--processes 2] [--quick]

The same network, 784-100-10 with ReLU (79,510 parameters), is trained on MNIST at delta 1e-5

- by DP-SGD (``sf.DPSGD``): per-example gradients clipped in L2, Gaussian noise, PLD accounting;
- by Laplace SGD: the same with L1 and Laplace noise, at the same delta by PLD;
- by noisy weights: trained without privacy, projected on a ball, Gaussian noise once.

Hyper-parameters are chosen on Fashion-MNIST, each way's from a grid of its own of four (noisy
weights: of twelve), at every second epsilon; the choice serves that epsilon and the next. MNIST is
seen only by what was chosen. Accuracy is on MNIST's test set, which is public: mean and standard
deviation over runs from different initial weights. Prints a Markdown table and draws the figure.

Each training uses one thread; ``--processes`` of them run at a time.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context

import torch
from torch import nn
from torch.nn import functional as F

import sfumato as sf
from sfumato.learning.naive import LaplaceSGD, NoisyWeights
from sfumato.reports.style import save
from sfumato.reports.training_figures import accuracy_by_epsilon_figure

DELTA = 1e-5
DP_SGD, LAPLACE, WEIGHTS = "DP-SGD", "Laplace SGD", "noisy weights"

EPSILONS = {
    DP_SGD: (0.5, 1, 2, 4, 8, 16),
    LAPLACE: (0.5, 1, 2, 4, 8, 16, 64, 256),
    WEIGHTS: (0.5, 1, 2, 4, 8, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576),
}
GRIDS = {
    DP_SGD: [
        {"lot_size": 1024, "epochs": 10, "learning_rate": 4},
        {"lot_size": 2048, "epochs": 10, "learning_rate": 8},
        {"lot_size": 2048, "epochs": 20, "learning_rate": 2},
        {"lot_size": 2048, "epochs": 20, "learning_rate": 4},
    ],
    LAPLACE: [  # the clip norm is 1: every gradient is longer, so that only the rate matters
        {"lot_size": 3000, "steps": 320, "learning_rate": 20},
        {"lot_size": 3000, "steps": 320, "learning_rate": 100},
        {"lot_size": 12000, "steps": 80, "learning_rate": 30},
        {"lot_size": 12000, "steps": 80, "learning_rate": 100},
    ],
    WEIGHTS: [
        {"weight_decay": decay, "centre": centre, "radius": radius}
        for decay in (0.0, 5e-3)
        for centre in ("origin", "initial")
        for radius in (1.0, 3.0, 10.0)
    ],
}
PLAIN = {"steps": 2500, "batch_size": 128, "learning_rate": 0.05}


def start_worker():
    torch.set_num_threads(1)


def network(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


@lru_cache
def rows(name, most):
    """Training and test rows of a data set, as tensors."""
    data = sf.load_images(name)
    inputs, labels = (torch.as_tensor(part[:most]) for part in data.train)
    test, truth = (torch.as_tensor(part) for part in data.test)
    return (inputs.view(-1, 784) / 255, labels), (test.view(-1, 784) / 255, truth)


@torch.no_grad()
def accuracy(model, test):
    return float((model(test[0]).argmax(1) == test[1]).float().mean())


# --- one training each, in a process of its own ---------------------------------------------------


def dp_sgd(name, most, epsilon, config, seed):
    train, test = rows(name, most)
    model = network(seed)
    trainer = sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=config["learning_rate"]), train,
        public_size=len(train[1]), lot_size=config["lot_size"], epochs=config["epochs"],
        epsilon=epsilon, delta=DELTA, progress=False,
    )  # fmt: skip
    for x, y in trainer:
        trainer.backward(F.cross_entropy(model(x), y, reduction="none"))
    return accuracy(model, test)


def laplace(name, most, epsilon, config, seed):
    train, test = rows(name, most)
    way = LaplaceSGD.calibrate(epsilon=epsilon, delta=DELTA, public_size=len(train[1]), **config)
    model, _ = way.run(network(seed), *train)
    return accuracy(model, test)


def weights(name, most, decay, points, steps, seed):
    """The accuracy of one plain training, and of every (epsilon, config) released from it."""
    train, test = rows(name, most)
    plain = PLAIN | {"steps": steps, "weight_decay": decay}
    initial = network(seed)
    trained = NoisyWeights(1.0, 1.0, DELTA, **plain).train(initial, *train)
    found = [accuracy(trained, test)]
    for epsilon, config in points:
        way = NoisyWeights(**config, epsilon=epsilon, delta=DELTA, steps=steps)
        found.append(accuracy(way.release(initial, trained)[0], test))
    return found


# --- all of them ----------------------------------------------------------------------------------


class Bench:
    """What is to be run, and where."""

    def __init__(self, pool, given):
        self.pool, self.runs = pool, given.runs
        self.most, self.steps = None, PLAIN["steps"]
        self.epsilons, self.grids = EPSILONS, GRIDS
        if given.quick:
            self.runs, self.most, self.steps = 1, 12_000, 200
            self.epsilons = {way: (1, values[-1]) for way, values in EPSILONS.items()}
            self.grids = {way: [shortened(c) for c in grid[:2]] for way, grid in GRIDS.items()}

    def submit(self, way, name, epsilon, config, seed):
        """A training by one of the two ways of SGD."""
        run = {DP_SGD: dp_sgd, LAPLACE: laplace}[way]
        return self.pool.submit(run, name, self.most, epsilon, config, seed)

    def release(self, name, pairs, seed):
        """The accuracy of each (epsilon, config) by noisy weights; one training a weight decay."""
        places = {}
        for place, (_, config) in enumerate(pairs):
            places.setdefault(config["weight_decay"], []).append(place)
        jobs = [
            self.pool.submit(
                weights, name, self.most, decay, [pairs[i] for i in where], self.steps, seed
            )
            for decay, where in places.items()
        ]
        found = [0.0] * len(pairs)
        for where, job in zip(places.values(), jobs, strict=True):
            for place, value in zip(where, job.result()[1:], strict=True):
                found[place] = value
        return found

    def tuned(self, way):
        """Every second epsilon."""
        return self.epsilons[way][::2]

    def choose(self):
        """The best on Fashion-MNIST at each tuned epsilon, for it and the next."""
        grid = {way: [(e, c) for e in self.tuned(way) for c in self.grids[way]] for way in EPSILONS}
        jobs = {
            way: [self.submit(way, "fashion-mnist", e, c, 0) for e, c in grid[way]]
            for way in (DP_SGD, LAPLACE)
        }
        scores = {WEIGHTS: self.release("fashion-mnist", grid[WEIGHTS], 0)}
        scores |= {way: [job.result() for job in found] for way, found in jobs.items()}
        return {way: self.best(way, grid[way], scores[way]) for way in EPSILONS}

    def best(self, way, grid, scores):
        """From each epsilon to its configuration and the score that chose it."""
        found = {}
        for (epsilon, config), score in zip(grid, scores, strict=True):
            at = self.epsilons[way].index(epsilon)
            for served in self.epsilons[way][at : at + 2]:
                if served not in found or score > found[served][1]:
                    found[served] = config, score
        return found

    def measure(self, chosen):
        """On MNIST: for each way and epsilon the accuracies of the runs."""
        jobs = {
            (way, epsilon): [
                self.submit(way, "mnist", epsilon, chosen[way][epsilon][0], seed)
                for seed in range(self.runs)
            ]
            for way in (DP_SGD, LAPLACE)
            for epsilon in self.epsilons[way]
        }
        pairs = [(epsilon, config) for epsilon, (config, _) in chosen[WEIGHTS].items()]
        released = [self.release("mnist", pairs, seed) for seed in range(self.runs)]
        results = {key: [job.result() for job in found] for key, found in jobs.items()}
        for place, (epsilon, _) in enumerate(pairs):
            results[WEIGHTS, epsilon] = [run[place] for run in released]
        return results

    def baseline(self):
        """Without privacy."""
        jobs = [
            self.pool.submit(weights, "mnist", self.most, 0.0, [], self.steps, seed)
            for seed in range(self.runs)
        ]
        return statistics.mean(job.result()[0] for job in jobs)


def shortened(config):
    return {k: max(1, v // 10) if k in ("epochs", "steps") else v for k, v in config.items()}


# --- what is shown --------------------------------------------------------------------------------


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else None


def cell(values):
    if not values:
        return ""
    deviation = spread(values)
    shown = "" if deviation is None else f" ± {100 * deviation:.1f}"
    return f"{100 * statistics.mean(values):.1f}{shown}"


def print_choices(chosen):
    print("\n| way | epsilon | chosen on Fashion-MNIST | its accuracy there |")
    print("| --- | ---: | --- | ---: |")
    for way, found in chosen.items():
        for (config, score), group in itertools.groupby(found.items(), lambda item: item[1]):
            epsilons = ", ".join(f"{epsilon:,.10g}" for epsilon, _ in group)
            shown = ", ".join(f"{k} {v}" for k, v in config.items())
            print(f"| {way} | {epsilons} | {shown} | {100 * score:.1f} |")


def print_results(results, plain):
    print(f"\nAccuracy on MNIST in %, delta {DELTA:g}; without privacy {100 * plain:.1f}.\n")
    print(f"| epsilon | {' | '.join(EPSILONS)} |")
    print(f"| ---: |{' ---: |' * len(EPSILONS)}")
    for epsilon in sorted({epsilon for _, epsilon in results}):
        cells = " | ".join(cell(results.get((way, epsilon), [])) for way in EPSILONS)
        print(f"| {epsilon:,.10g} | {cells} |")


def figure(results, plain):
    series = {
        way: [
            (float(epsilon), statistics.mean(values), spread(values))
            for (which, epsilon), values in results.items()
            if which == way
        ]
        for way in EPSILONS
    }
    return accuracy_by_epsilon_figure(
        series, title="Three ways to a private network: MNIST, 784-100-10", delta=DELTA,
        chance=0.1, baseline=plain,
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="naive.png", help="the figure's file")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="few rows, steps and epsilons")
    given = parser.parse_args()
    for name in ("fashion-mnist", "mnist"):
        sf.load_images(name)  # fetched once, not by every process
    start = time.perf_counter()
    with ProcessPoolExecutor(given.processes, get_context("spawn"), start_worker) as pool:
        bench = Bench(pool, given)
        chosen = bench.choose()
        print(f"chosen after {time.perf_counter() - start:.0f} s", file=sys.stderr)
        results, plain = bench.measure(chosen), bench.baseline()
    print_choices(chosen)
    print_results(results, plain)
    path = save(figure(results, plain), given.out)
    print(f"\n{time.perf_counter() - start:.0f} s; figure in {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
