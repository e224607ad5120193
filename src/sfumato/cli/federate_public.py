"""What is public about the data of a federation: published with it, or declared; no row is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from sfumato.data import Declaration
    from sfumato.federated.federation import Federation

__all__ = [
    "Public",
    "declared_public",
    "named_public",
    "planned_public",
    "records_of",
    "require_fit",
    "require_named",
]


@final
@dataclass(frozen=True)
class Public:
    """What a federation needs to know of data.

    Attributes:
        name: what it is called.
        shape: of one input, as models take it.
        classes: how many.
        records: of all participants together, as one may say in public; None if nobody said it.
        owner: what one owner of rows is called, if rows have owners; empty if not.
    """

    name: str
    shape: tuple[int, ...]
    classes: int
    records: int | None
    owner: str = ""


def named_public(name: str, rows: int | None = None) -> Public:
    """What is published about a named data set; nothing is fetched.

    Args:
        name: of the data set.
        rows: if only the first so many are to be used.
    """
    from sfumato.core import validation
    from sfumato.data import image_facts, image_names, task_facts
    from sfumato.learning.recipes.inputs import input_shape

    if name in image_names():
        facts = image_facts(name)
        shape, classes, records = facts.shape, facts.classes, facts.train
    else:
        task = task_facts(name)
        shape, classes, records = task.declared.shape, task.declared.classes, task.train
    if rows is not None:
        records = min(records, validation.count("rows", rows))
    return Public(name, input_shape(shape), len(classes), records)


def declared_public(path: Path) -> Public:
    """What a file declares about data of one's own.

    Raises:
        ValueError: if labels are numbers, or the file is no declaration.
    """
    from sfumato.cli.train_options import declaration_at, declares_numbers
    from sfumato.data.examples import refuse_numbers
    from sfumato.learning.recipes.inputs import input_shape

    found = declaration_at(path)
    assert found is not None
    if declares_numbers(found):
        refuse_numbers()
    shape, classes = input_shape(found.declared.shape), len(found.declared.classes)
    return Public(path.name, shape, classes, found.records, _owner(found))


def _owner(found: Declaration) -> str:
    return "" if found.owner is None else found.unit


def planned_public(data: str, declared: Path | None, given: frozenset[str]) -> Public:
    """What is public about the data of a plan.

    Args:
        data: a named data set, or data of one's own, which is not opened.
        declared: what is public about one's own.
        given: the options that were given.
    """
    from sfumato.data import dataset_names

    if declared is not None:
        if "data" in given and data in dataset_names():
            raise ValueError(
                f"--declared must be left out with --data {data}, all of which is published (or "
                f"write --data ./{data} for a file of your own)"
            )
        return declared_public(declared)
    if data not in dataset_names():
        raise ValueError(
            f"--data must be one of {', '.join(dataset_names())}, or data of your own with "
            f"--declared FILE, which says what is public about it, got {data!r}"
        )
    return named_public(data)


def require_named(data: str) -> None:
    """Refuses data of one's own in a simulation."""
    from sfumato.data import dataset_names

    if data not in dataset_names():
        raise ValueError(
            f"--data must be one of {', '.join(dataset_names())} in a simulation, whose "
            f"participants are made up, got {data!r}: data of your own is planned by 'sfumato "
            "federate plan FILE --data ... --declared FILE' and trained on by 'sfumato federate "
            "serve' and 'join', or in one place by 'sfumato train dp-sgd'"
        )


def require_fit(federation: Federation, public: Public) -> None:
    """Refuses data of another shape or with other classes."""
    if (federation.shape, federation.classes) != (public.shape, public.classes):
        raise ValueError(
            f"the federation is for {federation.shape} and {federation.classes} classes; "
            f"{public.name} is {public.shape} and {public.classes}: give the --data that it was "
            "planned for"
        )


def records_of(public: Public | None, said: dict[str, Any]) -> int:
    """The declared number of records of all participants together, for lots of them.

    Raises:
        ValueError: if nobody declared it, or owners are to be protected and records would be.
    """
    if public is not None and public.owner:
        raise ValueError(
            f"--work gradients protects one record, but {public.name} declares owners (one "
            f"{public.owner}): give --work updates, which protects a participant with all her "
            "rows, or declare no owner"
        )
    if said["records"] is not None:
        return said["records"]
    if public is None:
        return 1
    if public.records is None:
        raise ValueError(
            f"--records must be given, or records declared in {public.name}: how many all "
            "participants have together, about; nobody counts them"
        )
    return public.records
