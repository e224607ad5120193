"""What a watch sees of a model between two steps."""

from collections import deque

import pytest
import torch
from torch import nn

from sfumato.learning.dp_sgd.errors import TrainingError
from sfumato.learning.dp_sgd.watching import Watch, modules_of


def model():
    shared = nn.Linear(3, 3)
    made = nn.Sequential(shared, nn.ModuleDict({"a": nn.ModuleList([shared, nn.Linear(3, 2)])}))
    made[1].register_buffer("mean", torch.zeros(2))
    made[1].register_buffer("none", None)
    made[1]["a"].register_module("left_out", None)
    made[1]["a"][1].bias.requires_grad_(False)
    return made


def watched(made):
    return Watch(made, {n: p for n, p in made.named_parameters() if p.requires_grad})


def testmodules_of_are_torchs_in_torchs_order():
    made = model()
    assert list(map(id, modules_of(made))) == list(map(id, made.modules()))


@pytest.mark.parametrize(
    "hidden",
    [
        lambda t: t,
        lambda t: [1, "a", t],
        lambda t: {"n": 1, "deep": [None, {"t": t}]},
        lambda t: deque([2.0, t]),
        lambda t: (True, (t,)),
    ],
)
def test_tensors_in_attributes_are_seen_beside_plain_values(hidden):
    made, tensor = model(), torch.zeros(2)
    made[1].settings = [1, 2, "three", None]
    made[1].aside = hidden(tensor)
    watch = watched(made)
    watch.check()
    made[1].settings.append(4)  # settings may change; they are no tensors
    watch.check()
    tensor.add_(1)
    with pytest.raises(TrainingError, match=r"'1\.aside.*' changed during the run"):
        watch.check()


def test_a_tensor_that_joins_settings_is_seen():
    made = model()
    made[1].settings = [1, 2]
    watch = watched(made)
    made[1].settings.append(torch.ones(1))
    with pytest.raises(TrainingError, match=r"'1\.settings\[2\]' changed"):
        watch.check()


def test_another_module_in_the_place_of_one_is_seen():
    made = model()
    watch = watched(made)
    other = nn.Linear(3, 2).requires_grad_(False)
    made[1]["a"][1] = other
    with pytest.raises(TrainingError, match=r"'1\.a\.1\.\w+' changed"):
        watch.check()


def test_names_are_told_as_users_know_them():
    made = model()
    watch = watched(made)
    made[1].mean.add_(1)
    with pytest.raises(TrainingError, match=r"buffer '1\.mean' changed"):
        watch.check()
    assert not made[1].mean.any()  # put back
    made = model()
    watch = watched(made)
    made[1]["a"][1].bias.requires_grad_(True)
    with pytest.raises(TrainingError, match=r"'1\.a\.1\.bias' became trainable"):
        watch.check()
