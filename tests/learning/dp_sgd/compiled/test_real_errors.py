"""An error in a kernel of a compiled step comes out as itself."""

import contextlib

import pytest
import torch
from torch._dynamo.exc import Unsupported
from torch.fx.experimental.proxy_tensor import make_fx

from sfumato.learning.dp_sgd.compiled.real_errors import RealErrors


@contextlib.contextmanager
def passing():
    try:
        yield
    finally:
        pass


@torch.library.custom_op("sfumato_tests::too_large", mutates_args=())
def too_large(x: torch.Tensor) -> torch.Tensor:
    with passing():
        raise torch.OutOfMemoryError("CUDA out of memory: a test of what is seen of it")


@too_large.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.fixture
def step():
    graph = make_fx(lambda x: torch.ops.sfumato_tests.too_large(x) + 1, tracing_mode="fake")
    return torch.compile(graph(torch.ones(3)), fullgraph=True, dynamic=False, backend="aot_eager")


def test_too_little_memory_is_seen_as_such(step):
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"), RealErrors():
        step(torch.ones(3))


def test_which_it_is_not_without(step):
    """If this fails, torch tells it by itself, and the context may go."""
    with pytest.raises(Unsupported, match="generator"):
        step(torch.ones(3))


def test_other_errors_are_left_alone():
    with pytest.raises(ValueError, match="itself"), RealErrors():
        raise ValueError("itself")
    with pytest.raises(Unsupported, match="really"), RealErrors():
        raise Unsupported("really")
