"""MI-Face: the closed form's steps, the paper's rule to stop, and the best image on the way."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.attacks.inversion.likeness import cosine
from sfumato.attacks.inversion.mi_face import invert_with_mi_face
from sfumato.attacks.inversion.processing import denoise_and_sharpen
from sfumato.attacks.inversion.scoring import recognition
from sfumato.attacks.inversion.slopes import CoordinateDifferences, RandomDirections
from sfumato.attacks.targets import BudgetSpent, NotSeen, Target, View


def by_hand(module, x, classes):
    """p_c and its slope p_c (w_c - sum_k p_k w_k), from the weights."""
    w = module[1].weight.detach().double().numpy()
    logits = x.reshape(len(x), -1) @ w.T + module[1].bias.detach().double().numpy()
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    own = p[np.arange(len(x)), classes]
    return own, (own[:, None] * (w[classes] - p @ w)).reshape(x.shape)


class Straight:
    """No slope at all: only the process moves the image."""

    needs = View.SCORES

    def __call__(self, target, images, labels, probabilities, bounds):
        return np.zeros(images.shape)


def scripted(costs):
    """A target of one number x = 0, 1, 2, ... whose cost at x is the x-th of the list."""
    table = np.asarray(costs)

    def answer(x):
        p = 1 - table[np.minimum(np.round(x[:, 0]).astype(int), len(table) - 1)]
        return np.stack([p, 1 - p], axis=1)

    return Target.of_scores(answer)


def follow(costs, patience, probability=0.99):
    """MI-Face along the list, one number a step."""
    return invert_with_mi_face(
        scripted(costs), [0], (1,), bounds=(0, 1000), slopes=Straight(), process=lambda x: x + 1,
        iterations=len(costs) - 1, patience=patience, probability=probability,
    )  # fmt: skip


def test_every_step_is_the_closed_form_of_softmax_regression(digits, softmax):
    start = np.full((10, *digits.shape), 0.5, dtype=np.float32)
    x = start.astype(np.float64)
    for _ in range(3):
        _, slope = by_hand(softmax, x, digits.classes)
        x = np.clip(x + 0.2 * slope, 0, 1)
    target = Target.of_module(softmax, view="gradients")
    found = invert_with_mi_face(
        target, digits.classes, digits.shape, rate=0.2, iterations=3, start=start
    )
    assert np.abs(x - start).max() > 0.1
    assert found.images == pytest.approx(x, abs=2e-4)
    assert found.probability == pytest.approx(by_hand(softmax, x, digits.classes)[0], rel=1e-4)


@pytest.mark.parametrize("name", ["softmax", "mlp"])
def test_others_recognise_what_comes_out(digits, judge, name, request):
    target = Target.of_module(request.getfixturevalue(name), view="gradients")
    found = invert_with_mi_face(target, digits.classes, digits.shape, probability=0.999, rate=1.0)
    assert found.probability.min() >= 0.999
    assert recognition(found.images, found.labels, judge).accuracy >= 0.9


def test_the_best_image_is_returned_and_not_the_last():
    costs = [0.9, 0.7, 0.3, 0.05, 0.4, 0.6, 0.8, 0.85]
    found = follow(costs, patience=100)
    assert found.iterations.tolist() == [7]
    assert found.images.tolist() == [[3.0]]
    assert found.probability == pytest.approx([0.95])


def test_steps_that_change_nothing_are_counted_up_to_the_patience():
    assert follow([0.5] * 20, patience=3).iterations.tolist() == [3]
    assert follow([0.5, 0.6, 0.5, 0.4, 0.5, 0.5, 0.3], patience=2).iterations.tolist() == [4]


@given(
    st.lists(st.sampled_from(np.linspace(0, 1, 21).tolist()), min_size=2, max_size=40),
    st.integers(1, 6),
    st.sampled_from([0.5, 0.9]),
)
def test_it_stops_by_the_papers_rule(costs, patience, probability):
    """At cost <= gamma, or at a cost not below any of the last beta."""
    enough = 1 - probability
    last = 0
    if costs[0] > enough:
        for last in range(1, len(costs)):
            before = costs[max(0, last - patience) : last]
            stuck = len(before) == patience and costs[last] >= max(before)
            if costs[last] <= enough or stuck:
                break
    found = follow(costs, patience, probability)
    assert found.iterations.tolist() == [last]
    assert found.images[0, 0] == np.argmin(1 - (1 - np.array(costs[: last + 1])))
    assert found.queries == 1 + last


def test_a_class_that_has_arrived_rests_while_the_others_go_on(digits, softmax):
    target = Target.of_module(softmax, view="gradients")
    arrived = invert_with_mi_face(target, [3], digits.shape, rate=1.0)
    start = np.concatenate([arrived.images, np.zeros((1, *digits.shape), np.float32)])
    both = invert_with_mi_face(target, [3, 7], digits.shape, rate=1.0, start=start)
    alone = invert_with_mi_face(target, [7], digits.shape, rate=1.0)
    assert both.iterations.tolist() == [0, alone.iterations[0]]
    assert np.array_equal(both.images[0], arrived.images[0])
    assert both.images[1] == pytest.approx(alone.images[0], abs=1e-5)
    assert both.probability.min() >= 0.99
    assert both.queries == 2 + 2 * alone.iterations[0]  # a gradient and a score a step


def test_what_else_is_known_is_part_of_the_cost(digits, softmax):
    wanted = np.full(digits.shape, 0.25)

    def near_grey(images, classes):
        away = images - wanted
        return 5 * (away**2).sum(axis=(1, 2, 3)), 10 * away

    target = Target.of_module(softmax)
    plain = invert_with_mi_face(target, digits.classes, digits.shape, iterations=300)
    grey = invert_with_mi_face(
        target, digits.classes, digits.shape, iterations=300, rate=0.05, auxiliary=near_grey
    )
    distances = [np.abs(found.images - wanted).mean() for found in (plain, grey)]
    assert distances[1] < distances[0] / 3
    start = np.full((10, *digits.shape), 0.5, dtype=np.float32)
    one = invert_with_mi_face(
        target, digits.classes, digits.shape, iterations=1, rate=0.05, auxiliary=near_grey,
        start=start,
    )  # fmt: skip
    _, slope = by_hand(softmax, start, digits.classes)
    assert one.images == pytest.approx(0.5 + 0.05 * (slope - 10 * 0.25), abs=1e-5)


def test_scores_alone_lead_the_same_way_for_more_queries(digits, softmax):
    steps, pixels = 15, 64
    options = {"rate": 1.0, "iterations": steps, "probability": 0.9999}
    target = Target.of_module(softmax)
    exact = invert_with_mi_face(
        target.showing("gradients"), digits.classes, digits.shape, **options
    )
    scores = target.showing("scores")
    by_pixel = invert_with_mi_face(
        scores, digits.classes, digits.shape, slopes=CoordinateDifferences(), **options
    )
    assert by_pixel.images == pytest.approx(exact.images, abs=0.02)
    assert by_pixel.queries == 10 + by_pixel.iterations.sum() * (1 + 2 * pixels)
    tossed = RandomDirections(directions=100, generator=np.random.default_rng(1))
    by_coins = invert_with_mi_face(scores, digits.classes, digits.shape, slopes=tossed, **options)
    assert cosine(by_coins.images, exact.images).mean() > 0.75
    assert by_coins.probability.mean() == pytest.approx(exact.probability.mean(), abs=0.1)
    assert by_coins.queries == 10 + by_coins.iterations.sum() * (1 + 2 * 100)
    assert by_coins.iterations.max() == steps


def test_a_target_that_shows_too_little_is_not_even_asked(digits, softmax):
    target = Target.of_module(softmax)
    for view, slopes in [("labels", CoordinateDifferences()), ("scores", None), ("losses", None)]:
        with pytest.raises(NotSeen):
            invert_with_mi_face(target.showing(view), [0], digits.shape, slopes=slopes)
    assert target.queries == 0


def test_a_spent_budget_ends_the_attack_with_what_there_is(digits, softmax):
    limited = Target.of_module(softmax).limited(10 + 7 * 20 + 5)
    found = invert_with_mi_face(limited, digits.classes, digits.shape)
    free = invert_with_mi_face(
        Target.of_module(softmax), digits.classes, digits.shape, iterations=7
    )
    assert found.iterations.tolist() == [7] * 10
    assert np.array_equal(found.images, free.images)
    assert found.queries == 150
    with pytest.raises(BudgetSpent):
        invert_with_mi_face(Target.of_module(softmax).limited(9), digits.classes, digits.shape)


@pytest.mark.parametrize("kind", ["exact", "pixels", "coins"])
def test_images_and_queries_stay_within_the_bounds(digits, kind):
    bounds, seen = (-0.5, 0.25), []

    class Watching(torch.nn.Module):
        def forward(self, x):
            seen.append((float(x.detach().min()), float(x.detach().max())))
            return torch.stack([5 * x.flatten(1).sum(1), -5 * x.flatten(1).sum(1)], dim=1)

    coins = RandomDirections(directions=5, generator=np.random.default_rng(2))
    slopes = {"exact": None, "pixels": CoordinateDifferences(), "coins": coins}[kind]
    start = np.random.default_rng(3).uniform(-3, 3, (2, 1, 3, 3))
    found = invert_with_mi_face(
        Target.of_module(Watching()), [0, 1], (1, 3, 3), bounds=bounds, rate=3.0, iterations=5,
        probability=0.999999, start=start, slopes=slopes, process=lambda x: 2 * x,
    )  # fmt: skip
    assert min(low for low, _ in seen) >= bounds[0]
    assert max(high for _, high in seen) <= bounds[1]
    assert found.images.min() >= bounds[0]
    assert found.images.max() <= bounds[1]
    assert found.bounds == bounds


def test_a_process_sees_every_so_many_steps(digits, softmax):
    calls = []

    def watching(images):
        calls.append(len(images))
        return images

    target = Target.of_module(softmax)
    same = invert_with_mi_face(
        target, [0, 1], digits.shape, iterations=10, process=watching, process_every=3
    )
    plain = invert_with_mi_face(target, [0, 1], digits.shape, iterations=10)
    assert calls == [2, 2, 2]
    assert np.array_equal(same.images, plain.images)
    smooth = invert_with_mi_face(
        target, [0, 1], digits.shape, iterations=10, process=denoise_and_sharpen(amount=0)
    )
    rough = [np.abs(np.diff(found.images, axis=3)).sum() for found in (plain, smooth)]
    assert rough[1] < 0.9 * rough[0]


def test_the_result_is_for_the_curator_and_holds_no_pixels(digits, softmax):
    found = invert_with_mi_face(
        Target.of_module(softmax, "digits"), [4, 2], digits.shape, iterations=5
    )
    kept = json.loads(json.dumps(found.to_dict()))
    assert kept["channel"] == "curator"
    assert kept["classes"] == [4, 2]
    assert "images" not in kept
    assert kept["queries"] == 22
    assert str(found).startswith("MI-Face on digits: 2 images of 2 classes after 22 queries")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"labels": []}, "labels must be"),
        ({"labels": [-1]}, "labels must be"),
        ({"labels": [10]}, "labels must be below the target's 10"),
        ({"shape": ()}, "shape must be"),
        ({"bounds": (1, 0)}, "bounds"),
        ({"rate": 0}, "rate must be"),
        ({"iterations": 0}, "iterations must be"),
        ({"patience": 0}, "patience must be"),
        ({"probability": 1.0}, "probability must be"),
        ({"process_every": 0}, "process_every must be"),
        ({"process": lambda x: x[:0]}, "process must be"),
        ({"start": np.zeros((1, 64))}, "start must be"),
    ],
)
def test_bad_parameters_are_refused(softmax, wrong, message):
    good = {"labels": [0], "shape": (1, 8, 8)}
    with pytest.raises(ValueError, match=message):
        invert_with_mi_face(Target.of_module(softmax), **(good | wrong))
