"""How the comparison of theorems is shown: a table with remarks, and a plot."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group
from rich.padding import Padding

from sfumato.accounting.compare import Claim, Comparison
from sfumato.cli.output import number, plain_table
from sfumato.reports.figures import comparison_figure
from sfumato.reports.style import save

__all__ = ["comparison_table", "plot_comparison"]


def comparison_table(comparison: Comparison) -> Group:
    """One row a theorem: what it proves, what was claimed, and whether that is so."""
    table = plain_table(
        f"DP-SGD, noise multiplier {comparison.noise_multiplier:g}, sample rate "
        f"{comparison.sample_rate:g}, {comparison.steps:,} steps, delta {comparison.delta:g}"
    )
    table.add_column("method", style="bold", no_wrap=True)
    for heading in ("epsilon", "delta", "claimed", "exact", "true?", "formula", "theorem?"):
        table.add_column(heading, justify="left" if heading.endswith("?") else "right")
    for row in comparison.rows:
        table.add_row(row.name, number(row.epsilon), f"{row.delta:.4g}", *_claim(row.claim))
    return Group(table, *_remarks(comparison))


def _claim(claim: Claim | None) -> tuple[str, ...]:
    if claim is None:
        return ("",) * 5
    return (
        "" if claim.printed_epsilon is None else f"{claim.printed_epsilon:,g}",
        number(claim.true_epsilon),
        "yes" if claim.holds else "NO",
        number(claim.formula_epsilon),
        "yes" if claim.formula_is_theorem else "NO",
    )


def _remarks(comparison: Comparison) -> list[Padding]:
    """The formulas in question, below the table where there is room for them."""
    lines = [
        "claimed: what the slides print. exact: what the same process really costs at the claim's "
        "delta, which decides whether the claim is true. formula: what the printed formula gives; "
        "theorem: whether it follows from one. Right numbers do come from wrong formulas.",
        "best: the least that any theorem can prove for steps of which only (eps, delta) is known.",
    ]
    for row in comparison.rows:
        if row.claim is not None:
            claim = row.claim
            lines.append(f"{row.name}: {claim.formula}, delta {claim.delta:.4g}. {claim.reason}")
    return [Padding(line, (0, 0, 0, 1)) for line in lines]


def plot_comparison(comparison: Comparison, path: str | Path) -> Path:
    """Draws the comparison into ``path``."""
    figure = comparison_figure(
        [row.name for row in comparison.rows],
        [row.epsilon for row in comparison.rows],
        [row.claim.printed_epsilon if row.claim else None for row in comparison.rows],
    )
    return save(figure, path)
