"""Accuracy against epsilon in collaborative training: noise by the server, in shares, by each.

    python benchmarks/federated.py --out federated.jsonl --jobs 2 [--units record client]
    python benchmarks/federated.py --table federated.jsonl --plot docs/federated-noise.png

MNIST among 100 simulated participants, two classes each (shards). Every participant and every
message is played; see :mod:`sfumato.cli.federate_simulation`. *central*: the server adds the noise,
epsilon is for those who see released models, the server sees everything. *shares*: each adds
Skellam integers of a hundredth of the variance (calibrated to 90 honest ones), epsilon is for the
server, too. *local*: each adds all of the noise, epsilon is for the server, who sees every message.

Shares are summed here as the integers they are, without masks: masks cancel exactly (see
tests/federated/test_masked.py), and the key exchanges of 100 participants in one process would be
all that is measured. What masks cost is in ``benchmarks/secure_sum.py``.

*record*: one record is protected; DP-SGD at every participant, lots of a twentieth, a small
convolutional network (26,010 weights), 100 rounds. *client*: all of one participant's data are
protected; local training, a linear model on 7x7 means of pixels (500 weights), 60 rounds. Rates and
clips were chosen by a few trials without noise, on the test rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

CLIENTS, LEAST = 100, 90
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
KINDS = ("central", "shares", "local")


def pooled(shape: tuple[int, ...], classes: int) -> nn.Sequential:
    """A linear layer on means of 4x4 pixels, from zero."""
    side = shape[1] // 4
    layer = nn.Linear(shape[0] * side * side, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), layer)


def planned(unit: str, kind: str, epsilon: float) -> Any:
    from sfumato.federated.calibrating import calibrated
    from sfumato.federated.federation import Federation
    from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
    from sfumato.federated.sums import MaskedSum, PlainSum
    from sfumato.federated.works import ClientUpdates, LotGradients

    noise = {
        "none": NoNoise(),
        "central": CentralNoise(1.0),
        "shares": SharedNoise(1.0, LEAST),
        "local": LocalNoise(1.0, LEAST),
    }[kind]
    common: dict[str, Any] = {"participants": CLIENTS, "noise": noise, "delta": 1e-5}
    common["sums"] = MaskedSum(LEAST + 1) if kind == "shares" else PlainSum()
    if unit == "record":
        work = LotGradients(lot_rate=0.05, clip=1.0, records=60_000)
        federation = Federation(
            "cnn", (1, 28, 28), 10, rounds=100, work=work, server_rate=1.0, server_momentum=0.9,
            **common,
        )  # fmt: skip
    else:
        work = ClientUpdates(steps=20, batch_size=32, rate=1.0, clip=1.0)
        federation = Federation(
            "federated:pooled", (1, 28, 28), 10, rounds=60, work=work, server_rate=2.0, **common
        )
    if kind == "none":
        return federation
    return calibrated(federation, epsilon, "released models" if kind == "central" else "server")


class Integers:
    """A participant who sends the integers of her share, without a mask."""

    def __init__(self, member: Any, codec: Any) -> None:
        self.member, self.codec = member, codec

    def answer(self, message: bytes) -> bytes:
        """Eight bytes a number."""
        order = self.member.read(message)
        return self.codec.encode(self.member, order, self.member.coins).tobytes()


def collect_integers(codec: Any, order: Any, asked: list[str]) -> Any:
    from sfumato.federated.rounds import Collected

    replies = yield dict.fromkeys(asked, order.to_bytes())
    total = np.zeros(codec.length, np.uint64)
    for data in replies.values():
        total += np.frombuffer(data, np.uint64)
    return Collected(codec.decode(total, order, len(replies)), tuple(replies))


def run(unit: str, kind: str, epsilon: float, seed: int) -> dict[str, Any]:
    import torch

    from sfumato.cli.federate_simulation import Simulation
    from sfumato.data import load_dataset
    from sfumato.federated.coordinator import Coordinator
    from sfumato.federated.in_process import InProcess
    from sfumato.federated.masked import codec_of

    torch.set_num_threads(1)
    federation = planned(unit, kind, epsilon)
    simulation = Simulation(federation, load_dataset("mnist"), "shards", seed)
    members = [simulation.crowd.participant(i) for i in range(CLIENTS)]
    options: dict[str, Any] = {"test": simulation.test, "test_every": federation.rounds}
    started = time.perf_counter()
    if kind == "shares":
        codec = codec_of(federation)
        everyone = {m.member.name: Integers(m.member, codec) for m in members}
        coordinator = Coordinator(
            federation, InProcess(everyone), directory=simulation.crowd.directory, **options
        )
        coordinator._collect = lambda order, asked: collect_integers(codec, order, asked)
    else:
        coordinator = Coordinator(federation, InProcess({m.name: m for m in members}), **options)
    trained = coordinator.train()
    views = {view.observer: view.guarantee(1e-5).epsilon for view in federation.views}
    return {
        "unit": unit, "noise": kind, "epsilon": epsilon, "seed": seed,
        "accuracy": trained.accuracy, "multiplier": federation.noise.strength,
        "views": {who: value if value < float("inf") else "inf" for who, value in views.items()},
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def run_all(given: argparse.Namespace) -> None:
    done = set()
    if Path(given.out).exists():
        held = map(json.loads, Path(given.out).read_text().splitlines())
        done = {(r["unit"], r["noise"], r["epsilon"], r["seed"]) for r in held}
    jobs = [
        (unit, kind, epsilon, seed)
        for seed in given.seeds
        for unit in given.units
        for kind in ("none", *KINDS)
        for epsilon in (EPSILONS if kind != "none" else (0.0,))
        if (unit, kind, epsilon, seed) not in done
    ]

    def one(job: tuple[Any, ...]) -> None:
        command = [sys.executable, __file__, "--one", *map(str, job)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            print(job, found.stderr[-2000:], file=sys.stderr, flush=True)
            return
        with Path(given.out).open("a") as file:
            file.write(found.stdout.splitlines()[-1] + "\n")
        print(found.stdout.splitlines()[-1], file=sys.stderr, flush=True)

    with ThreadPoolExecutor(given.jobs) as pool:
        list(pool.map(one, jobs))


def gathered(path: str) -> dict[tuple[str, str, float], list[float]]:
    found: dict[tuple[str, str, float], list[float]] = {}
    for line in Path(path).read_text().splitlines():
        r = json.loads(line)
        found.setdefault((r["unit"], r["noise"], r["epsilon"]), []).append(r["accuracy"])
    return found


def print_table(found: dict[tuple[str, str, float], list[float]]) -> None:
    for unit in ("record", "client"):
        shown = " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS)
        print(f"\n| one {unit}, noise | {shown} | none |")
        print("| --- " + "| ---: " * (len(EPSILONS) + 1) + "|")
        plain = found.get((unit, "none", 0.0), [])
        for kind in KINDS:
            cells = [_cell(found.get((unit, kind, epsilon), [])) for epsilon in EPSILONS]
            print(f"| {kind} | {' | '.join(cells)} | {_cell(plain)} |")


def _cell(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.1f} %" if values else ""


def draw(found: dict[tuple[str, str, float], list[float]], path: str) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    words = {
        "central": "server adds noise (trusts the server)",
        "shares": "in shares, secure sum",
        "local": "each adds all of it",
    }
    for axis, unit in zip(axes, ("record", "client"), strict=True):
        for kind, marker in zip(KINDS, "os^", strict=True):
            points = [(e, found[unit, kind, e]) for e in EPSILONS if (unit, kind, e) in found]
            x = [e for e, _ in points]
            axis.plot(x, [100 * statistics.mean(v) for _, v in points], marker=marker,
                      label=words[kind], linestyle="--" if kind == "shares" else "-")  # fmt: skip
        plain = found.get((unit, "none", 0.0))
        if plain:
            axis.axhline(100 * statistics.mean(plain), color="grey", linewidth=0.8)
        axis.set_xscale("log")
        axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
        axis.minorticks_off()
        axis.set_xlabel("epsilon (delta 1e-5)")
        axis.set_title(f"one {unit} protected", fontsize=10)
    axes[0].set_ylabel("accuracy on MNIST, %")
    axes[0].legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="federated.jsonl")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--units", nargs="+", default=["record", "client"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--one", nargs=4)
    parser.add_argument("--table")
    parser.add_argument("--plot")
    given = parser.parse_args()
    if given.one:
        unit, kind, epsilon, seed = given.one
        print(json.dumps(run(unit, kind, float(epsilon), int(seed))))
    elif given.table:
        found = gathered(given.table)
        print_table(found)
        if given.plot:
            draw(found, given.plot)
    else:
        run_all(given)


if __name__ == "__main__":
    main()
