"""What all questions of ``sfumato query`` share: the table, its options, asking and showing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperGroup

from sfumato.cli.output import console, plain_table, print_json, working

if TYPE_CHECKING:
    from sfumato.ledger import Preview
    from sfumato.queries import Answer, Protected
    from sfumato.queries.base import Query


class SourceFirst(TyperGroup):
    """Lets the table's options follow the table, before the question.

    Click parses a group's options only up to its first argument.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Moves the source behind the options that follow it."""
        flags = {
            name
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and option.is_flag
            for name in (*option.opts, *option.secondary_opts)
        }
        options: list[str] = []
        positions: list[str] = []
        rest = list(args)
        while rest and rest[0] not in self.commands:
            word = rest.pop(0)
            if not word.startswith("-"):
                positions.append(word)
                continue
            options.append(word)
            if "=" not in word and word not in flags and rest:
                options.append(rest.pop(0))
        return super().parse_args(ctx, [*options, *positions, *rest])


@dataclass(frozen=True)
class Opening:
    """Everything needed to put the table under protection, once the question is known."""

    source: str
    arguments: Mapping[str, Any]
    budget: tuple[float | None, float, float | None]

    def protect(self) -> Protected:
        """The table under protection of its budget."""
        from sfumato.ledger import Budget
        from sfumato.queries import protect

        epsilon, delta, opaque = self.budget
        budget = None if epsilon is None else Budget(epsilon, delta, opaque)
        url = self.arguments["ledger"]
        known = budget is None or self._known(url)
        table = protect(self.source, budget=budget, **self.arguments)
        if not known:
            console(stderr=True).print(
                f"sfumato: opened the budget of {table.dataset!r} in {table.ledger}: "
                f"epsilon {epsilon:g}, delta {delta:g}, for good",
                markup=False,
                soft_wrap=True,
            )
        return table

    def _known(self, url: str) -> bool:
        """Whether the ledger is there and has the dataset."""
        from sfumato.ledger import Ledger, LedgerError
        from sfumato.queries.sources import name_of

        try:
            ledger = Ledger(url, create=False)
        except LedgerError:
            return False
        name = self.arguments["name"] or name_of(self.source, self.arguments["table"])
        known = name in ledger
        ledger.close()
        return known


def query(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="A Parquet or CSV file, or a database's URL.")],
    dataset: Annotated[str, typer.Option(help="Its name in the ledger; else the file's.")] = "",
    unit: Annotated[
        str | None, typer.Option(help="The column that tells whose a row is; else each row is one.")
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(help="Most rows of one unit that count; needed with --unit.")
    ] = None,
    max_groups: Annotated[
        int | None, typer.Option(help="Most groups of a group-by one unit may enter.")
    ] = None,
    unit_name: Annotated[str, typer.Option(help="What a unit is called: person, patient.")] = "",
    budget: Annotated[
        float | None, typer.Option(help="The whole budget's epsilon, the first time.")
    ] = None,
    budget_delta: Annotated[float, typer.Option(help="The whole budget's delta.")] = 0.0,
    opaque_delta: Annotated[
        float | None, typer.Option(help="The part of it set aside for opaque releases.")
    ] = None,
    ledger: Annotated[
        str, typer.Option("--url", envvar="SFUMATO_LEDGER", help="Where the ledger is.")
    ] = "sqlite:///privacy.db",
    table: Annotated[str, typer.Option(help="With a URL: which table (or file, for Spark).")] = "",
    analyst: Annotated[str, typer.Option(help="Who asks.")] = "",
    neighbours: Annotated[
        str, typer.Option(help="add-remove, zero-out or replace-one.")
    ] = "add-remove",
    domain: Annotated[
        list[str] | None,
        typer.Option(help='Public categories of a column: "city=Rome,Milan". Repeatable.'),
    ] = None,
    type_of: Annotated[
        list[str] | None,
        typer.Option("--type", help='What a text column holds: "age=float64". Repeatable.'),
    ] = None,
    same_data_ok: Annotated[
        bool, typer.Option(help="The same data may have a second budget under another name.")
    ] = False,
) -> None:
    """Private statistics from a table: the table, its options, then a question.

    SOURCE is a Parquet or CSV file, or a database's URL with --table. The ledger charges every
    answer to the table's budget before a row is read.

    Example: sfumato query patients.csv --unit patient_id --max-rows 3 --budget 3 --type age=float64
    count --where "age > 60" --epsilon 0.1
    """
    arguments = {
        "name": dataset,
        "unit": unit,
        "max_rows_per_unit": max_rows,
        "max_groups_per_unit": max_groups,
        "unit_name": unit_name,
        "ledger": ledger,
        "table": table,
        "analyst": analyst,
        "neighbours": neighbours,
        "domains": {
            key: [read_category(v) for v in text.split(",")] for key, text in _pairs(domain)
        },
        "types": dict(_pairs(type_of)),
        "same_data_ok": same_data_ok,
    }
    context.obj = Opening(source, arguments, (budget, budget_delta, opaque_delta))


def _pairs(texts: Sequence[str] | None) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts or ()]
    for text, (key, sign, value) in zip(texts or (), pairs, strict=True):
        if not (key and sign and value):
            raise ValueError(f"expected COLUMN=VALUE, got {text!r}")
    return [(key, value) for key, _, value in pairs]


def read_category(text: str) -> Any:
    """A category as typed: a whole number, true or false, or text (also in double quotes)."""
    stripped = text.strip()
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    if stripped.lstrip("-").isdigit():
        return int(stripped)
    return stripped.strip('"')


# --- options of the questions -------------------------------------------------------------------

Epsilon = Annotated[float, typer.Option(help="What the answer may cost.")]
Delta = Annotated[float, typer.Option(help="Gaussian noise instead of Laplace's; private keys.")]
Where = Annotated[list[str] | None, typer.Option(help="A condition in SQL. Repeatable.")]
Confidence = Annotated[float, typer.Option(help="Of the intervals.")]
Key = Annotated[str, typer.Option(help="Idempotency key: asked again, the stored answer comes.")]
DryRun = Annotated[bool, typer.Option("--preview", help="Say the price; spend and read nothing.")]
By = Annotated[list[str] | None, typer.Option(help="Group by this column. Repeatable.")]
PrivateKeys = Annotated[
    bool, typer.Option(help="Find the groups privately (needs --delta) instead of a --domain.")
]
Column = Annotated[str, typer.Argument(help="The column.")]
Lower = Annotated[float, typer.Argument(help="Values below count as this.")]
Upper = Annotated[float, typer.Argument(help="Values above count as this.")]
Default = Annotated[float | None, typer.Option(help="What a missing value is.")]
Candidates = Annotated[int, typer.Option(help="Into how many parts the range falls, 2 to 1000000.")]
WithInterval = Annotated[
    bool, typer.Option("--interval/--no-interval", help="Half of epsilon goes to an interval.")
]
Winners = Annotated[int, typer.Option(help="How many, best first.")]
Keys = Annotated[
    str | None, typer.Option(help='Public categories, "a,b,c"; else those of --domain.')
]


@dataclass(frozen=True)
class Manner:
    """How to ask, and how to show."""

    by: Sequence[str] | None = None
    private_keys: bool = False
    key: str = ""
    preview: bool = False
    as_json: bool = False
    plot: Path | None = None


def ask_and_show(context: typer.Context, question: Query, manner: Manner) -> None:
    """Asks one question, or says its price."""
    opening: Opening = context.obj
    with working("Asking"):
        table = opening.protect()
        if manner.by:
            grouped = table.group_by(*manner.by, private_keys=manner.private_keys)
            question = grouped.query(question)
        if manner.preview:
            show_preview(table.preview(question), [question], manner.as_json)
            return
        (answer,) = table.ask(question, key=manner.key)
    show_answers([answer], manner)


def show_answers(answers: Sequence[Answer], manner: Manner) -> None:
    """For people or for programs, and as a plot."""
    if manner.plot is not None:
        from sfumato.reports.style import save

        save(answers[0].plot(), manner.plot)
    if manner.as_json:
        found = [answer.to_dict() for answer in answers]
        print_json(found[0] if len(found) == 1 else {"answers": found})
        return
    for answer in answers:
        console().print(str(answer), markup=False, soft_wrap=True)
    if manner.plot is not None:
        console().print(f"Plot written to {manner.plot}")


def show_preview(preview: Preview, questions: Sequence[Query], as_json: bool) -> None:
    """What questions would cost."""
    if as_json:
        print_json(preview.to_dict())
        return
    table = plain_table("What it would cost")
    for heading in ("question", "epsilon asked", "reading after", "left after", "passes"):
        table.add_column(heading, justify="left" if heading == "question" else "right")
    for question, row in zip(questions, preview.events, strict=True):
        table.add_row(
            question.describe(),
            f"{question.epsilon:g}",
            f"{row.reading:.4g}",
            f"{row.left:.4g}",
            "yes" if row.passes else "no",
        )
    console().print(table)
    for row in preview.events:
        if not row.passes:
            console().print(row.reason, markup=False, soft_wrap=True)


def price_of(epsilon: float, delta: float, where: Where, confidence: float) -> dict[str, Any]:
    """What all questions take by name."""
    return {
        "epsilon": epsilon,
        "delta": delta,
        "where": tuple(where) if where else None,
        "confidence": confidence,
    }
