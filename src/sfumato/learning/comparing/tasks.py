"""What every method of a comparison is given: the data, and the promise that is asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.data import Dataset, Examples, Features, dataset_names
from sfumato.data.declared_values import declared_to_dict
from sfumato.learning.features import FeatureMap, Plain, ScatteringFeatures
from sfumato.learning.recipes.inputs import input_shape

__all__ = ["Task", "quick_features", "quick_pool", "with_student_inputs"]

_ORIENTATIONS, _GROUPS = 3, 4  # of wavelets; of their 16 channels, that are normalised together
_FEW, _MANY = 16, 64  # inputs, for methods whose noise grows with their number
_ENOUGH = 10_000  # records, for many


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What is learnt, and what is promised of it. All but rows and labels is public.

    Attributes:
        data: on what.
        features: what stands before linear models, those of DP-SGD included; public ones only.
        delta: of each run.
        neighbours: the relation that is asked for; a method that has another is marked.
        unit: whom it protects.
        rows_per_owner: with owners, the most rows of one in a lot.
        columns: of a table of one's own, as declared.
        inputs: public ones without labels, for a student; None if there are none.
    """

    data: Dataset
    features: FeatureMap
    delta: float = 1e-5
    neighbours: Neighbours = Neighbours.ADD_REMOVE
    unit: str = "record"
    rows_per_owner: int = 1
    columns: Features | None = None
    inputs: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", Neighbours.parse(self.neighbours))
        validation.open_probability("delta", self.delta)
        validation.name("unit", self.unit)
        if len(self.data.classes) < 2:  # labels that are numbers say so themselves
            validation.fail("classes", "two or more, of which to tell one", self.data.classes)
        if self.data.public_size is None:
            raise ValueError(
                "records must be declared to compare methods: records = 5000 in the declaration, "
                "roughly how many there are, as one may say in public"
            )
        if self.delta >= 1 / self.size and self.size > 1:
            below = f"well below 1 over the declared size ({1 / self.size:.2g})"
            validation.fail("delta", below, self.delta)
        if self.features.event(self.neighbours, self.unit) is not None:
            validation.fail("features", "public ones, or none", self.features.kind)
        self.features.out_shape(input_shape(self.data.shape))  # or says why not

    @property
    def size(self) -> int:
        """The declared number of units."""
        assert self.data.public_size is not None
        return self.data.public_size

    @property
    def pictures(self) -> bool:
        """Whether inputs are images."""
        return len(self.data.shape) == 3

    @property
    def published(self) -> bool:
        """Whether all of the data is published: the named data sets are."""
        return bool(self.data.citation) and self.data.name in dataset_names()

    def to_dict(self) -> dict[str, Any]:
        """All that a run's result depends on besides its method, as a digest where it is private.

        The digest is of private rows: it is the curator's.
        """
        data = self.data
        digest = hashlib.blake2b(digest_size=16)
        owners = () if data.owners is None else (np.asarray(data.owners),)
        for part in (*data.train, *data.test, *owners):
            digest.update(str((part.shape, part.dtype)).encode())
            digest.update(_bytes_of(part))
        return {
            "data": data.name, "examples": digest.hexdigest(), "records": self.size,
            "rows": data.rows, "tested": len(data.test.labels) if data.test_is_public else None,
            "features": self.features.to_dict(),
            "delta": self.delta, "neighbours": self.neighbours.value, "unit": self.unit,
            "rows_per_owner": self.rows_per_owner,
            "columns": None if self.columns is None else declared_to_dict(self.columns),
        }  # fmt: skip


def _bytes_of(part: NDArray[Any]) -> bytes:
    """The values themselves; an array of objects has their addresses in it."""
    return repr(part.tolist()).encode() if part.dtype == object else part.tobytes()


def quick_features(shape: tuple[int, ...]) -> FeatureMap:
    """What stands before linear models where nothing is said: few wavelets, or the columns.

    Args:
        shape: of an input, channels last as data sets have them.

    >>> quick_features((28, 28, 1)).out_shape((1, 28, 28))
    (16, 7, 7)
    >>> quick_features((11,)).kind
    'none'
    """
    if len(shape) == 3 and all(n % 4 == 0 and n >= 8 for n in shape[:2]):
        return ScatteringFeatures(orientations=_ORIENTATIONS, groups=_GROUPS * shape[2])
    return Plain()


def quick_pool(task: Task) -> int:
    """The side of squares of pixels whose means stand for them, where each input costs; 1 for none.

    The least that leaves 64 inputs of an image, or 16 where fewer than 10,000 records are declared.
    """
    if not task.pictures:
        return 1
    channels, height, width = input_shape(task.data.shape)
    most = _MANY if task.size >= _ENOUGH else _FEW
    sides = range(1, min(height, width) + 1)
    few = (side for side in sides if channels * (height // side) * (width // side) <= most)
    least = next(few, sides[-1])
    return min(height // (height // least), width // (width // least))  # as many, and less dropped


def with_student_inputs(task: Task) -> Task:
    """Every other row of a public test set without its label; the rest to test all methods on.

    So that a student's inputs are none of the rows that it, and everything beside it, is tested
    on. Test rows that are not public stay as they are.
    """
    data = task.data
    if not data.test_is_public:
        return task
    inputs, labels = data.test
    tested = replace(data, test=Examples(inputs[::2], labels[::2]))
    return replace(task, data=tested, inputs=inputs[1::2])
