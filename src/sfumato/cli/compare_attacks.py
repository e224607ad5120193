"""``sfumato attack compare``: the same attacks on models with privacy and without, on one page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group

from sfumato.cli.attacked_options import Seed
from sfumato.cli.membership import reports_table
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, kept_for_later, working
from sfumato.cli.statistics_attacks import CURATOR, below, show
from sfumato.cli.train_options import device_called

if TYPE_CHECKING:
    from torch import nn

    from sfumato.cli.compared_page import Compared
    from sfumato.cli.populations import Answers, Pool, Told
    from sfumato.core.guarantee import Guarantee
    from sfumato.data import Dataset
    from sfumato.learning.ensembles import Schedule
    from sfumato.learning.recipes import Recipe

__all__ = ["compare"]

_OPTIONS = {"mlp": {"hidden": 100}}  # of networks that are larger by default
_RATES = {"cnn": 0.01}  # of networks that a rate of 0.05 does not train
_LOTS = 4  # the reciprocal of the sample rate: few steps, large lots, as few rows ask for


def compare(
    out: Annotated[
        Path,
        typer.Option(
            help="A folder: new, or with a comparison of the same arguments to go on with."
        ),
    ],
    data: Annotated[str, typer.Option(help="A named data set.")] = "mnist",
    epsilon: Annotated[float, typer.Option(help="Of the private models.")] = 2.0,
    rows: Annotated[
        int,
        typer.Option(
            help="Examples, or all if there are fewer; each model is trained on a random half."
        ),
    ] = 6000,
    shadows: Annotated[int, typer.Option(help="Shadow models of either kind; even.")] = 8,
    targets: Annotated[int, typer.Option(help="Models that are attacked; even.")] = 4,
    model: Annotated[
        str, typer.Option(help="The network of all models (sfumato train models).")
    ] = "mlp",
    epochs: Annotated[int, typer.Option(help="Of models without privacy.")] = 40,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto for the best there is.")] = "auto",
    half: Annotated[
        bool, typer.Option(help="Models without privacy in bfloat16; on a GPU.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Trains models without privacy and with it, attacks all of them, and writes one page.

    Shadows of private models are private models: the attacker knows how the target was trained.
    A comparison that was cut off goes on where it was when the same command is given again. One
    that is finished is shown again, and nothing is trained.

    Examples:
    sfumato attack compare --data mnist --epsilon 2 --out compared

    sfumato attack compare --data cifar10 --model cnn --rows 20000 --half --out compared
    """
    from sfumato.cli.compared_folder import comparison_in
    from sfumato.cli.compared_page import compared_page, summary
    from sfumato.data import load_dataset

    arguments = {
        "data": data, "epsilon": epsilon, "rows": rows, "shadows": shadows, "targets": targets,
        "model": model, "epochs": epochs, "half": half, "seed": seed,
    }  # fmt: skip
    device = _device(device, half)
    with working("reading the data"):
        plan = _planned(load_dataset(data), arguments)
    with kept_for_later(out), comparison_in(out, arguments | plan.to_dict()) as folder:
        training = _Training(plan, folder / "models", device, half, seed, not as_json)
        both = [training.plain(), training.private()]
        said = summary(*both)
        found = {"arguments": arguments, "summary": said} | {
            "compared": [b.to_dict() for b in both]
        }
        with working("drawing the page"):
            _write(folder, found, compared_page(data, plan.pool, both))
    tables = [reports_table(one.name, one.reports, one.claim) for one in both]
    notes = below(said, CURATOR, f"Page written to {out / 'page.html'}")
    show(Group(*tables, *notes), found | {"page": str(out / "page.html")}, as_json, {})


def _write(folder: Path, found: dict[str, Any], html: str) -> None:
    from sfumato.learning.durable import write_whole

    write_whole(folder / "attacks.json", (json.dumps(found, indent=2) + "\n").encode())
    write_whole(folder / "page.html", html.encode())


def _device(name: str, half: bool) -> str:
    found = device_called(name)
    if half and not found.startswith("cuda"):
        raise ValueError(f"half is for a GPU, but the device is {found}: leave out --half")
    return found


# --- what is to be done -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Plan:
    """All that is decided, and may be refused, before anything is trained or written."""

    pool: Pool
    make: Callable[[], nn.Module]
    schedule: Schedule
    recipe: Recipe
    claim: Guarantee

    def to_dict(self) -> dict[str, Any]:
        """What models depend on besides the arguments."""
        train = self.pool.data.train
        digest = hashlib.blake2b(train.inputs.tobytes(), digest_size=16)
        digest.update(train.labels.tobytes())
        return {
            "examples": {"number": len(train.labels), "digest": digest.hexdigest()},
            "schedule": self.schedule.to_dict(), "recipe": self.recipe.to_dict(),
        }  # fmt: skip


def _planned(data: Dataset, asked: dict[str, Any]) -> _Plan:
    from sfumato.cli.populations import Pool
    from sfumato.learning.ensembles import Schedule
    from sfumato.learning.ensembles.stacking import fresh_weights
    from sfumato.learning.models import make_model
    from sfumato.learning.recipes.inputs import input_shape

    pool = Pool.draw(data, asked["rows"], asked["shadows"], asked["targets"], asked["seed"])
    name, shape, classes = asked["model"], input_shape(data.shape), len(data.classes)

    def make() -> nn.Module:
        return make_model(name, shape, classes, **_OPTIONS.get(name, {}))

    fresh_weights(make, 1, 0)  # raises for models that cannot be trained as one
    rate = _RATES.get(name, 0.05)
    schedule = Schedule(asked["epochs"], 32, rate=rate, weight_decay=0.0)
    recipe = _recipe(pool, name, asked["epsilon"])
    return _Plan(pool, make, schedule, recipe, recipe.plan(len(pool.labels) // 2).guarantee)


def _recipe(pool: Pool, model: str, epsilon: float) -> Recipe:
    """How private models are trained: the same network, for half of the pool each."""
    from sfumato.learning.recipes import preset

    half = len(pool.labels) // 2
    known = preset("cnn", replace(pool.data, public_size=half), epsilon=epsilon)
    return known.changed(
        model=model, model_options=_OPTIONS.get(model, {}), lot_size=max(1, half // _LOTS)
    )


# --- doing it -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Training:
    """Trains and attacks, and goes on where it was."""

    plan: _Plan
    folder: Path
    device: str
    half: bool
    seed: int
    shown: bool

    def plain(self) -> Compared:
        """Models without privacy."""
        from sfumato.cli.populations import plain_answers

        plan = self.plan
        with _counting("epochs without privacy", self.shown) as told:
            found = plain_answers(
                plan.pool, plan.make, plan.schedule, device=self.device, half=self.half,
                seed=self.seed, folder=self.folder / "plain", progress=told,
            )  # fmt: skip
        return self._attacked(found, None)

    def private(self) -> Compared:
        """Private models."""
        from sfumato.cli.populations import private_answers

        plan = self.plan
        with _counting(f"models at epsilon {plan.recipe.epsilon:g}", self.shown) as told:
            found = private_answers(
                plan.pool, plan.recipe, device=self.device, folder=self.folder / "private",
                progress=told,
            )  # fmt: skip
        return self._attacked(found, plan.claim)

    def _attacked(self, found: Answers, claim: Guarantee | None) -> Compared:
        from sfumato.cli.compared_page import Compared
        from sfumato.cli.populations import attack_population

        with working(f"attacking the models, {found.name}"):
            own, fresh = found.accuracies(self.plan.pool)
            reports = attack_population(self.plan.pool, found, self.seed)
        return Compared(found.name, own, fresh, found.seconds, claim, reports)


@contextmanager
def _counting(what: str, shown: bool) -> Generator[Told | None]:
    """A bar on a terminal's standard error that disappears in the end; nothing elsewhere."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    screen = console(stderr=True)
    if not shown or not screen.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20))
    bars = Bars(
        *columns, MofNCompleteColumn(), TimeRemainingColumn(), console=screen, transient=True
    )
    with bars:
        task = bars.add_task(what, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
