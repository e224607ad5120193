"""Every model goes through the rehearsal and takes private steps."""

import pytest
import torch
from torch.nn import functional as F

from sfumato.core.randomness import SeededCoins
from sfumato.learning.dp_sgd import DPSGD, CoinNoise, Flat, PoissonLots, TrainingPlan
from sfumato.learning.models import make_model, model_names

OPTIONS = {
    "mlp": {"hidden": 8},
    "cnn": {"hidden": 8},
    "feature-cnn": {"widths": (4, 4)},
    "abadi-cnn": {"width": 4, "hidden": (8, 8)},
    "wrn": {"depth": 10, "width": 1},
    "transformer": {"dim": 8, "layers": 1, "heads": 2},
}
CASES = [(name, OPTIONS.get(name, {})) for name in model_names()]
CASES += [
    ("cnn", {"style": "six"}),
    ("transformer", {"dim": 8, "layers": 1, "heads": 2, "pool": "token"}),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_two_private_steps(name, options):
    model = make_model(name, (1, 8, 8), 3, **options)
    x, y = torch.rand(12, 1, 8, 8), torch.randint(0, 3, (12,))
    plan = TrainingPlan(PoissonLots(4, 12), Flat(1.0), 1.0, 2, 1e-5)
    coins = SeededCoins(1)
    trainer = DPSGD(
        model, torch.optim.SGD(model.parameters(), lr=0.1), (x, y), plan=plan,
        noise=CoinNoise(coins), coins=coins, progress=False,
    )  # fmt: skip
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer.fit(lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))
    assert trainer.steps_taken == 2
    for parameter, value in model.named_parameters():
        assert not torch.equal(value, before[parameter]), parameter
        assert value.isfinite().all()
