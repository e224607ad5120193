"""Laplace SGD: DP-SGD as it would be with the noise of the first textbook chapter.

    >>> from sfumato.core.randomness import SeededCoins
    >>> way = LaplaceSGD.calibrate(epsilon=4, delta=1e-5, lot_size=50, public_size=200, steps=8)
    >>> way.guarantee.epsilon <= 4, way.pure.delta, way.pure.epsilon > 4
    (True, 0.0, True)
    >>> model = torch.nn.Linear(5, 2)
    >>> x, y = torch.randn(200, 5), torch.zeros(200, dtype=torch.long)
    >>> trained, record = way.run(model, x, y, coins=SeededCoins(1))
    >>> record.method, record.private, trained is model
    ('laplace-sgd', False, False)

The lots are DP-SGD's own. What differs is the norm: Laplace noise is calibrated to L1, in which a
gradient over d parameters is up to sqrt(d) times as long as in L2.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, final

import torch
from torch import Tensor, nn

from sfumato.accounting import account, calibrate
from sfumato.core import validation
from sfumato.core.events import Event, LaplaceEvent, PoissonSampledEvent, repeat
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.core.rounding import at_least_product
from sfumato.core.sensitivity import Norm, Sensitivity
from sfumato.learning.dp_sgd.lots import PoissonLots
from sfumato.learning.dp_sgd.other_coins import drawn_by, refuse_held, refuse_seeds
from sfumato.learning.naive.examples import (
    check_model,
    check_rows,
    released,
    trainable,
    vector_of,
)
from sfumato.learning.naive.gradients import clipped_sum
from sfumato.learning.secret_coins import ModelCoins
from sfumato.mechanisms.laplace import Laplace

__all__ = ["LaplaceSGD"]

_LEAST_NOISE = 1e-2
_RELATIONS = (Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT)


@final
@dataclass(frozen=True)
class LaplaceSGD:
    """SGD whose every step is a Poisson-sampled Laplace release. All fields are public.

    A step: each record enters the lot by its own coin, with probability q = L/N; each example's
    gradient g becomes g min(1, C / |g|_1); Laplace noise of scale b = z C is added to every
    coordinate of their sum, which is divided by L. Empty lots are steps.

    Formal guarantees, for one record added, removed or blanked out
        - A record moves the sum by at most C in L1 norm, so a step on a given lot is (1/z)-DP.
        - delta 0: the steps' amplified epsilons add, T ln(1 + q (e^(1/z) - 1)) (:attr:`pure`).
        - delta above 0: the privacy loss distribution of the composition (:attr:`guarantee`). In d
          dimensions a single coordinate that moves by C is the worst case, sampled or not: the
          sampled profile is an increasing function of the plain one (see
          :class:`~sfumato.core.events.LaplaceEvent`).

    Noise is drawn exactly, on a grid (:class:`~sfumato.mechanisms.laplace.Laplace`); gradients
    are floating point, clipped with an allowance for rounding.

    Attributes:
        lot_size: L, the expected number of records in a lot.
        public_size: N, the declared number of records.
        steps: T.
        noise_multiplier: z, the noise's scale over C: 1 over a step's epsilon before sampling.
        clip: C, in L1 norm.
        learning_rate: of SGD.
        momentum: of SGD.
        delta: at which the guarantee is stated; 0 for a pure one.
        neighbours: add-remove or zero-out.
        unit: what a row is.
        batch_size: the most rows in memory at a time.

    References: Dwork et al., "Calibrating noise to sensitivity" (2006), theorem 1; Song, Chaudhuri
    and Sarwate, "Stochastic gradient descent with differentially private updates" (2013); Balle,
    Barthe and Gaboardi, arXiv:1807.01647, theorem 8 (amplification).
    """

    lot_size: float
    public_size: int
    steps: int
    noise_multiplier: float
    clip: float = 1.0
    learning_rate: float = 0.1
    momentum: float = 0.0
    delta: float = 0.0
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    batch_size: int = 2048

    def __post_init__(self) -> None:
        lots = PoissonLots(self.lot_size, self.public_size)
        values: dict[str, Any] = {
            "lot_size": lots.size,
            "public_size": lots.population,
            "steps": validation.count("steps", self.steps),
            "noise_multiplier": validation.positive("noise_multiplier", self.noise_multiplier),
            "clip": validation.positive("clip", self.clip),
            "learning_rate": validation.positive("learning_rate", self.learning_rate),
            "momentum": validation.delta("momentum", self.momentum),
            "delta": validation.delta("delta", self.delta),
            "neighbours": Neighbours.parse(self.neighbours),
            "unit": validation.name("unit", self.unit),
            "batch_size": validation.count("batch_size", self.batch_size),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.noise_multiplier < _LEAST_NOISE:
            validation.fail("noise_multiplier", f"at least {_LEAST_NOISE}", self.noise_multiplier)
        if self.neighbours not in _RELATIONS:
            validation.fail(
                "neighbours",
                "'add-remove' or 'zero-out', for which sampled Laplace noise is accounted",
                self.neighbours.value,
            )
        self._mechanism()  # or says why there is none

    @classmethod
    def calibrate(cls, *, epsilon: float, delta: float = 0.0, **fields: Any) -> LaplaceSGD:
        """With the least noise that meets ``epsilon`` at ``delta``; the rest as in the class.

        At delta 0 by basic composition of the amplified epsilons, above it by PLD.

        Raises:
            ValueError: if no noise meets the target, or a field is bad.
        """
        draft = cls(noise_multiplier=1.0, delta=delta, **fields)
        noise = calibrate(
            lambda z: replace(draft, noise_multiplier=max(z, _LEAST_NOISE)).event,
            epsilon,
            draft.delta,
            neighbours=draft.neighbours,
            lowest=_LEAST_NOISE,
        )
        return replace(draft, noise_multiplier=max(noise, _LEAST_NOISE))

    # --- what it promises -------------------------------------------------------------------------

    @property
    def lots(self) -> PoissonLots:
        """How records are sampled."""
        return PoissonLots(self.lot_size, self.public_size)

    @property
    def scale(self) -> float:
        """The noise's scale b = z C, never rounded down."""
        return at_least_product(self.noise_multiplier, self.clip)

    @property
    def event(self) -> Event:
        """Everything that a run releases: T sampled Laplace releases."""
        step = LaplaceEvent(self.noise_multiplier, self.neighbours, self.unit)
        rate = self.lots.sample_rate
        return repeat(step if rate == 1 else PoissonSampledEvent(step, rate), self.steps)

    @cached_property
    def guarantee(self) -> Guarantee:
        """At :attr:`delta`: exact composition, or basic composition where that is 0."""
        return account(self.event, self.delta, neighbours=self.neighbours)

    @cached_property
    def pure(self) -> Guarantee:
        """At delta 0, by basic composition."""
        return account(self.event, 0.0, neighbours=self.neighbours)

    def _mechanism(self, dimension: int = 1) -> Laplace:
        bound = Sensitivity(self.clip, Norm.L1, self.neighbours, self.unit, dimension)
        return Laplace(self.scale, bound)

    # --- the run ----------------------------------------------------------------------------------

    def run(
        self, model: nn.Module, inputs: Tensor, labels: Tensor, *, coins: Coins = SYSTEM
    ) -> tuple[nn.Module, Record]:
        """Trains a copy of ``model``, whose initial weights are public.

        Args:
            model: gives a row of scores for each input, from that input alone.
            inputs: one example a row; private, and so is their number.
            labels: their classes; one that names no class contributes nothing.
            coins: where sampling and noise come from; seeded ones in tests only.

        Raises:
            ValueError: for a model or types that do not fit, before any row is read.
        """
        inputs, labels = check_rows(inputs, labels)
        check_model(model, inputs)
        work = copy.deepcopy(model)
        _rehearse(work, inputs, labels, self.clip)
        masks = ModelCoins(coins)
        optimizer = torch.optim.SGD(
            trainable(work).values(), lr=self.learning_rate, momentum=self.momentum
        )
        for lot in self._lots(len(labels), coins):
            self._step(work, optimizer, inputs, labels, lot.to(inputs.device), coins, masks)
        return released(model, vector_of(work)), self._record(work, coins)

    def _lots(self, available: int, coins: Coins) -> Iterator[Tensor]:
        sampler = self.lots.sampler(available, coins)
        return (torch.as_tensor(next(sampler)) for _ in range(self.steps))

    def _step(
        self,
        work: nn.Module,
        optimizer: torch.optim.Optimizer,
        inputs: Tensor,
        labels: Tensor,
        lot: Tensor,
        coins: Coins,
        masks: ModelCoins,
    ) -> None:
        total = vector_of(work).zero_()
        for rows in lot.split(self.batch_size):
            with masks.batch():  # what the model draws is secret, and each row's own
                total += clipped_sum(work, inputs[rows], labels[rows], self.clip)
                refuse_seeds(masks.seeded_since())
        noisy = self._mechanism(total.numel()).perturb(total.cpu().numpy(), coins=coins)
        mean = torch.as_tensor(noisy, device=total.device) / self.lot_size
        weights = trainable(work).values()
        for p, part in zip(weights, mean.split([p.numel() for p in weights]), strict=True):
            p.grad = part.view_as(p).to(p.dtype)
        optimizer.step()

    def _record(self, work: nn.Module, coins: Coins) -> Record:
        facts = {
            "arithmetic": "floating point gradients, exact Laplace noise on a grid",
            "parameters": sum(p.numel() for p in trainable(work).values()),
            "pure_epsilon": self.pure.epsilon,
        }
        fields = asdict(self) | {"neighbours": self.neighbours.value}
        return Record(
            "laplace-sgd", fields, self.event, self.guarantee, coins.private,
            facts=facts, software=versions("torch"),
        )  # fmt: skip


def _rehearse(work: nn.Module, inputs: Tensor, labels: Tensor, clip: float) -> None:
    """One sum over made-up rows: a model that cannot be trained so is an error before the run."""
    before = {name: b.clone() for name, b in work.named_buffers()}
    made_up = inputs.new_zeros((3, *inputs.shape[1:])), labels.new_zeros(3)
    refuse_held(model=work)
    try:
        _, (_, drawn) = drawn_by(lambda: clipped_sum(work, *made_up, clip), 3, 0)
    except RuntimeError as error:
        raise ValueError(
            "model must be one that can be shown one example at a time (no batch normalisation, "
            f"nothing that depends on other examples), got {type(work).__name__}: {error}"
        ) from error
    if any(drawn.values()):
        validation.fail("model", "one that draws with torch's functions alone", "another")
    if any(not torch.equal(b, before[name]) for name, b in work.named_buffers()):
        validation.fail("model", "one whose buffers do not change in training", type(work).__name__)
