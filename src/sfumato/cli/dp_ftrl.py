"""``sfumato account dp-ftrl`` and ``calibrate dp-ftrl``: training with correlated noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import AsJson, Delta, NoiseMultiplier, Unit
from sfumato.cli.output import console, guarantee_table, print_json, working

if TYPE_CHECKING:
    from sfumato.learning.dp_sgd import TrainingPlan

__all__ = ["account_dp_ftrl", "calibrate_dp_ftrl"]

LotSize = Annotated[int, typer.Option(help="Records in a lot (expected, if it is sampled).")]
Records = Annotated[int, typer.Option(help="Declared number of records.")]
Epochs = Annotated[float, typer.Option(help="Passes over the data.")]
CorrelationName = Annotated[
    str,
    typer.Option("--correlation", help="banded:BANDS, tree[:RESTART], buffered[:BUFFERS]."),
]
LotsName = Annotated[
    str,
    typer.Option(
        "--lots", help="streamed, or cyclic-poisson: sampled in turns, a group for each band."
    ),
]
Relation = Annotated[
    str | None,
    typer.Option("--neighbours", help="Default: zero-out if streamed, add-remove if sampled."),
]


def account_dp_ftrl(
    noise_multiplier: NoiseMultiplier,
    lot_size: LotSize,
    records: Records,
    delta: Delta,
    epochs: Epochs = 1.0,
    correlation: CorrelationName = "buffered",
    lots: LotsName = "streamed",
    neighbours: Relation = None,
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """Training with noise that is correlated over steps (DP-FTRL): the cost of a whole run.

    Example: sfumato account dp-ftrl --noise-multiplier 2 --lot-size 500 --records 60000 --epochs 3
    --correlation banded:100 --delta 1e-5
    """
    _show(
        lot_size, records, correlation, lots, neighbours, as_json, delta=delta, epochs=epochs,
        unit=unit, noise_multiplier=noise_multiplier,
    )  # fmt: skip


def calibrate_dp_ftrl(
    epsilon: Annotated[float, typer.Option(help="The target; never exceeded.")],
    lot_size: LotSize,
    records: Records,
    delta: Delta,
    epochs: Epochs = 1.0,
    correlation: CorrelationName = "buffered",
    lots: LotsName = "streamed",
    neighbours: Relation = None,
    unit: Unit = "record",
    as_json: AsJson = False,
) -> None:
    """The noise of training that is correlated over steps (DP-FTRL), and what it does to sums.

    Example: sfumato calibrate dp-ftrl --epsilon 3 --lot-size 500 --records 60000 --correlation
    banded:16 --lots cyclic-poisson --delta 1e-5
    """
    _show(
        lot_size, records, correlation, lots, neighbours, as_json, delta=delta, epochs=epochs,
        unit=unit, epsilon=epsilon,
    )  # fmt: skip


def _show(
    lot_size: int,
    records: int,
    correlation: str,
    lots: str,
    neighbours: str | None,
    as_json: bool,
    **more: Any,
) -> None:
    from sfumato.learning.dp_sgd import prefix_error

    with working("Accounting"):
        plan = _plan(lot_size, records, correlation, lots, neighbours, **more)
        guarantee = plan.guarantee
    error = prefix_error(plan.correlation, plan.steps, plan.noise_multiplier)
    if as_json:
        facts = {
            "noise_multiplier": plan.noise_multiplier,
            "steps": plan.steps,
            "correlation": plan.correlation.to_dict(),
            "lots": plan.lots.to_dict(),
            "prefix_error": {"mean": error.mean, "largest": error.largest},
            "vectors_in_memory": plan.correlation.memory(plan.steps),
        }
        print_json(guarantee.to_dict() | {"event": plan.event.to_dict()} | facts)
        return
    shown = {
        "noise multiplier": f"{plan.noise_multiplier:g}",
        "steps": f"{plan.steps:,}",
        "takes part": f"{plan.lots.participation(plan.steps)[0]} times at most",
        "noise on prefix sums": f"{error.mean:.4g} clip norms, {error.largest:.4g} at most",
        "in memory": f"{plan.correlation.memory(plan.steps)} times the parameters",
    }
    console().print(guarantee_table(guarantee, shown))


def _plan(
    lot_size: int, records: int, correlation: str, lots: str, neighbours: str | None, **more: Any
) -> TrainingPlan:
    from sfumato.core import validation
    from sfumato.learning.dp_sgd import CyclicPoissonLots, Flat, StreamedLots, TrainingPlan
    from sfumato.learning.dp_sgd.correlated.parsing import parse_correlation

    chosen = parse_correlation(correlation)
    if lots == "streamed":
        made, usual = StreamedLots(lot_size, records), "zero-out"
    elif lots != "cyclic-poisson":
        validation.fail("lots", "streamed or cyclic-poisson", lots)
    elif chosen.reach == float("inf"):
        validation.fail("correlation", "banded:BANDS for cyclic-poisson lots", correlation)
    else:
        made, usual = CyclicPoissonLots(lot_size, records, int(chosen.reach)), "add-remove"
    return TrainingPlan.make(
        made, Flat(1.0), correlation=chosen, neighbours=neighbours or usual, **more
    )
