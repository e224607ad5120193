"""``sfumato federate``: train together, and know what each observer could learn."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli import federate_deployed
from sfumato.cli.federate_attack import attack
from sfumato.cli.federate_given import check_given, given_options, refuse_beside_file
from sfumato.cli.federate_live import LiveRounds
from sfumato.cli.federate_opening import open_model
from sfumato.cli.federate_options import Said, federation_of
from sfumato.cli.federate_public import named_public, planned_public, require_fit, require_named
from sfumato.cli.federate_telling import may_drop_out, print_trained, public_facts, views_table
from sfumato.cli.options import AsJson
from sfumato.cli.output import console, print_json, working
from sfumato.cli.train_options import loaded_data

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Train together, each keeping her data.")
app.command()(federate_deployed.keys)
app.command()(federate_deployed.directory)
app.command("sum-key")(federate_deployed.sum_key)
app.command()(federate_deployed.serve)
app.command()(federate_deployed.join)
app.command("open")(open_model)
app.command("attack")(attack)

_RUN = "Run"
Out = Annotated[Path | None, typer.Option(help="The run's folder.", rich_help_panel=_RUN)]
File = Annotated[
    Path | None,
    typer.Option(
        "--federation",
        help="A federation file (sfumato federate plan), instead of all options of the panels "
        "Rounds, Contributions, Noise and Sums and of the model.",
    ),
]
PlanJson = Annotated[
    bool,
    typer.Option("--json", help="Tell it as one JSON object; FILE is written all the same."),
]


@app.command("plan")
def plan(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="Where to write it; every member gets a copy.")],
    data: Said.Planned = "mnist",
    declared: Said.Declared = None,
    participants: Said.Participants = 100,
    rounds: Said.Rounds = 50,
    participation: Said.Participation = 1.0,
    work: Said.Kind = "updates",
    noise: Said.NoiseKind = "central",
    sum: Said.SumKind = "plain",
    noise_multiplier: Said.Multiplier = None,
    epsilon: Said.Epsilon = None,
    observer: Said.Observer = None,
    delta: Said.Delta = 1e-5,
    least: Said.Least = None,
    law: Said.Law = "skellam",
    threshold: Said.Threshold = None,
    model: Said.Model = "linear",
    model_option: Said.ModelOption = None,
    clip: Said.Clip = 1.0,
    quantile: Said.Quantile = None,
    steps: Said.Steps = 10,
    batch_size: Said.BatchSize = 32,
    rate: Said.Rate = 0.1,
    lot_rate: Said.LotRate = 0.1,
    records: Said.Records = None,
    share: Said.Share = 0.01,
    server_rate: Said.ServerRate = 1.0,
    server_momentum: Said.ServerMomentum = 0.0,
    seed: Said.Seed = 0,
    name: Said.Name = "federation",
    as_json: PlanJson = False,
) -> None:
    """Writes a federation file: what is trained, by whom, with which noise.

    Nothing is trained, nothing charged and no row read. Every member checks the file and keeps a
    copy; a participant follows no order of another federation.

    Examples:
    sfumato federate plan hospitals.json --data mnist --participants 3 --rounds 40 --work gradients
    --noise local --epsilon 3

    sfumato federate plan phones.json --participants 10000 --participation 0.01 --rounds 1000
    --noise-multiplier 1

    sfumato federate plan wards.json --data patients.csv --declared patients.toml --participants 3
    --noise local --epsilon 3
    """
    said, given = dict(locals()), given_options(context)
    check_given(said, given)
    if file.exists():
        raise ValueError(f"file must be a new one, but {file} is there: give another")
    with working("planning"):
        federation = federation_of(planned_public(data, declared, given), said, given)
        federation.make_model()  # or says what is wrong with it
        more = _planned(federation, file, as_json)
    federation.save(file)
    _tell(federation, as_json, more)


@app.command("account")
def account(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(help="A federation file, instead of all other options.")
    ] = None,
    participants: Said.Participants = 10_000,
    rounds: Said.Rounds = 1_000,
    participation: Said.Participation = 0.01,
    work: Said.Kind = "updates",
    noise: Said.NoiseKind = "central",
    sum: Said.SumKind = "plain",
    noise_multiplier: Said.Multiplier = 1.0,
    epsilon: Said.Epsilon = None,
    observer: Said.Observer = None,
    delta: Said.Delta = 1e-5,
    least: Said.Least = None,
    law: Said.Law = "skellam",
    threshold: Said.Threshold = None,
    lot_rate: Said.LotRate = 0.1,
    as_json: AsJson = False,
) -> None:
    """Says what each observer of a federation could learn, as guarantees.

    Examples:
    sfumato federate account --participants 10000 --participation 0.01 --rounds 1000
    --noise-multiplier 1

    sfumato federate account hospitals.json
    """
    said: dict[str, Any] = dict(locals()) | {
        "model": "linear", "model_option": None, "clip": 1.0, "quantile": None, "steps": 1,
        "batch_size": 1, "rate": 0.1, "records": 1, "share": 0.01, "server_rate": 1.0,
        "server_momentum": 0.0, "seed": 0, "name": "federation",
    }  # fmt: skip
    given = given_options(context)
    with working("accounting"):
        if file is None:
            federation = federation_of(None, said, given)
        else:
            refuse_beside_file(file, given)
            federation = _read(file)
        _tell(federation, as_json, {})


@app.command("simulate")
def simulate(
    context: typer.Context,
    data: Said.Data = "mnist",
    out: Out = None,
    file: File = None,
    participants: Said.Participants = 100,
    rounds: Said.Rounds = 50,
    participation: Said.Participation = 1.0,
    work: Said.Kind = "updates",
    noise: Said.NoiseKind = "central",
    sum: Said.SumKind = "plain",
    noise_multiplier: Said.Multiplier = None,
    epsilon: Said.Epsilon = None,
    observer: Said.Observer = None,
    delta: Said.Delta = 1e-5,
    least: Said.Least = None,
    law: Said.Law = "skellam",
    threshold: Said.Threshold = None,
    model: Said.Model = "linear",
    model_option: Said.ModelOption = None,
    clip: Said.Clip = 1.0,
    quantile: Said.Quantile = None,
    steps: Said.Steps = 10,
    batch_size: Said.BatchSize = 32,
    rate: Said.Rate = 0.1,
    lot_rate: Said.LotRate = 0.1,
    records: Said.Records = None,
    share: Said.Share = 0.01,
    server_rate: Said.ServerRate = 1.0,
    server_momentum: Said.ServerMomentum = 0.0,
    seed: Said.Seed = 0,
    name: Said.Name = "federation",
    partition: Annotated[
        str,
        typer.Option(
            help="How rows are spread: shards (two classes each), dirichlet, even.",
            rich_help_panel=_RUN,
        ),
    ] = "shards",
    rows: Annotated[
        int | None, typer.Option(help="Only the first so many.", rich_help_panel=_RUN)
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            help="process: all in this one; flower: Flower's simulator.", rich_help_panel=_RUN
        ),
    ] = "process",
    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger, round by round.", rich_help_panel=_RUN)
    ] = None,
    dataset: Annotated[str, typer.Option(help="Whose budget in it.", rich_help_panel=_RUN)] = "",
    progress: Annotated[
        bool | None, typer.Option(help="Show rounds.", rich_help_panel=_RUN)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plays a federation on one machine: every participant, every message, every charge.

    The same command on the same folder goes on where it was cut off.

    Examples:
    sfumato federate simulate --data mnist --participants 100 --rounds 50 --epsilon 8 --out runs/f

    sfumato federate simulate --data mnist --work gradients --noise local --epsilon 3 --rounds 100

    sfumato federate simulate --data digits --participants 10 --noise shared --epsilon 8
    """
    said, given = dict(locals()), given_options(context)
    _check_simulated(said, given)
    from sfumato.cli.federate_simulation import Simulation

    public = named_public(data, rows)
    with working("planning"):
        known = federation_of(public, said, given) if file is None else _read(file)
    require_fit(known, public)
    with working("reading the data"):
        simulation = Simulation(known, loaded_data(data, None, None, rows), partition, known.seed)
    with ExitStack() as shown:
        live = LiveRounds(known.rounds, False if as_json else progress)

        def ready() -> None:
            if not as_json:
                console().print(views_table(known))
            shown.enter_context(live)

        trained = simulation.run(engine, out, ledger, dataset, live, ready)
    print_trained(known, trained.record.to_dict(), trained.accuracy, out, as_json)


def _check_simulated(said: dict[str, Any], given: frozenset[str]) -> None:
    """What is wrong with the options, before anything is read or told."""
    from sfumato.cli.federate_simulation import check_engine
    from sfumato.federated.partitions import check_partition

    if said["file"] is not None:
        refuse_beside_file(f"--federation {said['file']}", given)
    else:
        check_given(said, given)
    require_named(said["data"])
    check_engine(said["engine"])
    check_partition(said["partition"])
    if "dataset" in given and said["ledger"] is None:
        raise ValueError("--dataset must come with --ledger: without one nothing is charged")
    if said["ledger"] is not None and not said["dataset"]:
        raise ValueError("--dataset must be given with --ledger: whose budget in it")


def _read(file: Path) -> Federation:
    from sfumato.federated.federation import Federation

    return Federation.read(file)


def _planned(federation: Federation, file: Path, as_json: bool) -> dict[str, Any]:
    """What a plan tells besides its views."""
    from sfumato.cli.federate_budget import needed_budgets

    found: dict[str, Any] = {"file": str(file), "digest": federation.digest}
    needed = needed_budgets(federation)
    if as_json:
        told = [each.to_dict() for each in needed]
        return found | {"least_survivors": federation.least, "ledgers": told}
    if dropping := may_drop_out(federation):
        found["rounds"] = dropping
    return found | {each.whose: str(each) for each in needed}


def _tell(federation: Federation, as_json: bool, more: dict[str, Any]) -> None:
    if as_json:
        print_json(public_facts(federation) | more)
        return
    console().print(views_table(federation))
    for label, value in more.items():
        console().print(f"{label}: {value}", markup=False, soft_wrap=True)
