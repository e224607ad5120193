import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.federated.partitions import by_dirichlet, evenly, partition, partition_names

LABELS = np.random.default_rng(0).integers(0, 10, 2000)


@pytest.mark.parametrize("how", partition_names())
@given(participants=st.integers(1, 60), seed=st.integers(0, 99))
def test_every_row_has_one_owner(how, participants, seed):
    parts = partition(LABELS, participants, how, seed=seed)
    assert len(parts) == participants
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(LABELS)))


def test_shards_see_few_classes_and_even_parts_all():
    classes = [len(set(LABELS[part])) for part in partition(LABELS, 100, "shards")]
    assert np.mean(classes) < 3
    assert np.mean([len(set(LABELS[part])) for part in evenly(2000, 20)]) > 9.5


def test_dirichlet_follows_its_concentration():
    spread = [
        np.std([len(part) for part in by_dirichlet(LABELS, 20, concentration=a)]) for a in (0.1, 10)
    ]
    assert spread[0] > 3 * spread[1]


def test_the_same_seed_cuts_the_same_way():
    first, second = (partition(LABELS, 7, "dirichlet", seed=4) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))


def test_refusals():
    with pytest.raises(ValueError, match="partition must be one of even, shards, dirichlet"):
        partition(LABELS, 5, "random")
    with pytest.raises(ValueError, match="at most the number of rows"):
        partition(LABELS[:3], 5, "even")
    with pytest.raises(ValueError, match=r"at most 5 for 2 shards each of 10 rows.* got 6"):
        partition(LABELS[:10], 6, "shards")
