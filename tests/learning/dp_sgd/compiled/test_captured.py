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
    second = captured(weight, shift, batches[6])
    assert second[0] is first[0]
    assert same(second, expected(weight, shift, batches[6]))


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
        weight.mul_(0.5)
    assert not captured.refused
