"""What ``sfumato compare`` says: costs beforehand, then a table and advice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table

from sfumato.cli.output import console, plain_table, print_json

if TYPE_CHECKING:
    from sfumato.core.guarantee import Guarantee
    from sfumato.learning.comparing.cells import Plan
    from sfumato.learning.comparing.comparison import Comparison
    from sfumato.learning.comparing.summary import Row
    from sfumato.reports.method_figures import MethodLine

__all__ = ["figure_lines", "tell", "tell_costs", "tell_plan"]

_LEAST_WIDTH, _COLUMN = 52, 11  # of a table with guarantees, and of an epsilon more
_LABELS = "label-dp protects labels alone: another promise, never ranked with the others."
_OTHER = (
    "* The guarantee is for another relation than the others', under which the number of rows is "
    "public: shown, and not ranked."
)


def tell_plan(plan: Plan, as_json: bool) -> None:
    """What would run, and what it would cost."""
    from sfumato.learning.comparing.costs import costs_of

    costs = costs_of(plan.promised.values())
    if as_json:
        runs = [cell.to_dict() | {"guarantee": g.to_dict()} for cell, g in plan.promised.items()]
        together = [cost.to_dict() for cost in costs]
        print_json({"runs": runs, "left_out": plan.left_out, "together": together})
        return
    table = plain_table(f"{len(plan.cells)} runs on {plan.task.data.name}")
    table.add_column("method", no_wrap=True)
    table.add_column("guarantee of a run")
    for cell, guarantee in plan.promised.items():
        if not cell.repeat:
            table.add_row(cell.method, str(guarantee))
    console().print(table)
    _say_left_out(plan)
    promised = list(plan.promised.values())
    tell_costs(plan, promised, promised, 0)


def tell_costs(
    plan: Plan, every: Sequence[Guarantee], left: Sequence[Guarantee], done: int
) -> None:
    """Before anything is spent: what the runs promise together. On standard error.

    Args:
        plan: the runs that are asked for.
        every: what these and all others in the folder promise.
        left: what those promise that are not done yet.
        done: how many are.
    """
    from sfumato.learning.comparing.costs import costs_of

    screen = console(stderr=True)
    kept = f" ({done} of them are done, and kept)" if done else ""
    screen.print(f"{len(plan.cells)} runs{kept}. Published together, or chosen from, these cost:")
    for cost in costs_of(every):
        screen.print(f"  {cost}", markup=False, soft_wrap=True)
    if any(cell.epsilon is None for cell in plan.cells):
        screen.print("  and without a bound what the run without privacy tells: for you alone")
    if plan.payer.ledger is not None and done:
        screen.print("Of which the ledger is charged now:")
        for cost in costs_of(left):
            screen.print(f"  {cost}", markup=False, soft_wrap=True)
    paid = "Nobody counts them: no ledger is given."
    if plan.payer.ledger is not None:
        paid = "Each is charged to the ledger before it tells anything."
    screen.print(f"By basic composition. {paid}", soft_wrap=True)


def tell(compared: Comparison) -> None:
    """The table, what was left out, and advice."""
    task, screen = compared.plan.task, console()
    tested = f"{len(task.data.test.labels):,} public" if task.data.test_is_public else "private"
    table, below = _table(
        compared, f"{task.data.name}: accuracy in %, on {tested} test rows", screen.width
    )
    screen.print(table)
    for line in below:
        screen.print(Padding(line, (0, 0, 0, 1)), markup=False)
    if any(_other(compared, row) for row in compared.rows):
        screen.print(Padding(_OTHER, (0, 0, 0, 1)))
    if any(row.group == "labels" for row in compared.rows):
        screen.print(Padding(_LABELS, (0, 0, 0, 1)))
    _say_left_out(compared.plan)
    for line in (*compared.advice, *_together(compared), *compared.warnings):
        screen.print(Padding(line, (0, 0, 0, 1)))
    if not compared.finished:
        screen.print(Padding("Not all runs are done: the same command goes on.", (0, 0, 0, 1)))
    screen.print(Padding(f"Runs, for you alone: {compared.folder}", (0, 0, 0, 1)))


def _together(compared: Comparison) -> list[str]:
    said = "; ".join(str(cost) for cost in compared.costs)
    return [f"Published together these cost {said}."]


def _say_left_out(plan: Plan) -> None:
    for name, why in plan.left_out.items():
        console().print(Padding(f"Left out: {name}. {_sentence(why)}", (0, 0, 0, 1)), markup=False)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


# --- the table ------------------------------------------------------------------------------------


def _table(compared: Comparison, title: str, width: int) -> tuple[Table, list[str]]:
    """The table; and where a screen is too narrow for them in it, the guarantees for below."""
    prices = sorted({row.epsilon for row in compared.rows if row.epsilon is not None})
    methods = _by_method(compared.rows)
    promises = {method: _promise(rows) for method, rows in methods.items()}
    inside = width >= _LEAST_WIDTH + _COLUMN * len(prices)
    table = plain_table(title)
    table.add_column("method", no_wrap=True)
    table.add_column("noise on")
    for price in prices:
        table.add_column(f"epsilon {price:g}", justify="right", min_width=7)  # wraps, never cut
    if inside:
        table.add_column("guarantee")
    table.add_column("s", justify="right", no_wrap=True)
    for method, rows in methods.items():
        first, mark = rows[0], "*" if _other(compared, rows[0]) else ""
        if first.group in ("labels", "none"):
            table.add_section()
        seconds = sum(row.seconds for row in rows) / len(rows)
        promise = [promises[method]] if inside else []
        cells = (*_accuracies(rows, prices), *promise, f"{seconds:.0f}")
        table.add_row(f"{method}{mark}", str(first.group), *cells)
    return table, [] if inside else _by_promise(promises)


def _accuracies(rows: Sequence[Row], prices: Sequence[float]) -> list[str]:
    if rows[0].group == "none":
        return [_accuracy(rows[0]), *[""] * (len(prices) - 1)]
    known = {row.epsilon: row for row in rows}
    return [_accuracy(known[price]) if price in known else "" for price in prices]


def _promise(rows: Sequence[Row]) -> str:
    if rows[0].group == "none":
        return "none: not private"
    guarantee = rows[0].guarantee
    relation = guarantee.neighbours.describe(guarantee.unit)
    return f"{relation}, delta {guarantee.delta:g}{_less(rows)}"


def _by_promise(promises: dict[str, str]) -> list[str]:
    """A line for each guarantee, with the methods that have it."""
    found: dict[str, list[str]] = {}
    for method, promise in promises.items():
        found.setdefault(promise, []).append(method)
    said = [f"{', '.join(methods)} ({promise})" for promise, methods in found.items()]
    return ["Guarantees:", *(f"  {line}" for line in said)]


def _less(rows: Sequence[Row]) -> str:
    """Epsilons on record, where they are not what was asked for."""
    apart = [
        row for row in rows
        if row.epsilon is not None and row.guarantee.epsilon < 0.99 * row.epsilon
    ]  # fmt: skip
    shown = ", ".join(f"{row.guarantee.epsilon:.3g}" for row in apart)
    return f"; on record epsilon {shown}" if apart else ""


def _accuracy(row: Row) -> str:
    if row.mean is None:
        return "-"
    spread = "" if row.spread is None else f" ± {100 * row.spread:.1f}"
    return f"{100 * row.mean:.1f}{spread}"


def _by_method(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.method, []).append(row)
    return found


def _other(compared: Comparison, row: Row) -> bool:
    """Whether it has another relation than the one that was asked for."""
    if row.group in ("labels", "none"):
        return False
    return row.guarantee.neighbours is not compared.plan.task.neighbours


# --- the figure -----------------------------------------------------------------------------------


def figure_lines(compared: Comparison) -> tuple[list[MethodLine], float | None]:
    """A line for each method, and the accuracy without privacy."""
    from sfumato.reports.method_figures import MethodLine

    lines: list[MethodLine] = []
    baseline: float | None = None
    for method, rows in _by_method(compared.rows).items():
        if rows[0].group == "none":
            baseline = rows[0].mean
            continue
        points: list[Any] = [
            (row.epsilon, row.mean, row.spread) for row in rows if row.mean is not None
        ]
        labels, other = rows[0].group == "labels", _other(compared, rows[0])
        name = f"{method} (labels alone)" if labels else method
        if other:
            name += f" ({rows[0].guarantee.neighbours.value})"
        lines.append(MethodLine(name, str(rows[0].group), points, dashed=labels, hollow=other))
    return lines, baseline
