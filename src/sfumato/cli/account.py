"""``sfumato account``: what would these releases cost?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.dp_ftrl import account_dp_ftrl
from sfumato.cli.event_files import read_events
from sfumato.cli.options import (
    AccountantName,
    AsJson,
    Delta,
    NeighboursName,
    NoiseMultiplier,
    Plot,
    SampleRate,
    Steps,
    Unit,
)
from sfumato.cli.output import console, guarantee_table, number, print_json, working

if TYPE_CHECKING:
    from sfumato.core.events import Event
    from sfumato.core.guarantee import Guarantee

app = typer.Typer(
    no_args_is_help=True, help="What releases cost: epsilon and delta of a list of events."
)

Repeat = Annotated[int, typer.Option(help="How many such releases.")]
PureDelta = Annotated[float, typer.Option(help="State epsilon at this delta; 0 for pure DP.")]


@app.command("dp-sgd")
def dp_sgd(
    noise_multiplier: NoiseMultiplier,
    sample_rate: SampleRate,
    steps: Steps,
    delta: Delta,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """DP-SGD with Poisson lots (Abadi et al.): the cost of a whole training run.

    Example: sfumato account dp-sgd --noise-multiplier 4 --sample-rate 0.01 --steps 10000 --delta
    1e-5

    With --plot, epsilon as training goes on.
    """
    from sfumato.core import events

    event = events.dp_sgd(noise_multiplier, sample_rate, steps, unit)
    guarantee = _account(event, delta, neighbours, accountant)
    if plot is not None:
        _plot_curve(events.dp_sgd(noise_multiplier, sample_rate, 1, unit), steps, guarantee, plot)
    _show(event, guarantee, as_json, plot)


app.command("dp-ftrl")(account_dp_ftrl)


@app.command()
def laplace(
    scale: Annotated[float | None, typer.Option(help="Scale b of the noise.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Or: epsilon of one release.")] = None,
    sensitivity: Annotated[float, typer.Option(help="L1 sensitivity of the value.")] = 1.0,
    releases: Repeat = 1,
    delta: PureDelta = 0.0,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """Laplace noise, once or many times.

    The sensitivity is the one under the relation that --neighbours names.

    Example: sfumato account laplace --scale 1.4142 --releases 50 --delta 1e-5
    """
    from sfumato.core.events import repeat
    from sfumato.core.sensitivity import Sensitivity
    from sfumato.mechanisms.laplace import Laplace

    bound = Sensitivity(sensitivity, unit=unit)
    _exactly_one(scale=scale, epsilon=epsilon)
    if scale is not None:
        mechanism = Laplace(scale, bound)
    else:
        assert epsilon is not None
        mechanism = Laplace.calibrate(bound, epsilon=epsilon)
    event = repeat(_declared(mechanism.event, neighbours), releases)
    facts = _sensitivity_fact(neighbours) | {
        "noise": f"scale {mechanism.scale:.6g}, standard deviation "
        f"{mechanism.standard_deviation:.6g} a release"
    }
    _show(event, _account(event, delta, neighbours, accountant), as_json, facts=facts)


@app.command()
def gaussian(
    noise_multiplier: Annotated[
        float, typer.Option(help="Standard deviation of the noise over the L2 sensitivity.")
    ],
    delta: Delta,
    releases: Repeat = 1,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """Gaussian noise, once or many times, on the whole data.

    The sensitivity is the one under the relation that --neighbours names.

    Example: sfumato account gaussian --noise-multiplier 3.7306 --delta 1e-5
    """
    from sfumato.core.events import GaussianEvent, repeat

    event = repeat(_declared(GaussianEvent(noise_multiplier, unit=unit), neighbours), releases)
    facts = _sensitivity_fact(neighbours)
    _show(event, _account(event, delta, neighbours, accountant), as_json, facts=facts)


@app.command()
def exponential(
    epsilon: Annotated[float, typer.Option(help="Epsilon of one choice.")],
    releases: Repeat = 1,
    delta: PureDelta = 0.0,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """Choices by the exponential mechanism, exp(epsilon s / 2 Delta).

    The formula without the 2, often printed, costs twice the epsilon it names; that is shown too.

    Example: sfumato account exponential --epsilon 1
    """
    from sfumato.core.events import ExponentialEvent, repeat

    event = repeat(_declared(ExponentialEvent(epsilon, unit=unit), neighbours), releases)
    facts = _sensitivity_fact(neighbours) | {
        "printed formula": f"exp(epsilon s / Delta) would cost {2 * epsilon:g} a choice"
    }
    _show(event, _account(event, delta, neighbours, accountant), as_json, facts=facts)


@app.command("randomized-response")
def randomized_response(
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of one answer.")] = None,
    noise_parameter: Annotated[
        float | None, typer.Option(help="Or: the probability of answering at random.")
    ] = None,
    categories: Annotated[int, typer.Option(help="How many possible answers.")] = 2,
    answers: Annotated[int, typer.Option(help="Answers given by one person.")] = 1,
    delta: PureDelta = 0.0,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    unit: Unit = "person",
    as_json: AsJson = False,
) -> None:
    """Randomised response: each person answers at random with some probability.

    Example: sfumato account randomized-response --noise-parameter 0.5 --answers 100 --delta 1e-5
    """
    from dataclasses import replace

    from sfumato.core.events import RandomizedResponseEvent, repeat

    _exactly_one(epsilon=epsilon, noise_parameter=noise_parameter)
    if epsilon is None:
        assert noise_parameter is not None
        one = RandomizedResponseEvent.from_noise_parameter(noise_parameter, categories)
    else:
        one = RandomizedResponseEvent(epsilon, categories)
    event = repeat(replace(one, unit=unit), answers)
    facts = {"one answer": f"epsilon {one.epsilon:.6g}"}
    _show(event, _account(event, delta, neighbours, accountant), as_json, facts=facts)


@app.command()
def pate(
    answers: Annotated[int, typer.Option(help="How many answers.")],
    delta: Delta = 1e-5,
    aggregator: Annotated[
        str, typer.Option(help="lnmax, gnmax, confident or interactive.")
    ] = "gnmax",
    sigma: Annotated[float, typer.Option(help="Noise of answers (not of lnmax).")] = 40.0,
    gamma: Annotated[float, typer.Option(help="Of lnmax: noise Lap(1/gamma).")] = 0.05,
    questions: Annotated[
        int | None,
        typer.Option(help="How many questions are checked; by default twice the answers."),
    ] = None,
    sigma_check: Annotated[
        float | None, typer.Option(help="Noise of checks; by default 4 times that of answers.")
    ] = None,
    accountant: AccountantName = "pld",
    unit: Unit = "record",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Answers of teachers who vote (PATE): what they cost, whatever the votes; every accountant.

    One unit lies in one teacher's part and moves one vote: lnmax costs 2 gamma an answer.

    Examples:
    sfumato account pate --answers 286 --sigma 40

    sfumato account pate --aggregator confident --sigma 40 --sigma-check 150 --answers 286
    --questions 640 --plot answers.png

    With --plot, epsilon against the number of answers for each aggregator.
    """
    from sfumato.cli.pate_plans import as_data, by_each_accountant, in_words, plan_of, plot_costs

    noise = gamma if aggregator == "lnmax" else sigma
    plan = plan_of(aggregator, noise, answers, questions, sigma_check, delta, unit)
    guarantee = _account(plan.event, delta, None, accountant)
    found = by_each_accountant(plan)
    if plot is not None:
        plot_costs(plan, sigma, gamma, sigma_check, accountant, plot)
    asked = f" of {plan.most_questions:,} questions" if plan.aggregator.asks_first else ""
    facts = {
        "aggregator": in_words(plan.aggregator),
        "answers": f"{plan.answers:,}{asked}",
        "by each accountant": ", ".join(f"{name} {number(eps)}" for name, eps in found.items()),
    }
    more = {"accountants": found, "plan": as_data(plan)}
    _show(plan.event, guarantee, as_json, plot, facts, more)


@app.command("laplace-or-gaussian")
def laplace_or_gaussian(
    epsilon: Annotated[float, typer.Option(help="Of one release.")] = 1.0,
    delta: Delta = 1e-5,
    dimensions: Annotated[int, typer.Option(help="Draw up to this many dimensions.")] = 10_000,
    criterion: Annotated[
        str, typer.Option(help="Which error: standard-deviation, l1 or l2.")
    ] = "standard-deviation",
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """From how many dimensions on is Gaussian noise the smaller?

    Every coordinate may move by 1, so the L1 sensitivity is k and the L2 one sqrt(k).

    Example: sfumato account laplace-or-gaussian --epsilon 1 --delta 1e-5 --plot crossover.png
    """
    from sfumato.cli.crossover import crossover, plot_crossover

    curve = crossover(epsilon, delta, dimensions, criterion)
    if plot is not None:
        plot_crossover(curve, epsilon, delta, plot)
    if as_json:
        print_json(
            {"epsilon": epsilon, "delta": delta, "criterion": curve.criterion.value}
            | {"crossover_dimension": curve.crossover}
            | ({"plot": str(plot)} if plot else {})
        )
        return
    console().print(
        f"At epsilon {epsilon:g} and delta {delta:g}, Gaussian noise is the smaller from "
        f"{curve.crossover:,} dimensions on (by {curve.criterion.value})."
    )
    if plot is not None:
        console().print(f"Plot written to {plot}")


@app.command("events")
def from_file(
    path: Annotated[Path, typer.Argument(help="A JSON file: one event, or a list of them.")],
    delta: Delta,
    neighbours: NeighboursName = None,
    accountant: AccountantName = "pld",
    as_json: AsJson = False,
) -> None:
    """A mixed list of releases from a JSON file, as records hold them.

    Example of the file's content: [{"kind": "laplace", "noise_multiplier": 10}, {"kind":
    "epsilon-delta", "epsilon": 0.2, "delta": 1e-7}]
    """
    from sfumato.core.events import ComposedEvent

    event = ComposedEvent(tuple(read_events(path)))
    _show(event, _account(event, delta, neighbours, accountant), as_json)


@app.command()
def compare(
    noise_multiplier: NoiseMultiplier = 4.0,
    sample_rate: SampleRate = 0.01,
    steps: Steps = 10_000,
    delta: Delta = 1e-5,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Every composition theorem side by side, with what a lecture claimed.

    Without options: the lecture's own numbers (sigma 4, 1 % lots, 10,000 steps, delta 1e-5).

    Example: sfumato account compare --plot composition.png
    """
    from sfumato.accounting.compare import compare as compare_theorems
    from sfumato.cli.comparison import comparison_table, plot_comparison

    with working("Comparing the theorems"):
        comparison = compare_theorems(noise_multiplier, sample_rate, steps, delta)
    if plot is not None:
        plot_comparison(comparison, plot)
    if as_json:
        print_json(comparison.to_dict() | ({"plot": str(plot)} if plot else {}))
        return
    console().print(comparison_table(comparison))
    if plot is not None:
        console().print(f"Plot written to {plot}")


def _declared(event: Event, neighbours: str | None) -> Event:
    """The event as declared for the relation asked for: the user states that sensitivity."""
    from dataclasses import replace

    from sfumato.core.neighbours import Neighbours

    if neighbours is None:
        return event
    return replace(event, neighbours=Neighbours.parse(neighbours))  # type: ignore[type-var, call-arg]


def _sensitivity_fact(neighbours: str | None) -> dict[str, str]:
    return {"sensitivity": f"taken as declared under {neighbours or 'add-remove'}"}


def _exactly_one(**options: float | None) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) != 1:
        names = " or ".join(f"--{name.replace('_', '-')}" for name in options)
        raise ValueError(f"give exactly one of {names}, got {len(given)}")


def _account(event: Event, delta: float, neighbours: str | None, accountant: str) -> Guarantee:
    from sfumato.accounting import account

    with working("Accounting"):
        return account(event, delta, neighbours=neighbours, accountant=accountant)


def _plot_curve(step: Event, steps: int, guarantee: Guarantee, path: Path) -> None:
    import numpy as np

    from sfumato.accounting import epsilon_curve
    from sfumato.reports.figures import epsilon_curve_figure
    from sfumato.reports.style import save

    points = np.unique(np.linspace(0, steps, min(steps, 100) + 1).astype(int))
    curve = epsilon_curve(step, points.tolist(), guarantee.delta, guarantee.neighbours)
    save(epsilon_curve_figure(points, curve, guarantee.delta), path)


def _show(
    event: Event,
    guarantee: Guarantee,
    as_json: bool,
    plot: Path | None = None,
    facts: dict[str, str] | None = None,
    more: dict[str, Any] | None = None,
) -> None:
    if as_json:
        extra = (more or {}) | ({"plot": str(plot)} if plot else {})
        print_json(guarantee.to_dict() | {"event": event.to_dict()} | extra)
        return
    meaning = _plain_words(event, guarantee) if guarantee.accountant == "pld" else {}
    console().print(guarantee_table(guarantee, (facts or {}) | meaning))
    if plot is not None:
        console().print(f"Plot written to {plot}")


def _plain_words(event: Event, guarantee: Guarantee) -> dict[str, str]:
    """What the guarantee means for someone in the data, from the whole trade-off curve."""
    from sfumato.accounting import privacy_profile

    profile = privacy_profile(event, [], neighbours=guarantee.neighbours)
    return {
        "attacker": f"at 1% false alarms, detects one {guarantee.unit} with probability "
        f"{profile.power_at(0.01):.1%} at most"
    }
