"""Accounting beside dp-accounting, in one run: time and epsilon, one account and a whole curve.

    python benchmarks/accounting.py [--repeats 5]

"exact" is our account on a grid five times finer. Times are medians; import time is left out on
both sides and printed once.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

SETTINGS = [
    # sample rate, noise multiplier, steps
    (0.01, 4.0, 10_000),
    (0.00427, 1.1, 14_063),
    (256 / 60_000, 1.3, 14_062),
    (1e-3, 0.7, 3_000),
    (1e-4, 4.0, 1_000_000),
    (1e-5, 1.0, 100_000),
]
DELTA = 1e-5


def timed(function: Callable[[], object], repeats: int) -> tuple[float, object]:
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    return statistics.median(runs)


def peer_epsilon(rate: float, noise: float, steps: int) -> float:
    from dp_accounting import dp_event, pld

    step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    accountant = pld.PLDAccountant().compose(dp_event.SelfComposedDpEvent(step, steps))
    return accountant.get_epsilon(DELTA)


def our_epsilon(rate: float, noise: float, steps: int, refine: float = 1.0) -> float:
    from sfumato.accounting.pld import loss_distribution
    from sfumato.core.events import dp_sgd
    from sfumato.core.neighbours import Neighbours

    loss_distribution.cache_clear()
    event = dp_sgd(noise, rate, steps)
    found = loss_distribution(event, Neighbours.ADD_REMOVE)
    if refine > 1:
        found = loss_distribution(event, Neighbours.ADD_REMOVE, found.grid / refine)
    return found.epsilon(DELTA)


def our_curve(rate: float, noise: float, steps: int) -> np.ndarray:
    from sfumato.accounting.curve import epsilon_curve
    from sfumato.core.events import dp_sgd

    points = np.linspace(steps / 100, steps, 100).astype(int)
    return epsilon_curve(dp_sgd(noise, rate, 1), points.tolist(), DELTA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    our_epsilon(0.01, 4.0, 10)  # imports and caches, on both sides
    peer_epsilon(0.01, 4.0, 10)
    print(f"import: dp_accounting {import_seconds('dp_accounting'):.2f} s, ", end="")
    print(f"sfumato {import_seconds('sfumato'):.3f} s (loads what it needs when it is used)\n")
    print(
        "| q | sigma | T | exact | dp-accounting | excess | time | sfumato | excess | time | ratio "
        "| curve, 100 points: time | of one dp-accounting call | excess at the end |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for rate, noise, steps in SETTINGS:
        exact = our_epsilon(rate, noise, steps, refine=5)
        peer_time, peer = timed(lambda: peer_epsilon(rate, noise, steps), repeats)  # noqa: B023
        our_time, ours = timed(lambda: our_epsilon(rate, noise, steps), repeats)  # noqa: B023
        curve_time, curve = timed(lambda: our_curve(rate, noise, steps), repeats)  # noqa: B023
        cells = [
            f"{rate:.3g}",
            f"{noise:g}",
            f"{steps:,}",
            f"{exact:.5f}",
            f"{peer:.5f}",
            f"{peer / exact - 1:.3%}",
            f"{peer_time * 1e3:.0f} ms",
            f"{ours:.5f}",
            f"{ours / exact - 1:.3%}",
            f"{our_time * 1e3:.0f} ms",
            f"{our_time / peer_time:.2f}",
            f"{curve_time * 1e3:.0f} ms",
            f"{curve_time / peer_time:.2f}",
            f"{curve[-1] / exact - 1:.3%}",
        ]
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
