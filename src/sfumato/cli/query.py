"""``sfumato query``: private statistics from a table, through the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from typer.core import TyperGroup

from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, plain_table, print_json, working

if TYPE_CHECKING:
    from sfumato.ledger import Preview
    from sfumato.queries import Answer, Protected
    from sfumato.queries.base import Query

__all__ = ["app"]


class _SourceFirst(TyperGroup):
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


app = typer.Typer(no_args_is_help=True, cls=_SourceFirst)


@dataclass(frozen=True)
class _Opening:
    """Everything needed to put the table under protection, once the question is known."""

    source: str
    arguments: Mapping[str, Any]
    budget: tuple[float | None, float, float | None]

    def protect(self) -> Protected:
        from sfumato.ledger import Budget
        from sfumato.queries import protect

        epsilon, delta, opaque = self.budget
        budget = None if epsilon is None else Budget(epsilon, delta, opaque)
        return protect(self.source, budget=budget, **self.arguments)


@app.callback()
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
        "domains": {key: [_read(v) for v in text.split(",")] for key, text in _pairs(domain)},
        "types": dict(_pairs(type_of)),
        "same_data_ok": same_data_ok,
    }
    context.obj = _Opening(source, arguments, (budget, budget_delta, opaque_delta))


def _pairs(texts: Sequence[str] | None) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in texts or ()]
    for text, (key, sign, value) in zip(texts or (), pairs, strict=True):
        if not (key and sign and value):
            raise ValueError(f"expected COLUMN=VALUE, got {text!r}")
    return [(key, value) for key, _, value in pairs]


def _read(text: str) -> Any:
    """A category as typed: a whole number, true or false, or text (also in double quotes)."""
    stripped = text.strip()
    if stripped.lower() in ("true", "false"):
        return stripped.lower() == "true"
    if stripped.lstrip("-").isdigit():
        return int(stripped)
    return stripped.strip('"')


# --- what all questions share -------------------------------------------------------------------

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
Keys = Annotated[
    str | None, typer.Option(help='Public categories, "a,b,c"; else those of --domain.')
]


@dataclass(frozen=True)
class _Manner:
    """How to ask, and how to show."""

    by: Sequence[str] | None = None
    private_keys: bool = False
    key: str = ""
    preview: bool = False
    as_json: bool = False
    plot: Path | None = None


def _ask(context: typer.Context, question: Query, manner: _Manner) -> None:
    opening: _Opening = context.obj
    with working("Asking"):
        table = opening.protect()
        if manner.by:
            grouped = table.group_by(*manner.by, private_keys=manner.private_keys)
            question = grouped.query(question)
        if manner.preview:
            _show_preview(table.preview(question), [question], manner.as_json)
            return
        (answer,) = table.ask(question, key=manner.key)
    _show([answer], manner)


def _show(answers: Sequence[Answer], manner: _Manner) -> None:
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


def _show_preview(preview: Preview, questions: Sequence[Query], as_json: bool) -> None:
    if as_json:
        print_json(preview.to_dict())
        return
    table = plain_table("What it would cost")
    for heading in ("question", "epsilon asked", "reading after", "left after", "passes"):
        table.add_column(heading, justify="left" if heading == "question" else "right")
    for question, row in zip(questions, preview.events, strict=True):
        table.add_row(
            type(question).__name__.lower(),
            f"{question.epsilon:g}",
            f"{row.reading:.4g}",
            f"{row.left:.4g}",
            "yes" if row.passes else "no",
        )
    console().print(table)


def _price(epsilon: float, delta: float, where: Where, confidence: float) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "delta": delta,
        "where": tuple(where) if where else None,
        "confidence": confidence,
    }


# --- the questions ------------------------------------------------------------------------------


@app.command()
def count(
    context: typer.Context,
    epsilon: Epsilon,
    units: Annotated[bool, typer.Option("--units", help="Count units rather than rows.")] = False,
    delta: Delta = 0.0,
    where: Where = None,
    by: By = None,
    private_keys: PrivateKeys = False,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """How many rows, or units.

    Example: ... count --where "age > 60" --epsilon 0.1
    """
    from sfumato.queries import Count, CountUnits

    kind = CountUnits if units else Count
    question = kind(**_price(epsilon, delta, where, confidence))
    _ask(context, question, _Manner(by, private_keys, key, preview, as_json, plot))


def _of_column(name: str) -> Callable[..., None]:
    def command(
        context: typer.Context,
        column: Column,
        lower: Lower,
        upper: Upper,
        epsilon: Epsilon,
        default: Annotated[float | None, typer.Option(help="What a missing value is.")] = None,
        delta: Delta = 0.0,
        where: Where = None,
        by: By = None,
        private_keys: PrivateKeys = False,
        confidence: Confidence = 0.95,
        key: Key = "",
        preview: DryRun = False,
        plot: Plot = None,
        as_json: AsJson = False,
    ) -> None:
        from sfumato import queries

        price = _price(epsilon, delta, where, confidence)
        question = getattr(queries, name)(column, lower, upper, default, **price)
        _ask(context, question, _Manner(by, private_keys, key, preview, as_json, plot))

    command.__doc__ = (
        f"The {name.lower()} of a column, each value clamped to declared bounds.\n\n"
        f"Example: ... {name.lower()} age 0 120 --by city --epsilon 0.2"
    )
    return command


for _name in ("Sum", "Mean", "Variance"):
    app.command(_name.lower())(_of_column(_name))


@app.command()
def quantile(
    context: typer.Context,
    column: Column,
    share: Annotated[float, typer.Argument(help="Which: 0.5 is the median.")],
    lower: Lower,
    upper: Upper,
    epsilon: Epsilon,
    candidates: Annotated[int, typer.Option(help="Into how many parts the range falls.")] = 1000,
    interval: Annotated[bool, typer.Option(help="Half of epsilon goes to an interval.")] = True,
    where: Where = None,
    by: By = None,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """A quantile of a column.

    Example: ... quantile age 0.9 0 120 --epsilon 0.5
    """
    from sfumato.queries import Quantile

    price = _price(epsilon, 0.0, where, confidence)
    question = Quantile(column, share, lower, upper, candidates, interval, **price)
    _ask(context, question, _Manner(by, False, key, preview, as_json, plot))


@app.command()
def median(
    context: typer.Context,
    column: Column,
    lower: Lower,
    upper: Upper,
    epsilon: Epsilon,
    candidates: Annotated[int, typer.Option(help="Into how many parts the range falls.")] = 1000,
    interval: Annotated[bool, typer.Option(help="Half of epsilon goes to an interval.")] = True,
    where: Where = None,
    by: By = None,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """The median of a column.

    Example: ... median income 0 200000 --epsilon 0.5
    """
    quantile(
        context, column, 0.5, lower, upper, epsilon, candidates, interval, where, by, confidence,
        key, preview, plot, as_json,
    )  # fmt: skip


@app.command()
def histogram(
    context: typer.Context,
    column: Column,
    epsilon: Epsilon,
    edges: Annotated[str | None, typer.Option(help='The bins of a number: "0,20,40".')] = None,
    keys: Keys = None,
    delta: Delta = 0.0,
    where: Where = None,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """How many rows in each bin, or with each category.

    Example: ... histogram age --edges 0,20,40,60,80,120 --epsilon 0.2 --plot ages.png
    """
    from sfumato.queries import Histogram

    bins = None if edges is None else [float(edge) for edge in edges.split(",")]
    price = _price(epsilon, delta, where, confidence)
    question = Histogram(column, bins, _listed(keys), **price)
    _ask(context, question, _Manner(None, False, key, preview, as_json, plot))


def _listed(keys: str | None) -> list[Any] | None:
    return None if keys is None else [_read(item) for item in keys.split(",")]


@app.command()
def crosstab(
    context: typer.Context,
    columns: Annotated[list[str], typer.Argument(help="Two or more columns.")],
    epsilon: Epsilon,
    delta: Delta = 0.0,
    where: Where = None,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """How many rows with each combination of categories, which --domain declares.

    Example: ... --domain smoker=true,false --domain city=Rome,Bari crosstab smoker city --epsilon 1
    """
    from sfumato.queries import Crosstab

    question = Crosstab(tuple(columns), **_price(epsilon, delta, where, confidence))
    _ask(context, question, _Manner(None, False, key, preview, as_json, plot))


@app.command("most-common")
def most_common(
    context: typer.Context,
    column: Column,
    epsilon: Epsilon,
    keys: Keys = None,
    winners: Annotated[int, typer.Option(help="How many, best first.")] = 1,
    where: Where = None,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """The most common category, by the exponential mechanism.

    Example: ... most-common diagnosis --keys flu,cold,asthma --epsilon 0.5
    """
    from sfumato.queries import MostCommon

    price = _price(epsilon, 0.0, where, confidence)
    question = MostCommon(column, _listed(keys), winners, **price)
    _ask(context, question, _Manner(None, False, key, preview, as_json))


@app.command("arg-max")
def arg_max(
    context: typer.Context,
    over: Annotated[str, typer.Argument(help="The column of candidates.")],
    column: Column,
    lower: Lower,
    upper: Upper,
    epsilon: Epsilon,
    keys: Keys = None,
    winners: Annotated[int, typer.Option(help="How many, best first.")] = 1,
    where: Where = None,
    confidence: Confidence = 0.95,
    key: Key = "",
    preview: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """The category with the largest sum of a column, by the exponential mechanism.

    Example: ... arg-max city income 0 200000 --keys Rome,Milan,Bari --epsilon 0.5
    """
    from sfumato.queries import ArgMax

    price = _price(epsilon, 0.0, where, confidence)
    question = ArgMax(over, column, lower, upper, _listed(keys), winners, **price)
    _ask(context, question, _Manner(None, False, key, preview, as_json))


# --- several questions from a file --------------------------------------------------------------

Requests = Annotated[Path, typer.Argument(help="A JSON file: a list of questions.")]


@app.command()
def ask(context: typer.Context, path: Requests, key: Key = "", as_json: AsJson = False) -> None:
    """Several questions as one request with one price, from a JSON file.

    Example of its content: [{"query": "count", "epsilon": 0.1}, {"query": "mean", "column": "age",
    "lower": 0, "upper": 120, "epsilon": 0.2, "where": "smoker"}]
    """
    opening: _Opening = context.obj
    questions = _read_questions(path)
    with working("Asking"):
        answers = opening.protect().ask(*questions, key=key)
    _show(answers, _Manner(as_json=as_json))


@app.command()
def preview(context: typer.Context, path: Requests, as_json: AsJson = False) -> None:
    """What the questions of a JSON file would cost, and whether they would pass; spends nothing.

    Example: sfumato query patients.parquet --unit patient_id --max-rows 3 preview questions.json
    """
    opening: _Opening = context.obj
    questions = _read_questions(path)
    _show_preview(opening.protect().preview(*questions), questions, as_json)


def _read_questions(path: Path) -> list[Query]:
    from sfumato.queries import query_from_dict

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"cannot read questions from {str(path)!r}: {error}") from error
    listed = data if isinstance(data, list) else [data]
    if not listed or not all(isinstance(item, dict) for item in listed):
        raise ValueError(f"{str(path)!r} must hold a list of questions")
    return [query_from_dict(item) for item in listed]
