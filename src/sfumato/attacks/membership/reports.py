"""What a membership attack's scores are worth: one report for every attack. The curator's.

An average says little. An attack that is sure about ten people and knows nothing of the others has
an AUC of one half and harms ten people. So the report states, besides the area, what share of the
members is found at 1 %, 0.1 % and 0.01 % of false alarms, each with limits, and says so where too
few non-members were scored to see such a rate at all.

    >>> random = np.random.default_rng(1)
    >>> scores = np.concatenate([random.normal(1, 1, 900), random.normal(0, 1, 600)])
    >>> report = MembershipReport.from_scores(scores, np.arange(1500) < 900, attack="an example")
    >>> print(report)
    an example: AUC 0.754 (0.728 to 0.778 at 95%), 900 members, 600 others
    members found: 7.6% (5.9% to 9.5%) at 1% false alarms; too few non-members to measure 0.1%, ...
    >>> report.most_exposed(3).tolist()
    [860, 273, 183]
    >>> report.exceeds(epsilon=0.5), report.exceeds(epsilon=3.0)
    (True, False)

*Calls.* Precision and recall need a threshold. An attack that has its own, chosen without the
truth, is measured at it on all candidates. For any other the threshold of the best balanced
accuracy is chosen on one half of the candidates and measured on the other half, so that no
candidate judges the threshold it helped to choose. Precision is that at the candidates' own share
of members: among others of whom few are members, it is lower.

References: Carlini et al., "Membership inference attacks from first principles", IEEE S&P 2022,
arXiv:2112.03570, for low rates of false alarms; :mod:`sfumato.attacks.roc` for the intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.roc import Excess, Interval, Power, Roc
from sfumato.core import validation
from sfumato.core.html import CURATOR, facts_table

__all__ = ["LOW_RATES", "Calls", "MembershipReport"]

LOW_RATES = (0.01, 0.001, 0.0001)
"""The rates of false alarms at which a report states what is found."""

_LISTED = 10  # the most exposed members that a record names

_Floats = NDArray[np.float64]
_Marks = NDArray[np.bool_]


@final
@dataclass(frozen=True)
class Calls:
    """Who was called a member at one threshold, in one class or in all. For the curator only.

    Attributes:
        label: the class; None for all classes together.
        members, others: how many of each there were.
        found: members who were called so.
        false_alarms: others who were called members.
    """

    label: int | None
    members: int
    others: int
    found: int
    false_alarms: int

    @property
    def precision(self) -> float | None:
        """The share of members among those called members; None if nobody was."""
        called = self.found + self.false_alarms
        return self.found / called if called else None

    @property
    def recall(self) -> float | None:
        """The share of the members that was found; None if there were none."""
        return self.found / self.members if self.members else None

    @property
    def balanced_accuracy(self) -> float | None:
        """The mean of the shares of members and of others judged rightly; None if one is empty."""
        if not self.members or not self.others:
            return None
        return (self.found / self.members + 1 - self.false_alarms / self.others) / 2

    def __str__(self) -> str:
        where = "all classes" if self.label is None else f"class {self.label}"
        return f"{where}: precision {_shown(self.precision)}, recall {_shown(self.recall)}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "class": self.label,
            "members": self.members,
            "others": self.others,
            "found": self.found,
            "false_alarms": self.false_alarms,
            "precision": self.precision,
            "recall": self.recall,
            "balanced_accuracy": self.balanced_accuracy,
        }


@final
@dataclass(frozen=True, eq=False)
class MembershipReport:
    """How well an attack tells members from others. For the curator only.

    Make one with :meth:`from_scores`.

    Attributes:
        attack: its name.
        scores: one for each candidate; a higher one says "member".
        members: which candidates are members.
        roc: the measured curve.
        confidence: of every interval, each by itself.
        power: what is found at low rates of false alarms.
        threshold: candidates are called members from this score on.
        own_threshold: whether the attack chose it, without the truth; if not, it was chosen on one
            half of the candidates, and ``calls`` are about the other half.
        calls: who was called a member: in all classes, then class by class.
        queries: about how many examples the target was asked; None if unknown.
    """

    attack: str
    scores: _Floats
    members: _Marks
    roc: Roc
    confidence: float
    power: tuple[Power, ...]
    threshold: float
    own_threshold: bool
    calls: tuple[Calls, ...]
    queries: int | None = None

    @classmethod
    def from_scores(
        cls,
        scores: ArrayLike,
        members: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        attack: str = "membership",
        confidence: float = 0.95,
        generator: np.random.Generator | None = None,
        threshold: float | None = None,
        queries: int | None = None,
    ) -> MembershipReport:
        """From a score for each candidate, and the truth.

        Args:
            scores: a higher one says "member"; infinite ones are allowed.
            members: which candidates are members, as True and False or 1 and 0.
            labels: the candidates' classes, for calls class by class.
            attack: its name.
            confidence: of the intervals.
            generator: picks the half on which a threshold is chosen; without one it is every
                second candidate of each side.
            threshold: from which score on the attack itself calls a member; None if it does not.
            queries: about how many examples the target was asked.

        Raises:
            ValueError: for scores that are not numbers, for lengths that differ, and unless there
                is at least one member and one other.
        """
        given, truth = _checked(scores, members)
        classes = _classes(labels, len(given))
        roc = Roc.from_scores(given[truth], given[~truth])
        own = threshold is not None
        measured = np.ones(len(given), dtype=bool) if own else ~_half(truth, generator)
        if threshold is not None and math.isnan(threshold):
            validation.fail("threshold", "a number", threshold)
        if threshold is None:
            threshold = _balanced(given[~measured], truth[~measured], roc)
        called = given >= threshold
        return cls(
            validation.name("attack", attack),
            given,
            truth,
            roc,
            validation.open_probability("confidence", confidence),
            tuple(roc.power_interval(rate, confidence) for rate in LOW_RATES),
            float(threshold),
            own,
            _calls(called[measured], truth[measured], classes, measured),
            queries,
        )

    @property
    def auc(self) -> float:
        """The probability that a member scores above another candidate."""
        return self.roc.auc

    @property
    def auc_interval(self) -> Interval:
        """Limits of the AUC at the report's confidence."""
        return self.roc.auc_interval(self.confidence)

    def most_exposed(self, k: int = _LISTED) -> NDArray[np.int64]:
        """The members with the ``k`` highest scores, as places among the candidates."""
        inside = np.flatnonzero(self.members)
        order = np.argsort(-self.scores[inside], kind="stable")
        return inside[order[: validation.count("k", k)]].astype(np.int64)

    def excess(self, epsilon: float, delta: float = 0.0, confidence: float | None = None) -> Excess:
        """Where the rates speak most against a claim; see :meth:`sfumato.attacks.roc.Roc.excess`.

        A claim of (epsilon, delta) says that TPR is at most e^epsilon FPR + delta at every
        threshold, and 1 - FPR at most e^epsilon (1 - TPR) + delta. The limits hold at all
        thresholds together.
        """
        level = self.confidence if confidence is None else confidence
        return self.roc.excess(epsilon, delta, level)

    def exceeds(self, epsilon: float, delta: float = 0.0, confidence: float | None = None) -> bool:
        """Whether the rates exceed what (epsilon, delta) allows, beyond chance."""
        return self.excess(epsilon, delta, confidence).exceeds

    def __str__(self) -> str:
        sizes = f"{self.roc.members:,} members, {self.roc.others:,} others"
        return f"{self.attack}: AUC {self._shown_auc()}, {sizes}\n{_powers(self.power)}"

    def _shown_auc(self) -> str:
        low, high = self.auc_interval
        return f"{self.auc:.3f} ({low:.3f} to {high:.3f} at {100 * self.confidence:.4g}%)"

    def _repr_html_(self) -> str:
        sizes = f"{self.roc.members:,} members, {self.roc.others:,} others"
        found = _powers(self.power).removeprefix("members found: ")
        rows = [("AUC", self._shown_auc()), ("candidates", sizes), ("members found", found)]
        rows.append(("called members", str(self.calls[0])))
        if self.queries is not None:
            rows.append(("queries", f"{self.queries:,}"))
        return facts_table(f"Who was trained on? {self.attack}", rows, note=CURATOR)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the single scores but for those of the most exposed members."""
        exposed = [(int(place), float(self.scores[place])) for place in self.most_exposed()]
        return {
            "channel": "curator",
            "attack": self.attack,
            "members": self.roc.members,
            "others": self.roc.others,
            "confidence": self.confidence,
            "auc": self.auc,
            "auc_interval": list(self.auc_interval),
            "p_value": self.roc.p_value,
            "advantage": self.roc.advantage,
            "balanced_accuracy": self.roc.balanced_accuracy,
            "power": [power.to_dict() for power in self.power],
            "roc": self.roc.to_dict(),
            "threshold": _plain(self.threshold),
            "threshold_chosen_by": "attack" if self.own_threshold else "half of the candidates",
            "calls": [calls.to_dict() for calls in self.calls],
            "most_exposed": [
                {"candidate": place, "score": _plain(score)} for place, score in exposed
            ],
            "queries": self.queries,
        }


def _checked(scores: ArrayLike, members: ArrayLike) -> tuple[_Floats, _Marks]:
    given, marks = np.asarray(scores, dtype=np.float64), np.asarray(members)
    if given.ndim != 1 or given.shape != marks.shape:
        shapes = given.shape, marks.shape
        validation.fail("scores and members", "two lists of the same length", shapes)
    missing = int(np.isnan(given).sum())
    if missing:
        validation.fail("scores", "numbers, for every candidate", f"{missing} NaN")
    if not np.isin(marks, (0, 1)).all():
        validation.fail("members", "True or False for every candidate", marks.tolist()[:5])
    truth = marks.astype(bool)
    if truth.all() or not truth.any():
        counts = f"{int(truth.sum())} members and {int((~truth).sum())} others"
        validation.fail("members", "True for some candidates and False for others", counts)
    return given, truth


def _classes(labels: ArrayLike | None, candidates: int) -> NDArray[np.int64] | None:
    if labels is None:
        return None
    classes = np.asarray(labels)
    if classes.shape != (candidates,):
        validation.fail("labels", f"one for each of {candidates} scores", classes.shape)
    return classes.astype(np.int64)


def _half(members: _Marks, generator: np.random.Generator | None) -> _Marks:
    """Half of the members and half of the others, rounded down."""
    chosen = np.zeros(len(members), dtype=bool)
    for side in (members, ~members):
        places = np.flatnonzero(side)
        if generator is not None:
            places = generator.permutation(places)
        chosen[places[1::2]] = True
    return chosen


def _balanced(scores: _Floats, members: _Marks, whole: Roc) -> float:
    """The threshold of the best balanced accuracy on some candidates; on all if one side lacks."""
    if members.all() or not members.any():
        return whole.balanced_threshold
    return Roc.from_scores(scores[members], scores[~members]).balanced_threshold


def _calls(
    called: _Marks, members: _Marks, classes: NDArray[np.int64] | None, measured: _Marks
) -> tuple[Calls, ...]:
    def count(label: int | None, rows: _Marks) -> Calls:
        yes, no = rows & members, rows & ~members
        sizes = (yes, no, yes & called, no & called)
        return Calls(label, *(int(part.sum()) for part in sizes))

    total = count(None, np.ones(len(called), dtype=bool))
    if classes is None:
        return (total,)
    kinds = classes[measured]
    return total, *(count(int(label), kinds == label) for label in np.unique(kinds))


def _powers(power: tuple[Power, ...]) -> str:
    seen = [str(one).replace(" of members found", "") for one in power if one.measurable]
    unseen = [f"{100 * one.false_alarms:.4g}%" for one in power if not one.measurable]
    if unseen:
        seen.append(f"too few non-members to measure {', '.join(unseen)}")
    return f"members found: {'; '.join(seen)}"


def _shown(share: float | None) -> str:
    return "undefined" if share is None else f"{share:.1%}"


def _plain(value: float) -> float | None:
    """JSON has no infinite numbers."""
    return float(value) if math.isfinite(value) else None
