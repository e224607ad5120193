"""The defences of the matrix, and the federation that each of them makes of an attack's setting.

====================  ===========================================================================
kind                  what it is
====================  ===========================================================================
``none``              contributions as they are
``own``               what a participant does by herself: local steps, noise, a clip, dropout,
                      pruning (Lei, 2024, table 1); no guarantee
``record``            DP-SGD at the participants: gradients of records clipped, noise on their sum
``client``            updates of participants clipped, noise on each
``secure``            the server sees the sum of so many participants' contributions
====================  ===========================================================================

Noise of ``record`` and ``client`` is added by participants (a guarantee against the server) or, if
``trusted``, by the server (one against those who see released models, and none against itself). Its
multiplier is the least with which all rounds of the federation in question meet epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from sfumato.attacks.gradients.defences import (
    Clipping,
    Defence,
    Dropout,
    GaussianNoise,
    LocalSteps,
    Pruning,
)
from sfumato.federated.calibrating import calibrated
from sfumato.federated.federation import Federation
from sfumato.federated.noises import CentralNoise, LocalNoise, Noise, NoNoise
from sfumato.federated.views import RELEASED, SERVER
from sfumato.federated.works import ClientUpdates, LotGradients, Work

__all__ = ["OPEN", "Row", "Setting", "all_rows", "federation_for", "promises"]

OPEN = 1e6
"""A clip norm that clips nothing."""

_CLIP = 1.0
_LOCAL = 4  # steps


@final
@dataclass(frozen=True)
class Row:
    """One defence.

    Attributes:
        name: in the matrix.
        kind: see the module.
        own: what a participant does by herself.
        epsilon: that all rounds together are to cost.
        trusted: whether the server adds the noise.
        members: of a sum that hides its parts.
    """

    name: str
    kind: str = "none"
    own: tuple[Defence, ...] = ()
    epsilon: float | None = None
    trusted: bool = False
    members: int | None = None

    @property
    def steps(self) -> int:
        """Of local training before the server sees anything."""
        return next((each.steps for each in self.own if isinstance(each, LocalSteps)), 1)


@final
@dataclass(frozen=True)
class Setting:
    """What an attack's federation is like, whatever defends it.

    Attributes:
        model: by name.
        shape: of an input.
        classes: of labels.
        participants: how many.
        rounds: how many.
        records: of all participants together.
        lot_rate: of record-level training.
        steps: of local training.
        batch_size: rows of each.
        rate: of each.
        record_rate: the server's, with clipped gradients of records.
        delta: of all guarantees.
        seed: of initial weights.
    """

    model: str
    shape: tuple[int, ...]
    classes: int
    participants: int
    rounds: int
    records: int
    lot_rate: float
    steps: int
    batch_size: int
    rate: float
    record_rate: float = 2.0
    delta: float = 1e-5
    seed: int = 0


def all_rows(epsilons: Sequence[float], members: Sequence[int]) -> list[Row]:
    """Every defence, in the order of the page."""
    own = [
        Row(f"{_LOCAL} local steps", "own", (LocalSteps(_LOCAL, 0.1),)),
        *(Row(str(each), "own", (each,)) for each in (
            GaussianNoise(0.01), GaussianNoise(0.1), Clipping(_CLIP), Dropout(0.3), Pruning(0.9),
            Pruning(0.99),
        )),
    ]  # fmt: skip
    private = [
        Row(f"{unit} DP, epsilon {value:g}", unit, epsilon=value)
        for unit in ("record", "client")
        for value in epsilons
    ]
    trusted = [
        Row(
            f"{unit} DP, noise by server, epsilon {epsilons[0]:g}",
            unit,
            epsilon=epsilons[0],
            trusted=True,
        )
        for unit in ("record", "client")
    ]
    secure = [Row(f"secure sum of {n}", "secure", members=n) for n in members]
    return [Row("none"), *own, *private, *trusted, *secure]


def federation_for(row: Row, setting: Setting) -> Federation:
    """The setting's federation with this defence, its noise calibrated."""
    work = _work(row, setting)
    made = Federation(
        setting.model, setting.shape, setting.classes, setting.participants, setting.rounds, work,
        _noise(row), delta=setting.delta, seed=setting.seed, name="attacked",
        server_rate=setting.record_rate if row.kind == "record" else 1.0,
    )  # fmt: skip
    if row.epsilon is None:
        return made
    return calibrated(made, row.epsilon, RELEASED if row.trusted else SERVER)


def _work(row: Row, setting: Setting) -> Work:
    if row.kind == "record":
        return LotGradients(setting.lot_rate, _CLIP, setting.records)
    clip = _CLIP if row.kind == "client" else OPEN
    steps = max(setting.steps, row.steps)
    return ClientUpdates(steps, setting.batch_size, setting.rate, clip)


def _noise(row: Row) -> Noise:
    if row.epsilon is None:
        return NoNoise()
    return CentralNoise(1.0) if row.trusted else LocalNoise(1.0)


def promises(federation: Federation) -> dict[str, Any]:
    """What is promised to each observer; None where nothing is."""
    found = {name: federation.guarantee(name) for name in (SERVER, RELEASED)}
    return {
        name: None if each.epsilon == float("inf") else {"text": str(each), **each.to_dict()}
        for name, each in found.items()
    }
