"""Every observer's whole transcript, on two neighbouring federations of a few participants.

What is seen beside numbers (names, how many, how many bytes, which rounds there are) must be the
same under the relation of the view, coin for coin. Numbers with noise differ by the clip norm at
most; that the accounted noise covers them is tested where it is drawn.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from sfumato.accounting import account
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SeededCoins
from sfumato.federated.coordinator import Coordinator, TooFewParticipants
from sfumato.federated.exchange import Reply
from sfumato.federated.in_process import InProcess
from sfumato.federated.masked import MaskedMember
from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.federated.sums import HiddenSum, MaskedSum
from sfumato.federated.views import (
    RELEASED,
    SERVER,
    WITH_KEY,
    WITH_NAMES,
    relation_of,
    views_of,
)
from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients

ADD, ZERO, REPLACE = Neighbours.ADD_REMOVE, Neighbours.ZERO_OUT, Neighbours.REPLACE_ONE
LOTS = LotGradients(0.5, 1.0, 300)
SELECTED = {"work": SelectedGradients(50.0, 0.5, 0.1, 0.0, steps=2), "noise": NoNoise()}

SETTINGS = {
    "central": {"noise": CentralNoise(2.0), "participation": 0.6},
    "central, all": {"noise": CentralNoise(2.0)},
    "central, records": {"noise": CentralNoise(2.0), "work": LOTS, "participation": 0.6},
    "central, masked": {"noise": CentralNoise(2.0), "sums": MaskedSum(3)},
    "local": {"noise": LocalNoise(2.0, least=2), "participation": 0.8},
    "local, records": {"noise": LocalNoise(2.0, least=3), "work": LOTS},
    "shared": {"noise": SharedNoise(4.0, least=3, bits=24), "sums": MaskedSum(4)},
    "shared, records": {"noise": SharedNoise(4.0, 3, bits=24), "sums": MaskedSum(4), "work": LOTS},
    "selected": SELECTED,
}
RELATIONS = {  # of released models, of those with names, of the server
    "central": (ADD, ZERO, None),
    "central, all": (ADD, ZERO, None),
    "central, records": (ADD, ADD, None),
    "central, masked": (ZERO, ZERO, None),
    "local": (ZERO, ZERO, ZERO),
    "local, records": (ADD, ADD, ADD),
    "shared": (ZERO, ZERO, ZERO),
    "shared, records": (ADD, ADD, ADD),
    "selected": (REPLACE, REPLACE, REPLACE),
}


class Tapped:
    """An engine that writes down what passes: names and lengths, both ways."""

    def __init__(self, members):
        self.inner, self.seen = InProcess(members), []

    def participants(self):
        return self.inner.participants()

    def exchange(self, messages, *, timeout=600.0):
        self.seen.append([(name, len(message)) for name, message in messages.items()])
        for reply in self.inner.exchange(messages, timeout=timeout):
            self.seen.append((reply.name, None if reply.data is None else len(reply.data)))
            yield Reply(reply.name, reply.data)


def shown(small, federation, change, observer):
    """What an observer sees beside numbers, with the same coins for everybody."""
    members = small.members(federation)
    first = members["p0"]
    if change == "absent":
        del members["p0"]
    elif change == "zeros":  # without rows nothing is trained: zeros
        first.local.inputs, first.local.labels = first.local.inputs[:0], first.local.labels[:0]
    elif change == "other rows":
        first.local.inputs = first.local.inputs * float("nan")
    elif change == "one row less":
        first.local.inputs, first.local.labels = first.local.inputs[1:], first.local.labels[1:]
    options = {}
    if isinstance(federation.sums, MaskedSum):
        names = [f"p{i}" for i in range(federation.participants)]
        keys = {name: IdentityKey.generate() for name in names}
        options["directory"] = Directory({name: key.public for name, key in keys.items()})
        members = {
            name: MaskedMember(member, keys[name], options["directory"])
            for name, member in members.items()
        }
    facts, engine = [], Tapped(members)
    coordinator = Coordinator(
        federation, engine, coins=SeededCoins(7), watch=facts.append, **options
    )
    try:
        coordinator.train()
    except TooFewParticipants:
        facts.append(None)
    rounds = [None if each is None else (each.number, each.used) for each in facts]
    if observer == RELEASED:
        return rounds
    if observer == WITH_NAMES:
        asked = [[name for name, _ in each] for each in engine.seen if isinstance(each, list)]
        answered = [each[0] for each in engine.seen if isinstance(each, tuple)]
        return rounds, asked, answered
    return rounds, engine.seen


_CHANGES = {
    ("client", ADD): "absent",
    ("client", ZERO): "zeros",
    ("client", REPLACE): "other rows",
    ("record", ADD): "one row less",
}


@pytest.mark.parametrize("observer", [RELEASED, WITH_NAMES, SERVER])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_relation_covers_whatever_is_seen(small, name, observer):
    federation = small.federation(rounds=3, **SETTINGS[name])
    relation = relation_of(federation, observer)
    stated = dict(zip((RELEASED, WITH_NAMES, SERVER), RELATIONS[name], strict=True))[observer]
    if stated is None:  # nothing is promised to a server that adds the noise
        assert math.isinf(federation.guarantee(observer).epsilon)
        return
    assert relation is stated
    for view in federation.views:
        if view.observer == observer:
            assert view.event.relation is view.guarantee(0.1).neighbours is relation
    unit = federation.work.unit
    change = _CHANGES[unit, relation]
    before, after = (shown(small, federation, each, observer) for each in ("", change))
    assert before == after
    if unit == "client" and relation is not ADD and observer != RELEASED:
        assert shown(small, federation, "absent", observer) != before  # add or remove is not so


def test_the_views_with_a_key_are_as_the_servers():
    pytest.importorskip("tenseal")
    from sfumato.federated.federation import Federation

    for work, relation in ((ClientUpdates(), ZERO), (LOTS, ADD)):
        federation = Federation(
            "linear", (4,), 3, 5, 4, work, LocalNoise(2.0, least=3), HiddenSum()
        )
        found = {view.observer: view for view in views_of(federation)}
        assert set(found) == {RELEASED, SERVER, WITH_KEY}
        assert {view.event.relation for view in found.values()} == {relation}
        assert found[WITH_KEY].guarantee(1e-5).epsilon > found[SERVER].guarantee(1e-5).epsilon


class Constant:
    """A participant whose contribution is one number in the first place."""

    def __init__(self, value):
        self.value = value

    def answer(self, message):
        order = Order.from_bytes(message, 15)
        numbers = np.zeros(15)
        numbers[0] = self.value
        return Contribution(order.run, order.attempt, numbers).to_bytes()


def drawn(small, federation, members):
    """For each round: what the first weight moved by, and whether b was asked."""
    engine = Tapped(members)
    coordinator = Coordinator(federation, engine, coins=SeededCoins(1))
    moved, seen = [], []
    for _ in range(federation.rounds):
        before, engine.seen = coordinator.state.weights[0], []
        coordinator._round()
        moved.append((coordinator.state.weights[0] - before) * federation.denominator)
        names = [n for each in engine.seen if isinstance(each, list) for n, _ in each]
        seen.append("b" in names)
    return np.array(moved), np.array(seen)


def covered(events, others, epsilon, delta):
    """Whether Pr[E] <= e^epsilon Pr'[E] + delta may hold, at 99.9 %, for counts of E."""
    low = stats.beta.ppf(5e-4, events.sum(), len(events) - events.sum() + 1)
    high = stats.beta.ppf(1 - 5e-4, others.sum() + 1, len(others) - others.sum())
    return not low > math.exp(epsilon) * high + delta


def test_an_adversary_with_the_list_stays_within_zero_out_and_breaks_add_or_remove(small):
    """Two of three rounds, coins of one half: she is on the list seven times in eight."""
    federation = small.federation(
        participants=2, rounds=3, participation=0.5, work=ClientUpdates(clip=1.0),
        noise=CentralNoise(40.0),
    )  # fmt: skip
    view = federation.view(WITH_NAMES)
    promise = view.guarantee(1e-3)
    assert promise.neighbours is ZERO
    assert promise.epsilon < 0.2
    often = replace(federation, rounds=3 * 200)

    def listed(members):  # in each of 200 runs of three rounds
        _, seen = drawn(small, often, members)
        return seen.reshape(200, 3).any(axis=1)

    with_her = listed({"a": Constant(0.0), "b": Constant(1.0)})
    as_zeros = listed({"a": Constant(0.0), "b": Constant(0.0)})
    without = listed({"a": Constant(0.0)})
    assert with_her.mean() == pytest.approx(1 - 0.5**3, abs=0.07)
    assert not without.any()
    assert covered(with_her, as_zeros, promise.epsilon, promise.delta)
    assert covered(as_zeros, with_her, promise.epsilon, promise.delta)
    # What was stated before: the same figures, for a client who is there or is not.
    assert not covered(with_her, without, promise.epsilon, promise.delta)


@pytest.mark.parametrize("change", ["zeros", "absent"])
def test_an_adversary_with_the_models_alone_stays_within_the_claim(small, change):
    """The best test on the exact mixture; and draws follow that mixture."""
    z, q = 1.0, 0.5
    federation = small.federation(
        participants=2, rounds=1, participation=q, work=ClientUpdates(clip=1.0),
        noise=CentralNoise(z),
    )  # fmt: skip
    view = federation.view(RELEASED)
    assert "another participant" in view.given
    assert view.guarantee(1e-3).neighbours is ADD
    often = replace(federation, rounds=1500)
    with_her, _ = drawn(small, often, {"a": Constant(0.0), "b": Constant(1.0)})
    others = {"a": Constant(0.0)} | ({"b": Constant(0.0)} if change == "zeros" else {})
    without, _ = drawn(small, often, others)
    c = 1 - 2.0**-14
    mixture = lambda x: (1 - q) * stats.norm.cdf(x, 0, z) + q * stats.norm.cdf(x, c, z)  # noqa: E731
    assert stats.kstest(with_her, mixture).pvalue > 1e-4
    assert stats.kstest(without, lambda x: stats.norm.cdf(x, 0, z)).pvalue > 1e-4
    x = np.linspace(-12, 12, 200_001)
    p = (1 - q) * stats.norm.pdf(x, 0, z) + q * stats.norm.pdf(x, c, z)
    r = stats.norm.pdf(x, 0, z)
    for epsilon in (0.1, 0.5, 1.0):
        exact = np.trapezoid(np.clip(p - math.exp(epsilon) * r, 0, None), x)
        claimed = account(view.event, exact * 1.001).epsilon
        assert claimed == pytest.approx(epsilon, rel=0.02)
        assert account(view.event, exact * 0.999).epsilon >= epsilon * (1 - 1e-3)


def test_the_list_is_a_view_of_its_own_where_some_are_asked(small):
    asked = small.federation(noise=CentralNoise(2.0), participation=0.5)
    assert [view.observer for view in asked.views] == [RELEASED, WITH_NAMES, SERVER]
    assert not asked.view(WITH_NAMES).given
    records = replace(asked, work=LOTS)
    assert [view.observer for view in records.views] == [RELEASED, SERVER]
    assert "given" not in records.view(RELEASED).to_dict(1e-5)
    assert "given" in asked.view(RELEASED).to_dict(1e-5)


def test_the_condition_of_a_view_is_in_its_guarantee(small):
    asked = small.federation(noise=CentralNoise(2.0), participation=0.5)
    for view in asked.views:
        found = view.guarantee(1e-5)
        assert found.note.startswith(view.condition)
        assert ("another participant" in found.note) == bool(view.given)
    released = asked.guarantee(RELEASED)
    assert released.note == f"given that {asked.view(RELEASED).given}"
    assert released.note in repr(released)
    assert released.note in released._repr_html_()
    assert released.to_dict()["note"] == asked.view(RELEASED).to_dict(1e-5)["note"]


@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_a_federation_of_one_does_not_hide_that_she_is_there(small, participation):
    """Without her no model ever comes: add or remove is never promised, and nothing is given."""
    alone = small.federation(participants=1, noise=CentralNoise(2.0), participation=participation)
    view = alone.view(RELEASED)
    assert relation_of(alone, RELEASED) is Neighbours.ZERO_OUT
    assert view.guarantee(1e-5).neighbours is Neighbours.ZERO_OUT
    assert view.given == view.condition == view.guarantee(1e-5).note == ""
    two = replace(alone, participants=2)
    assert relation_of(two, RELEASED) is Neighbours.ADD_REMOVE
    assert two.guarantee(RELEASED).note
