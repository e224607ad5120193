"""``sfumato query``: private statistics from a table, through the ledger."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import working
from sfumato.cli.query_table import (
    By,
    Candidates,
    Column,
    Confidence,
    Default,
    Delta,
    DryRun,
    Epsilon,
    Key,
    Keys,
    Lower,
    Manner,
    Opening,
    PrivateKeys,
    SourceFirst,
    Upper,
    Where,
    Winners,
    WithInterval,
    ask_and_show,
    price_of,
    query,
    read_category,
    show_answers,
    show_preview,
)
from sfumato.core.json_files import read_json

if TYPE_CHECKING:
    from sfumato.queries.base import Query

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, cls=SourceFirst)
app.callback()(query)

_NEGATIVE = {"ignore_unknown_options": True}  # so that a bound may be -10


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
    question = kind(**price_of(epsilon, delta, where, confidence))
    ask_and_show(context, question, Manner(by, private_keys, key, preview, as_json, plot))


def _of_column(name: str) -> Callable[..., None]:
    def command(
        context: typer.Context,
        column: Column,
        lower: Lower,
        upper: Upper,
        epsilon: Epsilon,
        default: Default = None,
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

        price = price_of(epsilon, delta, where, confidence)
        question = getattr(queries, name)(column, lower, upper, default, **price)
        ask_and_show(context, question, Manner(by, private_keys, key, preview, as_json, plot))

    command.__doc__ = (
        f"The {name.lower()} of a column, each value clamped to declared bounds.\n\n"
        f"Example: ... {name.lower()} age 0 120 --by city --epsilon 0.2"
    )
    return command


for _name in ("Sum", "Mean", "Variance"):
    app.command(_name.lower(), context_settings=_NEGATIVE)(_of_column(_name))


@app.command(context_settings=_NEGATIVE)
def quantile(
    context: typer.Context,
    column: Column,
    share: Annotated[float, typer.Argument(help="Which: 0.5 is the median.")],
    lower: Lower,
    upper: Upper,
    epsilon: Epsilon,
    candidates: Candidates = 1000,
    interval: WithInterval = True,
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

    price = price_of(epsilon, 0.0, where, confidence)
    question = Quantile(column, share, lower, upper, candidates, interval, **price)
    ask_and_show(context, question, Manner(by, False, key, preview, as_json, plot))


@app.command(context_settings=_NEGATIVE)
def median(
    context: typer.Context,
    column: Column,
    lower: Lower,
    upper: Upper,
    epsilon: Epsilon,
    candidates: Candidates = 1000,
    interval: WithInterval = True,
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
    from sfumato.queries import Median

    price = price_of(epsilon, 0.0, where, confidence)
    question = Median(column, lower, upper, candidates, interval, **price)
    ask_and_show(context, question, Manner(by, False, key, preview, as_json, plot))


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

    bins = None if edges is None else [_edge(edge) for edge in edges.split(",")]
    price = price_of(epsilon, delta, where, confidence)
    question = Histogram(column, bins, _listed(keys), **price)
    ask_and_show(context, question, Manner(None, False, key, preview, as_json, plot))


def _edge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--edges must be numbers separated by commas, got {text!r}") from None


def _listed(keys: str | None) -> list[Any] | None:
    return None if keys is None else [read_category(item) for item in keys.split(",")]


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

    question = Crosstab(tuple(columns), **price_of(epsilon, delta, where, confidence))
    ask_and_show(context, question, Manner(None, False, key, preview, as_json, plot))


@app.command("most-common")
def most_common(
    context: typer.Context,
    column: Column,
    epsilon: Epsilon,
    keys: Keys = None,
    winners: Winners = 1,
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

    price = price_of(epsilon, 0.0, where, confidence)
    question = MostCommon(column, _listed(keys), winners, **price)
    ask_and_show(context, question, Manner(None, False, key, preview, as_json))


@app.command("arg-max", context_settings=_NEGATIVE)
def arg_max(
    context: typer.Context,
    over: Annotated[str, typer.Argument(help="The column of candidates.")],
    column: Column,
    lower: Lower,
    upper: Upper,
    epsilon: Epsilon,
    keys: Keys = None,
    winners: Winners = 1,
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

    price = price_of(epsilon, 0.0, where, confidence)
    question = ArgMax(over, column, lower, upper, _listed(keys), winners, **price)
    ask_and_show(context, question, Manner(None, False, key, preview, as_json))


# --- several questions from a file --------------------------------------------------------------

Requests = Annotated[Path, typer.Argument(help="A JSON file: a list of questions.")]


@app.command()
def ask(context: typer.Context, path: Requests, key: Key = "", as_json: AsJson = False) -> None:
    """Several questions as one request with one price, from a JSON file.

    Example of its content: [{"query": "count", "epsilon": 0.1}, {"query": "mean", "column": "age",
    "lower": 0, "upper": 120, "epsilon": 0.2, "where": "smoker", "by": "city", "keys": ["Rome"]}]
    """
    opening: Opening = context.obj
    questions = _read_questions(path)
    with working("Asking"):
        answers = opening.protect().ask(*questions, key=key)
    show_answers(answers, Manner(as_json=as_json))


@app.command()
def preview(context: typer.Context, path: Requests, as_json: AsJson = False) -> None:
    """What the questions of a JSON file would cost, and whether they would pass; spends nothing.

    Example: sfumato query patients.parquet --unit patient_id --max-rows 3 preview questions.json
    """
    opening: Opening = context.obj
    questions = _read_questions(path)
    show_preview(opening.protect().preview(*questions), questions, as_json)


def _read_questions(path: Path) -> list[Query]:
    from sfumato.queries import query_from_dict

    data: Any = read_json(path)
    listed = data if isinstance(data, list) else [data]
    if not listed or not all(isinstance(item, dict) for item in listed):
        raise ValueError(f"{str(path)!r} must hold a list of questions")
    return [query_from_dict(item) for item in listed]
