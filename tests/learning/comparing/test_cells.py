"""What is trained is decided by public facts, and what is left out is named with its reason."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.core.neighbours import Neighbours
from sfumato.data import Examples, load_dataset
from sfumato.learning.comparing.cells import Cell, planned
from sfumato.learning.comparing.methods import Group, Payer
from sfumato.learning.comparing.registry import method_called, method_names
from sfumato.learning.comparing.tasks import (
    Task,
    quick_features,
    quick_pool,
    with_student_inputs,
)
from sfumato.learning.features import MeanPool, Plain, PrivatePCA, ScatteringFeatures

from .conftest import made_up

PURE = {"adaptive-laplace", "functional-network"}


def task_of(data, **options):
    return Task(data, options.pop("features", Plain()), **options)


@pytest.fixture(scope="module")
def digits():
    data = load_dataset("digits")
    return Task(data, quick_features(data.shape))


@pytest.fixture(scope="module")
def plan(digits):
    return planned(digits, [1.0, 4.0])


def test_every_method_is_run_or_named_with_a_reason(plan):
    run = {cell.method for cell in plan.cells}
    assert run | set(plan.left_out) == set(method_names())
    assert not run & set(plan.left_out)
    assert plan.left_out == {"dp-sgd-cnn": "its convolutions need images of 16x16 pixels or more"}


def test_each_run_promises_what_was_asked_for_or_less(plan):
    for cell, guarantee in plan.promised.items():
        if cell.epsilon is None:
            assert guarantee.epsilon == math.inf
            continue
        assert 0.98 * cell.epsilon <= guarantee.epsilon <= cell.epsilon * (1 + 1e-9)
        labels = method_called(cell.method).group is Group.LABELS
        assert guarantee.unit == ("label" if labels else "record")
        assert guarantee.delta == (0.0 if labels or cell.method in PURE else 1e-5)


def test_relations_are_one_where_a_method_can(digits, plan):
    other = planned(replace(digits, neighbours=Neighbours.REPLACE_ONE), [1.0])
    for asked, made in ((Neighbours.ADD_REMOVE, plan), (Neighbours.REPLACE_ONE, other)):
        replacing = {"erm-input", "adaptive-laplace", "erm-sgd", "label-dp"}
        own = replacing if asked is Neighbours.ADD_REMOVE else {"pate"}
        for cell, guarantee in made.promised.items():
            assert (guarantee.neighbours is asked) == (cell.method not in own), cell


def test_the_facts_that_decide_are_public_ones():
    """Rows of any content, and labels too, lead to the same plan."""
    first, second = made_up(0), made_up(1)
    wild = replace(second, train=Examples(np.full((400, 3), np.nan, np.float32),
                                          np.full(400, 7)))  # fmt: skip
    plans = [planned(task_of(data), [1.0]) for data in (first, wild)]
    assert plans[0].promised == plans[1].promised
    assert plans[0].left_out == plans[1].left_out


@pytest.mark.parametrize(
    ("data", "method", "why"),
    [
        (made_up(public=False), "pate", "public inputs"),
        (made_up(rows=900), "pate", "teachers"),
        (made_up(), "label-dp", "takes inputs for public"),
        (made_up(), "dp-sgd-cnn", "for images"),
        (made_up(owners=np.arange(400)), "erm-objective", "owners"),
        (made_up(owners=np.arange(400)), "functional-network", "owners"),
        (made_up(owners=np.arange(400)), "adaptive-laplace", "owners"),
        (made_up(owners=np.arange(400)), "autoencoder", "owners"),
    ],
)
def test_reasons(data, method, why):
    plan = planned(task_of(data), [1.0], ["dp-sgd", method])
    assert why in plan.left_out[method]
    assert {cell.method for cell in plan.cells} == {"dp-sgd"}


@pytest.mark.parametrize("method", ["functional-network", "autoencoder"])
def test_blanked_out_records_are_no_relation_of_theirs(method):
    task = task_of(made_up(), neighbours=Neighbours.ZERO_OUT)
    plan = planned(task, [1.0], ["dp-sgd", method])
    assert "replace-one" in plan.left_out[method]


def test_shapes_that_they_are_not_for():
    wide = made_up(rows=10, shape=(9000,))
    plan = planned(task_of(wide), [1.0], ["dp-sgd", "functional-network", "autoencoder"])
    assert "8192 or fewer" in plan.left_out["functional-network at epsilon 1"]
    assert "autoencoder" in {cell.method for cell in plan.cells}
    wider = made_up(rows=2, shape=(70_000,))
    plan = planned(task_of(wider), [1.0], ["dp-sgd", "autoencoder"])
    assert "65536" in plan.left_out["autoencoder at epsilon 1"]


@pytest.mark.parametrize(
    ("shape", "size", "side"),
    [
        ((8, 8, 1), 1437, 2), ((28, 28, 1), 60_000, 4), ((32, 32, 3), 50_000, 8),
        ((28, 28, 1), 9_999, 7), ((4, 4, 1), 100, 1), ((2, 100, 1), 100, 2), ((11,), 100, 1),
    ],
)  # fmt: skip
def test_images_are_pooled_by_their_shape_and_the_declared_size(shape, size, side):
    data = replace(made_up(rows=1, shape=shape), public_size=size)
    assert quick_pool(task_of(data, delta=1e-6)) == side


def test_the_three_that_are_for_few_inputs_promise_by_their_own_plans(digits, plan):
    """As their rooms plan them: what is charged is what is said here."""
    from sfumato.learning.adaptive_laplace.training import planned as noisy
    from sfumato.learning.autoencoder import plan_of
    from sfumato.learning.functional import planned as expanded

    events = {
        "functional-network": lambda recipe: expanded(recipe, digits.data).guarantee,
        "adaptive-laplace": lambda recipe: noisy(recipe, digits.data)[1],
        "autoencoder": lambda recipe: plan_of(recipe, digits.data).guarantee,
    }
    for name, found in events.items():
        recipe = method_called(name)._recipe(digits, 4.0, 3)
        assert found(recipe) == plan.promised[Cell(name, 4.0)]
        assert recipe.seed == 3
    assert method_called("autoencoder")._recipe(digits, 4.0, 0).widths == (16,)
    assert method_called("functional-network")._recipe(digits, 4.0, 0).features == MeanPool(2)


def test_a_budget_has_one_relation_and_labels_have_their_own():
    data = load_dataset("digits")
    task = Task(data, quick_features(data.shape))
    names = ["erm-input", "erm-objective", "label-dp"]
    plan = planned(task, [1.0], names, payer=Payer("l.db", "digits"))
    assert [cell.method for cell in plan.cells] == ["erm-objective"]
    assert "replace-one" in plan.left_out["erm-input"]
    assert "--label-dataset" in plan.left_out["label-dp"]
    both = planned(task, [1.0], names, payer=Payer("l.db", "digits", "labels"))
    assert "label-dp" in {cell.method for cell in both.cells}


def test_methods_repeats_and_epsilons_make_the_cells(table):
    plan = planned(task_of(table), [2.0, 0.5, 2.0], ["plain", "erm-objective"], repeats=2)
    asked = [(cell.method, cell.epsilon, cell.repeat) for cell in plan.cells]
    once = [("plain", None), ("erm-objective", 0.5), ("erm-objective", 2.0)]
    assert asked == [(*one, repeat) for repeat in range(2) for one in once]
    assert len({cell.key for cell in plan.cells}) == 6


def test_epsilons_that_are_close_have_folders_of_their_own():
    assert Cell("dp-sgd", 0.1 + 0.2).key != Cell("dp-sgd", 0.3).key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilons": []}, "epsilon"),
        ({"epsilons": [-1.0]}, "-1.0"),
        ({"methods": ["magic"]}, "'magic'"),
        ({"methods": []}, "got none"),
        ({"methods": ["plain"]}, "plain alone"),
        ({"methods": ["label-dp"]}, "label-dp: it takes inputs"),
        ({"repeats": 0}, "repeats"),
    ],
)
def test_bad_parameters_are_named(table, options, words):
    with pytest.raises(ValueError, match=words):
        planned(task_of(table), **({"epsilons": [1.0]} | options))


def test_a_bad_task_is_named(table):
    with pytest.raises(ValueError, match="delta must be well below 1"):
        task_of(table, delta=0.1)
    with pytest.raises(ValueError, match="features must be public"):
        task_of(table, features=PrivatePCA(2, 4.0))
    with pytest.raises(ValueError, match="classes must be two or more"):
        task_of(replace(table, classes=("one",)))
    with pytest.raises(ValueError, match="records must be declared"):
        task_of(replace(table, public_size=None))
    with pytest.raises(ValueError, match="scattering is for images"):
        task_of(table, features=ScatteringFeatures())


def test_a_student_asks_about_other_rows_than_all_are_tested_on(table):
    split = with_student_inputs(task_of(table))
    assert len(split.inputs) == len(split.data.test.labels) == 50
    both = np.stack([split.data.test.inputs, split.inputs], axis=1).reshape(100, 3)
    np.testing.assert_array_equal(both, table.test.inputs)
    private = task_of(made_up(public=False))
    assert with_student_inputs(private) is private
    everybody = planned(task_of(made_up(rows=1000)), [1.0])
    assert len(everybody.task.data.test.labels) == 50
    without = planned(task_of(made_up(rows=1000)), [1.0], ["dp-sgd"])
    assert len(without.task.data.test.labels) == 100


def test_features_follow_the_shape():
    assert quick_features((28, 28, 1)).out_shape((1, 28, 28)) == (16, 7, 7)
    assert quick_features((32, 32, 3)).out_shape((3, 32, 32)) == (48, 8, 8)
    assert isinstance(quick_features((30, 30, 1)), Plain)
    assert isinstance(quick_features((11,)), Plain)
