"""``sfumato demo``: the idea in a minute, with plots."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.rule import Rule

from sfumato.cli.attack import averaging_table, plot_averaging, run_averaging
from sfumato.cli.output import console, working


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the plots.")] = Path("demo"),
) -> None:
    """Shows what noise buys, what repetition costs, and how much the theorem matters.

    Draws its plots into a folder, ./demo unless told otherwise.
    """
    screen = console()
    written = [*_averaging(out), *_composition(out), *_crossover(out), *_trade_off(out)]
    screen.print(Rule("Plots", align="left"))
    for path in written:
        screen.print(f"  {path}")
    screen.print(
        "\nNext: [bold]sfumato account dp-sgd --help[/bold], "
        "[bold]sfumato calibrate dp-sgd --help[/bold], and README.md"
    )


def _averaging(out: Path) -> list[Path]:
    from sfumato.attacks.averaging import SLIDE_INTERVAL, SLIDE_RESPONSES, estimate
    from sfumato.core.randomness import SYSTEM

    screen = console()
    screen.print(Rule("1. Noise protects a count, until it is asked for too often", align="left"))
    with working("Asking 500 times"):
        result = run_averaging(3.0, 2.0, [5, 50, 500], 0.9, 1e-5, 3.0, SYSTEM)
    screen.print(averaging_table(result))
    printed = estimate(SLIDE_RESPONSES, confidence=0.9)
    screen.print(
        f"The lecture's own five answers: {printed}; it prints {SLIDE_INTERVAL[0]} to "
        f"{SLIDE_INTERVAL[1]}, having divided by 5 instead of 4 in the standard deviation.\n"
    )
    return [plot_averaging(result, out / "averaging.png")]


def _composition(out: Path) -> list[Path]:
    from sfumato.accounting.compare import compare
    from sfumato.cli.comparison import comparison_table, plot_comparison

    screen = console()
    screen.print(Rule("2. What a training run costs depends on the theorem", align="left"))
    with working("Accounting by every theorem"):
        comparison = compare(4.0, 0.01, 10_000, 1e-5)
    screen.print(comparison_table(comparison))
    screen.print()
    return [plot_comparison(comparison, out / "composition.png")]


def _crossover(out: Path) -> list[Path]:
    from sfumato.cli.crossover import crossover, plot_crossover

    curve = crossover(1.0, 1e-5, 10_000)
    console().print(Rule("3. Laplace or Gaussian?", align="left"))
    console().print(
        "At epsilon 1 and delta 1e-5, Gaussian noise is the smaller from "
        f"{curve.crossover} dimensions on.\n"
    )
    return [plot_crossover(curve, 1.0, 1e-5, out / "laplace-or-gaussian.png")]


def _trade_off(out: Path) -> list[Path]:
    from sfumato.accounting import privacy_profile
    from sfumato.core.events import dp_sgd
    from sfumato.reports.figures import trade_off_figure
    from sfumato.reports.style import save

    screen = console()
    screen.print(Rule("4. What is left for an attacker", align="left"))
    with working("Computing the trade-off curve"):
        profile = privacy_profile(dp_sgd(4, 0.01, 10_000), deltas=[1e-4, 1e-5, 1e-6])
    for guarantee in profile.guarantees:
        screen.print(f"  {guarantee}")
    screen.print(
        "  Whoever tries to tell whether one record was used, and accepts 1 % false alarms, "
        f"finds it in at most {profile.power_at(0.01):.1%} of the cases where it was.\n"
    )
    figure = trade_off_figure(profile.alphas, profile.betas, "sigma 4, 1 % lots, 10,000 steps")
    return [save(figure, out / "trade-off.png")]
