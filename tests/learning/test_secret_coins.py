"""Generators that hold secret states for a batch, and the user's own before and after."""

# ruff: noqa: NPY002
import contextlib
import gc
import random

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.learning.secret_coins import ModelCoins, secret_generator, set_states


class Counting:
    """Coins that remember what they gave."""

    private = True

    def __init__(self, seed=5):
        self.inner, self.given = SeededCoins(seed), []

    def words(self, count):
        got = self.inner.words(count)
        self.given.append(got)
        return got


def drawn(n=700):
    """Numbers of all three generators: more than their states hold words."""
    return (
        torch.randint(2**31, (n,)).tolist(),
        np.random.randint(2**31, size=n).tolist(),
        [random.getrandbits(31) for _ in range(n)],
    )


def seeded(seed=0):
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def states():
    numeric = np.random.get_state()
    return torch.get_rng_state().tolist(), numeric[1].tolist(), numeric[2:], random.getstate()


@contextlib.contextmanager
def left_as_they_were():
    before = states()
    yield
    assert states() == before


def test_what_a_batch_draws_does_not_follow_from_any_seed():
    seeded()
    public = drawn()
    found = []
    for _ in range(2):
        seeded()
        with ModelCoins().batch():
            found.append(drawn())
    for one, two, known in zip(*found, public, strict=True):
        assert one != two
        assert known not in (one, two)


def test_every_batch_has_another_state():
    coins = ModelCoins()
    with coins.batch():
        first = drawn()
        coins.fresh()
        second = drawn()
    assert not any(one == two for one, two in zip(first, second, strict=True))


def test_the_whole_states_come_from_the_coins_and_from_nothing_else():
    coins = Counting()
    with ModelCoins(coins).batch():
        cpu, numeric, plain = torch.get_rng_state(), np.random.get_state(), random.getstate()
    (words,) = coins.given
    keys = words[:936].view(np.uint32).reshape(3, 624)
    assert cpu[24 : 24 + 8 * 624].view(torch.int64).tolist() == keys[0].tolist()
    assert numeric[1].tolist() == keys[1].tolist()
    assert plain[1] == (*keys[2].tolist(), 624)
    assert numeric[3] == 0  # no normal number is left from before
    assert plain[2] is None
    assert len(words) >= 3 * 19_937 // 64


def test_one_bit_of_any_word_matters():
    """A seed of torch's would forget the upper half of it."""
    found = []
    for flipped in (None, 0, 311, 312, 623, 624, 935):
        words = Counting().words(938 + 2 * torch.cuda.device_count()).copy()
        if flipped is not None:
            words[flipped] ^= np.uint64(1 << 33)
        coins = ModelCoins()
        with coins.batch():
            set_states(words)
            found.append(drawn())
    for which in range(3):
        kinds = {tuple(each[which]) for each in found}
        assert len(kinds) == 3  # as they were, and two words of its own flipped


def test_the_users_generators_come_back_as_they_were():
    seeded(3)
    np.random.standard_normal(3)  # an odd number: one more is kept for later
    random.gauss(0, 1)
    with left_as_they_were(), ModelCoins().batch():
        drawn()
    with left_as_they_were(), pytest.raises(KeyError), ModelCoins().batch():
        raise KeyError


def test_a_generator_of_the_users_choice_comes_back_to_numpy():
    before = np.random.get_bit_generator()
    own = np.random.PCG64(4)
    np.random.set_bit_generator(own)
    try:
        state = own.state
        with ModelCoins().batch():
            np.random.random()
        assert np.random.get_bit_generator() is own
        assert own.state == state
    finally:
        np.random.set_bit_generator(before)


def test_runs_that_are_open_in_turns_never_see_the_users_seed():
    seeded(1)
    with left_as_they_were():
        one, two = ModelCoins(), ModelCoins()
        one.fresh()
        two.fresh()
        held = states()
        one.give_back()  # the other's batch is out
        assert states() == held
        one.give_back()
        two.give_back()
        two.give_back()


def test_a_run_that_was_dropped_keeps_nobody_from_giving_back():
    seeded(1)
    with left_as_they_were():
        dropped = ModelCoins()
        dropped.fresh()
        del dropped
        gc.collect()
        with ModelCoins().batch():
            drawn()


def test_seeds_are_noticed_wherever_they_come_from():
    saved = torch.get_rng_state()
    own = secret_generator("cpu").get_state()
    for seed, whose in (
        (lambda: torch.manual_seed(0), "torch"),
        (lambda: torch.default_generator.manual_seed(5), "torch"),
        (lambda: torch.set_rng_state(saved), "torch"),
        (lambda: torch.set_rng_state(own), "torch"),
        (torch.seed, "torch"),
        (lambda: np.random.seed(0), "NumPy"),
        (lambda: np.random.set_state(np.random.RandomState(2).get_state()), "NumPy"),
        (lambda: np.random.set_bit_generator(np.random.PCG64(1)), "NumPy"),
        (lambda: random.seed(0), "Python"),
        (lambda: random.setstate(random.Random(1).getstate()), "Python"),
    ):
        with ModelCoins().batch():
            drawn()
            assert ModelCoins.replaced_since() is None
            seed()
            assert whose in ModelCoins.replaced_since()
            assert (ModelCoins.seeded_since() is not None) == (whose == "torch")


def test_states_that_are_put_back_are_no_seeds():
    with ModelCoins().batch(), torch.random.fork_rng():
        state, kept, plain = torch.get_rng_state(), np.random.get_state(), random.getstate()
        drawn(50_000)
        torch.set_rng_state(state)
        np.random.set_state(kept)
        random.setstate(plain)
        assert ModelCoins.replaced_since() is None


def test_draws_are_counted():
    with ModelCoins().batch():
        torch.rand(3)
        assert set(ModelCoins.drawn_since().values()) == {0}
        for _ in range(700):
            random.getrandbits(32)
        np.random.bytes(4 * 1500)
        assert list(ModelCoins.drawn_since().values()) == [1500, 700]
        random.seed(0)
        assert ModelCoins.drawn_since()["Python's random"] is None


def test_a_check_on_the_side_disturbs_nobody():
    with ModelCoins().batch():
        drawn()
        before = states()
        found = []
        for _ in range(2):
            with ModelCoins(SeededCoins(4)).aside():
                found.append(drawn())
        assert found[0] == found[1]
        assert states() == before
        assert ModelCoins.replaced_since() is None
    with left_as_they_were(), ModelCoins().aside():
        drawn()


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x, 0.5),
        lambda x: F.dropout(x.bfloat16(), 0.5),
        lambda x: torch.rand_like(x),
        lambda x: torch.randn_like(x),
        lambda x: x.bernoulli_(0.5),
        lambda x: torch.bernoulli(x / 2),
        lambda x: x.exponential_(),
        lambda x: torch.randint_like(x, 2),
    ],
)
def test_torch_draws_each_number_from_words_of_its_own(draw):
    """Some of its builds once seeded another generator by 32 bits at each call."""
    torch.manual_seed(0)
    torch.rand(1)
    before = torch.get_rng_state()[8:24].view(torch.int32)
    draw(torch.ones(100))
    after = torch.get_rng_state()[8:24].view(torch.int32)
    assert before[0] - after[0] >= 100  # words left until the next twist


def test_test_coins_repeat_themselves_and_say_so():
    found = []
    for _ in range(2):
        coins, own = SeededCoins(7), []
        made = ModelCoins(coins)
        for _ in range(2):
            with made.batch():
                own.append(drawn())
        found.append(own)
        assert (coins.words(2) == SeededCoins(7).words(2)).all()  # lots and noise are as ever
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]
    assert ModelCoins(SeededCoins(7)).source == "test coins"
    assert "operating system" in ModelCoins().source


def test_a_generator_of_its_own_takes_its_whole_state_from_coins():
    generator = torch.Generator().manual_seed(2**32 + 5)
    assert generator.get_state()[24:32].view(torch.int64).tolist() == [5]  # 32 bits alone
    coins = Counting()
    started = secret_generator(torch.device("cpu"), coins)
    words = started.get_state()[24 : 24 + 8 * 624].view(torch.int64)
    assert words.tolist() == (coins.given[1] & np.uint64(0xFFFFFFFF)).tolist()
    same, other = (secret_generator("cpu", SeededCoins(seed)) for seed in (5, 6))
    draws = [torch.randn(4, generator=g) for g in (started, same, other)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(
        *(torch.randn(4, generator=secret_generator("cpu", SYSTEM)) for _ in "ab")
    )
