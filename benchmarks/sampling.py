"""Draws per second of our exact samplers beside OpenDP 0.16's, in one run on one machine.

    .venv/bin/python benchmarks/sampling.py [--draws 1000000] [--peer-draws 20000] [--full 10]

Both sides take their bits from the operating system and both claim floating-point-safe noise. Ours
is timed on ``--draws`` draws twice: the first call, which includes making a table where one is
used, and the best of three calls after it. OpenDP is timed on ``--peer-draws`` draws of one vector
release, and, for the discrete Gaussian at the scale ``--full``, on as many as ours if that takes
less than a minute. Real noise is on the same grid for both. The ratio is our *first* call against
OpenDP.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import opendp.prelude as dp

from sfumato.mechanisms import sampling

FULL_LIMIT_SECONDS = 60.0


@dataclass(frozen=True)
class Case:
    """One sampler at one scale, ours and OpenDP's."""

    name: str
    scale: float
    ours: Callable[[int], object]
    peer: Callable[[float, int], Any]
    zero: int | float


def _peer(make: Callable[..., Any], carrier: str, order: int) -> Callable[[float, int], Any]:
    """A builder of OpenDP's additive noise on vectors of ``carrier``."""

    def build(scale: float, size: int) -> Any:
        nan = {} if carrier == "i64" else {"nan": False}
        domain = dp.vector_domain(dp.atom_domain(T=carrier, **nan), size=size)
        metric = dp.l2_distance(T="f64") if order == 2 else dp.l1_distance(T=carrier)
        grid = {} if carrier == "i64" else {"k": math.frexp(sampling.grid_for(scale))[1] - 1}
        return make(domain, metric, scale=scale, **grid)

    return build


def cases() -> list[Case]:
    listed: list[Case] = []
    for scale in (1.0, 10.0, 1000.0, 2.0**20, 2.0**40):
        ours = lambda n, s=scale: sampling.discrete_gaussian(s, n)  # noqa: E731
        peer = _peer(dp.m.make_gaussian, "i64", 2)
        listed.append(Case("discrete Gaussian", scale, ours, peer, 0))
    for scale in (1.0, 10.0, 1000.0, 2.0**20, 2.0**40):
        ours = lambda n, s=scale: sampling.discrete_laplace(s, n)  # noqa: E731
        peer = _peer(dp.m.make_laplace, "i64", 1)
        listed.append(Case("discrete Laplace", scale, ours, peer, 0))
    for scale in (1.0, 1000.0):
        for name, add, make, order in (
            ("real Gaussian", sampling.add_gaussian, dp.m.make_gaussian, 2),
            ("real Laplace", sampling.add_laplace, dp.m.make_laplace, 1),
        ):
            ours = lambda n, s=scale, a=add: a(np.zeros(n), s, sampling.grid_for(s))  # noqa: E731
            listed.append(Case(name, scale, ours, _peer(make, "f64", order), 0.0))
    return listed


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def time_peer(case: Case, draws: int) -> float:
    """Draws per second of one vector release, the vector and the measurement made beforehand."""
    measurement, vector = case.peer(case.scale, draws), [case.zero] * draws
    return draws / seconds(lambda: measurement(vector))


def measure(case: Case, draws: int, peer_draws: int, full: float) -> list[str]:
    first = draws / seconds(lambda: case.ours(draws))
    again = draws / min(seconds(lambda: case.ours(draws)) for _ in range(3))
    peer = time_peer(case, peer_draws)
    affordable = draws / peer < FULL_LIMIT_SECONDS
    if case.name == "discrete Gaussian" and case.scale == full and affordable:
        peer_draws, peer = draws, time_peer(case, draws)
    return [
        case.name,
        f"{case.scale:g}",
        f"{draws:,}",
        f"{first:,.0f}",
        f"{again:,.0f}",
        f"{peer_draws:,}",
        f"{peer:,.0f}",
        f"{first / peer:,.0f}x",
    ]


def show(row: list[str]) -> None:
    print("| " + " | ".join(row) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Exact samplers beside OpenDP's.")
    parser.add_argument("--draws", type=int, default=1_000_000, help="draws timed for ours")
    parser.add_argument("--peer-draws", type=int, default=20_000, help="draws timed for OpenDP")
    parser.add_argument("--full", type=float, default=10.0, help="sigma timed in full on both")
    arguments = parser.parse_args()
    dp.enable_features("contrib")
    sampling.discrete_gaussian(0.9, 1000)  # imports and first-use costs of NumPy
    sampling.add_gaussian(np.zeros(1000), 0.9, 2.0**-20)
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, OpenDP {dp.__version__},")
    print(f"{platform.machine()}, {platform.system()}; draws per second, one thread\n")
    show(
        [
            "noise",
            "scale",
            "our draws",
            "ours, first call",
            "ours, again",
            "OpenDP draws",
            "OpenDP",
            "ratio",
        ]
    )
    show(["---", *["---:"] * 7])
    for case in cases():
        show(measure(case, arguments.draws, arguments.peer_draws, arguments.full))


if __name__ == "__main__":
    main()
