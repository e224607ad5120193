"""The two ends of a deployed federation, as their processes call them."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from sfumato.federated.coordinator import Coordinator
from sfumato.federated.federation import Federation
from sfumato.federated.introducing import Introduced
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.partitions import partition
from sfumato.federated.refusals import of_another_federation
from sfumato.federated.sums import MaskedSum
from sfumato.federated.watching import RoundLog
from sfumato.federated.wire import Malformed, unpack

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.federated.exchange import Engine, Participant

__all__ = ["ROUNDS", "TellingMember", "lead", "make"]

ROUNDS = "rounds.jsonl"
_log = logging.getLogger(__name__)


def lead(engine: Engine, settings: dict[str, Any]) -> bytes:
    """The coordinator's part: all rounds that are left, and the record of the run."""
    from sfumato.federated.member_keys import read_directory
    from sfumato.ledger import Ledger

    federation = Federation.from_dict(settings["federation"])
    options: dict[str, Any] = {}
    if settings["ledger"] is not None:
        options = {"ledger": Ledger(settings["ledger"], create=False)}
        options |= {"dataset": settings["dataset"], "analyst": settings["analyst"]}
    if isinstance(federation.sums, MaskedSum):
        options["directory"] = read_directory(settings["directory"])
    if settings["sum_key"] is not None:
        from sfumato.federated.secure.ckks_keys import CkksPublic

        options["public_key"] = CkksPublic(Path(settings["sum_key"]).read_bytes())
    log = RoundLog(Path(settings["log"]))
    trained = Coordinator(
        federation,
        Introduced(engine),
        folder=settings["run"],
        test=None if settings["data"] is None else _test_rows(settings["data"]),
        watch=log,
        timeout=settings["timeout"],
        patience=settings["patience"],
        **options,
    ).train()
    return json.dumps({"record": trained.record.to_dict(), "accuracy": trained.accuracy}).encode()


def _test_rows(source: str) -> tuple[Tensor, Tensor] | None:
    from sfumato.data import load_dataset
    from sfumato.learning.recipes.inputs import inputs_of, labels_of

    data = load_dataset(source)
    if not len(data.test.labels):
        return None
    labels = labels_of(data.test.labels, len(data.classes))
    return inputs_of(data.test.inputs, data.bounds), labels


def make(config: Mapping[str, object], state: MutableMapping[str, bytes]) -> Participant:
    """A participant, by the plan that her node's configuration names."""
    return _Plan.read(str(config["plan"])).participant(state)


@final
class TellingMember:
    """A participant who says in her own log what she gave.

    Args:
        member: with what she remembers.
        inside: who answers for her.
        charged: whose budget is charged for it; empty for nobody's.
    """

    def __init__(self, member: Member, inside: Participant, charged: str) -> None:
        self._member, self._inside, self._charged = member, inside, charged

    def answer(self, message: bytes) -> bytes:
        """As she does.

        Raises:
            Refusal: also where the order is of a federation with another model, which she could
                not even read.
        """
        self._refuse_others(message)
        before = self._given()
        reply = self._inside.answer(message)
        given = self._given()
        paid = f"charged to {self._charged!r}" if self._charged else "charged to no ledger"
        for run, attempt in given.items():
            if before.get(run) != attempt:
                _log.info("round %d of run %s answered, %s", attempt + 1, run, paid)
        return reply

    def _given(self) -> dict[str, int]:
        """The last attempt of each run that she answered, as she remembers it."""
        key = f"answered:{self._member.federation.digest}"
        return json.loads(self._member.state.get(key, b'{"last": {}}'))["last"]

    def _refuse_others(self, message: bytes) -> None:
        try:
            header, _ = unpack(message, most_bytes=len(message))
        except Malformed:
            return  # whoever is inside says why
        asked, ours = header.get("federation"), self._member.federation.digest
        if header.get("kind") == "order" and isinstance(asked, str) and asked != ours:
            raise of_another_federation(asked, self._member.name, ours)


class _Plan:
    """What a participant is made of; her rows and her model are loaded once a process."""

    def __init__(self, held: dict[str, Any]) -> None:
        self.held = held
        self.federation = Federation.from_dict(held["federation"])
        rows = _rows(held, self.federation)
        self.local = LocalData(LocalModel(self.federation.make_model()), *rows)

    @staticmethod
    @functools.cache
    def read(path: str) -> _Plan:
        return _Plan(json.loads(Path(path).read_text()))

    def participant(self, state: MutableMapping[str, bytes]) -> Participant:
        from sfumato.ledger import Ledger

        held = self.held
        ledger = None if held["ledger"] is None else Ledger(held["ledger"], create=False)
        member = Member(
            self.federation, self.local, name=held["name"], state=state, ledger=ledger,
            dataset=held["dataset"], most_answers=held["most_answers"],
        )  # fmt: skip
        charged = "" if ledger is None else held["dataset"]
        return TellingMember(member, self._by_sum(member), charged)

    def _by_sum(self, member: Member) -> Participant:
        """Her, as the federation's sums have her answer."""
        from sfumato.federated.member_keys import MemberKeys, read_directory

        held = self.held
        if held["sum_key"] is not None:
            from sfumato.federated.hidden import HiddenMember
            from sfumato.federated.secure.ckks_keys import CkksKeys

            return HiddenMember(member, CkksKeys(Path(held["sum_key"]).read_bytes()))
        if not isinstance(self.federation.sums, MaskedSum):
            return member
        from sfumato.federated.masked import MaskedMember

        identity = MemberKeys.read(held["keys"]).identity()
        return MaskedMember(member, identity, read_directory(held["directory"]))


def _rows(held: dict[str, Any], federation: Federation) -> tuple[Tensor, Tensor]:
    """Her rows: all of her data, or one part of a data set that is shared out for a trial."""
    from sfumato.cli.federate_checking import check_fit
    from sfumato.cli.train_options import declaration_at, loaded_data
    from sfumato.learning.recipes.inputs import inputs_of, labels_of

    declared = None if held["declared"] is None else Path(held["declared"])
    data = loaded_data(held["data"], declaration_at(declared), None, None)
    check_fit(federation, data)
    inputs = inputs_of(data.train.inputs, data.bounds)
    labels = labels_of(data.train.labels, federation.classes)
    if held["part"] is None:
        return inputs, labels
    number, of = held["part"]
    rows = partition(data.train.labels, of, held["partition"])[number]
    return inputs[rows], labels[rows]
