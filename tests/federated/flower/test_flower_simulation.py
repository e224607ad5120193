"""Flower's simulator, for real: Ray's processes, five participants."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

import pytest

from sfumato.federated.exchange import Engine, Participant
from sfumato.federated.flower.simulation import simulate


def make(config: Mapping[str, object], state: MutableMapping[str, bytes]) -> Participant:
    class Counter:  # in a function, so that Ray's workers need not find this module
        def answer(self, message: bytes) -> bytes:
            seen = int(state.get("seen", b"0")) + 1
            state["seen"] = str(seen).encode()
            if message == b"fail" and config["partition-id"] == 2:
                raise ValueError("a secret")
            return b"%s %d %d" % (message, config["partition-id"], seen)

    return Counter()


@pytest.mark.slow  # Ray alone takes half a minute to start on two busy cores
def test_five_participants_three_exchanges() -> None:
    before = dict(os.environ)
    rounds: list[dict[str, bytes | None]] = []
    errors: list[str] = []

    def lead(engine: Engine) -> int:
        names = engine.participants()
        for message in (b"first", b"fail", b"third"):
            replies = list(engine.exchange(dict.fromkeys(names, message), timeout=120.0))
            rounds.append({reply.name: reply.data for reply in replies})
            errors.extend(reply.error for reply in replies if reply.error)
        return len(names)

    assert simulate(lead, make, clients=5, workers=2) == 5
    assert [set(heard) == set(rounds[0]) for heard in rounds] == [True] * 3
    assert sorted(rounds[0].values(), key=str) == [b"first %d 1" % who for who in range(5)]
    assert sorted(rounds[2].values(), key=str) == [b"third %d 3" % who for who in range(5)]
    assert [*rounds[1].values()].count(None) == 1
    assert len(errors) == 1
    assert "secret" not in errors[0]
    assert dict(os.environ) == before


@pytest.mark.slow
def test_an_error_of_the_coordinator_comes_out_and_another_simulation_can_follow() -> None:
    def wrong(engine: Engine) -> None:
        raise LookupError("no such model")

    with pytest.raises(LookupError, match="no such model"):
        simulate(wrong, make, clients=2)

    def large(engine: Engine) -> list[int]:
        name = engine.participants()[0]
        replies = engine.exchange({name: bytes(50_000_000)}, timeout=120.0)
        return [len(reply.data or b"") for reply in replies]

    assert simulate(large, make, clients=2) == [50_000_004]


@pytest.mark.parametrize("clients", [0, -1, 1.5])
def test_bad_numbers_of_clients(clients: int) -> None:
    with pytest.raises(ValueError, match="clients"):
        simulate(lambda engine: None, make, clients)
