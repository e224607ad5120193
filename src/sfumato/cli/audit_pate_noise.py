"""The noise of a plan's answers and checks, played: for ``sfumato audit pate``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.audit.label_noise import NoiseFinding, NoiseGame
    from sfumato.core.randomness import Coins
    from sfumato.learning.pate import AnswerPlan
    from sfumato.learning.pate.aggregators import Aggregator, Opinion

__all__ = ["FEWEST_GAMES", "audit_noise", "opposite"]

FEWEST_GAMES = 40  # of fewer, one side may have none to count


def opposite(plan: AnswerPlan) -> Opinion | None:
    """A student that is sure of the second of two classes, where teachers have the first."""
    import numpy as np

    return np.array([0.0, 1.0]) if plan.aggregator.needs_opinion else None


def audit_noise(
    plan: AnswerPlan,
    *,
    games: int,
    confidence: float = 0.99,
    claimed: AnswerPlan | None = None,
    coins: Coins | None = None,
) -> dict[str, NoiseFinding]:
    """Whether each noise of the code's answers is as large as declared: one answer a game.

    Args:
        plan: its aggregator is played.
        games: for each noise.
        confidence: of each finding.
        claimed: the plan whose noise is tested; by default the same.
        coins: the noise; by default the system's.

    Returns:
        By name: "noise of answers" and, where there are checks, "noise of checks".
    """
    from sfumato.core import validation
    from sfumato.core.randomness import SYSTEM
    from sfumato.learning.pate.games import single_answers

    promised = claimed or plan
    source, thought = SYSTEM if coins is None else coins, opposite(plan)
    number = validation.at_least("games", games, FEWEST_GAMES)
    found: dict[str, NoiseFinding] = {}
    for game in _noise_games(promised.aggregator, number, confidence):
        seen = (
            game.happened(single_answers(table, plan.aggregator, game.games, source, thought))
            for table in (game.inside, game.outside)
        )
        finding = game.found(*seen)
        epsilon = _epsilon_with(promised, game.name, finding.at_most)
        found[f"noise of {game.name}"] = replace(finding, as_of_epsilon=epsilon)
    return found


def _noise_games(aggregator: Aggregator, games: int, confidence: float) -> list[NoiseGame]:
    from sfumato.audit.label_noise import answers_game, check_game
    from sfumato.learning.pate.aggregators import (
        ConfidentMax,
        GaussianMax,
        InteractiveMax,
        LaplaceMax,
    )

    if isinstance(aggregator, LaplaceMax):
        scale = 1 / aggregator.gamma
        return [answers_game("laplace", scale, games=games, confidence=confidence)]
    assert isinstance(aggregator, GaussianMax | ConfidentMax | InteractiveMax)
    if isinstance(aggregator, GaussianMax):
        return [answers_game("gaussian", aggregator.sigma, games=games, confidence=confidence)]
    threshold, check = aggregator.threshold, aggregator.sigma_check
    return [
        answers_game(
            "gaussian", aggregator.sigma, games=games, threshold=threshold, sigma_check=check,
            confidence=confidence,
        ),
        check_game(threshold, check, games=games, confidence=confidence),
    ]  # fmt: skip


def _epsilon_with(plan: AnswerPlan, which: str, noise: float) -> float:
    """What the plan costs with answers or checks of that noise."""
    from sfumato.learning.pate.aggregators import ConfidentMax, InteractiveMax, LaplaceMax

    aggregator = plan.aggregator
    if noise == math.inf:
        return 0.0
    if isinstance(aggregator, LaplaceMax):
        other: Aggregator = LaplaceMax(1 / noise)
    elif which == "checks":
        assert isinstance(aggregator, ConfidentMax | InteractiveMax)
        other = replace(aggregator, sigma_check=noise)
    else:
        other = replace(aggregator, sigma=noise)
    return replace(plan, aggregator=other).guarantee.epsilon
