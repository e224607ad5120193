"""Tracing: was this person among those whose averages were released?

What the attacker sees: the released averages q of d attributes of n people, the d attributes y of
one target, and something about the population the people come from: its averages p, or one person
z drawn from it. A member pulls every average towards herself by 1/n of her distance from p. No
single attribute shows it, d of them together do.

    >>> population = np.full(1000, 0.5)
    >>> print(predicted_separation(population, people=100))
    member scores 2.5 above others of sd 0.7906, AUC 0.9873
    >>> bool(inner_product(np.ones((1, 1000)), np.full(1000, 0.51), population)[0] > 0)
    True
    >>> math.ceil(attributes_needed(people=5, false_alarms=0.05, variance=2 / 3))
    1349

If the averages are epsilon-DP, then at every threshold the rate of members found is at most e^eps
times the rate of false alarms, whatever the attacker computes from them.

Results of an attack say who was in the data: they are for the curator, never for publication.

References: Homer et al., "Resolving individuals contributing trace amounts of DNA to highly complex
mixtures", PLoS Genetics 4(8) (2008); Sankararaman et al., "Genomic privacy and limits of individual
detection in a pool", Nature Genetics 41 (2009); Dwork, Smith, Steinke, Ullman and Vadhan, "Robust
traceability from trace amounts", FOCS 2015, figure 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.roc import Roc
from sfumato.core import validation

__all__ = [
    "Roc",
    "Separation",
    "Statistic",
    "Tracing",
    "against_reference",
    "attack",
    "attributes_needed",
    "evaluate",
    "homer",
    "inner_product",
    "predicted_separation",
    "reference_test",
    "reference_threshold",
]

LOW_RATES = (0.1, 0.01, 0.001)
"""The false alarm rates at which a tracing result states its power."""


class Statistic(StrEnum):
    """How a target is scored where the population's averages are known."""

    INNER_PRODUCT = "inner-product"
    HOMER = "homer"


def inner_product(
    targets: ArrayLike, released: ArrayLike, population: ArrayLike
) -> NDArray[np.float64]:
    """<y - p, q - p> for each row y of ``targets``.

    With v = p (1 - p): a person who is not in the data has mean 0 and standard deviation
    sqrt(sum v^2 / n), a member has mean sum v / n.
    """
    y, q, p = _rows("targets", targets), _vector("released", released), _vector("p", population)
    _same_length(targets=y.shape[1], released=len(q), population=len(p))
    # By <y, q - p> - <p, q - p>, so that no second table of the targets' size is made.
    return y @ (q - p) - p @ (q - p)


def homer(targets: ArrayLike, released: ArrayLike, population: ArrayLike) -> NDArray[np.float64]:
    """Homer's statistic: sum |y - p| - |y - q| for each row y: is y closer to q than to p?

    For y of zeros and ones and q within [0, 1] it is 2 <y, q - p> plus a constant, and so ranks
    targets exactly as :func:`inner_product` does.
    """
    y, q, p = _rows("targets", targets), _vector("released", released), _vector("p", population)
    _same_length(targets=y.shape[1], released=len(q), population=len(p))
    return np.abs(y - p).sum(axis=1) - np.abs(y - q).sum(axis=1)


def against_reference(
    targets: ArrayLike, released: ArrayLike, reference: ArrayLike
) -> NDArray[np.float64]:
    """<y - z, q> for each row y of ``targets``, attributes coded -1 and +1.

    ``reference`` is one person z of the population who is not in the data, or one for each target.
    A member's mean is d vbar / n, with vbar the average of 1 - mu^2 over attributes of mean mu.
    """
    y, q = _rows("targets", targets), _vector("released", released)
    z = np.asarray(reference, dtype=np.float64)
    _same_length(targets=y.shape[1], released=len(q), reference=z.shape[-1])
    return y @ q - z @ q


def reference_threshold(attributes: int, false_alarms: float) -> float:
    """The score sqrt(8 d ln(1/s)) above which a target is called a member.

    At most a share s of those who are not members come out above it, whatever the averages are, as
    long as they lie in [-1, 1] and the target and the reference come from the same population.
    """
    d = validation.count("attributes", attributes)
    s = validation.open_probability("false_alarms", false_alarms)
    return math.sqrt(8 * d * math.log(1 / s))


def reference_test(
    targets: ArrayLike, released: ArrayLike, reference: ArrayLike, false_alarms: float
) -> NDArray[np.bool_]:
    """Which of the ``targets`` the test with a reference person calls members."""
    scores = against_reference(targets, released, reference)
    return scores > reference_threshold(len(_vector("released", released)), false_alarms)


def attributes_needed(people: int, false_alarms: float, variance: float) -> float:
    """How many attributes find half of the members: d* = 8 n^2 ln(1/s) / vbar^2.

    There the mean score of a member, d vbar / n, equals the threshold sqrt(8 d ln(1/s)).

    Args:
        people: n.
        false_alarms: s.
        variance: vbar, the average variance 1 - mu^2 of an attribute coded -1 and +1.
    """
    n = validation.count("people", people)
    s = validation.open_probability("false_alarms", false_alarms)
    return 8 * n**2 * math.log(1 / s) / validation.positive("variance", variance) ** 2


@dataclass(frozen=True)
class Separation:
    """What theory says of the inner product's scores, before anything is attacked.

    Attributes:
        mean: of a member's score; others have mean 0.
        sd: of the scores of others.
        auc: the probability that a member scores above another person.
    """

    mean: float
    sd: float
    auc: float

    def __str__(self) -> str:
        return f"member scores {self.mean:.4g} above others of sd {self.sd:.4g}, AUC {self.auc:.4g}"


def predicted_separation(population: ArrayLike, people: int) -> Separation:
    """Mean sum v / n, sd sqrt(sum v^2 / n) and AUC Phi(mean / (sqrt(2) sd)), v = p (1 - p).

    Where all attributes vary alike, the AUC is Phi(sqrt(d / 2n)): d attributes of n = d people give
    Phi(0.71) = 0.76. A normal approximation in which members spread as others do.
    """
    n, p = validation.count("people", people), _vector("population", population)
    v = p * (1 - p)
    mean, sd = float(v.sum()) / n, math.sqrt(float(v @ v) / n)
    if sd == 0:
        validation.fail("population", "averages not all 0 or 1, for anyone to differ", p.tolist())
    return Separation(mean, sd, NormalDist().cdf(mean / (math.sqrt(2) * sd)))


@dataclass(frozen=True, eq=False)
class Tracing:
    """How well targets were traced. For the curator only: it was measured with private data.

    Attributes:
        statistic: how targets were scored.
        attributes: d.
        roc: the measured curve.
        power: pairs of a false alarm rate and the rate of members found at it.
    """

    statistic: str
    attributes: int
    roc: Roc
    power: tuple[tuple[float, float], ...]

    @property
    def auc(self) -> float:
        """The probability that a member scores above another person."""
        return self.roc.auc

    def __str__(self) -> str:
        powers = ", ".join(f"{tpr:.1%} at {fpr:g}" for fpr, tpr in self.power)
        return (
            f"{self.attributes:,} averages, {self.statistic}: AUC {self.auc:.3f}; members found at "
            f"a rate of false alarms: {powers}"
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, without the curve's points; ``channel`` says who may read it."""
        return {
            "channel": "curator",
            "statistic": self.statistic,
            "attributes": self.attributes,
            "members": self.roc.members,
            "others": self.roc.others,
            "auc": self.auc,
            "power": [
                {"false_alarms": alarms, "members_found": found} for alarms, found in self.power
            ],
        }


def evaluate(
    member_scores: ArrayLike,
    other_scores: ArrayLike,
    attributes: int,
    statistic: Statistic | str = Statistic.INNER_PRODUCT,
    rates: Sequence[float] = LOW_RATES,
) -> Tracing:
    """What scores of known members and others say of the attack; scores may be of many data sets.

    Only the curator, who knows who is in the data, can do this.
    """
    kind = validation.choice("statistic", statistic, Statistic)
    roc = Roc.from_scores(member_scores, other_scores)
    power = tuple((float(rate), roc.power_at(rate)) for rate in rates)
    return Tracing(kind.value, validation.count("attributes", attributes), roc, power)


def attack(
    members: ArrayLike,
    others: ArrayLike,
    released: ArrayLike,
    population: ArrayLike,
    statistic: Statistic | str = Statistic.INNER_PRODUCT,
) -> Tracing:
    """Scores every row of ``members`` and of ``others`` against the released averages.

    Args:
        members: the attributes of people in the data, one row each.
        others: those of people from the same population who are not in it.
        released: the averages q that the attacker sees, exact or noisy.
        population: the averages p that the attacker knows.
        statistic: how targets are scored.
    """
    kind = validation.choice("statistic", statistic, Statistic)
    score = inner_product if kind is Statistic.INNER_PRODUCT else homer
    ins, outs = score(members, released, population), score(others, released, population)
    return evaluate(ins, outs, len(_vector("released", released)), kind)


def _rows(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if array.ndim != 2 or array.size == 0:
        validation.fail(name, "a table with one row a person", array.shape)
    return array


def _vector(name: str, values: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        validation.fail(name, "a list of one number an attribute", array.shape)
    return array


def _same_length(**lengths: int) -> None:
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"all must have one number for each attribute, got {found}")
