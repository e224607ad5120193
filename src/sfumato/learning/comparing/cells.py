"""What is to be trained: a cell for each method, epsilon and repetition; from public facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from sfumato.core import validation
from sfumato.core.guarantee import Guarantee
from sfumato.learning.comparing.methods import Group, Method, Payer
from sfumato.learning.comparing.registry import methods_called
from sfumato.learning.comparing.tasks import Task, with_student_inputs

__all__ = ["Cell", "Plan", "planned"]


@final
@dataclass(frozen=True)
class Cell:
    """One run.

    Attributes:
        method: its name.
        epsilon: what it must promise; None for a run without privacy.
        repeat: which of several that differ in nothing but coins, from 0 on.
    """

    method: str
    epsilon: float | None
    repeat: int = 0

    @property
    def key(self) -> str:
        """A name for its folder.

        >>> Cell("dp-sgd", 0.5).key, Cell("plain", None, 1).key
        ('dp-sgd-epsilon-0.5-run-1', 'plain-run-2')
        """
        price = "" if self.epsilon is None else f"-epsilon-{self.epsilon!r}"
        return f"{self.method}{price}-run-{self.repeat + 1}"

    def __str__(self) -> str:
        price = "" if self.epsilon is None else f" at epsilon {self.epsilon:g}"
        return f"{self.method}{price}" + (f", run {self.repeat + 1}" if self.repeat else "")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"method": self.method, "epsilon": self.epsilon, "repeat": self.repeat}


@final
@dataclass(frozen=True, eq=False)
class Plan:
    """All that is decided before anything is trained, from public facts alone.

    Attributes:
        task: what every method is given.
        promised: what each run promises, in the order in which they run.
        left_out: why, for each method that is not run.
        methods: those that are.
        payer: whose budgets are charged.
    """

    task: Task
    promised: dict[Cell, Guarantee]
    left_out: dict[str, str]
    methods: tuple[Method, ...]
    payer: Payer

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All runs."""
        return tuple(self.promised)


def planned(
    task: Task,
    epsilons: Sequence[float],
    methods: Sequence[str] | None = None,
    repeats: int = 1,
    payer: Payer | None = None,
) -> Plan:
    """Which method runs at which epsilon, and what each run promises.

    Args:
        task: what is learnt.
        epsilons: of the runs.
        methods: names; None for all that suit.
        repeats: so many runs of each.
        payer: whose budgets are charged; None for nobody's.

    Raises:
        ValueError: for an epsilon that cannot be, or if no private method suits.
    """
    payer = Payer() if payer is None else payer
    prices = sorted({validation.positive("epsilon", epsilon) for epsilon in epsilons})
    if not prices:
        raise ValueError("epsilon must be given once or more (--epsilon 1 --epsilon 4), got none")
    validation.count("repeats", repeats)
    left_out: dict[str, str] = {}
    suited: list[Method] = []
    for method in methods_called(methods):
        why = method.against(task, payer) or _other_relation(method, task, payer)
        if why is None:
            suited.append(method)
        else:
            left_out[method.name] = why
    if any(method.group is Group.TEACHERS for method in suited):
        task = with_student_inputs(task)
    promised: dict[Cell, Guarantee] = {}
    for method in suited:
        _promise(method, task, prices, repeats, promised, left_out)
    if all(cell.epsilon is None for cell in promised):
        said = "; ".join(f"{name}: {why}" for name, why in left_out.items()) or "plain alone"
        raise ValueError(f"methods must include a private one that suits the data, got {said}")
    named = {cell.method for cell in promised}
    kept = tuple(method for method in suited if method.name in named)
    return Plan(task, _breadth_first(promised), left_out, kept, payer)


def _other_relation(method: Method, task: Task, payer: Payer) -> str | None:
    """A budget has one relation."""
    has = method.relation(task)
    if payer.ledger is None or method.group is Group.LABELS or has is task.neighbours:
        return None
    return f"its guarantee is for {has.value}, and the ledger's budget is asked for another"


def _promise(
    method: Method,
    task: Task,
    prices: Sequence[float],
    repeats: int,
    promised: dict[Cell, Guarantee],
    left_out: dict[str, str],
) -> None:
    """Adds the method's cells, and what cannot be to what is left out."""
    for epsilon in (None,) if method.group is Group.NONE else prices:
        try:
            guarantee = method.promised(task, epsilon)
        except ValueError as error:
            at = "" if epsilon is None else f" at epsilon {epsilon:g}"
            left_out[f"{method.name}{at}"] = str(error)
            continue
        for repeat in range(repeats):
            promised[Cell(method.name, epsilon, repeat)] = guarantee


def _breadth_first(promised: dict[Cell, Guarantee]) -> dict[Cell, Guarantee]:
    """All methods at one epsilon before any at the next, and all of it before any is repeated."""
    return dict(sorted(promised.items(), key=lambda item: (item[0].repeat, item[0].epsilon or 0)))
