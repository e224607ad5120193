"""A real deployment on loopback: TLS, node keys, processes that are killed."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sfumato.federated.flower.certificates import make_certificates
from sfumato.federated.flower.client import FAILED
from sfumato.federated.flower.deployment import Coordinator, Leading, join, serve
from sfumato.federated.flower.node_keys import make_node_key
from sfumato.federated.flower.processes import Started, wait_until

# What coordinator and participants run; their processes find it by name.
MODULE = '''
import json, os, signal, time
from pathlib import Path


class Counter:
    """Counts what she was asked, before she answers; hangs when asked to."""

    def __init__(self, config, state):
        self.config, self.state = config, state

    def answer(self, message):
        seen = int(self.state.get("seen", b"0")) + 1
        self.state["seen"] = str(seen).encode()
        if message == b"hang %s" % self.config["who"].encode():
            (Path(self.config["signs"]) / f"hangs-{seen}").touch()
            time.sleep(3600)
        return b"%s %d" % (self.config["who"].encode(), seen)


def make(config, state):
    return Counter(config, state)


def brief(engine, settings):
    heard = [
        sorted(reply.data.decode() for reply in engine.exchange(
            dict.fromkeys(engine.participants(), b"hello"), timeout=120.0))
        for _ in range(settings["rounds"])
    ]
    return json.dumps(heard).encode()


def dies(engine, settings):
    os.kill(os.getpid(), signal.SIGKILL)


def fails(engine, settings):
    raise LookupError("no such model")


def long(engine, settings):
    """One round when told to; goes on after the last one that it finished."""
    folder = Path(settings["folder"])
    kept = folder / "checkpoint.json"
    if not kept.exists():
        kept.write_text(json.dumps({"next": 0, "names": list(engine.participants())}))
    checkpoint = json.loads(kept.read_text())
    while True:
        go = folder / f"go-{checkpoint['next']}"
        while not go.exists():
            time.sleep(0.05)
        if go.read_text() == "stop":
            return b"stopped"
        messages = dict.fromkeys(checkpoint["names"], go.read_text().encode())
        heard = [[reply.data and reply.data.decode(), reply.error]
                 for reply in engine.exchange(messages, timeout=90.0)]
        (folder / "heard.new").write_text(json.dumps(heard))
        (folder / "heard.new").replace(folder / f"heard-{checkpoint['next']}")
        checkpoint["next"] += 1
        kept.write_text(json.dumps(checkpoint))
'''


class Town:
    """A coordinator and wards, in a folder."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.root, self.stack = root, stack
        self.signs = root / "signs"
        self.signs.mkdir()
        self.coordinator = self.open()

    def open(self) -> Coordinator:
        return self.stack.enter_context(Coordinator(self.root / "coordinator"))

    def ward(self, who: str, **more: Any) -> Started:
        key = make_node_key(self.root / "keys" / who)
        return self._join(who, key.private, self.coordinator.authority, **more)

    def admit(self, who: str) -> None:
        self.coordinator.register(make_node_key(self.root / "keys" / who).public)

    def _join(self, who: str, key: Path, authority: Path, **more: Any) -> Started:
        config = {"who": who, "signs": str(self.signs)}
        node = join(
            self.root / who, self.coordinator.address, authority, key, "town:make", config, **more
        )
        self.stack.callback(node.kill)
        return node

    def long(self) -> Leading:
        return self.coordinator.lead("town:long", {"folder": str(self.signs)}, least=3)

    def go(self, number: int, message: str) -> None:
        beside = self.signs / "go.new"
        beside.write_text(message)
        beside.replace(self.signs / f"go-{number}")

    def heard(self, number: int) -> tuple[list[str], list[str]]:
        """What was answered, and the errors."""
        path = self.signs / f"heard-{number}"
        superlink = self.coordinator.superlink
        wait_until(f"round {number}", path.exists, timeout=120.0, processes=[superlink])
        replies = json.loads(path.read_text())
        return sorted(data for data, _ in replies if data), [error for _, error in replies if error]

    def sign(self, name: str) -> None:
        wait_until(name, (self.signs / name).exists, timeout=120.0)


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "town.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(modules))
    with ExitStack() as stack:
        yield Town(tmp_path, stack)


def status_from(address: str, authority: Path, source: str, path: str) -> int:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPSConnection(
        host,
        int(port),
        context=ssl.create_default_context(cafile=str(authority)),
        source_address=(source, 0),
        timeout=30.0,
    )
    try:
        connection.request("POST", path)
        return connection.getresponse().status
    finally:
        connection.close()


def test_two_wards_and_a_stranger(town: Town) -> None:
    for who in ("north", "south"):
        town.admit(who)
        town.ward(who)
    stranger = town.ward("stranger", patience=3600.0)
    leading = town.coordinator.lead("town:brief", {"rounds": 3}, least=2)
    result = leading.wait(120.0)
    assert result is not None
    assert json.loads(result) == [[f"north {n}", f"south {n}"] for n in (1, 2, 3)]
    assert stranger.wait(60.0) == 3
    (said,) = stranger.last_words().splitlines()
    assert "not registered" in said
    assert "--node" in said
    address, authority = town.coordinator.address, town.coordinator.authority
    assert status_from(address, authority, "127.0.0.2", "/v1/control/start-run") == 403
    assert status_from(address, authority, "127.0.0.1", "/v1/control/start-run") != 403
    assert town.coordinator.folder.stat().st_mode & 0o777 == 0o700
    assert (town.coordinator.folder / "superlink.db").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["town", "town:", "no spaces:make"])
def test_bad_names_are_refused_before_anything_starts(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="module:function"):
        join(tmp_path / "ward", "127.0.0.1:1", "ca.pem", "key", name)
    with pytest.raises(ValueError, match="module:function"):
        serve(tmp_path / "coordinator", name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wards_and_coordinator_are_killed_and_come_back(town: Town) -> None:
    nodes = {}
    for who in ("east", "north", "south"):
        town.admit(who)
        nodes[who] = town.ward(who)
    town.long()

    town.go(0, "hello")
    assert town.heard(0) == (["east 1", "north 1", "south 1"], [])

    # Killed while she answers, and does not come back: the others are heard, she is known as gone.
    town.go(1, "hang east")
    town.sign("hangs-2")
    nodes["east"].kill()
    answers, errors = town.heard(1)
    assert answers == ["north 2", "south 2"]
    assert len(errors) == 1
    assert "Node Unavailable" in errors[0]

    # She comes back, and remembers that she was asked twice.
    nodes["east"] = town.ward("east")
    wait_until("she is in", lambda: nodes["east"].last_words().count("is in") == 2, timeout=60.0)
    town.go(2, "hello")
    assert town.heard(2) == (["east 3", "north 3", "south 3"], [])

    # Killed while she answers, and back at once: she says that there is no answer.
    town.go(3, "hang east")
    town.sign("hangs-4")
    nodes["east"].kill()
    nodes["east"] = town.ward("east")
    answers, errors = town.heard(3)
    assert answers == ["north 4", "south 4"]
    assert len(errors) == 1
    assert FAILED in errors[0]

    # Stopped, as if her network were cut.
    os.kill(nodes["north"].process.pid, signal.SIGSTOP)
    town.go(4, "hello")
    answers, errors = town.heard(4)
    assert answers == ["east 5", "south 5"]
    assert len(errors) == 1
    os.kill(nodes["north"].process.pid, signal.SIGCONT)

    # The SuperLink is killed; on the same folder another goes on after the last finished round.
    os.kill(town.coordinator.superlink.process.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="without a result"):
        Leading(town.coordinator.folder, "x", town.coordinator.superlink).wait(60.0)
    assert nodes["south"].alive
    address = town.coordinator.address
    town.coordinator = town.open()
    assert town.coordinator.address == address
    leading = town.long()
    town.go(5, "hello")
    assert town.heard(5) == (["east 6", "north 5", "south 6"], [])

    town.go(6, "stop")
    assert leading.wait(60.0) == b"stopped"
    for node in nodes.values():
        node.stop()
        assert node.wait(1.0) == 0


@pytest.mark.slow
def test_another_superlink_and_leads_that_fail(town: Town, tmp_path: Path) -> None:
    town.admit("north")
    other = make_certificates(tmp_path / "other")
    key = make_node_key(tmp_path / "keys" / "north").private
    fooled = town._join("north", key, other.authority)
    assert fooled.wait(60.0) == 3
    assert "not our SuperLink" in fooled.last_words()

    with pytest.raises(RuntimeError, match="no such model"):
        town.coordinator.lead("town:fails", least=0).wait(120.0)
    with pytest.raises(RuntimeError, match="1 are needed"):
        town.coordinator.lead("town:fails", least=1, patience=1.0).wait(120.0)
    with pytest.raises(RuntimeError, match="without a result"):
        town.coordinator.lead("town:dies", least=0).wait(120.0)


@pytest.mark.slow
def test_flowers_own_supernodes(town: Town) -> None:
    for who in ("north", "south"):
        town.admit(who)
        town.ward(who, runner="flower")
    result = town.coordinator.lead("town:brief", {"rounds": 2}, least=2).wait(200.0)
    assert result is not None
    assert json.loads(result) == [[f"north {n}", f"south {n}"] for n in (1, 2)]
