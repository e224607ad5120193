"""A recipe: everything about a private training run, before any data is read.

    >>> from sfumato.learning.features import ScatteringFeatures
    >>> recipe = Recipe(model="linear", features=ScatteringFeatures(), epsilon=3, epochs=40,
    ...                 lot_size=8192, clip=Flat(0.1), rate=Rate(16.0))
    >>> recipe.plan(60_000).guarantee
    Guarantee: epsilon 3, delta 1e-05, add or remove one record
    >>> Recipe.from_dict(recipe.to_dict()) == recipe
    True

All of it is public. What the guarantee depends on goes into a
:class:`~sfumato.learning.dp_sgd.TrainingPlan`, features that are fitted on private rows included;
the rest (model, learning rate, averages) is free to choose, as long as the choice does not come
from the private data: ``origin`` says where it comes from, and the record repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, final

from sfumato.core import validation
from sfumato.core.events import Event
from sfumato.core.neighbours import Neighbours
from sfumato.learning.dp_sgd.clipping import Clipping, Flat, PerLayer
from sfumato.learning.dp_sgd.correlated.strategies import Correlation, IndependentNoise
from sfumato.learning.dp_sgd.lots import FixedSizeLots, Lots, PoissonLots, ShuffledLots
from sfumato.learning.dp_sgd.plan import TrainingPlan
from sfumato.learning.dp_sgd.schedules import NoiseSchedule
from sfumato.learning.dp_sgd.streamed_lots import CyclicPoissonLots, StreamedLots
from sfumato.learning.features import FeatureMap, Plain
from sfumato.learning.recipes.augments import augment_by_name
from sfumato.learning.recipes.canaries import Canaries, CanaryKind
from sfumato.learning.recipes.rates import OPTIMIZERS, Rate
from sfumato.learning.recipes.start import PublicStart

__all__ = ["LOTS", "NOT_STATED", "PRECISIONS", "Recipe"]

_PLAIN, _CLIP, _CONSTANT = Plain(), Flat(1.0), NoiseSchedule.constant()
_INDEPENDENT = IndependentNoise()

LOTS = ("poisson", "fixed-size", "shuffled", "streamed", "cyclic-poisson")
PRECISIONS = ("full", "bfloat16")
NOT_STATED = (
    "not stated: if the hyper-parameters were chosen on this data, the guarantee does not cover "
    "that choice"
)


@final
@dataclass(frozen=True)
class Recipe:
    """How to train a model privately with DP-SGD.

    Give two of ``epsilon``, ``noise_multiplier`` and ``epochs`` (or ``steps``).

    Attributes:
        model: a name, or "package.module:function".
        model_options: of that model.
        features: what stands before it; may cost a part of epsilon.
        epsilon, delta, noise_multiplier, epochs, steps: the budget; see ``TrainingPlan``.
        lot_size: the expected number of units in a lot.
        lots: how they are drawn: "poisson", "fixed-size", "shuffled", "streamed", or
            "cyclic-poisson" with a group for each band of the noise.
        max_lot: cut larger Poisson lots to this, by coins; costs some of delta under zero-out and
            replace-one, and counts as half the noise under add/remove.
        clip: how one unit's gradient is bounded.
        noise_schedule: how noise is spread over the run.
        correlation: how the noise of different steps is correlated.
        neighbours: the relation of the guarantee.
        unit: whom it protects.
        rows_per_owner: with owners, the most rows of one in a lot.
        optimizer: "sgd" or "adam".
        rate: the learning rate.
        head_rate: of what ``start`` does not hold, as a multiple of ``rate``. Noise moves all
            weights alike: those that have learnt something lose by it, new ones have nothing to
            lose. Without a start all weights learn by ``rate``.
        momentum, weight_decay: of the optimizer.
        ema_decay: average weights by this; None for none.
        augment: a random change of images, by name; None for none.
        augmentations: so many changed copies of each record, averaged before clipping.
        batch_size: the most rows in memory at a time.
        seed: of the initial weights, which are public; None draws one.
        start: public weights to begin with instead; None for none.
        precision: of the model's arithmetic, "full" or "bfloat16"; norms and sums stay in float32.
        canaries: to plant for an audit; None for none.
        origin: where the hyper-parameters come from.
    """

    model: str
    lot_size: int
    rate: Rate
    features: FeatureMap = _PLAIN
    model_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    epsilon: float | None = None
    delta: float = 1e-5
    noise_multiplier: float | None = None
    epochs: float | None = None
    steps: int | None = None
    lots: str = "poisson"
    max_lot: int | None = None
    clip: Clipping = _CLIP
    noise_schedule: NoiseSchedule = _CONSTANT
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    rows_per_owner: int = 1
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    ema_decay: float | None = None
    augment: str | None = None
    augmentations: int = 1
    batch_size: int | None = None
    seed: int | None = None
    start: PublicStart | None = None
    precision: str = "full"
    canaries: Canaries | None = None
    origin: str = NOT_STATED
    correlation: Correlation = _INDEPENDENT
    head_rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        object.__setattr__(self, "model_options", dict(self.model_options))
        validation.name("model", self.model)
        validation.count("lot_size", self.lot_size)
        validation.positive("head_rate", self.head_rate)
        validation.name("origin", self.origin)
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            validation.fail(
                "seed", "a whole number of 64 bits (--seed 7), or left out for one of its own",
                self.seed,
            )  # fmt: skip
        if self.lots not in LOTS:
            validation.fail("lots", f"one of {', '.join(LOTS)}", self.lots)
        if self.max_lot is not None and self.lots != "poisson":
            validation.fail("max_lot", "left out for lots of one size", self.max_lot)
        if self.lots == "cyclic-poisson" and not self.correlation.reach < float("inf"):
            raise ValueError(
                f"correlation must have bands for cyclic-poisson lots, got "
                f"{self.correlation.kind!r}: use BandedNoise, or streamed lots"
            )
        if self.optimizer not in OPTIMIZERS:
            validation.fail("optimizer", f"one of {', '.join(OPTIMIZERS)}", self.optimizer)
        if self.precision not in PRECISIONS:
            validation.fail("precision", f"one of {', '.join(PRECISIONS)}", self.precision)
        if self.augment is not None:
            augment_by_name(self.augment)
            if not isinstance(self.features, Plain):
                raise ValueError(
                    "augment changes images, but features are computed once: leave out one of them"
                )
        if self.ema_decay is not None:
            validation.open_probability("ema_decay", self.ema_decay)
        self._check_canaries()

    def _check_canaries(self) -> None:
        if self.canaries is None or self.canaries.kind is not CanaryKind.GRADIENT:
            return
        if isinstance(self.clip, PerLayer):
            raise ValueError(
                "gradient canaries have one long coordinate, which clipping by layers cuts to one "
                "layer's part: clip as a whole (flat), or plant mislabelled canaries"
            )

    # --- privacy --------------------------------------------------------------------------------

    def plan(self, public_size: int) -> TrainingPlan:
        """Everything that the guarantee depends on, for so many units, as declared."""
        size = validation.count("public_size", public_size)
        if self.lot_size > size:
            validation.fail("lot_size", f"at most the declared size ({size})", self.lot_size)
        if self.delta >= 1 / size and size > 1:
            validation.fail(
                "delta", f"well below 1 over the declared size ({1 / size:.2g})", self.delta
            )
        return TrainingPlan.make(
            self._lots(size),
            self.clip,
            delta=self.delta,
            epsilon=self.epsilon,
            noise_multiplier=self.noise_multiplier,
            steps=self.steps,
            epochs=self.epochs,
            neighbours=self.neighbours,
            unit=self.unit,
            schedule=self.noise_schedule,
            before=self.features.event(self.neighbours, self.unit),
            correlation=self.correlation,
        )

    def event(self, public_size: int) -> Event:
        """Everything that a run releases."""
        return self.plan(public_size).event

    def _lots(self, size: int) -> Lots:
        if self.lots == "fixed-size":
            return FixedSizeLots(self.lot_size, size)
        if self.lots == "shuffled":
            return ShuffledLots(self.lot_size, size)
        if self.lots == "streamed":
            return StreamedLots(self.lot_size, size)
        if self.lots == "cyclic-poisson":
            return CyclicPoissonLots(self.lot_size, size, int(self.correlation.reach))
        return PoissonLots(self.lot_size, size, self.max_lot)

    # --- JSON -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        del values["correlation"]
        if self.correlation != _INDEPENDENT:
            values["correlation"] = self.correlation.to_dict()
        if self.head_rate == 1.0:  # recipes of before have no such number, and are the same
            del values["head_rate"]
        return values | {
            "features": self.features.to_dict(),
            "model_options": dict(self.model_options),
            "clip": self.clip.to_dict(),
            "rate": self.rate.to_dict(),
            "noise_schedule": self.noise_schedule.to_dict(),
            "neighbours": self.neighbours.value,
            "canaries": None if self.canaries is None else self.canaries.to_dict(),
            "start": None if self.start is None else self.start.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The inverse of :meth:`to_dict`."""
        parts: dict[str, Any] = {
            "features": FeatureMap.from_dict(data["features"]),
            "clip": Clipping.from_dict(data["clip"]),
            "rate": Rate.from_dict(data["rate"]),
            "noise_schedule": NoiseSchedule.from_dict(data["noise_schedule"]),
        }
        if data.get("correlation") is not None:
            parts["correlation"] = Correlation.from_dict(data["correlation"])
        if data.get("canaries") is not None:
            parts["canaries"] = Canaries.from_dict(data["canaries"])
        if data.get("start") is not None:
            parts["start"] = PublicStart.from_dict(data["start"])
        return cls(**(dict(data) | parts))

    def changed(self, **values: Any) -> Recipe:
        """The same recipe with other values; those that are None stay as they are."""
        return replace(self, **{name: v for name, v in values.items() if v is not None})
