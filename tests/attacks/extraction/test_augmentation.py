"""Jacobian augmentation: the steps, the counting, and that it beats what it started from."""

import numpy as np
import pytest
import torch
from torch import nn

from sfumato.attacks.extraction.augmentation import extract_by_augmentation, stepped
from sfumato.attacks.extraction.fidelity import Exam
from sfumato.attacks.extraction.retraining import Training
from sfumato.attacks.targets import Target

STILL = Training(epochs=1, least_steps=1, rate=1e-12)
QUICK = Training(epochs=5, least_steps=40, rate=5e-2)


def coins(seed=0):
    return np.random.default_rng(seed)


def linear(weights):
    module = nn.Linear(len(weights[0]), len(weights))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weights))
        module.bias.zero_()
    return module


def watched(answer):
    """A target that shows labels, and the list of all it was asked."""
    asked = []

    def remember(inputs):
        asked.extend(np.asarray(inputs).tolist())
        return answer(inputs)

    return Target.of_labels(remember), asked


def first_class(inputs):
    return np.zeros(len(inputs), int)


def test_steps_by_hand():
    """Of two classes, that of class 0 rises along w0 - w1 = (1, -4)."""
    module = linear([[1.0, -3.0], [0.0, 1.0]])
    inputs = np.array([[0.0, 0.0], [0.95, 0.0]])
    limits = np.zeros(2) - 0.05, np.ones(2)
    moved = stepped(module, inputs, np.array([0, 0]), 0.1, limits)
    assert moved == pytest.approx(np.array([[0.1, -0.05], [1.0, -0.05]]))
    other = stepped(module, inputs, np.array([1, 1]), 0.1, limits)
    assert other == pytest.approx(np.array([[-0.05, 0.1], [0.85, 0.1]]))


def test_each_round_asks_about_every_input_moved():
    target, asked = watched(first_class)
    start = np.array([[0.0, 0.0], [0.2, 0.4]])
    found = extract_by_augmentation(
        target, start, linear([[1.0, -1.0], [0.0, 0.0]]), (-1, 1), classes=2, rounds=2,
        training=STILL, generator=coins(),
    )  # fmt: skip
    move = np.array([0.1, -0.1])
    expected = np.concatenate([start, start + move, start + move, start + 2 * move])
    assert np.array(asked) == pytest.approx(expected)
    assert [one.queries for one in found.history] == [2, 4, 8]
    assert found.queries == 8
    assert not found.stopped


def test_the_sign_turns_every_period():
    target, asked = watched(first_class)
    extract_by_augmentation(
        target, np.zeros((1, 2)), linear([[1.0, -1.0], [0.0, 0.0]]), (-1, 1), classes=2, rounds=3,
        period=2, reservoir=1, training=STILL, generator=coins(),
    )  # fmt: skip
    moves = np.array(asked)[:, 0]
    assert moves[:2] == pytest.approx([0, 0.1])
    assert min(abs(moves[2] - place) for place in (0.1, 0.2)) < 1e-9
    assert min(abs(moves[3] - place) for place in (-0.1, 0, moves[2] - 0.1)) < 1e-9
    assert moves[3] < moves[2]


def test_a_reservoir_keeps_the_queries_few():
    target, asked = watched(first_class)
    found = extract_by_augmentation(
        target, np.zeros((10, 2)), linear([[1.0, 0.0], [0.0, 1.0]]), (-1, 1), classes=2, rounds=5,
        reservoir=15, training=STILL, generator=coins(),
    )  # fmt: skip
    assert [one.queries for one in found.history] == [10, 20, 35, 50, 65, 80]
    assert len(asked) == 80


def test_queries_stay_within_the_bounds_and_keep_their_type():
    seen = []

    def answer(inputs):
        seen.append(inputs)
        return np.zeros(len(inputs), int)

    start = np.array([[0, 1], [1, 0]], dtype=np.uint8)
    low, high = np.array([0, 0.25]), np.array([1, 1.0])
    extract_by_augmentation(
        Target.of_labels(answer), start, linear([[1.0, -1.0], [0.0, 0.0]]), (low, high), classes=2,
        rounds=3, step=0.3, training=STILL, generator=coins(),
    )  # fmt: skip
    later = np.concatenate(seen[1:])
    assert (later >= low).all()
    assert (later <= high).all()
    assert later.dtype == np.float64
    assert 0.3 in later.round(9)  # not cut to whole numbers


@pytest.mark.parametrize(
    ("budget", "history"),
    [
        (4, [4]),
        (10, [10]),
        (15, [10, 15]),
        (40, [10, 20, 40]),
        (41, [10, 20, 40, 41]),
        (99, [10, 20, 40, 80, 99]),
    ],
)
def test_the_budget_is_spent_and_never_overdrawn(budget, history):
    target, asked = watched(first_class)
    limited = target.limited(budget)
    start = np.random.default_rng(1).uniform(-1, 1, (10, 2))
    found = extract_by_augmentation(
        limited, start, linear([[1.0, 0.0], [0.0, 1.0]]), (-1, 1), classes=2, rounds=4,
        training=STILL, generator=coins(),
    )  # fmt: skip
    assert [one.queries for one in found.history] == history
    assert len(asked) == limited.queries == found.queries == budget
    assert found.stopped


def test_the_last_inputs_are_picked_without_repeats():
    target, asked = watched(first_class)
    start = np.arange(20.0)[:, None] * np.ones((1, 2))
    extract_by_augmentation(
        target.limited(35), start, linear([[1.0, 1.0], [0.0, 0.0]]), (-100, 100), classes=2,
        step=0.5, training=STILL, generator=coins(),
    )  # fmt: skip
    last = np.array(asked)[20:, 0]
    assert len(set(last)) == 15
    assert set(last) <= set(np.arange(20) + 0.5)
    assert last.tolist() != (np.arange(15) + 0.5).tolist()


def test_steps_across_the_boundary_tell_more_than_steps_away_from_it():
    """Ten features, 15 labelled inputs, means over 3 models.

    The copies agree on about 73 % without rounds, 74 % moving away, 87 % to and fro, 93 % across.
    """
    rates = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        weights = random.normal(size=(10, 2))
        target = Target.of_labels(lambda inputs, w=weights: (inputs @ w).argmax(axis=1))
        start = random.uniform(-1, 1, (15, 10))
        exam = Exam.of(target, random.uniform(-1, 1, (2000, 10)))
        plans = (
            {"rounds": 0},
            {"rounds": 4},
            {"rounds": 4, "step": 0.3, "period": 1},
            {"rounds": 4, "step": -0.1},
        )
        made = [
            extract_by_augmentation(
                target, start, linear(np.zeros((2, 10)).tolist()), (-1, 1), classes=2,
                generator=coins(seed), training=QUICK, **plan,
            )
            for plan in plans
        ]  # fmt: skip
        assert [one.queries for one in made] == [15, 240, 240, 240]
        rates.append([exam.measure(one.predict).agreement.value for one in made])
    none, away, both, across = np.mean(rates, axis=0)
    assert none < 0.8
    assert abs(away - none) < 0.07
    assert both > none + 0.1
    assert across > none + 0.15


def test_a_seed_settles_everything():
    target = Target.of_labels(lambda inputs: (inputs[:, 0] > 0.1).astype(int))
    start = np.random.default_rng(3).uniform(-1, 1, (8, 2))
    first, again, other = (
        extract_by_augmentation(
            target.limited(20), start, linear([[0.1, 0.0], [0.0, 0.1]]), (-1, 1), classes=2,
            training=QUICK, generator=coins(seed),
        ).predict(start)
        for seed in (1, 1, 2)
    )  # fmt: skip
    assert (first == again).all()
    assert (first != other).any()


def test_bad_parameters_are_refused():
    target, module = Target.of_labels(first_class), linear([[1.0], [0.0]])
    start = np.zeros((2, 1))
    for arguments, match in (
        ({"step": 0}, "step must be a number other than 0"),
        ({"step": np.inf}, "step must be a finite"),
        ({"rounds": -1}, "rounds must be"),
        ({"reservoir": 0}, "reservoir must be"),
        ({"period": 0}, "period must be"),
    ):
        with pytest.raises(ValueError, match=match):
            extract_by_augmentation(
                target, start, module, (-1, 1), classes=2, generator=coins(), **arguments
            )
    with pytest.raises(ValueError, match="bounds must be"):
        extract_by_augmentation(target, start, module, (1, 1), classes=2, generator=coins())
    with pytest.raises(ValueError, match="budget must allow one"):
        extract_by_augmentation(
            target.limited(0), start, module, (-1, 1), classes=2, generator=coins()
        )
    assert target.queries == 0
