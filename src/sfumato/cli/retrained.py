"""Shadows of one model: the same network with new weights, trained on halves of the candidates."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.attacks.candidates import Candidates
    from sfumato.attacks.membership.reports import MembershipReport

__all__ = ["retrained_attacks"]


def retrained_attacks(
    module: nn.Module,
    candidates: Candidates,
    fresh: tuple[NDArray[Any], NDArray[np.int64]],
    *,
    features: nn.Module | None = None,
    shadows: int = 16,
    epochs: int = 30,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> dict[str, MembershipReport]:
    """Attacks that need shadows, on one model.

    Shadows are trained without privacy, whatever the target was: the attacker does not know its
    noise. So against a private target they are weaker than shadows trained as it was.

    Args:
        module: from inputs, or their features, to logits.
        candidates: half of them in each shadow.
        fresh: examples that nobody was trained on, for attacks that compare with a population.
        features: a part of the target that shadows share with it, applied first.
        shadows: how many; even.
        epochs: of each.
        seed: of the attack's choices.
        progress: told of finished epochs.
    """
    from sfumato.cli.shadowed import Said, attacks_with_shadows
    from sfumato.learning.ensembles import Schedule, half_each, train_ensemble
    from sfumato.learning.recipes.populations import answers

    rows, others = (_seen(features, x) for x in (candidates.inputs, fresh[0]))
    halves = half_each(shadows, len(candidates), seed)
    trained = train_ensemble(
        _renewed(module), rows, candidates.labels, halves, Schedule(epochs, 64, rate=0.05),
        seed=seed, progress=progress,
    )  # fmt: skip
    said, apart = (
        np.concatenate([trained.logits(x), answers([module], x)])[:, None] for x in (rows, others)
    )
    subsets = np.concatenate([halves, candidates.members[None]])
    return attacks_with_shadows(
        Said(said, candidates.labels, apart, fresh[1]), shadows, subsets, seed
    )


def _seen(features: nn.Module | None, inputs: NDArray[Any]) -> Tensor:
    import torch

    rows = torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32))
    if features is None:
        return rows
    with torch.no_grad():
        return torch.cat([features(part) for part in rows.split(500)])


def _renewed(module: nn.Module) -> Callable[[], nn.Module]:
    """Makes copies with new random weights."""

    def make() -> nn.Module:
        fresh = copy.deepcopy(module)
        for part in fresh.modules():
            reset = getattr(part, "reset_parameters", None)
            if reset is not None:
                reset()
        return fresh.requires_grad_(True)

    return make
