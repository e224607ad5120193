"""What ranks tell each other: JSON and arrays, errors of known kinds, and nothing that runs."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import sfumato
from sfumato.learning.dp_sgd import TrainingError
from sfumato.learning.dp_sgd.distributed.words import error_from, packed, unpacked, words_of
from sfumato.ledger import BudgetExceeded

kinds = st.sampled_from([np.int64, np.float64, np.float32, np.bool_, np.uint8])


@given(kinds.flatmap(lambda kind: arrays.arrays(kind, arrays.array_shapes(min_dims=0, min_side=0))))
def test_arrays_arrive_to_the_bit(array):
    found = unpacked(packed({"a": array}))["a"]
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()


@given(st.floats())
def test_numbers_arrive_to_the_bit(number):
    (found,) = unpacked(packed([number]))
    assert found == number or (math.isnan(found) and math.isnan(number))


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array(["a"], dtype=object), print])
def test_anything_else_is_refused(value):
    with pytest.raises(TypeError, match="JSON and arrays"):
        packed([value])


def test_errors_arrive_as_what_they_were():
    refused = BudgetExceeded("too much", "mothers", "a cap", 0.25)
    found = error_from(unpacked(packed(words_of(refused))))
    assert type(found) is BudgetExceeded
    assert str(found) == "too much"
    assert (found.dataset, found.scope, found.left) == ("mothers", "a cap", 0.25)


def test_errors_of_other_kinds_are_named():
    class OwnError(Exception):
        pass

    for error in (OwnError("so"), KeyError("so")):
        found = error_from(words_of(error))
        assert type(found) is TrainingError
        assert f"rank 0 met a {type(error).__name__}" in str(found)


def test_nothing_is_unpickled():
    """Neither by us, nor by torch on our behalf."""
    for path in Path(sfumato.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for word in ("pickle.load", "all_gather_object", "broadcast_object_list", "torch.load("):
            assert word not in text, (path.name, word)
