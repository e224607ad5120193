"""What dropout under a public torch seed gave away, and what secret masks cost.

    git worktree add /tmp/old 3d53f70
    python benchmarks/secret_masks.py --old /tmp/old/src [--runs 200] [--rates 1,0.999,0.9,0.1]
    python benchmarks/secret_masks.py --device cuda --only masks,time [--old /tmp/old/src]

*attack*: one step with noise multiplier 8 on 600 rows behind Dropout(0.5), under
``torch.manual_seed(0)``; from the released weights alone it is told whether the first row is there.
The attacker knows the seed, computes the noiseless sum of every lot that leaves out at most one
row, and takes the likelihood ratio. "At least" is a 99 % lower bound on epsilon at delta 1e-5.
*masks*: how many of 40 steps' masks of one row are different, and how many another run under the
same seed has as well; eager, compiled, and on a GPU recorded and replayed. *time*: the median step,
with coins and with none, in turns. Each measurement runs in a process of its own, on the code in
``--old`` or on this one.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from scipy.special import logsumexp
from scipy.stats import beta
from torch import Tensor, nn
from torch.nn import functional as F

import sfumato as sf

HERE = Path(__file__).resolve().parents[1] / "src"
ROWS, WIDTH, HIDDEN, CLASSES, NOISE, DELTA, RATE = 600, 20, 64, 3, 8.0, 1e-5, 1.0


class NoNoise:
    """Keeps sums as they are."""

    name, private = "none", False

    def __init__(self) -> None:
        self.sums: list[Tensor] = []

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Nothing."""
        self.sums.append(like.clone())
        return torch.zeros_like(like)


def losses(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y, reduction="none")


# --- the attack -----------------------------------------------------------------------------------


def table() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, WIDTH, generator=generator)
    return x, torch.randint(0, CLASSES, (ROWS,), generator=generator)


def network() -> nn.Sequential:
    torch.manual_seed(0)  # what the script says, and everybody reads
    layers = nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Dropout(0.5), nn.Linear(HIDDEN, CLASSES)
    return nn.Sequential(*layers)


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().flatten() for t in tensors]).double()


def released(x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, float]:
    """The noisy sum, read off the weights before and after; and the claimed epsilon."""
    model = network()
    before = flat(model.parameters())
    trainer = sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=RATE), (x, y), public_size=ROWS,
        lot_size=rate * ROWS, steps=1, noise_multiplier=NOISE, delta=DELTA, progress=False,
    )  # fmt: skip
    trainer.fit(losses)
    return (before - flat(model.parameters())) / RATE * rate * ROWS, trainer.guarantee.epsilon


def likely_sums(x: Tensor, y: Tensor, rate: float) -> tuple[Tensor, Tensor]:
    """Noiseless sums of all lots that leave out one row at most, and their log probabilities."""
    n, model = len(x), network()
    kept = F.dropout(torch.ones(n, HIDDEN), 0.5)  # what the first draws after the seed give
    same, shifted = clipped(model, x, y, kept), clipped(model, x[1:], y[1:], kept[:-1])
    before = torch.cat([torch.zeros(1, same.shape[1]), same.cumsum(0)])  # of the first i rows
    behind = torch.cat([shifted.flip(0).cumsum(0).flip(0), torch.zeros(1, same.shape[1])])
    found = torch.cat([before[-1:], before[:-1] + behind])
    whole = n * math.log(rate)
    without = (n - 1) * math.log(rate) + (math.log1p(-rate) if rate < 1 else -math.inf)
    return found, torch.tensor([whole, *[without] * n])


def clipped(model: nn.Sequential, x: Tensor, y: Tensor, kept: Tensor) -> Tensor:
    """(rows, parameters): each row's gradient, of norm 1 at most."""
    first: Any = model[0]
    last: Any = model[3]
    with torch.no_grad():
        before = first(x)
        hidden = before.relu() * kept
        error = torch.softmax(last(hidden), 1) - F.one_hot(y, CLASSES)
        back = (error @ last.weight) * kept * (before > 0)
        parts = [back[:, :, None] * x[:, None], back, error[:, :, None] * hidden[:, None], error]
        rows = torch.cat([part.flatten(1) for part in parts], 1).double()
        return rows / rows.norm(dim=1, keepdim=True).clamp(min=1)


def attack(rate: float, runs: int) -> dict[str, float]:
    """Who is told right, and what that says of epsilon."""
    x, y = table()
    tables = [(x, y), (x[1:], y[1:])]
    models = [likely_sums(*each, rate) for each in tables]

    def likelihood(seen: Tensor, sums: Tensor, logs: Tensor) -> float:
        return float(logsumexp(logs - (seen - sums).square().sum(1) / (2 * NOISE**2)))

    def told(there: int) -> tuple[bool, float]:
        seen, epsilon = released(*tables[there], rate)
        return likelihood(seen, *models[0]) > likelihood(seen, *models[1]), epsilon

    claimed = told(0)[1]
    right = sum(told(0)[0] for _ in range(runs))
    wrong = sum(told(1)[0] for _ in range(runs))
    low = beta.ppf(0.005, right, runs - right + 1) if right else 0.0
    high = beta.ppf(0.995, wrong + 1, runs - wrong) if wrong < runs else 1.0
    least = max(0.0, math.log(max(low - DELTA, 1e-12) / high))
    return {"claimed": claimed, "least": least, "right": right / runs, "wrong": wrong / runs}


# --- masks, and time ------------------------------------------------------------------------------


def masks(compiled: bool, device: str) -> dict[str, float]:
    """How many masks two runs under one seed have, and have in common."""
    one, two = (masks_of(compiled, device) for _ in range(2))
    known = len({*one} & {*two})
    return {"steps": len(one), "different": len({*one}), "known from another run": known}


def masks_of(compiled: bool, device: str, steps: int = 40) -> list[tuple[bool, ...]]:
    """One row, its mask read off each step's gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(512, 2)).to(device)
    noise, data = NoNoise(), (torch.ones(1, 512, device=device), torch.zeros(1).long().to(device))
    sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=1e-3), data, public_size=1, lot_size=1,
        steps=steps, noise_multiplier=1.0, delta=DELTA, noise=noise, progress=False,
    ).fit(losses, compile=compiled)  # fmt: skip
    return [tuple((s != 0).any(0).tolist()) for s in noise.sums if s.shape[-1] == 512]


def step_time(network_of: str, compiled: bool, device: str, turns: int = 8) -> dict[str, float]:
    """Milliseconds of a median step of 256 rows, on a CPU of its time; and without any coins."""
    from sfumato.learning.secret_coins import ModelCoins

    nothing: dict[str, Any] = {"fresh": lambda _: None, "give_back": lambda _: None}
    found: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(turns):
        for coins in (True, False) if turn % 2 else (False, True):
            with contextlib.nullcontext() if coins else mock.patch.multiple(ModelCoins, **nothing):
                found[coins].append(median_step(network_of, compiled, device))
    ratio = statistics.median(one / two for one, two in zip(found[True], found[False], strict=True))
    return {"ms": min(found[True]), "without": min(found[False]), "ratio": ratio}


def timed_network(name: str) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A network with dropout, and the shape of a row."""
    if name == "cnn":  # of Opacus' MNIST example, with dropout
        return nn.Sequential(
            nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1),
            nn.Flatten(), nn.Dropout(0.5), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10),
        ), (1, 28, 28)  # fmt: skip
    inputs, hidden = map(int, name.split("-")[:2])
    layers = nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, 10)
    return nn.Sequential(*layers), (inputs,)


def median_step(network_of: str, compiled: bool, device: str, steps: int = 120) -> float:
    torch.manual_seed(0)
    model, shape = timed_network(network_of)
    model.to(device)
    x, y = torch.randn(2000, *shape).to(device), torch.randint(0, 10, (2000,)).to(device)
    at: list[float] = []

    def tick(*_: Any) -> None:
        if device == "cpu":
            at.append(time.process_time())  # one thread: whatever else the machine is doing
        else:
            torch.cuda.synchronize()
            at.append(time.perf_counter())

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(tick)
    sf.DPSGD(
        model, optimizer, (x, y), public_size=2000, lot_size=256, steps=steps,
        noise_multiplier=1.0, delta=DELTA, progress=False,
    ).fit(losses, compile=compiled)  # fmt: skip
    return 1e3 * statistics.median(b - a for a, b in itertools.pairwise(at[20:]))


# --- in processes ---------------------------------------------------------------------------------


def there(source: Path, what: list[Any]) -> Any:
    """A measurement on other code."""
    command = [sys.executable, __file__, "--measure", json.dumps(what)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(source)}, check=True, stdout=subprocess.PIPE
    )
    return json.loads(done.stdout.splitlines()[-1])


def measured(what: str, *how: Any) -> Any:
    torch.set_num_threads(1)
    return {"attack": attack, "masks": masks, "time": step_time}[what](*how)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--old", type=Path, help="the src folder of the code before")
    parser.add_argument("--rates", default="1,0.999,0.9,0.1")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="attack,masks,time")
    parser.add_argument("--networks", default="20-256-10,784-256-10,cnn", help="for time")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.measure:
        print(json.dumps(measured(*json.loads(given.measure))))
        return
    sources = {"new": HERE} | ({"old": given.old} if given.old else {})
    only, gpu = given.only.split(","), given.device != "cpu"
    for rate in map(float, given.rates.split(",") if "attack" in only else []):
        for name, source in sources.items():
            found = there(source, ["attack", rate, given.runs])
            shown = ", ".join(f"{key} {value:.3f}" for key, value in found.items())
            print(f"attack, rate {rate:g}, {name}: {shown}", flush=True)
    for compiled in (False, True) if "masks" in only else ():
        for name, source in sources.items():
            found = there(source, ["masks", compiled, given.device])
            kind = ("compiled, recorded" if gpu else "compiled") if compiled else "eager"
            print(f"masks, {kind}, {name}: {found}", flush=True)
    settings = [(name, kind) for name in given.networks.split(",") for kind in {False, gpu}]
    for name, compiled in settings if "time" in only else ():
        found = there(HERE, ["time", name, compiled, given.device])
        print(f"time, {name}, {compiled=}: {found}", flush=True)


if __name__ == "__main__":
    main()
