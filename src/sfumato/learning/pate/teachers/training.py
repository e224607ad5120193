"""Hundreds of teachers trained as one, of which one unit more or less changes one.

    parts = assign_units(ids, teachers=250, salt=kept_salt("curator/salt"))
    recipe = teacher_recipe("linear", (1, 28, 28), 10)
    teachers = train_teachers(recipe, inputs, labels, parts, folder="curator/teachers")

Formal guarantee. Let D and D' differ in one unit, whose id hashes to teacher j. With the same salt,
seed, settings and number of threads, on one machine, the weights of every teacher i other than j
are the same, bit for bit. For teacher i is a function of its own rows in their order, the public
settings and (seed, i):

    - its part is a function of its units' ids (:mod:`.assigning`), and removing other rows keeps
      the order of its own;
    - its features are computed from its part alone, in batches of a public shape (:mod:`.laying`);
    - its initial weights are drawn with seed (seed, i), its batches with (seed, i, chunk)
      (:mod:`.batches`);
    - the number of steps, the rates and the batch size are public and the same for all, so that
      every operation has the same shape whatever the data;
    - an operation that serves many teachers at once works on each one's slice by itself: no
      statistic, norm or scale is shared.

A part without rows is no error: its teacher keeps its initial weights, and votes. On a GPU, where
the order of some sums is not fixed, "the same" means the same up to that order, which does not
depend on values; nothing else changes. Neighbours that replace a unit change two teachers at most.

NOT PRIVATE: teachers themselves are the curator's. What may leave is what a private aggregation of
their votes gives.

Reference: Papernot, Abadi, Erlingsson, Goodfellow and Talwar, "Semi-supervised knowledge transfer
for deep learning from private training data", arXiv:1610.05755.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.learning.dp_sgd.distributed.ranks import Ranks
from sfumato.learning.ensembles import Ensemble, load_ensemble
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.ensembles.engines import make_engine
from sfumato.learning.ensembles.optimizers import make_optimizer
from sfumato.learning.ensembles.spreading import claim_together, group_size, train_spread
from sfumato.learning.ensembles.stacking import Weights, fresh_weights, untrained
from sfumato.learning.ensembles.store import Store
from sfumato.learning.pate.teachers.assigning import Parts
from sfumato.learning.pate.teachers.batches import places_of_all
from sfumato.learning.pate.teachers.laying import FiniteFeatures, LaidOut
from sfumato.learning.pate.teachers.recipes import TeacherRecipe
from sfumato.learning.recipes.inputs import labels_of

__all__ = ["first_weights", "load_teachers", "train_teachers"]

Told = Callable[[int, int], object]
"""Told how many steps are done, of how many; the same for every table."""

_CHUNK = 100  # steps between two checkpoints
_DROPOUT = (
    nn.AlphaDropout,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.FeatureAlphaDropout,
    nn.RReLU,
)
_INITIAL = 0  # sets seeds of initial weights apart from those of batches


def train_teachers(
    recipe: TeacherRecipe,
    inputs: Tensor | NDArray[Any],
    labels: Tensor | NDArray[Any],
    parts: Parts,
    *,
    device: str | torch.device = "cpu",
    half: bool = False,
    together: int | None = None,
    engine: str | None = None,
    seed: int = 0,
    folder: str | Path | None = None,
    progress: Told | None = None,
    ranks: Ranks | None = None,
) -> Ensemble:
    """Trains a teacher for each part; see the module for what is guaranteed.

    Private rows raise no errors: numbers that are not finite count as 0, labels that are none of
    the classes as the first class.

    Args:
        recipe: the model, what stands before it and its schedule.
        inputs: one example a row, as ``recipe.prepare`` takes them.
        labels: their classes.
        parts: which teacher has which rows.
        device: such as "cuda".
        half: compute in bfloat16 where that is accurate enough.
        together: how many teachers at once; by default the recipe's. Fewer need less memory.
        engine: by default the recipe's, or what suits the device.
        seed: of initial weights and batches. Privacy does not rest on it.
        folder: keeps finished groups of teachers, and every hundredth step if writing it takes
            little of the time, in files for the owner alone. A run that was cut off goes on from
            there when it is called again with the same arguments.
        progress: told of every hundredth step, on several ranks of this one's.
        ranks: share the teachers out among the ranks of ``torch.distributed`` (``find_ranks()``),
            which must all see ``folder``; every rank returns all teachers.

    Returns:
        The teachers, in the order of their numbers, without a table of who learnt from which row
        (``included`` has no columns).

    Raises:
        ValueError: for shapes that do not fit, models with buffers or dropout, or a folder that
            holds other teachers, or teachers of another table.
    """
    seed = validation.at_least("seed", seed, 0)
    rows = torch.as_tensor(inputs)
    known = labels_of(torch.as_tensor(labels).cpu().numpy(), recipe.classes)
    if not len(rows) == len(known) == len(parts.teacher_of):
        sizes = len(rows), len(known), len(parts.teacher_of)
        validation.fail("parts", "of as many rows as there are inputs and labels", sizes)
    wanted = recipe.together if together is None else together
    size = validation.count("together", group_size(len(parts), wanted, ranks))
    _refuse_dropout(recipe)
    store = Store(None if folder is None else Path(folder))
    claim_together(
        store,
        lambda: folder and store.claim_as(_identity(recipe, rows, known, parts, seed, size)),
        ranks,
    )
    job = _Job(recipe, rows, known, parts, torch.device(device), half, engine, seed)
    groups = [
        range(start, min(start + size, len(parts))) for start in range(0, len(parts), size)
    ]  # fmt: skip
    each = recipe.schedule.steps

    def train(number: int, group: range) -> Weights:
        told = _shifted(progress, number * each, len(groups) * each)
        return job.train(group, store, number, told)

    trained = train_spread(groups, train, store, ranks, job.device)
    weights = {name: torch.cat([some[name] for some in trained]) for name in trained[0]}
    return Ensemble(recipe.make, weights, _nobodys(len(parts)), job.features)


def load_teachers(folder: str | Path, recipe: TeacherRecipe, teachers: int) -> Ensemble:
    """The teachers that :func:`train_teachers` left in a folder, on the CPU.

    Raises:
        ValueError: if some of them are not there.
    """
    features = FiniteFeatures(recipe.prepare)
    return load_ensemble(folder, recipe.make, _nobodys(teachers), features)


def first_weights(make: Callable[[], nn.Module], seed: int, teacher: int) -> Weights:
    """The weights that a teacher's training begins with; they follow from the seed, and are public.

    The first axis, of length 1, counts models.
    """
    return fresh_weights(make, 1, derived_seed(seed, teacher, _INITIAL))


def _nobodys(teachers: int) -> NDArray[np.bool_]:
    """No table of rows: it would be private, and as large as teachers times rows."""
    return np.zeros((validation.count("teachers", teachers), 0), dtype=bool)


def _shifted(progress: Told | None, done: int, total: int) -> Callable[[int], None]:
    def told(steps: int) -> None:
        if progress is not None:
            progress(done + steps, total)

    return told


def _refuse_dropout(recipe: TeacherRecipe) -> None:
    """Draws during training come from one generator for all teachers, in no fixed order."""
    if any(isinstance(part, _DROPOUT) for part in untrained(recipe.make).modules()):
        raise ValueError(
            "a teacher must not draw at random while it is trained, but has dropout: use weight "
            "decay or fewer steps instead"
        )


def _identity(
    recipe: TeacherRecipe, rows: Tensor, labels: Tensor, parts: Parts, seed: int, together: int
) -> dict[str, Any]:
    """What a folder holds. The digest is of private rows, and curator's."""
    digest = hashlib.blake2b(digest_size=16)
    for tensor in (rows, labels, torch.from_numpy(parts.teacher_of)):
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return {
        "teachers": len(parts), "recipe": recipe.name, "classes": recipe.classes,
        "schedule": recipe.schedule.to_dict(), "seed": seed, "together": together,
        "rows": digest.hexdigest(),
    }  # fmt: skip


@final
class _Job:
    """What all groups of teachers share."""

    def __init__(
        self,
        recipe: TeacherRecipe,
        rows: Tensor,
        labels: Tensor,
        parts: Parts,
        device: torch.device,
        half: bool,
        engine: str | None,
        seed: int,
    ) -> None:
        self.recipe, self.rows, self.labels = recipe, rows, labels
        self.device, self.half, self.seed = device, half, seed
        self.engine = recipe.engine if engine is None else engine
        self.features: nn.Module = FiniteFeatures(recipe.prepare).to(device)
        self._order = np.argsort(parts.teacher_of, kind="stable")
        left_out = len(parts.teacher_of) - int(parts.sizes().sum())
        self._ends = left_out + np.cumsum([0, *parts.sizes()])

    def part(self, teacher: int) -> NDArray[np.int64]:
        """The numbers of a teacher's rows, ascending."""
        return self._order[self._ends[teacher] : self._ends[teacher + 1]]

    def train(
        self, group: range, store: Store, number: int, told: Callable[[int], None]
    ) -> Weights:
        """All steps of a group that are not done yet."""
        steps = self.recipe.schedule.steps
        finished = store.finished(number)
        if finished is not None:
            told(steps)
            return {name: weight.to(self.device) for name, weight in finished.items()}
        run = _Group(self, group)
        begun = store.begun(number, run.tensors())
        for chunk, start in enumerate(range(0, steps, _CHUNK)):
            if chunk < begun:
                continue
            end = min(start + _CHUNK, steps)
            run.steps(chunk, range(start, end))
            if end < steps:
                store.keep(number, chunk + 1, run.tensors())
            told(end)
        store.finish(number, run.weights)
        return run.weights


@final
class _Group:
    """Teachers that are trained at the same time."""

    def __init__(self, job: _Job, group: range) -> None:
        self.job, self.group, schedule = job, group, job.recipe.schedule
        make = job.recipe.make
        fresh = [first_weights(make, job.seed, teacher) for teacher in group]
        self.weights = {
            name: torch.cat([one[name] for one in fresh]).to(job.device) for name in fresh[0]
        }
        self.optimizer = make_optimizer(schedule.of_ensemble(), self.weights)
        skeleton = untrained(make).to("meta").train()
        self.engine = make_engine(job.engine, skeleton, self.weights, self.optimizer, job.half)
        own = [job.part(teacher) for teacher in group]
        self.data = LaidOut(job.rows, job.labels, own, job.features, job.device)

    def steps(self, chunk: int, numbers: range) -> None:
        """One chunk of steps."""
        schedule = self.job.recipe.schedule
        places = places_of_all(
            len(numbers), schedule.batch_size, self.group, self.data.sizes, self.job.seed, chunk
        )
        for step, taken in zip(numbers, torch.from_numpy(places).to(self.job.device), strict=True):
            self.engine.step(*self.data.batch(taken), schedule.rate_at(step))

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds."""
        state = {f"state.{name}": value for name, value in self.optimizer.state.items()}
        return {f"weight.{name}": value for name, value in self.weights.items()} | state
