"""Retraining: what a substitute is told, how it is trained, what a budget leaves."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from sklearn.linear_model import LinearRegression
from torch import nn

from sfumato.attacks.extraction.answers import ask
from sfumato.attacks.extraction.fidelity import Exam
from sfumato.attacks.extraction.retraining import (
    Training,
    divergence,
    extract_by_retraining,
    train_substitute,
)
from sfumato.attacks.targets import Target

QUICK = Training(epochs=10, least_steps=150, rate=2e-2)


def coins(seed=0):
    return np.random.default_rng(seed)


def teacher(seed=0, features=6, classes=3):
    """A model of two layers whose answers are neither flat nor hard."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(features, 16), nn.Tanh(), nn.Linear(16, classes))
    with torch.no_grad():
        module[2].weight.mul_(6)
    return module


def inputs(count, seed=1):
    return np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)


def test_a_copy_learns_from_answers():
    target = Target.of_module(teacher())
    exam = Exam.of(target, inputs(2000, 2))
    blank = exam.measure(Target.of_module(teacher(5)).probabilities)
    found = extract_by_retraining(
        target, inputs(1500), teacher(5), training=QUICK, generator=coins()
    )
    copied = exam.measure(found.predict)
    assert blank.agreement.interval[1] < 0.6
    assert copied.agreement.interval[0] > 0.93
    assert copied.total_variation < 0.05
    assert found.queries == 1500
    assert found.history[0].queries == 1500
    assert 0 <= found.history[0].loss < 0.02


def test_what_is_shown_decides_what_is_learned():
    """With 100 inputs, means over 4 draws: about 94 % and, from labels, 91 %."""
    target = Target.of_module(teacher())
    exam = Exam.of(target, inputs(2000, 2))

    def agreement(shown):
        rates = [
            exam.measure(
                extract_by_retraining(
                    shown,
                    inputs(100, 10 + seed),
                    teacher(5),
                    classes=3,
                    training=QUICK,
                    generator=coins(seed),
                ).predict
            ).agreement.value
            for seed in range(4)
        ]
        return np.mean(rates)

    scores, labels = agreement(target.showing("scores")), agreement(target.showing("labels"))
    assert scores > labels + 0.015
    assert scores > 0.92


def test_the_substitute_given_is_left_as_it_was_and_so_is_torch():
    module = teacher(5)
    before = [weight.clone() for weight in module.parameters()]
    state = torch.random.get_rng_state()
    found = extract_by_retraining(
        Target.of_module(teacher()), inputs(50), module, training=QUICK, generator=coins()
    )
    assert (torch.random.get_rng_state() == state).all()
    for old, new in zip(before, module.parameters(), strict=True):
        assert (old == new).all()
    assert found.model is not module
    assert not any(
        (old == new).all() for old, new in zip(before, found.model.parameters(), strict=True)
    )


def test_a_seed_settles_everything_even_dropout():
    module = nn.Sequential(nn.Linear(6, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 3))
    target, test = Target.of_module(teacher()), inputs(20, 2)
    first, again, other = (
        extract_by_retraining(
            target, inputs(80), module, training=QUICK, generator=coins(seed)
        ).predict(test)
        for seed in (1, 1, 2)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_steps_are_enough_for_few_answers():
    training = Training(epochs=3, least_steps=100, batch_size=10)
    assert [training.steps(count) for count in (1, 333, 334, 1000, 1001)] == [
        100, 102, 102, 300, 303,
    ]  # fmt: skip


def test_all_answers_are_gone_through_in_each_epoch():
    seen = []

    class Watching(nn.Linear):
        def forward(self, x):
            seen.append(x.detach()[:, 0].int().tolist())
            return super().forward(x)

    rows = np.arange(10)[:, None] * np.ones((1, 2))
    answers = ask(Target.of_labels(lambda x: x[:, 0].astype(int) % 2), rows, 2)
    training = Training(epochs=4, least_steps=1, batch_size=4)
    train_substitute(Watching(2, 2), rows, answers, training, generator=np.random.default_rng(1))
    assert [len(batch) for batch in seen] == [4, 4, 2] * 4
    epochs = [
        [*first, *second, *third] for first, second, third in zip(*[iter(seen)] * 3, strict=True)
    ]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


# The divergence.


def test_the_divergence_by_hand():
    logits = torch.tensor([[1.0, 0.0, -1.0]]).double()
    copied = softmax([1.0, 0.0, -1.0])
    answer = torch.tensor([[0.5, 0.0, 0.0]]).double()
    hidden = torch.tensor([[False, True, True]])
    found = divergence(logits, answer, hidden, torch.tensor([0.5]).double())
    expected = 0.5 * np.log(0.5 / copied[0]) + 0.5 * np.log(0.5 / (copied[1] + copied[2]))
    assert found.item() == pytest.approx(expected)


@settings(max_examples=50)
@given(st.integers(2, 6), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_divergence_is_that_of_answers_as_they_are_seen(classes, kept, seed):
    """All of it where all is shown; less where less is; 0, with slope 0, for the model itself."""
    random = np.random.default_rng(seed)
    model, copied = random.normal(size=(2, 4, classes))
    rows = np.arange(4)[:, None]
    target = Target.of_scores(lambda x: softmax(model, axis=1)[x[:, 0]])

    def apart(answers, logits):
        parts = (torch.as_tensor(part) for part in (answers.shown, answers.hidden, answers.rest))
        return divergence(logits, *parts)

    whole, cut = ask(target, rows), ask(target.top(kept), rows)
    logits = torch.tensor(copied)
    expected = rel_entr(softmax(model, axis=1), softmax(copied, axis=1)).sum(axis=1)
    assert apart(whole, logits).numpy() == pytest.approx(expected)
    assert (apart(cut, logits).numpy() <= expected + 1e-12).all()
    same = torch.tensor(model, requires_grad=True)
    loss = apart(cut, same)
    assert loss.detach().numpy() == pytest.approx(np.zeros(4), abs=1e-12)
    (slope,) = torch.autograd.grad(loss.sum(), same)
    assert slope.numpy() == pytest.approx(np.zeros((4, classes)), abs=1e-7)


# Substitutes of the caller's own.


def test_a_function_gets_probabilities_or_class_numbers():
    told = []

    def fit(rows, answers):
        told.append((rows, answers))
        return lambda x: np.zeros(len(x))

    scores = Target.of_scores(lambda x: np.tile([0.7, 0.2, 0.1], (len(x), 1)))
    for target in (scores, scores.top(1), scores.showing("labels")):
        found = extract_by_retraining(target, inputs(4), fit, classes=3)
        assert found.predict(inputs(2)).tolist() == [0, 0]
        assert (told[-1][0] == inputs(4)).all()
    soft, cut, hard = (answers for _, answers in told)
    assert soft == pytest.approx(np.tile([0.7, 0.2, 0.1], (4, 1)))
    assert cut == pytest.approx(np.tile([0.7, 0.15, 0.15], (4, 1)))
    assert hard.tolist() == [0, 0, 0, 0]
    assert found.history == ()


def test_a_scikit_learn_substitute(cancer):
    """Tramèr's LR with another family: a least squares plane through the probabilities."""

    def plane(rows, answers):
        return LinearRegression().fit(rows, answers).predict

    found = extract_by_retraining(
        cancer.target, np.random.default_rng(3).uniform(-3, 3, (400, 30)), plane
    )
    exam = Exam.of(cancer.target, cancer.inputs, cancer.truth)
    assert exam.measure(found.predict).agreement.value > 0.9


def test_the_budget_stops_it_with_what_it_has():
    target = Target.of_module(teacher()).limited(30)
    found = extract_by_retraining(
        target, inputs(100), teacher(5), training=QUICK, generator=coins()
    )
    assert found.stopped
    assert found.queries == target.queries == 30
    same = extract_by_retraining(
        Target.of_module(teacher()), inputs(100)[:30], teacher(5), training=QUICK, generator=coins()
    )
    assert (found.predict(inputs(5, 2)) == same.predict(inputs(5, 2))).all()
    with pytest.raises(ValueError, match="budget must allow one"):
        extract_by_retraining(target, inputs(100), teacher(5), generator=coins())


def test_bad_parameters_are_refused():
    for name in ("epochs", "least_steps", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be"):
            Training(**{name: 0})
    with pytest.raises(ValueError, match="rate must be"):
        Training(rate=0)
    with pytest.raises(ValueError, match="weight_decay must be"):
        Training(weight_decay=-1)


def test_a_module_needs_a_generator_before_any_query():
    target = Target.of_module(teacher())
    with pytest.raises(ValueError, match="generator must be given where a module"):
        extract_by_retraining(target, inputs(4), teacher(5))
    assert target.queries == 0
