"""Noise in shares for a federation: the integers, and what a round of them amounts to.

*Clients*: an update is clipped to C, rounded to integers within a bound on their norm, and each
adds a share; the event is that of :mod:`~sfumato.federated.integer_noise`, zero-out.

*Records*: what is rounded is a participant's sum over her lot. One record more or less moves it by
C at most. Before it is rounded it is projected onto a ball of radius R, a public number: a
projection moves no two points apart. Each number then goes up or down by a coin of its own. If the
same coin u decides for both of two neighbouring sums, x -> floor(x + u), they differ by less than
|x - x'| + 1 in each number, so that sums C apart are whole vectors at most

    C / gamma + sqrt(k)

apart in L2, gamma the step and k the (padded) dimension; a release is a mixture of such pairs over
the coins. (No draw is rejected for its length, but for one in 10^300.) Noise does not depend on how
many records there are, so the relation is add or remove. Each record is in the lot by a secret coin
of its owner's, so the release is Poisson-sampled at the lot rate, against everyone else.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

from sfumato.accounting import sampled_curve
from sfumato.core.events import Event, Leaf, ZcdpEvent
from sfumato.core.neighbours import Neighbours
from sfumato.core.sensitivity import Sensitivity
from sfumato.federated.integer_noise import (
    DistributedGaussian,
    DistributedNoise,
    DistributedSkellam,
    gaussian_sums,
)
from sfumato.federated.noises import Law, SharedNoise
from sfumato.federated.works import LotGradients
from sfumato.mechanisms.skellam import skellam_curve
from sfumato.mechanisms.skellam_law import largest_l1

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation
    from sfumato.federated.orders import Order

__all__ = ["reach_of", "rotation_seed", "share_of", "shared_round"]

_LAWS: dict[Law, type[DistributedNoise]] = {
    Law.GAUSSIAN: DistributedGaussian,
    Law.SKELLAM: DistributedSkellam,
}
_RECORD = Sensitivity(1.0, neighbours=Neighbours.ADD_REMOVE, unit="record")
_NEVER = 1e-300  # of draws that are rejected
_ROOM = 2.0  # a lot's sum may be so many times as long as that of an expected lot in one direction


def reach_of(federation: Federation) -> float:
    """R, the norm that a contribution is cut to: C for clients, a public multiple for lots."""
    work = federation.work
    if not isinstance(work, LotGradients):
        return work.clip
    lot = work.lot_rate * work.records / federation.participants
    return work.clip * max(1.0, _ROOM * lot)


def share_of(federation: Federation) -> DistributedNoise:
    """The integers of one participant's message.

    Raises:
        ValueError: if the federation's bits do not hold the sum.
    """
    noise = federation.noise
    assert isinstance(noise, SharedNoise)
    clip, reach = federation.work.clip, reach_of(federation)
    found = _share(
        noise.law, reach, model_size(federation), federation.participants, noise.least, noise.bits,
        noise.multiplier * clip / reach,
    )  # fmt: skip
    if isinstance(federation.work, LotGradients):
        return replace(found, rejection=_NEVER)
    return found


@functools.lru_cache(maxsize=256)
def _share(
    law: Law, reach: float, size: int, clients: int, least: int, bits: int, multiplier: float
) -> DistributedNoise:
    return _LAWS[law].with_bits(
        clip=reach, dimension=size, clients=clients, n_min=least, bits=bits,
        noise_multiplier=multiplier,
    )  # fmt: skip


def shared_round(federation: Federation) -> Event:
    """One round, to the server and everyone after it."""
    share = share_of(federation)
    if not isinstance(federation.work, LotGradients):
        return share.event()
    whole = _record_event(share, federation.work.clip)
    rate = federation.work.lot_rate
    return whole if rate == 1 else sampled_curve(whole, rate, symmetric=True)


@functools.lru_cache(maxsize=256)
def _record_event(share: DistributedNoise, clip: float) -> Leaf:
    """Of one record that is surely in the lot."""
    encoding = share.encoding
    apart = clip / share.granularity * (1 + 2.0**-40) + math.sqrt(encoding.padded)
    squared = math.floor(apart**2)
    if isinstance(share, DistributedGaussian):
        rho = gaussian_sums.rho(share.share_deviation, share.n_min, squared, encoding.padded)
        return ZcdpEvent(rho, _RECORD.neighbours, _RECORD.unit)
    l1 = largest_l1(math.sqrt(squared), encoding.padded)
    return skellam_curve(share.n_min * share.share_deviation**2, float(squared), l1, _RECORD)


def model_size(federation: Federation) -> int:
    """How many parameters the model has."""
    return _size(
        federation.model, federation.shape, federation.classes,
        json.dumps(federation.model_options, sort_keys=True),
    )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _size(model: str, shape: tuple[int, ...], classes: int, options: str) -> int:
    from sfumato.learning.models import make_model

    made = make_model(model, shape, classes, **json.loads(options))
    return sum(p.numel() for p in made.parameters() if p.requires_grad)


def rotation_seed(order: Order) -> int:
    """Public, the same for all, another one in every round."""
    text = f"{order.federation}:{order.run}:{order.attempt}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> 1
