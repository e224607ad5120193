"""A participant's side of a secure sum by masks: five stages, bytes in and bytes out.

    >>> from sfumato.federated.secure.keys import Directory, IdentityKey
    >>> from sfumato.federated.secure.masking import MaskSettings
    >>> from sfumato.federated.secure.masking_server import MaskingServer
    >>> keys = {name: IdentityKey.generate() for name in ("ann", "bob", "eve")}
    >>> directory = Directory({name: key.public for name, key in keys.items()})
    >>> agreed = MaskSettings(length=2, threshold=2, participants=3)
    >>> clients = {name: MaskingClient(name, key, directory, agreed) for name, key in keys.items()}
    >>> server = MaskingServer(directory, agreed).collect(list(keys))
    >>> messages = next(server)
    >>> try:
    ...     while True:
    ...         messages = server.send({
    ...             name: clients[name].answer(data, lambda order: np.array([1, 10], np.uint64))
    ...             for name, data in messages.items()
    ...         })
    ... except StopIteration as ended:
    ...     ended.value.total.tolist()
    [3, 30]

Between stages :meth:`MaskingClient.to_bytes` and :meth:`MaskingClient.from_bytes` carry the state
from one process to the next. Who learns what is in :mod:`~sfumato.federated.secure.masking`.

She refuses: another agreement than hers; a session or a stage that she answered before; a stage out
of turn; names that are not in her directory, signatures that are not theirs, keys that are there
twice or of small order; fewer partners, survivors or signatures than the threshold, or more
partners than agreed; shares that do not open; survivors who dealt no shares, or without herself.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.federated.secure.keys import Advert, Directory, IdentityKey, SessionKeys
from sfumato.federated.secure.masking import MaskSettings, Refused
from sfumato.federated.secure.masking_rounds import (
    KEY_SHARE,
    ROOM,
    SEALED_BYTES,
    SELF_SHARE,
    Roster,
    Shares,
    hex_in,
    names_in,
    octets,
    octets_in,
    order_hash,
    read,
    sign_answer,
    text_in,
)
from sfumato.federated.secure.masking_state import (
    EXPECTED,
    Advertised,
    Idle,
    Masked,
    Shared,
    Signed,
    State,
    load_state,
    save_state,
)
from sfumato.federated.secure.residues import Residues, add_mask, pack_residues, reduce
from sfumato.federated.secure.sessions import MemoryLog, StageLog
from sfumato.federated.secure.shamir import SHARE_BYTES, split
from sfumato.federated.wire import Malformed

__all__ = ["Contribution", "MaskingClient"]

Contribution = Callable[[bytes], Residues]
"""From the server's order to the numbers that are to be added; called once, when all is checked."""

_Header = Mapping[str, Any]
_Arrays = Mapping[str, NDArray[Any]]
_Reply = tuple[State, dict[str, Any], dict[str, NDArray[Any]]]
_Before = TypeVar("_Before", Advertised, Shared, Masked, Signed)


@final
class MaskingClient:
    """One participant. Not for two sessions at once: a new one ends the one before.

    A message that comes out of turn, or again, is refused and changes nothing. One that comes in
    turn and is wrong ends the session: its secrets are forgotten.

    Args:
        name: as in the directory.
        identity: her key.
        directory: of all participants; hers, not the server's.
        settings: what was agreed; a session with other settings is refused.
        log: what she has answered before. In memory by default; if processes come and go, give a
            :class:`~sfumato.federated.secure.sessions.FolderLog`.
    """

    def __init__(
        self,
        name: str,
        identity: IdentityKey,
        directory: Directory,
        settings: MaskSettings,
        *,
        log: StageLog | None = None,
    ) -> None:
        if not directory.verify(name, identity.sign("self", name), "self", name):
            raise ValueError(f"identity must be the key of {name!r} in the directory, it is not")
        self.name, self.settings = name, settings
        self._identity, self._directory = identity, directory
        self._log: StageLog = MemoryLog() if log is None else log
        self._state: State = Idle()

    def to_bytes(self) -> bytes:
        """The session's state, with its secrets, without the identity key."""
        return save_state(self._state, self.name)

    @classmethod
    def from_bytes(
        cls,
        state: bytes,
        name: str,
        identity: IdentityKey,
        directory: Directory,
        settings: MaskSettings,
        *,
        log: StageLog,
    ) -> Self:
        """The participant whose state :meth:`to_bytes` wrote; ``log`` must be the same, too."""
        client = cls(name, identity, directory, settings, log=log)
        client._state = load_state(state, name, settings)
        return client

    def answer(self, message: bytes, contribution: Contribution) -> bytes:
        """Whatever stage the message is of. A refusal is an answer, too, and is signed.

        Raises:
            Refused: only if the message is of no session, so that there is nobody to tell.
        """
        header, _ = self._read(message)
        stage, session = header.get("stage"), str(header.get("session"))
        stages: dict[str, Callable[[bytes], bytes]] = {
            "advertise": self.advertise,
            "share": self.share,
            "masked-input": lambda message: self.masked_input(message, contribution),
            "consistency": self.consistency,
            "unmask": self.unmask,
        }
        if not isinstance(stage, str) or stage not in stages:
            raise Refused(f"no stage is called {stage!r}")
        try:
            return stages[stage](message)
        except Refused as refusal:
            try:
                place = bytes.fromhex(session), stage, self.name
            except ValueError:
                raise refusal from None
            return sign_answer(self._identity, place, {"refusal": str(refusal)})

    def advertise(self, message: bytes) -> bytes:
        """Makes fresh keys for a session never seen before."""
        header, _ = self._read(message)
        session = self._place(header, "advertise")
        if header.get("settings") != self.settings.facts():
            raise Refused(f"settings {header.get('settings')} are not those that were agreed")
        self._admit(session, "advertise")
        keys = SessionKeys.generate()
        advert = keys.advert(self._identity, session, self.name)
        self._state = Advertised(session, keys)
        arrays = {
            "sealing": octets([advert.sealing], 32),
            "masking": octets([advert.masking], 32),
            "signature": octets([advert.signature], 64),
        }
        return sign_answer(self._identity, (session, "advertise", self.name), {}, arrays)

    def share(self, message: bytes) -> bytes:
        """Checks everyone's keys; deals shares of her masking key and of her own mask's seed."""
        return self._turn(message, Advertised, self._share)

    def masked_input(self, message: bytes, contribution: Contribution) -> bytes:
        """Opens the shares of others, then asks for her numbers and sends them masked."""

        def work(state: Shared, header: _Header, arrays: _Arrays) -> _Reply:
            return self._masked_input(state, header, arrays, contribution)

        return self._turn(message, Shared, work)

    def consistency(self, message: bytes) -> bytes:
        """Signs the list of survivors, if she is on it and all of them dealt shares."""
        return self._turn(message, Masked, self._consistency)

    def unmask(self, message: bytes) -> bytes:
        """Opens one share for each dealer, once enough others have signed the same list."""
        return self._turn(message, Signed, self._unmask)

    # What happens at each stage: state and message in, next state and answer out.

    def _share(self, state: Advertised, header: _Header, arrays: _Arrays) -> _Reply:
        roster = self._roster(state, header, arrays)
        seed, number = os.urandom(32), len(roster.names)
        dealt = [
            split(secret, threshold=self.settings.threshold, count=number)
            for secret in (state.keys.masking, seed)
        ]
        shares: dict[str, Shares] = {
            name: (ours.to_bytes(), others.to_bytes())
            for name, ours, others in zip(roster.names, *dealt, strict=True)
        }
        sealed = [
            roster.seal(
                state.keys.shared(advert.sealing, masking=False), self.name, name, shares[name]
            )
            for name, advert in roster.by_name.items()
            if name != self.name
        ]
        commitments = [
            roster.commitment(share, self.name, name, kind)
            for name, both in shares.items()
            for kind, share in enumerate(both)
        ]
        sent = {
            "sealed": octets(sealed, number - 1, SEALED_BYTES),
            "commitments": octets(commitments, number, 2, 32),
            "check": octets([roster.seed_check(seed, self.name)], 32),
        }
        return Shared(state.session, state.keys, roster, seed, shares[self.name]), {}, sent

    def _masked_input(
        self, state: Shared, header: _Header, arrays: _Arrays, contribution: Contribution
    ) -> _Reply:
        order = arrays.get("order")
        if order is None or order.dtype != np.uint8 or order.ndim != 1:
            raise Refused("a message without order")
        if order.size > self.settings.most_order:
            raise Refused(f"an order of {order.size} bytes, at most {self.settings.most_order}")
        shares = self._open_shares(state, header, arrays)
        text = order.tobytes()
        total = self._numbers(contribution(text))
        hashed, roster = order_hash(text, shares), state.roster
        add_mask(total, roster.self_key(state.seed, self.name), self.settings.bits)
        for partner in shares:
            if partner != self.name:
                theirs = roster.by_name[partner].masking
                shared = state.keys.shared(theirs, masking=True)
                key = roster.pair_key(shared, self.name, partner, hashed)
                add_mask(total, key, self.settings.bits, negative=self.name > partner)
        packed = pack_residues(reduce(total, self.settings.bits), self.settings.bits)
        sent = {"masked": packed, "context": octets([hashed], 32)}
        return Masked(state.session, roster, hashed, shares), {}, sent

    def _consistency(self, state: Masked, header: _Header, arrays: _Arrays) -> _Reply:
        survivors = names_in(header, "survivors")
        if not set(survivors) <= set(state.shares):
            raise Refused("survivors of whom she has no shares")
        if self.name not in survivors:
            raise Refused("survivors without her, although her numbers were sent")
        self._enough("survivors", len(survivors))
        statement = state.roster.survivors_statement(state.order, survivors)
        signature = self._identity.sign("survivors", *statement)
        after = Signed(state.session, state.roster, state.order, state.shares, survivors)
        return after, {}, {"signature": octets([signature], 64)}

    def _unmask(self, state: Signed, header: _Header, arrays: _Arrays) -> _Reply:
        signers = names_in(header, "signers")
        self._enough("signatures of the list of survivors", len(signers))
        if not set(signers) <= set(state.survivors):
            raise Refused("signatures of others than the survivors")
        statement = state.roster.survivors_statement(state.order, state.survivors)
        signatures = octets_in(arrays, "signatures", (len(signers), 64))
        for name, row in zip(signers, signatures, strict=True):
            if not self._directory.verify(name, row.tobytes(), "survivors", *statement):
                raise Refused(f"{name} has not signed the same list of survivors and order")
        # One share for each dealer: which of the two is decided here, and nowhere else.
        chosen = {
            dealer: both[SELF_SHARE if dealer in state.survivors else KEY_SHARE]
            for dealer, both in sorted(state.shares.items())
        }
        return Idle(), {}, {"shares": octets(chosen.values(), len(chosen), SHARE_BYTES)}

    # What several stages need.

    def _turn(
        self,
        message: bytes,
        expected: type[_Before],
        work: Callable[[_Before, _Header, _Arrays], _Reply],
    ) -> bytes:
        header, arrays = self._read(message)
        stage, state = EXPECTED[expected], self._state
        session = self._place(header, stage)
        if not isinstance(state, expected) or state.session != session:
            raise Refused(f"it is not the turn of {stage}, or of this session")
        self._admit(session, stage)
        self._state = Idle()  # for good, should anything go wrong
        try:
            self._state, reply, sent = work(state, header, arrays)
        except Malformed as error:
            raise Refused(str(error)) from None
        return sign_answer(self._identity, (session, stage, self.name), reply, sent)

    def _read(self, message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        try:
            return read(message, self.settings.most_order + ROOM * self.settings.participants)
        except Malformed as error:
            raise Refused(str(error)) from None

    def _place(self, header: _Header, stage: str) -> bytes:
        try:
            if text_in(header, "stage") != stage:
                raise Malformed(f"a message of stage {header['stage']}, not {stage}")
            return hex_in(header, "session", 32)
        except Malformed as error:
            raise Refused(str(error)) from None

    def _admit(self, session: bytes, stage: str) -> None:
        if not self._log.admit(session, stage):
            raise Refused(f"stage {stage} of this session was answered before: a replay")

    def _enough(self, what: str, number: int) -> None:
        if number < self.settings.threshold:
            raise Refused(f"only {number} {what}, the threshold is {self.settings.threshold}")

    def _roster(self, state: Advertised, header: _Header, arrays: _Arrays) -> Roster:
        names = names_in(header, "names")
        keys = octets_in(arrays, "keys", (len(names), 128))
        adverts = [
            Advert(name, row[:32].tobytes(), row[32:64].tobytes(), row[64:].tobytes())
            for name, row in zip(names, keys, strict=True)
        ]
        roster = Roster(state.session, self.settings, tuple(adverts))
        if fault := roster.fault(self._directory):
            raise Refused(fault)
        mine = state.keys.advert(self._identity, state.session, self.name)
        if roster.by_name.get(self.name) != mine:
            raise Refused("a roster without her keys")
        return roster

    def _open_shares(self, state: Shared, header: _Header, arrays: _Arrays) -> dict[str, Shares]:
        """The shares of all dealers. Any that does not open ends it: its dealer is not here."""
        dealers, roster = names_in(header, "dealers"), state.roster
        self._enough("participants dealt shares", len(dealers))
        if self.name not in dealers or not set(dealers) <= set(roster.names):
            raise Refused("dealers that are not on the roster, or without her")
        others = [name for name in dealers if name != self.name]
        sealed = octets_in(arrays, "sealed", (len(others), SEALED_BYTES))
        commitments = octets_in(arrays, "commitments", (len(others), 2, 32))
        shares: dict[str, Shares] = {self.name: state.own}
        for dealer, row, known in zip(others, sealed, commitments, strict=True):
            shared = state.keys.shared(roster.by_name[dealer].sealing, masking=False)
            both = roster.open(shared, dealer, self.name, row.tobytes())
            for kind, share in enumerate(both):
                if roster.commitment(share, dealer, self.name, kind) != known[kind].tobytes():
                    raise Refused(f"shares of {dealer} that are not those that were promised")
            shares[dealer] = both
        return shares

    def _numbers(self, values: Residues) -> Residues:
        if values.dtype != np.uint64 or values.shape != (self.settings.length,):
            raise ValueError(
                f"contribution must return {self.settings.length} numbers of type uint64, "
                f"got {values.dtype} {values.shape}"
            )
        return values.copy()
