"""White box: closed forms on linear models, exact members of a step, an overfit network."""

import copy
import json
import math

import numpy as np
import pytest
import torch

from sfumato.attacks.candidates import Candidates
from sfumato.attacks.membership import white_box
from sfumato.attacks.membership.white_box import (
    alignment_scores,
    gradient_norm_attack,
    gradient_norm_scores,
    share_scores,
    update_attack,
    weight_change,
)
from sfumato.attacks.targets import NotSeen, Target


def linear(features, classes, seed=0):
    torch.manual_seed(seed)
    return torch.nn.Linear(features, classes)


def examples(random, rows, features, classes):
    return random.normal(size=(rows, features)), random.integers(0, classes, rows)


def softmax_gradients(model, x, y):
    """(p - e_y) times (x, 1), weights first and biases after them."""
    weight, bias = (part.detach().double().numpy() for part in model.parameters())
    logits = x @ weight.T + bias
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    error = p / p.sum(axis=1, keepdims=True) - np.eye(len(bias))[y]
    return np.concatenate([(error[:, :, None] * x[:, None, :]).reshape(len(x), -1), error], axis=1)


def after_one_step(model, x, y, rate):
    """A copy of the model after a step of gradient descent on the mean loss."""
    moved = copy.deepcopy(model)
    optimiser = torch.optim.SGD(moved.parameters(), lr=rate)
    loss = torch.nn.functional.cross_entropy(
        moved(torch.as_tensor(x, dtype=torch.float32)), torch.as_tensor(y)
    )
    loss.backward()
    optimiser.step()
    return moved


def test_norms_of_a_linear_model_in_closed_form():
    random = np.random.default_rng(1)
    model = linear(4, 3)
    x, y = examples(random, 30, 4, 3)
    target = Target.of_module(model, view="gradients")
    expected = -np.linalg.norm(softmax_gradients(model, x, y), axis=1)
    assert gradient_norm_scores(target, x, y) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("measure", "formula"),
    [
        ("inner", lambda g, u: -g @ u),
        ("cosine", lambda g, u: -g @ u / (np.linalg.norm(g, axis=1) * np.linalg.norm(u))),
        ("coefficient", lambda g, u: -g @ u / (g**2).sum(axis=1)),
    ],
)
@pytest.mark.parametrize("numbers", [1, 40, 10**6])
def test_measures_by_their_formulas_however_few_gradients_are_held(measure, formula, numbers):
    random = np.random.default_rng(2)
    model = linear(4, 3)
    x, y = examples(random, 25, 4, 3)
    update = random.normal(size=15)
    target = Target.of_module(model, view="gradients")
    found = alignment_scores(target, x, y, update, measure=measure, numbers=numbers)
    assert found == pytest.approx(formula(softmax_gradients(model, x, y), update), rel=1e-4)
    assert target.queries == 25


def test_gradients_are_never_all_held_at_once(monkeypatch):
    sizes = []
    held = Target.gradients

    def watched(self, inputs, labels):
        sizes.append(len(labels))
        return held(self, inputs, labels)

    monkeypatch.setattr(Target, "gradients", watched)
    x, y = examples(np.random.default_rng(3), 50, 4, 3)
    gradient_norm_scores(Target.of_module(linear(4, 3)), x, y, numbers=15 * 8)
    assert sizes == [1, 8, 8, 8, 8, 8, 8, 1]


def test_with_orthogonal_examples_the_coefficient_is_the_steps_factor():
    """Without a bias, gradients of orthogonal examples are orthogonal: rate / size, or 0."""
    model = torch.nn.Linear(12, 3, bias=False)
    x, y = 2.0 * np.eye(12), np.arange(12) % 3
    moved = after_one_step(model, x[:5], y[:5], rate=0.5)
    start, end = Target.of_module(model), Target.of_module(moved)
    update = weight_change(start, end)
    found = alignment_scores(start, x, y, update, measure="coefficient")
    assert found[:5] == pytest.approx(0.5 / 5, rel=1e-3)
    assert found[5:] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("numbers", [2 * 10 * 62, 2**20])
def test_the_members_of_a_step_are_solved_for_exactly(numbers):
    """Forty correlated gradients of 62 numbers: those of eight members make up the update."""
    random = np.random.default_rng(4)
    x, y = examples(random, 40, 30, 2)
    x = x + 3.0  # all point the same way, so that none is orthogonal to another
    model = linear(30, 2)
    moved = after_one_step(model, x[:8], y[:8], rate=0.1)
    start = Target.of_module(model)
    update = weight_change(start, Target.of_module(moved))
    shares = share_scores(start, x, y, update, numbers=numbers)
    # Two classes: a gradient is the outer product of one number and (x, 1), so 31 are independent.
    assert np.linalg.matrix_rank(softmax_gradients(model, x, y)) == 31
    some = slice(0, 28)
    exact = share_scores(start, x[some], y[some], update, numbers=numbers)
    assert exact[:8] == pytest.approx(0.1 / 8, rel=1e-3)
    assert exact[8:] == pytest.approx(0, abs=1e-5)
    rebuilt = softmax_gradients(model, x, y).T @ shares
    assert rebuilt == pytest.approx(-update, abs=1e-6)  # with 40, one of many solutions
    aligned = alignment_scores(start, x[some], y[some], update, measure="coefficient")
    assert aligned[8:].max() > aligned[:8].min()  # which alignment alone does not find


def test_equal_examples_share_what_is_theirs():
    model = torch.nn.Linear(4, 2, bias=False)
    x, y = np.eye(4)[[0, 0, 1]], np.array([1, 1, 0])
    start = Target.of_module(model)
    update = -0.3 * start.gradients(x[:1], y[:1])[0]
    assert share_scores(start, x, y, update) == pytest.approx([0.15, 0.15, 0], abs=1e-5)


def test_the_change_of_weights_is_minus_rate_times_the_mean_gradient():
    random = np.random.default_rng(5)
    x, y = examples(random, 10, 4, 3)
    model = linear(4, 3)
    change = weight_change(
        Target.of_module(model), Target.of_module(after_one_step(model, x, y, 0.2))
    )
    assert change == pytest.approx(-0.2 * softmax_gradients(model, x, y).mean(axis=0), abs=1e-6)


@pytest.fixture(scope="module")
def overfit():
    """A network that fits random labels of 100 examples, as it was before and after, and others."""
    random = np.random.default_rng(6)
    x, y = examples(random, 600, 60, 2)
    torch.manual_seed(1)
    start = torch.nn.Sequential(torch.nn.Linear(60, 60), torch.nn.Tanh(), torch.nn.Linear(60, 2))
    end = copy.deepcopy(start)
    optimiser = torch.optim.SGD(end.parameters(), lr=0.1)
    inputs, labels = torch.as_tensor(x[:100], dtype=torch.float32), torch.as_tensor(y[:100])
    for _ in range(300):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(end(inputs), labels).backward()
        optimiser.step()
    both = Candidates.of((x[:100], y[:100]), (x[100:200], y[100:200]))
    null = Candidates.of((x[200:400], y[200:400]), (x[400:], y[400:]))
    return start, end, both, null


NULL_SD = math.sqrt(401 / (12 * 200 * 200))


def test_an_overfit_network_has_small_gradients_on_its_members(overfit):
    _, end, both, null = overfit
    target = Target.of_module(end, view="gradients")
    report = gradient_norm_attack(target, both)
    assert report.auc_interval[0] > 0.6
    assert report.queries == 200
    assert gradient_norm_attack(target, null).auc == pytest.approx(0.5, abs=4 * NULL_SD)


@pytest.mark.parametrize(
    ("how", "before"),
    [
        ({"measure": "inner"}, True),
        ({"measure": "cosine"}, True),
        ({"measure": "cosine"}, False),
        ({"measure": "coefficient"}, False),
        ({"solve": True}, False),
    ],
)
def test_the_change_of_weights_tells_members_of_a_whole_training(overfit, how, before):
    start, end, both, null = overfit
    update = weight_change(Target.of_module(start), Target.of_module(end))
    target = Target.of_module(start if before else end, view="gradients")
    report = update_attack(target, both, update, **how)
    assert report.auc_interval[0] > 0.6
    nothing = update_attack(target, null, update, **how)
    assert nothing.auc == pytest.approx(0.5, abs=4 * NULL_SD)
    assert report.attack == f"update {how.get('measure', 'shares')}"
    assert json.loads(json.dumps(report.to_dict()))["channel"] == "curator"


def test_an_example_without_a_gradient_scores_0():
    square = np.array([0.0, 4.0])
    for kind in white_box.Measure:
        found = white_box._measured(kind, np.array([0.0, 2.0]), square, np.array([3.0, 4.0]))
        assert found[0] == 0
        assert np.isfinite(found).all()


def test_bad_parameters_are_refused():
    x, y = examples(np.random.default_rng(7), 4, 4, 3)
    target = Target.of_module(linear(4, 3))
    with pytest.raises(NotSeen, match="needs gradients"):
        gradient_norm_scores(target.showing("scores"), x, y)
    with pytest.raises(NotSeen, match="needs weights"):
        weight_change(target, target.showing("gradients"))
    with pytest.raises(ValueError, match="a model of 15 weights"):
        weight_change(target, Target.of_module(linear(5, 3)))
    with pytest.raises(ValueError, match="a number for each of 15 weights"):
        alignment_scores(target, x, y, np.ones(14))
    with pytest.raises(ValueError, match="not all 0"):
        alignment_scores(target, x, y, np.zeros(15))
    with pytest.raises(ValueError, match="measure must be 'inner', 'cosine' or 'coefficient'"):
        alignment_scores(target, x, y, np.ones(15), measure="angle")
    with pytest.raises(ValueError, match="ridge must be"):
        share_scores(target, x, y, np.ones(15), ridge=0)
    with pytest.raises(ValueError, match="labels must be one for each"):
        gradient_norm_scores(target, x, y[:3])
