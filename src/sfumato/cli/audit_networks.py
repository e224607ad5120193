"""``sfumato audit functional``, ``adaptive-laplace`` and ``autoencoder``: at most what they claim?

All releases of a method are played together, on the two tables of which its proof says that they
are told apart most easily.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.cli.audit_games import findings_of, show_findings
from sfumato.cli.options import AsJson
from sfumato.cli.output import working

__all__ = ["adaptive_laplace", "autoencoder", "functional"]

Epsilon = Annotated[float, typer.Option(help="What is claimed, of all releases together.")]
Neighbours = Annotated[str, typer.Option(help="replace-one or add-remove.")]
Samples = Annotated[
    int, typer.Option(help="Draws on either table, half of them for choosing an event.")
]
Confidence = Annotated[float, typer.Option(help="Of all lines together.")]

_HEADS = ("none", "functional", "objective")


def functional(
    rounds: Annotated[
        list[int] | None, typer.Argument(help="How many; a line for each. 1 and 4 by default.")
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Annotated[
        float, typer.Option(help="Of the claim; above 0 for normal noise in place of Laplace's.")
    ] = 0.0,
    neighbours: Neighbours = "replace-one",
    rows: Annotated[int, typer.Option(help="Of the larger table.")] = 4,
    samples: Samples = 4000,
    confidence: Confidence = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits the functional network: all noisy sums of a run, with one record or another.

    Tables of a few records are made up so that one matters most in every round, and no data is
    read. Exact: what the declared noise of all rounds shows of it, computed, by their product law.
    Sampled: what the code's own releases show, each round at weights made by the rounds before it.

    Exactly, it sees declared noise that is a hundredth too small; by draws of one round, noise that
    is half of what it should be, and of many rounds less. It sees a linear model of one input: no
    hidden layers, no curvatures, nothing of features. Half a minute; 16 rounds take minutes.

    Examples:
    sfumato audit functional

    sfumato audit functional 1 16 --epsilon 4 --samples 1000

    sfumato audit functional 8 --delta 1e-5 --neighbours add-remove
    """
    from sfumato.learning.functional.games import round_game

    games = {
        f"{number} round{'s'[: number != 1]}": round_game(
            epsilon=epsilon, delta=delta, neighbours=neighbours, rows=rows, rounds=number
        )
        for number in rounds or (1, 4)
    }
    with working("playing rounds"):
        found = findings_of(games, samples, confidence)
    title = f"At least, of one record of {rows}, delta {delta:g}"
    show_findings(found, "functional", title, as_json=as_json)


def adaptive_laplace(
    releases: Annotated[
        list[str] | None,
        typer.Argument(help="Of relevance, inputs, labels, record, whole; all by default."),
    ] = None,
    epsilon: Epsilon = 1.0,
    relevance_share: Annotated[
        float, typer.Option(help="Of epsilon, for relevance; 0 for none.")
    ] = 0.02,
    label_share: Annotated[
        float | None, typer.Option(help="Of the rest, for the label; by default the usual one.")
    ] = None,
    labels: Annotated[str, typer.Option(help="How they are told: response or one-hot.")] = (
        "response"
    ),
    classes: Annotated[int, typer.Option(help="How many.")] = 10,
    samples: Samples = 4000,
    confidence: Confidence = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits the adaptive Laplace mechanism: relevance, noisy inputs and a label, of one record.

    Two records are made up that differ as much as they can in all three, and no data is read. A
    record is what is told of its inputs and its label; whole is all of it, with shares by the
    relevance that was released. Exact: computed, by the law of each release and their product.
    Sampled: what the code's own releases show. Neighbours are replacements, as the method has it.

    It sees two inputs and a linear network of relevance. It does not see whether a run tells a
    record twice; `audit --run` subtracts a run's records from what it told of them.

    Examples:
    sfumato audit adaptive-laplace

    sfumato audit adaptive-laplace record whole --epsilon 8 --labels one-hot
    """
    from sfumato.learning.adaptive_laplace.games import RELEASES, told_game

    names = releases or [name for name in RELEASES if relevance_share > 0 or name != "relevance"]
    games = {
        name: told_game(
            name, epsilon=epsilon, relevance_share=relevance_share, label_share=label_share,
            labels=labels, classes=classes,
        )
        for name in names
    }  # fmt: skip
    with working("telling records"):
        found = findings_of(games, samples, confidence)
    title = f"At least, of one record, epsilon {epsilon:g} in all"
    show_findings(found, "adaptive-laplace", title, as_json=as_json)


def autoencoder(
    heads: Annotated[
        list[str] | None,
        typer.Argument(help="Classifiers: none, functional, objective; all by default."),
    ] = None,
    epsilon: Epsilon = 1.0,
    delta: Annotated[float, typer.Option(help="Of the claim; 0 for Laplace noise.")] = 1e-5,
    neighbours: Neighbours = "add-remove",
    widths: Annotated[
        list[int] | None, typer.Option(help="Codes of each layer; repeat it for more. 2 if unsaid.")
    ] = None,
    columns: Annotated[int, typer.Option(help="Of a row.")] = 3,
    rounds: Annotated[int, typer.Option(help="Releases of each layer.")] = 2,
    rows: Annotated[int, typer.Option(help="Of the larger table.")] = 3,
    samples: Samples = 4000,
    confidence: Confidence = 0.99,
    as_json: AsJson = False,
) -> None:
    """Audits auto-encoders of the functional way: all coefficients of a run, and its classifier.

    Tables of a few rows and their codes are made up so that one row matters most in every release,
    and no data is read. Exact: what the declared noise shows of it, by the releases' product law;
    of the classifier "objective" that is the layers' part, and `audit erm objective` has the other.
    Where a row is replaced, layers after the first are left out. Sampled: what the code's own
    releases and fits show, classifier included.

    Encoders are the auditor's, since a release must be private for any that is fixed before. Of the
    way dp-sgd nothing is played: `audit step` audits the steps that it takes.

    Examples:
    sfumato audit autoencoder

    sfumato audit autoencoder functional --neighbours replace-one --delta 0 --epsilon 4

    sfumato audit autoencoder none --widths 3 --widths 2 --rounds 1
    """
    from sfumato.core import validation
    from sfumato.core.neighbours import Neighbours as Relation
    from sfumato.learning.autoencoder.games import run_game
    from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe

    validation.count("rows", rows)
    games = {
        head: run_game(
            AutoEncoderRecipe(
                tuple(widths or (2,)), epsilon=epsilon, delta=delta,
                neighbours=Relation.parse(neighbours), head=head, rounds=rounds, origin="made up",
            ),
            columns=columns, rows=rows,
        )
        for head in heads or _HEADS
    }  # fmt: skip
    with working("playing releases"):
        found = findings_of(games, samples, confidence)
    left_out = max(game.left_out for game in games.values())
    note = f"Left out: {left_out} releases of layers after the first." if left_out else ""
    title = f"At least, of one row of {rows}, delta {delta:g}, by classifier"
    show_findings(found, "autoencoder", title, as_json=as_json, note=note)
