"""A network whose weights may be known: what private relevance is computed with.

    >>> known = KnownModel.public(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), "drawn at random")
    >>> known.event is None
    True
    >>> known.says
    'public: drawn at random'

Of a network that was trained on the private records without privacy, one record moves every weight,
hence the relevance of all other records as well: the sum over records then moves by up to 2 n, not
by 2, and noise for 2 hides nothing. So there is no way here to pass a network without saying where
it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import nn

from sfumato.core import validation
from sfumato.core.events import Event, event_from_dict, promises_nothing
from sfumato.learning.relevance.propagation import check_layers

__all__ = ["KnownModel", "checked_model"]


@final
@dataclass(frozen=True, eq=False)
class KnownModel:
    """A network, and why it may be used on private records.

    Made by :meth:`public` or :meth:`privately_trained`.

    Attributes:
        module: the network, of layers that relevance can pass.
        says: one line for the record.
        event: what its training released about the same records; None if it is independent of
            them.
        charged: whether a ledger was charged for that already.
    """

    module: nn.Module
    says: str
    event: Event | None = None
    charged: bool = False

    def __post_init__(self) -> None:
        check_layers(self.module)
        if "\n" in validation.name("says", self.says):
            validation.fail("says", "one line", self.says)
        for name, weight in self.module.named_parameters():
            if not bool(weight.isfinite().all()):
                validation.fail("module", "one with finite weights", name)

    @classmethod
    def public(cls, module: nn.Module, source: str) -> KnownModel:
        """A network that does not depend on the private records: trained elsewhere, or drawn.

        Args:
            module: the network.
            source: one line that says where it comes from; the record repeats it.
        """
        return cls(module, f"public: {validation.name('source', source)}")

    @classmethod
    def privately_trained(
        cls, module: nn.Module, event: Event, *, charged: bool = False
    ) -> KnownModel:
        """A network that was trained with differential privacy on the same records.

        Args:
            module: the network.
            event: what its training released. It is part of what is promised afterwards.
            charged: whether a ledger was charged for it already; then it is not charged again.

        Raises:
            ValueError: if the event promises nothing.
        """
        if promises_nothing(event):
            raise ValueError(
                "event must promise something, got that of a training without privacy: relevance "
                "by such a network shows the records that it was trained on. Train it with dp-sgd, "
                "or take one that was trained on other data (KnownModel.public)"
            )
        return cls(module, "trained with privacy on the same records", event, charged)

    def to_dict(self) -> dict[str, object]:
        """JSON-ready, without the weights."""
        event = None if self.event is None else self.event.to_dict()
        return {"says": self.says, "event": event, "charged": self.charged}

    @staticmethod
    def event_of(data: dict[str, object]) -> Event | None:
        """The event in what :meth:`to_dict` returned."""
        found = data["event"]
        return event_from_dict(found) if isinstance(found, dict) else None


def checked_model(model: object) -> KnownModel:
    """The model, if it was said where it comes from.

    Raises:
        ValueError: if it was not.
    """
    if not isinstance(model, KnownModel):
        raise ValueError(
            f"model must be a KnownModel, got a {type(model).__name__}: say where it comes from, "
            "KnownModel.public(module, source) or KnownModel.privately_trained(module, event)"
        )
    return model
