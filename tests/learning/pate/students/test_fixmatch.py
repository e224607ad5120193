import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.learning.pate.students import FixMatch, accuracy_of
from sfumato.learning.pate.students.data import public_data


def stripes(rows, seed=0):
    """Images with stripes that lie or stand, and their classes."""
    coins = torch.Generator().manual_seed(seed)
    labels = torch.arange(rows) % 2
    standing = (torch.arange(8) // 2 % 2).float().expand(1, 8, 8)
    both = torch.stack([standing.transpose(1, 2), standing])
    return 0.5 * both[labels] + 0.5 * torch.rand(rows, 1, 8, 8, generator=coins), labels


@given(steps=st.integers(1, 60), rounds=st.integers(0, 8), share=st.floats(0, 1))
def test_rounds_are_within_their_share_and_as_many_as_asked(steps, rounds, share):
    plan = FixMatch(steps=steps, rounds=rounds, spread_until=share)
    begun = [number for number in range(steps) if plan.begins_round(number)]
    assert len(begun) == min(rounds, plan.spreading_steps)
    assert all(number < plan.spreading_steps for number in begun)
    assert not plan.spreading_steps or begun[0] == 0  # guesses are there before they are used


def learned(**settings):
    """A learner after its last step, whose label number 3 was wrong."""
    images, truth = stripes(80)
    labels = truth[:16].clone()
    labels[3] = 1 - labels[3]
    plan = FixMatch(classes=2, steps=120, width=4, unlabelled_batch=40, **settings)
    torch.manual_seed(0)
    learner = plan.learner(public_data(images[16:], images[:16], labels, 2, "cpu"), 0)
    for number in range(plan.steps):
        learner.step(number)
    return learner.parts["guesses"].state_dict()["believed"], learner.result(), truth


def test_a_label_is_put_aside_where_the_student_is_surer_than_doubt_of_another():
    images, _ = stripes(4)
    data = public_data(None, images, torch.tensor([0, 0, 0, 1]), 2, "cpu")
    learner = FixMatch(classes=2, doubt=0.8, width=2).learner(data, 0)
    answers = torch.tensor([[0.1, 0.9], [0.21, 0.79], [0.9, 0.1], [0.19, 0.81]])
    learner._doubt(answers)
    assert learner.guesses.believed.tolist() == [False, True, True, True]
    learner._doubt(answers.flip(1))  # it may think otherwise later
    assert learner.guesses.believed.tolist() == [True, True, False, False]


def test_a_wrong_label_is_put_aside_and_no_right_one():
    believed, network, truth = learned(average=0.9, spread_until=1.0)
    assert (~believed).nonzero().squeeze(1).tolist() == [3]
    assert accuracy_of(network, stripes(80)[0], truth) == 1.0


def test_no_label_is_put_aside_where_doubt_is_off():
    assert learned(average=0.9, spread_until=1.0, doubt=1.0)[0].all()


def test_plain_fixmatch_needs_no_graph():
    images, truth = stripes(80)
    plan = FixMatch(classes=2, steps=60, width=4, rounds=0, labelled_weight=1.0, average=0.9)
    assert accuracy_of(plan.fit(images, images[:16], truth[:16]), images, truth) == 1.0


def test_without_unlabelled_inputs_it_learns_from_the_labelled_ones():
    images, truth = stripes(40)
    plan = FixMatch(classes=2, steps=40, width=4, average=0.9)
    assert accuracy_of(plan.fit(None, images, truth), images, truth) == 1.0


def test_bad_settings_are_named():
    for name, value in (("confidence", 1.5), ("rounds", -1), ("strength", 2), ("neighbours", 0)):
        with pytest.raises(ValueError, match=f"{name} must be"):
            FixMatch(**{name: value})
