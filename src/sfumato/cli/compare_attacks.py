"""``sfumato attack compare``: the same attacks on models with privacy and without, on one page."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked_options import Seed
from sfumato.cli.membership import report_with_claim, reports_table
from sfumato.cli.options import AsJson
from sfumato.cli.output import working
from sfumato.cli.statistics_attacks import CURATOR, below, show

if TYPE_CHECKING:
    from sfumato.attacks.membership.reports import MembershipReport
    from sfumato.cli.populations import Answers, Pool
    from sfumato.core.guarantee import Guarantee
    from sfumato.learning.recipes import Recipe

__all__ = ["compare"]

_OPTIONS = {"mlp": {"hidden": 100}}  # of networks that are larger by default
_LOTS = 4  # the reciprocal of the sample rate: few steps, large lots, as few rows ask for


@dataclass(frozen=True, eq=False)
class Compared:
    """Attacks on one way of training.

    Attributes:
        name: of the way.
        trained: accuracy on a model's own examples.
        fresh: accuracy on others.
        seconds: of training all models.
        claim: what was promised, if anything.
        reports: by attack.
    """

    name: str
    trained: float
    fresh: float
    seconds: float
    claim: Guarantee | None
    reports: dict[str, MembershipReport]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        claim = self.claim
        told = [report_with_claim(report, claim) for report in self.reports.values()]
        return {
            "name": self.name, "accuracy_on_own": self.trained, "accuracy_on_fresh": self.fresh,
            "seconds": self.seconds, "claim": None if claim is None else claim.to_dict(),
            "attacks": told,
        }  # fmt: skip


def compare(
    out: Annotated[Path, typer.Option(help="A new folder for the page and its numbers.")],
    data: Annotated[str, typer.Option(help="A named data set.")] = "mnist",
    epsilon: Annotated[float, typer.Option(help="Of the private models.")] = 2.0,
    rows: Annotated[
        int, typer.Option(help="Examples; each model is trained on a random half of them.")
    ] = 6000,
    shadows: Annotated[int, typer.Option(help="Shadow models of either kind; even.")] = 8,
    targets: Annotated[int, typer.Option(help="Models that are attacked; even.")] = 4,
    model: Annotated[
        str, typer.Option(help="The network of all models (sfumato train models).")
    ] = "mlp",
    epochs: Annotated[int, typer.Option(help="Of models without privacy.")] = 40,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Trains models without privacy and with it, attacks all of them, and writes one page.

    Shadows of private models are private models: the attacker knows how the target was trained.

    Examples:
    sfumato attack compare --data mnist --epsilon 2 --out compared

    sfumato attack compare --data cifar10 --model cnn --rows 20000 --device cuda --out compared
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"out must be a new or empty folder, but {out} is neither")
    from sfumato.cli.populations import Pool
    from sfumato.data import load_dataset

    with working("reading the data"):
        pool = Pool.draw(load_dataset(data), rows, shadows, targets, seed)
        recipe = _recipe(pool, model, epsilon)
    with working(f"training {shadows + targets} models without privacy, and attacking them"):
        plain = _plain(pool, model, epochs, device, seed)
    with working(f"training {shadows + targets} models at epsilon {epsilon:g}, and attacking them"):
        private = _private(pool, recipe, device, seed)
    both = [plain, private]
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = {"data": data, "seed": seed, "compared": [one.to_dict() for one in both]}
    (out / "attacks.json").write_text(json.dumps(found, indent=2) + "\n")
    (out / "page.html").write_text(_page(data, pool, both))
    for path in out.iterdir():
        path.chmod(0o600)
    tables = [reports_table(one.name, one.reports, one.claim) for one in both]
    notes = below(CURATOR, f"Page written to {out / 'page.html'}")
    show(Group(*tables, *notes), found | {"page": str(out / "page.html")}, as_json, {})


def _plain(pool: Pool, model: str, epochs: int, device: str, seed: int) -> Compared:
    from sfumato.cli.populations import plain_answers
    from sfumato.learning.ensembles import Schedule
    from sfumato.learning.models import make_model
    from sfumato.learning.recipes.inputs import input_shape

    shape, classes = input_shape(pool.data.shape), len(pool.data.classes)
    found = plain_answers(
        pool, lambda: make_model(model, shape, classes, **_OPTIONS.get(model, {})),
        Schedule(epochs, 32, rate=0.05, weight_decay=0.0), device=device, seed=seed,
    )  # fmt: skip
    return _attacked(pool, found, None, seed)


def _recipe(pool: Pool, model: str, epsilon: float) -> Recipe:
    """How private models are trained: the same network, for half of the pool each."""
    from sfumato.learning.recipes import preset

    half = len(pool.labels) // 2
    known = preset("cnn", replace(pool.data, public_size=half), epsilon=epsilon)
    return known.changed(
        model=model, model_options=_OPTIONS.get(model, {}), lot_size=max(1, half // _LOTS)
    )


def _private(pool: Pool, recipe: Recipe, device: str, seed: int) -> Compared:
    from sfumato.accounting import account
    from sfumato.cli.populations import private_answers

    claim = account(recipe.event(len(pool.labels) // 2), delta=recipe.delta)
    return _attacked(pool, private_answers(pool, recipe, device=device), claim, seed)


def _attacked(pool: Pool, found: Answers, claim: Guarantee | None, seed: int) -> Compared:
    from sfumato.cli.populations import attack_population

    own, fresh = found.accuracies(pool)
    reports = attack_population(pool, found, seed)
    return Compared(found.name, own, fresh, found.seconds, claim, reports)


# --- the page -----------------------------------------------------------------------------------


def _page(data: str, pool: Pool, both: list[Compared]) -> str:
    from sfumato.reports.membership_figures import membership_roc_figure
    from sfumato.reports.pages import Picture, Table, Text, page

    size, models = len(pool.labels), len(pool.subsets)
    parts: list[Any] = [
        Text(
            f"{models} models of each kind were trained on random halves of {size:,} examples of "
            f"{data}. {pool.shadows} of them are the attacker's own, who knows what they were "
            f"trained on; the other {models - pool.shadows} are attacked: was this example in "
            "the training set, or not?"
        ),
        Text("For the curator only: it was measured with private data.", "note"),
    ]
    for one in both:
        parts += [
            Text(one.name.capitalize(), "h2"),
            Text(
                f"Right on {one.trained:.1%} of a model's own examples and on {one.fresh:.1%} of "
                f"others; {one.seconds:.0f} s to train all models."
            ),
            Table(_HEADINGS, [_line(one, name) for name in one.reports]),
        ]
        curves = [
            (name, report.roc.false_positive_rates, report.roc.true_positive_rates)
            for name, report in one.reports.items()
        ]
        others = min(report.roc.others for report in one.reports.values())
        figure = membership_roc_figure(
            curves, epsilon=None if one.claim is None else one.claim.epsilon,
            delta=0.0 if one.claim is None else one.claim.delta, lowest=0.5 / others,
            others=others, title=f"Members found, {one.name}",
        )  # fmt: skip
        parts.append(Picture(figure, f"Members found against false alarms, {one.name}"))
    parts.append(Text(_MEANING, "note"))
    return page(f"Who was trained on? {data}, with privacy and without", parts)


_HEADINGS = ("attack", "AUC", "limits", "found at 1 %", "at 0.1 %", "precision", "above the claim")
_MEANING = (
    "AUC: the probability that a member scores above another example; 0.5 is guessing. Found at "
    "1 %: the share of members found where one other example in a hundred is called a member. "
    "Above the claim: whether some threshold finds more than e^epsilon times the false alarms, "
    "plus delta, beyond chance."
)


def _line(one: Compared, name: str) -> list[str]:
    report = one.reports[name]
    low, high = report.auc_interval
    powers = [f"{p.found:.2%}" if p.measurable else "-" for p in report.power[:2]]
    precision, above = report.calls[0].precision, ""
    if one.claim is not None:
        above = "YES" if report.exceeds(one.claim.epsilon, one.claim.delta) else "no"
    return [
        name, f"{report.auc:.3f}", f"{low:.3f} to {high:.3f}", *powers,
        "-" if precision is None else f"{precision:.2f}", above,
    ]  # fmt: skip
