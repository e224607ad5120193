"""Which way to the norms: sizes decide, and a short timing where they hardly do."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from sfumato.learning.dp_sgd.gradients import timing
from sfumato.learning.dp_sgd.gradients.timing import choose_way, confirmed_way
from sfumato.learning.dp_sgd.kernels.products import Shape

MATRIX = [1, 1, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("shape", "way"),
    [
        (Shape(512, 1024, 64, 576), "written"),  # early convolutions: long images, few weights
        (Shape(512, 256, 128, 1152), "direct"),
        (Shape(512, 64, 256, 2304), "gram"),  # late ones
        (Shape(32, 256, 3072, 768), "gram"),
        (Shape(8, 1024, 2304, 768), "direct"),
        (Shape(512, 1, 10, 256), "one place"),
    ],
)
def test_the_way_follows_from_sizes(shape, way):
    units, places, rows, columns = shape
    inputs = columns if columns % 9 else columns // 9
    assert choose_way(shape, 2 * units * places * (rows + inputs)) == way


@pytest.fixture(autouse=True)
def nothing_known():
    timing.forget()
    yield
    timing.forget()


def factors(places, rows, columns, units=3):
    return torch.zeros(units, places, 1, columns), torch.zeros(units, places, 1, rows)


def clock(*seconds):
    """Says these times one after the other, and how often it was asked."""
    left, asked = list(seconds), []

    def measure(call):
        asked.append(len(call()[0]))
        return left.pop(0)

    return measure, asked


def test_a_close_call_is_timed_once_for_each_size():
    x, g = factors(40, 64, 64)
    measure, asked = clock(2.0, 1.0, 1.0, 2.0)
    assert confirmed_way(x, g, MATRIX, 3, measure=measure) == "direct"  # the second, by the clock
    assert confirmed_way(x * 5, g + 1, MATRIX, 3, measure=measure) == "direct"
    assert len(asked) == 2
    assert confirmed_way(*factors(41, 64, 64), MATRIX, 3, measure=measure) == "gram"
    assert asked == [3] * 4


def test_a_clear_call_and_other_ways_are_not_timed():
    measure, asked = clock()
    assert confirmed_way(*factors(4, 64, 64), MATRIX, 3, measure=measure) == "gram"
    assert confirmed_way(*factors(4000, 64, 64), MATRIX, 3, measure=measure) == "written"
    assert confirmed_way(*factors(1, 64, 64), MATRIX, 3, measure=measure) == "one place"
    assert confirmed_way(*factors(40, 64, 64), MATRIX, 3) == "gram"  # no GPU, no clock
    assert asked == []


def test_real_tensors_are_timed_while_a_graph_is_traced():
    measure, asked = clock(1.0, 2.0)
    kinds = []

    def watched(call):
        kinds.append(type(call()[0]))
        return measure(call)

    def traced(x, g):
        assert confirmed_way(x, g, MATRIX, 3, measure=watched) == "gram"
        return x + 1

    graph = make_fx(traced, tracing_mode="fake")(*factors(40, 64, 64))
    assert kinds == [torch.Tensor] * 2
    assert len(graph.graph.nodes) == 4  # two inputs, one sum, one output
    assert asked == [3] * 2
