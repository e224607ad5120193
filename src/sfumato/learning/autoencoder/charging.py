"""The ledger's part: a run is charged as a whole, before a row is looked at."""

from __future__ import annotations

from pathlib import Path

from sfumato.learning.erm.charging import Charge
from sfumato.ledger import Ledger

__all__ = ["run_charge"]


def run_charge(ledger: Ledger | str | Path | None, dataset: str, analyst: str) -> Charge:
    """One release for a ledger: layers, or steps, and the classifier together.

    All of a run's releases are fixed beforehand, in kind and in noise, so that they are declared
    and charged by what they promise together. Nothing is given back for a run that was cut off.
    """
    return Charge(ledger, dataset, analyst, label="autoencoder")
