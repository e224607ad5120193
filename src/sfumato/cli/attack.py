"""``sfumato attack``: what could someone learn from what was released?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attribute import attribute
from sfumato.cli.compare_attacks import compare
from sfumato.cli.exposure import exposure
from sfumato.cli.extraction import extraction
from sfumato.cli.gradient_attacks import gradients
from sfumato.cli.inversion import inversion
from sfumato.cli.membership import membership
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, number, plain_table, print_json
from sfumato.cli.people_attacks import differencing, linkage
from sfumato.cli.statistics_attacks import tracing
from sfumato.cli.teachers import teachers
from sfumato.cli.tensor_attack import tensor

if TYPE_CHECKING:
    from sfumato.attacks.averaging import Estimate
    from sfumato.core.guarantee import Guarantee
    from sfumato.core.randomness import Coins

app = typer.Typer(no_args_is_help=True, help="Attack what was released, as an outsider would.")


@app.callback()
def attacks() -> None:
    """Attack what was released, as an outsider would."""


@dataclass(frozen=True)
class Averaging:
    """The averaging attack on a noisy count, with what the budget says of it."""

    truth: float
    noise_sd: float
    estimates: list[Estimate]
    pure: list[Guarantee]
    approximate: list[Guarantee]
    budget: float
    allowed: int
    private: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, one entry for each number of queries."""
        rows = [
            estimate.to_dict() | {"pure": pure.to_dict(), "approximate": approximate.to_dict()}
            for estimate, pure, approximate in zip(
                self.estimates, self.pure, self.approximate, strict=True
            )
        ]
        return {
            "truth": self.truth,
            "noise_sd": self.noise_sd,
            "private": self.private,
            "budget": self.budget,
            "queries_within_budget": self.allowed,
            "attack": rows,
        }


def run_averaging(
    truth: float,
    noise_sd: float,
    queries: list[int],
    confidence: float,
    delta: float,
    budget: float,
    coins: Coins,
) -> Averaging:
    """Asks a Laplace-noised count over and over; real noise, real accounting."""
    import numpy as np

    from sfumato.accounting import account
    from sfumato.attacks.averaging import attack
    from sfumato.core import validation
    from sfumato.core.events import repeat
    from sfumato.core.sensitivity import Sensitivity
    from sfumato.mechanisms.laplace import Laplace

    validation.positive("noise_sd", noise_sd)
    validation.positive("budget", budget)
    truth = validation.finite("true_count", truth)
    mechanism = Laplace(noise_sd / math.sqrt(2), Sensitivity(1.0))
    one = mechanism.guarantee().epsilon
    estimates = attack(
        lambda k: mechanism.perturb(np.full(k, truth), coins=coins), queries, confidence, noise_sd
    )
    events = [repeat(mechanism.event, k) for k in queries]
    return Averaging(
        truth=truth,
        noise_sd=noise_sd,
        estimates=estimates,
        pure=[account(event, 0.0) for event in events],
        approximate=[account(event, delta) for event in events],
        budget=budget,
        allowed=math.floor(budget / one * (1 + 1e-12)),
        private=coins.private,
    )


def averaging_table(result: Averaging) -> Group:
    """What the attacker knows after so many queries, what they cost, and what a budget says."""
    confidence = f"{result.estimates[0].confidence:.0%}"
    table = plain_table(
        f"One count asked again and again: truth {result.truth:g}, Laplace noise of sd "
        f"{result.noise_sd:g}"
    )
    headings = ("queries", "estimate", f"{confidence} interval", "+/-", "pure epsilon")
    for heading in (*headings, f"at delta {result.approximate[0].delta:g}"):
        table.add_column(heading, justify="right")
    for estimate, pure, approximate in zip(
        result.estimates, result.pure, result.approximate, strict=True
    ):
        low, high = estimate.interval
        table.add_row(
            f"{estimate.queries:,}",
            f"{estimate.mean:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{estimate.half_width:.4f}",
            number(pure.epsilon),
            number(approximate.epsilon),
        )
    verdict = (
        f" A budget of epsilon {result.budget:g} answers {result.allowed} such queries and refuses "
        "the rest."
    )
    return Group(table, verdict)


def plot_averaging(result: Averaging, path: Path) -> Path:
    """Draws the attack into ``path``."""
    from sfumato.reports.figures import averaging_figure
    from sfumato.reports.style import save

    figure = averaging_figure(
        [estimate.queries for estimate in result.estimates],
        [estimate.mean for estimate in result.estimates],
        [estimate.half_width for estimate in result.estimates],
        result.truth,
        [guarantee.epsilon for guarantee in result.pure],
        result.allowed,
        result.estimates[0].confidence,
    )
    return save(figure, path)


@app.command()
def averaging(
    true_count: Annotated[float, typer.Option(help="The count being asked for.")] = 3.0,
    noise_sd: Annotated[float, typer.Option(help="Standard deviation of the noise.")] = 2.0,
    queries: Annotated[str, typer.Option(help="After how many queries to look.")] = "5,50,500",
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.9,
    delta: Annotated[float, typer.Option(help="For the second epsilon column.")] = 1e-5,
    budget: Annotated[float, typer.Option(help="Epsilon after which a curator stops.")] = 3.0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Ask the same noisy question again and again, and average the noise away.

    Defaults: a lecture's credit ratings, where 3 people are rated bad and noise has a standard
    deviation of 2 (epsilon 0.707 a query).

    Example: sfumato attack averaging --queries 5,50,500 --plot averaging.png
    """
    from sfumato.core.randomness import SYSTEM

    try:
        counts = [int(part) for part in queries.split(",")]
    except ValueError:
        raise ValueError(
            f"--queries must be whole numbers separated by commas, got {queries!r}"
        ) from None
    result = run_averaging(true_count, noise_sd, counts, confidence, delta, budget, SYSTEM)
    if plot is not None:
        plot_averaging(result, plot)
    if as_json:
        print_json(result.to_dict() | ({"plot": str(plot)} if plot else {}))
        return
    console().print(averaging_table(result))
    if plot is not None:
        console().print(f"Plot written to {plot}")


app.command()(tracing)
app.command()(differencing)
app.command()(linkage)
app.command()(membership)
app.command()(teachers)
app.command()(compare)
app.command()(inversion)
app.command()(extraction)
app.command()(attribute)
app.command()(exposure)
app.command()(gradients)
app.command()(tensor)
