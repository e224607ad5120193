"""``sfumato calibrate``: how much noise does a target need?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sfumato.cli.dp_ftrl import calibrate_dp_ftrl
from sfumato.cli.options import (
    AccountantName,
    AsJson,
    Delta,
    MaybeSteps,
    NeighboursName,
    Unit,
)
from sfumato.cli.output import console, guarantee_table, print_json, working

app = typer.Typer(
    no_args_is_help=True, help="The least noise (or most steps) that meets a target epsilon."
)

Epsilon = Annotated[float, typer.Option(help="The target; never exceeded.")]


@app.command("dp-sgd")
def dp_sgd(
    epsilon: Epsilon,
    delta: Delta,
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over clip norm.")] = None,
    sample_rate: Annotated[float | None, typer.Option(help="Lot size over N.")] = None,
    steps: MaybeSteps = None,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """Give two of noise multiplier, sample rate and steps; get the third.

    Example: sfumato calibrate dp-sgd --epsilon 2 --delta 1e-5 --sample-rate 0.01 --steps 6000

    With a ledger, add --accountant rdp: its budget is counted in that currency.
    """
    from sfumato.accounting import (
        account,
        calibrate_noise,
        calibrate_sample_rate,
        calibrate_steps,
    )
    from sfumato.core import events

    target: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "neighbours": neighbours,
        "accountant": accountant,
        "unit": unit,
    }
    known = {
        "noise_multiplier": noise_multiplier,
        "sample_rate": sample_rate,
        "steps": steps,
    }
    missing = [name for name, value in known.items() if value is None]
    if len(missing) != 1:
        raise ValueError(
            "give exactly two of --noise-multiplier, --sample-rate and --steps, got "
            f"{3 - len(missing)}"
        )
    solve = {
        "noise_multiplier": calibrate_noise,
        "sample_rate": calibrate_sample_rate,
        "steps": calibrate_steps,
    }[missing[0]]
    with working("Calibrating"):
        known[missing[0]] = solve(**target, **{k: v for k, v in known.items() if v is not None})
        event = events.dp_sgd(**known, unit=unit)  # type: ignore[arg-type]
        guarantee = account(event, delta, neighbours=neighbours, accountant=accountant)
    if as_json:
        print_json(known | {"target_epsilon": epsilon} | guarantee.to_dict())
        return
    facts = {name.replace("_", " "): f"{value:g}" for name, value in known.items()}
    console().print(guarantee_table(guarantee, facts))


app.command("dp-ftrl")(calibrate_dp_ftrl)


@app.command()
def laplace(
    epsilon: Epsilon,
    sensitivity: Annotated[float, typer.Option(help="L1 sensitivity of the value.")] = 1.0,
    neighbours: NeighboursName = None,
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """The scale of Laplace noise for one release.

    Example: sfumato calibrate laplace --epsilon 0.1 --sensitivity 1
    """
    from sfumato.core.neighbours import Neighbours
    from sfumato.core.sensitivity import Sensitivity
    from sfumato.mechanisms.laplace import Laplace

    relation = Neighbours.parse(neighbours or "add-remove")
    bound = Sensitivity(sensitivity, neighbours=relation, unit=unit)
    mechanism = Laplace.calibrate(bound, epsilon=epsilon)
    _show_noise(mechanism, {"scale": mechanism.scale}, mechanism.guarantee(), as_json)


@app.command()
def gaussian(
    epsilon: Epsilon,
    delta: Delta,
    sensitivity: Annotated[float, typer.Option(help="L2 sensitivity of the value.")] = 1.0,
    method: Annotated[
        str,
        typer.Option(help="analytic (least noise), dwork-roth, two-over-delta or one-over-delta."),
    ] = "analytic",
    neighbours: NeighboursName = None,
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """The standard deviation of Gaussian noise for one release.

    The printed formulas are refused where they do not hold.

    Example: sfumato calibrate gaussian --epsilon 1 --delta 1e-5
    """
    from sfumato.core.neighbours import Neighbours
    from sfumato.core.sensitivity import Norm, Sensitivity
    from sfumato.mechanisms.gaussian import Gaussian

    relation = Neighbours.parse(neighbours or "add-remove")
    bound = Sensitivity(sensitivity, Norm.L2, relation, unit)
    mechanism = Gaussian.calibrate(bound, epsilon=epsilon, delta=delta, method=method)
    _show_noise(mechanism, {"sigma": mechanism.sigma}, mechanism.guarantee(delta), as_json)


@app.command()
def pate(
    epsilon: Epsilon,
    delta: Delta = 1e-5,
    teachers: Annotated[
        str, typer.Option(help="How many there might be, with commas between.")
    ] = "50,100,250,500,1000",
    aggregator: Annotated[
        str, typer.Option(help="lnmax, gnmax, confident; with commas between.")
    ] = "gnmax,confident",
    answers: Annotated[
        str | None,
        typer.Option(help="How many answers you want, with commas between: with the least noise."),
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(help="Or which noise (sigma; of lnmax 1/gamma): as many answers as fit."),
    ] = None,
    sure: Annotated[
        float,
        typer.Option(help="Without both: as much noise as leaves answers right this often."),
    ] = 0.95,
    agreement: Annotated[
        str,
        typer.Option(
            help="How far teachers are assumed to agree: mnist (as measured there), the first "
            "class's share in equally many questions each (0.95,0.8,0.6), or a JSON file."
        ),
    ] = "mnist",
    rows: Annotated[
        int, typer.Option(help="Of the private data, dealt to the teachers: for mnist.")
    ] = 60_000,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """How many teachers, which noise, how many answers for an epsilon? No data is read.

    What answers cost holds for all data. How often they are right depends on how far teachers
    agree, which is private and is assumed: guess, or measure on public data; never look at the
    private votes.

    Examples:
    sfumato calibrate pate --epsilon 2

    sfumato calibrate pate --epsilon 2 --answers 100,250 --teachers 50,100,250,500 --rows 60000

    sfumato calibrate pate --epsilon 1 --noise 40,80 --teachers 250 --agreement 0.99,0.9,0.6

    A JSON file holds rows of shares of all classes, one row for a kind of question, all kinds
    equally frequent; or such lists by the number of teachers. With a ledger, add --accountant rdp.
    """
    from sfumato.cli.pate_plans import Wanted, choices, show_choices

    wanted = Wanted.said(epsilon, delta, answers, noise, sure, accountant, unit)
    with working("Planning"):
        found = choices(wanted, teachers, aggregator, agreement, rows)
    show_choices(wanted, found, agreement, as_json)


def _show_noise(mechanism: Any, values: dict[str, float], guarantee: Any, as_json: bool) -> None:
    errors = {
        "expected error": mechanism.expected_error,
        "95% half-width": mechanism.half_width(0.95),
    }
    if as_json:
        plain = dict(zip(("expected_error", "half_width_95"), errors.values(), strict=True))
        print_json(values | plain | guarantee.to_dict())
        return
    facts = {name: f"{value:.6g}" for name, value in (values | errors).items()}
    console().print(guarantee_table(guarantee, facts))
