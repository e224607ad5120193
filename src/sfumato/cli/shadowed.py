"""Attacks that compare a target with shadows, from the answers of all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation

if TYPE_CHECKING:
    from sfumato.attacks.membership.reports import MembershipReport

__all__ = ["FEWEST_SHADOWS", "Said", "attacks_with_shadows"]

FEWEST_SHADOWS = 4
"""So that each example is in two of them and not in two: of one, there is no variance."""

Floats = NDArray[np.float64]
_OWN_THRESHOLD = ("labels", "shadow models")  # attacks that call members themselves, from 0.5 on


@dataclass(frozen=True, eq=False)
class Said:
    """What models said, shadows first.

    Attributes:
        logits: (models, queries, examples, classes); the first query is the example itself.
        labels: of the examples.
        fresh: the same for examples that no model was trained on; RMIA needs some.
        fresh_labels: of those.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.int64]
    fresh: NDArray[np.float32]
    fresh_labels: NDArray[np.int64]


def attacks_with_shadows(
    said: Said, shadows: int, subsets: NDArray[np.bool_], seed: int = 0
) -> dict[str, MembershipReport]:
    """Every attack on every target; one report an attack, over all targets.

    Args:
        said: by all models.
        shadows: how many of them are shadows, four or more; the others are targets.
        subsets: (models, examples): who was trained on what. Of shadows the attacker knows it; of
            targets it is the truth that attacks are measured by.
        seed: of the attack's own choices.

    Raises:
        ValueError: for fewer than four shadows.
    """
    from sfumato.attacks.membership.reports import MembershipReport

    validation.at_least("shadows", shadows, FEWEST_SHADOWS)
    scored: dict[str, list[Floats]] = {}
    attack = _Attacker(said, subsets[:shadows], seed)
    for target in range(shadows, len(subsets)):
        for name, scores in attack.scores(target).items():
            scored.setdefault(name, []).append(scores)
    truth = subsets[shadows:].ravel()
    labels = np.tile(said.labels, len(subsets) - shadows)
    return {
        name: MembershipReport.from_scores(
            np.concatenate(scores), truth, labels=labels, attack=name,
            threshold=0.5 if name in _OWN_THRESHOLD else None,
        )
        for name, scores in scored.items()
    }  # fmt: skip


class _Attacker:
    """What is learnt from shadows, once for all targets."""

    def __init__(self, said: Said, inside: NDArray[np.bool_], seed: int) -> None:
        from sfumato.attacks.membership.lira import phi_from_logits
        from sfumato.attacks.membership.shadow_attack import ShadowAttack
        from sfumato.attacks.membership.shadow_outputs import ShadowOutputs

        self.labels, self.inside = said.labels, inside
        self.probabilities = _softmax(said.logits[:, 0])
        self.phis = phi_from_logits(said.logits, said.labels).transpose(0, 2, 1)
        parts = [
            ShadowOutputs(rows, said.labels, mine)
            for rows, mine in zip(self.probabilities, inside, strict=False)
        ]
        generator = np.random.default_rng(seed)
        self.judge = ShadowAttack.fit(ShadowOutputs.pooled(parts), generator=generator)
        there = len(said.fresh_labels) > 0
        self.rmia = _rmia(said, self.probabilities, inside) if there else None

    def scores(self, target: int) -> dict[str, Floats]:
        """Of each example, by each attack on one target."""
        from sfumato.attacks.membership import thresholds
        from sfumato.attacks.membership.lira import lira_scores

        labels, inside = self.labels, self.inside
        rows, own, shadows = self.probabilities[target], self.phis[target], self.phis[: len(inside)]
        found = {
            "labels": (rows.argmax(axis=1) == labels).astype(float),
            "loss": thresholds.loss_scores(rows, labels),
            "top probability": thresholds.top_probability_scores(rows),
            "modified entropy": thresholds.modified_entropy_scores(rows, labels),
            "shadow models": self.judge.scores(rows, labels),
            "LiRA, online": lira_scores(own, shadows, inside),
            "LiRA, offline": lira_scores(own, shadows, inside, online=False),
        }
        return found if self.rmia is None else found | {"RMIA": self.rmia(target)}


def _rmia(said: Said, probabilities: Floats, inside: NDArray[np.bool_]) -> Callable[[int], Floats]:
    from sfumato.attacks.membership.rmia import offline_marginal, rmia_scores, tune_a

    size = len(inside)
    own = _of_labels(probabilities, said.labels)
    population = _of_labels(_softmax(said.fresh[:, 0]), said.fresh_labels)
    a = tune_a(own[:size], population[:size], inside).a

    def scores(target: int) -> Floats:
        return rmia_scores(
            own[target], offline_marginal(own[:size], a, inside),
            population[target], offline_marginal(population[:size], a),
        )  # fmt: skip

    return scores


def _of_labels(probabilities: Floats, labels: NDArray[np.int64]) -> Floats:
    return np.take_along_axis(probabilities, labels[None, :, None], axis=2)[..., 0]


def _softmax(logits: NDArray[np.float32]) -> Floats:
    high = logits.astype(np.float64)
    high -= high.max(axis=-1, keepdims=True)
    np.exp(high, out=high)
    return high / high.sum(axis=-1, keepdims=True)
