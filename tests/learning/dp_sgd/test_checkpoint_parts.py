"""Checkpoints over several small files: the same tensors, one checkpoint, or none."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato.learning.dp_sgd import checkpoints as module
from sfumato.learning.dp_sgd.checkpoint_parts import divided, joined
from sfumato.learning.dp_sgd.checkpoints import Checkpoint, Checkpoints

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3), max_size=6)
types = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool])


@given(shapes, types, st.integers(8, 64))
def test_divided_and_joined(found, dtype, most):
    tensors = {f"t{i}": torch.arange(torch.Size(s).numel()).to(dtype).reshape(s)
               for i, s in enumerate(found)}  # fmt: skip
    groups, cut = divided(tensors, most)
    assert all(sum(t.nbytes for t in group.values()) <= most for group in groups)
    again = joined(groups, cut)
    assert again.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype
        assert again[name].shape == tensor.shape
        assert torch.equal(again[name], tensor)


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    return Checkpoints(tmp_path / "run", "0" * 64, small=True)


def tensors(step):
    return {"w": torch.full((60,), float(step)), "b": torch.full((3,), float(step))}


def test_no_file_is_large_and_older_parts_go(small):
    for step in range(4):
        small.save(Checkpoint(step, tensors(step), {"n": step}))
    whole = [p for p in small.folder.iterdir() if p.name.startswith("checkpoint-")]
    assert {p.name[: len("checkpoint-00000003")] for p in whole} == {p.stem for p in small._files()}
    assert len(whole) == 2 * 3
    parts = [p for p in whole if ".part-" in p.name]
    assert all(p.stat().st_size < 300 for p in parts)
    found = small.load()
    assert (found.step, found.facts) == (3, {"n": 3})
    assert all(torch.equal(found.tensors[name], t) for name, t in tensors(3).items())


def test_one_that_is_not_small_reads_them_and_the_other_way(small):
    small.save(Checkpoint(1, tensors(1), {}))
    small.close()
    plain = Checkpoints(small.folder, "0" * 64)
    assert plain.load().step == 1
    plain.save(Checkpoint(2, tensors(2), {}))
    plain.close()
    assert Checkpoints(small.folder, "0" * 64, small=True).load().step == 2


@pytest.mark.parametrize("damage", ["lost", "other"])
def test_a_part_that_is_lost_or_another_is_noticed(small, damage):
    for step in (1, 2):
        small.save(Checkpoint(step, tensors(step), {}))
    first, second = sorted(small.folder.glob("*.part-1.safetensors"))
    if damage == "lost":
        second.unlink()
    else:
        second.write_bytes(first.read_bytes())
    with pytest.warns(UserWarning, match="damaged"):
        assert small.load().step == 1


def test_parts_of_a_crash_are_no_checkpoint(small, monkeypatch):
    small.save(Checkpoint(1, tensors(1), {}))
    write = Checkpoints._write

    def crash(self, target, group, header=None):
        if header is not None:
            raise KeyboardInterrupt
        write(self, target, group, header)

    monkeypatch.setattr(Checkpoints, "_write", crash)
    with pytest.raises(KeyboardInterrupt):
        small.save(Checkpoint(2, tensors(2), {}))
    monkeypatch.undo()
    monkeypatch.setattr(module, "MOST_BYTES", 100)
    assert small.load().step == 1
    small.save(Checkpoint(3, tensors(3), {}))
    small.save(Checkpoint(4, tensors(4), {}))
    left = {p.name.partition(".")[0] for p in small.folder.glob("*.part-*")}
    assert left == {p.stem for p in small._files()}


def test_pieces_of_another_size_are_noticed():
    groups, cut = divided({"w": torch.arange(40.0)}, 64)
    with pytest.raises(ValueError, match="pieces of 'w'"):
        joined(groups, {"w": [41]})
    with pytest.raises(KeyError):
        joined(groups, cut | {"v": [2]})


# --- a checkpoint when one wants it ---------------------------------------------------------------


def trainer(folder, **more):
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    data = (x, (x[:, 0] > 0).long())
    model = torch.nn.Linear(3, 2)
    own = {"noise_multiplier": 2.0, "steps": 6, "delta": 1e-4, "lot_size": 20} | more
    return sf.DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), data, public_size=60,
        checkpoints=folder, checkpoint_every=100, **own,
    )  # fmt: skip


def losses(model, inputs, labels):
    return torch.nn.functional.cross_entropy(model(inputs), labels, reduction="none")


@pytest.mark.parametrize("batch_size", [None, 7])
def test_what_is_saved_is_what_is_in_the_weights(tmp_path, batch_size):
    """Left after a saved step, the run goes on with the next, and the record counts none lost."""
    run = trainer(tmp_path / "a", batch_size=batch_size)
    for inputs, labels in run:
        run.backward(losses(run.model, inputs, labels))
        if not run.rehearsing and run._just_taken == 3:
            run.save()
            break
    weight = run.model.weight.detach().clone()
    again = trainer(tmp_path / "a", batch_size=batch_size).resume()
    assert again.steps_taken == 3
    assert torch.equal(again.model.weight, weight)
    again.fit(losses)
    assert again.record.facts["steps_lost"] == 0


def test_lots_fetched_ahead_count_as_lost(tmp_path):
    run = trainer(tmp_path / "a", workers=1)

    def after(step):
        if step == 2:
            run.save()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.fit(losses, after=after)
    again = trainer(tmp_path / "a", workers=1).resume()
    assert again.record.facts["steps_lost"] == again.steps_taken - 2


def test_saving_at_another_moment_is_refused(tmp_path):
    run = trainer(tmp_path / "a", ema_decay=0.9)
    refused = pytest.raises(sf.TrainingError, match="save")
    with refused:
        run.save()
    for inputs, labels in run:
        with refused:  # in the rehearsal, or while a batch is out
            run.save()
        run.backward(losses(run.model, inputs, labels))
        if not run.rehearsing:
            with run.averaged(), refused:
                run.save()
            run.save()
    nowhere = trainer(None, steps=1)
    with pytest.raises(ValueError, match="nowhere to save"):
        nowhere.fit(losses, after=lambda step: nowhere.save())
