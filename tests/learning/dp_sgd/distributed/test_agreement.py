"""What ranks compare of noise and of layouts; threads in the place of ranks."""

import pytest
import torch

from sfumato.learning.dp_sgd.distributed.agreement import (
    layout_facts,
    require_all_well,
    require_own_noise,
    telling,
)
from sfumato.learning.dp_sgd.errors import TrainingError

from .test_noisy_sum import with_ranks


class ByKind:
    """Numbers of its own in one precision, the same on every rank in the other."""

    name, private = "by kind", False

    def __init__(self, rank, own):
        self.rank, self.own = rank, own

    def normal(self, like, std):
        return torch.full_like(like, 1.0 + self.rank * (like.dtype == self.own))


def asked(own, *used):
    def act(ranks):
        parameters = [torch.zeros(2, dtype=dtype) for dtype in used]
        require_own_noise(ranks, ByKind(ranks.rank, own), parameters)

    with_ranks(2, act)


def test_noise_is_compared_where_it_will_be_drawn():
    """A source that has a generator for each device is asked for the sums' own, not another."""
    for used in (torch.float32, torch.bfloat16):
        asked(torch.float32, used)
        with pytest.raises(TrainingError, match="two ranks draw the same noise"):
            asked(torch.float64, used)
    with pytest.raises(TrainingError, match="two ranks draw the same noise"):
        asked(torch.float32, torch.float32, torch.float64)  # in every place


def test_layouts_tell_order_in_memory_and_kind_of_device():
    usual = torch.zeros(2, 3, 2, 2)
    others = usual.to(memory_format=torch.channels_last), usual.double(), usual.to("meta")
    facts = [repr(layout_facts({"w": p})) for p in (usual, *others)]
    assert len(set(facts)) == len(facts)
    assert facts[0] == repr(layout_facts({"w": usual + 1}))


def met(act):
    """What it raises."""
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def test_an_error_is_told_once_however_deep_it_was_met():
    told = []

    def nested(ranks):
        with telling(ranks):
            with telling(ranks):
                if ranks.rank:
                    raise ValueError("only here")
            require_all_well(ranks)

    def act(ranks):
        gather = ranks.gathered
        ranks.gathered = lambda value: told.append(ranks.rank) or gather(value)
        return met(lambda: nested(ranks))

    one, other = with_ranks(2, act)
    assert one == "TrainingError: rank 1 was refused before the run: ValueError: only here"
    assert other == "ValueError: only here"
    assert sorted(told) == [0, 1]


def test_of_an_error_on_private_data_others_learn_the_kind_alone():
    def work(ranks):
        with telling(ranks, "in its work"):
            if ranks.rank:
                raise ValueError("secret")
        require_all_well(ranks)

    one, other = with_ranks(2, lambda ranks: met(lambda: work(ranks)))
    assert one == "TrainingError: rank 1 met a ValueError in its work"
    assert other == "ValueError: secret"
