"""Neighbour relations: which implies which, in how many steps, and which never does."""

import itertools

import pytest

from sfumato.core import Neighbours
from sfumato.core.neighbours import require_conversion

ADD, ZERO, REPLACE = Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE
STEPS = {(ADD, ZERO): 1, (ADD, REPLACE): 2, (ZERO, REPLACE): 2}


@pytest.mark.parametrize(("source", "target"), list(itertools.product(Neighbours, repeat=2)))
def test_the_table(source, target):
    if source is target:
        assert require_conversion(source, target) == 1
    elif (source, target) in STEPS:
        assert require_conversion(source, target) == STEPS[source, target]
    else:
        with pytest.raises(ValueError, match=f"a {source} guarantee says nothing about {target}"):
            require_conversion(source, target)


def test_names():
    for relation in Neighbours:
        assert Neighbours.parse(relation.value) is relation
        assert "one person" in relation.describe("person")


@pytest.mark.parametrize("bad", ["", "add_remove", "ADD-REMOVE", None, 1, True])
def test_what_is_no_relation_is_refused_with_the_choices(bad):
    with pytest.raises(ValueError, match="neighbours must be 'add-remove', 'replace-one' or"):
        Neighbours.parse(bad)
