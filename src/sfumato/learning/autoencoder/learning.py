"""Both ways of learning the coder, and the head on its codes: what a run does with rows."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from sfumato.core.randomness import Coins
from sfumato.learning.autoencoder.encoding import Encoder, Floats, random_encoder, tied_encoder
from sfumato.learning.autoencoder.network import AutoEncoder, made_of
from sfumato.learning.autoencoder.planning import Head, RunPlan
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.autoencoder.releases import LayerRelease, decoder_of
from sfumato.learning.dp_sgd import DPSGD
from sfumato.learning.dp_sgd.progress import Progress
from sfumato.learning.erm.run_models import LinearScores

__all__ = ["codes_of", "learn_by_descent", "learn_head", "learn_layers"]

_PIECE = 4096


def learn_layers(
    recipe: AutoEncoderRecipe, plan: RunPlan, rows: Floats, coins: Coins
) -> tuple[AutoEncoder, Floats]:
    """Layer after layer: ``rounds`` releases each, the next on the codes of the last encoder.

    Everything after a release is post-processing of it, next encoders included; each release sees
    all rows, and all of them are in the plan's event.

    Args:
        recipe: how.
        plan: with what noise.
        rows: (n, columns) in [0, 1].
        coins: where noise comes from.

    Returns:
        The network, and the last codes of the rows, which are private.
    """
    layers: list[tuple[Encoder, Floats]] = []
    for number in range(len(recipe.widths)):
        releases = plan.releases[number * recipe.rounds : (number + 1) * recipe.rounds]
        encoder, decoder = _learn_layer(recipe, releases, rows, number, coins)
        layers.append((encoder, decoder))
        rows = encoder.codes(rows)
    return made_of(layers), rows


def _learn_layer(
    recipe: AutoEncoderRecipe,
    releases: tuple[LayerRelease, ...],
    rows: Floats,
    number: int,
    coins: Coins,
) -> tuple[Encoder, Floats]:
    """The last encoder, and the decoder that was released for it."""
    root = math.sqrt(releases[0].columns)
    encoder = random_encoder(
        releases[0].columns, releases[0].width, recipe.random_gain / root, recipe.seed + number
    )
    found = releases[0].release(rows, encoder, coins)
    for release in releases[1:]:
        # Of what is uncertain nothing is left out here: as a direction to look along, it does.
        encoder = tied_encoder(decoder_of(found, release.strength), recipe.gain / root)
        found = release.release(rows, encoder, coins)
    return encoder, releases[-1].decoder(found)


class _Logits(nn.Module):
    """The network up to its last sigmoid, as a module that a trainer may call."""

    def __init__(self, network: AutoEncoder) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network.logits(inputs)


def _loss(network: nn.Module, inputs: Tensor) -> Tensor:
    """Cross-entropy of each row with its reconstruction, summed over its columns."""
    logits = network(inputs)
    return F.binary_cross_entropy_with_logits(logits, inputs, reduction="none").sum(dim=1)


def learn_by_descent(
    recipe: AutoEncoderRecipe,
    plan: RunPlan,
    rows: Tensor,
    coins: Coins,
    device: str = "cpu",
    progress: Progress | bool = False,
) -> AutoEncoder:
    """The whole network by DP-SGD on its reconstruction error, with Adam."""
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)  # first weights are public
        network = AutoEncoder(rows.shape[1], recipe.widths, cut=False).to(device)
    learner = _Logits(network)
    optimizer = torch.optim.Adam(learner.parameters(), lr=recipe.rate)
    trainer = DPSGD(
        learner, optimizer, rows.to(device), plan=plan.descent, coins=coins, progress=progress
    )
    trainer.fit(_loss)
    return network.eval()


@torch.no_grad()
def codes_of(network: AutoEncoder, rows: Tensor) -> Floats:
    """(n, widths[-1]) codes, a piece at a time."""
    device = next(network.parameters()).device
    found = [network.codes(piece.to(device)).cpu() for piece in rows.split(_PIECE)]
    return torch.cat(found).numpy().astype(np.float64)


@torch.no_grad()
def learn_head(head: Head, codes: Floats, labels: NDArray[np.int64], coins: Coins) -> LinearScores:
    """A private linear classifier of codes, as a module."""
    made = head.estimator(coins).fit(codes, labels)
    scores = LinearScores(made.scaling_, head.classes)
    corners = made._codes()  # of this package's own classifiers
    scores.weight.copy_(torch.from_numpy(made.weights_ @ corners.T))
    return scores
