"""The engines of the GPU benchmark: one class each, all with the same two methods.

``step(x, y)`` is a whole step of training. For a private engine it is the clipped sum, Gaussian
noise from the engine's own default source, the division by the batch and the optimizer.
``clipped_sum(x, y)`` is the sum before noise, by parameter, computed by the same code that
``step`` runs; parameters do not move.

Peers are used as their documentation says, and in the way that is fastest for them: gradients set
to None instead of 0, the optimizer fused, no secure mode.
"""

from __future__ import annotations

import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

import torch
from gpu_tasks import Loss, Setting, Task
from torch import Tensor, nn

NOISE = 1.0
SIZE = 1_000_000  # declared size of the data: changes no time
Sums = dict[str, Tensor]


class Engine(ABC):
    """One way to train.

    Attributes:
        private: whether examples are clipped and noise is added.
        allowance: for rounding: examples are clipped to the clip norm times one minus it.
    """

    private = True
    allowance = 0.0

    def __init__(self, setting: Setting) -> None:
        self.s = setting
        self.model, self.loss, self.optimizer = setting.model, setting.loss, setting.optimizer

    @abstractmethod
    def step(self, x: Tensor, y: Tensor) -> None:
        """One whole step."""

    def close(self) -> None:  # noqa: B027  # most have nothing to leave
        """Leaves what was entered; there is no step after that."""

    def clipped_sum(self, x: Tensor, y: Tensor) -> Sums:
        """The clipped sum of a batch, before noise."""
        raise NotImplementedError


class Plain(Engine):
    """Training without privacy.

    Args:
        setting: as for all.
        compiled: whether model and loss go through ``torch.compile``.
        channels_last: whether images and kernels have their channels last.
        mode: what ``torch.compile`` is told; "reduce-overhead" replays CUDA graphs.
    """

    private = False

    def __init__(
        self, setting: Setting, compiled: bool = False, channels_last: bool = False,
        mode: str = "default",
    ) -> None:  # fmt: skip
        super().__init__(setting)
        self.channels_last = channels_last
        if channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

        def mean(x: Tensor, y: Tensor) -> Tensor:
            return self.loss(self.model, x, y).mean()

        self.mean = torch.compile(mean, mode=mode, dynamic=False) if compiled else mean

    def step(self, x: Tensor, y: Tensor) -> None:
        """Forward, backward, optimizer."""
        torch.compiler.cudagraph_mark_step_begin()
        if self.channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        self.mean(x, y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class NoNoise:
    """Zeros: what a step costs without its noise."""

    name, private = "none", False

    def normal(self, like: Tensor, std: float) -> Tensor:
        """Zeros."""
        return torch.zeros_like(like)

    def noisy_mean(self, total: Tensor, std: float, size: float, out: Tensor) -> None:
        """The mean as it is."""
        torch.div(total, size, out=out)


def own_noise(kind: str, trained: Sums) -> Any:
    """A source by name; "" is the default that a trainer takes."""
    from sfumato.core.randomness import SYSTEM
    from sfumato.learning.dp_sgd import noise

    if kind == "none":
        return NoNoise()
    if kind == "torch":
        return noise.TorchNoise()
    if kind == "coins":
        return noise.CoinNoise()
    return noise.default_noise(SYSTEM, trained.values())


class Sfumato(Engine):
    """The trainer's own step, on given batches instead of sampled ones."""

    def __init__(self, setting: Setting, compiled: bool = False, noise: str = "") -> None:
        import numpy as np

        from sfumato.learning.dp_sgd import Flat, PoissonLots, TrainingPlan
        from sfumato.learning.dp_sgd.gradients.tape import Tape
        from sfumato.learning.dp_sgd.physical import Part
        from sfumato.learning.dp_sgd.recording import Recorder, trainable
        from sfumato.learning.dp_sgd.stepping import NoisyStep

        super().__init__(setting)
        rows, self.compiled, self.number = setting.rows, compiled, 0
        plan = TrainingPlan(PoissonLots(rows, SIZE), Flat(setting.clip), NOISE, 1000, 1e-7)
        trained = trainable(self.model)
        self.recorder = Recorder(self.model, Tape(trained))
        source = own_noise(noise, trained)
        self.noisy = NoisyStep(plan, trained, self.optimizer, None, source, 1.0)
        self.noisy.watched = False  # as in a run without a progress bar
        self.allowance = self.noisy.sum.eta
        self.attached = self.recorder.attached()
        self.attached.__enter__()
        x, y = setting.task.batch(11, setting.device)
        self.recorder.expect(11, 11, learning=True)
        self.recorder.tape.gradients(self.loss(self.model, x, y).sum())
        if compiled:
            self.noisy.compile(self.model, self.loss, self.recorder.tape, room=rows)
        self.weights = np.ones(rows)
        self.part = Part(0, np.arange(rows), self.weights, rows, last=True)

    def _add(self, x: Tensor, y: Tensor) -> None:
        if self.compiled:
            self.recorder.take()
            self.noisy.add_compiled((x, y), self.part)
        else:
            self.recorder.expect(len(x), len(x))
            losses = self.loss(self.model, x, y)
            self.noisy.add(self.recorder.tape, losses, self.weights)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Clipped sum, noise, optimizer."""
        self._add(x, y)
        self.noisy.apply(self.number % 1000)
        self.number += 1

    def close(self) -> None:
        """Takes the hooks off the model."""
        self.attached.__exit__(None, None, None)

    def clipped_sum(self, x: Tensor, y: Tensor) -> Sums:
        """What noise would be added to; the lot is emptied again."""
        self._add(x, y)
        found = {name: total.clone() for name, total in self.noisy.sum.sums.items()}
        self.noisy.sum.start()
        return found


class Opacus(Engine):
    """Opacus with hooks: per-example gradients of every layer, then clipped."""

    def __init__(self, setting: Setting) -> None:
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        super().__init__(setting)
        self.wrapped = GradSampleModule(self.model)
        self.private_optimizer = DPOptimizer(
            self.optimizer, noise_multiplier=NOISE, max_grad_norm=setting.clip,
            expected_batch_size=setting.rows,
        )  # fmt: skip

    def step(self, x: Tensor, y: Tensor) -> None:
        """Backward with hooks, then the wrapped optimizer."""
        self.loss(self.wrapped, x, y).mean().backward()
        self.private_optimizer.step()
        self.private_optimizer.zero_grad(set_to_none=True)

    def clipped_sum(self, x: Tensor, y: Tensor) -> Sums:
        """The optimizer's sum."""
        self.loss(self.wrapped, x, y).mean().backward()
        self.private_optimizer.clip_and_accumulate()
        found = {n: p.summed_grad.clone() for n, p in self.s.trained.items()}  # type: ignore[attr-defined]
        self.private_optimizer.zero_grad(set_to_none=True)
        return found


class OpacusGhost(Engine):
    """Opacus' ghost clipping: norms in a first backward pass, the sum in a second."""

    def __init__(self, setting: Setting) -> None:
        from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
            GradSampleModuleFastGradientClipping,
        )
        from opacus.optimizers import DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

        super().__init__(setting)
        self.wrapped = GradSampleModuleFastGradientClipping(
            self.model,
            max_grad_norm=setting.clip,  # type: ignore[arg-type]  # declared an integer
            use_ghost_clipping=True,
        )
        self.private_optimizer = DPOptimizerFastGradientClipping(
            self.optimizer, noise_multiplier=NOISE, max_grad_norm=setting.clip,
            expected_batch_size=setting.rows,
        )  # fmt: skip
        self.as_loss = DPTensorFastGradientClipping

    def _backward(self, x: Tensor, y: Tensor) -> None:
        losses = self.loss(self.wrapped, x, y)
        self.as_loss(self.wrapped, self.private_optimizer, losses, "mean").backward()

    def step(self, x: Tensor, y: Tensor) -> None:
        """Two backward passes, then the wrapped optimizer."""
        self._backward(x, y)
        self.private_optimizer.step()
        self.private_optimizer.zero_grad(set_to_none=True)

    def clipped_sum(self, x: Tensor, y: Tensor) -> Sums:
        """What the second pass leaves in ``grad``."""
        self._backward(x, y)
        found = {n: p.grad.clone() for n, p in self.s.trained.items() if p.grad is not None}
        self.private_optimizer.zero_grad(set_to_none=True)
        return found


class Vmap(Engine):
    """``torch.func``: vmap of grad of the functional model, then clip and sum.

    Args:
        setting: as for all.
        compiled: whether all of that is compiled as one function.
    """

    def __init__(self, setting: Setting, compiled: bool = False) -> None:
        super().__init__(setting)
        frozen = {n: p for n, p in self.model.named_parameters() if not p.requires_grad}
        calling = _Calling(self.model, self.loss)

        def one(trained: Sums, x: Tensor, y: Tensor) -> Tensor:
            held = {f"model.{n}": p for n, p in {**frozen, **trained}.items()}
            return torch.func.functional_call(calling, held, (x[None], y[None]))[0]

        def clipped(trained: Sums, x: Tensor, y: Tensor) -> Sums:
            each = torch.func.vmap(torch.func.grad(one), (None, 0, 0))(trained, x, y)
            norms = [g.flatten(1).norm(dim=1) for g in each.values()]
            factors = (setting.clip / torch.stack(norms).norm(dim=0)).clamp(max=1.0)
            return {n: torch.einsum("n,n...->...", factors, g) for n, g in each.items()}

        self.clipped = torch.compile(clipped, dynamic=False) if compiled else clipped

    def clipped_sum(self, x: Tensor, y: Tensor) -> Sums:
        """The function itself."""
        return self.clipped({n: p.detach() for n, p in self.s.trained.items()}, x, y)

    def step(self, x: Tensor, y: Tensor) -> None:
        """The sum, torch's noise, the optimizer."""
        std, trained = NOISE * self.s.clip, self.s.trained
        for name, total in self.clipped_sum(x, y).items():
            trained[name].grad = (total + std * torch.randn_like(total)) / self.s.rows
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class _Calling(nn.Module):
    """Model and loss as one module."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """One loss for each example."""
        return self.loss(self.model, x, y)


class FastDp(Engine):
    """AWS' fast-differential-privacy, from a checkout: book-keeping with the "MixOpt" choice.

    It imports Hugging Face's models, none of which is used here: empty modules stand in where they
    are missing. Layers that it does not know it leaves out, which the check of the sums shows.
    """

    def __init__(self, setting: Setting) -> None:
        if not setting.fastdp:
            raise ValueError("needs --fastdp PATH, a checkout of fast-differential-privacy")
        sys.path.insert(0, setting.fastdp)
        sys.meta_path.append(_StandIn())  # last: real ones are found first
        from fastDP import PrivacyEngine  # type: ignore[import-not-found]

        super().__init__(setting)
        self.names = dict(self.s.trained)
        engine = PrivacyEngine(
            self.model, batch_size=setting.rows, sample_size=SIZE, epochs=1,
            noise_multiplier=NOISE, max_grad_norm=setting.clip, clipping_fn="Abadi",
            clipping_mode="MixOpt", clipping_style="all-layer", loss_reduction="mean",
            origin_params=list(setting.task.origin) or None,
        )  # fmt: skip
        engine.attach(self.optimizer)

    def step(self, x: Tensor, y: Tensor) -> None:
        """Backward with hooks, then the patched optimizer."""
        self.loss(self.model, x, y).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def clipped_sum(self, x: Tensor, y: Tensor) -> Sums:
        """What its hooks leave on each parameter."""
        self.loss(self.model, x, y).mean().backward()
        found: Sums = {}
        for name, p in self.names.items():
            for place in ("summed_clipped_grad", "private_grad"):
                if hasattr(p, place):
                    found[name] = getattr(p, place).clone()
                    delattr(p, place)
        self.optimizer.zero_grad(set_to_none=True)
        return found


class _StandIn(MetaPathFinder, Loader):
    """Finds missing packages, empty: every name in them is a class without instances."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Any module of those packages."""
        missing = fullname.partition(".")[0] in ("transformers", "prv_accountant")
        return ModuleSpec(fullname, self, is_package=True) if missing else None

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        """The empty one."""
        return _Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


class _Anything(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"get_logger": staticmethod(lambda *_: None)})


def _plain(**options: Any) -> Callable[[Setting], Engine]:
    return lambda setting: Plain(setting, **options)


def _ours(**options: Any) -> Callable[[Setting], Engine]:
    return lambda setting: Sfumato(setting, **options)


_LAST, _GRAPHS = {"channels_last": True}, {"compiled": True, "mode": "reduce-overhead"}
ENGINES: dict[str, Callable[[Setting], Engine]] = {
    "plain": _plain(),
    "plain, channels last": _plain(**_LAST),
    "plain+compile": _plain(compiled=True),
    "plain+compile, channels last": _plain(compiled=True, **_LAST),
    "plain+compile, graphs": _plain(**_GRAPHS),
    "plain+compile, graphs, channels last": _plain(**_GRAPHS, **_LAST),
    "sfumato": _ours(),
    "sfumato+compile": _ours(compiled=True),
    "sfumato+compile, torch noise": _ours(compiled=True, noise="torch"),
    "sfumato+compile, coins": _ours(compiled=True, noise="coins"),
    "sfumato+compile, no noise": _ours(compiled=True, noise="none"),
    "opacus": Opacus,
    "opacus ghost": OpacusGhost,
    "fastdp": FastDp,
    "vmap": Vmap,
    "vmap+compile": lambda setting: Vmap(setting, compiled=True),
}
"""In the order of the table."""


def engines_for(task: Task, fastdp: bool) -> list[str]:
    """Those worth running on a task."""
    left_out = {n for n in ENGINES if "channels last" in n and not task.images}
    return [n for n in ENGINES if n not in left_out and (n != "fastdp" or fastdp)]
