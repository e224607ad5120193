"""Teachers: one unit more or less changes one of them, bit for bit; all else is public."""

import stat
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.ensembles import Schedule, store, train_ensemble
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.ensembles.stacking import fresh_weights
from sfumato.learning.pate.teachers import (
    Parts,
    TeacherRecipe,
    TeacherSchedule,
    assign_units,
    load_teachers,
    new_salt,
    teacher_recipe,
    train_teachers,
    votes_of,
)
from sfumato.learning.pate.teachers import training as module
from sfumato.learning.pate.teachers.batches import drawn_places

ENGINES = ["apart", "stacked"]
TEACHERS, ROWS = 5, 33
SCHEDULE = TeacherSchedule(steps=4, batch_size=5, rate=0.05)


def network():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.GroupNorm(1, 3), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 36, 4)
    )


RECIPE = TeacherRecipe("small", network, 4, SCHEDULE)


@pytest.fixture(autouse=True)
def several_threads():
    """The models of "apart" are trained in as many threads as torch has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def made_up(rows=ROWS, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.rand(rows, 1, 8, 8, generator=generator),
        torch.randint(4, (rows,), generator=generator),
    )


INPUTS, LABELS = made_up()
PARTS = assign_units(np.arange(ROWS), TEACHERS, new_salt(SeededCoins(1)))
BEFORE = {}


def trained(recipe, keep=slice(None), parts=PARTS, **options):
    own = Parts(TEACHERS, parts.teacher_of[keep])
    return train_teachers(recipe, INPUTS[keep], LABELS[keep], own, seed=3, **options)


def all_trained(recipe, engine):
    """On all rows; once for each."""
    key = recipe.name, recipe.schedule, engine
    if key not in BEFORE:
        BEFORE[key] = trained(recipe, engine=engine)
    return BEFORE[key]


def same_bits(one, other):
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def changed(one, other):
    """The teachers whose weights differ in any bit."""
    pairs = [(weight, other.weights[name]) for name, weight in one.weights.items()]
    teachers = range(len(one))
    return [t for t in teachers if not all(same_bits(a[t], b[t]) for a, b in pairs)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@settings(deadline=None, max_examples=8, derandomize=True)
@given(row=st.integers(0, ROWS - 1))
def test_a_row_less_changes_its_teacher_alone(engine, optimizer, row):
    recipe = replace(RECIPE, schedule=replace(SCHEDULE, optimizer=optimizer))
    after = trained(recipe, np.arange(ROWS) != row, engine=engine)
    assert changed(all_trained(recipe, engine), after) == [PARTS.teacher_of[row]]


@pytest.mark.parametrize("engine", ENGINES)
@settings(deadline=None, max_examples=6, derandomize=True)
@given(row=st.integers(0, ROWS), spoilt=st.booleans())
def test_a_row_more_changes_its_teacher_alone(engine, row, spoilt):
    """Put in anywhere; also if it is full of NaN and its label is none."""
    inputs, labels = made_up(1, seed=7)
    if spoilt:
        inputs, labels = inputs * torch.nan, labels + 1000
    more = Parts(TEACHERS, np.insert(PARTS.teacher_of, row, 2))
    after = train_teachers(
        RECIPE, torch.cat([INPUTS[:row], inputs, INPUTS[row:]]),
        torch.cat([LABELS[:row], labels, LABELS[row:]]), more, seed=3, engine=engine,
    )  # fmt: skip
    assert changed(all_trained(RECIPE, engine), after) == [2]
    assert all(bool(w.isfinite().all()) for w in after.weights.values())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_part_that_becomes_empty(engine):
    """Its teacher keeps its initial weights, and votes; no other changes."""
    teacher_of = PARTS.teacher_of.copy()
    teacher_of[teacher_of == 1] = 0
    teacher_of[9] = 1
    one_left = Parts(TEACHERS, teacher_of)
    before = trained(RECIPE, parts=one_left, engine=engine)
    after = trained(RECIPE, np.arange(ROWS) != 9, one_left, engine=engine)
    assert changed(before, after) == [1]
    initial = fresh_weights(network, 1, derived_seed(3, 1, 0))
    assert all(torch.equal(after.weights[name][1], w[0]) for name, w in initial.items())
    assert votes_of(after, INPUTS, 4).sum(axis=1).tolist() == [TEACHERS] * ROWS


@pytest.mark.parametrize("engine", ENGINES)
def test_an_empty_table_trains_nothing(engine):
    nobody = train_teachers(
        RECIPE, INPUTS[:0], LABELS[:0], Parts(3, np.zeros(0, np.int64)), seed=3, engine=engine
    )
    for teacher in range(3):
        initial = fresh_weights(network, 1, derived_seed(3, teacher, 0))
        assert all(torch.equal(nobody.weights[name][teacher], w[0]) for name, w in initial.items())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("row", [0, 16, 32])
def test_scattering_features_are_a_parts_own(engine, row):
    """Bit for bit too, though the rows of a table move when one is taken out."""
    recipe = teacher_recipe("linear", (1, 8, 8), 4)
    recipe = replace(recipe, schedule=replace(recipe.schedule, steps=3), together=2)
    after = trained(recipe, np.arange(ROWS) != row, engine=engine)
    assert changed(all_trained(recipe, engine), after) == [PARTS.teacher_of[row]]


@pytest.mark.parametrize("row", [0, 16, 32])
def test_no_batch_of_features_holds_rows_of_two_teachers(row):
    """Features that wrongly mix the rows of a batch would tell."""
    seen = set()

    def mixing(rows):
        seen.add(tuple(rows.shape))
        return rows - rows.mean(dim=0)

    recipe = replace(RECIPE, prepare=mixing)
    before, after = (trained(recipe, np.arange(ROWS) != gone) for gone in (-1, row))
    assert changed(before, after) == [PARTS.teacher_of[row]]
    assert seen == {(128, 1, 8, 8)}, "batches of one public shape"


def test_an_ordinary_ensemble_would_change_many():
    """What is to be avoided: the longest part's length and a shared order reach every model."""
    schedule = Schedule(1, 5)
    subsets = PARTS.teacher_of == np.arange(TEACHERS)[:, None]
    longest = int(subsets.sum(axis=1).argmax())
    keep = np.arange(ROWS) != np.flatnonzero(subsets[longest])[0]
    before = train_ensemble(network, INPUTS, LABELS, subsets, schedule)
    after = train_ensemble(network, INPUTS[keep], LABELS[keep], subsets[:, keep], schedule)
    assert len(changed(before, after)) > 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_each_teacher_is_as_if_trained_alone(engine, optimizer, monkeypatch):
    """By torch.optim, on its own rows, with the public rates; across chunks."""
    monkeypatch.setattr(module, "_CHUNK", 4)
    schedule = replace(SCHEDULE, steps=11, optimizer=optimizer, rate=0.02)
    found = trained(replace(RECIPE, schedule=schedule), engine=engine, together=2)
    for teacher in range(TEACHERS):
        alone = plainly(teacher, schedule)
        for name, weight in alone.named_parameters():
            torch.testing.assert_close(found.weights[name][teacher], weight, rtol=1e-4, atol=1e-5)


def plainly(teacher, schedule):
    """One teacher by itself, with a loop of its own."""
    model = network()
    initial = fresh_weights(network, 1, derived_seed(3, teacher, 0))
    model.load_state_dict({name: weight[0] for name, weight in initial.items()})
    kind = torch.optim.Adam if schedule.optimizer == "adam" else torch.optim.SGD
    more = {} if schedule.optimizer == "adam" else {"momentum": schedule.momentum}
    optimizer = kind(model.parameters(), 1.0, weight_decay=schedule.weight_decay, **more)
    own = torch.from_numpy(PARTS.rows_of(teacher))
    batches = [
        drawn_places(5 * steps, len(own), (3, teacher, chunk, 1)).reshape(steps, 5)
        for chunk, steps in enumerate((4, 4, 3))
    ]
    for step, places in enumerate(np.concatenate(batches)):
        optimizer.param_groups[0]["lr"] = schedule.rate_at(step)
        optimizer.zero_grad()
        rows = own[torch.from_numpy(places)]
        F.cross_entropy(model(INPUTS[rows]), LABELS[rows]).backward()
        optimizer.step()
    return model


def test_how_many_at_once_changes_nothing_but_rounding():
    one, other = (trained(RECIPE, together=some) for some in (2, None))
    for name, weight in one.weights.items():
        torch.testing.assert_close(weight, other.weights[name], rtol=1e-5, atol=1e-6)


def test_bad_rows_raise_nothing():
    """NaN counts as 0, a label that is none as the first class; the rest learn on."""
    inputs, labels = INPUTS.clone(), LABELS.double()
    inputs[3], inputs[4] = torch.nan, torch.inf
    labels[5], labels[6], labels[7] = -1, 99, torch.nan
    found = train_teachers(RECIPE, inputs, labels, PARTS, seed=3)
    cleaned = LABELS.clone()
    inputs[3:5], cleaned[5:8] = 0, 0
    expected = train_teachers(RECIPE, inputs, cleaned, PARTS, seed=3)
    assert changed(found, expected) == []


def test_a_teacher_that_overflows_still_votes():
    wild = replace(RECIPE, schedule=replace(SCHEDULE, rate=1e30))
    found = trained(wild)
    assert not bool(found.weights["4.weight"].isfinite().all())
    votes = votes_of(found, INPUTS, 4, default_class=2)
    assert votes.sum(axis=1).tolist() == [TEACHERS] * ROWS
    assert votes[:, 2].min() >= 1


class Cut(Exception):  # noqa: N818
    """The power went."""


@pytest.mark.parametrize("after", [2, 4, 6])
def test_a_run_that_was_cut_off_goes_on(tmp_path, monkeypatch, after):
    monkeypatch.setattr(module, "_CHUNK", 2)
    monkeypatch.setattr(store, "_SHARE", 1)  # states are written however long that takes
    options = {"together": 3, "engine": "stacked"}
    whole = trained(RECIPE, **options)

    def cut(done, total):
        assert total == 8
        if done == after:
            raise Cut

    folder = tmp_path / "teachers"
    with pytest.raises(Cut):
        trained(RECIPE, folder=folder, progress=cut, **options)
    told = []
    resumed = trained(RECIPE, folder=folder, progress=lambda d, _: told.append(d), **options)
    assert len(told) <= (8 - after) / 2 + 1, "steps were done again"
    assert changed(whole, resumed) == []
    loaded = load_teachers(folder, RECIPE, TEACHERS)
    assert changed(whole, loaded) == []
    np.testing.assert_array_equal(votes_of(loaded, INPUTS, 4), votes_of(whole, INPUTS, 4))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    for other in ({"seed": 4}, {"together": 2}):
        with pytest.raises(ValueError, match="holds another"):
            train_teachers(RECIPE, INPUTS, LABELS, PARTS, folder=folder, **(options | other))
    with pytest.raises(ValueError, match="holds another"):
        trained(RECIPE, np.arange(ROWS) != 0, folder=folder, **options)
    with pytest.raises(ValueError, match="one with 6 trained models"):
        load_teachers(folder, RECIPE, 6)


def test_neighbours_leave_the_same_trace(tmp_path, monkeypatch):
    """What is told, and the names and sizes of files, do not depend on a row."""
    monkeypatch.setattr(module, "_CHUNK", 2)
    traces = []
    for keep in (np.ones(ROWS, bool), np.arange(ROWS) != 8):
        told, folder = [], tmp_path / str(keep.sum())
        trained(RECIPE, keep, folder=folder, together=2, progress=lambda *a, t=told: t.append(a))
        traces.append((told, sorted((p.name, p.stat().st_size) for p in folder.iterdir())))
    assert traces[0] == traces[1]
    assert traces[0][0] == [(done, 12) for done in (2, 4, 6, 8, 10, 12)]


def test_teachers_carry_no_table_of_rows_and_leave_torchs_generator_alone():
    before = torch.get_rng_state()
    found = trained(RECIPE)
    assert torch.equal(before, torch.get_rng_state())
    assert found.included.shape == (TEACHERS, 0)
    assert len(found) == TEACHERS
    assert isinstance(found.module(4), nn.Module)


def test_mistakes():
    with pytest.raises(ValueError, match="as many rows"):
        train_teachers(RECIPE, INPUTS, LABELS[1:], PARTS)
    with pytest.raises(ValueError, match="together"):
        trained(RECIPE, together=0)
    with pytest.raises(ValueError, match="seed"):
        train_teachers(RECIPE, INPUTS, LABELS, PARTS, seed=-1)
    with pytest.raises(ValueError, match="no GPU"):
        trained(RECIPE, engine="recorded")
    drops = replace(RECIPE, make=lambda: nn.Sequential(network(), nn.Dropout(0.1)))
    with pytest.raises(ValueError, match="dropout"):
        trained(drops)
    buffered = replace(
        RECIPE, make=lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 4))
    )
    with pytest.raises(ValueError, match="must not have buffers"):
        trained(buffered)
    with pytest.raises(ValueError, match="steps"):
        TeacherSchedule(steps=0)
    with pytest.raises(ValueError, match="batch_size"):
        TeacherSchedule(batch_size=0)
