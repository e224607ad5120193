"""What a participant remembers between stages: just what the next one needs, and bytes both ways.

Each state is a type of its own, so that a secret that is no longer needed is no longer there: after
the masked input neither her keys nor her mask's seed, after the last stage nothing.

The bytes hold secrets. They belong where her data are, never to the server or a transport's store
that others read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from sfumato.federated.secure.keys import Advert, SessionKeys
from sfumato.federated.secure.masking import MaskSettings
from sfumato.federated.secure.masking_rounds import Roster, Shares, hex_in, read, text_in
from sfumato.federated.wire import Malformed, pack

__all__ = ["Advertised", "Idle", "Masked", "Shared", "Signed", "State", "load_state", "save_state"]

_SESSION = 32


@final
@dataclass(frozen=True)
class Idle:
    """No session, or none any more."""


@final
@dataclass(frozen=True, repr=False)
class Advertised:
    """Keys are made and told."""

    session: bytes
    keys: SessionKeys


@final
@dataclass(frozen=True, repr=False)
class Shared:
    """Secrets are dealt."""

    session: bytes
    keys: SessionKeys
    roster: Roster
    seed: bytes
    own: Shares


@final
@dataclass(frozen=True, repr=False)
class Masked:
    """Numbers are sent; what is left are the shares of all dealers' secrets, hers among them."""

    session: bytes
    roster: Roster
    order: bytes
    shares: Mapping[str, Shares]


@final
@dataclass(frozen=True, repr=False)
class Signed:
    """One list of survivors is signed, and no other will be."""

    session: bytes
    roster: Roster
    order: bytes
    shares: Mapping[str, Shares]
    survivors: tuple[str, ...]


State = Idle | Advertised | Shared | Masked | Signed
EXPECTED = {Advertised: "share", Shared: "masked-input", Masked: "consistency", Signed: "unmask"}


def save_state(state: State, name: str) -> bytes:
    """The state of ``name`` as bytes."""
    fields: dict[str, Any] = {"state": type(state).__name__, "name": name}
    if not isinstance(state, Idle):
        fields["session"] = state.session.hex()
    if isinstance(state, Advertised | Shared):
        fields["keys"] = [state.keys.sealing.hex(), state.keys.masking.hex()]
    if isinstance(state, Shared | Masked | Signed):
        fields["roster"] = [
            [a.name, a.sealing.hex(), a.masking.hex(), a.signature.hex()]
            for a in state.roster.adverts
        ]
    if isinstance(state, Shared):
        fields |= {"seed": state.seed.hex(), "own": [share.hex() for share in state.own]}
    if isinstance(state, Masked | Signed):
        held = {dealer: [share.hex() for share in both] for dealer, both in state.shares.items()}
        fields |= {"order": state.order.hex(), "shares": held}
    if isinstance(state, Signed):
        fields["survivors"] = list(state.survivors)
    return pack(fields)


def load_state(data: bytes, name: str, settings: MaskSettings) -> State:
    """What :func:`save_state` wrote for ``name``; :class:`Malformed` if it is anything else."""
    header, _ = read(data, 4096 * settings.participants)
    if header.get("name") != name:
        raise Malformed(f"the state of another participant, not of {name}")
    try:
        return _state(text_in(header, "state"), header, settings)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Malformed(f"no state of a participant ({error})") from None


def _state(kind: str, header: Mapping[str, Any], settings: MaskSettings) -> State:
    if kind == "Idle":
        return Idle()
    session = hex_in(header, "session", _SESSION)
    if kind == "Advertised":
        return Advertised(session, _keys(header))
    rows = [(name, *map(bytes.fromhex, keys)) for name, *keys in header["roster"]]
    roster = Roster(session, settings, tuple(Advert(*row) for row in rows))
    if kind == "Shared":
        own, seed = _shares(header["own"]), bytes.fromhex(header["seed"])
        return Shared(session, _keys(header), roster, seed, own)
    order = bytes.fromhex(header["order"])
    shares = {dealer: _shares(both) for dealer, both in header["shares"].items()}
    if kind == "Masked":
        return Masked(session, roster, order, shares)
    if kind == "Signed":
        return Signed(session, roster, order, shares, tuple(header["survivors"]))
    raise Malformed(f"no state is called {kind}")


def _keys(header: Mapping[str, Any]) -> SessionKeys:
    sealing, masking = header["keys"]
    return SessionKeys(bytes.fromhex(sealing), bytes.fromhex(masking))


def _shares(both: list[str]) -> Shares:
    first, second = both
    return bytes.fromhex(first), bytes.fromhex(second)
