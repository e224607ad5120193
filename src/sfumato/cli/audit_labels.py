"""``sfumato audit labels``: are randomised labels told as seldom as they should be?"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson
from sfumato.cli.output import console, plain_table, print_json, working
from sfumato.core.guarantee import round_down

if TYPE_CHECKING:
    from sfumato.audit.findings import Finding
    from sfumato.learning.label_dp.games import LabelGame
    from sfumato.learning.runs import RunFolder

__all__ = ["audit_drawn_reports", "audit_label_run", "audit_report_law", "labels"]


def labels(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(help="Of response, top-k, with-prior, alibi, bins; all by default."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="What is claimed.")] = 1.0,
    classes: Annotated[int, typer.Option(help="Of labels; for bins, numbers.")] = 10,
    samples: Annotated[
        int, typer.Option(help="Reports of each label, half of them for choosing an event.")
    ] = 100_000,
    confidence: Annotated[float, typer.Option(help="Of all lines together.")] = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits the ways in which a private label is told: by their exact law, and by sampling.

    Sets, priors and grids are made up, and no data is read. Exact: what the stated probabilities
    show of two labels. Sampled: what the code's own reports show of them, with fresh coins. Neither
    sees whether a run tells a label twice; `audit --run` looks at a run's own reports.

    Examples:
    sfumato audit labels

    sfumato audit labels top-k alibi --epsilon 3 --classes 5
    """
    from sfumato.core import validation
    from sfumato.learning.label_dp.games import label_game, label_game_names

    games = [
        label_game(name, epsilon=epsilon, classes=classes)
        for name in mechanisms or label_game_names()
    ]
    each = 1 - (1 - validation.open_probability("confidence", confidence)) / len(games)
    with working("auditing"):
        found = {
            game.name: [audit_report_law(game), audit_drawn_reports(game, samples, each)]
            for game in games
        }
    if as_json:
        shown = {name: [f.to_dict() for f in both] for name, both in found.items()}
        print_json({"labels": shown})
        return
    table = plain_table(f"At least, of the claimed epsilon {epsilon:g}")
    for name in ("mechanism", "a label is told", "exact", "sampled", "verdict"):
        table.add_column(name)
    for game in games:
        both = found[game.name]
        refuted = "REFUTED" if any(f.refuted for f in both) else "consistent"
        table.add_row(
            game.name, game.says, *(f"{round_down(f.epsilon):.4g}" for f in both), refuted
        )
    console().print(table)


def audit_report_law(game: LabelGame) -> Finding:
    """What the stated probabilities show of any two labels."""
    from sfumato.audit.exact import audit_finite

    found = [
        audit_finite(
            game.law(a), game.law(b), claim=game.guarantee,
            facts={"mechanism": game.name, "told": game.says, "labels": [a, b]},
        )
        for a, b in combinations(game.labels, 2)
    ]  # fmt: skip
    return max(found, key=lambda finding: finding.epsilon)


def audit_drawn_reports(game: LabelGame, samples: int, confidence: float) -> Finding:
    """What the code's own reports show of them, whatever their law."""
    from sfumato.audit.mechanism import audit_mechanism

    found = audit_mechanism(
        game.draw, combinations(game.labels, 2), claim=game.guarantee, samples=samples,
        confidence=confidence,
    )  # fmt: skip
    facts = dict(found.facts)
    known = {"mechanism": game.name, "told": game.says, "labels": facts.pop("pair")}
    return replace(found, facts=known | facts)


def audit_label_run(
    folder: RunFolder,
    confidence: float,
    analysis: str | None,
    data: str | None = None,
    declared: Path | None = None,
) -> Finding:
    """A run's own reports against the labels they were made of. The curator's.

    Only those of the first stage: later reports are within a set of classes for each label, so that
    no two rows need have the same law. Of numbers it is the bins that are told, given the histogram
    that they suit: the claim is that of the reports by themselves.
    """
    from sfumato.audit.label_reports import audit_reports
    from sfumato.cli.attacked import attacked
    from sfumato.core.guarantee import Guarantee
    from sfumato.learning.label_dp.number_recipe import NumberRecipe, read_recipe
    from sfumato.learning.label_dp.run_reports import read_first_reports

    if analysis is not None:
        raise ValueError(f"analysis must be left out for a run of label-dp, got {analysis!r}")
    loaded = attacked(folder.path, None, data, declared, None, False, numbers=True).data
    reports = read_first_reports(folder, loaded)
    record = folder.record()
    claim, recipe = (
        Guarantee.from_dict(record["guarantee"]), read_recipe(record["parameters"]["recipe"]),
    )  # fmt: skip
    if isinstance(recipe, NumberRecipe):
        claim = replace(claim, epsilon=recipe.method.report_epsilon)
    found = audit_reports(reports.labels, reports.told, claim=claim, confidence=confidence)
    facts: dict[str, Any] = {**found.facts, "reports_of_later_stages": reports.later}
    if "labels" in facts:
        facts["labels"] = [reports.names[label] for label in facts["labels"]]
    return replace(found, facts=facts)
