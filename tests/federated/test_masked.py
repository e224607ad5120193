"""Federations under masked sums: the same sums, seen by nobody; and who drops out."""

import numpy as np
import pytest

from sfumato.accounting import account
from sfumato.core.randomness import SeededCoins
from sfumato.federated.calibrating import calibrated
from sfumato.federated.coordinator import Coordinator
from sfumato.federated.in_process import InProcess
from sfumato.federated.introducing import Introduced
from sfumato.federated.masked import MaskedMember
from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
from sfumato.federated.secure.keys import Directory, IdentityKey
from sfumato.federated.shared import reach_of, share_of
from sfumato.federated.sums import MaskedSum
from sfumato.federated.tapping import Tapped
from sfumato.federated.works import ClientUpdates, LotGradients
from sfumato.ledger import Budget, Ledger


class Told:
    def __init__(self):
        self.rounds = []

    def __call__(self, facts):
        self.rounds.append(facts)


@pytest.fixture(scope="module")
def keys():
    return {f"p{i}": IdentityKey.generate() for i in range(5)}


@pytest.fixture(scope="module")
def directory(keys):
    return Directory({name: key.public for name, key in keys.items()})


def masked(small, federation, keys, directory, **options):
    return {
        name: MaskedMember(member, keys[name], directory)
        for name, member in small.members(federation, **options).items()
    }


def train(federation, members, directory, told=None, **options):
    options = {"directory": directory, "coins": SeededCoins(1)} | options
    if told is not None:
        options["watch"] = told
    return Coordinator(federation, InProcess(members), **options).train()


def test_a_masked_sum_is_the_plain_one_to_its_precision(small, keys, directory):
    plain = small.federation(rounds=2)
    hidden = small.federation(rounds=2, sums=MaskedSum(3))
    one = Coordinator(plain, InProcess(small.members(plain)), coins=SeededCoins(1)).train()
    two = train(hidden, masked(small, hidden, keys, directory), directory)
    np.testing.assert_allclose(one.weights, two.weights, atol=2 * 2.0**-20)


@pytest.mark.parametrize("law", ["skellam", "gaussian"])
@pytest.mark.parametrize(
    "work", [ClientUpdates(steps=5, rate=0.3, clip=1.0), LotGradients(0.5, 1.0, 300)]
)
def test_everybody_learns_with_noise_in_shares(small, keys, directory, law, work):
    federation = small.federation(
        rounds=10, work=work, noise=SharedNoise(0.1, 3, law), sums=MaskedSum(4)
    )
    told = (small.inputs, small.labels)
    found = train(federation, masked(small, federation, keys, directory), directory, test=told)
    assert found.accuracy > 0.85


def test_shares_have_their_size(small, keys, directory):
    """Five shares of variance (z C)^2 / 4: fails if the noise were a tenth off."""
    z, clip = 2.0, 0.5
    federation = small.federation(
        rounds=40, noise=SharedNoise(z, 4), work=ClientUpdates(steps=1, clip=clip),
        sums=MaskedSum(5),
    )  # fmt: skip
    members = masked(small, federation, keys, directory)
    for each in members.values():
        local = each.member.local
        local.inputs, local.labels = local.inputs[:0], local.labels[:0]
    coordinator = Coordinator(
        federation, InProcess(members), directory=directory, coins=SeededCoins(1)
    )
    drawn = []
    for _ in range(40):
        before = coordinator.state.weights
        coordinator._round()
        drawn.append(coordinator.state.weights - before)
    assert np.std(drawn) * 5 == pytest.approx(z * clip * np.sqrt(5 / 4), rel=0.07)


def test_no_contribution_travels_in_clear(small, keys, directory):
    """Sums without masks would carry each participant's integers; under masks nobody's are there.

    (That what travels is uniform is shown in tests/federated/secure.)
    """
    federation = small.federation(rounds=1, sums=MaskedSum(3, bits=32, fraction_bits=16))
    members = masked(small, federation, keys, directory)
    clear = []
    for each in members.values():
        raw = each.member.raw

        def noting(order, raw=raw):
            found = raw(order)
            clear.append(np.rint(np.ldexp(found, 16)).astype(np.int64).astype(np.uint32))
            return found

        each.member.raw = noting
    tapped = Tapped(InProcess(members))
    Coordinator(federation, tapped, directory=directory, coins=SeededCoins(1)).train()
    assert len(clear) == 5
    for numbers in clear:
        assert numbers.any()
        assert not any(numbers[:2].tobytes() in heard.reply for heard in tapped.heard)


def test_who_drops_out_costs_her_part_alone(small, keys, directory):
    told = Told()
    federation = small.federation(rounds=2, sums=MaskedSum(3))
    members = masked(small, federation, keys, directory)

    class Dies:
        """Answers so many messages, then no more."""

        def __init__(self, inner, answers):
            self.inner, self.left = inner, answers

        def answer(self, message):
            if self.left == 0:
                raise OSError("gone")
            self.left -= 1
            return self.inner.answer(message)

    members["p0"] = Dies(members["p0"], 2)  # has dealt her shares, sends no numbers
    members["p1"] = Dies(members["p1"], 3)  # her numbers are in the sum
    train(federation, members, directory, told)
    assert [facts.survivors for facts in told.rounds] == [4, 3]
    assert all(facts.used for facts in told.rounds)


class Dead:
    """Seems to be there, and does not answer."""

    def answer(self, message):
        raise ConnectionError


def test_too_few_and_nothing_is_learnt(small, keys, directory):
    told = Told()
    federation = small.federation(rounds=1, noise=SharedNoise(1.0, 3), sums=MaskedSum(4))
    members = masked(small, federation, keys, directory)
    for name in ("p0", "p1"):
        members[name] = Dead()
    found = train(federation, members, directory, told)
    assert not told.rounds[0].used
    assert not found.weights.any()


def test_whoever_is_not_in_the_directory_is_refused(small, keys, directory):
    told = Told()
    federation = small.federation(rounds=1, participants=6, sums=MaskedSum(4))
    stranger = IdentityKey.generate()
    wider = Directory({**{n: k.public for n, k in keys.items()}, "p5": stranger.public})
    held = {name: (key, directory) for name, key in keys.items()} | {"p5": (stranger, wider)}
    members = {
        name: MaskedMember(member, *held[name])
        for name, member in small.members(federation).items()
    }
    train(federation, members, directory, told)
    assert told.rounds[0].survivors == 5
    assert "p5" in told.rounds[0].refused


def test_her_ledger_pays_for_the_view_of_the_sum(small, keys, directory, tmp_path):
    ledger = Ledger(tmp_path / "hers.db")
    ledger.create("rows", Budget(50.0, 1e-5), unit="client", neighbours="zero-out")
    federation = small.federation(rounds=2, noise=SharedNoise(2.0, 3), sums=MaskedSum(4))
    members = masked(small, federation, keys, directory, ledger=ledger, dataset="rows")
    train(federation, {n: members[n] for n in members}, directory)
    entries = [e for e in ledger.history("rows") if e.kind == "reserve"]
    assert len(entries) == 2  # one key for each attempt: all five share this ledger
    assert entries[0].data["event"]["kind"] == "rdp-curve"


def test_names_are_told_once_and_remembered(small, keys, directory):
    federation = small.federation(rounds=1, sums=MaskedSum(3))
    by_number = dict(zip("12345", masked(small, federation, keys, directory).values(), strict=True))
    tapped = Tapped(InProcess(by_number))
    engine = Introduced(tapped)
    assert engine.participants() == ["p0", "p1", "p2", "p3", "p4"]
    assert len(tapped.heard) == 5
    engine.participants()
    assert len(tapped.heard) == 5
    assert Coordinator(federation, engine, directory=directory).train().weights.any()


@pytest.mark.parametrize("law", ["skellam", "gaussian"])
@pytest.mark.parametrize("work", [ClientUpdates(), LotGradients(0.1, 1.0, 6000)])
def test_integers_cost_hardly_more_than_ideal_noise(small, law, work):
    """With 32 bits, discretisation adds less than 2 % to epsilon by the same accountant."""
    shared = small.federation(
        participants=50, rounds=20, work=work, noise=SharedNoise(4.0, 40, law), sums=MaskedSum(41)
    )
    ideal = small.federation(
        participants=50, rounds=20, work=work, noise=LocalNoise(4.0 / 40**0.5, 40),
    )  # fmt: skip
    by_rdp = [
        account(f.view("released models").event, 1e-5, accountant="rdp").epsilon
        for f in (shared, ideal)
    ]
    assert by_rdp[1] <= by_rdp[0] * (1 + 1e-6)
    assert by_rdp[0] < 1.03 * by_rdp[1]


def test_a_record_moves_whole_vectors_by_the_bound_at_most(small):
    """Sums C apart, rounded with any coins: the integers are within C / gamma + sqrt(k)."""
    federation = small.federation(
        work=LotGradients(0.5, 1.0, 300), noise=SharedNoise(1.0, 3, bits=12), sums=MaskedSum(4)
    )
    share = share_of(federation)
    random = np.random.default_rng(0)
    bound = federation.work.clip / share.granularity + share.encoding.padded**0.5
    largest = 0.0
    for seed in range(200):
        one = random.standard_normal(15) * reach_of(federation)
        step = random.standard_normal(15)
        two = one + step / np.linalg.norm(step)
        whole = [
            share.encoding.encode(v, seed=seed, coins=SeededCoins(seed + i))
            for i, v in enumerate((one, two))
        ]
        largest = max(largest, float(np.linalg.norm(whole[0] - whole[1])))
    assert largest <= bound
    assert largest > 0.4 * bound


def test_calibration_meets_its_target(small):
    federation = small.federation(rounds=5, noise=SharedNoise(1.0, 3), sums=MaskedSum(4))
    met = calibrated(federation, 3.0, "server")
    assert 2.9 < met.guarantee("server").epsilon <= 3.0


def test_the_grid_is_part_of_the_sensitivity(small):
    """Central noise on a masked sum is larger by what rounding can add."""
    from sfumato.federated.scales import noise_scales

    plain = small.federation(noise=CentralNoise(2.0), work=ClientUpdates(clip=0.01))
    coarse = small.federation(
        noise=CentralNoise(2.0), work=ClientUpdates(clip=0.01), sums=MaskedSum(3, 40, 10)
    )
    assert noise_scales(plain, 0.01, 16)[0] == pytest.approx(0.02)
    assert noise_scales(coarse, 0.01, 16)[0] == pytest.approx(2 * (0.01 + 4 * 2.0**-10))


def test_a_bare_member_never_answers_in_the_clear(small):
    from sfumato.federated.member import Refusal
    from sfumato.federated.orders import Order

    federation = small.federation(noise=SharedNoise(2.0, 3), sums=MaskedSum(4))
    member = small.member(federation)
    order = Order(federation.digest, "r", 0, 1.0, np.zeros(15, np.float32))
    with pytest.raises(Refusal, match="never sent as they are"):
        member.answer(order.to_bytes())
    with pytest.raises(ValueError, match="masked sum"):
        member.noisy(order)


def test_refusals(small):
    with pytest.raises(ValueError, match="directory must be given"):
        Coordinator(small.federation(sums=MaskedSum(3)), InProcess({}))
    assert small.federation(noise=CentralNoise(1.0), sums=MaskedSum(3)).least == 3
    assert small.federation(noise=NoNoise()).least == 0
