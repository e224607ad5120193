"""The plan of a DP-SGD run: one frozen object from which sampler, noise and guarantee all come.

    >>> from sfumato.learning.dp_sgd.clipping import Flat
    >>> from sfumato.learning.dp_sgd.lots import PoissonLots
    >>> lots = PoissonLots(size=600, population=60_000)
    >>> plan = TrainingPlan.make(lots, Flat(1.0), delta=1e-5, epsilon=2, epochs=60)
    >>> round(plan.noise_multiplier, 2), plan.steps
    (1.71, 6000)
    >>> plan.guarantee
    Guarantee: epsilon 2, delta 1e-05, add or remove one record

A step releases the clipped sum of one lot with Gaussian noise of ``noise_multiplier`` (times the
schedule's factor) over one unit's whole contribution, divided by the *declared* lot size; see
:mod:`.clipping` for the sensitivity, :mod:`.lots` for the sampling and its cost.

Units. What is sampled and clipped is called ``unit``: a record, or a user with all their data.
Where records are sampled and clipped but a person holds up to k of them, ``records_per_unit=k`` and
``group_unit="person"`` state the guarantee for people.

Reference: Abadi et al., "Deep learning with differential privacy", arXiv:1607.00133.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, final

from sfumato.accounting import Accountant, account, epsilon_curve
from sfumato.core import validation
from sfumato.core.events import ComposedEvent, Event, GroupedEvent, compose, event_from_dict
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.learning.dp_sgd.clipping import Clipping, Flat
from sfumato.learning.dp_sgd.correlated.costs import check_correlated, gain
from sfumato.learning.dp_sgd.correlated.strategies import Correlation, IndependentNoise
from sfumato.learning.dp_sgd.draws import Positions
from sfumato.learning.dp_sgd.lots import Lots
from sfumato.learning.dp_sgd.meeting import LEAST_NOISE, calibrated, least_noise, lengthened
from sfumato.learning.dp_sgd.schedules import NoiseSchedule

__all__ = ["LEAST_NOISE", "TrainingPlan"]

_CONSTANT, _INDEPENDENT = NoiseSchedule.constant(), IndependentNoise()


@final
@dataclass(frozen=True)
class TrainingPlan:
    """Everything about a run that its privacy depends on. All of it is public.

    Attributes:
        lots: how units are sampled.
        clipping: how one unit's contribution is bounded.
        noise_multiplier: z: standard deviation over one unit's whole contribution, for everything
            that a step releases together.
        steps: how many lots, empty ones included.
        delta: at which epsilon is stated.
        neighbours: the relation of the guarantee.
        unit: what is sampled and clipped.
        records_per_unit: how many of ``unit`` one ``group_unit`` holds at most.
        group_unit: the larger unit that the guarantee is for, if there is one.
        schedule: factors on the noise multiplier over time.
        accountant: "pld", exact, for a run that is fixed as a whole; "rdp" for one that a ledger
            charges step by step.
        claimed_epsilon: for lots that cost some of delta (those with a ``max_size``, but for
            add/remove): up to which epsilon that is to hold (a target's, or a ledger's budget's);
            by default the run's own.
        before: what is released from the same data before the first step and for it, such as a
            private choice of features; counted as a part of the run.
        correlation: how the noise of different steps is correlated; z is then over what one
            participation of one unit moves the whole release by. Coefficients that were left open
            are filled in for these steps.
    """

    lots: Lots
    clipping: Clipping
    noise_multiplier: float
    steps: int
    delta: float
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    records_per_unit: int = 1
    group_unit: str | None = None
    schedule: NoiseSchedule = _CONSTANT
    accountant: Accountant = Accountant.PLD
    claimed_epsilon: float | None = None
    before: Event | None = None
    correlation: Correlation = _INDEPENDENT

    def __post_init__(self) -> None:
        steps = validation.count("steps", self.steps)
        values: dict[str, Any] = {
            "noise_multiplier": _noise(self.noise_multiplier),
            "steps": steps,
            "delta": validation.open_probability("delta", self.delta),
            "neighbours": Neighbours.parse(self.neighbours),
            "unit": validation.name("unit", self.unit),
            "records_per_unit": validation.count("records_per_unit", self.records_per_unit),
            "accountant": validation.choice("accountant", self.accountant, Accountant),
            "clipping": self.clipping.resolved(self.lots.expected_size),
            "correlation": self.correlation.resolved(steps),
        }
        if self.claimed_epsilon is not None:
            claimed = validation.positive("claimed_epsilon", self.claimed_epsilon)
            values["claimed_epsilon"] = claimed
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        if self.accountant not in (Accountant.PLD, Accountant.RDP):
            validation.fail("accountant", "'pld' or 'rdp'", self.accountant.value)
        if self.group_unit is not None:
            validation.name("group_unit", self.group_unit)
        if self.records_per_unit > 1 and self.group_unit in (None, self.unit):
            raise ValueError(
                f"group_unit must name whoever holds up to {self.records_per_unit} of one "
                f"{self.unit}, got {self.group_unit!r}: 'person', say"
            )
        if self.before is not None and self.before.unit_name != self.unit:
            raise ValueError(
                f"before must be a release about one {self.unit}, as the steps are, got one about "
                f"one {self.before.unit_name}"
            )
        self.lots.check(self.neighbours, self.records_per_unit)
        check_correlated(self.correlation, self.lots, self.clipping, self.schedule, self.steps)
        _noise(self.noise_multiplier * self.schedule.least)
        # Raises where a noisy count leaves nothing for the gradient's noise.
        self.clipping.noise_scales(self.noise_multiplier * self.schedule.greatest, (1.0,))

    def _check_before(self, epsilon: float) -> None:
        if self._prelude is not None and (spent := self._account(self._prelude).epsilon) >= epsilon:
            raise ValueError(
                f"epsilon must be above what the features cost before the first step, {spent:.4g}, "
                f"got {epsilon!r}: ask for more, or add more noise to the features"
            )

    # --- making one -----------------------------------------------------------------------------

    @classmethod
    def make(
        cls,
        lots: Lots,
        clipping: Clipping,
        *,
        delta: float,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        neighbours: Neighbours | str = Neighbours.ADD_REMOVE,
        unit: str = "record",
        records_per_unit: int = 1,
        group_unit: str | None = None,
        schedule: NoiseSchedule = _CONSTANT,
        accountant: Accountant | str = Accountant.PLD,
        claimed_epsilon: float | None = None,
        before: Event | None = None,
        correlation: Correlation = _INDEPENDENT,
    ) -> TrainingPlan:
        """A plan from two of epsilon, noise multiplier and length; the third is computed.

        The length is given in ``steps`` (lots) or in ``epochs`` (passes over the data). A plan made
        for an ``epsilon`` costs at most that, extra deltas included, and claims it. Everything else
        is as in the class.

        Raises:
            ValueError: unless exactly two are given, or if no plan meets the target.
        """
        length = _length(lots, steps, epochs)
        _require_two(epsilon, noise_multiplier, length)
        target = None if epsilon is None else validation.positive("epsilon", epsilon)
        draft = cls(
            lots=lots,
            clipping=Flat() if noise_multiplier is None else clipping,
            noise_multiplier=least_noise(schedule)
            if noise_multiplier is None
            else noise_multiplier,
            steps=length or 1,
            delta=delta,
            neighbours=Neighbours.parse(neighbours),
            unit=unit,
            records_per_unit=records_per_unit,
            group_unit=group_unit,
            schedule=schedule,
            accountant=validation.choice("accountant", accountant, Accountant),
            claimed_epsilon=claimed_epsilon,
            before=before,
            correlation=correlation,
        )
        if target is None:
            if math.isinf(draft.guarantee.epsilon):
                raise ValueError(
                    f"noise_multiplier must be larger, got {noise_multiplier!r}: {draft.steps} "
                    "steps with it have no finite epsilon"
                )
            return draft
        if draft.costs_delta and claimed_epsilon is None:
            draft = replace(draft, claimed_epsilon=target)
        draft._check_before(target)
        if length:
            return calibrated(draft, clipping, target)
        return lengthened(draft, correlation, target)

    # --- what it costs --------------------------------------------------------------------------

    @property
    def protected_unit(self) -> str:
        """Whose data the guarantee is about."""
        return self.group_unit or self.unit

    @property
    def currency(self) -> Literal["whole", "steps"]:
        """How a ledger is to charge it: as one declared plan, or step by step in RDP."""
        return "whole" if self.accountant is Accountant.PLD else "steps"

    @property
    def costs_delta(self) -> bool:
        """Whether its lots cost some of delta, because they are cut."""
        return self.lots.overflow(1, self.neighbours) > 0

    def sampler(self, available: int, coins: Coins = SYSTEM, first: int = 0) -> Iterator[Positions]:
        """The lots of a table of ``available`` units from step ``first`` on.

        Raises:
            ValueError: if the guarantee is not for tables of that size, where sizes are public.
        """
        self.lots.check_table(available, self.neighbours)
        return self.lots.sampler(available, coins, first)

    @property
    def event(self) -> Event:
        """Everything that the run releases."""
        return self.event_of(self.steps)

    def event_of(self, steps: int) -> Event:
        """What the first ``steps`` steps release, and what came before them."""
        return self._with_before(self.event_between(0, steps))

    def _with_before(self, event: Event) -> Event:
        prelude = self._prelude
        if prelude is None:
            return event
        return prelude if event == ComposedEvent() else ComposedEvent((prelude, event))

    @property
    def _prelude(self) -> Event | None:
        """What is released before the steps, for whom the guarantee is about."""
        if self.before is None or self.group_unit is None:
            return self.before
        return GroupedEvent(self.before, self.records_per_unit, self.group_unit)

    def event_between(self, first: int, last: int) -> Event:
        """What the steps from ``first`` until before ``last`` release.

        Of shuffled lots every epoch that is touched counts as a whole, so parts that meet within an
        epoch cost more than the whole. With correlated noise all steps before ``last`` count: what
        they released tells of later noise.
        """
        return self._event(first, last, self._largest_epsilon)

    def _event(self, first: int, last: int, largest_epsilon: float | None) -> Event:
        noise = self.schedule.multipliers(self.noise_multiplier, self.steps, first, last)
        if not noise:
            return ComposedEvent()
        if not self.correlation.independent:
            kept = gain(self.correlation, self.lots, self.steps, last)
            first, noise = 0, [(kept * noise[0][0], last)]
        return self.lots.events(
            noise,
            self.neighbours,
            self.unit,
            first=first,
            records_per_unit=self.records_per_unit,
            group_unit=self.group_unit,
            delta=self.delta,
            largest_epsilon=largest_epsilon,
        )

    def _account(self, event: Event) -> Guarantee:
        return account(event, self.delta, neighbours=self.neighbours, accountant=self.accountant)

    @cached_property
    def _largest_epsilon(self) -> float | None:
        """For which statements the extra delta of cut lots holds: None where none is cut.

        The run's own epsilon, if none was claimed: an E at which the event computed for E costs at
        most E. It grows with E, so the search goes up until it holds or delta is used up.
        """
        if self.claimed_epsilon is not None or not self.costs_delta:
            return self.claimed_epsilon
        uncut = replace(self, lots=replace(self.lots, max_size=None))  # type: ignore[type-var]
        largest = 1.001 * uncut.guarantee.epsilon + 1e-3
        while (found := self._account(self._whole(largest)).epsilon) > largest:
            largest = 1.01 * found
        return largest

    def _whole(self, largest_epsilon: float) -> Event:
        return self._with_before(self._event(0, self.steps, largest_epsilon))

    @cached_property
    def guarantee(self) -> Guarantee:
        """What the whole run promises.

        Raises:
            ValueError: if it is beyond a claimed epsilon, for which the extra delta of cut lots was
                computed.
        """
        found = self._account(self.event)
        claimed = self._largest_epsilon
        if claimed is not None and self.costs_delta and found.epsilon > claimed:
            raise ValueError(
                f"claimed_epsilon must be at least the run's epsilon, {found.epsilon:.4g}, got "
                f"{claimed!r}: claim more, or add noise"
            )
        return found

    def epsilon_after(self, steps: Sequence[int]) -> list[float]:
        """Epsilon at the plan's delta after each of so many steps, 0 allowed; never too small."""
        counts = [validation.at_least("steps", n, 0) for n in steps]
        if max(counts, default=0) > self.steps:
            validation.fail("steps", f"at most the plan's {self.steps}", max(counts))
        even = self.schedule.is_constant and not self.lots.whole_epochs
        apart = self.correlation.independent or self.correlation.reach <= self.lots.cycle
        if self.accountant is Accountant.PLD and even and apart and len(counts) > 1:
            return self._curve(counts)
        return [self._account(self.event_of(n)).epsilon for n in counts]

    def _curve(self, counts: list[int]) -> list[float]:
        """All points at once; the extra delta of cut lots is the whole run's from the start."""
        step, whole, before = self.event_between(0, 1), self.event_between(0, self.steps), []
        if self.costs_delta:
            assert isinstance(step, ComposedEvent)
            assert isinstance(whole, ComposedEvent)
            step, before = step.events[0], [whole.events[1]]
        before += [] if self._prelude is None else [self._prelude]
        turns = [-(-n // self.lots.cycle) for n in counts]
        found = epsilon_curve(
            step, turns, self.delta, self.neighbours, compose(*before) if before else None
        )
        pairs = zip(counts, found.tolist(), strict=True)
        return [epsilon if n or self.before else 0.0 for n, epsilon in pairs]

    def noise_at(self, step: int) -> float:
        """The noise multiplier at ``step``; the first is 0."""
        return self.noise_multiplier * self.schedule.at(step, self.steps)

    # --- JSON -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        if self.before is None:
            del values["before"]
        else:
            values["before"] = self.before.to_dict()
        if self.correlation == _INDEPENDENT:
            del values["correlation"]
        else:
            values["correlation"] = self.correlation.to_dict()
        return values | {
            "lots": self.lots.to_dict(),
            "clipping": self.clipping.to_dict(),
            "schedule": self.schedule.to_dict(),
            "neighbours": self.neighbours.value,
            "accountant": self.accountant.value,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TrainingPlan:
        """The inverse of :meth:`to_dict`."""
        parts: dict[str, Any] = {
            "lots": Lots.from_dict(data["lots"]),
            "clipping": Clipping.from_dict(data["clipping"]),
            "schedule": NoiseSchedule.from_dict(data["schedule"]),
        }
        if data.get("before") is not None:
            parts["before"] = event_from_dict(data["before"])
        if data.get("correlation") is not None:
            parts["correlation"] = Correlation.from_dict(data["correlation"])
        return cls(**(dict(data) | parts))

    @property
    def digest(self) -> str:
        """A hash of the whole plan: a resumed run must have the same."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _noise(value: object) -> float:
    noise = validation.positive("noise_multiplier", value)
    if noise < LEAST_NOISE:
        validation.fail(
            "noise_multiplier",
            f"at least {LEAST_NOISE:g} at every step (less hides nothing)",
            value,
        )
    return noise


def _length(lots: Lots, steps: int | None, epochs: float | None) -> int | None:
    if steps is not None and epochs is not None:
        raise ValueError(f"give steps or epochs, not both, got {steps!r} and {epochs!r}")
    if epochs is not None:
        return lots.steps_for(epochs)
    return None if steps is None else validation.count("steps", steps)


def _require_two(epsilon: float | None, noise: float | None, steps: int | None) -> None:
    named = {"epsilon": epsilon, "noise_multiplier": noise, "steps (or epochs)": steps}
    given = [f"{name} {value!r}" for name, value in named.items() if value is not None]
    if len(given) != 2:
        raise ValueError(
            "give exactly two of epsilon, noise_multiplier and steps (or epochs), from which the "
            f"third is computed; got {', '.join(given) or 'none'}"
        )
