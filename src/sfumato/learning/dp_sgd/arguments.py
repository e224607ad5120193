"""What a trainer is given: checked before anything is built, with errors that name the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd.clipping import Clipping, Flat
from sfumato.learning.dp_sgd.correlated.strategies import IndependentNoise
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.lots import Lots, PoissonLots
from sfumato.learning.dp_sgd.owners import Owners, RowsAreUnits
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.recording import trainable
from sfumato.learning.dp_sgd.refusals import refuse_batch_norm
from sfumato.learning.dp_sgd.schedules import NoiseSchedule
from sfumato.ledger import Ledger

__all__ = [
    "check_losses",
    "check_names",
    "checked_parameters",
    "make_plan",
    "open_ledger",
    "relation_of",
    "units",
]


def make_plan(
    plan: TrainingPlan | None,
    *,
    public_size: int | None,
    lot_size: float | None,
    lots: Lots | None,
    clip: float | Clipping | None,
    delta: float | None,
    relation: Neighbours,
    default_unit: str,
    **more: Any,
) -> TrainingPlan:
    """The plan that a trainer's arguments state, either as a whole or in its parts."""
    parts = {"public_size": public_size, "lot_size": lot_size, "lots": lots, "clip": clip,
             "delta": delta, **more}  # fmt: skip
    given = [name for name, value in parts.items() if value is not None]
    if plan is not None:
        if given:
            raise ValueError(
                f"a plan says everything about a run's privacy: leave out {given[0]}, or the plan"
            )
        return plan
    if delta is None:
        raise ValueError("delta must be given: well below 1 / public_size, such as 1e-5")
    made = _lots(lots, public_size, lot_size)
    if delta >= 1 / made.population and made.population > 1:
        validation.fail(
            "delta", f"well below 1 over the declared size ({1 / made.population:.2g})", delta
        )
    clipping = clip if isinstance(clip, Clipping) else Flat(1.0 if clip is None else clip)
    more["neighbours"] = more["neighbours"] or relation
    more["unit"] = more["unit"] or default_unit
    more["schedule"] = more["schedule"] or NoiseSchedule()
    more["correlation"] = more.get("correlation") or IndependentNoise()
    return TrainingPlan.make(made, clipping, delta=delta, **more)


def _lots(lots: Lots | None, public_size: int | None, lot_size: float | None) -> Lots:
    if lots is not None:
        if public_size is not None or lot_size is not None:
            raise ValueError("lots state size and population: leave out lot_size and public_size")
        if not isinstance(lots, Lots):
            raise ValueError(
                f"lots must be Lots, which say what they cost (PoissonLots, FixedSizeLots, "
                f"ShuffledLots, or a class of your own), got {type(lots).__name__}: to favour some "
                "rows, weigh their losses"
            )
        return lots
    if public_size is None or lot_size is None:
        raise ValueError(
            "public_size and lot_size must be given (the declared number of records, and how many "
            "of them a lot holds on average), or lots, or a plan"
        )
    size = validation.count("public_size", public_size)
    if validation.positive("lot_size", lot_size) > size:
        validation.fail("lot_size", f"at most public_size ({size})", lot_size)
    return PoissonLots(lot_size, size)


def checked_parameters(
    model: nn.Module, optimizer: torch.optim.Optimizer, scheduler: Any
) -> dict[str, Tensor]:
    """The trainable parameters of a model, optimizer and schedule that can be trained privately."""
    _refuse_compiled(model)
    _refuse_optimizer(optimizer)
    _refuse_lazy(model)
    _refuse_scheduler(scheduler, optimizer)
    found = _shared_parameters(model, optimizer)
    refuse_batch_norm(model)
    return found


def _shared_parameters(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The trainable parameters, all of them in the optimizer, and no others there."""
    found = trainable(model)
    if not found:
        raise TrainingError("the model has no trainable parameter: nothing to train")
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    missing = [name for name, p in found.items() if id(p) not in held]
    if missing:
        raise TrainingError(
            f"{missing[0]!r} is trainable but not in the optimizer: add it, or freeze it with "
            "requires_grad_(False)"
        )
    own = {id(p) for p in model.parameters()}
    if any(id(p) not in own for group in optimizer.param_groups for p in group["params"]):
        raise TrainingError(
            "the optimizer holds a parameter that the model does not: make it over "
            "model.parameters()"
        )
    return found


def _refuse_scheduler(scheduler: Any, optimizer: torch.optim.Optimizer) -> None:
    """What has no step, or is another's, or follows a private loss, an uncharged release."""
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise TrainingError(
            "ReduceLROnPlateau follows a loss, which on private data is an uncharged release: use "
            "a schedule that is fixed in advance"
        )
    can_step = callable(getattr(scheduler, "step", None)) and not isinstance(scheduler, type)
    if scheduler is not None and not can_step:
        raise TrainingError(
            f"scheduler must be a schedule of torch's over the optimizer, such as "
            f"CosineAnnealingLR(optimizer, T_max=steps), got {scheduler!r}"
        )
    kept = getattr(scheduler, "optimizer", optimizer)
    if isinstance(kept, torch.optim.Optimizer) and kept is not optimizer:
        raise TrainingError(
            f"scheduler is a {type(scheduler).__name__} over another optimizer than the trainer's, "
            "whose learning rate would never change: make it over the optimizer that the trainer "
            "is given"
        )


def _refuse_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """One that evaluates the loss again, or takes other gradients than noisy ones."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TrainingError(
            "LBFGS evaluates the loss several times a step, of which one is paid for: use SGD or "
            "Adam"
        )
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise TrainingError(
            "SparseAdam takes sparse gradients, and a noisy gradient is dense: use Adam"
        )


def _refuse_lazy(model: nn.Module) -> None:
    """A parameter whose shape is not known yet."""
    for name, parameter in model.named_parameters():
        if is_lazy(parameter):
            raise TrainingError(
                f"{name!r} has no shape yet, as its layer is lazy: run the model once on made-up "
                "inputs, such as model(torch.zeros(1, ...)), before making the optimizer"
            )


def _refuse_compiled(model: nn.Module) -> None:
    """A compiled module hides its functions from the tape."""
    for module in model.modules():
        if "_orig_mod" in module._modules or module._compiled_call_impl is not None:
            raise TrainingError(
                "the model was compiled already, which hides its functions from per-example "
                "gradients: give the module itself, and call fit(loss, compile=True)"
            )


def units(
    rows: int, owners: ArrayLike | None, rows_per_owner: int, plan: TrainingPlan
) -> Owners | RowsAreUnits:
    """Which rows each unit holds."""
    if owners is None:
        if rows_per_owner != 1:
            validation.fail("rows_per_owner", "1 without owners", rows_per_owner)
        return RowsAreUnits(rows)
    if plan.unit == "record":
        raise ValueError(
            "unit must name whom the owners are, such as 'person', got 'record': owners are "
            "sampled and clipped, so that it is they who are protected"
        )
    if plan.lots.in_order and plan.neighbours is Neighbours.REPLACE_ONE:
        raise ValueError(
            f"neighbours must be 'zero-out' for owners in {plan.lots.kind} lots, got "
            "'replace-one': another owner's rows would move all others to other lots; state it so, "
            "or use CyclicPoissonLots"
        )
    found = Owners(owners, rows_per_owner)
    if found.rows != rows:
        raise ValueError("owners must name one for each row of the data, got another number")
    return found


def open_ledger(ledger: Ledger | str | Path | None) -> Ledger | None:
    """A ledger given as itself or by its address."""
    return ledger if ledger is None or isinstance(ledger, Ledger) else Ledger(ledger, create=False)


def check_losses(losses: Any, rows: int) -> None:
    """Raises unless there is one loss with a gradient for each row."""
    if not isinstance(losses, Tensor) or not losses.is_floating_point():
        raise TrainingError(f"losses must be a tensor of numbers, got {type(losses).__name__}")
    if losses.ndim == 0:
        raise TrainingError(
            'the loss is one number for the whole batch: use reduction="none", and give the '
            "trainer one loss for each row"
        )
    if losses.shape != (rows,):
        raise TrainingError(
            f"losses must have the shape ({rows},), one for each row of the trainer's batch, got "
            f"{tuple(losses.shape)}: sum or average over everything but the rows, and use the "
            "batch as it was handed out"
        )
    if not losses.requires_grad:
        raise TrainingError(
            "the losses have no gradient: compute them from the model's output, without no_grad "
            "or detach"
        )


def check_names(ledger: object, dataset: str, ema_decay: float | None) -> None:
    """Raises where one argument needs another."""
    if (ledger is None) != (not dataset):
        raise ValueError(
            "ledger and dataset belong together: the ledger, and the name of the budget in it; "
            "without both nothing is charged"
        )
    if ema_decay is not None:
        validation.open_probability("ema_decay", ema_decay)


def relation_of(ledger: Ledger | str | Path | None, dataset: str) -> Neighbours:
    """The relation that a ledger's budget is for; add or remove one, without a ledger."""
    opened = open_ledger(ledger)
    return Neighbours.ADD_REMOVE if opened is None else opened.terms(dataset).neighbours
