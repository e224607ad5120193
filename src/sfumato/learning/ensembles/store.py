"""The folder of an ensemble: what it is, finished models, and the last epoch of unfinished ones."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load, load_file, save
from torch import Tensor

from sfumato.learning.durable import write_whole
from sfumato.learning.ensembles.schedule import Schedule
from sfumato.learning.ensembles.stacking import Weights

__all__ = ["Store"]

_SHARE = 20  # the state is written when its writing took at most so small a part of the time


@final
class Store:
    """Reads and writes the files; does nothing if there is no folder.

    Large models' states take seconds to write. After the first it waits, so that writing takes a
    twentieth of the time at most; what was not written is computed again after a crash.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._next = 0.0

    def claim(
        self, schedule: Schedule, subsets: NDArray[np.bool_], seed: int, together: int
    ) -> None:
        """Writes down what is trained here, or checks that it is the same."""
        if self.folder is None:
            return
        digest = hashlib.blake2b(np.packbits(subsets).tobytes(), digest_size=16).hexdigest()
        asked = {
            "schedule": schedule.to_dict(), "models": len(subsets), "examples": subsets.shape[1],
            "subsets": digest, "seed": seed, "together": together,
        }  # fmt: skip
        self.claim_as(asked)

    def claim_as(self, asked: dict[str, Any]) -> None:
        """Writes down what is trained here, in words of the caller's, or checks that it is so."""
        if self.folder is None:
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / "ensemble.json"
        if not path.exists():
            if any(self.folder.glob("models-*")) or any(self.folder.glob("unfinished-*")):
                raise ValueError(
                    f"folder must be new, or say what it holds, but {self.folder} has models and "
                    "no ensemble.json: they may be of other rows. Give another folder"
                )
            write_whole(path, json.dumps(asked, indent=1).encode())
        elif json.loads(path.read_text()) != asked:
            raise ValueError(
                f"folder must be new, or hold the same ensemble, but {self.folder} holds another: "
                "give another folder"
            )

    def finished(self, number: int) -> Weights | None:
        """A finished group."""
        path = self._path(f"models-{number:03}.safetensors")
        return None if path is None or not path.exists() else load_file(path)

    def finish(self, number: int, weights: Weights) -> None:
        """Keeps a finished group, and drops its checkpoint."""
        path = self._path(f"models-{number:03}.safetensors")
        if path is not None:
            write_whole(path, save({k: v.detach().cpu() for k, v in weights.items()}))
            self._checkpoint(number).unlink(missing_ok=True)

    def keep(self, number: int, epochs: int, tensors: dict[str, Tensor]) -> None:
        """Keeps the state after so many epochs, if it is time to."""
        began = time.monotonic()
        if self.folder is not None and began >= self._next:
            kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            kept["epochs"] = torch.tensor(epochs)
            write_whole(self._checkpoint(number), save(kept))
            ended = time.monotonic()
            self._next = ended + (_SHARE - 1) * (ended - began)

    def begun(self, number: int, tensors: dict[str, Tensor]) -> int:
        """How many epochs are done; their state goes into ``tensors``."""
        if self.folder is None or not self._checkpoint(number).exists():
            return 0
        kept = load(self._checkpoint(number).read_bytes())
        for name, tensor in tensors.items():
            tensor.copy_(kept[name])
        return int(kept["epochs"])

    def _checkpoint(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"unfinished-{number:03}.safetensors"

    def _path(self, name: str) -> Path | None:
        return None if self.folder is None else self.folder / name
