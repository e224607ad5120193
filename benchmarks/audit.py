"""Audits measured: power against broken engines, what a run's canaries cost, bounds on MNIST.

    python benchmarks/audit.py power                       # minutes: how often faults are caught
    python benchmarks/audit.py overhead                    # training with canaries and without
    python benchmarks/audit.py runs --runs 20 --device cuda --kind gradient

"runs" trains MNIST with canaries again and again; every run is audited by itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from sfumato.audit import Analysis, audit_scores, audit_step
from sfumato.data import load_dataset
from sfumato.learning.dp_sgd.games import EngineSteps
from sfumato.learning.dp_sgd.noise import CoinNoise
from sfumato.learning.recipes import preset, train
from sfumato.learning.recipes.canaries import Canaries
from sfumato.learning.recipes.observing import Shown


class Altered:
    """The engine's noise with a fault."""

    name, private = "altered", True

    def __init__(self, factor: float = 1.0, reused: bool = False) -> None:
        self.inner, self.factor, self.reused, self.kept = CoinNoise(), factor, reused, None

    def normal(self, like, std):
        """Noise, too small or used again."""
        if self.kept is None or not self.reused:
            self.kept = self.factor * self.inner.normal(like, std)
        return self.kept.clone()


class ClippedMean:
    """A step that clips the mean of the lot's gradients, not each one."""

    def __init__(self, multiplier: float) -> None:
        self.multiplier, self.rng = multiplier, np.random.default_rng()

    def __call__(self, included):
        """In units of what one canary should add at most."""
        games = len(included)
        mean = 1000.0 * included / games
        mean /= max(1.0, float(np.linalg.norm(mean)))
        return (mean * games + self.multiplier * self.rng.standard_normal(games))[:, None]


def engines(multiplier: float):
    """Name, maker of a fresh engine, whether it is sound."""
    yield "ours", lambda: EngineSteps(multiplier), True
    yield "ours, two steps", lambda: EngineSteps(multiplier, steps=2), True
    yield "noise 10 % too small", lambda: EngineSteps(multiplier, noise=Altered(0.9)), False
    yield "noise 20 % too small", lambda: EngineSteps(multiplier, noise=Altered(0.8)), False
    yield (
        "noise used twice",
        lambda: EngineSteps(multiplier, steps=2, noise=Altered(reused=True)),
        False,
    )
    yield "clipped after averaging", lambda: ClippedMean(multiplier), False


def power(arguments: argparse.Namespace) -> None:
    """How many of so many audits refute each engine's claim at 99 % confidence."""
    print(f"{arguments.repeats} audits each, 99 % confidence\n")
    print("| engine | noise multiplier | games | refuted | seconds an audit |")
    print("|---|---:|---:|---:|---:|")
    for multiplier in (0.7, 1.0, 5.0):
        for name, make, _ in engines(multiplier):
            for games in (10_000, 100_000):
                refuted, began = 0, time.monotonic()
                for _ in range(arguments.repeats):
                    engine = make()
                    claimed = getattr(engine, "multiplier", multiplier)
                    refuted += audit_step(engine, multiplier=claimed, games=games).refuted
                each = (time.monotonic() - began) / arguments.repeats
                print(
                    f"| {name} | {multiplier:g} | {games:,} | {refuted} of {arguments.repeats} | "
                    f"{each:.2f} |",
                    flush=True,
                )


def one_run(epsilon: float, canaries: Canaries | None, device: str):
    """MNIST by the best recipe, with canaries."""
    data = load_dataset("mnist")
    recipe = replace(preset("scattering-linear", data, epsilon=epsilon), canaries=canaries)
    began = time.monotonic()
    trained = train(recipe, data, device=device, evaluations=0, observer=Shown(False))
    return trained, time.monotonic() - began


def overhead(arguments: argparse.Namespace) -> None:
    """Seconds with and without canaries, in turns."""
    plain, audited = list[float](), list[float]()
    for _ in range(arguments.repeats):
        plain.append(one_run(4.0, None, arguments.device)[1])
        audited.append(one_run(4.0, Canaries(arguments.canaries), arguments.device)[1])
        print(f"plain {plain[-1]:.1f} s, with canaries {audited[-1]:.1f} s", flush=True)
    ratio = statistics.median(a / p for a, p in zip(audited, plain, strict=True))
    print(f"{arguments.canaries} canaries: {ratio:.3f} times the plain run")


def runs(arguments: argparse.Namespace) -> None:
    """Lower bounds of several runs."""
    kinds: dict[str, list[float]] = {how.value: [] for how in Analysis}
    for number in range(arguments.runs):
        trained, seconds = one_run(
            4.0, Canaries(arguments.canaries, arguments.kind), arguments.device
        )
        found = trained.canaries
        assert found is not None
        claim = trained.record.guarantee
        for how in Analysis:
            finding = audit_scores(found.scores, found.included, claim=claim, analysis=how)
            kinds[how.value].append(finding.epsilon)
        bounds = {how: values[-1] for how, values in kinds.items()}
        line = {"run": number, "accuracy": trained.accuracy, "seconds": seconds} | bounds
        print(json.dumps(line), flush=True)
        if arguments.out is not None:
            with arguments.out.open("a") as file:
                file.write(json.dumps(line) + "\n")
    for how, values in kinds.items():
        above = sum(value > 4.0 for value in values)
        print(
            f"{arguments.kind}, {how}: mean {statistics.mean(values):.2f}, least "
            f"{min(values):.2f}, most {max(values):.2f}; above the claim: {above} of {len(values)}"
        )


def main() -> None:
    """One of three measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["power", "overhead", "runs"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--canaries", type=int, default=5000)
    parser.add_argument("--kind", default="gradient")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    {"power": power, "overhead": overhead, "runs": runs}[arguments.what](arguments)


if __name__ == "__main__":
    main()
