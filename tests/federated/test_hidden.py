"""Federations under hidden sums: the server adds what it cannot read."""

import numpy as np
import pytest

pytest.importorskip("tenseal")

from sfumato.core.randomness import SeededCoins
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.hidden import HiddenMember
from sfumato.federated.in_process import InProcess
from sfumato.federated.noises import LocalNoise
from sfumato.federated.orders import Order
from sfumato.federated.secure.ckks_keys import CkksKeys
from sfumato.federated.sums import HiddenSum
from sfumato.federated.works import LotGradients


@pytest.fixture(scope="module")
def keys():
    return CkksKeys.generate()


def hidden(small, federation, keys):
    members = small.members(federation).items()
    return {name: HiddenMember(member, keys) for name, member in members}


def trained(federation, members, keys, **options):
    engine = InProcess(members)
    options = {"public_key": keys.public(), "coins": SeededCoins(1)} | options
    coordinator = Coordinator(federation, engine, **options)
    coordinator.train()
    return coordinator


def weights_of(coordinator, member):
    state = coordinator.state
    return member.opened(Order("", "", 0, 1.0, state.weights, state.sealed))


@pytest.mark.parametrize("work", [None, LotGradients(0.5, 1.0, 300)])
def test_the_same_model_as_by_plain_sums_and_only_participants_have_it(small, keys, work):
    changes = {"rounds": 3} | ({} if work is None else {"work": work})
    plain = small.federation(**changes)
    secret = small.federation(**changes, sums=HiddenSum())
    one = Coordinator(plain, InProcess(small.members(plain)), coins=SeededCoins(1)).train()
    members = hidden(small, secret, keys)
    coordinator = trained(secret, members, keys)
    assert not coordinator.state.weights.any()  # the initial ones, which are public
    np.testing.assert_allclose(weights_of(coordinator, members["p0"]), one.weights, atol=2e-5)


def test_who_missed_rounds_knows_the_weights_from_the_order(small, keys):
    federation = small.federation(rounds=3, sums=HiddenSum())
    members = hidden(small, federation, keys)
    late = members.pop("p4")
    coordinator = trained(federation, members, keys)
    assert weights_of(coordinator, late).any()


def test_another_key_is_refused_and_named(small, keys):
    told = []
    federation = small.federation(rounds=1, sums=HiddenSum())
    members = hidden(small, federation, keys)
    members["p1"] = HiddenMember(small.member(federation, 1), CkksKeys.generate())
    trained(federation, members, keys, watch=told.append)
    assert told[0].survivors == 4
    assert "p1" in told[0].refused or "p1" in told[0].traffic.silent


def test_a_resumed_run_goes_on_with_its_ciphertexts(small, keys, tmp_path):
    federation = small.federation(rounds=3, sums=HiddenSum())

    class Stops(BaseException):
        pass

    def stop(facts):
        if facts.number == 2:
            raise Stops

    members = hidden(small, federation, keys)
    with pytest.raises(Stops):
        trained(federation, members, keys, folder=tmp_path / "run", watch=stop)
    coordinator = trained(federation, members, keys, folder=tmp_path / "run")
    assert coordinator.state.completed == 3
    assert (tmp_path / "run" / "curator" / "model.ckks").stat().st_size > 0
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_one_shared_key_is_said_to_fail_with_one_who_tells(small):
    federation = small.federation(
        participants=5, noise=LocalNoise(2.0, least=4), sums=HiddenSum(), rounds=10
    )
    by_observer = {view.observer: view.guarantee(1e-5).epsilon for view in federation.views}
    assert set(by_observer) == {"released models", "server", "server and one participant"}
    assert by_observer["server and one participant"] > by_observer["released models"]


class Dead:
    """Seems to be there, and does not answer."""

    def answer(self, message):
        raise ConnectionError


def test_too_few_and_there_is_no_sum(small, keys):
    told = []
    federation = small.federation(rounds=1, noise=LocalNoise(1.0, least=3), sums=HiddenSum())
    members = hidden(small, federation, keys)
    for name in ("p2", "p3", "p4"):
        members[name] = Dead()
    trained(federation, members, keys, watch=told.append)
    assert not told[0].used


def test_refusals(small):
    with pytest.raises(ValueError, match="public_key must be given"):
        Coordinator(small.federation(sums=HiddenSum()), InProcess({}))
