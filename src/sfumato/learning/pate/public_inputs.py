"""What is public in a run: inputs that teachers are asked about, and rows that are tested on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.data import Dataset
from sfumato.learning.pate.recipe import PateRecipe

__all__ = ["PublicInputs", "public_inputs"]

_GIVEN = "given as public, by whoever holds the data"
_TEST_SET = "the public test set, without its labels and without the rows tested on"


@final
@dataclass(frozen=True, eq=False)
class PublicInputs:
    """Public rows.

    Attributes:
        inputs: what the student sees, and may ask about.
        test_inputs: what it is tested on.
        test_labels: their classes.
        origin: where the inputs come from, for the record.
    """

    inputs: NDArray[Any]
    test_inputs: NDArray[Any]
    test_labels: NDArray[np.int64]
    origin: str

    @property
    def tested(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Inputs and labels."""
        return self.test_inputs, self.test_labels


def public_inputs(
    recipe: PateRecipe, data: Dataset, unlabelled: NDArray[Any] | None
) -> PublicInputs:
    """The inputs given as public, or those of a public test set.

    Raises:
        ValueError: if there are none, too few, or of another shape.
    """
    inputs, labels = data.test
    if unlabelled is not None:
        if tuple(unlabelled.shape[1:]) != tuple(data.shape):
            wanted = f"inputs of shape {tuple(data.shape)}, one a row"
            validation.fail("unlabelled", wanted, tuple(unlabelled.shape))
        tested = slice(None) if data.test_is_public else slice(0)
        return _enough(recipe, PublicInputs(unlabelled, inputs[tested], labels[tested], _GIVEN))
    if not data.test_is_public:
        raise ValueError(
            "a student needs public inputs to ask about, and this data set's test rows are not "
            "public: give public inputs without labels (unlabelled, --unlabelled FILE)"
        )
    kept = len(labels) if recipe.test_rows is None else len(labels) - recipe.test_rows
    kept = max(0, kept)
    return _enough(recipe, PublicInputs(inputs[:kept], inputs[kept:], labels[kept:], _TEST_SET))


def _enough(recipe: PateRecipe, public: PublicInputs) -> PublicInputs:
    wanted = recipe.plan.most_questions
    if len(public.inputs) < wanted:
        raise ValueError(
            f"there must be public inputs for all {wanted} questions of the plan, but there are "
            f"{len(public.inputs)}: ask fewer, give more of them (--unlabelled), or keep fewer "
            "to test on (--test-rows)"
        )
    return public
