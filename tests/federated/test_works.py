"""What one unit can do to a contribution: never more than C, whatever it holds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.federated.layout import Layout
from sfumato.federated.local import LocalData, LocalModel, row_losses
from sfumato.federated.works import (
    ClientUpdates,
    LotGradients,
    SelectedGradients,
    Work,
    clipped_to,
)
from sfumato.learning.dp_sgd.errors import TrainingError

BAD = [float("nan"), float("inf"), -float("inf"), 1e30, -1e38]


def data(model, rows, seed=0, width=4):
    random = torch.Generator().manual_seed(seed)
    inputs = torch.randn((rows, width), generator=random)
    return LocalData(model, inputs, torch.randint(3, (rows,), generator=random))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    made = LocalModel(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)))
    made.sums(torch.zeros(1, 4))  # rehearsed with its first weights, as members do
    made.first = made.layout.read(made.model)
    return made


@pytest.mark.parametrize("work", [ClientUpdates(clip=0.3), ClientUpdates(clip=0.3, quantile=0.5)])
@pytest.mark.parametrize("bad", [0.0, *BAD])
def test_an_update_is_bounded_whatever_the_rows_are(model, work, bad):
    local = data(model, 20)
    local.inputs[:5] += bad
    weights = model.first
    found = work.contribution(local, weights, 0.3, SeededCoins(1))
    assert found.shape == (model.layout.size + work.extra,)
    assert np.linalg.norm(found[: model.layout.size]) <= 0.3
    assert np.isfinite(found).all()
    if work.extra:
        assert found[-1] in (-0.5, 0.5)


@pytest.mark.parametrize("work", [ClientUpdates(), LotGradients(1.0, 1.0, 20)])
def test_what_the_model_draws_comes_from_the_participants_coins(work):
    """Whoever sends the weights may know torch's seed."""
    torch.manual_seed(0)
    made = LocalModel(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)))
    weights, found = made.layout.read(made.model), []
    for coins in (SeededCoins(1), SeededCoins(1), SeededCoins(2), SYSTEM, SYSTEM):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        found.append(work.contribution(data(made, 20), weights, 1.0, coins))
        assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(found[0], found[1])
    for one in range(1, 5):
        for two in range(one):
            assert (one, two) == (1, 0) or not np.array_equal(found[one], found[two])


def test_local_rows_are_drawn_by_more_than_32_bits(model):
    """A seed of torch's is known after 2^32 tries."""
    states = []
    data(model, 5).trained(model.first, lambda _, g: states.append(g.get_state()), SYSTEM)
    seeds = states[0][:8].view(torch.int64).item(), states[0][24:].view(torch.uint8)
    again = torch.Generator().manual_seed(seeds[0])
    assert not torch.equal(again.get_state()[24:], seeds[1])


def test_a_long_update_reaches_its_bound_and_a_short_one_is_left_alone(model):
    local, weights = data(model, 20), model.first
    work = ClientUpdates(steps=3, rate=0.5)
    whole = work.contribution(local, weights, 1e9, SeededCoins(1))
    norm = np.linalg.norm(whole)
    cut = work.contribution(local, weights, norm / 10, SeededCoins(1))
    assert np.linalg.norm(cut) == pytest.approx(norm / 10, rel=1e-3)
    np.testing.assert_allclose(cut * 10, whole, rtol=1e-2)


def test_nobody_with_no_rows_is_told_apart_by_an_error(model):
    weights = model.first
    for work in (ClientUpdates(), LotGradients(0.5, 1.0, 10)):
        found = work.contribution(data(model, 0), weights, 1.0, SeededCoins(1))
        assert not found.any()


@pytest.mark.parametrize("bad", [0.0, *BAD])
def test_one_record_moves_a_sum_by_its_clip_at_most(model, bad):
    local, weights = data(model, 30), model.first
    work = LotGradients(1.0, 0.2, 30)
    local.inputs[-1] += bad
    fewer = LocalData(model, local.inputs[:-1], local.labels[:-1])
    with_it = work.contribution(local, weights, 0.2, SeededCoins(1))
    without = work.contribution(fewer, weights, 0.2, SeededCoins(1))
    assert np.linalg.norm(with_it - without) <= 0.2
    assert np.isfinite(with_it).all()


def test_clipped_sums_are_those_of_a_loop_over_rows(model):
    local, weights = data(model, 12), model.first
    found = LotGradients(1.0, 0.5, 12).contribution(local, weights, 0.5, SeededCoins(1))
    slow = np.zeros_like(found)
    for x, y in zip(local.inputs, local.labels, strict=True):
        loss = row_losses(model.model, x[None], y[None]).sum()
        parts = torch.autograd.grad(loss, list(model.parameters.values()))
        slow += clipped_to(torch.cat([p.flatten() for p in parts]).double().numpy(), 0.5)
    np.testing.assert_allclose(found, slow, atol=1e-5)


def test_lots_are_drawn_at_their_rate(model):
    local, weights = data(model, 400), model.first
    work, coins = LotGradients(0.25, 1e-3, 400), SeededCoins(5)
    # All gradients are clipped to the same norm; of one row, its norm tells that it was drawn.
    one = LocalData(model, local.inputs[:1], local.labels[:1])
    drawn = [bool(work.contribution(one, weights, 1e-3, coins).any()) for _ in range(400)]
    assert 0.25 * 400 - 35 < sum(drawn) < 0.25 * 400 + 35  # four standard deviations


def test_batch_normalisation_is_refused_by_name():
    with pytest.raises(ValueError, match=r"running statistics.*1\.running_mean"):
        LocalModel(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))


def test_rows_that_mix_are_refused_before_a_row_is_read():
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x):
            return self.inner(x - x.mean(0))

    with pytest.raises(TrainingError):
        data(LocalModel(Mixing()), 10).rehearse()


def test_whole_number_buffers_stay_at_home():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 3)
            self.register_buffer("calls", torch.zeros(1, dtype=torch.int64))

    assert Layout.of(Counting()).names == ("inner.weight", "inner.bias")


def test_a_server_clips_again():
    work = ClientUpdates(quantile=0.5)
    heavy = np.append(np.full(9, 1e6), 0.9)
    again = work.again_clipped(heavy, 0.7)
    assert np.linalg.norm(again[:9]) <= 0.7
    assert again[9] == 0.5
    selected = SelectedGradients(bound=0.01)
    assert selected.again_clipped(np.array([5.0, -0.002]), 1.0).tolist() == [0.01, -0.002]


def test_selected_gradients_tell_few_bounded_numbers(model):
    local, weights = data(model, 50), model.first
    work = SelectedGradients(epsilon=500.0, share=0.1, bound=0.05, threshold=0.0, rate=0.5)
    told = work.contribution(local, weights, 1.0, SeededCoins(1))
    assert 0 < np.count_nonzero(told) <= round(0.1 * model.layout.size)
    assert np.abs(told).max() <= 0.05 + 1e-9


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=9), st.floats(1e-3, 1e3))
@settings(max_examples=60)
def test_clipping_never_exceeds_its_bound(values, clip):
    assert np.linalg.norm(clipped_to(np.array(values), clip)) <= clip


@pytest.mark.parametrize(
    "work",
    [
        ClientUpdates(3, 8, 0.2, 0.7, 0.4, 0.1),
        LotGradients(0.2, 0.5, 900),
        SelectedGradients(2.0, 0.1, 0.01, 0.001),
    ],
)
def test_json_both_ways(work):
    assert Work.from_dict(work.to_dict()) == work


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: ClientUpdates(steps=0), "steps"),
        (lambda: ClientUpdates(clip=-1), "clip"),
        (lambda: ClientUpdates(quantile=1.5), "quantile"),
        (lambda: LotGradients(lot_rate=0), "lot_rate"),
        (lambda: LotGradients(records=0), "records"),
        (lambda: SelectedGradients(epsilon=-1), "epsilon"),
        (lambda: SelectedGradients(share=2), "share"),
    ],
)
def test_bad_parameters_are_named(make, named):
    with pytest.raises(ValueError, match=named):
        make()
