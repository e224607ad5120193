"""A survey that nobody has to trust: people add the noise themselves, before they answer.

    python examples/local_survey.py --out survey

31,857 mothers of the US census of 1980 are asked whether their first child was born before they
were 18 (randomised response), and what they earn (Laplace noise). The server sees noisy answers
only, and estimates. Beside it: the same by a curator who is trusted with the answers.

The census sample is public, so the truth is known here; in a survey nobody would know it. What
needs the truth is marked "simulation". FOLDER gets what a survey could publish; the curator's
ledger, of the way that has a curator, is in FOLDER-curator.
"""

import argparse
import csv
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import norm

import sfumato as sf

MOST = 60.0  # thousand dollars: what is earned above counts as 60; declared, not measured
EPSILON = 1.0  # for each of the two questions
WIDE = norm.ppf(0.975)  # standard deviations to either side for 95 %


def half_widths(epsilon: float, people: float) -> dict[str, float]:
    """Of a share of yes, at 95 %: known before anybody is asked.

    One answer of randomised response has variance e^eps / (e^eps - 1)^2 whatever it is; Laplace
    noise of scale 1 / eps has 2 / eps^2. A curator adds Laplace noise once, to the count.
    """
    response = math.sqrt(math.exp(epsilon)) / (math.exp(epsilon) - 1)
    return {
        "randomised response": float(WIDE * response / math.sqrt(people)),
        "local Laplace": float(WIDE * math.sqrt(2) / epsilon / math.sqrt(people)),
        "central Laplace": math.log(20) / epsilon / people,
    }


def people_needed(epsilon: float, error: float) -> dict[str, int]:
    """How many must answer for a share to be off by at most ``error``, at 95 %."""
    one = half_widths(epsilon, 1)
    return {
        way: math.ceil(width / error if way.startswith("central") else (width / error) ** 2)
        for way, width in one.items()
    }


def by_a_curator(
    ledger: sf.Ledger, young: np.ndarray, earned: np.ndarray
) -> list[tuple[float, float]]:
    """The same two answers where one is trusted with the data: charged, then read.

    Both are sums of whole numbers (of people, of dollars), so that the noise fits them exactly.
    """
    people = len(young)  # public under replace-one, as it is to the survey's server
    asked = [
        (1.0, 1.0, lambda: young.sum()),
        (1000 * MOST, 1000.0 * people, lambda: np.rint(1000 * _bounded(earned)).sum()),
    ]
    released = []
    for most, scale, read in asked:
        moved = sf.Sensitivity(most, neighbours="replace-one", unit="person")
        noise = sf.DiscreteLaplace.calibrate(moved, epsilon=EPSILON)
        with ledger.spend("mothers", noise.event) as spending:
            answer = noise.release(int(read()))
            spending.commit(answer.to_dict())
        released.append((answer.value / scale, answer.half_width / scale))
    return released


def _bounded(earned: np.ndarray) -> np.ndarray:
    """Within the declared range; what is missing counts as nothing, as in the survey."""
    return np.nan_to_num(earned).clip(0, MOST)


def coverage(survey: Any, values: np.ndarray, truth: float, times: int, screen: Console) -> int:
    """In how many of so many surveys the interval holds the truth."""
    said = f"{type(survey).__name__}, again and again"
    return sum(
        low <= truth <= high
        for _ in track(range(times), said, console=screen, disable=not screen.is_terminal)
        for low, high in [survey.estimate(survey.perturb(values)).interval]
    )


def draw(path: Path, people: int) -> None:
    """Errors of a share against the number of people, by formula."""
    counts = np.geomspace(100, 1e6, 50)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for way in half_widths(EPSILON, 1):
        axes.loglog(counts, [100 * half_widths(EPSILON, n)[way] for n in counts], label=way)
    axes.axvline(people, color="grey", linewidth=0.8, label="this survey")
    axes.set(xlabel="people who answer", ylabel="half-width of a share at 95 %, points",
             title=f"What it costs to trust nobody (epsilon {EPSILON:g})")  # fmt: skip
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(out: Path, small: bool = False) -> dict[str, Any]:
    """Surveys, estimates, and counts how often the intervals hold."""
    screen, own = Console(highlight=False), out.with_name(f"{out.name}-curator")
    if out.exists() or own.exists():
        sys.exit(f"{out} holds an earlier run. A budget is never reset: give another --out")
    out.mkdir(parents=True)
    own.mkdir(mode=0o700)
    mothers = sf.load_table("labsup").iloc[: 4_000 if small else None]
    young, earned = (mothers["agefstm"] < 18).to_numpy(), mothers["labinc"].to_numpy()
    people, truths = len(mothers), (int(young.sum()), float(_bounded(earned).mean()))

    count, mean = sf.LocalCount(EPSILON), sf.LocalMean(0, MOST, EPSILON)
    reports = count.perturb(young), mean.perturb(earned)  # on each person's phone
    local = count.estimate(reports[0]), mean.estimate(reports[1])  # at the server
    both = sf.account(sf.compose(count.event, mean.event), delta=0)
    screen.print(f"[bold]{people:,} people answer two questions[/bold]; for both: {both}")
    screen.print(f"The server sees {reports[0][:8]}... and {np.round(reports[1][:4])}...")

    ledger = sf.Ledger(own / "privacy.db")
    ledger.create("mothers", sf.Budget(2 * EPSILON), unit="person", neighbours="replace-one")
    central = by_a_curator(ledger, young, earned)
    shown = Table(
        "question", "trusting nobody", "trusting a curator", "truth (simulation)", box=None
    )
    rows = []
    for name, here, there, truth in zip(
        ("first child before 18", "earns, in 1000 dollars"), local, central, truths, strict=True
    ):
        (low, high), (value, width) = here.interval, there
        near = f"{here.value:,.2f} ({low:,.2f} to {high:,.2f})"
        shown.add_row(name, near, f"{value:,.2f} ± {width:.4f}", f"{truth:,.2f}")
        rows.append([name, "local", here.value, low, high, people, EPSILON])
        rows.append([name, "central", value, value - width, value + width, people, EPSILON])
    screen.print(shown, f"Ledger of the curator: {ledger.status('mothers').left:g} of 2 left\n")

    times = 60 if small else 400
    held = [
        coverage(survey, values, truth, times, screen)
        for survey, values, truth in ((count, young, truths[0]), (mean, earned, truths[1]))
    ]
    screen.print(
        f"[bold]Do 95% intervals hold?[/bold] Yes/no {held[0]} of {times}, means {held[1]} of "
        f"{times} (simulation:\nwho truly answered {times} times would have epsilon {times})\n"
    )
    needed = Table("epsilon", *half_widths(1, 1), title="People needed for a share ± 1 point",
                   title_justify="left", box=None)  # fmt: skip
    for epsilon in (0.25, 0.5, 1.0, 2.0, 4.0):
        needed.add_row(f"{epsilon:g}", *(f"{n:,}" for n in people_needed(epsilon, 0.01).values()))
    screen.print(needed)

    with (out / "survey.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["question", "noise", "value", "low", "high", "people", "epsilon"])
        writer.writerows(rows)
    draw(out / "errors.png", people)
    screen.print(f"\nMay be published, {out}: errors.png, survey.csv.")
    return {
        "local": local, "central": central, "truths": truths, "people": people, "both": both,
        "held": held, "times": times, "ledger": ledger,
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A survey that nobody has to trust.")
    parser.add_argument("--out", type=Path, default=Path("survey"), metavar="FOLDER")
    parser.add_argument("--small", action="store_true", help="4,000 people instead of 31,857")
    arguments = parser.parse_args()
    main(arguments.out, arguments.small)
