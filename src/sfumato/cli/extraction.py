"""``sfumato attack extraction``: a copy of the model, from its answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked import Attacked, attacked
from sfumato.cli.attacked_options import Data, Declared, Model, Run, Seed, Test, Trust
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import plain_table, working
from sfumato.cli.statistics_attacks import CURATOR, below, show

if TYPE_CHECKING:
    from sfumato.attacks.extraction.fidelity import FidelityCurve
    from sfumato.attacks.targets import Target

__all__ = ["extraction"]

_RESULT = "extraction.json"
_EXAM = 2000


def extraction(
    run: Run = None,
    model: Model = None,
    data: Data = None,
    declared: Declared = None,
    test: Test = None,
    trust: Trust = False,
    budgets: Annotated[
        str, typer.Option(help="Numbers of queries, separated by commas.")
    ] = "100,500,2000",
    substitute: Annotated[
        str, typer.Option(help="What the copy is: a model's name (sfumato train models).")
    ] = "mlp",
    seed: Seed = 0,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Copies a model by asking it: queries against fidelity, and what showing less changes.

    Queries are examples from the test set; the copy is measured on others of them.

    Examples:
    sfumato attack extraction --run runs/a --budgets 100,1000,5000

    sfumato attack extraction --model my.py:load --data digits --substitute linear
    """
    wanted = _numbers(budgets)
    with working("copying"):
        what = attacked(run, model, data, declared, test, trust)
        curves = _curves(what, wanted, substitute, seed)
    if plot is not None:
        _draw(curves, plot)
    found = {"curves": [curve.to_dict() | {"shown": name} for name, curve in curves.items()]}
    kept = what.keep(_RESULT, {"channel": "curator"} | found)
    notes = [CURATOR] + ([] if kept is None else [f"Kept in {kept}"])
    show(Group(_table(what.target.name, curves), *below(*notes)), found, as_json, {"plot": plot})


def _numbers(text: str) -> list[int]:
    try:
        found = [int(float(part)) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"budgets must be numbers separated by commas, got {text!r}") from None
    if min(found) < 1:
        raise ValueError(f"budgets must be 1 or more, got {text!r}")
    return sorted(found)


def _views(target: Target) -> dict[str, Target]:
    """Ways to answer, from the most generous."""
    from sfumato.attacks.targets import View

    labels = {"labels": target.showing(View.LABELS)}
    if not target.shows(View.SCORES):
        return labels
    scores = target.showing(View.SCORES)
    less = {"two digits": scores.rounded(2), "the best one": scores.top(1)}
    return {"scores": scores} | less | labels


def _curves(
    what: Attacked, budgets: list[int], substitute: str, seed: int
) -> dict[str, FidelityCurve]:
    import numpy as np

    from sfumato.attacks.extraction.fidelity import Exam, fidelity_curve
    from sfumato.learning.models import make_model
    from sfumato.learning.recipes.inputs import input_shape

    outside, labels = what.data.test
    order = np.random.default_rng(seed).permutation(len(labels))
    exam_size = min(_EXAM, len(labels) // 2)
    held, queries = order[:exam_size], order[exam_size:]
    if not exam_size or budgets[-1] > len(queries):
        raise ValueError(
            f"budgets must be at most {len(queries)}, the examples there are to ask about: give "
            "fewer queries or a larger test set"
        )
    exam = Exam.of(what.target, what.inputs(outside[held]), labels[held])
    asked, classes = what.inputs(outside[queries]), len(what.data.classes)
    module = make_model(substitute, input_shape(what.data.shape), classes)
    steal = _stealing(asked, module, classes, seed)
    return {
        name: fidelity_curve(view, budgets, steal, exam)
        for name, view in _views(what.target).items()
    }


def _stealing(asked: Any, module: Any, classes: int, seed: int) -> Callable[[Target], Any]:
    import numpy as np

    from sfumato.attacks.extraction.retraining import extract_by_retraining

    def steal(limited: Target) -> Any:
        generator = np.random.default_rng(seed)
        return extract_by_retraining(limited, asked, module, classes=classes, generator=generator)

    return steal


def _table(title: str, curves: dict[str, FidelityCurve]) -> Any:
    table = plain_table(f"A copy of {title}")
    for name in ("shown", "queries", "agrees with the model", "copy right", "model right"):
        table.add_column(name, no_wrap=True, justify="left" if name == "shown" else "right")
    for name, curve in curves.items():
        for asked, found in zip(curve.queries, curve.results, strict=True):
            low, high = found.agreement.interval
            right = (found.accuracy, found.target_accuracy)
            table.add_row(
                name, f"{asked:,}", f"{found.agreement.value:.1%} ({low:.1%} to {high:.1%})",
                *("-" if share is None else f"{share.value:.1%}" for share in right),
            )  # fmt: skip
    return table


def _draw(curves: dict[str, FidelityCurve], path: Path) -> None:
    from sfumato.reports.extraction_figures import fidelity_figure
    from sfumato.reports.style import save

    lines = [
        (
            name,
            curve.queries,
            [found.agreement.value for found in curve.results],
            [found.agreement.interval for found in curve.results],
        )
        for name, curve in curves.items()
    ]
    save(fidelity_figure(lines), path)
