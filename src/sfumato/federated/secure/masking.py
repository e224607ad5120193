"""Secure sums by masks that cancel: what is agreed, what comes out, who learns what.

Everyone adds to her numbers (modulo 2^b) one mask for each partner, which the partner takes off,
and one of her own. The server adds what it gets: masks of pairs cancel. With the help of
``threshold`` participants it then opens, for each, *either* her own mask, if her numbers are in the
sum, *or* the key of her masks with others, if she dropped out before: never both.

    >>> agreed = MaskSettings(length=1000, bits=32, threshold=7, participants=10)
    >>> agreed.colluders_tolerated(malicious_server=False), agreed.colluders_tolerated()
    (5, 3)
    >>> least_threshold(10, colluders=3)
    7

After Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS
2017, in its version against a server that lies. Five stages, each one message to each participant
and one back:

==============  ====================================  ===========================================
stage           the server sends                      a participant answers
==============  ====================================  ===========================================
advertise       session, what was agreed              two fresh public keys, signed
share           all keys (the roster)                 shares of two secrets, sealed for each other
masked-input    sealed shares, and the order          her numbers, masked
consistency     the survivors                         her signature under this very list
unmask          ``threshold`` of these signatures     one share for each other: of this or of that
==============  ====================================  ===========================================

Who learns what (n participants, threshold t, c of them collude with the server)
    - The **server** learns the sum over the survivors, who they are, how many numbers there are,
      and nothing else. Together with c participants it learns the sum over the honest survivors, of
      whom there are at least t - c. Take t - c >= 2, or the "sum" is one person's.
    - A **participant** learns the names and public keys of the others, who dropped out, and no sum.
    - **Differential privacy is not part of it.** A sum tells of its parts; over several rounds a
      difference of two sums may be one person's. Noise has to be inside the numbers that go in,
      calibrated to the t - c honest parts that are surely there.

What t has to be
    - *t at most the number of survivors*, or there is no sum, and nothing is learnt.
    - *A server that follows the protocol*: the c colluders hold c shares of every secret. Honest
      participants open one of the two secrets of each, so for the other one these c shares are all:
      t > c suffices, and t - 1 shares are uniform whatever the secret is.
    - *A server that lies* may tell some that v survived and others that she did not. For v's masks
      to fall, t participants must open one secret and t the other. The c colluders serve twice; an
      honest one answers once, so this takes 2 (t - c) honest ones, and there are n - c of them. It
      is impossible if 2 (t - c) > n - c, that is **2 t > n + c**. The same count shows that no two
      lists of survivors both find t signatures, so all honest ones open the same sum. For c < n/3
      it is enough that t > 2 n / 3, as in the paper. n is the size of the roster: at most
      ``participants``, which each one checks.

Beyond the paper, each for a reason
    - The roster's hash is in every sealed share, mask and signature: who was shown another roster
      cannot take part. Shares are opened before numbers are masked, which also proves that each
      partner is here now: session keys of an earlier session, replayed, cannot open them.
    - The hash of the **order** (the model to train from, say) and of the list of dealers is in the
      masks between pairs. A server that gives one participant another model, so that all other
      updates vanish (Pasquini, Francati and Ateniese, CCS 2022, arXiv:2111.07380), or fewer
      partners, gets a sum that does not open.
    - Every answer is signed, and hashes of all shares are known to the server: what comes from
      one participant and is wrong is dropped, and she is named.

What it does not do
    - A participant may send any numbers; a sum can be poisoned, and bounds are not proven. One who
      seals rubbish for others can make a sum fail; she is named in the error.
    - It does not hide who takes part, nor traffic. Whoever reads the network without TLS sees what
      the server sees, so learns the sum.
    - A server may leave anyone out. It may also return a wrong sum: nobody can check it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

from sfumato.core import validation
from sfumato.federated.secure.residues import Residues, check_bits, width_of

__all__ = [
    "STAGES",
    "MaskSettings",
    "Refused",
    "SecureSum",
    "SecureSumFailed",
    "least_threshold",
]

STAGES = ("advertise", "share", "masked-input", "consistency", "unmask")


@final
class Refused(ValueError):  # noqa: N818 - the name operators read
    """A participant will not do what the server asks; she says why."""


@final
class SecureSumFailed(RuntimeError):  # noqa: N818 - the name operators read
    """There is no sum: fewer than the threshold remained, or a secret cannot be opened.

    Attributes:
        dropped: who did not answer, and at which stage.
        refused: whose answer was not accepted, or who would not answer, and why.
    """

    def __init__(self, text: str, dropped: Mapping[str, str], refused: Mapping[str, str]) -> None:
        self.dropped, self.refused = dict(dropped), dict(refused)
        silent = [f"{name} did not answer ({stage})" for name, stage in dropped.items()]
        wrong = [f"{name}: {reason}" for name, reason in refused.items()]
        super().__init__("; ".join([text, *silent, *wrong]))


@final
@dataclass(frozen=True)
class SecureSum:
    """What the server gets.

    Attributes:
        total: the sum over ``survivors`` modulo 2^b.
        survivors: whose numbers are in it.
        dropped: who stopped answering, and at which stage. Those who did so after the masked input
            are in the sum nevertheless.
        refused: whose answer was not accepted, or who would not answer, and why. Likewise.
    """

    total: Residues = field(repr=False)
    survivors: Sequence[str]
    dropped: Mapping[str, str]
    refused: Mapping[str, str]


@final
@dataclass(frozen=True)
class MaskSettings:
    """What all agree on before the run; part of every key.

    Attributes:
        length: how many numbers each one has.
        threshold: how many must remain, and how many must help to open a sum. 2 or above.
        participants: the most that take part in one session.
        bits: b; sums are modulo 2^b. A multiple of 8 wastes nothing on the wire.
        most_order: the longest order, in bytes, that participants accept.
    """

    length: int
    threshold: int
    participants: int
    bits: int = 32
    most_order: int = 2**30

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", validation.count("length", self.length))
        object.__setattr__(self, "threshold", validation.at_least("threshold", self.threshold, 2))
        object.__setattr__(
            self, "participants", validation.at_least("participants", self.participants, 2)
        )
        object.__setattr__(self, "bits", check_bits(self.bits))
        object.__setattr__(
            self, "most_order", validation.at_least("most_order", self.most_order, 0)
        )
        if self.threshold > self.participants:
            validation.fail(
                "threshold", f"at most the {self.participants} participants", self.threshold
            )

    def colluders_tolerated(self, *, malicious_server: bool = True) -> int:
        """How many may collude with the server, two honest parts always being in the sum.

        -1 means that the threshold does not protect against such a server at all.
        """
        most = self.threshold - 2
        if malicious_server:
            most = min(most, 2 * self.threshold - self.participants - 1)
        return max(most, -1)

    @property
    def wire_bytes(self) -> int:
        """What the masked numbers of one participant take."""
        return self.length * width_of(self.bits)

    def facts(self) -> dict[str, Any]:
        """All fields, as JSON."""
        return asdict(self)


def least_threshold(participants: int, *, colluders: int = 0, malicious_server: bool = True) -> int:
    """The least threshold that tolerates ``colluders``; what is above it is room for dropouts.

    t - c >= 2, and 2 t > n + c against a server that lies.
    """
    participants = validation.at_least("participants", participants, 2)
    colluders = validation.at_least("colluders", colluders, 0)
    if colluders > participants - 2:
        validation.fail(
            "colluders", f"at most {participants - 2} (two are to be hidden)", colluders
        )
    least = colluders + 2
    if malicious_server:
        least = max(least, (participants + colluders) // 2 + 1)
    return least
