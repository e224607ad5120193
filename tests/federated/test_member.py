"""A participant follows what she agreed to, once, and charges before she reads."""

import numpy as np
import pytest
import torch

from sfumato.core.randomness import SeededCoins
from sfumato.federated.local import LocalData, LocalModel
from sfumato.federated.member import Member, Refusal
from sfumato.federated.noises import CentralNoise, LocalNoise
from sfumato.federated.orders import Contribution, Order
from sfumato.federated.wire import Malformed, pack
from sfumato.federated.works import ClientUpdates, LotGradients
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded

Z = 2.0


@pytest.fixture
def local(small):
    return small.federation(noise=LocalNoise(Z, least=3))


def order_for(member, attempt=0, **changes):
    size = member.local.layout.size
    fields = {
        "federation": member.federation.digest, "run": "r", "attempt": attempt, "clip": 1.0,
        "weights": np.zeros(size, np.float32),
    }  # fmt: skip
    return Order(**fields | changes)


def answer(member, order):
    return Contribution.from_bytes(member.answer(order.to_bytes()), member.length)


def test_an_answer_repeats_run_and_attempt(small, local):
    member = small.member(local)
    found = answer(member, order_for(member, 2))
    assert (found.run, found.attempt, found.numbers.shape) == ("r", 2, (member.length,))


def test_an_order_of_another_federation_is_refused(small, local):
    member = small.member(local)
    weaker = small.federation(noise=LocalNoise(0.001, least=3))
    with pytest.raises(Refusal, match="same federation file"):
        answer(member, order_for(member, federation=weaker.digest))


def test_attempts_are_answered_once_and_only_go_up(small, local):
    member = small.member(local)
    answer(member, order_for(member, 1))
    for attempt in (1, 0):
        with pytest.raises(Refusal, match="answered before"):
            answer(member, order_for(member, attempt))
    answer(member, order_for(member, 0, run="another"))


def test_other_names_of_runs_give_no_more_answers(small, local):
    """A server that calls every order another run gets as many answers as were agreed to."""
    member = small.member(local)
    for number in range(local.rounds):
        answer(member, order_for(member, 0, run=f"run-{number}"))
    with pytest.raises(Refusal, match="all were given"):
        answer(member, order_for(member, 0, run="one more"))


@pytest.mark.parametrize("run", ["", "x" * 65, 7, None, ["r"]])
def test_runs_have_names(small, local, run):
    member = small.member(local)
    with pytest.raises(Malformed, match="no name"):
        member.answer(order_for(member, run=run).to_bytes())


def test_labels_that_are_no_classes_are_no_errors(small):
    federation = small.federation(work=LotGradients(1.0, 1.0, 60), noise=LocalNoise(Z, least=3))
    rows = small.inputs[:6]
    local = LocalData(
        LocalModel(federation.make_model()), rows, torch.tensor([0, 1, 2, 7, -1, -100])
    )
    member = Member(federation, local, coins=SeededCoins(1))
    assert np.isfinite(answer(member, order_for(member)).numbers).all()


def test_another_model_is_refused(small, local):
    other = LocalModel(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="federation's model"):
        Member(local, LocalData(other, torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)))


def test_what_was_answered_outlives_the_process(small, local):
    state = {}
    member = small.member(local, state=state)
    answer(member, order_for(member, 1))
    with pytest.raises(Refusal, match="answered before"):
        answer(small.member(local, state=state), order_for(member, 1))


def test_no_more_answers_than_agreed(small, local):
    member = small.member(local, most_answers=2)
    for attempt in range(2):
        answer(member, order_for(member, attempt))
    with pytest.raises(Refusal, match="all were given"):
        answer(member, order_for(member, 2))
    usual = small.member(local)
    assert usual.most_answers == local.rounds


def test_her_ledger_is_charged_before_a_row_is_read(small, local, tmp_path):
    ledger = Ledger(tmp_path / "hers.db")
    ledger.create("rows", Budget(1e3, 1e-5), unit="client", neighbours="zero-out")
    member = small.member(local, ledger=ledger, dataset="rows")

    def broken(*_):
        raise RuntimeError("the process dies here")

    member.local.trained = broken
    with pytest.raises(RuntimeError):
        answer(member, order_for(member))
    kinds = [entry.kind for entry in ledger.history("rows")]
    assert kinds.count("reserve") == 1
    # The same attempt cannot be answered for free later.
    with pytest.raises(Refusal):
        answer(small.member(local, ledger=ledger, dataset="rows", state={}), order_for(member))


def test_a_spent_budget_ends_her_answers(small, local, tmp_path):
    ledger = Ledger(tmp_path / "hers.db")
    ledger.create("rows", Budget(5.0, 1e-5), unit="client", neighbours="zero-out")
    member = small.member(local, ledger=ledger, dataset="rows", most_answers=99)
    answer(member, order_for(member, 0))
    answer(member, order_for(member, 1))
    with pytest.raises(BudgetExceeded):
        [answer(member, order_for(member, attempt)) for attempt in range(2, 40)]
    assert ledger.status("rows").left >= 0


def test_a_ledger_cannot_pay_for_contributions_without_noise(small, tmp_path):
    ledger = Ledger(tmp_path / "hers.db")
    with pytest.raises(ValueError, match="leave without noise"):
        small.member(small.federation(noise=CentralNoise(1.0)), ledger=ledger, dataset="rows")


def test_she_keeps_to_her_own_clip(small):
    federation = small.federation(work=ClientUpdates(steps=5, rate=5.0, clip=0.1))
    member = small.member(federation)
    found = answer(member, order_for(member, clip=1e6))
    assert np.linalg.norm(found.numbers) <= 0.1
    adapting = small.federation(work=ClientUpdates(steps=5, rate=5.0, clip=0.1, quantile=0.5))
    other = small.member(adapting)  # then the server, who adds the noise, says what C is
    assert np.linalg.norm(answer(other, order_for(other, clip=0.05)).numbers[:-1]) <= 0.05


@pytest.mark.parametrize("unit", ["client", "record"])
def test_local_noise_has_its_size(small, unit):
    """Fails if the noise were a tenth smaller or larger."""
    work = ClientUpdates(steps=1, clip=0.5) if unit == "client" else LotGradients(0.1, 0.5, 300)
    federation = small.federation(work=work, noise=LocalNoise(Z, least=3), rounds=300)
    member = small.member(federation, coins=SeededCoins(9))
    member.local.inputs, member.local.labels = member.local.inputs[:0], member.local.labels[:0]
    drawn = [answer(member, order_for(member, attempt)).numbers for attempt in range(300)]
    assert np.std(drawn) == pytest.approx(Z * 0.5, rel=0.05)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00" * 40,
        pack({"kind": "order"}),
        pack({"kind": "hello"}, {"weights": np.zeros(15)}),
    ],
)
def test_nonsense_is_refused(small, local, message):
    with pytest.raises(Malformed):
        small.member(local).answer(message)


@pytest.mark.parametrize(
    ("change", "named"), [({"attempt": -1}, "attempt"), ({"clip": 0.0}, "clip")]
)
def test_orders_out_of_range_are_refused(small, local, change, named):
    member = small.member(local)
    with pytest.raises(ValueError, match=named):
        member.answer(order_for(member, **change).to_bytes())


def test_weights_that_are_no_numbers_cost_nothing_but_noise(small, local):
    member = small.member(local)
    poisoned = np.full(member.local.layout.size, np.nan, np.float32)
    found = answer(member, order_for(member, weights=poisoned))
    assert np.isfinite(found.numbers).all()


def test_answers_of_neighbouring_tables_differ_in_numbers_alone(small, local):
    """Non-interference: same coins, other rows; sizes, headers and state are the same."""
    first, second = small.member(local, 0), small.member(local, 0)
    second.local.inputs = second.local.inputs[:-1] * float("nan")
    second.local.labels = second.local.labels[:-1]
    one, two = (m.answer(order_for(m).to_bytes()) for m in (first, second))
    assert len(one) == len(two)
    assert first.state == second.state
    noise = [Contribution.from_bytes(m, first.length).numbers for m in (one, two)]
    assert np.linalg.norm(noise[0] - noise[1]) <= first.federation.work.clip * (1 + 1e-5)


def test_a_copy_of_what_she_remembers_gives_no_answers_beside_it(small, local, tmp_path):
    """With a ledger: her answers of all copies together are those she agreed to."""
    ledger = Ledger(tmp_path / "hers.db")
    ledger.create("rows", Budget(1e6, 1e-5), unit="client", neighbours="zero-out")
    state: dict[str, bytes] = {}
    options = {"ledger": ledger, "dataset": "rows"}
    member = small.member(local, state=state, **options)
    answer(member, order_for(member, 0))
    copied = dict(state)
    answer(member, order_for(member, 1))
    copy = small.member(local, state=copied, **options)
    for attempt in (2, 3):  # refused for good, and nothing charged for it
        with pytest.raises(Refusal, match="went on elsewhere"):
            answer(copy, order_for(copy, attempt))
    answer(member, order_for(member, 2))
    assert [e.kind for e in ledger.history("rows")].count("reserve") == 3
    assert ledger.verify("rows").ok
    ledger.close()
