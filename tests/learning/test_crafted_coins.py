"""States whose next numbers are chosen: near 0, near 1, or all the same."""

# ruff: noqa: NPY002
import random

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.learning.crafted_coins import EVEN, RARE, untempered
from sfumato.learning.secret_coins import ModelCoins

COINS = ModelCoins(SeededCoins(3))


def uniform():
    return np.random.random(), float(torch.rand(())), random.random()


@pytest.mark.parametrize("word", [1, 0xFFFFFFFF, 0x12345678, 42_949])
def test_any_output_has_a_word(word):
    generator = np.random.MT19937(0)
    state = generator.state
    state["state"]["key"][:], state["state"]["pos"] = untempered(word), 0
    generator.state = state
    assert set(generator.random_raw(624).tolist()) == {word}
    assert set(generator.random_raw(624).tolist()) != {word}  # no sampler waits for ever


@pytest.mark.parametrize("level", RARE)
def test_the_first_number_is_near_the_end(level):
    with COINS.aside(level):
        assert np.allclose(uniform(), level.numpy, atol=1e-4)
        following = np.random.random(4)
        assert (np.ptp(following) > 0.01) == level.first
        assert ModelCoins.replaced_since() is None


@pytest.mark.parametrize("level", RARE)
def test_samplers_that_reject_come_to_an_end(level):
    with COINS.aside(level):
        np.random.standard_normal(99), np.random.beta(0.8, 0.8, 99), np.random.permutation(99)
        random.shuffle([*range(99)]), random.betavariate(0.8, 0.8), torch.randperm(99)
        assert ModelCoins.replaced_since() is None


def test_even_coins_give_the_same_in_every_place():
    with COINS.aside(EVEN):
        assert len(set(np.random.standard_normal(20).tolist())) == 1
        assert np.ptp([random.gauss(0, 1) for _ in range(20)]) < 1e-6
        assert len(set(torch.rand(20).tolist())) == 1


def test_words_are_counted_from_a_crafted_state_as_from_another():
    for level in (None, EVEN):
        with COINS.aside(level):
            assert set(ModelCoins.drawn_since().values()) == {0}
            for count in (3, 700, 2_000):
                before = ModelCoins.drawn_since()["NumPy's global generator"]
                np.random.get_bit_generator().random_raw(count)
                after = ModelCoins.drawn_since()["NumPy's global generator"]
                assert after - before == count


def test_what_a_batch_draws_after_a_crafted_one_is_ordinary():
    found = []
    for _ in range(2):
        COINS.fresh(RARE[1])
        COINS.fresh()
        found.append(uniform())
        COINS.give_back()
    assert not np.allclose(*found, atol=1e-4)
