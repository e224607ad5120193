"""One noisy step: a lot's clipped sum, noise once, the expected lot size, the optimizer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.dp_sgd.clipped_sum import ClippedSum, LotFacts
from sfumato.learning.dp_sgd.clipping import Adaptive
from sfumato.learning.dp_sgd.correlated.drawing import CorrelatedNoise
from sfumato.learning.dp_sgd.distributed.noisy_sum import noisy_means
from sfumato.learning.dp_sgd.distributed.ranks import Alone, Ranks
from sfumato.learning.dp_sgd.distributed.shards import as_gradient, local
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.pieces import exact_type
from sfumato.learning.dp_sgd.gradients.precision import full_precision
from sfumato.learning.dp_sgd.gradients.summing import SHORT
from sfumato.learning.dp_sgd.gradients.tape import Tape
from sfumato.learning.dp_sgd.gradients.uses import NotCovered
from sfumato.learning.dp_sgd.neighbouring import in_one_piece
from sfumato.learning.dp_sgd.noise import FusedNoise, NoiseSource, noisy_mean
from sfumato.learning.dp_sgd.noise_source import as_noise_needs
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.progress import Facts, Progress
from sfumato.learning.dp_sgd.updating import NoisyUpdates, brought_together

__all__ = ["NoisyStep", "as_training_error"]

_FEW = 4  # launches that cost less than copying sums together
_LEAST_SCALE = 2.0**-10  # far below, squares vanish in float32: a long gradient passes for short


@contextlib.contextmanager
def as_training_error() -> Generator[None]:
    """Says what a refusal by the tape means to whoever wrote the model."""
    try:
        yield
    except NotCovered as error:
        raise TrainingError(
            f"the model cannot be trained privately: {error}. Change that part, or freeze its "
            "parameters with requires_grad_(False)"
        ) from error


def _laid_out_like(parameter: Tensor, mean: Tensor) -> Tensor:
    """The same numbers in the parameter's type and order in memory, as fused optimizers want it."""
    fits = mean.dtype == parameter.dtype and mean.stride() == parameter.stride()
    return mean if fits else torch.empty_like(parameter).copy_(mean)


class NoisyStep:
    """Sums lots and turns each into one step of the optimizer.

    Released by a step: for each group of parameters its clipped sum plus N(0, s_l^2) noise, with
    s_l from the plan's clipping for that step's noise multiplier; and, if the clip norm adapts, a
    noisy count. Everything after the noise is post-processing.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        parameters: Mapping[str, Tensor],
        optimizer: torch.optim.Optimizer,
        scheduler: Any,
        noise: NoiseSource,
        loss_scale: float,
        ranks: Ranks | None = None,
        shards: Any = None,
    ) -> None:
        self.ranks, self.shards = ranks or Alone(), shards
        self.plan, self.optimizer, self.scheduler, self.noise = plan, optimizer, scheduler, noise
        self.parameters = dict(parameters)
        self.loss_scale = validation.positive("loss_scale", loss_scale)
        if self.loss_scale < _LEAST_SCALE:
            validation.fail("loss_scale", f"at least {_LEAST_SCALE:g}", loss_scale)
        self.sum = ClippedSum(parameters, plan.clipping, shards)
        plan.clipping.noise_scales(plan.noise_multiplier, self.sum.bounds)  # or says why not
        self.correlated: CorrelatedNoise | None = None
        if not plan.correlation.independent:
            if self.ranks.count > 1 or shards is not None:
                raise TrainingError(
                    f"noise of the kind {plan.correlation.kind!r} is drawn in one process: train "
                    "in one, or with independent noise"
                )
            self.correlated = CorrelatedNoise(plan.correlation.recursion(plan.steps), noise)
        self.compiled: Any = None
        self._signal: list[Tensor] = []
        self._spread = 0.0
        self._epsilons: dict[int, float] = {}

    @property
    def watched(self) -> bool:
        """Whether someone may ask for a report; if not, nothing is computed for one."""
        return self.sum.watched

    @watched.setter
    def watched(self, wanted: bool) -> None:
        self.sum.watched = wanted

    def start(self) -> None:
        """Before a loop's first lot: nothing is left of an earlier one, nor of its noise."""
        self.sum.start()
        if self.correlated is not None:
            self.correlated.start()

    def add(
        self,
        tape: Tape,
        losses: Tensor,
        weights: NDArray[np.float64],
        present: int | None = None,
    ) -> None:
        """A physical batch: one backward pass from the weighted losses.

        Args:
            tape: that recorded it.
            losses: of its rows.
            weights: of the same.
            present: how many of its units count; all of them by default.
        """
        per_row = torch.as_tensor(weights, dtype=losses.dtype, device=losses.device)
        counted = torch.where(per_row > 0, losses, torch.zeros((), dtype=losses.dtype))
        total = (counted * per_row).sum()
        gradients = tape.gradients(total * self.loss_scale if self.loss_scale != 1 else total)
        with (
            torch.no_grad(),
            torch.autocast(losses.device.type, enabled=False),
            full_precision(),
        ):
            self.sum.add(gradients, counted.detach() * per_row, self.loss_scale, present)
        if self.shards is not None:
            self.shards.reshard()

    def compile(
        self, model: nn.Module, loss: Callable[..., Tensor], tape: Tape, room: int = 0
    ) -> None:
        """From now on physical batches run through one traced and compiled graph.

        Args:
            model: the user's.
            loss: ``loss(model, *batch)``.
            tape: whose sites the rehearsal fills in.
            room: how many units the graph is made for at least.
        """
        from sfumato.learning.dp_sgd.compiled import CompiledSum

        self.compiled = CompiledSum(model, loss, tape, self.sum, room=room)

    def add_compiled(self, batch: tuple[Any, ...], part: Any) -> None:
        """As :meth:`add`, by the compiled graph."""
        self.compiled(batch, part, self.loss_scale)

    @torch.no_grad()
    def apply(self, step: int) -> None:
        """Adds the noise and steps the optimizer; the lot is empty afterwards.

        Large parameters may be updated in the pass that adds their noise. The noisy mean that is
        released is the same as ever, and the update is post-processing of it.
        """
        size = self.plan.lots.expected_size
        multiplier = self.plan.noise_at(step)
        clipping, bounds = self.sum.clipping, self.sum.bounds
        self._signal, self._spread = [], 0.0
        if self.shards is not None:
            self.shards.reshard()  # whole copies would not follow the step
        stds = clipping.noise_scales(multiplier, bounds)
        updates = NoisyUpdates(self.optimizer, self.noise)
        if self.shards is None and self.ranks.count > 1:
            self._release_replicated(stds, size)
            stds = ()
        for index, std in enumerate(stds):
            if self._in_few_passes():
                self._release_together(index, std, size, updates)
            else:
                self._release_each(index, std, size)
        updates.run(size)
        self.optimizer.step()  # all others: those that have a gradient
        for p in self.parameters.values():
            p.grad = None
        if self.scheduler is not None:
            self.scheduler.step()
        if isinstance(clipping, Adaptive):
            self._adapt(clipping, size)
        self._facts = self.sum.facts
        if self.watched and self.ranks.count > 1:  # waits for the device
            self._facts = self._total_facts(self.sum.facts)
        self.sum.start()

    def _release_replicated(self, stds: tuple[float, ...], size: float) -> None:
        """All groups' noisy means across ranks, in place of this rank's sums."""
        sums = self.sum.sums
        groups = [[sums[name] for name in group] for group in self.sum.groups]
        exact = any(p.dtype == torch.float64 for p in self.parameters.values())
        self._signal, self._spread = noisy_means(
            self.ranks, self.noise, zip(groups, stds, strict=True), size, self.watched,
            torch.float64 if exact else torch.float32,
        )  # fmt: skip
        for name, p in self.parameters.items():
            p.grad = _laid_out_like(p, sums[name].to(p.dtype))

    def _total_facts(self, own: LotFacts) -> LotFacts:
        """Those of all ranks, for the operator."""
        signal = sum(float(norm) ** 2 for norm in self._signal)
        units, loss, clipped, signal, self._spread = self.ranks.total(
            [own.units, float(own.loss), float(own.clipped), signal, self._spread]
        )
        self._signal = [torch.tensor(math.sqrt(signal))]
        return LotFacts(round(units), loss, clipped)

    def _in_few_passes(self) -> bool:
        """Whether a source adds its noise to sums in the parameters' own precision.

        To which they are rounded first: by at most 2^-10 of the clip norm, as there are few units.
        """
        if not isinstance(self.noise, FusedNoise) or self.correlated is not None:
            return False
        exact = all(p.dtype == torch.float64 for p in self.parameters.values())
        return exact or self.sum.facts.units * self.ranks.count <= SHORT

    def _release_each(self, index: int, std: float, size: float) -> None:
        """A group's noisy means, one parameter at a time."""
        for name in self.sum.groups[index]:
            p, clean = self.parameters[name], self.sum.sums[name]
            self._note_signal([clean], std)
            if self.correlated is not None:
                noise = self.correlated.noise_for(name, clean, std)
            else:
                noise = self.noise.normal(as_noise_needs(self.noise, clean, p.dtype), std)
            self._give(p, (clean + noise) / size)

    def _release_together(self, index: int, std: float, size: float, updates: NoisyUpdates) -> None:
        """A group's noisy means in few passes, in place of the sums, which are not needed again.

        The sums that ``updates`` takes stay as they are.
        """
        sums = {name: self.sum.sums[name] for name in self.sum.groups[index]}
        types = {name: exact_type(self.parameters[name].dtype) for name in sums}
        if any(total.dtype != types[name] for name, total in sums.items()):
            sums = brought_together(sums, self.sum.parameters, types)
        self._note_signal(in_one_piece(sums.values()) if self.watched else sums.values(), std)
        left = {n: s for n, s in sums.items() if not updates.take(self.parameters[n], s, std)}
        pieces = in_one_piece(left.values())
        if len(left) < len(sums) or len(pieces) > _FEW:
            left = brought_together(left, self.sum.parameters)
            pieces = in_one_piece(left.values())
        for total in pieces:
            noisy_mean(self.noise, total, std, size, total)
        for name, mean in left.items():
            self._give(self.parameters[name], mean)

    def _give(self, p: Tensor, mean: Tensor) -> None:
        """What is released of a parameter becomes its gradient; of a shard, the shard's."""
        given = _laid_out_like(local(p), mean.to(p.dtype))
        p.grad = given if self.shards is None else as_gradient(given, p)

    def _note_signal(self, clean: Iterable[Tensor], std: float) -> None:
        """For the operator. Of correlated noise the plan's: what is taken back is not counted."""
        for part in clean:
            if self.watched:
                self._signal.append(torch.linalg.vector_norm(part))
            self._spread += part.numel() * std**2

    def _adapt(self, clipping: Adaptive, size: float) -> None:
        assert clipping.count_noise is not None
        spread = clipping.count_noise
        (whole,) = self.ranks.total([float(self.sum.count)])
        count = torch.tensor(whole, dtype=torch.float64)
        noisy = self.ranks.leading(lambda: float(count + self.noise.normal(count, spread)))
        first = self.plan.clipping
        assert isinstance(first, Adaptive)
        self.set_clip(first.updated(clipping.clip, noisy, size))

    def set_clip(self, clip: float) -> None:
        """Replaces an adapting clip norm: by a step, or from a checkpoint."""
        assert isinstance(self.sum.clipping, Adaptive)
        self.sum.clipping = replace(self.sum.clipping, clip=clip)

    def report(self, progress: Progress, step: int) -> None:
        """Tells the operator; none of it is released."""
        if not progress.wanted:
            return
        facts = self._facts
        units = facts.units or math.nan
        signal = math.hypot(*(float(norm) for norm in self._signal))
        shown = Facts(
            step=step + 1,
            total=self.plan.steps,
            loss=float(facts.loss) / units,
            epsilon=self._epsilon(step + 1),
            clipped=float(facts.clipped) / units,
            signal_to_noise=signal / math.sqrt(self._spread),
            planned_epsilon=self.plan.guarantee.epsilon,
        )
        progress.update(shown)

    def _epsilon(self, steps: int) -> float:
        """So far; looked up among a hundred points, the next one up."""
        if not self._epsilons:
            last = self.plan.steps
            points = sorted({-(-last * i // 100) for i in range(1, 101)})
            self._epsilons = dict(zip(points, self.plan.epsilon_after(points), strict=True))
        return next(e for s, e in self._epsilons.items() if s >= steps)
