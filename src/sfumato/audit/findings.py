"""What an audit found: a lower bound on epsilon, how sure it is, and what was claimed.

An accountant proves "at most epsilon"; an audit shows "at least epsilon". Between the two lies what
nobody knows. A lower bound above the claim is not a statistic but a bug report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee, round_down, round_up
from sfumato.core.html import CURATOR, facts_table
from sfumato.core.records import versions

__all__ = ["GAUSSIAN_NOISE", "Finding", "Verdict", "require_gaussian", "stated_delta"]

GAUSSIAN_NOISE = "the noise is Gaussian"
"""What a bound by way of mu takes for granted."""


class Verdict(StrEnum):
    """What follows for the claim."""

    CONSISTENT = "consistent"
    REFUTED = "refuted"
    NO_CLAIM = "no claim"


@dataclass(frozen=True)
class Finding:
    """At least this epsilon, at this delta, with this confidence.

    Attributes:
        epsilon: the lower bound. With probability ``confidence`` over everything that was drawn,
            searches included, no smaller epsilon holds at ``delta``.
        delta: at which.
        confidence: 1 for a computation without sampling.
        method: how it was found.
        claim: what was promised; its delta is ``delta``.
        assumption: what the bound takes for granted, if anything: "the noise is Gaussian".
        most: the bound that perfect scores would have had, in as many games or canaries; None where
            that is not known.
        remark: what is wrong with the scores, if anything.
        facts: what a reader needs to repeat or to doubt it: sizes, counts, the event.
        private: whether ``facts`` and the bound itself come from private rows; then they are the
            curator's alone.

    >>> from sfumato.core.neighbours import Neighbours
    >>> claim = Guarantee(1.0, 0.0, Neighbours.ADD_REMOVE)
    >>> print(Finding(1.99, 0.0, 1.0, "exact", claim))
    at least epsilon 1.99 at delta 0 (exact): REFUTES the claimed epsilon 1
    """

    epsilon: float
    delta: float
    confidence: float
    method: str
    claim: Guarantee | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    private: bool = False
    assumption: str = ""
    most: float | None = None
    remark: str = ""

    def __post_init__(self) -> None:
        if self.epsilon != math.inf:
            validation.non_negative("epsilon", self.epsilon)
        validation.delta("delta", self.delta)
        if self.confidence != 1:
            validation.open_probability("confidence", self.confidence)
        if self.claim is not None and not self.claim.delta <= self.delta:
            validation.fail("delta", f"at least the claim's {self.claim.delta}", self.delta)

    @property
    def verdict(self) -> Verdict:
        """Refuted if the bound is above the claim."""
        if self.claim is None:
            return Verdict.NO_CLAIM
        return Verdict.REFUTED if self.epsilon > self.claim.epsilon else Verdict.CONSISTENT

    @property
    def refuted(self) -> bool:
        """Whether the claim is."""
        return self.verdict is Verdict.REFUTED

    @property
    def bound(self) -> str:
        """What was found, in words; rounded down."""
        supposed = f", if {self.assumption}" if self.assumption else ""
        return f"epsilon {round_down(self.epsilon):.10g} at delta {self.delta:.4g}{supposed}"

    @property
    def reach(self) -> str:
        """What could have been found at most, and what is wrong with the scores; may be empty."""
        said = [self.remark] if self.remark else []
        if self.most is not None:
            refutable = self.claim is None or self.most > self.claim.epsilon
            few = "" if refutable else ", so that no scores whatever could have refuted the claim"
            said.append(f"at most epsilon {round_down(self.most):.4g} could have been shown{few}")
        return "; ".join(said)

    def __str__(self) -> str:
        sure = self.method if self.confidence == 1 else f"{self.confidence:.4g} confidence"
        found = f"at least {self.bound} ({sure})"
        reach = f"; {self.reach}" if self.reach else ""
        if self.claim is None:
            return found + (f"; {self.remark}" if self.remark else "")
        claimed = f"the claimed epsilon {round_up(self.claim.epsilon):.10g}"
        if not self.refuted:
            return f"{found}: consistent with {claimed}{reach}"
        event = self.facts.get("event")  # what a refutation rests on, for whoever looks for the bug
        return f"{found}: REFUTES {claimed}" + (f", by the event '{event}'" if event else "")

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            ("found", f"at least {self.bound}"),
            ("confidence", f"{self.confidence:.4g}"),
        ]
        stamp = ""
        if self.claim is not None:
            claimed = f"the claimed epsilon {round_up(self.claim.epsilon):.10g}"
            rows += [("claim", str(self.claim)), ("verdict", self.verdict.value)]
            stamp = f"REFUTES {claimed}" if self.refuted else ""
        if self.reach and not self.refuted:
            rows.append(("what could be seen", self.reach))
        rows += self.facts.items()
        note = CURATOR if self.private else ""
        return facts_table(f"Audit: {self.method}", rows, stamp=stamp, note=note)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: the audit's record."""
        return {
            "audit": self.method,
            "epsilon_at_least": _number(self.epsilon),
            "delta": self.delta,
            "confidence": self.confidence,
            "claim": None if self.claim is None else self.claim.to_dict(),
            "verdict": self.verdict.value,
            "assumption": self.assumption,
            "most_that_could_be_shown": _number(self.most),
            "remark": self.remark,
            "facts": dict(self.facts),
            "software": versions(),
        }


def _number(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value


def stated_delta(delta: float | None, claim: Guarantee | None) -> float:
    """The delta of an audit: as given, or the claim's."""
    if delta is not None:
        return validation.delta("delta", delta)
    if claim is None:
        raise ValueError("delta must be given where there is no claim")
    return claim.delta


def require_gaussian(delta: float, remedy: str) -> None:
    """Refuses to bound epsilon at delta 0 by way of mu: Gaussian noise has none there.

    A claim at delta 0 is of noise that is not Gaussian, whose curve a bound on mu says nothing of.

    Raises:
        ValueError: if delta is 0.
    """
    if delta == 0:
        raise ValueError(
            "delta must be above 0 for an analysis that takes noise to be Gaussian, got 0: such "
            f"noise has no epsilon there, and a claim at delta 0 is of another; {remedy}"
        )
