"""What ``sfumato attack compare`` found: in a sentence, and as a page. For the curator only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.cli.membership import report_with_claim
from sfumato.core.guarantee import round_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sfumato.attacks.membership.reports import MembershipReport
    from sfumato.cli.populations import Pool
    from sfumato.core.guarantee import Guarantee

__all__ = ["Compared", "compared_page", "summary"]

_PICTURES = 8
_COLUMNS = 4  # of pictures: more would be too small on a phone
_SIZE = 5.8, 6.2  # of curves, in inches, for the same reason
_CLASSES = 20  # the most that a table lists
_SUREST = 20  # of whom the page says how many are members
_RATE = 0.01  # of false alarms, the first at which a report states what is found


@dataclass(frozen=True, eq=False)
class Compared:
    """Attacks on one way of training.

    Attributes:
        name: of the way.
        trained: accuracy on a model's own examples.
        fresh: accuracy on others.
        seconds: of training all models.
        claim: what was promised, if anything.
        reports: by attack.
    """

    name: str
    trained: float
    fresh: float
    seconds: float
    claim: Guarantee | None
    reports: dict[str, MembershipReport]

    @property
    def measurable(self) -> bool:
        """Whether there are enough examples to see one false alarm in a hundred."""
        return all(report.power[0].measurable for report in self.reports.values())

    @property
    def strongest(self) -> str:
        """The attack that finds most members at 1 % false alarms, or has the highest AUC."""

        def strength(name: str) -> tuple[float, float]:
            report = self.reports[name]
            return report.power[0].found if self.measurable else 0.0, report.auc

        return max(self.reports, key=strength)

    @property
    def above(self) -> list[str]:
        """The attacks that exceed the claim, beyond chance, at 95 % for all of them together."""
        claim = self.claim
        if claim is None:
            return []
        return [
            name
            for name, report in self.reports.items()
            if report.exceeds(
                claim.epsilon, claim.delta, 1 - (1 - report.confidence) / len(self.reports)
            )
        ]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        claim = self.claim
        told = [report_with_claim(report, claim) for report in self.reports.values()]
        return {
            "name": self.name, "accuracy_on_own": self.trained, "accuracy_on_fresh": self.fresh,
            "seconds": self.seconds, "claim": None if claim is None else claim.to_dict(),
            "strongest": self.strongest, "above_the_claim": self.above, "attacks": told,
        }  # fmt: skip


# --- in a sentence ------------------------------------------------------------------------------


def summary(plain: Compared, private: Compared) -> str:
    """Success without privacy and with it, and whether anything exceeded the claim."""
    claim, attacks = private.claim, len(plain.reports)
    assert claim is not None
    at = f"epsilon {claim.epsilon:.3g}"
    if plain.measurable and private.measurable:
        success = (
            f"Without privacy the best of {attacks} attacks finds {_found(plain)} of the members "
            f"at 1 % false alarms; at {at} the best finds {_found(private)}. Guessing finds 1 %, "
            f"and {at} allows {_percent(_allowed(claim))} at most."
        )
    else:
        found, left = (_percent(one.reports[one.strongest].auc) for one in (plain, private))
        success = (
            f"Without privacy the best of {attacks} attacks tells a member from another example in "
            f"{found} of cases (AUC); at {at} the best does in {left}. Guessing does in 50 %. "
            "There are too few examples to measure what is found at 1 % false alarms."
        )
    price = (
        f"Models without privacy are right on {_percent(plain.fresh)} of fresh examples, private "
        f"ones on {_percent(private.fresh)}."
    )
    return f"{success} {_verdict(private)} {price}"


def _found(one: Compared) -> str:
    """By the strongest attack, with limits."""
    power = one.reports[one.strongest].power[0]
    low, high = (100 * limit for limit in power.interval)
    return f"{_percent(power.found)} ({low:.1f} to {high:.1f})"


def _allowed(claim: Guarantee) -> float:
    """The most that any attack may find at 1 % false alarms."""
    near = math.exp(min(claim.epsilon, 700.0)) * _RATE + claim.delta
    return min(near, 1 - math.exp(-claim.epsilon) * (1 - claim.delta - _RATE), 1.0)


def _verdict(private: Compared) -> str:
    above = private.above
    if not above:
        return "No attack on the private models exceeded what was promised."
    what = " and ".join(above)
    return (
        f"{what} exceeded what was promised, beyond chance (95 % for all attacks together): either "
        "the guarantee is wrong, or the attack knew more than it should. Please report it."
    )


# --- the page -----------------------------------------------------------------------------------


def compared_page(data: str, pool: Pool, both: Sequence[Compared]) -> str:
    """Everything, as one file of HTML."""
    from sfumato.reports.pages import Text, page

    size, models = len(pool.labels), len(pool.subsets)
    plain, private = both
    parts: list[Any] = [
        Text(summary(plain, private)),
        Text("For the curator only: it was measured with private data.", "note"),
        _at_a_glance(plain, private),
        Text("What was done", "h2"),
        Text(
            f"{models} models of each kind were trained on random halves of {size:,} examples of "
            f"{data}. {pool.shadows} of them are the attacker's own, who knows what they were "
            f"trained on; the other {models - pool.shadows} are attacked: was this example in "
            "the training set, or not?"
        ),
    ]
    for one in both:
        parts += _about(one, pool)
    parts.append(Text("How to read it", "h2"))
    parts += [Text(line, "note") for line in _MEANING]
    return page(f"Who was trained on? {data}, with privacy and without", parts)


def _at_a_glance(plain: Compared, private: Compared) -> Any:
    """Each attack without privacy beside the same with it."""
    from sfumato.reports.pages import Table

    seen = plain.measurable and private.measurable

    def told(one: Compared, name: str) -> str:
        report = one.reports[name]
        return _percent(report.power[0].found) if seen else f"{report.auc:.3f}"

    rows = [[name, told(plain, name), told(private, name)] for name in plain.reports]
    rows.append(["guessing", *(["1.0 %"] if seen else ["0.500"]) * 2])
    caption = "Members found at 1 % false alarms" if seen else "AUC of each attack"
    return Table(("attack", plain.name, private.name), rows, caption)


_HEADINGS = ("attack", "found at 1 %", "at 0.1 %", "AUC", "limits", "precision")
_MEANING = (
    "AUC: the probability that a member scores above another example; 0.5 is guessing. The limits "
    "are those of 95 % confidence.",
    "Found at 1 %: the share of the members who are found where one other example in a hundred is "
    "wrongly called a member; guessing finds 1 %. An attack that gives many examples the same "
    "score, as one that sees labels alone does, may find nobody there. A dash: there are too few "
    "examples to see it.",
    "Precision: the share of members among those called members, where half of all are; guessing "
    "has 0.5. Recall: the share of the members who are called so.",
    "Above the claim: whether some threshold finds more than e^epsilon times the false alarms, "
    "plus delta, beyond chance: at 95 % for all attacks together.",
    "The best attack is chosen after the fact, as the worst case. It is a little stronger by luck.",
)


def _about(one: Compared, pool: Pool) -> list[Any]:
    from sfumato.reports.pages import Picture, Table, Text

    claimed = one.claim is not None
    headings = (*_HEADINGS, "above the claim") if claimed else _HEADINGS
    parts: list[Any] = [
        Text(one.name.capitalize(), "h2"),
        Text(
            f"Right on {_percent(one.trained)} of a model's own examples and on "
            f"{_percent(one.fresh)} of others; {one.seconds:.0f} s to train all models."
        ),
        Table(headings, [_line(one, name) for name in one.reports]),
        Picture(_curves(one), f"Members found against false alarms, {one.name}"),
        *_by_class(one, pool),
    ]
    if pool.data.train.inputs.ndim == 4 and pool.data.shape[2] in (1, 3, 4):
        parts += [
            Text(_surest(one)),
            Picture(_exposed(one, pool), f"The most exposed members, {one.name}"),
        ]
    return parts


def _line(one: Compared, name: str) -> list[str]:
    report = one.reports[name]
    low, high = report.auc_interval
    powers = [_percent(p.found) if p.measurable else "-" for p in report.power[:2]]
    verdict = [] if one.claim is None else ["YES" if name in one.above else "no"]
    return [
        name, *powers, f"{report.auc:.3f}", f"{low:.3f} to {high:.3f}",
        _share(report.calls[0].precision), *verdict,
    ]  # fmt: skip


def _curves(one: Compared) -> Figure:
    from sfumato.reports.membership_figures import membership_roc_figure

    curves = [
        (name, report.roc.false_positive_rates, report.roc.true_positive_rates)
        for name, report in one.reports.items()
    ]
    others = min(report.roc.others for report in one.reports.values())
    figure = membership_roc_figure(
        curves, epsilon=None if one.claim is None else round_up(one.claim.epsilon),
        delta=0.0 if one.claim is None else one.claim.delta, lowest=0.5 / others,
        others=others, title=f"Members found, {one.name}",
    )  # fmt: skip
    figure.set_size_inches(*_SIZE)
    return figure


def _by_class(one: Compared, pool: Pool) -> list[Any]:
    """Precision and recall of the strongest attack, class by class."""
    from sfumato.reports.pages import Table

    calls = [call for call in one.reports[one.strongest].calls if call.label is not None]
    caption = f"By class: {one.strongest}, {one.name}"
    if len(calls) > _CLASSES:
        calls = sorted(calls, key=lambda call: -(call.precision or 0.0))[:_CLASSES]
        caption += f"; the {_CLASSES} of highest precision"
    rows = [
        [
            pool.data.classes[call.label or 0], f"{call.members:,}", f"{call.others:,}",
            _share(call.precision), _share(call.recall),
        ]
        for call in calls
    ]  # fmt: skip
    return [Table(("class", "members", "others", "precision", "recall"), rows, caption)]


def _surest(one: Compared) -> str:
    """How many of the highest scores are members'; of equal ones, others' come first."""
    report = one.reports[one.strongest]
    order = np.lexsort((report.members, -report.scores))[:_SUREST]
    right = int(report.members[order].sum())
    return (
        f"Of the {len(order)} highest scores of the attack {one.strongest}, {right} are members'; "
        f"by chance it would be about {len(order) * report.members.mean():.0f}. Below are the "
        "members with the highest scores."
    )


def _exposed(one: Compared, pool: Pool) -> Figure:
    from sfumato.reports.membership_figures import most_exposed_figure

    report, size = one.reports[one.strongest], len(pool.labels)
    ranked = report.most_exposed(int(report.members.sum()))
    _, first = np.unique(ranked % size, return_index=True)  # once each, at its highest score
    chosen = ranked[np.sort(first)[:_PICTURES]]
    return most_exposed_figure(
        pool.data.train.inputs[chosen % size],
        report.scores[chosen].tolist(),
        [pool.data.classes[label] for label in pool.labels[chosen % size]],
        columns=_COLUMNS,
        title=f"Most exposed, {one.name}",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
