"""Who is let in by the head of a request, and how much may follow it."""

from __future__ import annotations

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from tests.federated.flower.signing import signature

from sfumato.federated.flower.gate import MOST, REFUSAL, VISITOR, Gate
from sfumato.federated.flower.limits import Limits
from sfumato.federated.flower.node_keys import make_node_key, read_node_public
from sfumato.federated.flower.records import PIECE
from sfumato.federated.flower.roster import Roster

PULL, BEGIN = "/v1/fleet/pull-messages", "/v1/fleet/push-messages"
OBJECT = "/v1/fleet/push-object"
SMALL = 2**20


class World:
    """A gate, with a node that is registered and one that is not."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.ward, self.stranger = (make_node_key(folder / name) for name in ("ward", "stranger"))
        self.file = folder / "admitted"
        self.file.write_text("no key at all\n" + read_node_public(self.ward.public) + "\n")
        self.limits = Limits(**limits)
        self.passed: list[str] = []
        self.let_in: list[bytes] = []
        self.gate = Gate(self._behind, Roster(self.file), self.limits, "task".__eq__)

    async def _behind(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def __call__(
        self,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        client: str = "192.0.2.8",
        length: int | str | None = None,
        kind: str = "http",
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and words of the answer; nobody asks for a byte of the body."""
        sent: list[Any] = []

        async def receive() -> Any:
            raise AssertionError("the body was asked for")

        async def send(event: Any) -> None:
            sent.append(event)

        told = dict(headers or {}) | ({} if length is None else {"content-length": str(length)})
        scope = {
            "type": kind, "path": path, "client": (client, 1), "server": ("192.0.2.7", 8000),
            "headers": [(name.encode(), value.encode()) for name, value in told.items()],
            "state": {VISITOR: self.let_in.append},
        }  # fmt: skip
        asyncio.run(self.gate(scope, receive, send))
        if not sent:
            return 0, {}, ""
        heads = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], heads, b"".join(each["body"] for each in sent[1:]).decode()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "192.0.2.7"])
def test_this_machine_is_let_in(world: World, client: str) -> None:
    assert world("/v1/control/start-run", client=client)[0] == 200
    assert world.let_in == [b""]


@pytest.mark.parametrize(
    "path", ["/v1/control/start-run", "/v1/runtime/acquire-task", "/docs", "/v1/fleet", "/", ""]
)
def test_from_elsewhere_only_nodes_are_let_in(world: World, path: str) -> None:
    status, headers, _ = world(path)
    assert status == 403
    assert headers["connection"] == "close"
    assert world(path, kind="websocket") == (0, {}, "")
    assert world(path, signature(world.ward.private))[0] == 403
    assert world.passed == world.let_in == []


@pytest.mark.parametrize("client", ["127.0.0.1", "192.0.2.8"])
def test_a_node_proves_its_key_before_a_byte_of_its_body_is_read(world: World, client: str) -> None:
    status, headers, _ = world(PULL, signature(world.ward.private), client=client, length=1000)
    assert (status, headers[MOST]) == (200, str(64 * 2**20))
    assert world.let_in == [public_key_to_bytes(_public(world.ward.private))]
    for wrong in ({}, signature(world.ward.private) | {"flwr-signature": "AAAA"}):
        status, headers, _ = world(PULL, wrong, client=client, length=300 * 2**20)
        assert (status, headers[REFUSAL], headers["connection"]) == (401, "no-proof", "close")
    assert len(world.passed) == 1


def _public(private: Path) -> Any:
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    return load_ssh_private_key(private.read_bytes(), None).public_key()


def test_who_is_not_registered_hears_so_but_only_of_her_own_key(world: World) -> None:
    hers = signature(world.stranger.private)
    status, headers, said = world(PULL, hers)
    assert (status, headers[REFUSAL]) == (403, "not-registered")
    assert "node.pub" in said
    # With another's key and no private half the answer is the same, registered or not.
    others = signature(world.ward.private)["flwr-public-key"]
    mixed = hers | {"flwr-public-key": others}
    unknown = hers | {"flwr-signature": signature(world.ward.private)["flwr-signature"]}
    assert world(PULL, mixed)[:2] == world(PULL, unknown)[:2]
    assert world.passed == []


def test_a_key_that_is_registered_later_is_let_in(world: World) -> None:
    assert world(PULL, signature(world.stranger.private))[0] == 403
    world.file.write_text(read_node_public(world.stranger.public) + "\n")
    assert world(PULL, signature(world.stranger.private))[0] == 200
    assert world(PULL, signature(world.ward.private))[0] == 403
    assert Roster(world.file.with_name("nothing"))._keys == {}


def test_a_clock_that_is_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from sfumato.federated.flower import roster

    headers, true = signature(world.ward.private), roster.now()
    for minutes, status in ((6, 401), (-6, 401), (4, 200)):
        moved = true + datetime.timedelta(minutes=minutes)
        monkeypatch.setattr(roster, "now", lambda moved=moved: moved)
        found = world(PULL, headers)
        assert found[0] == status
        assert found[1].get(REFUSAL) == ("clock" if status == 401 else None)


@pytest.mark.parametrize(
    "change",
    [
        {"flwr-timestamp": "now"},
        {"flwr-timestamp": "2026-01-01T00:00:00"},
        {"flwr-public-key": "!"},
        {"flwr-public-key": "QUJD"},
        {"flwr-public-key": "QUJD" * 10_000},
    ],
)
def test_nonsense_proves_nothing(world: World, change: dict[str, str]) -> None:
    status, headers, _ = world(PULL, signature(world.ward.private) | change)
    assert (status, headers[REFUSAL]) == (401, "no-proof")


@pytest.mark.parametrize("length", ["x", "-1", "1.5", ""])
def test_a_body_has_a_length(world: World, length: str) -> None:
    assert world(PULL, signature(world.ward.private), length=length)[0] == 411
    chunked = signature(world.ward.private) | {"transfer-encoding": "chunked"}
    assert world(PULL, chunked)[0] == 411
    assert world.passed == []


def test_a_message_that_is_too_long_names_the_option(tmp_path: Path) -> None:
    world = World(tmp_path, most_message=5 * SMALL)

    def sends(path: str, length: int) -> int:
        status, headers, said = world(path, signature(world.ward.private), length=length)
        if status == 413:
            assert headers[REFUSAL] == "too-long"
            assert f"{5 * SMALL} bytes" in said
            assert "--most-message" in said
        return status

    assert sends(OBJECT, 7 * SMALL) == 413
    # In pieces, too: they count together until the next message begins.
    assert [sends(path, length) for path, length in [
        (BEGIN, 1000), (OBJECT, 3 * SMALL), (PULL, 1000), (OBJECT, 2 * SMALL), (OBJECT, SMALL),
        (BEGIN, 1000), (OBJECT, 3 * SMALL),
    ]] == [200, 200, 200, 200, 413, 200, 200]  # fmt: skip


def test_bodies_from_this_machine_are_small_but_those_of_runs(tmp_path: Path) -> None:
    world = World(tmp_path, most_message=SMALL)
    here = {"client": "127.0.0.1"}
    assert world("/v1/control/start-run", length=SMALL, **here)[0] == 200
    assert (
        world("/v1/control/start-run", {"flwr-task-token": "task"}, length=SMALL + 1, **here)[0]
        == 413
    )
    object_ = "/v1/runtime/push-object"
    assert world(object_, length=PIECE, **here)[0] == 413
    assert world(object_, {"flwr-task-token": "other"}, length=PIECE, **here)[0] == 413
    # A coordinator's own pieces pass whatever participants may send.
    assert world(object_, {"flwr-task-token": "task"}, length=PIECE + 1000, **here)[0] == 200
    assert world(object_, {"flwr-task-token": "task"}, length=2 * PIECE, **here)[0] == 413


@pytest.mark.parametrize(
    ("name", "value"),
    [("most_message", 0), ("most_connections", -1), ("admission", 0.0), ("idle", float("nan"))],
)
def test_limits_that_are_none(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        Limits(**{name: value})  # pyright: ignore[reportArgumentType]
