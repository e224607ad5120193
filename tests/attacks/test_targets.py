"""What an attacker sees of a model: exactly what the view says, never more."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax
from torch import nn

from sfumato.attacks.target_answers import class_numbers
from sfumato.attacks.targets import NotSeen, Target, View

ROWS = np.array([[0.55, 0.3, 0.15], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0], [0.4, 0.2, 0.4]])
PLACES = np.arange(4)[:, None]
QUESTIONS = {
    View.LABELS: lambda target: target.labels(np.zeros((2, 3))),
    View.SCORES: lambda target: target.probabilities(np.zeros((2, 3))),
    View.LOSSES: lambda target: target.losses(np.zeros((2, 3)), [0, 1]),
    View.GRADIENTS: lambda target: target.gradients(np.zeros((2, 3)), [0, 1]),
    View.WEIGHTS: lambda target: target.module,
}
BELOW = {
    View.LABELS: {View.LABELS},
    View.LOSSES: {View.LOSSES},
    View.SCORES: {View.LABELS, View.LOSSES, View.SCORES},
    View.GRADIENTS: {View.LABELS, View.LOSSES, View.SCORES, View.GRADIENTS},
    View.WEIGHTS: set(View),
}


def table(rows=ROWS):
    """Answers about example i with row i."""
    return Target.of_scores(lambda inputs: np.asarray(rows)[inputs[:, 0].astype(int)])


def module():
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return nn.Linear(3, 3)


def made(view):
    """One target of every kind that shows ``view`` and nothing beyond."""
    return [
        Target.of_module(module(), view=view),
        Target.of_module(module(), view=view.value),
        Target.of_module(module()).showing(view),
    ]


# What is seen.


@pytest.mark.parametrize(("shown", "needed"), list(itertools.product(View, View)))
def test_a_view_shows_what_is_below_it_and_refuses_the_rest_without_a_query(shown, needed):
    for target in made(shown):
        assert target.shows(needed) == (needed in BELOW[shown])
        if needed in BELOW[shown]:
            target.require(needed)
            QUESTIONS[needed](target)
            assert target.queries == (0 if needed is View.WEIGHTS else 2)
        else:
            message = f"needs {needed.value}, but this target shows {shown.value}"
            for ask in (target.require, target.showing, lambda _, it=target: QUESTIONS[needed](it)):
                with pytest.raises(NotSeen, match=message):
                    ask(needed)
            assert target.queries == 0


def test_input_gradients_are_gradients():
    target = Target.of_module(module(), view="gradients")
    assert target.input_gradients(np.zeros((2, 3)), [0, 1]).shape == (2, 3)
    assert target.queries == 2
    with pytest.raises(NotSeen, match="needs gradients, but this target shows scores"):
        target.showing("scores").input_gradients(np.zeros((2, 3)), [0, 1])
    assert target.queries == 2


def test_what_each_maker_shows():
    answers = Target.of_labels(lambda inputs: inputs[:, 0])
    scores = table()
    losses = Target.of_losses(lambda inputs, labels: inputs[:, 0] + labels)
    assert [one.view for one in (answers, scores, losses)] == ["labels", "scores", "losses"]
    assert answers.labels([[2.0], [0.0]]).tolist() == [2, 0]
    assert losses.losses([[2.0], [0.0]], [1, 0]).tolist() == [3, 0]
    assert scores.labels(PLACES).tolist() == [0, 2, 0, 0]  # of equal ones the first
    assert scores.labels(PLACES).dtype == answers.labels([[1]]).dtype == np.int64
    for target in (answers, losses):
        with pytest.raises(NotSeen, match="needs scores"):
            target.probabilities(PLACES)
    with pytest.raises(NotSeen, match="needs labels, but this target shows losses"):
        losses.labels(PLACES)
    with pytest.raises(NotSeen, match="needs weights"):
        _ = scores.module


def test_the_module_is_there_for_those_who_have_the_weights():
    model = module()
    assert Target.of_module(model).module is model
    assert Target.of_module(model, name="mine").showing("labels").name == "mine"


def test_views_may_be_named_by_text_and_only_by_their_names():
    target = table()
    assert target.shows("losses")
    assert not target.shows("weights")
    with pytest.raises(NotSeen, match="needs weights, but this target shows scores"):
        target.require("weights")
    for ask in (target.shows, target.require, target.showing):
        with pytest.raises(ValueError, match=r"view must be 'labels'.* or 'weights', got 'logits'"):
            ask("logits")
    with pytest.raises(ValueError, match="view must be"):
        Target.of_module(module(), view="everything")


# Losses.


def test_losses_are_minus_the_logarithm_of_what_is_shown():
    labels = [1, 0, 0, 2]
    expected = [-math.log(0.3), -math.log(1e-300), 0.0, -math.log(0.4)]
    found = table().losses(PLACES, labels)
    assert found == pytest.approx(expected)
    assert not np.signbit(found).any()
    assert np.array_equal(table().showing("losses").losses(PLACES, labels), found)
    rounded = table([[0.53, 0.33, 0.14]]).rounded(1)
    assert rounded.losses([[0], [0], [0]], [0, 1, 2]) == pytest.approx(-np.log([0.5, 0.3, 0.1]))
    assert table().top(1).losses([[1], [1]], [1, 2]) == pytest.approx(-np.log([1e-300, 0.75]))
    assert table().top(1).showing("losses").losses([[1]], [1])[0] == pytest.approx(690.78, abs=0.01)


def test_losses_of_a_module_are_its_cross_entropies():
    model = module()
    inputs = np.random.default_rng(1).normal(0, 1, (50, 3)).astype(np.float32)
    labels = np.arange(50) % 3
    wanted = nn.functional.cross_entropy(
        model(torch.from_numpy(inputs)), torch.from_numpy(labels), reduction="none"
    )
    for view in ("losses", "scores", "weights"):
        found = Target.of_module(model, view=view).losses(inputs, labels)
        assert found == pytest.approx(wanted.detach().numpy(), rel=1e-5)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "labels must be one for each of 4 inputs, got 2"),
        ([0, 1, 2, 0, 1], "labels must be one for each of 4 inputs, got 5"),
        ([0, 1, 2, -1], "whole and from 0 up$"),
        ([0, 1, 2, 0.5], "whole and from 0 up$"),
        ([0, 1, 2, math.nan], "whole and from 0 up$"),
        ([0, 1, 2, math.inf], "whole and from 0 up$"),
        ([[0], [1], [2], [0]], "a list of class numbers"),
        (["a", "b", "c", "d"], "a list of class numbers"),
    ],
)
def test_labels_that_fit_no_example_are_refused_before_a_query(labels, message):
    behind = Target.of_module(nn.Linear(1, 3))
    alone = Target.of_losses(lambda inputs, labels: np.zeros(len(inputs)))
    asked = [table().losses, alone.losses, behind.losses]
    asked += [behind.gradients, behind.input_gradients]
    for ask in asked:
        with pytest.raises(ValueError, match=message):
            ask(PLACES, labels)
        assert ask.__self__.queries == 0


def test_a_label_beyond_the_classes_is_refused():
    for target in (table(), table().showing("losses"), table().top(1)):
        with pytest.raises(ValueError, match="labels must be classes below 3, got 3"):
            target.losses(PLACES, [0, 0, 0, 3])


@given(st.lists(st.integers(0, 2**31 - 1)), st.sampled_from([int, float, np.int64, np.uint32]))
def test_whole_numbers_of_any_type_are_classes(numbers, kind):
    found = class_numbers("labels", np.array(numbers, dtype=kind))
    assert found.dtype == np.int64
    assert found.tolist() == numbers
    assert class_numbers("labels", [True, False]).tolist() == [1, 0]


# Showing less.


@given(st.data())
def test_top_shows_exactly_so_many_and_the_largest(data):
    """Also where several are equal, as they are after rounding."""
    classes = data.draw(st.integers(2, 6))
    tenths = data.draw(arrays(np.int64, (3, classes), elements=st.integers(1, 4)))
    rows, kept = tenths / tenths.sum(axis=1, keepdims=True), data.draw(st.integers(1, 8))
    shown = table(rows).top(kept).probabilities(PLACES[:3])
    for exact, seen in zip(rows, shown, strict=True):
        assert (seen > 0).sum() == min(kept, classes)
        assert np.array_equal(seen[seen > 0], exact[seen > 0])
        order = sorted(range(classes), key=lambda place: (-exact[place], place))
        assert set(np.flatnonzero(seen)) == set(order[:kept])
        assert seen.argmax() == exact.argmax()


def test_ties_at_the_edge_show_the_first():
    even = table([[0.25] * 4])
    assert even.top(1).probabilities([[0]]).tolist() == [[0.25, 0, 0, 0]]
    assert even.top(3).probabilities([[0]]).tolist() == [[0.25, 0.25, 0.25, 0]]
    assert even.top(9).probabilities([[0]]).tolist() == [[0.25] * 4]


def test_rounded_rows_need_not_add_to_one():
    thirds = table([[1 / 3] * 3, [0.449, 0.449, 0.102], [0.4, 0.35, 0.25]])
    assert thirds.rounded(2).probabilities(PLACES[:1]).sum() == pytest.approx(0.99)
    assert thirds.rounded(0).probabilities(PLACES[:3]).tolist() == [[0, 0, 0]] * 3
    assert thirds.rounded(0).labels(PLACES[:3]).tolist() == [0, 0, 0]
    assert thirds.rounded(0).losses([[0]], [1]) == pytest.approx(-math.log(1e-300))
    assert thirds.rounded(2).top(1).probabilities([[1]]).tolist() == [[0.45, 0, 0]]
    assert np.array_equal(
        thirds.rounded(20).probabilities(PLACES[:3]), thirds.probabilities(PLACES[:3])
    )


LESS = st.one_of(
    st.tuples(st.just("rounded"), st.integers(0, 3)),
    st.tuples(st.just("top"), st.integers(1, 4)),
    st.tuples(st.just("limited"), st.integers(0, 9)),
)


@given(st.permutations(["rounded", "top", "showing"]), st.integers(0, 3), st.integers(1, 3))
def test_the_order_of_what_hides_does_not_matter(order, digits, kept):
    arguments = {"rounded": digits, "top": kept, "showing": "scores"}
    target = table()
    for name in order:
        target = getattr(target, name)(arguments[name])
    straight = table().top(kept).rounded(digits)
    assert np.array_equal(target.probabilities(PLACES), straight.probabilities(PLACES))
    assert (target.view, target.digits, target.kept) == ("scores", digits, kept)


@given(st.lists(LESS, max_size=6))
def test_a_view_of_a_view_never_shows_more(steps):
    target = table()
    for name, argument in steps:
        target = getattr(target, name)(argument)
    least = {
        name: min((argument for step, argument in steps if step == name), default=None)
        for name in ("rounded", "top", "limited")
    }
    assert (target.digits, target.kept, target.budget) == tuple(least.values())


def test_exact_derivatives_and_weights_go_when_scores_are_hidden():
    target = Target.of_module(module())
    for hidden in (target.rounded(1), target.top(1), target.showing("gradients").top(2)):
        assert hidden.view is View.SCORES
        with pytest.raises(NotSeen):
            hidden.gradients(np.zeros((1, 3)), [0])
        with pytest.raises(NotSeen):
            _ = hidden.module
    assert target.limited(3).view is View.WEIGHTS
    assert target.showing("labels").rounded(1).view is View.LABELS
    assert target.showing("losses").top(1).view is View.LOSSES


def test_losses_alone_have_no_probabilities_to_hide():
    target = Target.of_losses(lambda inputs, labels: np.zeros(len(inputs)))
    for hide in (target.rounded, target.top):
        with pytest.raises(ValueError, match="losses alone"):
            hide(1)
    assert target.limited(1).losses([[0]], [0]).tolist() == [0]


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("rounded", -1),
        ("rounded", 0.5),
        ("top", 0),
        ("top", 1.5),
        ("limited", -1),
        ("limited", "5"),
    ],
)
def test_bad_parameters_are_refused(name, argument):
    with pytest.raises(ValueError, match="must be a whole number"):
        getattr(table(), name)(argument)


# Answers that are none.


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([[0.5, 0.5]] * 3, "one for each of 4, got"),
        (0.5, "one for each of 4, got"),
        ([[0.7]] * 4, "each of two classes or more"),
        ([[[0.5, 0.5]]] * 4, "each of two classes or more"),
        ([[2.3, -1.0, 0.1]] * 4, "softmax of logits.*2.3"),
        ([[0.5, 0.5]] + [[-0.2, 0.1]] * 3, "softmax of logits.*-0.2"),
        ([[-0.4, 1.4]] * 4, "softmax of logits.*-0.4"),
    ],
)
def test_answers_that_are_no_scores_are_refused(answers, message):
    target = Target.of_scores(lambda inputs: np.asarray(answers))
    for ask in (target.probabilities, target.labels):
        with pytest.raises(ValueError, match=message):
            ask(PLACES)
    with pytest.raises(ValueError, match=message):
        target.losses(PLACES, [0] * 4)


def test_scores_of_labels_are_refused_and_labels_are_read():
    target = Target.of_scores(lambda inputs: inputs[:, 0])
    assert target.labels(PLACES).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="a row of probabilities an input"):
        target.probabilities(PLACES)


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([[1], [0], [1], [0]], "each of two classes or more"),
        ([0.5, 0, 1, 0], "whole and from 0 up$"),
        ([-1, 1, 1, -1], "whole and from 0 up$"),
        (["cat", "dog", "cat", "dog"], "a target's labels must be a list of class numbers"),
    ],
)
def test_answers_that_are_no_labels_are_refused(answers, message):
    with pytest.raises(ValueError, match=message):
        Target.of_labels(lambda inputs: np.asarray(answers)).labels(PLACES)


def test_as_many_losses_as_examples():
    for answer in (0.5, [0.5] * 3, [[0.5]] * 4):
        target = Target.of_losses(lambda inputs, labels, told=answer: np.asarray(told))
        with pytest.raises(ValueError, match="a target's losses must be 4 numbers"):
            target.losses(PLACES, [0] * 4)


def test_services_that_round_or_cut_by_themselves_are_read_as_they_are():
    rows = [[0.34, 0.33, 0.34], [0.9, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert np.array_equal(table(rows).probabilities(PLACES), rows)


def test_answers_are_not_those_of_the_model_to_change():
    """A target's arrays are copies: who writes into one does not change the model's."""
    rows = softmax(np.arange(6.0).reshape(2, 3), axis=1)
    target = Target.of_scores(lambda inputs: rows)
    target.probabilities(PLACES[:2])[:] = 0
    assert rows.sum() == pytest.approx(2)


def test_derivatives_need_a_module():
    target = Target(View.WEIGHTS, _answer=lambda inputs: ROWS)
    for ask in (target.gradients, target.input_gradients):
        with pytest.raises(ValueError, match=r"made with Target\.of_module"):
            ask(PLACES, [0] * 4)
    assert target.queries == 0
