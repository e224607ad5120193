"""The least noise with which a federation meets an epsilon against a given observer.

>>> from sfumato.federated.federation import Federation
>>> from sfumato.federated.noises import CentralNoise
>>> from sfumato.federated.works import ClientUpdates
>>> silos = Federation("linear", (8,), 2, 10, 50, ClientUpdates(), CentralNoise(1.0))
>>> met = calibrated(silos, epsilon=3.0)
>>> met.guarantee("released models").epsilon <= 3.0, round(met.noise.multiplier, 1)
(True, 9.8)
"""

from __future__ import annotations

from dataclasses import replace

from sfumato.accounting import calibrate
from sfumato.accounting.account import Accountant
from sfumato.core.events import promises_nothing
from sfumato.federated.federation import Federation
from sfumato.federated.noises import Noise, NoNoise
from sfumato.federated.views import RELEASED

__all__ = ["calibrated", "with_multiplier"]


def with_multiplier(federation: Federation, multiplier: float) -> Federation:
    """The same federation with another noise multiplier."""
    noise: Noise = replace(federation.noise, multiplier=multiplier)  # type: ignore[call-arg]
    return replace(federation, noise=noise)


def calibrated(
    federation: Federation,
    epsilon: float,
    observer: str = RELEASED,
    accountant: Accountant | str = Accountant.PLD,
) -> Federation:
    """The federation with the least noise that meets ``epsilon`` over all rounds.

    Args:
        federation: with any noise but none.
        epsilon: at its delta.
        observer: against whom.
        accountant: by which; a ledger counts in RDP.

    Raises:
        ValueError: if its noise does not protect against that observer, whatever it is.
    """
    nothing = promises_nothing(federation.view(observer).event)
    if isinstance(federation.noise, NoNoise) or nothing:
        raise ValueError(
            f"noise must be one that protects against {observer!r}, got "
            f"{federation.noise.kind!r} with {federation.sums.kind!r} sums: local noise does, and "
            "shared noise in a masked sum"
        )
    multiplier = calibrate(
        lambda z: with_multiplier(federation, z).view(observer).event,
        epsilon,
        federation.delta,
        accountant=accountant,
    )
    return with_multiplier(federation, multiplier)
