"""A finished run's auto-encoder, read back. Public, as its weights are."""

from __future__ import annotations

import numpy as np

from sfumato.core import validation
from sfumato.core.records import Record
from sfumato.learning.autoencoder.network import AutoEncoder
from sfumato.learning.autoencoder.recipe import AutoEncoderRecipe
from sfumato.learning.autoencoder.training import METHOD
from sfumato.learning.erm.rows import RowScaling
from sfumato.learning.erm.run_models import LinearScores
from sfumato.learning.runs.folder import RunFolder

__all__ = ["read_autoencoder"]


def read_autoencoder(folder: RunFolder) -> tuple[AutoEncoderRecipe, AutoEncoder]:
    """How it was learnt, and the network: from inputs in [0, 1], channels first.

    Raises:
        ValueError: if the folder holds no finished run, or one of another method.
    """
    record = Record.from_dict(folder.record())
    if record.method != METHOD:
        validation.fail("folder", f"that of a run of {METHOD}", str(folder.path))
    recipe = AutoEncoderRecipe.from_dict(record.parameters["recipe"])
    known = record.facts["data"]
    head = None
    if recipe.head != "none":
        scaling = RowScaling.declared((0.0, 1.0), recipe.widths[-1], norm=1.0)
        head = LinearScores(scaling, len(known["classes"]))
    cut = recipe.way == "functional"
    network = AutoEncoder(int(np.prod(known["shape"])), recipe.widths, cut=cut, head=head)
    network.load_state_dict(folder.model())
    return recipe, network.eval()
