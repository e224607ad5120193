"""Random numbers that do not come from the secret coins: found before anything is spent, refused.

Before each batch all generators get fresh secret states
(:mod:`~sfumato.learning.secret_coins`). A loop that seeds one of them again while a batch is out,
or draws from a generator of its own, undoes that: whoever knows the seed knows the masks. So while
the user's code runs on made-up rows, it is watched:

- A call that seeds torch's, NumPy's or Python's generators, or that makes a generator from a seed,
  is refused when it is made (:class:`Watched`), also if the state is put back afterwards.
- A draw with a ``generator=`` of its own is refused, and so is a draw from torch's generator after
  it was set to another state, in whatever way.
- A generator that a model, a data set, a collate, an augment or a loss holds is refused, whether or
  not it was used yet (:func:`refuse_held`).
- After each turn, the states of NumPy's and Python's generators must be such as drawing leads to.

States that are put back as they were are no seeds: ``torch.utils.checkpoint`` does that.

Some draws are right by themselves and wrong in company. What is drawn once for a batch, or dealt
out among its rows (``randperm``), makes rows' masks depend on who else is in the batch; see
:class:`Draws`.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from sfumato.core.randomness import SeededCoins
from sfumato.learning.crafted_coins import Level
from sfumato.learning.dp_sgd.callers import called_by_a_library, caller, is_installed, is_own_affair
from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.gradients.uses import function_name
from sfumato.learning.dp_sgd.numpy_seeds import NUMPYS
from sfumato.learning.secret_coins import ModelCoins

__all__ = [
    "Draws",
    "Noted",
    "Watched",
    "drawn_by",
    "is_draw",
    "rarest",
    "refuse_held",
    "refuse_other_coins",
    "refuse_seeds",
    "refuse_shared",
    "refuse_unrepeated",
    "same_coins",
]

_REMEDY = (
    "whoever knows a seed knows the masks, and one row more or less then shows in everybody's. "
    "Every batch has fresh secret coins: draw from torch's, NumPy's or Python's own functions, "
    "without a seed and without generator=. (To repeat first weights, seed before the model is "
    "made; to repeat a test, give coins=SeededCoins(...))"
)
_DRAWS = frozenset(
    {
        "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "normal",
        "normal_", "uniform_", "bernoulli", "bernoulli_", "random_", "exponential_", "geometric_",
        "cauchy_", "log_normal_", "multinomial", "poisson", "binomial", "rrelu", "rrelu_",
        "_standard_gamma", "_sample_dirichlet", "gumbel_softmax",
    }
)  # fmt: skip


def refuse_seeds(whose: str | None) -> None:
    """Raises if a generator was seeded, or set to a state, while a batch was out.

    Args:
        whose: generator; None if none was.
    """
    if whose is not None:
        raise TrainingError(
            f"{whose} was seeded, or set to a state, while a batch was out: {_REMEDY}"
        )


def _refuse_own(what: str) -> NoReturn:
    raise TrainingError(f"{what}: {_REMEDY}")


# --- calls --------------------------------------------------------------------------------------


class Watched:
    """While the block runs, this thread's calls that seed a generator, or make one, are refused.

    What is refused is also kept, and raised at the end of the block if the user's code swallowed
    it. At the end, too, all generators must be in states that drawing leads to.
    """

    def __init__(self) -> None:
        self._found: TrainingError | None = None
        self._thread = 0
        self._active = False
        self._open = ExitStack()
        self.entropy: set[int] = set()  # with which NumPy's generators began that have no seed

    def __enter__(self) -> Watched:
        self._found, self._thread, self._active = None, threading.get_ident(), True
        for holder, name, stand in _CALLS:
            real = vars(holder)[name]
            setattr(holder, name, stand(real, f"{holder.__name__}.{name}", self))
            self._open.callback(setattr, holder, name, real)
        for holder, name, stand in NUMPYS:
            real = vars(holder)[name]
            setattr(holder, name, stand(real, self))
            self._open.callback(setattr, holder, name, real)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._active = False
        self._open.close()
        self.entropy.clear()
        if kind is None:
            if self._found is not None:
                raise self._found
            refuse_seeds(ModelCoins.replaced_since())

    def calls(self, draws: Draws | None = None) -> TorchFunctionMode:
        """A context that looks at every torch function, too.

        Not for a block that a user's loop body runs in: there the model's forward pass is looked
        at instead.

        Args:
            draws: notes what is drawn for whom.
        """
        return _Calls(self, draws)

    def rest(self) -> None:
        """What follows in the block may seed what it likes, as our own code does."""
        self._active = False

    def refuse(self, what: str) -> None:
        """Raises, if the block is running in this thread."""
        if self._active and threading.get_ident() == self._thread:
            try:
                _refuse_own(what)
            except TrainingError as error:
                self._found = self._found or error
                raise


class _Calls(TorchFunctionMode):
    """Looks at all draws of torch's."""

    def __init__(self, watched: Watched, draws: Draws | None) -> None:
        super().__init__()
        self._watched, self._draws = watched, draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if not is_draw(func, args, kwargs):
            return func(*args, **kwargs)
        problem = _problem_of(func, kwargs)
        if problem is not None and not caller().startswith(_BESIDE):
            self._watched.refuse(problem)
        out = func(*args, **kwargs)
        if self._draws is not None:
            self._draws.note(func, out)
        return out


def is_draw(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a torch function draws random numbers."""
    name = function_name(func)
    if name == "scaled_dot_product_attention":
        return bool(kwargs.get("dropout_p") or (len(args) > 4 and args[4]))
    return name in _DRAWS or "dropout" in name


def refuse_other_coins(func: Any, kwargs: Mapping[str, Any]) -> None:
    """Raises if a draw of torch's does not come from the secret coins."""
    problem = _problem_of(func, kwargs)
    if problem is not None:
        _refuse_own(problem)


def _problem_of(func: Any, kwargs: Mapping[str, Any]) -> str | None:
    """Why a draw does not come from the secret coins; None if it does."""
    generator = kwargs.get("generator")
    if generator is not None and not _is_global(generator):
        return f"{function_name(func)} draws from a generator of its own (generator=)"
    seeded = ModelCoins.seeded_since()
    return None if seeded is None else f"{function_name(func)} draws after {seeded} was seeded"


class _Stand:
    """In the place of a function or class of a library while code is watched."""

    def __init__(self, real: Any, name: str, watched: Watched) -> None:
        self._real, self._name, self._watched = real, name, watched

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [each for each in (*args, *kwargs.values()) if each is not None]
        if "seed" in self._name and given:  # of everybody's generator
            self._watched.refuse(f"{self._name} was called while a batch was out")
        elif (given or self._real is torch.Generator) and not self._is_own_affair():
            self._watched.refuse(f"{self._name} made a generator of its own while a batch was out")
        return self._real(*args, **kwargs)

    def _is_own_affair(self) -> bool:
        return is_own_affair() if self._name.startswith("numpy") else called_by_a_library()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    # Whoever meets a class meanwhile must be able to use it as one.

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._real)

    def __subclasscheck__(self, subclass: Any) -> bool:
        return issubclass(getattr(subclass, "_real", subclass), self._real)

    def __mro_entries__(self, bases: Any) -> tuple[Any, ...]:
        return (self._real,)

    def __or__(self, other: Any) -> Any:
        return self._real | other

    def __ror__(self, other: Any) -> Any:
        return other | self._real


def _seed_method(real: Any, name: str, watched: Watched) -> Any:
    """For the method by which Python's generators begin, which must be a function to be one."""

    @functools.wraps(real)
    def seed(self: Any, a: Any = None, *args: Any, **kwargs: Any) -> Any:
        if a is not None and not called_by_a_library():
            watched.refuse("random.Random made a generator of its own while a batch was out")
        return real(self, a, *args, **kwargs)

    return seed


_CALLS: list[tuple[Any, str, Callable[[Any, str, Watched], Any]]] = [
    *((module, "manual_seed", _Stand) for module in (torch, torch.random, torch.cuda)),
    (torch.cuda, "manual_seed_all", _Stand),
    (torch, "Generator", _Stand),
    (random, "seed", _Stand),
    (random.Random, "seed", _seed_method),
    *((np.random, name, _Stand) for name in ("seed", "default_rng", "RandomState")),
    *((np.random, name, _Stand) for name in ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")),
]


# --- what is held -------------------------------------------------------------------------------

_KINDS = (
    torch.Generator, np.random.Generator, np.random.RandomState, np.random.BitGenerator,
    random.Random,
)  # fmt: skip
_MODULES_OWN = frozenset(vars(nn.Module())) - {"_modules"}
_PLAIN = (str, bytes, int, float, complex, bool, type(None), Tensor, np.ndarray)
_BESIDE = ("torch.utils.data", "sfumato.")  # draw what is no row's
_OURS = frozenset(  # what a loss may refer to, and has no part in it
    {
        "sfumato.core.randomness",
        "sfumato.learning.dp_sgd.looping",
        "sfumato.learning.huggingface.trainer",
    }
)
_LISTS = (list, tuple, set, frozenset, deque)
_MOST, _DEPTH, _FEW = 100_000, 12, 64


def refuse_held(**holders: Any) -> None:
    """Raises if one of these holds a generator of its own, in itself or in what it refers to.

    Args:
        holders: by their names; None for what is not there.
    """
    for name, holder in holders.items():
        found = _held(holder)
        if found is not None:
            path, kind = found
            place = f" at {path.lstrip('. ')}" if path else ""
            _refuse_own(f"{name} holds a generator of its own{place} (a {kind})")


def _held(root: Any) -> tuple[str, str] | None:
    """Where, and of what kind; looked for breadth first, among a bounded number of objects."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    for path, value, depth in waiting:  # grows
        if id(value) in seen or len(seen) > _MOST:
            continue
        seen.add(id(value))
        if isinstance(value, _KINDS):
            if _is_global(value) or isinstance(value, random.SystemRandom):
                continue
            return path, f"{type(value).__module__}.{type(value).__name__}"
        if depth < _DEPTH:
            waiting.extend((path + more, part, depth + 1) for more, part in _parts(value))
    return None


def _is_global(generator: Any) -> bool:
    """Whether it is one of those that get secret states."""
    own: list[Any] = [torch.default_generator, np.random.mtrand._rand, random._inst]  # type: ignore
    own.append(np.random.get_bit_generator())  # type: ignore
    if torch.cuda.is_initialized():
        own.extend(torch.cuda.default_generators)
    return any(generator is each for each in own)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What an object refers to, as far as generators may be hidden there."""
    if isinstance(value, (*_PLAIN, ModuleType, type, CodeType)):
        return
    if any(kind.__module__ in _OURS for kind in type(value).__mro__):
        return
    if isinstance(value, dict):
        for key, item in itertools.islice(dict.items(value), _FEW):
            yield f"[{key!r}]" if isinstance(key, (str, int)) else "[...]", item
    elif isinstance(value, _LISTS):
        kind: Any = next(kind for kind in _LISTS if isinstance(value, kind))
        for place, item in enumerate(itertools.islice(kind.__iter__(value), _FEW)):
            yield f"[{place}]", item
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, (MethodType, BuiltinMethodType, staticmethod, classmethod)):
        yield "", getattr(value, "__self__", None)
        yield "", getattr(value, "__func__", None)
    elif isinstance(value, FunctionType):
        yield from _of_function(value)
    yield from _of_object(value)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Defaults, what it closes over, and the global names that it reads."""
    if _of_a_library(function):
        return
    yield from ((" (default)", each) for each in function.__defaults__ or ())
    yield from ((" (default)", each) for each in (function.__kwdefaults__ or {}).values())
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # nothing in it yet
            yield f" ({name})", cell.cell_contents
    for name in _names(function.__code__):
        if name in function.__globals__:
            value = function.__globals__[name]
            yield f" ({name})", value
            if isinstance(value, ModuleType) and not is_installed(value.__name__.split(".")[0]):
                yield from _read_of(name, value, function.__code__)


def _read_of(name: str, module: ModuleType, code: CodeType) -> Iterator[tuple[str, Any]]:
    """What may be read of a module of the user's: its generator, or a function that has one."""
    for attribute in _all_names(code):
        if attribute in vars(module):
            yield f" ({name}.{attribute})", vars(module)[attribute]


def _all_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_names(constant)


def _of_a_library(thing: Any) -> bool:
    return is_installed((getattr(thing, "__module__", None) or "builtins").partition(".")[0])


def _names(code: CodeType) -> Iterator[str]:
    """The global names that it reads."""
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield step.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _of_object(value: Any) -> Iterator[tuple[str, Any]]:
    """Attributes, and what the methods of its class read."""
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict):
        skipped = _MODULES_OWN if isinstance(value, nn.Module) else ()
        yield from ((f".{name}", item) for name, item in held.items() if name not in skipped)
    for kind in type(value).__mro__:
        if _of_a_library(kind):
            continue
        for name, item in vars(kind).items():
            if isinstance(item, MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # nothing in it yet
                    yield f".{name}", item.__get__(value)
            elif name not in _MAKING and not isinstance(item, property):
                yield f".{name}", item


_MAKING = frozenset({"__init__", "__new__", "__post_init__", "__setstate__", "__dict__"})
"""What these draw they draw before the run."""


# --- what is drawn for whom ---------------------------------------------------------------------


class Draws:
    """Looks whether what is drawn for a batch is drawn for each row.

    Args:
        rows: of the batch; a prime that divides no other length.

    Attributes:
        shared: the function that drew once for the whole batch, if one did.
        dealt: the function that dealt something out among rows, if one did.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.shared: str | None = None
        self.dealt: str | None = None

    def note(self, func: Any, out: Any) -> None:
        """A draw, and what came out."""
        name = function_name(func)
        leaves = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, Tensor)]
        by_row = any(length % self.rows == 0 for leaf in leaves for length in leaf.shape)
        if not by_row:
            self.shared = self.shared or name
        elif name == "randperm":
            self.dealt = self.dealt or name

    def refuse(self, who: str, several: bool) -> None:
        """Raises if rows' draws depend on who else is in the batch.

        Args:
            who: drew.
            several: whether a lot may be cut into several batches.
        """
        if self.dealt is not None:
            raise TrainingError(
                f"{who} deals something out among the rows of a batch ({self.dealt}), so that what "
                "one row gets depends on who else is there: draw for each row by itself"
            )
        if self.shared is not None and several:
            raise TrainingError(
                f"{who} draws once for a whole batch ({self.shared}), and lots may be cut into "
                "several batches: one row more would move others to the next batch, and what was "
                "drawn for them would change. Draw for each row by itself, or let a lot be one "
                "batch: leave out batch_size, and train in one process"
            )


Noted = tuple[Draws, dict[str, int | None]]
"""Draws of torch's by function, and how many words NumPy and Python drew."""


@contextlib.contextmanager
def same_coins(seed: int, level: Level | None = None) -> Generator[None]:
    """The same random numbers each time, for made-up rows; afterwards as if none had been drawn.

    Args:
        seed: which ones.
        level: what comes first.
    """
    with ModelCoins(SeededCoins(seed)).aside(level), rarest(level):
        yield


def rarest(level: Level | None) -> contextlib.AbstractContextManager[Any]:
    """Choices of torch's among several give the rarest, where rare things are to happen.

    Args:
        level: what coins give first; None for ordinary ones.
    """
    return contextlib.nullcontext() if level is None else _Rarest()


class _Rarest(TorchFunctionMode):
    """``multinomial`` draws in a way that no state of a generator is known to lead."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if function_name(func) != "multinomial" or not isinstance(out, Tensor):
            return out
        weights = args[0] if args else (kwargs or {})["input"]
        order = weights.masked_fill(weights <= 0, torch.inf).argsort(-1)
        count = out.shape[-1]
        chosen = order[..., :count] if count <= order.shape[-1] else order[..., :1]
        return out.copy_(chosen.expand_as(out))


def drawn_by(call: Callable[[], Any], rows: int, seed: int) -> tuple[Any, Noted]:
    """What the user's code makes of a batch of made-up rows, and what it drew for them.

    Args:
        call: calls it.
        rows: of the batch, a telling number of them.
        seed: for the coins of this trial.

    Raises:
        TrainingError: if it draws other coins than it is given.
    """
    draws, watched = Draws(rows), Watched()
    with same_coins(seed), watched, watched.calls(draws):
        made = call()
        watched.rest()
        drawn = ModelCoins.drawn_since()
    return made, (draws, drawn)


def refuse_shared(who: str, some: Noted, more: Noted, several: bool) -> None:
    """Raises if what is drawn for a batch is not drawn for each of its rows.

    Args:
        who: drew.
        some: what :func:`drawn_by` noted of some rows.
        more: the same of twice as many.
        several: whether a lot may be cut into several batches.
    """
    draws = some[0]
    for whose, count in some[1].items():
        if count and count == more[1].get(whose):
            draws.shared = draws.shared or whose
    draws.refuse(who, several)


def refuse_unrepeated(who: str, first: Any, again: Any) -> None:
    """Raises if something came out as another when it was made once more with the same coins.

    Args:
        who: made it.
        first: what it made.
        again: the same once more. Objects without numbers are not compared.
    """
    if not _repeated(first, again):
        raise TrainingError(
            f"{who} draws from a generator of its own, or remembers: the same rows, and the same "
            "coins in torch's, NumPy's and Python's generators, came out as others when they were "
            "made once more. Draw from these three alone, which get fresh secret coins, and keep "
            "nothing from row to row"
        )


def _repeated(one: Any, two: Any) -> bool:
    if isinstance(one, (Tensor, np.ndarray)) and type(one) is type(two):
        return _same_numbers(torch.as_tensor, one, two)
    if isinstance(one, (Mapping, list, tuple)) and type(one) is type(two):
        if len(one) != len(two):
            return False
        if isinstance(one, Mapping):
            return one.keys() == two.keys() and all(_repeated(one[k], two[k]) for k in one)
        return all(map(_repeated, one, two))
    if isinstance(one, (str, bytes, bool, int, float, complex)):
        return type(one) is type(two) and (one == two or (one != one and two != two))
    return True


def _same_numbers(as_tensor: Callable[[Any], Tensor], one: Any, two: Any) -> bool:
    if one.shape != two.shape or one.dtype != two.dtype:
        return False
    try:
        first, second = as_tensor(one), as_tensor(two)
    except TypeError:  # texts, or a type that torch does not have
        return bool((one == two).all())
    return bool(((first == second) | ((first != first) & (second != second))).all())
