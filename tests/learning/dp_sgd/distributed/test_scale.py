"""The formulas of benchmarks/scale.py: laws, what two ranks count, and the tables of the page."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.accounting import account
from sfumato.core.events import dp_sgd
from sfumato.learning.dp_sgd.distributed import noisy_sum

from .conftest import load_benchmark

ROOT = Path(__file__).parents[4]


scale = load_benchmark("scale")
counts = st.integers(1, 2000)


@given(counts, st.sampled_from(scale.SHAPES))
def test_shards_of_all_ranks_are_the_whole(ranks, shape):
    one = scale.memory(shape, ranks, 4, 1024, sharded=True)
    alone = scale.memory(shape, 1, 4, 1024, sharded=False)
    assert one.optimizer * ranks == pytest.approx(alone.optimizer)
    assert one.clipped_sum * ranks == pytest.approx(alone.clipped_sum)
    assert one.factors == alone.factors
    assert one.total > one.factors


@given(counts)
def test_one_rank_sends_nothing_and_many_send_a_ring(ranks):
    assert scale.sent(10**9, 1) == scale.gathered(10**9, 1) == scale.sent_sharded(10**9, 1) == 0
    assert scale.sent(10**9, ranks) < 12e9
    assert scale.sent(10**9, ranks) == pytest.approx(1.5 * scale.sent_sharded(10**9, ranks))


def test_a_lot_is_run_whole_by_any_number_of_ranks():
    for ranks in (1, 3, 8, 1000):
        found = scale.step(scale.SHAPES[0], ranks, 65_536, 4, 1024, sharded=False)
        assert found.parts * 4 * ranks >= 65_536
        assert found.compute / found.plain_compute == pytest.approx(scale.RATIO)


def test_constants_are_the_packages_own():
    assert scale.BUCKET == noisy_sum.BUCKET
    model = load_benchmark("gpu_tasks").gpt(False, 256)
    counted = sum(p.numel() for p in model.parameters())
    assert scale.MEASURED.parameters == pytest.approx(counted, rel=0.01)  # biases and places apart


def test_the_time_of_what_was_measured_is_what_was_measured():
    assert scale.seconds(scale.MEASURED, 32 * 256) == pytest.approx(scale.PLAIN_SECONDS)


def test_noise_meets_its_epsilon():
    found = scale.noise(1_000_000, 4_096, 8.0, 1e-8, 1.0)
    event = dp_sgd(
        noise_multiplier=found.multiplier, sample_rate=4_096 / 1_000_000, steps=found.steps
    )
    assert 7.9 < account(event, 1e-8).epsilon <= 8.0
    assert found.over_clip(4) == pytest.approx(2 * found.multiplier / 4_096)


@pytest.mark.parametrize("name", ["memory", "step", pytest.param("noise", marks=pytest.mark.slow)])
def test_the_page_shows_what_is_computed(name):
    page = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    assert getattr(scale, f"{name}_table")() in page


def test_norms_of_book_keeping_are_smaller_than_gradients_written_out():
    for shape in scale.SHAPES:
        written = 4 * shape.parameters * 4
        held = scale.factors(shape, 4, 1024) + scale.norm_workspace(shape, 4, 1024)
        assert held < written
    assert torch.iinfo(torch.int32).max > scale.BUCKET
