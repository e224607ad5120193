"""Shadow models: learn from models of one's own how a model answers about what it was trained on.

What the attacker sees: a probability for every class (a :class:`Target` of scores), and data like
the target's, real or made up (see :mod:`sfumato.attacks.membership.synthesis`).

The idea: train shadow models in the way the target was trained, each on half of the data at hand.
Of each shadow the attacker knows which examples it saw. One attack model a class then learns to
tell the shadows' answers about examples they saw from their answers about others,

    (probabilities, label) -> Pr[seen],

and is applied to the target's answers. Attack models learn from shadows alone. Nothing about who
is a member of the target enters before the scores are compared with the truth.

    >>> generator = np.random.default_rng(1)
    >>> inside, labels = generator.random(4000) < 0.5, generator.integers(0, 2, 4000)
    >>> own = np.where(inside, 0.97, 0.8) + generator.normal(0, 0.05, 4000).clip(-0.1, 0.02)
    >>> answers = np.where(labels[:, None] == [0, 1], own[:, None], 1 - own[:, None])
    >>> attack = ShadowAttack.fit(ShadowOutputs(answers, labels, inside), generator=generator)
    >>> attack.scores([[0.98, 0.02], [0.78, 0.22]], [0, 0]).round(1).tolist()
    [1.0, 0.0]

Shadows should be asked through the same defences as the target (rounding, top classes only), or
their answers look unlike the target's.

What an attack finds is for the curator, never for publication.

References: Shokri, Stronati, Song and Shmatikov, "Membership inference attacks against machine
learning models", IEEE S&P 2017, arXiv:1610.05820; for sorted answers Salem, Zhang, Humbert,
Berrang, Fritz and Backes, "ML-Leaks", NDSS 2019, arXiv:1806.01246.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership.reports import MembershipReport
from sfumato.attacks.membership.shadow_outputs import (
    ShadowOutputs,
    answer_rows,
    labels_within,
    train_shadows,
)
from sfumato.attacks.membership.small_network import SmallNetwork
from sfumato.attacks.targets import Target, View
from sfumato.core import validation

__all__ = [
    "Arrangement",
    "ShadowAttack",
    "ShadowOutputs",
    "shadow_attack",
    "train_shadows",
]

MakeClassifier = Callable[[int], Any]
"""From a whole number (for its random choices) to a classifier with fit and predict_proba."""

_LEAST = 1e-12  # a probability below this is read as this: logarithms stay finite


class Arrangement(StrEnum):
    """In which order the probabilities of an answer reach an attack model."""

    BY_CLASS = "by-class"
    OWN_FIRST = "own-first"
    SORTED = "sorted"


@final
@dataclass(frozen=True, eq=False)
class ShadowAttack:
    """Attack models fitted to shadows. Make one with :meth:`fit`.

    Attributes:
        arrangement: the order in which the attack models of classes read an answer.
        classes: how many classes an answer has.
        pooled_classes: classes with too few shadow answers, which the pooled model judges.
    """

    arrangement: Arrangement
    classes: int
    pooled_classes: tuple[int, ...]
    _models: dict[int, _AttackModel]
    _pooled: _AttackModel | None

    @classmethod
    def fit(
        cls,
        outputs: ShadowOutputs,
        *,
        generator: np.random.Generator,
        arrangement: Arrangement | str = Arrangement.BY_CLASS,
        classifier: MakeClassifier = SmallNetwork,
        fewest: int = 20,
    ) -> ShadowAttack:
        """One attack model a class, from shadows alone.

        A class with fewer than ``fewest`` shadow answers of either kind has no model of its own.
        It is judged by one model fitted to all classes together, which reads the probability of
        the example's own class first, then the others from large to small.

        Args:
            outputs: the shadows' answers.
            generator: for the random choices of the classifiers.
            arrangement: ``by-class`` as in the paper; ``own-first`` for the probability of the
                example's class and then the others from large to small, better where classes are
                many and shadows few; ``sorted`` for all from large to small.
            classifier: makes an attack model, with scikit-learn's ``fit`` and ``predict_proba``,
                from a number for its random choices. By default the paper's: a network with one
                hidden layer of 64 rectified units.
            fewest: how many answers of each kind a class needs for a model of its own, from 10 up.
        """
        order = validation.choice("arrangement", arrangement, Arrangement)
        least = validation.at_least("fewest", fewest, 10)
        classes = outputs.probabilities.shape[1]
        models: dict[int, _AttackModel] = {}
        for label in range(classes):
            rows = outputs.labels == label
            seen = int(outputs.inside[rows].sum())
            if min(seen, int(rows.sum()) - seen) >= least:
                features = _features(outputs.probabilities[rows], outputs.labels[rows], order)
                seed = int(generator.integers(2**31))
                models[label] = _AttackModel.fit(
                    classifier(seed), features, outputs.inside[rows], generator
                )
        missing = tuple(label for label in range(classes) if label not in models)
        pooled = None
        if missing:
            features = _features(outputs.probabilities, outputs.labels, Arrangement.OWN_FIRST)
            seed = int(generator.integers(2**31))
            pooled = _AttackModel.fit(classifier(seed), features, outputs.inside, generator)
        return cls(order, classes, missing, models, pooled)

    def scores(self, probabilities: ArrayLike, labels: ArrayLike) -> NDArray[np.float64]:
        """The probability that each answer is about a member, if half of the examples were.

        Args:
            probabilities: the target's answers, a row each.
            labels: the true classes of the examples.
        """
        rows = answer_rows("probabilities", probabilities)
        if rows.shape[1] != self.classes:
            validation.fail("probabilities", f"rows of {self.classes} classes", rows.shape)
        wanted = labels_within(labels, rows)
        found = np.empty(len(rows))
        for label in np.unique(wanted):
            mine = wanted == label
            model = self._models.get(int(label))
            order = Arrangement.OWN_FIRST if model is None else self.arrangement
            judge = model or self._pooled
            assert judge is not None  # fit makes the pooled one whenever a class has none
            found[mine] = judge.scores(_features(rows[mine], wanted[mine], order))
        return found

    def decide(self, probabilities: ArrayLike, labels: ArrayLike) -> NDArray[np.bool_]:
        """Which answers are called a member's: scores of one half or more."""
        return self.scores(probabilities, labels) >= 0.5


@final
@dataclass(frozen=True, eq=False)
class _AttackModel:
    """A classifier of standardised features, its odds freed of the share of seen answers."""

    classifier: Any
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]
    odds: float

    @classmethod
    def fit(
        cls,
        classifier: Any,
        features: NDArray[np.float64],
        inside: NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> _AttackModel:
        centre, spread = features.mean(axis=0), features.std(axis=0)
        spread = np.where(spread > 1e-9, spread, 1.0)
        order = generator.permutation(len(features))
        classifier.fit(((features - centre) / spread)[order], inside[order].astype(int))
        return cls(classifier, centre, spread, float(inside.sum() / (~inside).sum()))

    def scores(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        told = self.classifier.predict_proba((features - self.centre) / self.spread)[:, 1]
        # By Bayes' rule: what it would say had it learned from as many seen as unseen answers.
        return told / (told + (1 - told) * self.odds)


def shadow_attack(
    target: Target,
    candidates: Candidates,
    outputs: ShadowOutputs | ShadowAttack,
    *,
    generator: np.random.Generator | None = None,
    arrangement: Arrangement | str = Arrangement.BY_CLASS,
    classifier: MakeClassifier = SmallNetwork,
    confidence: float = 0.95,
) -> MembershipReport:
    """Fits attack models to the shadows' answers and applies them to the target's.

    Scores from one half on are called members, so that precision and recall, of all classes and of
    each, are of calls made without the truth. Precision depends on how many candidates are members:
    the paper's figures are for as many members as others (see :meth:`Candidates.balanced`).

    Args:
        target: the model under attack; it must show scores.
        candidates: the examples in question. Their truth is used to count, not to guess.
        outputs: the shadows' answers, or an attack fitted to them before.
        generator: for the classifiers' random choices; needed unless the attack is fitted.
        arrangement: see :meth:`ShadowAttack.fit`.
        classifier: see there, too.
        confidence: of the report's intervals.

    Raises:
        NotSeen: if the target does not show scores.
    """
    target.require(View.SCORES)
    if isinstance(outputs, ShadowAttack):
        attack = outputs
    elif generator is None:
        validation.fail("generator", "given where attack models are yet to be fitted", None)
    else:
        attack = ShadowAttack.fit(
            outputs, generator=generator, arrangement=arrangement, classifier=classifier
        )
    before = target.queries
    scores = attack.scores(target.probabilities(candidates.inputs), candidates.labels)
    return MembershipReport.from_scores(
        scores,
        candidates.members,
        labels=candidates.labels,
        attack="shadow models",
        confidence=confidence,
        threshold=0.5,
        queries=target.queries - before,
    )


def _features(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], order: Arrangement
) -> NDArray[np.float64]:
    """Log-probabilities in the order the attack model reads them."""
    logs = np.log(np.clip(probabilities, _LEAST, 1.0))
    if order is Arrangement.BY_CLASS:
        return logs
    if order is Arrangement.SORTED:
        return -np.sort(-logs, axis=1)
    rows = np.arange(len(logs))
    own = logs[rows, labels]
    rest = logs.copy()
    rest[rows, labels] = np.inf  # sorts to the front, where the own one goes
    arranged = -np.sort(-rest, axis=1)
    arranged[:, 0] = own
    return arranged
