"""Load on a real deployment: many participants, large messages, one that is slow; on loopback."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from sfumato.federated.flower.deployment import Coordinator, join
from sfumato.federated.flower.node_keys import make_node_key

MODULE = '''
import hashlib, json, time


class Echo:
    """Answers with the digest of what she was sent, and as many bytes again."""

    def __init__(self, config, state):
        self.slow = config["who"] == "slow"

    def answer(self, message):
        if self.slow:
            time.sleep(600.0)
        return hashlib.sha256(message).digest() + message


def make(config, state):
    return Echo(config, state)


def crowd(engine, settings):
    """So many rounds of so many bytes; what came back, and whether it was right."""
    rounds = []
    for number in range(settings["rounds"]):
        sent = {name: bytes([number, at]) * (settings["bytes"] // 2)
                for at, name in enumerate(engine.participants())}
        right, wrong = 0, []
        for reply in engine.exchange(sent, timeout=settings["timeout"]):
            told = sent[reply.name]
            if reply.data == hashlib.sha256(told).digest() + told:
                right += 1
            else:
                wrong.append(reply.error or "other bytes")
        rounds.append([right, wrong])
    return json.dumps(rounds).encode()
'''


def crowded(tmp_path, names, **settings):
    with ExitStack() as stack:
        coordinator = stack.enter_context(Coordinator(tmp_path / "coordinator"))
        for name in names:
            key = make_node_key(tmp_path / "keys" / name)
            coordinator.register(key.public)
            node = join(
                tmp_path / name, coordinator.address, coordinator.authority, key.private,
                "crowd:make", {"who": name},
            )  # fmt: skip
            stack.callback(node.kill)
        leading = coordinator.lead("crowd:crowd", settings, least=len(names), patience=240.0)
        result = leading.wait(420.0)
    assert result is not None
    return json.loads(result)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "crowd.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_twenty_participants_and_a_megabyte_each_way(tmp_path):
    names = [f"ward-{number}" for number in range(20)]
    found = crowded(tmp_path, names, rounds=5, bytes=1_000_000, timeout=120.0)
    assert found == [[20, []]] * 5


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_one_who_is_slow_is_left_behind_and_holds_up_nobody(tmp_path):
    names = ["slow", *(f"ward-{number}" for number in range(5))]
    found = crowded(tmp_path, names, rounds=2, bytes=1_000, timeout=15.0)
    assert [(right, len(wrong)) for right, wrong in found] == [(5, 1)] * 2
