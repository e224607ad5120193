"""What a run makes of its public inputs, once: an order, features, a pre-trained body.

Guarantee: of the data only the inputs and their number are read here, so none of it costs anything,
and all of it is the same whatever the labels are.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from sfumato.core import validation
from sfumato.core.randomness import Coins
from sfumato.data import Dataset
from sfumato.learning.ensembles.batches import derived_seed
from sfumato.learning.label_dp.contrastive import image_body, pretrain_body
from sfumato.learning.label_dp.features import Projection
from sfumato.learning.label_dp.fitting import logits_of
from sfumato.learning.label_dp.networks import make_network
from sfumato.learning.label_dp.pretrained import Pretrained, pretraining_facts
from sfumato.learning.label_dp.public_rows import PublicRows
from sfumato.learning.label_dp.recipe import LabelRecipe
from sfumato.learning.label_dp.stepping import Told
from sfumato.learning.runs.folder import RunFolder

__all__ = ["PublicInputs"]

_PRETRAINING = 1 << 20  # a stream of coins of its own; stages are numbered from 0


@final
class PublicInputs(PublicRows):
    """Inputs in an order of their own, and what is made of them.

    Args:
        recipe: how.
        data: whose labels are not read.
        folder: of the run; what is there is not made again.
        device: where tensors go.
        coins: for the order of equal inputs.
        pace: half precision, compilation, clock.
        told: makes who is told how far something is.
        lent: the file of a body that was pre-trained elsewhere; None for none.
    """

    def __init__(
        self,
        recipe: LabelRecipe,
        data: Dataset,
        folder: RunFolder,
        device: str,
        coins: Coins,
        pace: Mapping[str, Any],
        told: Callable[[str], Told],
        lent: Path | None = None,
    ) -> None:
        super().__init__(recipe, data, folder, device, coins, told)
        self.recipe, self.pace = recipe, pace
        self._file, self._path = folder.curator / "pretrained.safetensors", lent
        self._lent: Pretrained | None = None

    def check(self) -> None:
        """Says why not, before anything is read or written.

        Raises:
            ValueError: for a network, features or a lent body that cannot be.
        """
        super().check()
        recipe = self.recipe
        with torch.random.fork_rng():
            made = self._fresh()
        if recipe.pretraining != "none":
            body, _ = image_body(made, recipe.network)
            if self._path is not None and not self._file.exists():
                self._lent = Pretrained.read(self._path)
                self._lent.check(pretraining_facts(recipe, self.data), body)
        elif self._path is not None:
            wanted = "left out for a recipe without pretraining"
            validation.fail("pretrained", wanted, str(self._path))

    @cached_property
    def probes(self) -> Tensor:
        """(n, d) what least squares take, the most important numbers first.

        What networks take; of a pre-trained body what it makes of them, as principal components.
        """
        if self.pretrained is None:
            return self.rows.flatten(1)
        with torch.random.fork_rng():
            body, size = image_body(self.network(), self.recipe.network)
        found = logits_of(body.to(self.device), self.rows, self.pace["half"])
        projection = Projection(size, min(size, len(found))).to(self.device)
        projection.fit(found, self.recipe.seed)
        return projection(found)

    # --- networks -------------------------------------------------------------------------------

    def network(self) -> nn.Module:
        """A network to be trained: from the pre-trained body on, if there is one.

        Its last layer then begins at zero, so that the body does not move before there is a reason.
        """
        made = self._fresh()
        if self.pretrained is not None:
            body, _ = image_body(made, self.recipe.network)
            body.load_state_dict(self.pretrained.weights)
            assert isinstance(made, nn.Sequential)
            for weight in made[-1].parameters():
                nn.init.zeros_(weight)
        return made

    def _fresh(self) -> nn.Module:
        recipe = self.recipe
        return make_network(recipe.network, self.size, len(self.data.classes), **recipe.options)

    @cached_property
    def pretrained(self) -> Pretrained | None:
        """The body that all networks start from: on disk, lent, or made now; None for none."""
        if self.recipe.pretraining == "none":
            return None
        if self._file.exists():
            return Pretrained.read(self._file)
        made = self._lent or self._made()
        try:
            made.check_finite()
            made.write(self._file)
        finally:
            shutil.rmtree(self.folder.curator / "pretraining", ignore_errors=True)
        return made

    def _made(self) -> Pretrained:
        recipe = self.recipe
        weights = pretrain_body(
            lambda: image_body(self._fresh(), recipe.network),
            self.rows,
            epochs=recipe.pretraining_epochs,
            batch=recipe.batch,
            mirrored=recipe.augment == "crop-flip",
            seed=derived_seed(recipe.seed, _PRETRAINING),
            folder=self.folder.curator / "pretraining",
            told=self.told("pre-training"),
            **self.pace,
        )
        return Pretrained(weights, pretraining_facts(recipe, self.data), recipe.seed)
