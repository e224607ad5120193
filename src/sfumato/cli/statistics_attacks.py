"""``sfumato attack tracing``, and how attacks on statistics are shown: exact beside private."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding

from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, number, plain_table, print_json, working

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sfumato.attacks.tracing import Tracing
    from sfumato.core.guarantee import Guarantee
    from sfumato.core.randomness import Coins

__all__ = ["CURATOR", "Epsilon", "below", "show", "tracing"]

CURATOR = "Measured with the private data: for the curator only, not for publication."

Epsilon = Annotated[float, typer.Option(help="What the private release may cost in all.")]


def show(shown: Group, data: dict[str, Any], as_json: bool, plots: dict[str, Path | None]) -> None:
    """Prints a result for people or for programs, with the files that were drawn."""
    drawn = {name: str(path) for name, path in plots.items() if path is not None}
    if as_json:
        print_json({"channel": "curator"} | data | drawn)
        return
    screen = console()
    screen.print(shown)
    for path in drawn.values():
        screen.print(f"Plot written to {path}")


def below(*lines: str) -> list[Padding]:
    """Remarks under a table."""
    return [Padding(line, (0, 0, 0, 1)) for line in lines]


@dataclass(frozen=True)
class TracingRun:
    """The tracing attack on exact and on private averages of the same made-up people.

    ``scores`` has two rows for each release: the members' scores and the others'.
    """

    people: int
    trials: int
    exact: Tracing
    private: Tracing
    guarantee: Guarantee
    scores: dict[str, NDArray[np.float64]]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the scores."""
        return {
            "people": self.people,
            "trials": self.trials,
            "exact": self.exact.to_dict(),
            "private": self.private.to_dict(),
        } | self.guarantee.to_dict()


def run_tracing(
    people: int,
    attributes: int,
    epsilon: float,
    trials: int,
    statistic: str,
    coins: Coins,
    random: np.random.Generator | None = None,
) -> TracingRun:
    """Traces members of ``trials`` made-up data sets, p ~ Beta(2, 2) for each attribute.

    Replacing one person moves the averages of d numbers in [0, 1] by at most d / n in L1.
    """
    import numpy as np

    from sfumato.attacks.tracing import Statistic, evaluate, homer, inner_product
    from sfumato.core import Neighbours, Sensitivity, validation
    from sfumato.mechanisms.laplace import Laplace

    n, d = validation.at_least("people", people, 2), validation.count("attributes", attributes)
    kind = validation.choice("statistic", statistic, Statistic)
    score = inner_product if kind is Statistic.INNER_PRODUCT else homer
    declared = Sensitivity(d / n, neighbours=Neighbours.REPLACE_ONE, unit="person", dimension=d)
    noise = Laplace.calibrate(declared, epsilon=epsilon)
    random = random or np.random.default_rng()  # for made-up people only, never for noise
    kept: dict[str, list[Any]] = {"exact": [], "private": []}
    for _ in range(validation.count("trials", trials)):
        p = random.beta(2, 2, d)
        members, others = (random.random((2, n, d)) < p).astype(float)
        exact = members.mean(axis=0)
        for name, seen in (("exact", exact), ("private", noise.perturb(exact, coins=coins))):
            kept[name].append([score(members, seen, p), score(others, seen, p)])
    scores = {name: np.concatenate(part, axis=1) for name, part in kept.items()}
    exact, private = (
        evaluate(scores[name][0], scores[name][1], d, kind) for name in ("exact", "private")
    )
    return TracingRun(n, trials, exact, private, noise.guarantee(), scores)


def verdict(found: Tracing, epsilon: float, rate: float = 0.01) -> str:
    """Whether members are found, beyond three standard errors, more often than epsilon allows."""
    roc, power, allowed = found.roc, found.roc.power_at(rate), math.exp(epsilon) * rate
    errors = power * (1 - power) / roc.members + allowed * math.exp(epsilon) / roc.others
    return "succeeds" if power > allowed + 3 * math.sqrt(errors) else "fails"


def tracing_table(run: TracingRun) -> Group:
    """Members found at low rates of false alarms, exact beside private, and the bound."""
    epsilon = run.guarantee.epsilon
    table = plain_table(
        f"Who was in the data? {run.exact.attributes:,} averages of {run.people:,} people"
    )
    rates = [f"at {rate:.1%}" for rate, _ in run.exact.power]
    for heading in ("release", "AUC", *rates, "the attack"):
        left = heading in ("release", "the attack")
        table.add_column(heading, justify="left" if left else "right")
    rows = (("exact averages", run.exact), (f"private, epsilon {number(epsilon)}", run.private))
    for name, found in rows:
        powers = (f"{power:.1%}" for _, power in found.power)
        table.add_row(name, f"{found.auc:.3f}", *powers, verdict(found, epsilon))
    odds = math.exp(epsilon)
    most = [min(odds * rate, 1 - (1 - rate) / odds) for rate, _ in run.exact.power]
    table.add_row("the most it allows", "", *(f"{share:.1%}" for share in most))
    table.add_row("guessing", "0.500", *(f"{rate:.1%}" for rate, _ in run.exact.power))
    return Group(
        table,
        *below(
            f"Over {run.trials:,} data sets. at 1.0%: the share of members found when 1 in 100 "
            "others is accused; under epsilon-DP it is at most e^epsilon times that, whatever is "
            "computed. The attack succeeds where it finds more, beyond chance.",
            CURATOR,
        ),
    )


def tracing(
    people: Annotated[int, typer.Option(help="How many people the averages are of.")] = 100,
    attributes: Annotated[int, typer.Option(help="How many averages are released.")] = 1000,
    epsilon: Epsilon = 1.0,
    trials: Annotated[int, typer.Option(help="Over how many data sets to measure.")] = 20,
    statistic: Annotated[str, typer.Option(help="inner-product or homer.")] = "inner-product",
    plot: Plot = None,
    histogram: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Tell from released averages who was in the data (membership, as in DNA mixtures).

    The people are made up: each attribute is 0 or 1, with a frequency that the attacker knows.

    Example: sfumato attack tracing --people 100 --attributes 1000 --epsilon 1 --plot roc.png
    """
    from sfumato.core.randomness import SYSTEM

    with working("Tracing"):
        run = run_tracing(people, attributes, epsilon, trials, statistic, SYSTEM)
        if plot is not None or histogram is not None:
            _plot_tracing(run, plot, histogram)
    show(tracing_table(run), run.to_dict(), as_json, {"plot": plot, "histogram": histogram})


def _plot_tracing(run: TracingRun, plot: Path | None, histogram: Path | None) -> None:
    from sfumato.reports.attack_figures import roc_figure, score_figure
    from sfumato.reports.style import save

    private = f"private, epsilon {number(run.guarantee.epsilon)}"
    if plot is not None:
        curves = [
            (name, found.roc.false_positive_rates, found.roc.true_positive_rates)
            for name, found in (("exact averages", run.exact), (private, run.private))
        ]
        lowest = 10 ** math.floor(math.log10(max(10 / run.exact.roc.others, 1e-5)))
        save(roc_figure(curves, run.guarantee.epsilon, min(lowest, 0.1)), plot)
    if histogram is not None:
        panels = [("exact averages", *run.scores["exact"]), (private, *run.scores["private"])]
        save(score_figure(panels), histogram)
