"""What can be wrong with a member's plan, folder, ledger, data or keys: said before she begins.

Every check raises a ValueError of one line, and changes and charges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.cli.output import number

if TYPE_CHECKING:
    from sfumato.core.events import Event
    from sfumato.data import Dataset
    from sfumato.federated.federation import Federation
    from sfumato.federated.secure.keys import Directory
    from sfumato.ledger import Ledger
    from sfumato.ledger.status import Preview

__all__ = [
    "absolute",
    "check_fit",
    "check_folder",
    "check_member_ledger",
    "check_public_sum_key",
    "check_secret_sum_key",
    "check_server_ledger",
    "directory_of",
    "rounds_sent",
    "server_data",
]


# --- folders ------------------------------------------------------------------------------------


def check_folder(federation: Federation, folder: Path, dataset: str | None) -> None:
    """Refuses a folder in which this federation cannot begin, or go on.

    Args:
        federation: that is to be served.
        folder: of who serves.
        dataset: whose budget is to be charged; None without a ledger.
    """
    from sfumato.federated.federation import Federation
    from sfumato.learning.runs.folder import RunFolder

    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--folder must be a folder, but {folder} is a file: give another")
    if (folder / "identity").exists() or (folder / "identity.pub").exists():
        raise ValueError(
            f"--folder must be the server's own, but {folder} holds a participant's keys: give "
            "another"
        )
    run = RunFolder(folder / "run")
    if run.finished:
        raise ValueError(f"--folder must be a new one, but {folder} holds a finished run")
    if not run.begun:
        return
    asked = run.request()
    there = asked.get("federation")
    if there is None or Federation.from_dict(there) != federation:
        raise ValueError(
            f"--folder must hold a run of this federation to go on with, but {folder} holds a run "
            "of another: give another folder, or the file that it began with"
        )
    began = asked.get("charged", dataset)
    if began != dataset:
        raise ValueError(
            f"--dataset must be what the run in {folder} began with, "
            f"{began or 'none at all'}, got {dataset or 'none at all'}"
        )


def rounds_sent(folder: Path) -> int:
    """How many rounds of the run in a server's folder were sent, or may have been."""
    from sfumato.federated.server_state import ServerState, rounds_noted
    from sfumato.learning.runs.folder import RunFolder

    curator = RunFolder(folder / "run").curator
    state = ServerState.load(curator)
    return max(0 if state is None else state.attempts, rounds_noted(curator))


# --- ledgers ------------------------------------------------------------------------------------


def absolute(ledger: str | None) -> str | None:
    """A ledger's place, as a process that begins elsewhere finds it."""
    if ledger is None or "://" in ledger:
        return ledger
    return str(Path(ledger).resolve())


def check_server_ledger(
    federation: Federation, ledger: str | None, dataset: str, analyst: str, sent: int
) -> None:
    """Refuses a budget that cannot pay for all rounds that are left.

    Args:
        federation: that is to be served.
        ledger: that is to be charged, if any.
        dataset: whose budget in it.
        analyst: in whose name.
        sent: rounds that were sent, and charged, before.
    """
    from sfumato.core.events import promises_nothing
    from sfumato.federated.views import RELEASED, round_event

    event, left = round_event(federation, RELEASED), federation.rounds - sent
    with _opened(ledger, dataset) as book:
        if book is None:
            return
        if promises_nothing(event):
            raise ValueError(
                "--ledger must be left out: a ledger cannot pay for rounds without noise"
            )
        _check_terms(book, dataset, event)
        found = book.preview(dataset, [event] * left, analyst=analyst)
        if not found.passes:
            raise ValueError(_too_much(federation, event, found, sent, book, analyst))


def check_member_ledger(federation: Federation, ledger: str | None, dataset: str) -> str:
    """Refuses a ledger that cannot be charged for messages of this federation.

    Returns:
        What is to be said of a budget that will end before the rounds do; empty if it will not.
    """
    from sfumato.core.events import promises_nothing
    from sfumato.federated.views import message_event

    event = message_event(federation)
    with _opened(ledger, dataset) as book:
        if book is None:
            return ""
        if promises_nothing(event):
            raise ValueError(
                "--ledger must be left out: a ledger cannot pay for contributions that leave "
                "without noise, as this federation's do"
            )
        _check_terms(book, dataset, event)
        found = book.preview(dataset, [event] * federation.rounds)
    if found.passes:
        return ""
    paid = sum(one.passes for one in found.events)
    return f"the budget of {dataset!r} allows {paid} answers of {federation.rounds}"


@contextmanager
def _opened(ledger: str | None, dataset: str) -> Iterator[Ledger | None]:
    from sfumato.ledger import Ledger, LedgerError

    if ledger is None:
        if dataset:
            raise ValueError("--dataset must come with --ledger: without one nothing is charged")
        yield None
        return
    if not dataset:
        raise ValueError("--dataset must be given with --ledger: whose budget in it")
    try:
        book = Ledger(ledger, create=False)
    except LedgerError as error:
        raise ValueError(f"--ledger: {error} (sfumato ledger create)") from None
    try:
        yield book
    finally:
        book.close()


def _check_terms(book: Ledger, dataset: str, event: Event) -> None:
    from sfumato.ledger import LedgerError

    made = (
        f"sfumato ledger create NAME --unit {event.unit_name} --neighbours {event.relation.value}"
    )
    try:
        unit = book.terms(dataset).unit
    except LedgerError as error:
        raise ValueError(f"--dataset: {error} ({made} ...)") from None
    if unit != event.unit_name:
        raise ValueError(
            f"--dataset must have a budget that protects one {event.unit_name}, as the federation "
            f"does, but that of {dataset!r} protects one {unit}: {made} ..."
        )
    try:
        book.preview(dataset, event)
    except ValueError:
        ours, theirs = event.relation.value, book.terms(dataset).neighbours.value
        raise ValueError(
            f"--dataset must have a budget for {ours} neighbours, as the federation has, but that "
            f"of {dataset!r} is for {theirs}: {made} ..."
        ) from None


def _too_much(
    federation: Federation, event: Event, found: Preview, sent: int, book: Ledger, analyst: str
) -> str:
    from sfumato.cli.federate_budget import needed_epsilon
    from sfumato.ledger.status import shown_down

    dataset = found.terms.dataset
    left = book.status(dataset, analyst, declared=False).left
    paid = sum(one.passes for one in found.events)
    enough = needed_epsilon(event, federation.rounds, federation.delta)
    rest = f"the {len(found.events)} rounds that are left" if sent else "this plan"
    return (
        f"{rest} will read epsilon {number(found.reading)}, the budget of {dataset!r} has "
        f"{shown_down(left)} left, which is {paid} rounds: give a --dataset with a larger budget "
        f"(epsilon {enough:g} is enough for {federation.rounds} rounds and nothing else), or a "
        "plan with fewer rounds or more noise"
    )


# --- data ---------------------------------------------------------------------------------------


def server_data(federation: Federation, source: str | None) -> None:
    """Refuses a data set that the model cannot be tested on."""
    from sfumato.data import dataset_names, load_dataset

    if source is None:
        return
    if source not in dataset_names():
        raise ValueError(
            f"--data must be one of {', '.join(dataset_names())}, whose test rows are public, or "
            f"be left out, got {source!r}"
        )
    check_fit(federation, load_dataset(source))


def check_fit(federation: Federation, data: Dataset) -> None:
    """Refuses data of another shape or with other classes; both are public."""
    from sfumato.learning.recipes.inputs import input_shape

    shape, classes = input_shape(data.shape), len(data.classes)
    if shape != federation.shape:
        raise ValueError(
            f"--data must hold inputs of shape {_sizes(federation.shape)}, as the plan has, but "
            f"{data.name} holds {_sizes(shape)}: give the data that was planned for"
        )
    if classes != federation.classes:
        raise ValueError(
            f"--data must have {federation.classes} classes, as the plan has, but {data.name} has "
            f"{classes}: give the data that was planned for"
        )


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


# --- keys of sums -------------------------------------------------------------------------------


def directory_of(federation: Federation, path: Path | None) -> Directory | None:
    """The members' public keys, where sums are masked.

    Raises:
        ValueError: if there is none, or not of as many members as the plan has.
    """
    from sfumato.federated.member_keys import read_directory
    from sfumato.federated.sums import MaskedSum

    if not isinstance(federation.sums, MaskedSum):
        if path is not None:
            raise ValueError(
                "--directory must be left out: this federation has no masked sums, and needs none"
            )
        return None
    if path is None:
        raise ValueError(
            "--directory must be given for masked sums: members' public keys (sfumato federate "
            "directory)"
        )
    found = read_directory(path)
    if len(found) != federation.participants:
        raise ValueError(
            f"--directory must hold the keys of all {federation.participants} participants, but "
            f"{path} holds {len(found)}: sfumato federate directory FILE */identity.pub"
        )
    return found


def check_public_sum_key(federation: Federation, path: Path | None) -> None:
    """Refuses all but the public key of hidden sums; of a secret one, no more is said than that."""
    data = _sum_key(federation, path, "the public key")
    if data is None:
        return
    from sfumato.federated.secure.ckks_keys import CkksPublic

    try:
        CkksPublic(data)
    except ValueError as error:
        if "no secret key" in str(error):
            raise ValueError(
                f"--sum-key must be the public key, but {path} holds the secret one, which no "
                f"server may have: give {path}.pub, and have a new key made if {path} left its "
                "owners"
            ) from None
        raise ValueError(f"--sum-key must be a key of hidden sums, but {path} is none") from None


def check_secret_sum_key(federation: Federation, path: Path | None) -> None:
    """Refuses all but the secret key of hidden sums."""
    data = _sum_key(federation, path, "the secret key")
    if data is None:
        return
    from sfumato.federated.secure.ckks_keys import CkksKeys, CkksPublic

    if _is(CkksKeys, data):
        return
    public = " it holds the public one, which is for who serves" if _is(CkksPublic, data) else ""
    raise ValueError(
        f"--sum-key must be the secret key of hidden sums, but {path} is not:"
        f"{public or ' give the file that sfumato federate sum-key made'}"
    )


def _sum_key(federation: Federation, path: Path | None, which: str) -> bytes | None:
    from sfumato.federated.sums import HiddenSum

    if not isinstance(federation.sums, HiddenSum):
        if path is not None:
            raise ValueError("--sum-key must be left out: this federation has no hidden sums")
        return None
    if path is None:
        raise ValueError(
            f"--sum-key must be given for hidden sums: {which} (sfumato federate sum-key)"
        )
    return path.read_bytes()


def _is(kind: type, data: bytes) -> bool:
    try:
        kind(data)
    except ValueError:
        return False
    return True
