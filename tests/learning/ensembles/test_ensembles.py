"""Ensembles: every model as if trained alone, on its own rows only, and across a crash."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sfumato.learning.ensembles import (
    Schedule,
    disjoint,
    half_each,
    load_ensemble,
    store,
    train_ensemble,
)
from sfumato.learning.ensembles.batches import derived_seed, epoch_rows
from sfumato.learning.ensembles.optimizers import make_optimizer
from sfumato.learning.ensembles.stacking import fresh_weights
from sfumato.learning.ensembles.subsets import padded_rows

ENGINES = ["apart", "stacked"]


def network():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 36, 4)
    )


@pytest.fixture(autouse=True)
def several_threads():
    """The models of "apart" are trained in as many threads as torch has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return (
        torch.rand(60, 1, 8, 8, generator=generator),
        torch.randint(4, (60,), generator=generator),
    )


def plainly(number, images, subsets, schedule, seed):
    """One model by torch.optim alone, with the ensemble's initial weights and order of rows."""
    weights = fresh_weights(network, len(subsets), seed)
    model = network()
    model.load_state_dict({name: weight[number] for name, weight in weights.items()})
    kind = torch.optim.Adam if schedule.optimizer == "adam" else torch.optim.SGD
    more = {} if schedule.optimizer == "adam" else {"momentum": schedule.momentum}
    optimizer = kind(model.parameters(), 1.0, weight_decay=schedule.weight_decay, **more)
    rows = torch.from_numpy(padded_rows(subsets))
    steps = -(-rows.shape[1] // schedule.batch_size)
    for epoch in range(schedule.epochs):
        generator = torch.Generator().manual_seed(derived_seed(seed, epoch, 1))
        for step, taken in enumerate(epoch_rows(rows, schedule.batch_size, generator)):
            own = taken[number][taken[number] >= 0]
            if not len(own):
                continue
            rate = schedule.rate_at(epoch * steps + step, steps * schedule.epochs)
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            F.cross_entropy(model(images[0][own]), images[1][own]).backward()
            optimizer.step()
    return model


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_each_model_is_as_if_trained_alone(images, engine, optimizer):
    """Subsets of different sizes: shorter models stop earlier in an epoch, and do not drift."""
    subsets = np.zeros((3, 60), bool)
    subsets[0, :40], subsets[1, 20:33], subsets[2, 5:60:2] = True, True, True
    schedule = Schedule(3, 8, rate=0.05 if optimizer == "sgd" else 0.01, optimizer=optimizer)
    both = train_ensemble(network, *images, subsets, schedule, seed=5, engine=engine)
    for number in range(3):
        alone = plainly(number, images, subsets, schedule, derived_seed(5, 0))
        for name, weight in alone.named_parameters():
            torch.testing.assert_close(both.weights[name][number], weight, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler about itself
@pytest.mark.filterwarnings(r"ignore::UserWarning:torch\._inductor")  # and about speed
@pytest.mark.parametrize("engine", ["recorded", "fused", "stacked"])
def test_on_a_gpu_models_are_what_they_are_on_a_cpu(images, engine):
    subsets, schedule = half_each(6, 60, seed=1), Schedule(2, 8, rate=0.05)
    here = train_ensemble(network, *images, subsets, schedule, seed=5)
    there = train_ensemble(
        network, *images, subsets, schedule, seed=5, device="cuda", engine=engine
    )
    for name, weights in here.weights.items():
        assert torch.allclose(there.weights[name].cpu(), weights, atol=2e-3), name


@pytest.mark.parametrize("engine", ENGINES)
def test_a_model_never_reads_the_rows_of_others(images, engine):
    subsets = disjoint(3, 60, seed=1)
    spoilt = images[0].clone()
    spoilt[torch.from_numpy(subsets[1])] = torch.nan
    trained = train_ensemble(network, spoilt, images[1], subsets, Schedule(2, 8), engine=engine)
    lost = [not bool(w.isfinite().all()) for w in trained.weights["4.weight"]]
    assert lost == [False, True, False]


def test_models_in_groups_and_their_answers(images):
    subsets = half_each(4, 60, seed=0)
    told = []
    some = train_ensemble(
        network, *images, subsets, Schedule(2, 16), together=2, seed=3,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    logits = some.logits(images[0], batch=7)
    assert logits.shape == (4, 60, 4)
    with torch.no_grad():
        for number in range(4):
            one = some.module(number)(images[0]).numpy()
            np.testing.assert_allclose(logits[number], one, atol=1e-5)
    np.testing.assert_allclose(some.probabilities(images[0]).sum(axis=2), 1)
    right = (logits.argmax(2) == images[1].numpy()).mean(axis=1)
    assert some.accuracies(*images) == pytest.approx(right)
    with pytest.raises(ValueError, match="between 0 and 3"):
        some.module(4)


def test_states_that_take_long_to_write_are_written_less_often(tmp_path, monkeypatch):
    """Each takes 2 of the clock's seconds, and comes every 10: the fifth is the next."""
    now = [0.0]

    def written(path, content):
        now[0] += 2

    monkeypatch.setattr(store.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(store, "write_whole", written)
    kept, state, moments = store.Store(tmp_path), {"w": torch.ones(1)}, []
    for epoch in range(10):
        before = now[0]
        kept.keep(0, epoch, state)
        moments.append(now[0] > before)
        now[0] += 10
    assert [number for number, kept in enumerate(moments) if kept] == [0, 4, 8]


class Cut(Exception):  # noqa: N818
    """The power went."""


@pytest.mark.parametrize("after", [1, 3, 4, 5])
def test_a_run_that_was_cut_off_goes_on(images, tmp_path, after, monkeypatch):
    """Bit for bit the same, with augmentation, wherever it was cut: in a group or between two."""
    monkeypatch.setattr(store, "_SHARE", 1)
    arguments = (network, *images, half_each(4, 60, seed=0), Schedule(3, 16, rate=0.02))
    options = {"augment": lambda x: x + 0.1 * torch.randn_like(x), "together": 2}
    whole = train_ensemble(*arguments, **options)

    def cut(done, total):
        if done == after:
            raise Cut

    with pytest.raises(Cut):
        train_ensemble(*arguments, **options, folder=tmp_path / "e", progress=cut)
    seen = []
    resumed = train_ensemble(
        *arguments, **options, folder=tmp_path / "e", progress=lambda d, _: seen.append(d)
    )
    assert len(seen) <= 6 - after + 1, "epochs were done again"
    for name, weight in whole.weights.items():
        assert torch.equal(weight, resumed.weights[name])
    loaded = load_ensemble(tmp_path / "e", network, arguments[3])
    assert torch.equal(loaded.weights["0.bias"], whole.weights["0.bias"])
    assert not list((tmp_path / "e").glob("unfinished*"))
    with pytest.raises(ValueError, match="holds another"):
        train_ensemble(*arguments, **options, seed=9, folder=tmp_path / "e")
    with pytest.raises(ValueError, match="one with 6 trained models"):
        load_ensemble(tmp_path / "e", network, np.ones((6, 60), bool))


def test_torchs_own_generator_is_left_alone(images):
    before = torch.get_rng_state()
    train_ensemble(
        network, *images, disjoint(2, 60, seed=0), Schedule(1, 16),
        augment=lambda x: x + torch.randn_like(x),
    )  # fmt: skip
    assert torch.equal(before, torch.get_rng_state())


def test_changes_are_drawn_for_each_model_anew(images):
    seen = []
    train_ensemble(
        network, *images, np.ones((2, 60), bool), Schedule(1, 60),
        augment=lambda x: seen.append(torch.rand(len(x))) or x,
    )  # fmt: skip
    assert len(seen[0]) == 120
    assert len(seen[0].unique()) > 100


def test_dropout_differs_between_models(images):
    """With the same rows and weights, only dropout can make two models differ."""

    def dropping():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.Dropout(0.5), nn.Linear(20, 4))

    for engine in ENGINES:
        trained = train_ensemble(
            dropping, *images, np.ones((2, 60), bool), Schedule(1, 60), engine=engine
        )
        first, second = trained.weights["1.weight"]
        assert not torch.equal(first, second)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_an_epoch_is_every_own_row_once(data):
    models, rows = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 30))
    subsets = np.zeros((models, rows), bool)
    for own in subsets:
        own[data.draw(st.sets(st.integers(0, rows - 1), min_size=1)).__iter__().__next__()] = True
        own |= np.array(data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows)))
    size = data.draw(st.integers(1, 8))
    batches = epoch_rows(torch.from_numpy(padded_rows(subsets)), size, torch.Generator())
    assert batches.shape == (-(-subsets.sum(1).max() // size), models, size)
    for number, own in enumerate(subsets):
        taken = batches[:, number].flatten()
        assert sorted(taken[taken >= 0].tolist()) == np.flatnonzero(own).tolist()
        assert (taken[: own.sum()] >= 0).all(), "gaps before the end"


def test_orders_differ_between_models_and_epochs():
    rows = torch.arange(50).expand(2, 50)
    generator = torch.Generator().manual_seed(0)
    first, second = (epoch_rows(rows, 50, generator)[0] for _ in range(2))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], second[0])


@given(st.integers(1, 8), st.integers(1, 40), st.integers(0, 9))
def test_halves_are_exact_and_parts_disjoint(pairs, rows, seed):
    halves = half_each(2 * pairs, rows, seed)
    assert (halves.sum(axis=0) == pairs).all()
    parts = disjoint(pairs, rows, seed)
    assert (parts.sum(axis=0) == 1).all()
    assert np.ptp(parts.sum(axis=1)) <= 1


def test_halves_are_fair():
    """Each model has a row with probability one half, and pairs of rows are independent."""
    halves = half_each(2, 40_000, seed=4)
    assert abs(halves[0].mean() - 0.5) < 0.0125  # five standard deviations
    both = (halves[0, ::2] & halves[0, 1::2]).mean()
    assert abs(both - 0.25) < 0.0155


def test_an_inactive_model_stays_as_it_is():
    for kind in ("sgd", "adam"):
        weights = {"w": torch.ones(2, 3)}
        optimizer = make_optimizer(Schedule(optimizer=kind, rate=0.1), weights)
        push = {"w": torch.ones(2, 3)}
        optimizer.update(weights, push, torch.tensor(0.1), torch.tensor([1.0, 1.0]))
        before = copy.deepcopy(weights["w"])
        optimizer.update(weights, push, torch.tensor(0.1), torch.tensor([1.0, 0.0]))
        assert torch.equal(weights["w"][1], before[1])
        assert not torch.equal(weights["w"][0], before[0])


def test_rates():
    plan = Schedule(rate=0.4, warm_up=0.1)
    rates = [plan.rate_at(step, 100) for step in range(100)]
    assert max(rates) == 0.4
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001
    assert Schedule(rate=0.4, decay="constant", warm_up=0.0).rate_at(99, 100) == 0.4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs"), ({"batch_size": 0}, "batch_size"), ({"rate": -1.0}, "rate"),
        ({"decay": "linear"}, "cosine"), ({"warm_up": 1.0}, "warm_up"), ({"optimizer": "x"}, "sgd"),
    ],
)  # fmt: skip
def test_schedules_that_make_no_sense(change, message):
    with pytest.raises(ValueError, match=message):
        Schedule(**change)


def test_mistakes(images):
    inputs, labels = images
    with pytest.raises(ValueError, match="a column for each"):
        train_ensemble(network, inputs, labels, np.ones((2, 59), bool))
    with pytest.raises(ValueError, match="none of them empty"):
        train_ensemble(network, inputs, labels, np.zeros((2, 60), bool))
    with pytest.raises(ValueError, match="must not have buffers"):
        train_ensemble(
            lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 4)),
            inputs, labels, np.ones((2, 60), bool),
        )  # fmt: skip
    with pytest.raises(ValueError, match="an even number"):
        half_each(3, 10, seed=0)
    for engine in ("recorded", "fused"):
        with pytest.raises(ValueError, match="no GPU"):
            train_ensemble(network, inputs, labels, np.ones((2, 60), bool), engine=engine)
    with pytest.raises(ValueError, match="one of apart"):
        train_ensemble(network, inputs, labels, np.ones((2, 60), bool), engine="x")


def test_models_that_nobody_knows_of_are_not_taken_up(images, tmp_path):
    """They may have been trained on other rows."""
    arguments = (network, *images, half_each(2, 60, seed=0), Schedule(1, 16))
    train_ensemble(*arguments, folder=tmp_path / "a")
    (tmp_path / "a" / "ensemble.json").unlink()
    with pytest.raises(ValueError, match=r"has models and no ensemble\.json"):
        train_ensemble(*arguments, folder=tmp_path / "a")


def test_states_of_nobody_knows_what_are_not_taken_up(tmp_path):
    """Without the file that says whose they are, they may be of other rows."""
    (tmp_path / "unfinished-000.safetensors").write_bytes(b"")
    with pytest.raises(ValueError, match="Give another folder"):
        store.Store(tmp_path).claim_as({"rows": "mine"})
