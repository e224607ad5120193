"""Dropout under a public seed: Opacus 1.6 does what the specimen does, in sums and in a run."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from sfumato.audit.claims import claim, specimens
from sfumato.audit.intervals import epsilon_from_counts
from sfumato.core.gaussian_profile import gaussian_epsilon
from sfumato.core.randomness import SYSTEM

pytestmark = [
    pytest.mark.filterwarnings("ignore:Full backward hook"),
    pytest.mark.filterwarnings("ignore:Secure RNG turned off"),
    pytest.mark.filterwarnings("ignore:Optimal order is"),
]
NAME = "masks-from-a-public-seed"
SEED = 0

# --- Opacus, with as little around it as possible -------------------------------------------------


@pytest.fixture(scope="module")
def opacus():
    module = pytest.importorskip("opacus", reason="pip install 'sfumato[peers]'")
    if not module.__version__.startswith("1.6."):
        pytest.skip(f"this claim is about Opacus 1.6, here is {module.__version__}")
    return module


@pytest.fixture(autouse=True)
def own_generator():
    """These tests seed torch as scripts do; what comes after them is not to notice."""
    with torch.random.fork_rng(devices=[]):
        yield


def table(rows):
    coins = torch.Generator().manual_seed(1)
    x = torch.randn(rows, 20, generator=coins)
    return x, torch.randint(0, 3, (rows,), generator=coins)


def network(rate):
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Dropout(rate), nn.Linear(64, 3))


def clean_sum(opacus, x, y, rate, noise_generator=None, noise=0.0):
    """What Opacus' optimizer gives to the next one, from a script that sets its seed."""
    model = opacus.GradSampleModule(network(rate), loss_reduction="sum")
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), noise_multiplier=noise, max_grad_norm=1.0,
        expected_batch_size=1, loss_reduction="sum", generator=noise_generator,
    )  # fmt: skip
    F.cross_entropy(model(x), y, reduction="sum").backward()
    optimizer.pre_step()
    return torch.cat([p.grad.double().flatten() for p in model.parameters()])


def apart(opacus, rows, rate):
    """In clips, for neighbours by the first row."""
    x, y = table(rows)
    return float((clean_sum(opacus, x, y, rate) - clean_sum(opacus, x[1:], y[1:], rate)).norm())


@pytest.mark.parametrize(("rows", "clips"), [(50, 7.3), (500, 22.25), (2_000, 43.7)])
def test_sums_of_neighbours_in_opacus(opacus, rows, clips):
    assert apart(opacus, rows, 0.0) == pytest.approx(1.0, abs=1e-3)
    assert apart(opacus, rows, 0.5) == pytest.approx(clips, rel=0.02)


def secret_generator():
    """For noise, as ``secure_mode`` or ``noise_generator=`` bring one."""
    return torch.Generator().manual_seed(int(SYSTEM.words(1)[0] >> 1))


def test_a_generator_for_the_noise_is_none_for_the_masks(opacus):
    """Noise differs from run to run; without it the sums are the same to the last bit."""
    x, y = table(40)
    noisy = [clean_sum(opacus, x, y, 0.5, secret_generator(), noise=1.0) for _ in range(2)]
    clean = [clean_sum(opacus, x, y, 0.5, secret_generator()) for _ in range(2)]
    assert (noisy[0] - noisy[1]).norm() > 1
    assert torch.equal(*clean)


def test_the_specimens_sum_is_that_of_opacus(opacus):
    """One weight for each of three inputs behind Dropout, and the masks that torch draws."""
    rows, x = 60, table(60)[0][:, :3]
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1, bias=False))
    peer = opacus.GradSampleModule(model, loss_reduction="sum")
    optimizer = opacus.optimizers.DPOptimizer(
        torch.optim.SGD(peer.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=1.0,
        expected_batch_size=1, loss_reduction="sum",
    )  # fmt: skip
    torch.manual_seed(SEED)
    kept = nn.Dropout(0.5)(torch.ones(rows, 3)) > 0
    torch.manual_seed(SEED)
    peer(x).sum().backward()
    optimizer.pre_step()
    ours = specimens.masked_sum(x.double().numpy(), kept.numpy(), 1.0)
    theirs = model[1].weight.grad.double().numpy()[0]
    assert theirs == pytest.approx(ours, abs=1e-4)


def released(opacus, x, y, rate, noise, generator):
    """The weights after one step of a private run, all rows in its lot, and the claimed epsilon."""
    model = network(rate)
    before = nn.utils.parameters_to_vector(model.parameters()).detach().double()
    engine = opacus.PrivacyEngine(accountant="rdp")
    private, optimizer, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
        data_loader=DataLoader(TensorDataset(x, y), batch_size=len(x)),
        noise_multiplier=noise, max_grad_norm=1.0, noise_generator=generator,
    )  # fmt: skip
    for inputs, labels in loader:
        F.cross_entropy(private(inputs), labels).backward()
        optimizer.step()
    after = nn.utils.parameters_to_vector(model.parameters()).detach().double()
    return (before - after) * len(x), engine.get_epsilon(1e-5)


def at_least(opacus, rate, rows=2_000, noise=8.0, runs=40):
    """The attack on released weights: nothing is known but the script, its seed and the table.

    Of both tables the attacker computes the sum without noise, and asks which one a released model
    lies nearer to. Its result is the claimed epsilon, and what the runs show with 99 %.
    """
    x, y = table(rows)
    tables = ((x, y), (x[1:], y[1:]))
    clean = [released(opacus, *each, rate, 0.0, None)[0] for each in tables]
    towards, middle = clean[0] - clean[1], (clean[0] + clean[1]) / 2
    counts = []
    for each in tables:
        found = [released(opacus, *each, rate, noise, secret_generator()) for _ in range(runs)]
        counts.append(sum(float((sums - middle) @ towards) > 0 for sums, _ in found))
        claimed = found[0][1]
    hits, alarms = ((count, runs) for count in counts)
    return claimed, epsilon_from_counts(hits, alarms, 1e-5, 0.99)


def test_released_weights_tell_more_than_opacus_claims(opacus):
    claimed, shown = at_least(opacus, 0.5)
    assert claimed == pytest.approx(0.478, abs=0.001)
    assert shown > 2 * claimed


def test_the_same_attack_finds_nothing_without_masks(opacus):
    claimed, shown = at_least(opacus, 0.0)
    assert shown < claimed


# --- what sets the seed without being asked -------------------------------------------------------


class Listening(nn.Module):
    """Takes one number, keeps what its Dropout draws."""

    def __init__(self):
        super().__init__()
        self.weight, self.drop, self.masks = nn.Linear(4, 1), nn.Dropout(0.5), []

    def forward(self, x, labels=None):
        self.masks.append(self.drop(torch.ones_like(x)))
        loss = F.mse_loss(self.weight(x * self.masks[-1])[:, 0], labels)
        return {"loss": loss}


def test_the_hugging_face_trainer_seeds_what_masks_are_drawn_from(tmp_path):
    transformers = pytest.importorskip("transformers")
    rows = [{"x": torch.ones(4), "labels": torch.tensor(1.0)} for _ in range(4)]
    seen = []
    for seed in (1, 2):
        torch.manual_seed(seed)  # what a script did before makes no difference
        how = transformers.TrainingArguments(
            str(tmp_path), max_steps=1, report_to=[], disable_tqdm=True, use_cpu=True,
            save_strategy="no", logging_strategy="no", dataloader_pin_memory=False,
        )  # fmt: skip
        model = Listening()
        transformers.Trainer(model, how, train_dataset=rows).train()
        seen.append(model.masks[0])
    assert how.seed == 42
    assert torch.equal(*seen)


# --- figures --------------------------------------------------------------------------------------


def test_the_claims_setting_by_hand(results):
    """The sums are 66 clips apart for 2,000 rows: of the two tables with the masks of seed 0."""
    finding, kept = results[NAME].found, np.random.default_rng(0).random(2_001) < 0.5
    signs = np.resize([1, -1], 2_001)
    moved = abs(int(kept @ signs) - int(kept[:2_000] @ signs[1:]))
    assert finding.facts["apart_in_clips"] == moved == 66
    assert finding.epsilon == pytest.approx(gaussian_epsilon(8 / moved, 1e-5), rel=1e-3)


@pytest.mark.parametrize("rows", [50, 500, 2_000, 20_000])
def test_known_masks_move_a_sum_by_the_root_of_its_rows(rows):
    signs = np.resize([1.0, -1.0], rows + 1)[:, None]
    moved = []
    for seed in range(200):
        first, second = (
            specimens.masked_sum(lot, specimens.masks_in_order(len(lot), 1, seed), 1.0)
            for lot in (signs, signs[1:])
        )
        moved.append(float((first - second)[0]))
    assert np.sqrt(np.mean(np.square(moved))) == pytest.approx(math.sqrt(rows), rel=0.2)


def test_secret_masks_make_a_binomial_sum():
    """The law that the correction is audited by, against masks that are drawn."""
    signs, rng = np.resize([1.0, -1.0], 21), np.random.default_rng(5)
    sums = (rng.random((40_000, 21)) < 0.5) @ signs
    counted = np.bincount((sums + 10).astype(int), minlength=22) / 40_000
    assert counted == pytest.approx(binom.pmf(np.arange(22), 21, 0.5), abs=0.01)


def test_the_corrected_claim_is_at_the_same_noise():
    known = claim(NAME)
    assert known.holds == known.claimed
    assert known.claimed.epsilon == pytest.approx(gaussian_epsilon(8.0, 1e-5))
