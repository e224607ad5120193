"""Observers: who sees what of a federation, and what that amounts to.

A guarantee of collaborative training is always one against somebody.

=======================================  =========================================================
observer                                 sees
=======================================  =========================================================
``released models``                      the weights after every round: customers, the public, and
                                         each participant, about the others
``released models and who took part``    the same, and which participants were asked
``server``                               everything that reaches the server
``server and one participant``           with hidden sums, whose key is everybody's: all of it
=======================================  =========================================================

*Amplification* by sampling participants holds against those who do not know who was sampled. The
server does: it gets none. Records that a participant samples by coins of her own are a secret from
everyone else, the server included.

*Central noise*, multiplier z, participants asked with probability q: each round is a
Poisson-sampled Gaussian release (q, z) to the first observer (McMahan et al., arXiv:1710.06963,
with this package's accountants), a Gaussian release to the second, for whom nothing is sampled, and
no private release at all to the server, who has contributions before noise.

*Local noise*: one message is a Gaussian release of multiplier z to the server. A released sum has
the noise of at least ``least`` participants that is unknown to who looks, and of as many more as
may look together (``colluders``): multiplier sqrt(least) z. No amplification is claimed for
participants, whose own noise comes and goes with them.

*Shared noise* under a masked sum: :mod:`~sfumato.federated.integer_noise`, the same to server and
released models, for ``least`` = survivors less colluders.

*Relations* (:func:`relation_of`). An observer's whole transcript counts: numbers, and names, how
many, which rounds there are. Fix everybody else and all coins but those of noise and of the choice
of participants.

- *Records*, every observer: add or remove. One record more or less changes its owner's numbers
  alone. Who is asked, who answers, how many bytes and how many rounds there are is the same: a
  participant without rows answers like any other.
- *Clients*, released models, central noise, plain sums: add or remove. A client who is not there
  leaves all other coins as they are, so a round is a Poisson sample with or without her. Names are
  not seen. What could be seen is whether rounds take place at all: where nobody is there, or
  nobody's answer is of use three times in a row, the coordinator stops. So the view is given for
  federations in which one other participant answers (:attr:`View.given`, which every guarantee
  carries). In a federation of one participant there is no other: zero-out.
- *Clients*, everything else: zero-out. She is asked, answers, and is on every list as before; her
  contribution is zeros. Add or remove would be false. Who is not there is on no list: over T rounds
  that is told with probability 1 - (1 - q)^T, whatever the noise. Where participants add noise,
  one who is not there takes hers along. Under masks, and where noise has to be that of ``least``,
  one less may be too few for a sum.
- *Selected gradients*: replace one participant's data. Zero-out is not claimed.

The time that a participant takes is seen by the server and is not covered; see the threat model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from sfumato.core.events import (
    Event,
    GaussianEvent,
    NotPrivateEvent,
    PoissonSampledEvent,
    repeat,
)
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.federated.noises import CentralNoise, LocalNoise, NoNoise, SharedNoise
from sfumato.federated.sums import HiddenSum, PlainSum
from sfumato.federated.works import SelectedGradients

if TYPE_CHECKING:
    from sfumato.federated.federation import Federation

__all__ = [
    "RELEASED",
    "SERVER",
    "WITH_KEY",
    "WITH_NAMES",
    "View",
    "message_event",
    "relation_of",
    "round_event",
    "views_of",
]

RELEASED = "released models"
WITH_NAMES = "released models and who took part"
SERVER = "server"
WITH_KEY = "server and one participant"
_COMPANY = "another participant is there and answers: a run without any answer stops"


@final
@dataclass(frozen=True)
class View:
    """One observer's.

    Attributes:
        observer: who.
        sees: what, in words.
        event: of all rounds; one that promises nothing where there is no guarantee. Its relation is
            one under which everything that the observer sees is covered.
        given: what has to be so for that, and is not enforced; empty if nothing.
    """

    observer: str
    sees: str
    event: Event
    given: str = ""

    def guarantee(self, delta: float) -> Guarantee:
        """By the tightest accountant there is; epsilon is infinite where nothing is promised.

        What has to be so for it is in its note.
        """
        from sfumato.accounting import account

        found = account(self.event, delta)
        return replace(found, note="; ".join(filter(None, (self.condition, found.note))))

    @property
    def condition(self) -> str:
        """:attr:`given` as it is printed beside a guarantee; empty if nothing."""
        return f"given that {self.given}" if self.given else ""

    def to_dict(self, delta: float) -> dict[str, Any]:
        """JSON-ready."""
        found = {"observer": self.observer, "sees": self.sees, "event": self.event.to_dict()}
        found |= {"given": self.given} if self.given else {}
        return found | self.guarantee(delta).to_dict()


def views_of(federation: Federation) -> tuple[View, ...]:
    """All observers, those who see least first."""
    absent = relation_of(federation, RELEASED) is Neighbours.ADD_REMOVE
    given = _COMPANY if absent and federation.work.unit == "client" else ""
    released = View(RELEASED, "the weights after every round", _all(federation, RELEASED), given)
    found = [released]
    if federation.participation < 1 and _all(federation, WITH_NAMES) != released.event:
        sees = "the weights, and who was asked in which round and answered"
        found.append(View(WITH_NAMES, sees, _all(federation, WITH_NAMES)))
    found.append(View(SERVER, _server_sees(federation), _all(federation, SERVER)))
    if isinstance(federation.sums, HiddenSum):
        sees = "every contribution: one participant's key opens them all"
        found.append(View(WITH_KEY, sees, _all(federation, WITH_KEY)))
    return tuple(found)


def relation_of(federation: Federation, observer: str) -> Neighbours:
    """The relation under which everything that an observer sees is covered: see the module."""
    work = federation.work
    if isinstance(work, SelectedGradients):
        return Neighbours.REPLACE_ONE
    if work.unit != "client":
        return Neighbours.ADD_REMOVE
    hides_presence = isinstance(federation.noise, CentralNoise | NoNoise) and isinstance(
        federation.sums, PlainSum
    )
    if observer == RELEASED and hides_presence and federation.participants > 1:
        return Neighbours.ADD_REMOVE
    return Neighbours.ZERO_OUT


def _all(federation: Federation, observer: str) -> Event:
    return repeat(round_event(federation, observer), federation.rounds)


def _server_sees(federation: Federation) -> str:
    if isinstance(federation.sums, PlainSum):
        return "every contribution as it was sent, and whose it is"
    if isinstance(federation.sums, HiddenSum):
        return "ciphertexts, as long as no participant gives it the key"
    return "the sum of contributions, and who took part"


def round_event(federation: Federation, observer: str) -> Event:
    """What one round amounts to for an observer."""
    work, noise = federation.work, federation.noise
    if isinstance(work, SelectedGradients):
        return work.event
    if isinstance(noise, CentralNoise):
        return _central(federation, noise.multiplier, observer)
    if isinstance(noise, LocalNoise):
        seen_alone = observer == WITH_KEY or (observer == SERVER and not federation.sums.hides)
        multiplier = noise.multiplier * (1.0 if seen_alone else noise.least**0.5)
        return _by_participants(federation, GaussianEvent(multiplier, unit=work.unit), observer)
    if isinstance(noise, SharedNoise):
        from sfumato.federated.shared import shared_round

        return shared_round(federation)
    return NotPrivateEvent(unit=work.unit)


def message_event(federation: Federation) -> Event:
    """What one message of a participant amounts to for who receives it.

    Where sums are hidden, for who receives it and has the key: any other participant may tell it.
    """
    hidden = isinstance(federation.sums, HiddenSum)
    return round_event(federation, WITH_KEY if hidden else SERVER)


def _central(federation: Federation, multiplier: float, observer: str) -> Event:
    work = federation.work
    if observer == SERVER:
        return NotPrivateEvent(unit=work.unit)
    rate = work.sample_rate
    if work.unit == "client" and observer == RELEASED:
        rate = federation.participation
    return _sampled(GaussianEvent(multiplier, relation_of(federation, observer), work.unit), rate)


def _by_participants(federation: Federation, noise: GaussianEvent, observer: str) -> Event:
    """Noise that participants add. Their coins for records are theirs; none hides a client."""
    noise = replace(noise, neighbours=relation_of(federation, observer))
    return _sampled(noise, federation.work.sample_rate)


def _sampled(noise: GaussianEvent, rate: float) -> Event:
    return noise if rate == 1 else PoissonSampledEvent(noise, rate)
