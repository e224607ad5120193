"""Rounds: charged before they are sent, never sent twice, and hurt by nobody's faults."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from sfumato.core.events import LaplaceEvent
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.federated.coordinator import Coordinator, TooFewParticipants
from sfumato.federated.in_process import InProcess
from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.server_state import ServerState
from sfumato.federated.wire import pack
from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded


class Told:
    """A watcher that remembers."""

    def __init__(self):
        self.rounds = []

    def __call__(self, facts):
        self.rounds.append(facts)


class Answers:
    """A participant whose contribution is given."""

    def __init__(self, make):
        self.make, self.seen = make, []

    def answer(self, message):
        size = len(Order.from_bytes(message, 15).weights)
        order = Order.from_bytes(message, size)
        self.seen.append(order)
        found = self.make(order)
        if isinstance(found, bytes):
            return found
        return Contribution(order.run, order.attempt, found).to_bytes()


def constant(value, size=15):
    return Answers(lambda order: np.full(size, value))


def broken(error):
    def make(order):
        raise error

    return Answers(make)


def weights_after(small, federation, members, **options):
    coordinator = Coordinator(federation, InProcess(members), coins=SeededCoins(1), **options)
    return coordinator.train().weights


# --- what a round does ----------------------------------------------------------------------------


def test_without_noise_and_clip_it_is_federated_averaging(small):
    """One step of everybody's from the same weights is one step on all rows."""
    federation = small.federation(
        participants=3, rounds=1, work=LotGradients(1.0, 1e6, 180), server_rate=0.5
    )
    coordinator = small.coordinator(federation)
    before = coordinator.state.weights.copy()
    after = coordinator.train().weights
    everyone = small.member(small.federation(work=LotGradients(1.0, 1e6, 180)))
    everyone.local.inputs, everyone.local.labels = small.inputs[:180], small.labels[:180]
    whole = everyone.federation.work.contribution(everyone.local, before, 1e6, SeededCoins(1))
    np.testing.assert_allclose(after, before - 0.5 * whole / 180, atol=1e-5)


@pytest.mark.parametrize(
    ("work", "noise"),
    [
        (ClientUpdates(steps=5, rate=0.3, clip=1.0), NoNoise()),
        (ClientUpdates(steps=5, rate=0.3, clip=1.0), CentralNoise(0.1)),
        (ClientUpdates(steps=5, rate=0.3, clip=0.05, quantile=0.5), CentralNoise(0.1)),
        (ClientUpdates(steps=5, rate=0.3, clip=1.0), LocalNoise(0.1, 4)),
        (LotGradients(0.5, 1.0, 300), LocalNoise(0.5, 4)),
        (SelectedGradients(1e4, 0.5, 0.1, 0.0, steps=5, rate=0.3), NoNoise()),
    ],
)
def test_everybody_learns(small, work, noise):
    federation = small.federation(work=work, noise=noise, rounds=15, server_rate=1.0)
    assert small.coordinator(federation).train().accuracy > 0.9


def test_the_denominator_is_fixed_so_who_drops_out_costs_utility(small):
    """Two of five answer: the mean is over five, and one client moves it by C / 5 at most."""
    federation = small.federation(rounds=1, work=ClientUpdates(clip=10.0))
    members = {"a": constant(0.5), "b": constant(0.5), "c": broken(OSError("gone"))}
    after = weights_after(small, federation, members)
    np.testing.assert_allclose(after, 2 * 0.5 / 5, rtol=1e-5)


def test_a_heavy_client_has_no_more_influence_than_others(small):
    federation = small.federation(rounds=1, work=ClientUpdates(clip=1.0))
    after = weights_after(small, federation, {"a": constant(1e30), "b": constant(0.0)})
    assert np.linalg.norm(after) <= 1.0 / 5 * (1 + 1e-6)


def test_noise_of_participants_is_not_clipped_away(small):
    """A contribution is as long as its noise makes it; one who sends far more is cut."""
    federation = small.federation(
        rounds=200, work=ClientUpdates(steps=1, clip=1.0), noise=LocalNoise(4.0, 1)
    )
    members = {"a": small.member(federation), "b": constant(0.0)}
    coordinator = Coordinator(federation, InProcess(members), coins=SeededCoins(1))
    drawn = []
    for _ in range(200):
        before = coordinator.state.weights
        coordinator._round()
        drawn.append(5 * (coordinator.state.weights - before))
    assert np.std(drawn) == pytest.approx(4.0, rel=0.05)
    one = small.federation(rounds=1, work=ClientUpdates(clip=1.0), noise=LocalNoise(4.0, 1))
    cut = 5 * weights_after(small, one, {"a": constant(1e30), "b": constant(0.0)})
    assert np.linalg.norm(cut) == pytest.approx(1 + 4 * (15**0.5 + 8), rel=1e-3)


def test_zero_updates_are_ordinary(small):
    federation = small.federation(rounds=2, noise=CentralNoise(0.1))
    after = weights_after(small, federation, {"a": constant(0.0)})
    assert np.isfinite(after).all()
    assert after.any()


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda order: np.full(15, np.nan), "not finite"),
        (lambda order: np.append(np.zeros(14), np.inf), "not finite"),
        (lambda order: np.zeros(14), "15 numbers"),
        (lambda order: np.zeros(10**6), "at most were agreed"),
        (lambda order: b"\x80\x04\x95pickle", "no message"),
        (lambda order: pack({"kind": "contribution"}), "numbers"),
        (lambda order: Contribution("r", 0, np.zeros(15)).to_bytes(), "attempt 0 of 'r'"),
        (
            lambda order: Contribution(order.run, order.attempt - 1, np.zeros(15)).to_bytes(),
            "attempt",
        ),
        (lambda order: order.to_bytes(), "numbers"),
    ],
)
def test_bad_updates_are_refused_and_named(small, make, why):
    told = Told()
    federation = small.federation(rounds=1, work=ClientUpdates(clip=10.0))
    members = {"good": constant(0.5), "bad": Answers(make)}
    after = weights_after(small, federation, members, watch=told)
    np.testing.assert_allclose(after, 0.5 / 5, rtol=1e-5)
    assert why in told.rounds[0].refused["bad"]
    assert told.rounds[0].survivors == 1


def test_one_failing_client_does_not_stop_the_others(small):
    told = Told()
    federation = small.federation(rounds=3)
    members = small.members(federation) | {"p1": broken(RuntimeError("out of memory"))}
    small.coordinator(federation, members, watch=told).train()
    assert [facts.survivors for facts in told.rounds] == [4, 4, 4]
    assert "out of memory" in told.rounds[0].traffic.silent["p1"]


def test_clipping_adapts_towards_its_quantile_and_not_away(small):
    """Everything clipped: C grows. Nothing clipped: C falls."""
    ends = {}
    for first in (1e-3, 100.0):
        work = ClientUpdates(steps=5, rate=0.3, clip=first, quantile=0.5, clip_rate=0.5)
        federation = small.federation(work=work, rounds=25, participants=5)
        coordinator = small.coordinator(federation)
        coordinator.train()
        ends[first] = coordinator.state.clip
    assert ends[1e-3] > 0.05
    assert ends[100.0] < 10


# --- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_central_noise_has_its_size(small, quantile):
    """Fails if it were a tenth off; where C adapts, the sum has more and the count has its own."""
    z, clip, rounds = 0.2, 0.5, 400
    work = ClientUpdates(steps=1, clip=clip, quantile=quantile, clip_rate=1e-9)
    federation = small.federation(rounds=rounds, noise=CentralNoise(z), work=work, participants=5)
    size = 15 + work.extra
    members = {"a": constant(0.0, size)}
    coordinator = Coordinator(federation, InProcess(members), coins=SeededCoins(3))
    drawn = []
    while coordinator.state.attempts < rounds:
        before = coordinator.state.weights
        coordinator._round()
        drawn.append(coordinator.state.weights - before)
    expected = z if quantile is None else (z**-2 - (2 * 5 / 20) ** -2) ** -0.5
    assert np.std(drawn) * 5 == pytest.approx(expected * clip, rel=0.05)


@pytest.mark.parametrize("scale", [1.0, 0.8])
def test_audit_of_a_round(small, scale):
    """Rounds with and without one client's contribution; noise a fifth too small shows."""
    z, rounds = 0.6, 3000
    ran = small.federation(
        rounds=rounds, noise=CentralNoise(z * scale), work=ClientUpdates(clip=1.0)
    )
    canary = Answers(lambda order: np.full(15, 100.0 if order.attempt % 2 else 0.0))
    members = {"a": constant(0.01), "canary": canary}
    coordinator = Coordinator(ran, InProcess(members), coins=SeededCoins(17))
    seen = [coordinator.state.weights]
    for _ in range(rounds):
        coordinator._round()
        seen.append(coordinator.state.weights)
    shown = 5 * np.diff(np.array(seen, np.float64), axis=0) @ np.full(15, 15**-0.5)
    without, with_it = shown[::2], shown[1::2]
    n, spread = len(with_it), max(with_it.std(ddof=1), without.std(ddof=1))
    shift = with_it.mean() - without.mean()
    low = shift - stats.norm.ppf(0.9995) * spread * math.sqrt(2 / n)
    high = spread * math.sqrt((n - 1) / stats.chi2.ppf(0.0005, n - 1))
    refuted = bool(low / high > 1 / z)  # a lower bound on mu, at 99.9 %
    assert refuted is (scale < 1)
    assert shift == pytest.approx(1.0, rel=0.1)  # the canary reaches its clip


def test_who_is_asked_is_drawn_afresh_at_the_rate(small):
    told = Told()
    federation = small.federation(participants=40, participation=0.25, rounds=60)
    members = {f"p{i}": constant(0.0) for i in range(40)}
    coordinator = Coordinator(federation, InProcess(members), coins=SeededCoins(5), watch=told)
    coordinator.train()
    asked = [facts.asked for facts in told.rounds]
    assert 0.25 * 2400 - 4 * math.sqrt(450) < sum(asked) < 0.25 * 2400 + 4 * math.sqrt(450)
    assert len(set(asked)) > 4


def test_a_round_with_nobody_in_it_looks_like_any_other(small):
    federation = small.federation(rounds=1, participation=1e-9, noise=CentralNoise(1.0))
    after = weights_after(small, federation, {"a": constant(1.0)})
    assert after.any()


def test_too_few_for_local_noise_and_the_round_is_thrown_away(small):
    told = Told()
    federation = small.federation(rounds=2, noise=LocalNoise(1.0, least=2))
    members = {"a": constant(1.0), "b": constant(1.0), "c": broken(OSError("gone"))}
    after = weights_after(small, federation, members, watch=told)
    assert not after.any()
    assert [facts.used for facts in told.rounds] == [False, False]


# --- the ledger -----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "privacy.db")
    made.create("clients", Budget(20.0, 1e-5), unit="client")
    return made


def reserved(ledger):
    return [entry for entry in ledger.history("clients") if entry.kind == "reserve"]


def test_each_round_is_charged_before_its_messages_leave(small, ledger):
    seen = []
    federation = small.federation(rounds=3, noise=CentralNoise(2.0))
    spy = Answers(lambda order: seen.append(len(reserved(ledger))) or np.zeros(15))
    weights_after(small, federation, {"a": spy}, ledger=ledger, dataset="clients")
    assert seen == [1, 2, 3]
    assert len(reserved(ledger)) == 3
    kinds = [entry.kind for entry in ledger.history("clients")]
    assert kinds.count("commit") == 3


def test_a_run_that_its_budget_cannot_pay_for_is_never_begun(small, ledger):
    federation = small.federation(rounds=50, noise=CentralNoise(0.7))
    spy = constant(0.0)
    with pytest.raises(BudgetExceeded, match=r"50 rounds would bring .* No round was sent"):
        weights_after(small, federation, {"a": spy}, ledger=ledger, dataset="clients")
    assert not spy.seen
    assert not reserved(ledger)


def test_a_budget_that_others_spend_ends_the_run_before_the_round_is_sent(small, ledger, tmp_path):
    federation = small.federation(rounds=6, noise=CentralNoise(2.0))
    options = {"folder": tmp_path / "run", "dataset": "clients", "coins": SeededCoins(1)}

    def spends_everything(order):
        if order.attempt == 2:
            left = ledger.status("clients").left
            with ledger.spend("clients", LaplaceEvent(1 / (0.99 * left), unit="client")) as other:
                other.commit({})
        return np.full(15, 0.1)

    spy = Answers(spends_everything)
    with pytest.raises(BudgetExceeded):
        Coordinator(federation, InProcess({"a": spy}), ledger=ledger, **options).train()
    assert [order.attempt for order in spy.seen] == [0, 1, 2]
    # The round that was refused is not lost: it is sent where the budget allows it.
    larger = Ledger(tmp_path / "larger.db")
    larger.create("clients", Budget(500.0, 1e-5), unit="client")
    again = Coordinator(federation, InProcess({"a": spy}), ledger=larger, **options).train()
    assert [order.attempt for order in spy.seen] == list(range(6))
    assert again.record.facts["rounds_sent"] == again.record.facts["rounds_used"] == 6
    assert len(reserved(larger)) == 3
    assert [point["round"] for point in again.record.facts["curve"]] == []


def test_a_run_goes_on_under_the_budget_that_it_began_with(small, ledger, tmp_path):
    federation = small.federation(rounds=4, noise=CentralNoise(2.0))
    engine = InProcess({"a": killed_in(1)})
    first = Coordinator(
        federation, engine, folder=tmp_path / "run", ledger=ledger, dataset="clients"
    )
    with pytest.raises(Killed):
        first.train()
    del first
    ledger.create("others", Budget(20.0, 1e-5), unit="client")
    for other in ({"ledger": ledger, "dataset": "others"}, {}):
        with pytest.raises(ValueError, match="began with the budget of 'clients'"):
            Coordinator(federation, engine, folder=tmp_path / "run", **other)


def test_a_curve_is_kept_over_a_crash(small, tmp_path):
    federation = small.federation(rounds=4, noise=CentralNoise(2.0))
    options = {"folder": tmp_path, "test": (small.inputs, small.labels)}
    with pytest.raises(Killed):
        Coordinator(federation, InProcess({"a": killed_in(2)}), **options).train()
    record = Coordinator(federation, InProcess({"a": constant(0.1)}), **options).train().record
    assert [point["round"] for point in record.facts["curve"]] == [1, 2, 4]
    assert (record.facts["rounds_sent"], record.facts["rounds_used"]) == (4, 3)


# --- too few --------------------------------------------------------------------------------------


def test_a_round_waits_for_those_it_needs_and_costs_nothing_meanwhile(small, ledger):
    federation = small.federation(rounds=2, noise=CentralNoise(2.0))
    with pytest.raises(TooFewParticipants, match="0 participants are there, and a round needs 1"):
        weights_after(small, federation, {}, ledger=ledger, dataset="clients")
    local = small.federation(rounds=2, noise=LocalNoise(9.0, least=2))
    with pytest.raises(TooFewParticipants, match="a round needs 3"):
        weights_after(small, local, {"a": constant(0.0), "b": constant(0.0)})
    assert not reserved(ledger)


def test_those_who_come_late_are_waited_for(small):
    class Late(InProcess):
        looks = 0

        def participants(self):
            self.looks += 1
            return super().participants() if self.looks > 3 else []

    federation = small.federation(rounds=1, noise=CentralNoise(2.0))
    engine = Late({"a": constant(0.1)})
    Coordinator(federation, engine, coins=SeededCoins(1), patience=60).train()
    assert engine.looks > 3


def test_a_run_stops_where_nobody_answers(small, ledger):
    federation = small.federation(rounds=10, noise=CentralNoise(5.0))
    spy = broken(ValueError("another federation"))
    with pytest.raises(TooFewParticipants, match=r"3 rounds in a row \(a: .*another federation"):
        weights_after(small, federation, {"a": spy}, ledger=ledger, dataset="clients")
    assert len(spy.seen) == len(reserved(ledger)) == 3


def test_a_record_is_private_only_if_everybodys_coins_are(small):
    federation = small.federation(rounds=1, noise=LocalNoise(1.0, least=3))
    seeded, own = small.members(federation), small.members(federation, coins=SYSTEM)
    assert not small.coordinator(federation, seeded, coins=SYSTEM).train().record.private
    assert not small.coordinator(federation, own).train().record.private
    assert small.coordinator(federation, own, coins=SYSTEM).train().record.private


def test_rounds_without_noise_cannot_be_paid(small, ledger):
    with pytest.raises(ValueError, match="without noise"):
        small.coordinator(small.federation(), ledger=ledger, dataset="clients")


# --- crashes --------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for kill -9: nothing catches it."""


def killed_in(attempt):
    def make(order):
        if order.attempt == attempt:
            raise Killed
        return np.full(15, 0.1)

    return Answers(make)


@pytest.mark.parametrize("attempt", [0, 2, 3])
def test_a_killed_run_goes_on_and_every_round_sent_is_charged_once(
    small, ledger, tmp_path, attempt
):
    federation = small.federation(rounds=4, noise=CentralNoise(2.0))
    options = {"folder": tmp_path / "run", "ledger": ledger, "dataset": "clients"}
    spy = killed_in(attempt)
    coordinator = Coordinator(federation, InProcess({"a": spy}), coins=SeededCoins(1), **options)
    with pytest.raises(Killed):
        coordinator.train()
    del coordinator
    again = constant(0.1)
    resumed = Coordinator(federation, InProcess({"a": again}), coins=SeededCoins(2), **options)
    resumed.train()
    sent = [order.attempt for order in spy.seen + again.seen]
    assert sent == list(range(4))  # never one twice
    assert len(reserved(ledger)) == 4
    assert resumed.state.completed == 3
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["facts"]["rounds_sent"] == 4
    assert record["guarantee"]["epsilon"] == federation.guarantee("released models").epsilon


def test_an_older_copy_of_a_run_is_refused(small, ledger, tmp_path):
    import shutil

    federation = small.federation(rounds=4, noise=CentralNoise(2.0))
    options = {"ledger": ledger, "dataset": "clients"}
    members = {"a": killed_in(1)}
    first = Coordinator(federation, InProcess(members), folder=tmp_path / "a", **options)
    with pytest.raises(Killed):
        first.train()
    del first
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    members = {"a": constant(0.1)}
    Coordinator(federation, InProcess(members), folder=tmp_path / "a", **options).train()
    with pytest.raises(ValueError, match="older copy"):
        Coordinator(federation, InProcess(members), folder=tmp_path / "b", **options).train()


def test_two_coordinators_cannot_share_a_folder(small, tmp_path):
    federation = small.federation(noise=CentralNoise(2.0))
    first = small.coordinator(federation, folder=tmp_path / "run")
    with pytest.raises(ValueError, match="in use"):
        small.coordinator(federation, folder=tmp_path / "run")
    first.train()


def test_a_folder_of_another_federation_is_refused(small, tmp_path):
    federation = small.federation(rounds=2, noise=CentralNoise(2.0))
    with pytest.raises(Killed):
        small.coordinator(federation, {"a": killed_in(0)}, folder=tmp_path / "run").train()
    other = small.federation(rounds=3, noise=CentralNoise(2.0))
    with pytest.raises(ValueError, match="another one"):
        small.coordinator(other, folder=tmp_path / "run")


def test_a_finished_run_is_left_alone(small, tmp_path):
    federation = small.federation(rounds=1, noise=CentralNoise(2.0))
    small.coordinator(federation, folder=tmp_path / "run").train()
    with pytest.raises(ValueError, match="finished run"):
        small.coordinator(federation, folder=tmp_path / "run")


def test_state_is_saved_whole(tmp_path):
    state = ServerState(np.arange(3, dtype=np.float32), np.zeros(3, np.float32), 0.5, 4, 3)
    assert ServerState.load(tmp_path) is None
    state.save(tmp_path)
    found = ServerState.load(tmp_path)
    assert (found.clip, found.attempts, found.completed) == (0.5, 4, 3)
    assert (found.weights == state.weights).all()


# --- records --------------------------------------------------------------------------------------


def test_the_record_names_every_observer_and_nothing_of_who_took_part(small, tmp_path):
    federation = small.federation(noise=CentralNoise(2.0), rounds=2)
    trained = small.coordinator(federation, folder=tmp_path / "run").train()
    text = (tmp_path / "run" / "record.json").read_text()
    views = json.loads(text)["facts"]["views"]
    assert [view["observer"] for view in views] == ["released models", "server"]
    assert "p1" not in text
    assert "survivors" not in text
    assert trained.record.private is False  # seeded coins


def test_a_run_without_noise_is_for_its_owner_alone(small, tmp_path):
    small.coordinator(small.federation(rounds=1), folder=tmp_path / "run").train()
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0


def test_records_of_neighbouring_federations_are_the_same(small, tmp_path):
    """Non-interference: other rows, same coins; record, ledger and state file differ in weights."""
    federation = small.federation(noise=CentralNoise(2.0), rounds=2)
    texts = []
    for name, factor in (("a", 1.0), ("b", float("nan"))):
        members = small.members(federation)
        members["p0"].local.inputs = members["p0"].local.inputs * factor
        small.coordinator(federation, members, folder=tmp_path / name, test=None).train()
        texts.append((tmp_path / name / "record.json").read_text())
    assert texts[0] == texts[1]
