"""Membership inference on whole populations of models, with and without privacy.

Models are trained on random halves of a pool of examples: some are targets, the others their
shadows. So for every target it is known, to the auditor, who is a member, and every attack can be
measured. Private targets have private shadows, trained by the same recipe: the attacker knows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.cli.shadowed import FEWEST_SHADOWS, Said, attacks_with_shadows
from sfumato.core import validation

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.attacks.membership.reports import MembershipReport
    from sfumato.data import Dataset
    from sfumato.learning.ensembles import Schedule
    from sfumato.learning.recipes import Recipe

__all__ = ["Answers", "Pool", "attack_population", "plain_answers", "private_answers"]

Told = Callable[[int, int], object]
"""Told how much is done, of how much."""

_FEWEST = 100  # examples: of fewer, no rate says anything


@dataclass(frozen=True, eq=False)
class Pool:
    """Examples, and which model is trained on which.

    Attributes:
        data: its training set is the pool, its test set is seen by no model.
        shadows: how many of the models are shadows; the rest are targets.
        subsets: (models, examples); shadows first.
        mirrored: whether models are asked about mirror images, too.
    """

    data: Dataset
    shadows: int
    subsets: NDArray[np.bool_]
    mirrored: bool

    @classmethod
    def draw(cls, data: Dataset, rows: int | None, shadows: int, targets: int, seed: int) -> Pool:
        """Halves at random: each example in half of the shadows, and in half of the targets.

        Args:
            data: where the examples come from.
            rows: how many of its training set; all of them if None, or if there are fewer.
            shadows: how many shadows; even, and four or more.
            targets: how many targets; even.
            seed: of the choice.

        Raises:
            ValueError: for an odd number of models, or too few examples.
        """
        from sfumato.data import Examples
        from sfumato.learning.ensembles import half_each

        for name, models, least in (("shadows", shadows, FEWEST_SHADOWS), ("targets", targets, 2)):
            if validation.at_least(name, models, least) % 2:
                validation.fail(name, "even, for each example to be in half of them", models)
        validation.at_least("seed", seed, 0)
        inputs, labels = data.train
        asked = len(labels) if rows is None else validation.at_least("rows", rows, _FEWEST)
        size = validation.at_least(f"examples of {data.name}", min(asked, len(labels)), _FEWEST)
        picked = np.sort(np.random.default_rng(seed).permutation(len(labels))[:size])
        fresh = Examples(*(array[:size] for array in data.test))
        pool = replace(
            data, train=Examples(inputs[picked], labels[picked]), test=fresh, owners=None
        )
        parts = half_each(shadows, size, seed + 1), half_each(targets, size, seed + 2)
        return cls(pool, shadows, np.concatenate(parts), inputs.ndim == 4 and data.shape[2] == 3)

    @property
    def labels(self) -> NDArray[np.int64]:
        """Of the pool."""
        return self.data.train.labels

    def queries(self, examples: NDArray[Any]) -> list[Tensor]:
        """What models are asked, in the form in which they take it."""
        from sfumato.learning.recipes.inputs import inputs_of

        rows = inputs_of(examples, self.data.bounds)
        return [rows, rows.flip(3)] if self.mirrored else [rows]


@dataclass(frozen=True, eq=False)
class Answers:
    """What models said.

    Attributes:
        name: of the way they were trained.
        logits: (models, queries, examples, classes) for the pool.
        fresh: the same for examples that no model has seen.
        seconds: of training.
    """

    name: str
    logits: NDArray[np.float32]
    fresh: NDArray[np.float32]
    seconds: float

    def accuracies(self, pool: Pool) -> tuple[float, float]:
        """Mean accuracy on a model's own examples, and on those no model has seen."""
        right = self.logits[:, 0].argmax(axis=2) == pool.labels
        own = float(np.mean([r[mine].mean() for r, mine in zip(right, pool.subsets, strict=True)]))
        fresh = self.fresh[:, 0].argmax(axis=2) == pool.data.test.labels
        return own, float(fresh.mean())


def plain_answers(
    pool: Pool,
    make: Callable[[], Any],
    schedule: Schedule,
    *,
    device: str = "cpu",
    half: bool = False,
    augment: str | None = None,
    seed: int = 0,
    folder: Path | None = None,
    progress: Told | None = None,
) -> Answers:
    """Models without privacy, trained as one.

    Args:
        pool: the examples.
        make: a new model.
        schedule: how models are trained.
        device: such as "cuda".
        half: compute in bfloat16.
        augment: a random change of images, by name.
        seed: of initial weights and orders.
        folder: keeps what is done, and goes on from there.
        progress: told of finished epochs.
    """
    import torch

    from sfumato.learning.ensembles import train_ensemble
    from sfumato.learning.recipes.augments import augment_by_name
    from sfumato.learning.recipes.inputs import inputs_of

    watch = _Stopwatch(folder, progress)
    models = train_ensemble(
        make, inputs_of(pool.data.train.inputs, pool.data.bounds), pool.labels, pool.subsets,
        schedule, augment=None if augment is None else augment_by_name(augment), device=device,
        half=half, seed=seed, folder=folder, progress=watch.told,
    )  # fmt: skip
    if device == "cuda":
        torch.cuda.synchronize()
    seconds = watch.stop()
    said, fresh = _said(pool, models.logits)
    return Answers("without privacy", said, fresh, seconds)


def private_answers(
    pool: Pool,
    recipe: Recipe,
    *,
    device: str = "cpu",
    folder: Path | None = None,
    progress: Told | None = None,
) -> Answers:
    """Private models, one after another.

    Args:
        pool: the examples.
        recipe: how models are trained, on half of the pool each.
        device: such as "cuda".
        folder: keeps every finished model, and goes on from there.
        progress: told of finished models.
    """
    from sfumato.learning.recipes.populations import answers, private_population

    watch = _Stopwatch(folder, progress)
    models = private_population(
        recipe, pool.data, pool.subsets, device=device, folder=folder, progress=watch.told
    )
    seconds = watch.stop()
    said, fresh = _said(pool, lambda rows: answers(models, rows))
    return Answers(f"epsilon {recipe.epsilon:g}", said, fresh, seconds)


@final
class _Stopwatch:
    """Seconds of training, those before an interruption included; tells of progress, too."""

    def __init__(self, folder: Path | None, progress: Told | None) -> None:
        self._path = None if folder is None else folder / "seconds.json"
        there = self._path is not None and self._path.exists()
        self._before = float(json.loads(self._path.read_text())) if self._path and there else 0.0
        self._began, self._progress = time.monotonic(), progress

    def told(self, done: int, total: int) -> None:
        """Some more is done."""
        self.stop()
        if self._progress is not None:
            self._progress(done, total)

    def stop(self) -> float:
        """The seconds until now, which are kept."""
        from sfumato.learning.durable import write_whole

        seconds = self._before + time.monotonic() - self._began
        if self._path is not None:
            write_whole(self._path, json.dumps(seconds).encode())
        return seconds


def _said(pool: Pool, asked: Callable[[Any], NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    both = pool.data.train.inputs, pool.data.test.inputs
    said, fresh = (np.stack([asked(q) for q in pool.queries(rows)], axis=1) for rows in both)
    return said, fresh


def attack_population(pool: Pool, found: Answers, seed: int = 0) -> dict[str, MembershipReport]:
    """Every attack on every target; one report an attack, over all targets."""
    said = Said(found.logits, pool.labels, found.fresh, pool.data.test.labels)
    return attacks_with_shadows(said, pool.shadows, pool.subsets, seed)
