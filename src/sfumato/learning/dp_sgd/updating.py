"""Which parameters get noise and update in one pass, and what their optimizer keeps of it.

A step usually writes each noisy mean to memory and hands it to the optimizer. On a GPU noise is
arithmetic and an update is memory traffic: in one pass the one hides behind the other. That is
done here for large parameters of ``torch.optim.SGD``, ``Adam`` and ``AdamW`` with ordinary options.
All others take the ordinary way, by ``p.grad`` and ``optimizer.step()``.

Formal guarantees
- What is released is the same noisy mean. The update is post-processing of it, by the formulas in
  :mod:`~sfumato.learning.dp_sgd.kernels.updates`.
- The optimizer's state is what torch itself would keep, in the same place, under the same names,
  with the same types: ordinary steps may come before and after, and a checkpoint does not differ.
- Whoever could look at a gradient or change a step (a subclass, a hook, another ``step``) finds
  things as always: then nothing is done here.
"""

from __future__ import annotations

# pyright: reportPrivateUsage=false, reportPrivateImportUsage=false
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.optim.optimizer as torch_optimizer
from torch import Tensor, nn

from sfumato.learning.dp_sgd.kernels.updates import Descent, Moments, alike
from sfumato.learning.dp_sgd.neighbouring import in_one_piece, views_like
from sfumato.learning.dp_sgd.noise_source import NoiseSource, UpdatingNoise

__all__ = ["LEAST_NUMBERS", "NoisyUpdates", "brought_together"]

LEAST_NUMBERS = 1 << 18
"""A parameter of fewer numbers is not worth a launch of its own: many of them share a few."""

_CPU = torch.device("cpu")
_State = dict[str, Any]
_Group = dict[str, Any]


@dataclass(slots=True)
class _Task:
    parameter: Tensor
    rule: _Descending | _Adapting
    total: Tensor
    std: float


class NoisyUpdates:
    """The parameters of one step that are updated in the pass that adds their noise.

    Args:
        optimizer: whose parameters they are.
        noise: where noise comes from.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, noise: NoiseSource) -> None:
        self._states: dict[Tensor, _State] = optimizer.state
        self._noise = noise if isinstance(noise, UpdatingNoise) else None
        self._tasks: list[_Task] = []
        self._rules: dict[Tensor, _Descending | _Adapting] = {}
        if self._noise is not None and _is_ordinary(optimizer):
            for group in optimizer.param_groups:
                rule = _rule(type(optimizer), group)
                if rule is not None:
                    self._rules.update(dict.fromkeys(group["params"], rule))

    def __len__(self) -> int:
        """How many wait to be run."""
        return len(self._tasks)

    def take(self, parameter: Tensor, total: Tensor, std: float) -> bool:
        """Takes a parameter with its clean sum, or leaves it to the ordinary way.

        Args:
            parameter: one of the optimizer's.
            total: its sum; it must stay as it is until :meth:`run`.
            std: standard deviation of its noise.

        Returns:
            Whether it was taken. Nothing is changed yet.
        """
        if parameter.numel() < LEAST_NUMBERS or type(parameter) not in (Tensor, nn.Parameter):
            return False
        rule = self._rules.get(parameter)
        if rule is None or self._noise is None or not self._noise.updates(total):
            return False
        state = self._states.get(parameter) or {}
        held = [state[name] for name in rule.kept if state.get(name) is not None]
        if not alike(total, parameter, *held) or not rule.knows(state, parameter):
            return False
        self._tasks.append(_Task(parameter, rule, total, std))
        parameter.grad = None  # whatever it is, the optimizer must not find it
        return True

    @torch.no_grad()
    def run(self, size: float) -> None:
        """Counts the step, adds noise, divides by ``size``, and updates all that was taken."""
        tasks, self._tasks = self._tasks, []
        if not tasks:
            return
        assert self._noise is not None
        updates = [task.rule.update(task.parameter, self._states) for task in tasks]
        counters = [by.step for by in updates if isinstance(by, Moments)]
        if counters:  # all in one launch, if they are on a device
            torch._foreach_add_(counters, 1)
        for by, task in zip(updates, tasks, strict=True):
            self._noise.noisy_update(by, task.total, task.std, size)


# --- what torch's optimizers do -------------------------------------------------------------------


class _Descending:
    """One group of ``torch.optim.SGD``."""

    def __init__(self, group: _Group) -> None:
        self._lr, self._decay = float(group["lr"]), float(group["weight_decay"])
        self._momentum, self._dampening = float(group["momentum"]), float(group["dampening"])
        self._nesterov = bool(group["nesterov"])
        self.kept: tuple[str, ...] = ("momentum_buffer",) if self._momentum else ()

    def knows(self, state: _State, parameter: Tensor) -> bool:
        """Always: without a buffer one is made, and nothing else is looked at."""
        return True

    def update(self, parameter: Tensor, states: dict[Tensor, _State]) -> Descent:
        """With a buffer of zeros the first time."""
        if not self.kept:
            return Descent(parameter, None, self._lr, self._decay)
        state = states[parameter]
        first = state.get("momentum_buffer") is None
        if first:
            state["momentum_buffer"] = _zeros(parameter)
        return Descent(
            parameter, state["momentum_buffer"], self._lr, self._decay,
            self._momentum, self._dampening, self._nesterov, first,
        )  # fmt: skip


class _Adapting:
    """One group of ``torch.optim.Adam`` or ``torch.optim.AdamW``."""

    def __init__(self, group: _Group, decoupled: bool) -> None:
        self._lr, self._eps = float(group["lr"]), float(group["eps"])
        self._beta1, self._beta2 = (float(beta) for beta in group["betas"])
        self._decay = float(group["weight_decay"])
        self._decoupled = bool(group.get("decoupled_weight_decay", decoupled))
        self._fused = bool(group.get("fused"))
        self._counts_there = self._fused or bool(group.get("capturable"))
        self.kept: tuple[str, ...] = ("exp_avg", "exp_avg_sq")

    def knows(self, state: _State, parameter: Tensor) -> bool:
        """Whether there is none, or all of it, and the counter where it can be read."""
        if not state:
            return True
        step = state.get("step")
        return (
            isinstance(step, Tensor)
            and step.numel() == 1
            and step.device in (_CPU, parameter.device)
            and all(isinstance(state.get(name), Tensor) for name in self.kept)
        )

    def update(self, parameter: Tensor, states: dict[Tensor, _State]) -> Moments:
        """With the counter where torch would have it."""
        state = states[parameter]
        if not state:
            state["step"] = self._counter(parameter)
            state["exp_avg"], state["exp_avg_sq"] = _zeros(parameter), _zeros(parameter)
        return Moments(
            parameter, state["exp_avg"], state["exp_avg_sq"], state["step"], self._lr,
            self._beta1, self._beta2, self._eps, self._decay, self._decoupled,
        )  # fmt: skip

    def _counter(self, parameter: Tensor) -> Tensor:
        wide = torch.get_default_dtype() == torch.float64 and not self._fused
        place = parameter.device if self._counts_there else _CPU
        return torch.zeros((), dtype=torch.float64 if wide else torch.float32, device=place)


def _zeros(parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter, memory_format=torch.preserve_format, requires_grad=False)


def _rule(kind: type[torch.optim.Optimizer], group: _Group) -> _Descending | _Adapting | None:
    """A group's rule, if its options are ordinary."""
    numbers = [group["lr"], group["weight_decay"], *group.get("betas", ())]
    numbers += [group[name] for name in ("momentum", "dampening", "eps") if name in group]
    unusual = any(group.get(name) for name in ("amsgrad", "maximize", "differentiable"))
    if unusual or not all(isinstance(number, (int, float)) for number in numbers):
        return None
    if kind is torch.optim.SGD:
        return _Descending(group)
    return _Adapting(group, decoupled=kind is torch.optim.AdamW)


def _is_ordinary(optimizer: torch.optim.Optimizer) -> bool:
    """Whether its step is torch's own, and nobody listens."""
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        return False
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    scaled = any(getattr(optimizer, name, None) is not None for name in ("grad_scale", "found_inf"))
    own: Any = vars(optimizer).get("step", type(optimizer).step)
    if hasattr(own, "_wrapped_by_lr_sched"):  # a scheduler's wrapper notes the call, no more
        own = own.__wrapped__
    return not any(hooks) and not scaled and own is type(optimizer).step


# --- what is left ---------------------------------------------------------------------------------


def brought_together(
    sums: Mapping[str, Tensor],
    parameters: Mapping[str, Tensor],
    types: Mapping[str, torch.dtype] | None = None,
) -> dict[str, Tensor]:
    """The same sums; small ones that lie apart are copied to one vector, so one launch does.

    Args:
        sums: by name.
        parameters: of the same names at least; copies are laid out like them.
        types: what sums are rounded to, by name; as they are, if left out.
    """
    types = {name: t.dtype for name, t in sums.items()} if types is None else types
    small = {name: t for name, t in sums.items() if t.numel() < LEAST_NUMBERS}
    kinds = {(t.device, types[name]) for name, t in small.items()}
    as_they_are = all(t.dtype == types[name] for name, t in small.items())
    if len(kinds) != 1 or (as_they_are and len(in_one_piece(small.values())) == 1):
        return {name: t.to(types[name]) for name, t in sums.items()}
    device, dtype = next(iter(kinds))
    vector = torch.empty(sum(t.numel() for t in small.values()), dtype=dtype, device=device)
    views = views_like(vector, {name: parameters[name] for name in small})
    torch._foreach_copy_(list(views.values()), list(small.values()))
    return {name: views[name] if name in small else t.to(types[name]) for name, t in sums.items()}
