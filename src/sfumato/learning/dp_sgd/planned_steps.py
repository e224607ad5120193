"""The optimizer and the schedule, tried for all planned steps before anything is spent.

Some settings fail when a step is taken (``Adam(capturable=True)`` on a CPU), and some schedules end
before the plan does (``OneCycleLR(total_steps=...)``). A run would find out after its charge. So a
copy of the optimizer takes a step on a parameter of one number, and a copy of the schedule all of
them. Optimizers and schedules that are not torch's are left alone: nobody knows what a copy of them
would touch.
"""

from __future__ import annotations

import collections
import copy
import warnings
from typing import Any

import torch

from sfumato.learning.dp_sgd.errors import TrainingError

__all__ = ["refuse_failing_steps"]

_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_MOST = 200_000  # a second of schedule


def refuse_failing_steps(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> None:
    """Raises if a step of the plan would fail for the optimizer or the schedule alone.

    Args:
        optimizer: stays as it is.
        scheduler: stays as it is; None for none.
        steps: how many are to come.
    """
    if not type(optimizer).__module__.startswith("torch.optim"):
        return
    trial = _copied(optimizer)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the run itself gives them
        try:
            trial.step()
            trial.step()  # now with a state
        except Exception as error:
            raise TrainingError(
                f"{type(optimizer).__name__} cannot take a step on parameters such as these "
                f"({error}): leave out the option of the optimizer that the message names, or make "
                "it with its defaults"
            ) from error
        if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
            return
        try:
            following = copy.deepcopy(scheduler, {id(optimizer): trial})
        except Exception:  # what it holds cannot be copied
            return
        _follow(following, type(scheduler).__name__, steps)


def _follow(scheduler: Any, name: str, steps: int) -> None:
    for taken in range(min(steps, _MOST)):
        try:
            scheduler.step()
        except Exception as error:
            raise TrainingError(
                f"{name} fails after {taken} of the {steps} steps that are planned ({error}): the "
                "trainer steps it once a lot, so make it for that many (total_steps, T_max or "
                "epochs times steps_per_epoch)"
            ) from error


def _copied(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The same settings over parameters of one number, without a state and without hooks."""
    made = copy.copy(optimizer)
    made.__dict__.pop("step", None)  # a schedule's, which would step the optimizer itself
    for name in _HOOKS:
        if name in made.__dict__:
            setattr(made, name, collections.OrderedDict[Any, Any]())
    made.state = collections.defaultdict(dict)
    made.param_groups = []
    for group in optimizer.param_groups:
        kinds = {(p.device, p.dtype) for p in group["params"] if p.requires_grad}
        parts = [_one_number(device, dtype) for device, dtype in sorted(kinds, key=str)]
        settings = {  # of which a schedule changes some in place
            name: value.clone() if isinstance(value, torch.Tensor) else value
            for name, value in group.items()
            if name != "params"
        }
        made.param_groups.append({**settings, "params": parts})
    return made


def _one_number(device: torch.device, dtype: torch.dtype) -> torch.nn.Parameter:
    # Of two dimensions, as some optimizers ask for matrices.
    part = torch.nn.Parameter(torch.zeros(1, 1, device=device, dtype=dtype))
    part.grad = torch.zeros_like(part)
    return part
