"""The folder of one student: what it is, its last checkpoint, the finished network.

=========================  =========================================================================
``student.json``           settings, seed, shape and a digest of the data
``checkpoint.safetensors`` everything that the next step needs, while training goes on
``model.safetensors``      the finished network
=========================  =========================================================================

Nothing in it is ever unpickled.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, final

from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from sfumato.learning.dp_sgd.optimizer_state import flatten_state, restore_state
from sfumato.learning.durable import write_whole
from sfumato.learning.pate.students.data import PublicData

__all__ = ["Store"]


@final
class Store:
    """Reads and writes the files, each whole or not at all; nothing if there is no folder."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def claim(self, settings: dict[str, Any], data: PublicData, seed: int) -> None:
        """Writes down what is trained here, or checks that it is the same."""
        if self.folder is None:
            return
        asked = {
            "student": settings, "shape": list(data.shape), "seed": seed, "data": data.digest,
        }  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "student.json"
        if not path.exists():
            write_whole(path, json.dumps(asked, indent=1).encode(), public=True)
        elif json.loads(path.read_text()) != asked:
            raise ValueError(
                f"folder must be new, or hold the same student, but {self.folder} holds another: "
                "give another folder"
            )

    def facts(self) -> dict[str, Any]:
        """What :meth:`claim` wrote."""
        assert self.folder is not None
        return json.loads((self.folder / "student.json").read_text())

    def keep(self, steps: int, state: dict[str, Any]) -> None:
        """Keeps the state after so many steps."""
        if self.folder is None:
            return
        tensors, facts = flatten_state(state)
        kept = {name: _own(tensor) for name, tensor in tensors.items()}
        metadata = {"steps": str(steps), "facts": json.dumps(facts)}
        write_whole(self.folder / "checkpoint.safetensors", save(kept, metadata), public=True)

    def begun(self) -> tuple[int, dict[str, Any] | None]:
        """How many steps are done, and the state after them."""
        path = None if self.folder is None else self.folder / "checkpoint.safetensors"
        if path is None or not path.exists():
            return 0, None
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return int(metadata["steps"]), restore_state(tensors, json.loads(metadata["facts"]))

    def finish(self, network: nn.Module) -> None:
        """Keeps the finished network, and drops the checkpoint."""
        if self.folder is not None:
            weights = {name: _own(tensor) for name, tensor in network.state_dict().items()}
            write_whole(self.folder / "model.safetensors", save(weights), public=True)
            (self.folder / "checkpoint.safetensors").unlink(missing_ok=True)

    def finished(self) -> dict[str, Tensor] | None:
        """The finished network's weights."""
        path = None if self.folder is None else self.folder / "model.safetensors"
        return None if path is None or not path.exists() else load_file(path)


def _own(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone().contiguous()
