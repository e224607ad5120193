"""Checkpoints: exact, atomic, without coins; a journal that never forgets a started step."""

import json
import math
import os
import subprocess
import sys
import textwrap
from collections import Counter, OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    LambdaLR,
    MultiStepLR,
    OneCycleLR,
    SequentialLR,
    StepLR,
)

from sfumato.learning import durable
from sfumato.learning.dp_sgd.checkpoints import (
    Checkpoint,
    Checkpoints,
    flatten_state,
    load_weights,
    restore_state,
    weights_of,
)

DIGEST = "0" * 64


def checkpoint(step, value=None):
    return Checkpoint(step, {"w": torch.full((4,), float(step))}, {"value": value})


def equal(one, two):
    """Equal in values, types and keys, all the way down."""
    if isinstance(one, torch.Tensor):
        same = isinstance(two, torch.Tensor) and one.dtype == two.dtype and one.shape == two.shape
        return same and torch.equal(one.nan_to_num(7.5), two.nan_to_num(7.5))
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(equal(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(equal, one, two))
    return one == two or (one != one and two != two)


# --- state as tensors and JSON ------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.floats(width=32), max_size=3).map(torch.tensor)
)
keys = st.integers() | st.text(max_size=5) | st.tuples(st.integers(), st.text(max_size=2))
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(keys, inner, max_size=3)
        | st.dictionaries(keys, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=12,
)


@given(trees)
def test_any_state_comes_back_exactly_through_json_text(tree):
    tensors, facts = flatten_state(tree)
    text = json.dumps(facts, allow_nan=False)
    back = restore_state(tensors, json.loads(text))
    assert equal(back, tree)


def test_counters_and_infinities_come_back():
    state = {"milestones": Counter({3: 2}), "best": math.inf, "worst": -math.inf, "zero": -0.0}
    back = restore_state({}, json.loads(json.dumps(flatten_state(state)[1])))
    assert equal(back, state)
    assert math.copysign(1, back["zero"]) == -1


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (lambda: 1, "build it again"),
        (torch.Generator(), "fresh coins"),
        (np.random.default_rng(1), "keep tensors"),
        ({1, 2}, "keep tensors"),
        (1j, "keep tensors"),
    ],
)
def test_what_cannot_be_stored_is_refused_by_name(value, remedy):
    with pytest.raises(ValueError, match=rf"state\.0\.it.*{remedy}"):
        flatten_state({"state": {0: {"it": value}}})


def test_restored_tensors_are_copies_and_missing_ones_are_named():
    tensors, facts = flatten_state({"a": torch.ones(2)})
    restore_state(tensors, facts)["a"].zero_()
    assert tensors["0:a"].tolist() == [1, 1]
    with pytest.raises(ValueError, match="0:a"):
        restore_state({}, facts)
    with pytest.raises(ValueError, match="flatten_state"):
        restore_state({}, {"pickle": "x"})


OPTIMIZERS = {
    "sgd": lambda ps: SGD(ps, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda ps: Adam(ps, lr=0.01, amsgrad=True),
    "adam, tensor lr": lambda ps: Adam(ps, lr=torch.tensor(0.01), foreach=False),
    "adamw": lambda ps: AdamW(ps, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda ps: RMSprop(ps, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda ps: Adagrad(ps, lr=0.1, lr_decay=0.01),
}
SCHEDULES = {
    "none": lambda o: None,
    "one cycle": lambda o: OneCycleLR(o, 0.1, total_steps=12),
    "step": lambda o: StepLR(o, 2, 0.5),
    "multi-step": lambda o: MultiStepLR(o, [2, 5, 6]),
    "lambda": lambda o: LambdaLR(o, lambda t: 1 / (1 + t)),
    "sequence": lambda o: SequentialLR(o, [StepLR(o, 1, 0.5), CosineAnnealingLR(o, 9)], [3]),
}


def make(optimizer, schedule):
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters()}]
    made = OPTIMIZERS[optimizer](groups)
    return model, made, SCHEDULES[schedule](made)


def train(model, optimizer, schedule, steps):
    for t in steps:
        optimizer.zero_grad()
        x = torch.linspace(-1, 1, 15).reshape(5, 3) * (t + 1)
        model(x).square().mean().backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [(o, "step") for o in OPTIMIZERS] + [("sgd", s) for s in SCHEDULES] + [("adam", "one cycle")],
)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path, optimizer, schedule):
    whole = make(optimizer, schedule)
    train(*whole, range(9))

    first = make(optimizer, schedule)
    train(*first, range(4))
    tensors = {f"model/{n}": t for n, t in weights_of(first[0]).items()}
    facts = {}
    for name, part in zip(("optimizer", "schedule"), first[1:], strict=True):
        if part is not None:
            flat, facts[name] = flatten_state(part.state_dict())
            tensors |= {f"{name}/{n}": t for n, t in flat.items()}
    Checkpoints(tmp_path / "run", DIGEST).save(Checkpoint(4, tensors, facts))

    found = Checkpoints(tmp_path / "run", DIGEST).load()
    second = make(optimizer, schedule)

    def part_of(name):
        return {n.split("/", 1)[1]: t for n, t in found.tensors.items() if n.startswith(name)}

    load_weights(second[0], part_of("model/"))
    for name, part in zip(("optimizer", "schedule"), second[1:], strict=True):
        if part is not None:
            part.load_state_dict(restore_state(part_of(f"{name}/"), found.facts[name]))
    train(*second, range(4, 9))
    assert equal(weights_of(second[0]), weights_of(whole[0]))
    assert equal(second[1].state_dict(), whole[1].state_dict())


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("bias"), "bias missing"),
        (lambda w: w.update(more=torch.ones(1)), "more unknown"),
        (lambda w: w.update(bias=torch.ones(3)), r"bias must have shape \(2,\)"),
        (lambda w: w.update(bias=torch.ones(2, dtype=torch.float64)), "torch.float32"),
    ],
)
def test_weights_are_loaded_strictly_or_not_at_all(change, message):
    model = nn.Linear(3, 2)
    before = {n: t.clone() for n, t in weights_of(model).items()}
    wrong = {n: t + 1 for n, t in before.items()}
    change(wrong)
    with pytest.raises(ValueError, match=message):
        load_weights(model, wrong)
    assert equal(before, weights_of(model))


def test_weights_are_loaded_in_place():
    model = nn.Linear(3, 2)
    parameter, address = model.weight, model.weight.data_ptr()
    load_weights(model, {"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    assert model.weight is parameter
    assert parameter.data_ptr() == address
    assert parameter.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_extra_state_that_is_no_tensor_is_refused():
    class Odd(nn.Linear):
        def get_extra_state(self):
            return {"anything"}

    with pytest.raises(ValueError, match="_extra_state"):
        weights_of(Odd(1, 1))


# --- the folder ---------------------------------------------------------------------------------


def test_tensors_of_every_kind_come_back_to_the_bit(tmp_path):
    shared = torch.arange(6.0)
    tensors = {
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 3),
        "bf16": torch.tensor([1.5, math.nan, -0.0], dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "transposed": torch.arange(6).reshape(2, 3).t(),
        "tied": shared,
        "tied too": shared[:3],
        "learning": nn.Parameter(torch.ones(2)),
    }
    store = Checkpoints(tmp_path / "run", DIGEST)
    assert store.load() is None
    store.save(Checkpoint(7, tensors, {"nested": {"list": [1, None, 0.1]}}))
    found = store.load()
    assert (found.step, found.facts) == (7, {"nested": {"list": [1, None, 0.1]}})
    assert set(found.tensors) == set(tensors)
    for name, tensor in tensors.items():
        back = found.tensors[name]
        assert back.dtype == tensor.dtype
        torch.testing.assert_close(back, tensor.detach(), rtol=0, atol=0, equal_nan=True)
    assert math.copysign(1, float(found.tensors["bf16"][2])) == -1


@pytest.mark.parametrize(
    ("tensors", "facts", "message"),
    [
        ({"a": torch.ones(2).to_sparse()}, {}, "'a'"),
        ({"a": torch.ones(2, dtype=torch.complex128)}, {}, "'a'"),
        ({"a": torch.ones(2, device="meta")}, {}, "meta"),
        ({"__metadata__": torch.ones(2)}, {}, "rename"),
        ({}, {"x": {1: 2}}, r"facts\['x'\] must be JSON"),
        ({}, {"x": [torch.ones(1)]}, r"facts\['x'\]\[0\].*Tensor"),
        ({}, {"x": torch.Generator()}, "Generator"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_the_last_one(tmp_path, tensors, facts, message):
    store = Checkpoints(tmp_path / "run", DIGEST)
    store.save(checkpoint(1))
    with pytest.raises(ValueError, match=message):
        store.save(Checkpoint(2, tensors, facts))
    assert store.load().step == 1


def test_only_the_owner_reads_and_two_are_kept(tmp_path):
    folder = tmp_path / "deep" / "run"
    before = os.umask(0)
    try:
        store = Checkpoints(folder, DIGEST)
        for step in range(5):
            store.note_started(step)
            store.save(checkpoint(step + 1))
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert len(list(folder.glob("checkpoint-*"))) == 2
    assert not list(folder.glob(".*"))
    assert store.load().step == 5


def test_nothing_in_the_folder_is_a_pickle(tmp_path):
    store = Checkpoints(tmp_path / "run", DIGEST)
    store.note_started(0)
    store.save(checkpoint(1))
    assert sorted(path.suffix for path in (tmp_path / "run").iterdir()) == [
        ".json", ".jsonl", ".safetensors",
    ]  # fmt: skip


def test_another_plans_folder_is_refused(tmp_path):
    Checkpoints(tmp_path / "run", DIGEST)
    Checkpoints(tmp_path / "run", DIGEST)
    with pytest.raises(ValueError, match=r"another plan.*folder of its own"):
        Checkpoints(tmp_path / "run", "1" * 64)
    (tmp_path / "run" / "plan.json").write_text("{")
    with pytest.raises(ValueError, match="another plan"):
        Checkpoints(tmp_path / "run", DIGEST)


def test_two_that_begin_at_once_in_a_folder_hold_one_plan(tmp_path):
    def begin(digest):
        try:
            return Checkpoints(tmp_path / "run", digest).digest
        except ValueError as error:
            return str(error)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(begin, "abababab"))
    kept = json.loads((tmp_path / "run" / "plan.json").read_text())["digest"]
    assert sum(one == kept for one in found) == 4
    assert sum("a run of another plan" in one for one in found) == 4


def test_a_folder_with_other_things_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    mode = tmp_path.stat().st_mode
    with pytest.raises(ValueError, match="other things"):
        Checkpoints(tmp_path, DIGEST)
    assert tmp_path.stat().st_mode == mode


@given(st.data())
def test_a_damaged_newest_checkpoint_falls_back(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("runs") / "run"
    store = Checkpoints(folder, DIGEST)
    store.save(checkpoint(1))
    store.save(checkpoint(2))
    newest = sorted(folder.glob("checkpoint-*"))[-1]
    whole = newest.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        newest.write_bytes(whole[:at])
    else:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << data.draw(st.integers(0, 7))
        newest.write_bytes(flipped)
    with pytest.warns(UserWarning, match="damaged and passed over"):
        assert store.load().step == 1
    store.save(checkpoint(3))  # the damaged one goes, not the last good one
    assert store.load().step == 3
    assert len(list(folder.glob("checkpoint-*"))) == 2
    assert newest not in folder.iterdir()


def test_all_damaged_is_an_error_not_a_fresh_start(tmp_path):
    store = Checkpoints(tmp_path / "run", DIGEST)
    store.note_started(0)
    store.save(checkpoint(1))
    for path in (tmp_path / "run").glob("checkpoint-*"):
        path.write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="damaged"),
        pytest.raises(ValueError, match="1 steps that may have run"),
    ):
        store.load()


@pytest.mark.parametrize("call", range(4))
@pytest.mark.parametrize("same_step", [False, True])
def test_a_crash_within_save_leaves_a_readable_one(tmp_path, monkeypatch, call, same_step):
    """At each point where the disk is touched: data, its sync, the new name, the folder."""
    store = Checkpoints(tmp_path / "run", DIGEST)
    store.save(checkpoint(1, "old"))

    class Crash(BaseException):
        pass

    def crash(*args, **kwargs):
        raise Crash

    target = [
        "sfumato.learning.dp_sgd.checkpoints.save_file",
        "sfumato.learning.durable.sync_file",
        "sfumato.learning.durable.os.replace",
        "sfumato.learning.durable.sync_folder",
    ][call]
    with monkeypatch.context() as patch:
        patch.setattr(target, crash)
        with pytest.raises(Crash):
            store.save(checkpoint(1 if same_step else 2, "new"))
    found = Checkpoints(tmp_path / "run", DIGEST).load()
    assert found.facts["value"] == ("new" if call == 3 else "old")
    store.close()
    again = Checkpoints(tmp_path / "run", DIGEST)
    again.save(checkpoint(5))
    assert again.load().step == 5
    assert not list((tmp_path / "run").glob(".*"))


# --- the journal --------------------------------------------------------------------------------


def test_a_started_step_is_on_disk_before_the_call_returns(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fdatasync", lambda f: synced.append(os.fstat(f).st_size))
    monkeypatch.delattr(durable.fcntl, "F_FULLFSYNC", raising=False)
    store = Checkpoints(tmp_path / "run", DIGEST)
    for step in range(3):
        store.note_started(step)
        assert synced[-1] == (tmp_path / "run" / "journal.jsonl").stat().st_size
    assert len(synced) >= 4


def test_repeated_and_skipped_steps_count(tmp_path):
    store = Checkpoints(tmp_path / "run", DIGEST)
    assert store.started == 0
    for step, started in [(0, 1), (1, 2), (2, 3), (1, 4), (2, 5), (9, 10), (10, 11), (10, 12)]:
        store.note_started(step)
        assert store.started == started
        assert Checkpoints(tmp_path / "run", DIGEST).started == started


@given(st.lists(st.integers(0, 30), max_size=12), st.data())
def test_a_torn_or_damaged_journal_never_tells_less(tmp_path_factory, steps, data):
    folder = tmp_path_factory.mktemp("runs") / "run"
    store = Checkpoints(folder, DIGEST)
    for step in steps:
        store.note_started(step)
    durable = store.started
    store.close()
    path = folder / "journal.jsonl"
    torn = data.draw(st.binary(max_size=15))  # part of one more entry, in any state
    kept = path.read_bytes() if path.exists() else b""
    path.write_bytes(kept + torn)
    again = Checkpoints(folder, DIGEST)
    assert durable <= again.started
    assert again.started > durable or not kept or not torn.strip(b"\n")
    before = again.started
    later = data.draw(st.sampled_from([0, 500]))
    again.note_started(later)
    assert again.started == max(before, later) + 1
    assert Checkpoints(folder, DIGEST).started == max(before, later) + 1
    whole = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = 0
    path.write_bytes(whole)
    assert Checkpoints(folder, DIGEST).started >= len(steps) + 1


def test_a_lost_journal_is_made_up_for_by_the_checkpoint(tmp_path):
    store = Checkpoints(tmp_path / "run", DIGEST)
    for step in range(5):
        store.note_started(step)
    store.save(checkpoint(5))
    store.close()
    (tmp_path / "run" / "journal.jsonl").unlink()
    with pytest.warns(UserWarning, match="cut or replaced"):
        again = Checkpoints(tmp_path / "run", DIGEST)
    assert again.started == 5
    again.note_started(5)
    assert again.started == 6
    assert Checkpoints(tmp_path / "run", DIGEST).started == 6  # and the journal is whole again


def run(script, *args):
    code = textwrap.dedent(script)
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_one_process_writes_at_a_time_and_others_may_read(tmp_path):
    store = Checkpoints(tmp_path / "run", DIGEST)
    store.note_started(0)
    store.save(checkpoint(1))
    script = """
        import sys
        from sfumato.learning.dp_sgd.checkpoints import Checkpoints
        store = Checkpoints(sys.argv[1], "0" * 64)
        print(store.load().step, store.started)
        store.note_started(1)
    """
    done = run(script, tmp_path / "run")
    assert done.stdout.split() == ["1", "1"]
    assert "another trainer is at work" in done.stderr
    assert store.started == 1


@pytest.mark.slow
def test_kill_9_at_any_time(tmp_path):
    """A child that saves in a loop is killed thirty times; nothing that it reported is lost."""
    script = """
        import os, random, signal, sys, time, warnings
        import torch
        from sfumato.learning.dp_sgd.checkpoints import Checkpoint, Checkpoints

        warnings.simplefilter("error")
        torch.set_num_threads(1)
        folder, chance = sys.argv[1], random.Random(3)

        def child(report):
            store = Checkpoints(folder, "0" * 64)
            found = store.load()
            step = store.started if found else 0
            while True:
                store.note_started(step)
                os.write(report, b"started %d\\n" % step)
                step += 1
                weights = {"w": torch.full((20_000,), float(step))}
                store.save(Checkpoint(step, weights, {"step": step}))
                os.write(report, b"saved %d\\n" % step)

        furthest = {"started": -1, "saved": 0}
        for _ in range(30):
            read, write = os.pipe()
            pid = os.fork()
            if not pid:
                try:
                    child(write)
                finally:
                    os._exit(1)
            os.close(write)
            heard = os.read(read, 8)
            time.sleep(chance.random() * 0.06)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            with os.fdopen(read, "rb") as rest:
                lines = (heard + rest.read()).decode().splitlines()
            assert lines, "the child failed"
            for line in lines:
                word, step = line.split()
                furthest[word] = max(furthest[word], int(step))
            store = Checkpoints(folder, "0" * 64)
            assert store.started >= furthest["started"] + 1, (store.started, furthest)
            found = store.load()
            assert (found.step if found else 0) >= furthest["saved"], (found, furthest)
            if found:
                assert found.facts["step"] == found.step
                assert bool((found.tensors["w"] == found.step).all())
        print(*furthest.values())
    """
    done = run(script, tmp_path / "run")
    assert done.returncode == 0, done.stderr
    started, saved = map(int, done.stdout.split())
    assert started >= 30  # each of them got somewhere
    assert saved >= 5
