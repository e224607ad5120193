"""The model that a federation trained, read back from its run; or opened by who holds the key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sfumato.core.records import Record
from sfumato.federated.federation import Federation
from sfumato.federated.layout import Layout
from sfumato.learning.runs.folder import RunFolder

if TYPE_CHECKING:
    from torch import nn

    from sfumato.federated.secure.ckks_keys import CkksKeys

__all__ = ["federated_model", "opened_model"]


def federated_model(path: str | Path) -> nn.Module:
    """The model of a finished run, in eval mode; its record says what it promises.

    Raises:
        ValueError: if there is no such run, or its model is encrypted.
    """
    folder = RunFolder(path)
    record = Record.from_dict(folder.record())
    if record.method != "federated":
        raise ValueError(f"path must hold a run of collaborative training, got {record.method!r}")
    if not folder.model_file.exists():
        raise ValueError(
            f"the model in {folder.path} is encrypted: a participant opens it, with "
            "sfumato federate open"
        )
    model = Federation.from_dict(record.parameters).make_model()
    model.load_state_dict(folder.model())
    return model.eval()


def opened_model(federation: Federation, sealed: bytes, keys: CkksKeys) -> nn.Module:
    """What the server kept of a run with hidden sums, opened by a participant.

    For participants alone: who sees what CKKS decrypts, and knows what went in, can find the key
    (:mod:`~sfumato.federated.hidden`).

    Args:
        federation: as all agreed to it.
        sealed: the server's ``model.ckks``.
        keys: all participants' secret key.

    Raises:
        ValueError: if it was encrypted under another key, or is no such file.
    """
    from sfumato.federated.hidden import settings_of
    from sfumato.federated.secure.ckks import CkksClient

    model = federation.make_model()
    layout = Layout.of(model)
    change = CkksClient("participant", keys, settings_of(federation)).open(sealed)
    layout.write(model, (layout.read(model) + change).astype(np.float32))
    return model.eval()
