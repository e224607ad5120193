"""One account for everything: never above what is claimed, and hardly below it."""

import math
from dataclasses import replace

import pytest

from sfumato.accounting import account
from sfumato.core.events import ComposedEvent, GaussianEvent, LaplaceEvent, event_from_dict
from sfumato.core.gaussian_profile import composed_multiplier, gaussian_epsilon
from sfumato.core.neighbours import Neighbours
from sfumato.learning.autoencoder.planning import planned
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe

BOTH = pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])


def plan(**changes):
    return planned(AutoEncoderRecipe(**changes), 16, 2000, 3)


@BOTH
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("head", ["functional", "none"])
def test_normal_releases_compose_exactly(neighbours, epsilon, head):
    made = plan(epsilon=epsilon, neighbours=neighbours, head=head, widths=(5, 3), rounds=2)
    assert isinstance(made.event, ComposedEvent)
    parts = made.event.events
    assert len(parts) == 4 + (head != "none")
    assert all(isinstance(part, GaussianEvent) for part in parts)
    together = composed_multiplier((part.noise_multiplier, 1) for part in parts)
    found = gaussian_epsilon(together, 1e-5)
    assert 0.999 * epsilon < found <= epsilon
    assert made.guarantee.neighbours is Neighbours.parse(neighbours)


def test_the_head_has_its_share():
    made = plan(head="functional", head_share=0.3)
    assert isinstance(made.event, ComposedEvent)
    *layers, head = (1 / part.noise_multiplier**2 for part in made.event.events)
    assert head / (sum(layers) + head) == pytest.approx(0.3, rel=1e-3)
    assert layers[0] == pytest.approx(layers[1])
    beside = plan(head="objective", head_share=0.3)
    assert beside.head is not None
    assert (beside.head.epsilon, beside.head.delta) == pytest.approx((0.3, 3e-6))
    parts = [1 / release.event.noise_multiplier**2 for release in beside.releases]
    layers = gaussian_epsilon(1 / math.sqrt(sum(parts)), 7e-6)
    assert 0.699 < layers <= 0.7


@BOTH
def test_pure_epsilons_add(neighbours):
    made = plan(delta=0.0, epsilon=2.0, head_share=0.25, rounds=3, neighbours=neighbours)
    assert isinstance(made.event, ComposedEvent)
    parts = made.event.events[:-1]
    assert all(isinstance(part, LaplaceEvent) for part in parts)
    each = [1 / part.noise_multiplier for part in parts]
    assert each == pytest.approx([0.5] * 3, rel=1e-6)
    assert made.head is not None
    assert sum(each) + made.head.epsilon <= 2.0
    assert made.guarantee.delta == 0
    assert account(made.event, delta=0.0).epsilon <= 2.0 * (1 + 1e-9)


@pytest.mark.parametrize("head", ["objective", "functional", "none"])
def test_descent_and_head_together_cost_what_is_claimed(head):
    made = plan(way="dp-sgd", epsilon=2.0, lot_size=200, epochs=3, head=head)
    assert made.descent is not None
    assert 1.99 < made.guarantee.epsilon <= 2.0
    assert made.guarantee.delta == 1e-5
    assert 1.9 < account(made.event, delta=1e-5).epsilon <= 2.0
    alone = plan(way="dp-sgd", epsilon=2.0, lot_size=200, epochs=3, head="none")
    assert alone.descent is not None
    assert (made.descent.noise_multiplier > alone.descent.noise_multiplier) == (head != "none")


@pytest.mark.parametrize("changes", [{}, {"delta": 0.0}, {"way": "dp-sgd", "lot_size": 100}])
def test_events_and_recipes_survive_json(changes):
    recipe = AutoEncoderRecipe(widths=(4, 2), **changes)
    assert AutoEncoderRecipe.from_dict(recipe.to_dict()) == recipe
    made = planned(recipe, 16, 2000, 3)
    assert event_from_dict(made.event.to_dict()) == made.event


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"widths": ()}, "widths"),
        ({"widths": (0,)}, "widths"),
        ({"way": "printed"}, "way must be one of functional, dp-sgd"),
        ({"head": "softmax"}, "head"),
        ({"head_share": 1.0}, "head_share"),
        ({"rounds": 0}, "rounds"),
        ({"gain": -1.0}, "gain"),
        ({"neighbours": "zero-out"}, "replace-one"),
        ({"way": "dp-sgd", "delta": 0.0}, "way='functional'"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_parameters_are_named_with_a_remedy(changes, said):
    with pytest.raises(ValueError, match=said):
        AutoEncoderRecipe(**changes)


def test_what_does_not_go_together_is_refused():
    recipe = AutoEncoderRecipe()
    with pytest.raises(ValueError, match="head must be 'none'"):
        planned(recipe, 16, 2000, None)
    with pytest.raises(ValueError, match="lot_size"):
        planned(replace(recipe, way="dp-sgd"), 16, 500, 3)
