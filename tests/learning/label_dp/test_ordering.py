"""Whatever order rows come in, what is public goes by their inputs alone."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from sfumato.core import SeededCoins
from sfumato.data import Examples, Pictures
from sfumato.data.first_rows import first_rows
from sfumato.data.own import load_own
from sfumato.learning.label_dp import label_preset, train_label_dp
from sfumato.learning.label_dp import training as training_module
from sfumato.learning.label_dp.ordering import digest_of, order_by_inputs


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def small(data, rows=300):
    train = Examples(data.train.inputs[:rows], data.train.labels[:rows])
    return replace(data, train=train, public_size=rows)


def told_of(folder):
    lines = (folder / "curator/reports.jsonl").read_text().splitlines()
    return [value for line in lines for value in json.loads(line).get("reports", [])]


def test_rows_with_their_labels_in_any_order_make_the_same_run(data, tmp_path) -> None:
    own = small(data)
    inputs, labels = own.train
    order = np.argsort(labels, kind="stable")  # class by class
    sorted_by_label = replace(own, train=Examples(inputs[order], labels[order]))
    recipe = label_preset(own, 2.0, epochs=2.0)
    for name, which in (("a", own), ("b", sorted_by_label)):
        train_label_dp(recipe, which, out=tmp_path / name, coins=SeededCoins(3))
    one, two = tmp_path / "a", tmp_path / "b"
    assert (one / "record.json").read_bytes() == (two / "record.json").read_bytes()
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    assert told_of(one) == told_of(two)


def pictures(folder, classes):
    """Sixty pictures by number, each in the sub-folder of its class."""
    made = np.random.default_rng(0).integers(0, 256, (len(classes), 8, 8), dtype=np.uint8)
    for name in "abc":
        (folder / name).mkdir(parents=True)
    for number, (picture, label) in enumerate(zip(made, classes, strict=True)):
        Image.fromarray(picture).save(folder / label / f"{number}.png")
    return load_own(folder, Pictures(shape=(8, 8, 1), classes=("a", "b", "c")))


def test_a_picture_in_another_class_moves_nothing_but_its_label(tmp_path, monkeypatch) -> None:
    """Features, stages, sets and all other labels stay; reports are fixed, as sets follow them."""
    classes = list("abc" * 20)
    moved = ["c", *classes[1:]]
    stages: list = []
    real = training_module.randomise_stage

    def watched(recipe, stage, rows, sets, labels, journal, coins, told, order):
        stages.append((rows, sets, labels[order[rows]]))
        public = np.zeros(len(labels), dtype=np.int64)
        return real(recipe, stage, rows, sets, public, journal, coins, told, order)

    monkeypatch.setattr(training_module, "randomise_stage", watched)
    for name, which in (("a", classes), ("b", moved)):
        data = pictures(tmp_path / f"data-{name}", which)
        recipe = label_preset(data, 2.0, components=10, epochs=1.0, rounds=1)
        train_label_dp(recipe, data, out=tmp_path / name, coins=SeededCoins(3))
    features = [load_file(tmp_path / name / "curator/features") for name in "ab"]
    assert features[0].keys() == features[1].keys()
    assert all(torch.equal(features[0][name], features[1][name]) for name in features[0])
    other = 0
    for (rows, sets, labels), (rows_2, sets_2, labels_2) in zip(
        stages[:2], stages[2:], strict=True
    ):
        assert (rows == rows_2).all()
        assert (sets == sets_2).all()
        other += int((labels != labels_2).sum())
    assert other == 1


def test_equal_inputs_are_in_an_order_that_nobody_knows() -> None:
    """Each of the six orders of three equal rows is as frequent, whatever order they come in."""
    rows = np.array([[1.0], [1.0], [2.0], [1.0]])
    coins, count = SeededCoins(0), 6000
    found = [tuple(n for n in order_by_inputs(rows, coins) if n != 2) for _ in range(count)]
    seen = [found.count(order) for order in set(found)]
    assert len(seen) == 6
    assert max(abs(n - count / 6) for n in seen) < 5 * (count * 5 / 36) ** 0.5
    places = {order_by_inputs(rows, coins).tolist().index(2) for _ in range(20)}
    assert len(places) == 1


def test_keys_that_meet_are_drawn_again() -> None:
    class Few:
        private = False

        def __init__(self):
            self.left = [np.array([5, 5], np.uint64), np.array([9, 4], np.uint64)]

        def words(self, count):
            assert count == 2
            return self.left.pop(0)

    assert order_by_inputs(np.zeros((2, 3)), Few()).tolist() == [1, 0]


def test_digests_know_shapes() -> None:
    ones = np.ones(4)
    assert digest_of(ones) == digest_of(ones.copy())
    assert digest_of(ones) != digest_of(ones.reshape(2, 2))
    assert digest_of(ones[:2], ones[2:]) != digest_of(ones[:1], ones[1:])


def test_an_order_that_was_lost_is_not_drawn_again(data, tmp_path) -> None:
    """With another order of equal inputs some labels would be told twice."""
    inputs, labels = small(data).train
    twins = replace(small(data), train=Examples(np.repeat(inputs[:150], 2, axis=0), labels))
    recipe = label_preset(twins, 2.0, 1, epochs=1.0)
    train_label_dp(recipe, twins, out=tmp_path / "a")
    (tmp_path / "a/record.json").unlink()
    (tmp_path / "a/curator/order").unlink()
    with pytest.raises(ValueError, match="holds those of another"):
        train_label_dp(recipe, twins, out=tmp_path / "a", resume=True)


def test_the_first_rows_of_own_data_are_refused(data, tmp_path) -> None:
    with pytest.raises(ValueError, match="rows must be left out"):
        train_label_dp(label_preset(data, 2.0), first_rows(data, 100), out=tmp_path / "a")
    assert not (tmp_path / "a").exists()
