"""Secret coins for what a model draws: dropout masks, augmentations, a collator's choices.

    coins = ModelCoins()
    with coins.batch():
        losses = loss(model, x, y)   # torch's, NumPy's and Python's generators hold fresh secrets

Private training clips what each row adds to a sum. With masks that others know, one row more shifts
everybody's masks, and the sum moves by many clip norms (44 were measured). With secret ones it does
not:

**Theorem.** Let row i's part of a step's sum be f(x_i, M_i), of norm C at most, where the masks
M_i are independent and identically distributed whatever the batch holds, are drawn afresh for each
step, and are not seen. Then the step costs what the Gaussian mechanism of sensitivity C costs.
*Proof.* Let S and S' = S + {x} be neighbouring lots. Draw (m_i) for the rows of S, and m for x; use
the same m_i in both runs. That is a coupling, because the law of the common rows' masks does not
depend on x. Given all masks, the sums differ by f(x, m), of norm C at most. So at every (m_i), m
the two noisy sums are as close as the Gaussian mechanism makes them, in both directions. The
outputs are mixtures of these over one law of (m_i), m, and the hockey-stick divergence is jointly
convex: the mixtures are as close. (So are Renyi divergences and trade-off functions.) Sampling
enters as ever: given the other rows' coins, a sampled lot is one of the pair. Steps compose
adaptively, because each has fresh masks that do not depend on what was released.

What is needed, and how it is had:

- *Secret and fresh.* Before the rows of a physical batch are fetched, every generator gets a state
  drawn from :data:`~sfumato.core.randomness.SYSTEM`. On the CPU (torch, NumPy's global generator,
  Python's ``random``) that is the whole state of MT19937, 19,937 bits. A seed would not do: torch
  reduces it to 32 bits, which can be tried out. On CUDA it is Philox's 64-bit key and 60 bits of
  its counter. CUDA graphs read both at each replay. Steps compiled for a GPU draw from Philox under
  64-bit keys that they take from these generators; those compiled for a CPU draw as torch does.
- *Independent and identically distributed.* Rows read different words of one stream. From a
  uniform state any 623 words in a row of MT19937 are exactly independent and uniform, and so are
  any bits of it that are linearly independent as functions of the state. Beyond that they are
  *taken for* independent and uniform, as Philox's are under a secret key: neither is a
  cryptographic generator, and the observer sees masks through noisy sums alone.
- *Each row draws its own.* What is drawn once for a batch (a layer dropped for all rows) is common
  to all rows of that batch. It is covered where a lot is one batch. Where a lot is cut into several
  batches, one row more moves others to the next batch; the rehearsal refuses it there.

Cost. A run's masks cannot be repeated, as its lots and its noise never could be. First weights can:
seed torch before the model is made. The user's own generators are put back after each batch, as
they were. :class:`~sfumato.core.randomness.SeededCoins` make masks repeatable in tests, and the
record says that the run is not private.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import random
import threading
import weakref
from collections.abc import Generator
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sfumato.core.randomness import SYSTEM, Coins, SeededCoins, Words
from sfumato.learning.crafted_coins import KEY as _KEY
from sfumato.learning.crafted_coins import Level, crafted

__all__ = ["ModelCoins", "secret_generator", "set_states"]

_SEED_AT, _LEFT_AT, _STATE_AT = 0, 1, 3  # in 64-bit words of torch's CPU state
_SEEDED = 1 << 32
_OWN_STREAM = 0x6D61736B
_NUMPYS: Any = np.random  # NumPy's global generator
_TWISTS = 1 << 14  # ten million draws in one batch of a rehearsal


class _Kept(NamedTuple):
    """All generators, as they were, and what was known of their states."""

    plain: Any
    generator: Any
    numeric: Any
    cpu: Tensor
    devices: list[Tensor]
    other: Any
    known: _Known | None


class _Known(NamedTuple):
    """The states that were set last: seeds of torch's generators, keys of NumPy's and Python's."""

    cpu: int
    devices: list[int]
    numeric: NDArray[np.uint32]
    plain: NDArray[np.uint32]
    place: int
    """From which word on the keys are read; at the end they are twisted first."""


@final
class ModelCoins:
    """Fresh states for this process's generators, and the user's own back afterwards.

    The generators are global, and several runs may be open in turns: the user's states come back
    when the last of them gives back.

    Args:
        coins: where states come from.
    """

    def __init__(self, coins: Coins = SYSTEM) -> None:
        if isinstance(coins, SeededCoins):  # a stream of its own, beside those of lots and noise
            self._coins: Coins = SeededCoins((coins.seed << 32) + _OWN_STREAM)
        else:
            self._coins = coins if coins.private else SYSTEM

    @property
    def source(self) -> str:
        """For records."""
        if not self._coins.private:
            return "test coins"
        return "fresh entropy of the operating system for each batch"

    def draw(self) -> Words:
        """What one batch needs, for :func:`set_states` in a worker process."""
        # Three MT19937 states, a mark, a seed for other devices, a key and a counter for each GPU.
        return self._coins.words(3 * _KEY // 2 + 2 + 2 * _gpus())

    def fresh(self, level: Level | None = None) -> None:
        """Gives all generators a fresh state; to be called before a batch's rows are fetched.

        Args:
            level: in a rehearsal, what they give next.
        """
        with _LOCK:
            _LENT.borrow(self)
            _LENT.set(self.draw(), level)

    def give_back(self) -> None:
        """The user's generators as they were; nothing if they are."""
        with _LOCK:
            _LENT.give_back(self)

    @contextlib.contextmanager
    def batch(self, level: Level | None = None) -> Generator[None]:
        """A fresh state for the block, and the user's own afterwards."""
        self.fresh(level)
        try:
            yield
        finally:
            self.give_back()

    @contextlib.contextmanager
    def aside(self, level: Level | None = None) -> Generator[None]:
        """A state from these coins for the block, and afterwards whatever there was.

        For checks on made-up rows, while this run's batch, or another's, may be out.

        Args:
            level: what the generators give next.
        """
        with _LOCK:
            kept = _LENT.kept()
            _LENT.set(self.draw(), level)
        try:
            yield
        finally:
            with _LOCK:
                _LENT.put_back(kept)

    @staticmethod
    def seeded_since() -> str | None:
        """Whose generator was seeded, or set, since it got its state; None if none was.

        Torch's are recognised by the seed in their state, at no cost.
        """
        return _LENT.seeded_torch()

    @staticmethod
    def replaced_since() -> str | None:
        """As :meth:`seeded_since`, also for NumPy and Python: whether drawing leads to their state.

        Takes up to a tenth of a second where much was drawn: for rehearsals.
        """
        if (whose := _LENT.seeded_torch()) is not None:
            return whose
        return next((whose for whose, count in _LENT.drawn().items() if count is None), None)

    @staticmethod
    def drawn_since() -> dict[str, int | None]:
        """How many 32-bit words NumPy and Python drew since; None where others were put in."""
        return _LENT.drawn()


class _Lent:
    """The process's generators while they hold secret states."""

    def __init__(self) -> None:
        self._borrowers: weakref.WeakSet[ModelCoins] = weakref.WeakSet()
        self._users: _Kept | None = None
        self._twister = np.random.MT19937(0)
        self._memory = _memory_of(self._twister)
        self._cpu = torch.Generator().manual_seed(0).get_state()
        self._cpu_words: NDArray[np.uint64] = self._cpu.numpy().view(np.uint64)
        self._known: _Known | None = None
        self._queued = False

    def borrow(self, borrower: ModelCoins) -> None:
        if self._users is None:
            self._users = self.kept()
        self._borrowers.add(borrower)

    def give_back(self, borrower: ModelCoins) -> None:
        self._borrowers.discard(borrower)
        users = self._users
        if users is not None and not len(self._borrowers):
            self._users = None
            self.put_back(users)

    def kept(self) -> _Kept:
        return _Kept(
            random.getstate(), _NUMPYS.get_bit_generator(), _NUMPYS.get_state(legacy=False),
            torch.default_generator.get_state(), [g.get_state() for g in _on_cuda()],
            _other_state(), self._known,
        )  # fmt: skip

    def put_back(self, kept: _Kept) -> None:
        random.setstate(kept.plain)
        _NUMPYS.set_bit_generator(kept.generator)
        if kept.generator is self._twister or kept.numeric["has_gauss"]:
            _NUMPYS.set_state(kept.numeric)  # with the normal number that waits for its call
        torch.default_generator.set_state(kept.cpu)
        for generator, state in zip(_on_cuda(), kept.devices, strict=False):
            generator.set_state(state)
        _set_other(kept.other)
        self._known = kept.known

    def set(self, words: Words, level: Level | None = None) -> None:
        """All generators' states from ``words``, but for what a level asks for."""
        keys, place = words[: 3 * _KEY // 2].view(np.uint32).reshape(3, _KEY), _KEY
        if level is not None:
            keys, place = crafted(keys, level), 0
        more = words[3 * _KEY // 2 :]
        # torch, CPU
        self._cpu_words[_SEED_AT] = more[0] >> np.uint64(1)
        self._cpu_words[_STATE_AT : _STATE_AT + _KEY] = keys[0]
        self._cpu_words[_LEFT_AT] = _SEEDED + (_KEY if place == 0 else 1)  # until the twist
        torch.default_generator.set_state(self._cpu)
        # NumPy: a generator of ours in place of the user's
        self._memory[:_KEY], self._memory[_KEY] = keys[1], place
        _NUMPYS.set_bit_generator(self._twister)
        # Python
        random.setstate((3, (*keys[2].tolist(), place), None))
        devices = self._set_devices(more[1:])
        self._known = _Known(int(self._cpu_words[_SEED_AT]), devices, keys[1], keys[2], place)

    def _set_devices(self, words: Words) -> list[int]:
        """CUDA: a 64-bit key and a 62-bit counter for each device; elsewhere a seed."""
        _set_other_seed(int(words[0] >> np.uint64(1)))
        places = words[1:].reshape(-1, 2)
        if torch.cuda.is_initialized():
            marks: list[int] = []
            for generator, place in zip(_on_cuda(), places, strict=False):
                key, counter = int(place[0]), int(place[1] >> np.uint64(2)) & ~3
                state = np.array([key, counter], dtype=np.uint64).view(np.uint8)
                generator.set_state(torch.from_numpy(state))
                marks.append(key)
            return marks
        if not self._queued and len(places) and not torch.cuda._is_in_bad_fork():
            self._queued = True  # a seed of the user's may be waiting for the first use
            torch.cuda.manual_seed_all(int(places[0, 0] >> np.uint64(1)))
        return []

    def seeded_torch(self) -> str | None:
        known = self._known
        if known is None:
            return None
        if torch.default_generator.initial_seed() != known.cpu:
            return "torch's generator on the CPU"
        for number, (generator, seed) in enumerate(zip(_on_cuda(), known.devices, strict=False)):
            if generator.initial_seed() != seed:
                return f"torch's generator on cuda:{number}"
        return None

    def drawn(self) -> dict[str, int | None]:
        known = self._known
        if known is None:
            return {}
        *key, place = random.getstate()[1]
        plain = np.array([*key, place], dtype=np.uint32)
        own = _NUMPYS.get_bit_generator() is self._twister
        return {
            "NumPy's global generator": (
                _words_to(known.numeric, known.place, self._memory) if own else None
            ),
            "Python's random": _words_to(known.plain, known.place, plain),
        }


@functools.cache
def _gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _on_cuda() -> tuple[torch.Generator, ...]:
    return tuple(torch.cuda.default_generators) if torch.cuda.is_initialized() else ()


@functools.cache
def _other() -> Any:
    """The module of an accelerator that is not CUDA, or None."""
    device = torch.accelerator.current_accelerator()
    if device is None or device.type == "cuda":
        return None
    return torch.get_device_module(device)


def _other_state() -> Any:
    module = _other()
    return None if module is None else module.get_rng_state()


def _set_other(state: Any) -> None:
    if state is not None:
        _other().set_rng_state(state)


def _set_other_seed(seed: int) -> None:
    module = _other()
    if module is not None:
        module.manual_seed(seed)


def _memory_of(twister: Any) -> NDArray[np.uint32]:
    """The generator's own memory: its key, then its place in it."""
    held: Any = (ctypes.c_uint32 * (_KEY + 1)).from_address(twister.ctypes.state_address)
    return np.frombuffer(held, dtype=np.uint32)


def _words_to(start: NDArray[np.uint32], first: int, end: NDArray[np.uint32]) -> int | None:
    """How many words are drawn from an MT19937 key and place to others; None if never."""
    key, place = end[:_KEY], int(end[_KEY])
    if np.array_equal(start, key):
        return place - first if place >= first else None
    twister = np.random.MT19937(0)
    memory = _memory_of(twister)
    memory[:_KEY], memory[_KEY] = start, _KEY
    raw, second = twister.random_raw, key[1]
    for twist in range(1, _TWISTS + 1):
        raw(_KEY, False)
        if memory[1] == second and np.array_equal(memory[:_KEY], key):
            return twist * _KEY + place - first
    return None


_LOCK = threading.RLock()
_LENT = _Lent()


def set_states(words: Words) -> None:
    """Gives the generators of this process the states that :meth:`ModelCoins.draw` drew.

    For processes that do nothing else: nobody's generators are put back.
    """
    _LENT.set(words)


def secret_generator(device: torch.device | str, coins: Coins = SYSTEM) -> torch.Generator:
    """A generator of its own in a state that only ``coins`` determine."""
    generator = torch.Generator(device)
    generator.manual_seed(int(coins.words(1)[0]))
    if generator.device.type == "cpu":
        # A seed sets 32 bits of the twister, which can be tried out: set all of its words.
        state = generator.get_state()
        held: NDArray[np.uint64] = state.numpy().view(np.uint64)
        held[_STATE_AT : _STATE_AT + _KEY] = coins.words(_KEY) & np.uint64(0xFFFFFFFF)
        generator.set_state(state)
    return generator
