"""Public networks to compute relevance with, as JSON: from a file, or drawn from a public seed.

    >>> source = PublicSource(model="mlp", classes=10, options={"hidden": 32})
    >>> known = source.known((8,))
    >>> known.says
    "public: a 'mlp' drawn from the public seed 0"
    >>> PublicSource.from_dict(source.to_dict()) == source
    True

A network that nobody trained still says something: by the rule z-plus its relevance is about how
much of each input there is, weighted at random. One that was trained on similar public data says
which inputs tell classes apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import torch
from torch import nn

from sfumato.core import validation
from sfumato.learning.models import make_model
from sfumato.learning.models.public_weights import check_weights, checked_digest, public_weights
from sfumato.learning.relevance.known import KnownModel

__all__ = ["PublicSource"]

_Options = Mapping[str, Any] | tuple[tuple[str, Any], ...]


@final
@dataclass(frozen=True)
class PublicSource:
    """Where a public network comes from.

    Attributes:
        model: the architecture, a name for :func:`~sfumato.learning.models.make_model`, made of
            layers that relevance can pass.
        classes: how many scores it has; they need not be those of the private data.
        path: a safetensors file with its weights; empty to draw them.
        source: one line that says where the weights in the file come from; needed with one.
        options: of the architecture.
        seed: of the weights that are drawn.
        sha256: of the file. By default of the file as it is now; a file that changes is refused.
    """

    model: str = "mlp"
    classes: int = 10
    path: str = ""
    source: str = ""
    options: _Options = ()
    seed: int = 0
    sha256: str | None = None

    def __post_init__(self) -> None:
        validation.name("model", self.model)
        validation.count("classes", self.classes)
        validation.at_least("seed", self.seed, 0)
        options = tuple((str(k), _frozen(v)) for k, v in dict(self.options).items())
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "path", str(self.path))
        if self.path:
            validation.name("source", self.source)
            object.__setattr__(self, "sha256", checked_digest(self.sha256, self.path))

    def known(self, shape: tuple[int, ...]) -> KnownModel:
        """The network for inputs of one shape.

        Raises:
            ValueError: if the file is another one, or the network is not for such inputs.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            made = make_model(self.model, shape, self.classes, **dict(self.options))
        if self.path:
            self._load(made)
        return KnownModel.public(made.eval(), self.provenance)

    def _load(self, model: nn.Module) -> None:
        weights = public_weights(self.path, self.sha256, list(model.state_dict()))
        check_weights(weights, model.state_dict(), set(), self.path)
        model.load_state_dict(weights)

    @property
    def provenance(self) -> str:
        """One line for the record."""
        if not self.path:
            return f"a {self.model!r} drawn from the public seed {self.seed}"
        return f"a {self.model!r}, {self.source} (SHA-256 {self.sha256})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"options": {k: _thawed(v) for k, v in dict(self.options).items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PublicSource:
        """The inverse of :meth:`to_dict`."""
        return cls(**data)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _thawed(value: Any) -> Any:
    return list(map(_thawed, value)) if isinstance(value, list | tuple) else value
