"""Which reasons of a participant leave her machine, and what her own log says."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode
from flwr.supercore.task_identity import TaskIdentity

from sfumato.cli.federate_serving import TellingMember
from sfumato.federated.federation import Federation
from sfumato.federated.flower.client import reply_to
from sfumato.federated.flower.grid import MESSAGE_TYPE, GridEngine
from sfumato.federated.flower.records import bytes_of, content_of
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member
from sfumato.federated.noises import LocalNoise, SharedNoise
from sfumato.federated.orders import Order
from sfumato.federated.refusals import BUDGET, FAILED, is_public, public_reason
from sfumato.federated.sums import MaskedSum
from sfumato.federated.works import LotGradients
from sfumato.ledger import Budget, Ledger

PLAN = Federation(
    "linear", (4,), 2, participants=3, rounds=2, noise=LocalNoise(1.0, least=1),
    work=LotGradients(lot_rate=0.5, clip=1.0, records=12),
)  # fmt: skip


@pytest.fixture(autouse=True)
def identity() -> Iterator[None]:
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    yield
    TaskIdentity._run_id = TaskIdentity._node_id = TaskIdentity._task_id = None


def member(federation: Federation = PLAN, **more: object) -> Member:
    model = LocalModel(federation.make_model())
    rows = torch.zeros(4, *federation.shape), torch.zeros(4, dtype=torch.int64)
    return Member(federation, LocalData(model, *rows), name="ward", **more)  # type: ignore[arg-type]


def telling(federation: Federation = PLAN, charged: str = "", **more: object) -> TellingMember:
    made = member(federation, **more)
    return TellingMember(made, made, charged)


def order(attempt: int, federation: Federation = PLAN, run: str = "r") -> bytes:
    size = member(federation).local.layout.size
    weights = np.zeros(size, np.float32)
    return Order(federation.digest, run, attempt, 1.0, weights).to_bytes()


def asked(participant: object, data: bytes) -> Message:
    message = Message(content_of(data), 2, MESSAGE_TYPE)
    message.metadata.__dict__["_message_id"] = "1"
    return reply_to(message, participant)  # type: ignore[arg-type]


def why(participant: object, data: bytes) -> str:
    reply = asked(participant, data)
    assert reply.has_error()
    assert is_public(reply.error.reason)
    return reply.error.reason


@pytest.mark.parametrize(
    "other", [replace(PLAN, rounds=3), replace(PLAN, shape=(5,)), replace(PLAN, classes=200)]
)
def test_another_federation_file_is_told_by_its_digests(other: Federation) -> None:
    """Also where the models differ, so that the order could not even be read."""
    told = f"another federation file: the order is of {other.digest[:8]}, hers is "
    assert why(telling(), order(0, other)) == told + PLAN.digest[:8]


def test_a_plain_member_says_so_too() -> None:
    other = replace(PLAN, rounds=3)
    assert why(member(), order(0, other)).startswith("another federation file")


def test_what_is_used_up_or_was_answered_before() -> None:
    ward = telling()
    assert bytes_of(asked(ward, order(0)).content)
    assert why(ward, order(0)) == "she answered this round before"
    assert bytes_of(asked(ward, order(1)).content)
    assert why(ward, order(0, run="another")) == "her answers are used up"


def test_what_her_budget_does_not_allow(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "l.db")
    book.create("patients", Budget(0.1, 1e-5))
    ward = telling(ledger=book, dataset="patients")
    assert why(ward, order(0)) == BUDGET
    book.create("rich", Budget(50.0, 1e-5))
    first, second = (telling(ledger=book, dataset="rich") for _ in range(2))
    assert bytes_of(asked(first, order(0)).content)
    assert why(second, order(0)) == "she was charged for this round before"


def test_a_federation_that_has_no_plain_sums() -> None:
    masked = replace(PLAN, noise=SharedNoise(2.0, least=2), sums=MaskedSum(3))
    assert why(member(masked), order(0, masked)) == "this federation has no plain sums"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("row 17: Ada Lovelace"),
        RuntimeError("her budget does not allow it, says Ada"),
        KeyError("Ada"),
    ],
)
def test_everything_else_stays_with_her(error: Exception) -> None:
    assert public_reason(error) == FAILED


def test_a_refusal_is_one_line_of_her_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        why(telling(), order(0, replace(PLAN, rounds=3)))
        why(telling(), b"nonsense")
    assert len(caplog.records) == 2
    assert all(record.exc_info is None for record in caplog.records)
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert "both sides need the same federation file" in caplog.text


def test_her_log_says_what_she_gave(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        asked(telling(), order(0))
        asked(telling(charged="patients"), order(1))
    first, second = [record.getMessage() for record in caplog.records]
    assert first == "round 1 of run r answered, charged to no ledger"
    assert second == "round 2 of run r answered, charged to 'patients'"


@pytest.mark.parametrize("reason", ["row 17: Ada Lovelace", "\x1b[2J gone", FAILED + "\n2", ""])
def test_what_a_participant_makes_up_is_not_shown(reason: str) -> None:
    message = Message(content_of(b"?"), 2, MESSAGE_TYPE)
    message.metadata.__dict__["_message_id"] = "1"
    reply = Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
    engine = GridEngine(None)  # type: ignore[arg-type]
    assert engine._read("ward", reply).error == FAILED
    other = Message(Error(ErrorCode.NODE_UNAVAILABLE, reason * 100), reply_to=message)
    shown = engine._read("ward", other).error
    assert shown.isprintable()
    assert len(shown) < 250
