from types import SimpleNamespace

import numpy as np
import pytest

from sfumato.attacks.gradients.tensor.network import TwoLayerNetwork, unit_inputs
from sfumato.attacks.gradients.tensor.reconstructing import reconstruct_by_tensor
from sfumato.attacks.gradients.tensor.scoring import match_inputs


def drawn(activation, dimension, width, batch, seed, labels=None):
    random = np.random.default_rng(seed)
    network = TwoLayerNetwork.draw(dimension, width, activation, generator=random)
    inputs = unit_inputs(batch, dimension, generator=random)
    given = random.choice([-1.0, 1.0], batch) if labels is None else np.asarray(labels, float)
    return SimpleNamespace(
        activation=activation, network=network, inputs=inputs, labels=given, random=random
    )


def attacked(case, gradient=None, hidden=None, **options):
    seen = case.network.gradient(case.inputs, case.labels) if gradient is None else gradient
    weights = case.network.hidden if hidden is None else hidden
    found = reconstruct_by_tensor(
        seen, weights, case.activation, len(case.inputs),
        generator=np.random.default_rng(0), **options,
    )  # fmt: skip
    return SimpleNamespace(found=found, match=match_inputs(found, case.inputs))


@pytest.fixture
def draw():
    """A network and a batch of unit inputs; labels are signs unless given."""
    return drawn


@pytest.fixture
def attack():
    """The attack on such a case, and its match with the truth."""
    return attacked


@pytest.fixture
def mean_error(draw, attack):
    """Over so many seeds, of the attack on what ``see`` makes of each case."""

    def measure(activation, dimension, width, batch, seeds, see=None, given=None, **options):
        errors = []
        for seed in range(seeds):
            case = draw(activation, dimension, width, batch, seed, given)
            gradient, hidden = (None, None) if see is None else see(case)
            errors.append(attack(case, gradient, hidden, **options).match.error)
        return float(np.mean(errors))

    return measure
