import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.learning.pate.students import (
    choose,
    choose_centres,
    choose_random,
    choose_spread,
    choose_typical,
    choose_uncertain,
)

RULES = ["random", "spread", "centres", "typical"]


@pytest.mark.parametrize("rule", RULES)
@given(rows=st.integers(1, 30), seed=st.integers(0, 10), data=st.data())
def test_chosen_are_new_distinct_and_repeatable(rule, rows, seed, data):
    inputs = torch.rand(rows, 3, generator=torch.Generator().manual_seed(seed)).round(decimals=1)
    asked = data.draw(st.lists(st.integers(0, rows - 1), max_size=rows - 1, unique=True))
    count = data.draw(st.integers(1, rows - len(asked)))
    before = torch.tensor(asked, dtype=torch.int64)
    found = choose(rule, count, inputs, asked=before, seed=seed)
    assert len(set(found.tolist()) | set(asked)) == count + len(asked)
    assert torch.equal(found, choose(rule, count, inputs, asked=before, seed=seed))


@pytest.mark.parametrize("rule", RULES)
def test_copies_of_one_input_can_all_be_asked_about(rule):
    assert sorted(choose(rule, 5, np.zeros((5, 2), np.float32)).tolist()) == list(range(5))


def test_random_chooses_each_as_often():
    counts = torch.zeros(4)
    for seed in range(2000):
        counts[choose_random(1, torch.zeros(4, 1), seed=seed)] += 1
    # A standard deviation is 19.4; 4 of them are 15 % of 500.
    assert (counts - 500).abs().max() < 78


def test_spread_chooses_by_the_squared_distance():
    """From 0, the row at 3 comes with probability 9 / (9 + 1) before that at 1."""
    inputs = torch.tensor([[0.0], [1.0], [3.0]])
    asked = torch.tensor([0])
    far = sum(int(choose_spread(1, inputs, asked=asked, seed=s)) == 2 for s in range(2000))
    # By the plain distance it would be 1500; a standard deviation is 13.4.
    assert abs(far - 1800) < 54


@given(seed=st.integers(0, 1000), count=st.integers(1, 4))
def test_centres_are_within_twice_the_best_radius(seed, count):
    from itertools import combinations

    inputs = torch.rand(8, 2, generator=torch.Generator().manual_seed(seed))
    distances = torch.cdist(inputs, inputs, compute_mode="donot_use_mm_for_euclid_dist")

    def radius(centres):
        return float(distances[:, list(centres)].min(1).values.max())

    found = radius(choose_centres(count, inputs, seed=seed).tolist())
    best = min(radius(centres) for centres in combinations(range(8), count))
    assert found <= 2 * best + 1e-5


def test_centres_take_the_farthest():
    inputs = torch.tensor([[0.0], [10.0], [4.0], [5.5]])
    assert choose_centres(2, inputs, asked=torch.tensor([0])).tolist() == [1, 3]


@pytest.mark.parametrize("seed", range(5))
def test_typical_takes_the_middle_of_each_heap(seed):
    """Four heaps far apart, each of a middle and eight around it; an odd one is left alone."""
    middles = 100 * torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    around = torch.cartesian_prod(*[torch.tensor([-1.0, 0, 1])] * 2)
    inputs = (middles[:, None] + around).flatten(0, 1)
    found = choose_typical(4, inputs, seed=seed)
    assert found.sort().values.tolist() == [4, 13, 22, 31]


def test_uncertain_takes_the_least_margin_that_is_new():
    logits = torch.tensor([[3.0, 0.0, 0.0], [1.0, 0.9, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    student = torch.nn.Linear(3, 3, bias=False)
    with torch.no_grad():
        student.weight.copy_(torch.eye(3))
    assert choose_uncertain(3, logits, student).tolist() == [3, 1, 2]
    assert choose_uncertain(1, logits, student, asked=torch.tensor([3])).tolist() == [1]
    among = choose_uncertain(1, logits, student, pool=1, seed=5)
    assert among.tolist() == choose_random(1, logits, seed=5).tolist()


def test_bad_parameters_are_named():
    inputs = torch.rand(3, 2)
    with pytest.raises(
        ValueError, match="rule must be one of random, spread, centres, typical, got 'best'"
    ):
        choose("best", 1, inputs)
    with pytest.raises(ValueError, match="count must be at most the 3"):
        choose_random(4, inputs)
    with pytest.raises(ValueError, match="asked must be numbers of rows, from 0 to 2"):
        choose_random(1, inputs, asked=torch.tensor([3]))
    with pytest.raises(ValueError, match="count must be a whole number"):
        choose_random(0, inputs)
