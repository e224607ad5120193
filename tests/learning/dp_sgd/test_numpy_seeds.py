"""Seeds of NumPy's generators, under any name: refused while a batch is out."""

# ruff: noqa: NPY002
import contextlib
import importlib
import types

import numpy as np
import pytest
from numpy.random import (
    MT19937,
    PCG64,
    PCG64DXSM,
    SFC64,
    Philox,
    RandomState,
    SeedSequence,
    default_rng,
)

from sfumato.learning.dp_sgd import TrainingError
from sfumato.learning.dp_sgd.numpy_seeds import NUMPYS
from sfumato.learning.dp_sgd.other_coins import Watched, refuse_held


class Own(RandomState):
    """A subclass."""


def scipys():
    stats = pytest.importorskip("scipy.stats")
    return stats.norm.rvs(random_state=3)


def quasi():
    qmc = pytest.importorskip("scipy.stats.qmc")
    return qmc.Halton(2, seed=1)


SEEDED = {
    "default_rng": lambda: default_rng(7),
    "a list": lambda: default_rng([1, 2]),
    "RandomState": lambda: RandomState(7),
    "a subclass": lambda: Own(7),
    "PCG64": lambda: PCG64(7),
    "PCG64DXSM": lambda: PCG64DXSM(7),
    "MT19937": lambda: MT19937(7),
    "Philox": lambda: Philox(7),
    "SFC64": lambda: SFC64(7),
    "SeedSequence": lambda: SeedSequence(7),
    "a sequence": lambda: default_rng(SeedSequence(7)),
    "SciPy": scipys,
    "SciPy's sequences": quasi,
}


@pytest.mark.parametrize("how", SEEDED)
def test_a_seed_is_seen_by_whatever_name(how):
    """If this fails with a later NumPy, its names in NUMPYS are others."""
    SEEDED[how]()  # what a first call imports
    with pytest.raises(TrainingError, match="generator of its own"), Watched():
        SEEDED[how]()


def test_numpy_has_the_names():
    assert len(NUMPYS) == 3


@pytest.mark.parametrize(
    "make",
    [default_rng, RandomState, PCG64, MT19937, Philox, SFC64, SeedSequence, Own],
)
def test_entropy_of_the_operating_system_is_no_seed(make):
    with Watched():
        make()
        default_rng().spawn(2)
        SeedSequence().spawn(1)[0].spawn(1)


def test_a_seed_after_one_that_raised_is_seen():
    with contextlib.suppress(TrainingError), Watched():
        with pytest.raises((TypeError, ValueError)):
            PCG64(object())
        with pytest.raises(TrainingError, match="generator of its own"):
            PCG64(3)


def test_numpy_is_as_it_was_afterwards():
    before = [vars(holder)[name] for holder, name, _ in NUMPYS]
    with Watched(), Watched():
        assert isinstance(np.random.mtrand._rand._bit_generator, np.random.mtrand._MT19937)
        np.random.set_state(np.random.get_state())
    assert [vars(holder)[name] for holder, name, _ in NUMPYS] == before
    importlib.import_module("numpy.random").default_rng(3)


def test_a_generator_that_an_imported_module_holds_is_found():
    helpers = types.ModuleType("helpers_of_this_test")
    helpers.rng = default_rng(0)

    space = {"helpers": helpers, "__name__": "script"}
    exec("def change(x):\n    return x + helpers.rng.normal()\n", space)
    with pytest.raises(TrainingError, match=r"augment holds.*helpers\.rng"):
        refuse_held(augment=space["change"])
