"""``sfumato compare``: the same task by every private method; which one to take."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sfumato.cli.compare_table import tell, tell_costs, tell_plan
from sfumato.cli.options import AsJson, Plot
from sfumato.cli.output import console, kept_for_later, print_json, working
from sfumato.cli.train_options import (
    Budget,
    Chosen,
    Source,
    Watched,
    declaration_at,
    device_called,
    loaded_data,
    named_values,
    option,
)

if TYPE_CHECKING:
    from sfumato.data import Declaration
    from sfumato.learning.comparing.cells import Plan
    from sfumato.learning.comparing.comparison import Comparison
    from sfumato.learning.comparing.running import Told
    from sfumato.learning.comparing.store import Store
    from sfumato.learning.features import FeatureMap

__all__ = ["compare"]

_PRIVACY, _MODEL, _RUN = "Privacy", "Data and methods", "Run"
_EPSILONS = (0.5, 2.0, 8.0)


def compare(
    data: Source.Data,
    epsilon: Annotated[
        list[float] | None, option(_PRIVACY, "May be repeated; 0.5, 2 and 8 by default.")
    ] = None,
    out: Annotated[
        Path | None,
        option(
            _RUN,
            "A folder: new, or of the same comparison, which goes on; by default compared-DATA.",
            "--out",
            "-o",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        option(
            _MODEL,
            "Some of erm-input, adaptive-laplace, erm-objective, erm-functional, "
            "functional-network, autoencoder, erm-output, erm-sgd, dp-sgd, dp-sgd-cnn, pate, "
            "label-dp, plain, with commas; all that suit by default.",
        ),
    ] = None,
    declared: Source.Declared = None,
    test: Source.Test = None,
    rows: Source.Rows = None,
    features: Annotated[
        str | None,
        option(
            _MODEL,
            "Before linear models: none, scattering or network; quick wavelets of images by "
            "default.",
        ),
    ] = None,
    feature_option: Chosen.FeatureOption = None,
    delta: Budget.Delta = None,
    neighbours: Budget.Neighbours = None,
    seeds: Annotated[int, option(_RUN, "Runs of each, for a spread; each of them costs.")] = 1,
    ledger: Annotated[str | None, option(_PRIVACY, "Each run charges this ledger first.")] = None,
    dataset: Annotated[str, option(_PRIVACY, "Whose budget in the ledger.")] = "",
    label_dataset: Annotated[
        str, option(_PRIVACY, "Whose budget of labels, for label-dp: unit label.")
    ] = "",
    analyst: Annotated[str, option(_PRIVACY, "In whose name.")] = "",
    jobs: Annotated[int, option(_RUN, "Runs at once, a process each.")] = 2,
    minutes: Annotated[
        float | None, option(_RUN, "Begin no run after so many; the same command goes on.")
    ] = None,
    device: Watched.Device = "cpu",
    dry_run: Annotated[
        bool, option(_RUN, "Say what would run and what it would cost, and stop.")
    ] = False,
    progress: Watched.Progress = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Trains one task with every private method that suits it, and shows accuracy against epsilon.

    Input, objective, output and gradient perturbation, teachers, private labels, and the line
    without privacy. Every run is a release: the sum is stated before the first one. Meant for
    public data that is like yours; then train the method of your choice once.

    What is done stays done: the same command goes on, and more epsilons, methods or seeds add to
    it.

    Examples:
    sfumato compare --data mnist --epsilon 1 --epsilon 2 --epsilon 4 --plot compare.png

    sfumato compare --data labsup --seeds 5

    sfumato compare --data digits --methods erm-objective,dp-sgd,plain --epsilon 1 --dry-run

    sfumato compare --data patients.csv --declared patients.toml --test public.csv --epsilon 1
    --ledger privacy.db --dataset patients
    """
    said = dict(locals())
    found = declaration_at(declared)
    if found is not None and test is None:
        raise ValueError("test must be given with data of your own (--test FILE): what to test on")
    plan = _planned(found, said)
    if dry_run:
        tell_plan(plan, as_json)
        return
    from sfumato.learning.comparing.comparison import run_plan

    folder = Path(f"compared-{plan.task.data.name}") if out is None else out
    shown = not as_json and (console(stderr=True).is_terminal if progress is None else progress)
    with kept_for_later(folder), _bar(shown) as told:
        compared = run_plan(
            plan, folder, jobs=jobs, minutes=minutes, device=device_called(device), told=told,
            begun=lambda store: _say_costs(plan, store),
        )  # fmt: skip
    drawn = None if plot is None else _drawn(compared, plot)
    if as_json:
        print_json(compared.to_dict() | ({} if drawn is None else {"plot": str(drawn)}))
        return
    tell(compared)
    if drawn is not None:
        console().print(f"Plot written to {drawn}")


# --- what is asked for ----------------------------------------------------------------------------


def _planned(declared: Declaration | None, said: dict[str, Any]) -> Plan:
    """All that is decided, and may be refused, before anything is trained."""
    from sfumato.core.neighbours import Neighbours
    from sfumato.learning.comparing.cells import planned
    from sfumato.learning.comparing.methods import Payer
    from sfumato.learning.comparing.registry import methods_called
    from sfumato.learning.comparing.tasks import Task, quick_features

    names = None if said["methods"] is None else said["methods"].replace(" ", "").split(",")
    methods_called(names)
    with working("reading the data"):
        data = loaded_data(said["data"], declared, said["test"], said["rows"])
    task = Task(
        data,
        _features(said) or quick_features(data.shape),
        1e-5 if said["delta"] is None else said["delta"],
        Neighbours.parse(said["neighbours"] or "add-remove"),
        "record" if declared is None else declared.unit,
        1 if declared is None else declared.rows_per_owner,
        _columns(declared),
    )
    payer = Payer(said["ledger"], said["dataset"], said["label_dataset"], said["analyst"])
    with working("planning the runs"):
        return planned(task, said["epsilon"] or _EPSILONS, names, said["seeds"], payer)


def _features(said: dict[str, Any]) -> FeatureMap | None:
    from sfumato.learning.features import FeatureMap

    if said["features"] is None:
        return None
    options = named_values("feature-option", said["feature_option"])
    try:
        return FeatureMap.from_dict({"kind": said["features"]} | options)
    except TypeError as error:
        raise ValueError(f"--feature-option must suit {said['features']!r}: {error}") from None


def _columns(declared: Declaration | None) -> Any:
    from sfumato.data import Features

    found = None if declared is None else declared.declared
    return found if isinstance(found, Features) else None


# --- while it runs --------------------------------------------------------------------------------


def _say_costs(plan: Plan, store: Store) -> None:
    """Before anything is spent, on standard error."""
    from sfumato.learning.comparing.comparison import all_promised

    left = [cell for cell in plan.cells if cell not in store.results]
    done = len(plan.cells) - len(left)
    tell_costs(plan, all_promised(plan, store), [plan.promised[cell] for cell in left], done)


@contextmanager
def _bar(shown: bool) -> Generator[Told | None]:
    """How many runs are done, and which are at work, on standard error."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    if not shown:
        yield None
        return
    columns = (BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    text = TextColumn("{task.description}")
    with Progress(*columns, text, console=console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def told(done: int, total: int, running: tuple[Any, ...], last: Any) -> None:
            if running:
                said = ", ".join(map(str, running))
                bars.update(task, completed=done, total=total, description=said)
            else:
                bars.update(task, completed=done, total=total)

        yield told


# --- the picture ----------------------------------------------------------------------------------


def _drawn(compared: Comparison, path: Path) -> Path | None:
    """The figure in its file; None where no test row tells of any accuracy."""
    from sfumato.cli.compare_table import figure_lines
    from sfumato.reports.method_figures import methods_figure
    from sfumato.reports.style import save

    lines, baseline = figure_lines(compared)
    if not any(line.points for line in lines):
        return None
    from sfumato.learning.comparing.comparison import may_be_shown

    task, shown = compared.plan.task, may_be_shown(compared.plan)
    public = task.data.test_is_public
    figure = methods_figure(
        lines,
        title=f"{task.data.name}: which private method?",
        baseline=baseline,
        delta=task.delta,
        tested_on="public test set" if public else "private rows",
        curator=not shown,
    )
    written = save(figure, path)
    if not shown:
        written.chmod(0o600)
    return written
