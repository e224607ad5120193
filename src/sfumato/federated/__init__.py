"""Collaborative training: participants keep their data, and everyone's view has its guarantee.

A federation is a work, a noise and a kind of sum; any that make sense go together.

==================  ==========================================================================
``federation``      what all members agree on, as a file; the guarantee against each observer
``works``           what a participant computes: an update, a lot's gradients, a few numbers
``noises``          who adds noise: the server, each participant, each a share of it
``sums``            who sees contributions: the server, nobody but their sum, nobody at all
``views``           observers, and what they see amounts to
``member``          a participant: follows her federation's orders, once, and charges before
``coordinator``     the server: charges, sends, sums, adds noise, resumes after a crash
``masked``          members and rounds under masked sums; ``hidden``: under CKKS
``secure``          the secure sums themselves; ``integer_noise``: noise in shares
``trained_models``  what a run trained, read back
``selective``       distributed selective SGD at its true epsilon
``exchange``        the seam to transports: ``in_process``, ``flower``
``tapping``         what a curious server hears, for attacks on one's own protocols
==================  ==========================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfumato.lazy import homes, loader

if TYPE_CHECKING:
    from sfumato.federated.calibrating import calibrated
    from sfumato.federated.coordinator import Coordinator
    from sfumato.federated.federation import Federation
    from sfumato.federated.in_process import InProcess
    from sfumato.federated.local import LocalData, LocalModel
    from sfumato.federated.member import Member
    from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
    from sfumato.federated.partitions import partition
    from sfumato.federated.sums import HiddenSum, MaskedSum, PlainSum
    from sfumato.federated.tapping import Tapped
    from sfumato.federated.trained_models import federated_model
    from sfumato.federated.works import ClientUpdates, LotGradients, SelectedGradients

_HOMES = {
    "calibrating": "calibrated",
    "coordinator": "Coordinator",
    "federation": "Federation",
    "in_process": "InProcess",
    "local": "LocalData LocalModel",
    "member": "Member",
    "noises": "CentralNoise LocalNoise NoNoise SharedNoise",
    "partitions": "partition",
    "sums": "HiddenSum MaskedSum PlainSum",
    "tapping": "Tapped",
    "trained_models": "federated_model",
    "works": "ClientUpdates LotGradients SelectedGradients",
}
_HOME = homes(_HOMES)

__all__ = [
    "CentralNoise",
    "ClientUpdates",
    "Coordinator",
    "Federation",
    "HiddenSum",
    "InProcess",
    "LocalData",
    "LocalModel",
    "LocalNoise",
    "LotGradients",
    "MaskedSum",
    "Member",
    "NoNoise",
    "PlainSum",
    "SelectedGradients",
    "SharedNoise",
    "Tapped",
    "calibrated",
    "federated_model",
    "partition",
]


__getattr__ = loader(__name__, _HOME)


def __dir__() -> list[str]:
    return sorted(__all__)
