"""When a call is recorded, when it is replayed, and when it is left alone."""

import pytest
import torch

from sfumato.learning.dp_sgd.compiled.captured import AFTER, Captured


class Machine:
    """Records by keeping the call, and replays it into the results that it gave out."""

    def __init__(self, fails=None):
        self.recorded = self.replayed = 0
        self.fails = fails

    def __call__(self, call):
        self.recorded += 1
        call()  # the run beforehand
        if self.fails is not None:
            raise self.fails
        results = [torch.full_like(r, torch.nan) for r in call()]

        def replay():
            self.replayed += 1
            for held, value in zip(results, call(), strict=True):
                held.copy_(value)

        return replay, results


class Called:
    def __init__(self):
        self.times = 0

    def __call__(self, weight, shift, x):
        self.times += 1
        return [x @ weight + shift, x.sum()]


def expected(weight, shift, x):
    return [x @ weight + shift, x.sum()]


def same(one, two):
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.fixture
def parts():
    generator = torch.Generator().manual_seed(1)
    weight, shift = (torch.randn(*s, generator=generator) for s in ((3, 2), (2,)))
    return weight, shift, [torch.randn(4, 3, generator=generator) for _ in range(9)]


def test_it_is_recorded_after_three_calls_and_then_replayed(parts):
    weight, shift, batches = parts
    call, machine = Called(), Machine()
    captured = Captured(call, 2, machine)
    for number, x in enumerate(batches):
        assert same(captured(weight, shift, x), expected(weight, shift, x))
        assert machine.recorded == (number >= AFTER)
        assert machine.replayed == max(0, number - AFTER + 1)
    assert AFTER == 3


def test_batches_are_copied_in_not_kept(parts):
    """A batch handed over may be overwritten afterwards; results are those of the last call."""
    weight, shift, batches = parts
    captured = Captured(Called(), 2, Machine())
    for x in batches[: AFTER + 1]:
        captured(weight, shift, x)
    given = batches[5].clone()
    first = captured(weight, shift, given)
    given.zero_()
    assert same(first, expected(weight, shift, batches[5]))


@pytest.mark.parametrize(
    "keep",
    [lambda r: r[0], lambda r: r[0].view(-1)[:3], lambda r: r[1].detach(), list],
    ids=["itself", "view", "alias", "all"],
)
def test_what_someone_keeps_is_never_overwritten(keep, parts):
    """Noise was added to it in place; the next replay would put a sum without noise there."""
    weight, shift, batches = parts
    machine = Machine()
    captured = Captured(Called(), 2, machine)
    for x in batches[: AFTER + 2]:
        captured(weight, shift, x)
    assert machine.replayed == 2
    found = captured(weight, shift, batches[5])
    for result in found:
        result += 100
    kept = keep(found)
    before = [k.clone() for k in kept] if isinstance(kept, list) else [kept.clone()]
    del found, result
    assert same(captured(weight, shift, batches[6]), expected(weight, shift, batches[6]))
    assert same(kept if isinstance(kept, list) else [kept], before)
    assert captured.refused
    assert machine.replayed == 3


def test_a_gradient_used_and_let_go_keeps_nothing(parts):
    weight, shift, batches = parts
    machine, p = Machine(), torch.nn.Parameter(torch.zeros(4, 2))
    captured = Captured(Called(), 2, machine)
    optimizer = torch.optim.AdamW([p])
    for x in batches:
        found = captured(weight, shift, x)
        found[0] += 1
        p.grad = found[0]
        optimizer.step()
        p.grad = None
        del found
    assert not captured.refused
    assert machine.replayed == len(batches) - AFTER


def test_parameters_changed_in_place_are_seen(parts):
    weight, shift, batches = parts
    machine = Machine()
    captured = Captured(Called(), 2, machine)
    for x in batches:
        assert same(captured(weight, shift, x), expected(weight, shift, x))
        weight.mul_(0.5)
    assert machine.recorded == 1


@pytest.mark.parametrize("moved", ["weight", "layout"])
def test_parameters_that_moved_are_recorded_anew(moved, parts):
    weight, shift, batches = parts
    machine = Machine()
    captured = Captured(Called(), 2, machine)
    for x in batches[:6]:
        captured(weight, shift, x)
    weight = weight.clone() if moved == "weight" else weight.as_strided((3, 2), (1, 3))
    for x in batches[6:]:
        assert same(captured(weight, shift, x), expected(weight, shift, x))
    assert machine.recorded == 2


@pytest.mark.parametrize("error", [RuntimeError("capturing"), ValueError("no"), TypeError("no")])
def test_a_failed_recording_is_not_tried_again(error, parts):
    weight, shift, batches = parts
    machine = Machine(error)
    captured = Captured(Called(), 2, machine)
    for x in batches:
        assert same(captured(weight, shift, x), expected(weight, shift, x))
    assert machine.recorded == 1
    assert machine.replayed == 0
    assert captured.refused


def test_inputs_on_several_devices_are_left_alone(parts):
    weight, shift, batches = parts
    machine = Machine()
    captured = Captured(lambda *inputs: [inputs[2].sum()], 2, machine)
    for x in batches:
        captured(weight, shift.to("meta"), x)
    assert machine.recorded == 0
    assert captured.refused


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu(parts):
    weight, shift, batches = (
        [t.cuda() for t in part] if isinstance(part, list) else part.cuda() for part in parts
    )
    captured = Captured(Called(), 2)
    for x in batches:
        found = captured(weight, shift, x)
        for one, two in zip(found, expected(weight, shift, x), strict=True):
            assert torch.allclose(one, two)
        del found, one
        weight.mul_(0.5)
    assert not captured.refused
