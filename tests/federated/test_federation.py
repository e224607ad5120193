"""Guarantees by observer: the figures, and what goes together."""

import math
from dataclasses import replace

import pytest

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent, dp_sgd, promises_nothing, repeat
from sfumato.core.neighbours import Neighbours
from sfumato.federated.calibrating import calibrated
from sfumato.federated.federation import Federation
from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
from sfumato.federated.sums import HiddenSum, MaskedSum
from sfumato.federated.views import RELEASED, SERVER, WITH_NAMES, message_event, round_event
from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients

PHONES = Federation(
    "linear", (4,), 3, participants=10_000, rounds=1_000, work=ClientUpdates(),
    noise=CentralNoise(1.0), participation=0.01,
)  # fmt: skip


def test_the_figures_of_ten_thousand_clients():
    """N = 10k, n = 100, T = 1000, z = 1: 1.83 by PLD for who sees models, 634 with the names."""
    assert PHONES.guarantee(RELEASED).epsilon == pytest.approx(1.83, abs=0.005)
    assert PHONES.guarantee(WITH_NAMES).epsilon == pytest.approx(634, abs=1)
    assert math.isinf(PHONES.guarantee(SERVER).epsilon)
    by_rdp = account(PHONES.view(RELEASED).event, 1e-5, accountant="rdp").epsilon
    assert by_rdp == pytest.approx(2.10, abs=0.01)


@pytest.mark.parametrize(("z", "epsilon"), [(4, 8.6), (10, 2.9), (20, 1.4)])
def test_the_figures_of_silos(z, epsilon):
    silos = replace(PHONES, participation=1.0, rounds=50, noise=CentralNoise(z))
    assert silos.guarantee(RELEASED).epsilon == pytest.approx(epsilon, abs=0.06)
    assert [view.observer for view in silos.views] == [RELEASED, SERVER]


def test_local_noise_protects_against_the_server_and_more_against_others():
    local = replace(PHONES, participation=1.0, noise=LocalNoise(30.0, least=100))
    assert local.view(SERVER).event == repeat(
        GaussianEvent(30.0, Neighbours.ZERO_OUT, "client"), 1000
    )
    assert local.view(RELEASED).event == repeat(
        GaussianEvent(300.0, Neighbours.ZERO_OUT, "client"), 1000
    )


def test_participants_who_add_noise_themselves_get_no_amplification():
    local = replace(PHONES, noise=LocalNoise(30.0, least=50))
    assert local.view(RELEASED).event.event.noise_multiplier == pytest.approx(30 * 50**0.5)


def test_records_are_amplified_by_coins_of_their_owner_even_against_the_server():
    work = LotGradients(lot_rate=0.1, clip=1.0, records=60_000)
    silos = replace(PHONES, work=work, noise=LocalNoise(2.0, least=9), participation=1.0)
    assert silos.view(SERVER).event == dp_sgd(2.0, 0.1, 1000)
    assert silos.view(RELEASED).event == dp_sgd(6.0, 0.1, 1000)


def test_records_get_no_amplification_by_the_choice_of_participants():
    work = LotGradients(lot_rate=0.1, clip=1.0, records=60_000)
    asked = replace(PHONES, work=work, noise=CentralNoise(2.0), participation=0.01)
    assert asked.view(RELEASED).event == dp_sgd(2.0, 0.1, 1000)


def test_a_secure_sum_hides_one_message_from_the_server():
    local = replace(PHONES, participation=1.0, participants=150, noise=LocalNoise(3.0, least=99))
    shared = SharedNoise(30.0, least=99)
    masked = replace(local, noise=shared, sums=MaskedSum(threshold=100))
    assert masked.guarantee(SERVER).epsilon < local.guarantee(SERVER).epsilon / 5
    assert masked.view(SERVER).event == masked.view(RELEASED).event


def test_a_secure_sum_without_noise_promises_nothing():
    masked = replace(PHONES, noise=NoNoise(), participation=1.0, sums=MaskedSum(5_001))
    assert all(promises_nothing(view.event) for view in masked.views)


def test_selected_gradients_cost_every_upload():
    selected = replace(PHONES, work=SelectedGradients(epsilon=2.0), noise=NoNoise(), rounds=10)
    basic = account(selected.view(SERVER).event, 0.0).epsilon
    assert basic == pytest.approx(20.0)
    assert selected.view(SERVER).event.relation is Neighbours.REPLACE_ONE


@pytest.mark.parametrize(
    ("noise", "sums"),
    [
        (CentralNoise(1.0), None), (LocalNoise(1.0, 10), None),
        (CentralNoise(1.0), MaskedSum(20)), (NoNoise(), HiddenSum()),
        (SharedNoise(1.0, 10, "gaussian", 24), MaskedSum(20)),
    ],
)  # fmt: skip
def test_json_both_ways(noise, sums):
    few = replace(PHONES, participants=30, participation=1.0)
    made = replace(few, noise=noise, **({} if sums is None else {"sums": sums}))
    assert Federation.from_dict(made.to_dict()) == made
    assert Federation.from_dict(made.to_dict()).digest == made.digest


def test_files(tmp_path):
    PHONES.save(tmp_path / "phones.json")
    assert Federation.read(tmp_path / "phones.json") == PHONES
    with pytest.raises(ValueError, match=r"no federation file at .*plan .*makes one"):
        Federation.read(tmp_path / "nowhere.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="must hold a federation"):
        Federation.read(tmp_path / "other.json")
    (tmp_path / "no.json").write_text("no")
    with pytest.raises(ValueError, match="must hold a federation"):
        Federation.read(tmp_path / "no.json")


@pytest.mark.parametrize("change", [{"noise": CentralNoise(0.99)}, {"rounds": 999}, {"seed": 1}])
def test_whoever_changes_anything_has_another_digest(change):
    assert replace(PHONES, **change).digest != PHONES.digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"noise": SharedNoise(1.0, 10)}, "needs a masked sum"),
        ({"sums": HiddenSum()}, "cannot add noise"),
        ({"work": SelectedGradients()}, "noise of their own"),
        ({"work": ClientUpdates(quantile=0.5), "noise": LocalNoise(1.0, 3)}, "CentralNoise"),
        (
            {"work": ClientUpdates(quantile=0.5), "noise": CentralNoise(20.0)},
            r"quantile needs more than 200 participants .* got 100",
        ),
        ({"noise": LocalNoise(1.0, 10_000)}, "at most 9999 of 10000 participants"),
        ({"noise": NoNoise(), "sums": MaskedSum(67)}, "participation=1"),
        ({"participation": 1.0, "sums": MaskedSum(5_000)}, "could open two sums of one round"),
        ({"rounds": 0}, "rounds"),
        ({"participation": 0.0}, "participation"),
        ({"delta": 1.0}, "delta"),
        ({"server_momentum": 1.0}, "server_momentum"),
    ],
)
def test_what_does_not_go_together_is_refused(change, said):
    with pytest.raises(ValueError, match=said):
        replace(PHONES, **change)


def test_unknown_fields_and_observers_are_named():
    with pytest.raises(ValueError, match="'epsilon'"):
        Federation.from_dict(PHONES.to_dict() | {"epsilon": 1})
    with pytest.raises(ValueError, match="'released models'"):
        PHONES.view("everybody")


def test_adaptive_clipping_costs_what_fixed_clipping_does():
    adaptive = replace(PHONES, work=ClientUpdates(quantile=0.5))
    assert adaptive.view(RELEASED).event == PHONES.view(RELEASED).event


@pytest.mark.parametrize("observer", [RELEASED, SERVER])
def test_calibration_never_exceeds_its_target(observer):
    silos = replace(PHONES, participation=1.0, participants=20, rounds=30, noise=LocalNoise(1, 18))
    met = calibrated(silos, 3.0, observer)
    assert 2.95 < met.guarantee(observer).epsilon <= 3.0


def test_central_noise_cannot_be_calibrated_against_the_server():
    with pytest.raises(ValueError, match="protects against 'server'"):
        calibrated(PHONES, 3.0, SERVER)


def test_a_message_is_charged_as_the_server_sees_it():
    local = replace(PHONES, noise=LocalNoise(2.0, 90), participation=1.0)
    assert message_event(local) == round_event(local, SERVER)


def test_under_masks_presence_is_not_hidden_by_the_servers_noise():
    """One participant less may be too few for a sum at all: add or remove would be false."""
    few = replace(PHONES, participants=4, participation=1.0, sums=MaskedSum(4))
    assert few.view(RELEASED).event.relation is Neighbours.ZERO_OUT


def test_who_is_alone_is_told_so():
    with pytest.raises(ValueError, match="participants must be at least 2 with local noise"):
        replace(PHONES, participants=1, participation=1.0, noise=LocalNoise(5.0, least=1))


def test_each_participant_knows_her_own_noise():
    """``least`` shares are unknown to a participant only if one more is in the sum."""
    pair = replace(PHONES, participants=2, participation=1.0, noise=LocalNoise(5.0, least=1))
    assert pair.least == 2
    with pytest.raises(ValueError, match="at most 1 of 2 participants"):
        replace(pair, noise=LocalNoise(5.0, least=2))


@pytest.mark.parametrize(
    ("noise", "threshold", "said"),
    [
        (SharedNoise(5.0, least=6), 6, "and the 1 who may look"),
        (SharedNoise(5.0, least=2), 3, "could open two sums"),
        (LocalNoise(5.0, least=2), 8, "noise in shares: give SharedNoise .--noise shared."),
        (SharedNoise(5.0, least=2), 11, "threshold must be at most the 10 participants.* got 11"),
        (NoNoise(), 11, "threshold must be at most the 10 participants"),
    ],
)
def test_masks_that_do_not_keep_the_promise_are_refused(noise, threshold, said):
    with pytest.raises(ValueError, match=said):
        replace(PHONES, participants=10, participation=1.0, noise=noise, sums=MaskedSum(threshold))
