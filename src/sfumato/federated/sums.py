"""How contributions become a sum, and who sees them on the way.

====================  ==========================================================================
sum                   the server sees
====================  ==========================================================================
:class:`PlainSum`     every contribution as it was sent
:class:`MaskedSum`    the sum modulo 2^bits and nothing else, as long as fewer than ``threshold``
                      participants help it (:mod:`~sfumato.federated.secure`)
:class:`HiddenSum`    ciphertexts; participants hold the key, and the model
====================  ==========================================================================

A secure sum hides contributions and promises nothing about what the sum tells: that is the noise's
part. A sum without noise has no guarantee, however secure.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, final

from sfumato.core import validation
from sfumato.core.kinds import ByKind

__all__ = ["HiddenSum", "MaskedSum", "PlainSum", "Sums"]


class Sums(ByKind, ABC, family=True):
    """How a sum is made. Subclasses are frozen dataclasses named by ``kind`` in JSON."""

    hides: ClassVar[bool] = True
    """Whether the server sees sums at most."""


@final
@dataclass(frozen=True)
class PlainSum(Sums):
    """Contributions go to the server as they are."""

    kind: ClassVar[str] = "plain"
    hides: ClassVar[bool] = False


@final
@dataclass(frozen=True)
class MaskedSum(Sums):
    """Double masks, with a threshold, signed keys and recovery of those who drop out.

    Attributes:
        threshold: how many must stay to the end of a round; so many together can unmask anyone.
        bits: of every number where the noise does not say it.
        fraction_bits: of those behind the point, for noise that is not of integers.
        bound: of every number of a contribution, larger ones are cut; as above.
    """

    kind: ClassVar[str] = "masked"
    threshold: int
    bits: int = 40
    fraction_bits: int = 20
    bound: float = 64.0

    def __post_init__(self) -> None:
        validation.at_least("threshold", self.threshold, 2)
        validation.count("bits", self.bits)
        validation.count("fraction_bits", self.fraction_bits)
        validation.positive("bound", self.bound)


@final
@dataclass(frozen=True)
class HiddenSum(Sums):
    """CKKS: the server adds ciphertexts to the encrypted weights, participants decrypt those.

    One secret key for all participants: it fails if one of them colludes with the server.
    """

    kind: ClassVar[str] = "hidden"
