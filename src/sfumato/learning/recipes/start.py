"""Public weights that private training begins with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

from safetensors import SafetensorError, safe_open
from torch import nn

from sfumato.core import validation
from sfumato.learning.models.public_weights import (
    check_weights,
    checked_digest,
    checked_source,
    public_weights,
)

__all__ = ["PublicStart"]

_MADE_HERE = "pretraining"


@final
@dataclass(frozen=True)
class PublicStart:
    """A file of weights to begin with; what it does not hold begins as it would without it.

    But for a last linear layer that is not in it: that begins at zero, so that weights which have
    learnt something are not moved by what comes back through a random layer.

    Costs no privacy *if the weights are public*: that they are, and do not stem from the private
    data, is declared by whoever uses them, in ``source``, and stated in the record. A file of
    :func:`~sfumato.learning.pretraining.pretrain` says itself where it comes from.

    Attributes:
        path: a safetensors file with weights named as in the model's ``state_dict()``: all of
            them, or all but the last layers'. A run's ``model.safetensors`` will do.
        source: one line that says where they come from; by default what the file says.
        sha256: of the file. By default of the file as it is now; a file that changes is refused.
    """

    path: str
    source: str = ""
    sha256: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | Path) or not str(self.path):
            validation.fail("path", "a safetensors file", self.path)
        path = str(self.path)
        values = {
            "path": path,
            "sha256": checked_digest(self.sha256, path),
            "source": checked_source(self.source or _said_by(path)),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def put_into(self, model: nn.Module) -> None:
        """Replaces the weights that the file holds.

        Raises:
            ValueError: unless the file fits: each of its tensors is one of the model's, and what
                it leaves out comes after what it holds.
        """
        names = list(model.state_dict())
        weights = public_weights(self.path, self.sha256, names)
        held = [name for name in names if name in weights]
        last = names.index(held[-1]) + 1 if held else 0
        own = {name: model.state_dict()[name] for name in names[:last]}
        if not own:
            raise ValueError(
                f"path must hold weights of the model, got {self.path!r}, which has none of them: "
                "check model and options"
            )
        check_weights(weights, own, set(), self.path)
        model.load_state_dict(weights, strict=False)
        _begin_at_zero(model, weights)

    def groups(
        self, parameters: Iterable[tuple[str, nn.Parameter]], rate: float, head_rate: float
    ) -> list[dict[str, Any]]:
        """Named parameters for an optimizer, with learning rates: what is held, and the rest.

        In one group where all learn alike, as of runs that were begun before there were two rates.

        Args:
            parameters: of the model.
            rate: for what the file holds.
            head_rate: for the rest, as a multiple of it.
        """
        if head_rate == 1.0:
            return [{"params": [parameter for _, parameter in parameters], "lr": rate}]
        parameters = list(parameters)
        held = set(public_weights(self.path, self.sha256, [name for name, _ in parameters]))
        own = {True: list[nn.Parameter](), False: list[nn.Parameter]()}
        for name, parameter in parameters:
            own[name in held].append(parameter)
        rates = {True: rate, False: rate * head_rate}
        return [{"params": own[key], "lr": rates[key]} for key in rates if own[key]]

    @property
    def provenance(self) -> str:
        """The declared source, and which file it was."""
        return f"declared public: {self.source} (SHA-256 {self.sha256})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PublicStart:
        """The inverse of :meth:`to_dict`; the file need not be there until it is used."""
        return cls(**data)


def _begin_at_zero(model: nn.Module, held: Mapping[str, Any]) -> None:
    """The last layer, if it is linear and none of it is held."""
    name, last = [(n, part) for n, part in model.named_modules() if not list(part.children())][-1]
    weight = f"{name}.weight" if name else "weight"
    if isinstance(last, nn.Linear) and weight not in held:
        for parameter in last.parameters():
            nn.init.zeros_(parameter)


def _said_by(path: str) -> str:
    """What a file of our own says of its making.

    Raises:
        ValueError: if it says nothing.
    """
    try:
        with safe_open(path, framework="pt") as file:
            return str(json.loads((file.metadata() or {})[_MADE_HERE])["source"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"source must say where the weights in {path!r} come from, and that they are public: "
            "the file does not say it itself"
        ) from None
