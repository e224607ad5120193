"""Models, losses and data that cannot be trained privately: the remedy is named, nothing spent."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from sfumato.learning.dp_sgd import TrainingError

pytestmark = pytest.mark.usefixtures("singles")


def test_the_right_use_is_charged(wrong):
    model = nn.Linear(5, 3)
    trainer = wrong.start(model)
    wrong.loop(trainer, wrong.classify(model))
    assert wrong.charges == ["plan", "reserve", "commit"]
    assert trainer.record.facts["ledger"]["entry"] == 3


# --- models that mix examples -------------------------------------------------------------------


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.SyncBatchNorm, nn.LazyBatchNorm1d])
def test_batch_norm(wrong, kind):
    norm = kind() if kind is nn.LazyBatchNorm1d else kind(6)
    model = nn.Sequential(nn.Linear(5, 6), norm, nn.Linear(6, 3))
    if kind is nn.LazyBatchNorm1d:
        model(torch.zeros(2, 5))
    wrong.refused(
        model, wrong.classify(model), r"mixes the examples.*(LayerNorm\(6\)|GroupNorm\(3, 6\))"
    )


def test_batch_norm_put_in_training_mode_after_the_trainer_was_made(wrong):
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    trainer = wrong.start(model)
    model.train()
    with pytest.raises(TrainingError, match="GroupNorm"):
        wrong.loop(trainer, wrong.classify(model))
    assert wrong.charges == []


def test_batch_norm_with_statistics_of_public_data_is_fine(wrong):
    model = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    wrong.loop(wrong.start(model), wrong.classify(model))


class Forward(nn.Module):
    def __init__(self, expression, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.expression = expression

    def forward(self, x):
        return self.expression(self, x)


def across(m, x):
    scores = torch.softmax(x @ x.T, -1)
    return m.a(scores @ x)


MIXERS = {
    "centred": lambda m, x: m.a(x - x.mean(0)),
    "scaled": lambda m, x: m.a(x / x.norm()),
    "sorted": lambda m, x: m.a(x.sort(0).values),
    "cumulated": lambda m, x: m.a(x.cumsum(0)),
    "shifted": lambda m, x: m.a(x + x.roll(1, 0)),
    "attention": across,
    "a little": lambda m, x: m.a(x + 1e-4 * x.mean(0)),
    "backwards only": lambda m, x: m.a(x) + (m.a(x).mean(0) - m.a(x).mean(0).detach()),
}


@pytest.mark.parametrize("how", MIXERS)
def test_examples_mixed_in_the_model(wrong, how):
    model = Forward(MIXERS[how], a=nn.Linear(5, 3))
    wrong.refused(model, wrong.classify(model), "depends on the other examples|mixes|two dimen")


def test_attention_that_takes_the_batch_for_time(wrong):
    attention = nn.MultiheadAttention(6, 2)  # not batch_first
    model = Forward(lambda m, x: m.b(m.a(x, x, x)[0])[:, 0], a=attention, b=nn.Linear(6, 3))
    rows = (torch.randn(24, 4, 6), wrong.data()[1])
    wrong.refused(model, wrong.classify(model), "depends on the other examples", rows)


def test_a_contrastive_loss(wrong):
    model = nn.Linear(5, 3)

    def contrast(x, _):
        z = F.normalize(model(x), dim=1)
        return F.cross_entropy(z @ z.T, torch.arange(len(x)), reduction="none")

    wrong.refused(model, contrast, "contrastive or an averaged loss.*that example alone")


def test_a_memory_of_earlier_batches(wrong):
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.last = nn.Linear(5, 3), torch.zeros(3)

        def forward(self, x):
            out = self.a(x) + self.last
            self.last = out.detach().mean(0)
            return out

    model = Remembers()
    wrong.refused(model, wrong.classify(model), "'last' changed|depends on the other examples")


# --- losses -------------------------------------------------------------------------------------


def test_a_mean_loss(wrong):
    model = nn.Linear(5, 3)
    wrong.refused(model, lambda x, y: F.cross_entropy(model(x), y), 'reduction="none"')


@pytest.mark.parametrize(
    "shape",
    [
        lambda v: v.unsqueeze(1),
        lambda v: v.expand(2, -1),
        lambda v: v[:-1],
        lambda v: torch.cat([v, v]),
        lambda v: v.mean().expand(1),
    ],
)
def test_losses_of_a_wrong_shape(wrong, shape):
    model = nn.Linear(5, 3)
    own = wrong.classify(model)
    wrong.refused(model, lambda x, y: shape(own(x, y)), "losses must have the shape")


def test_a_mean_in_the_shape_of_losses(wrong):
    model = nn.Linear(5, 3)
    own = wrong.classify(model)
    message = "depends on the other examples"
    wrong.refused(model, lambda x, y: own(x, y).mean().expand(len(x)), message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda v: v.detach(), "no gradient.*without no_grad"),
        (lambda v: v.tolist(), "must be a tensor"),
        (lambda v: v.detach().long(), "must be a tensor of numbers"),
        (lambda v: v / 0, "not finite.*example="),
        (lambda v: (0 * v).sqrt(), "gradients of made-up rows are not finite.*example="),
    ],
)
def test_losses_that_are_none(wrong, change, message):
    model = nn.Linear(5, 3)
    own = wrong.classify(model)
    wrong.refused(model, lambda x, y: change(own(x, y)), message)


@pytest.mark.parametrize("strength", [1.0, 1e-8])
def test_a_penalty_on_the_weights(wrong, strength):
    model = nn.Linear(5, 3)
    own = wrong.classify(model)

    def penalised(x, y):
        return own(x, y) + strength * model.weight.square().sum()

    wrong.refused(model, penalised, "'weight'.*penalty on the weights.*weight_decay")


@pytest.mark.parametrize("strength", [1.0, 1e-8])
def test_a_layer_called_outside_the_models_forward(wrong, strength):
    """However little it adds: its gradient would be left out, and it would see noise alone."""
    model = Forward(lambda m, x: m.a(x), a=nn.Linear(5, 3), head=nn.Linear(3, 3))

    def outside(x, y):
        h = model(x)
        return F.cross_entropy(h + strength * model.head(h), y, reduction="none")

    wrong.refused(model, outside, "'head.*could not be confirmed.*into its forward")


def test_a_checkpoint_that_hides_its_functions(wrong):
    def forward(m, x, reentrant=True):
        return checkpoint(m.a, x.requires_grad_(), use_reentrant=reentrant) + m.b(x)

    model = Forward(forward, a=nn.Linear(5, 3), b=nn.Linear(5, 3))
    wrong.refused(model, wrong.classify(model), "use_reentrant=False")
    model = Forward(lambda m, x: forward(m, x, False), a=nn.Linear(5, 3), b=nn.Linear(5, 3))
    wrong.loop(wrong.start(model), wrong.classify(model))


def test_a_model_run_around_its_call(wrong):
    model = nn.Linear(5, 3)
    wrong.refused(
        model,
        lambda x, y: F.cross_entropy(model.forward(x), y, reduction="none"),
        "Call the model itself",
    )  # fmt: skip


def test_an_unsupported_use_of_a_parameter(wrong):
    model = Forward(lambda m, x: m.a(x) + m.b[: len(x)], a=nn.Linear(5, 3))
    model.b = nn.Parameter(torch.randn(500, 3))
    wrong.refused(model, wrong.classify(model), "cannot be trained privately.*freeze")


# --- batches ------------------------------------------------------------------------------------


def test_data_that_is_not_the_trainers(wrong):
    model = nn.Linear(5, 3)
    x, y = wrong.data()
    own = wrong.classify(model)
    wrong.refused(model, lambda *_: own(x, y), "use the batch as it was handed out")


def test_part_of_a_batch(wrong):
    model = nn.Linear(5, 3)
    own = wrong.classify(model)
    wrong.refused(model, lambda x, y: own(x[:2], y[:2]), "as it was handed out")


def test_a_loader_as_data(wrong):
    loader = DataLoader(TensorDataset(*wrong.data()), batch_size=4)
    with pytest.raises(ValueError, match=r"DataLoader: pass its \.dataset"):
        wrong.start(nn.Linear(5, 3), loader)


def test_labels_of_another_length(wrong):
    x, y = wrong.data()
    with pytest.raises(ValueError, match="as many rows"):
        wrong.start(nn.Linear(5, 3), (x, y[:-1]))


@pytest.mark.parametrize("form", ["tuple", "dict", "thin", "whole numbers"])
def test_mixup(wrong, form):
    x, y = wrong.data()
    if form == "thin":
        x = x[:, :1]
    if form == "whole numbers":
        x = (x > 0).to(torch.uint8)
    rows = {"x": x, "y": y} if form == "dict" else (x, y)

    def mixup(batch):
        if isinstance(batch, dict):
            return {**batch, "x": mixup(batch["x"])}
        return 2 * batch + batch[torch.randperm(len(batch))]

    trainer = wrong.start(nn.Linear(x.shape[1], 3), rows, augment=mixup)
    with pytest.raises(TrainingError, match=r"mixes the rows.*each row by itself"):
        next(iter(trainer))
    assert wrong.charges == []


def test_an_augmentation_that_changes_the_number_of_rows(wrong):
    trainer = wrong.start(nn.Linear(5, 3), augment=lambda x: torch.cat([x, x]))
    with pytest.raises(TrainingError, match="augment must keep the rows"):
        next(iter(trainer))
    with pytest.raises(ValueError, match="there is no augment"):
        wrong.start(nn.Linear(5, 3), augmentations=4)


def test_an_augmentation_by_other_generators_and_to_other_shapes_is_fine(wrong):
    import random

    import numpy as np

    def crop(x):
        at = random.randrange(2)
        return x[:, at : at + 4] + float(np.random.rand())  # noqa: NPY002

    model = nn.Linear(4, 3)
    wrong.loop(wrong.start(model, augment=crop, augmentations=2), wrong.classify(model))
