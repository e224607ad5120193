"""A step-level audit of the whole pipeline: thousands of decoded sums, with an update and not."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.audit import audit_step
from sfumato.core.randomness import SeededCoins
from sfumato.federated.integer_noise import DistributedGaussian, DistributedSkellam

Z = 0.4  # mu = 2.5, where counting is sharpest


@pytest.mark.parametrize("kind", [DistributedGaussian, DistributedSkellam])
@pytest.mark.parametrize(
    ("factor", "survivors", "games", "refuted"),
    [(1.0, 2, 4000, False), (1.0, 3, 1500, False), (0.8, 2, 4000, True), (1.0, 1, 1500, True)],
    ids=["as promised", "one more survivor", "a fifth too small", "one survivor too few"],
)
def test_the_audit_of_decoded_sums(kind, factor, survivors, games, refuted):
    """Clip, rotate, round, noise, modulo, sum, decode: as an attacker sees it who knows the rest.

    The canary sends far more than the clip norm; the others send an update of their own. What is
    claimed is the multiplier of the event: 1 / sqrt(2 rho) of the Gaussian shares.
    """
    noise = kind.with_bits(
        clip=1.5, dimension=3, clients=4, n_min=2, bits=16, noise_multiplier=Z, wrap=1e-9
    )
    rho = noise.encoding.squared_norm * (noise.granularity / (Z * noise.clip)) ** 2 / 2
    used = replace(noise, noise_multiplier=factor * Z)
    coins = SeededCoins(11)
    canary, others = np.array([3000.0, -4000.0, 12000.0]), np.array([0.3, 0.2, -0.5])
    known = (survivors - 1) * others

    def step(included):
        shown = []
        for game, there in enumerate(included):
            sent = used.message(canary if there else np.zeros(3), seed=game % 64, coins=coins)
            for _ in range(survivors - 1):
                sent = sent + used.message(others, seed=game % 64, coins=coins)
            shown.append(used.encoding.decode(sent, seed=game % 64) - known)
        return np.array(shown)

    found = audit_step(
        step, multiplier=1 / math.sqrt(2 * rho), games=games, neighbours="zero-out",
        coins=SeededCoins(12),
    )  # fmt: skip
    assert (found.verdict.value == "refuted") == refuted
    if not refuted and survivors == 2:
        assert found.claim is not None
        assert found.epsilon > 0.75 * found.claim.epsilon
