"""The server's side of a secure sum by masks: a generator that yields messages and gets answers.

It knows no secret and no transport. Whoever carries its messages sends back what came:

    server = MaskingServer(directory, agreed).collect(["ann", "bob", "eve"], order=model)
    messages = next(server)                # {"ann": b"...", ...}
    messages = server.send(answers)        # those that came; and so on, until StopIteration(result)

:func:`~sfumato.federated.secure.driving.drive` does this over an engine. One participant's fault,
silence or lie costs her part of the sum, or nothing; the sum fails only if fewer than the threshold
remain, or if a dealer's shares do not fit together, which names her.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from sfumato.federated.secure.driving import Collecting
from sfumato.federated.secure.keys import Advert, Directory, agree, public_half
from sfumato.federated.secure.masking import MaskSettings, SecureSum, SecureSumFailed
from sfumato.federated.secure.masking_rounds import (
    KEY_SHARE,
    ROOM,
    SEALED_BYTES,
    SELF_SHARE,
    Roster,
    octets,
    octets_in,
    open_answer,
    order_hash,
)
from sfumato.federated.secure.residues import Residues, add_mask, reduce, unpack_residues
from sfumato.federated.secure.shamir import SHARE_BYTES, Share, join
from sfumato.federated.wire import Malformed, pack

__all__ = ["MaskingServer"]

_Octets = NDArray[np.uint8]
_Dealt = tuple[_Octets, _Octets, bytes]  # sealed shares, commitments, check of the seed
_Parsed = TypeVar("_Parsed")


@final
class MaskingServer:
    """Collects sums; each :meth:`collect` is one session.

    Args:
        directory: of all participants.
        settings: what was agreed.
    """

    def __init__(self, directory: Directory, settings: MaskSettings) -> None:
        self._directory, self._settings = directory, settings

    def collect(
        self, participants: Sequence[str], order: bytes = b"", *, session: bytes | None = None
    ) -> Collecting[SecureSum]:
        """One sum.

        Args:
            participants: whom to ask; those who are not in the directory are refused.
            order: goes to each one's contribution; the same for all, or the sum does not open.
            session: 32 bytes that were never used before; fresh by default.

        Raises:
            SecureSumFailed: if there is no sum. Nothing is learnt then.
        """
        names = sorted(set(participants))
        if len(names) < len(participants):
            raise ValueError("participants must be different, one is there twice")
        if len(names) > self._settings.participants:
            raise ValueError(
                f"participants must be at most {self._settings.participants}, as was agreed, "
                f"got {len(names)}"
            )
        if len(order) > self._settings.most_order:
            raise ValueError(f"order must have at most {self._settings.most_order} bytes")
        session = os.urandom(32) if session is None else session
        return _Session(self._directory, self._settings, session).run(names, order)


class _Session:
    def __init__(self, directory: Directory, settings: MaskSettings, session: bytes) -> None:
        self.directory, self.settings, self.session = directory, settings, session
        self.dropped: dict[str, str] = {}
        self.refused: dict[str, str] = {}

    def run(self, names: Sequence[str], order: bytes) -> Collecting[SecureSum]:
        """All five stages."""
        known = [name for name in names if name in self.directory]
        self.refused |= {name: "not in the directory" for name in names if name not in known}
        self.enough(known)
        opening = self.message("advertise", {"settings": self.settings.facts()})
        replies = yield dict.fromkeys(known, opening)
        adverts = self.distinct(self.accept("advertise", known, replies, self.advert))
        roster = Roster(self.session, self.settings, tuple(adverts.values()))

        keys = [a.sealing + a.masking + a.signature for a in roster.adverts]
        told = {"keys": octets(keys, len(keys), 128)}
        replies = yield dict.fromkeys(
            roster.names, self.message("share", {"names": list(roster.names)}, told)
        )
        dealt = self.accept("share", roster.names, replies, lambda _, a: _dealt(a, roster))

        told_all = order_hash(order, dealt)
        replies = yield {name: self.asking(name, roster, dealt, order) for name in dealt}
        total = np.zeros(self.settings.length, np.uint64)
        # Added as they are read: no participant's numbers are kept, masked or not.
        survivors = list(
            self.accept(
                "masked-input", list(dealt), replies, lambda _, a: self.add(total, a, told_all)
            )
        )

        listed = self.message("consistency", {"survivors": survivors})
        replies = yield dict.fromkeys(survivors, listed)
        statement = roster.survivors_statement(told_all, survivors)
        signed = self.accept(
            "consistency", survivors, replies, lambda name, a: self.signature(name, a, statement)
        )

        signatures = {"signatures": octets(signed.values(), len(signed), 64)}
        proof = self.message("unmask", {"signers": list(signed)}, signatures)
        replies = yield dict.fromkeys(signed, proof)
        opened = self.accept(
            "unmask", list(signed), replies, lambda n, a: _opened(n, a, roster, dealt, survivors)
        )
        self.unmask(total, roster, dealt, survivors, told_all, opened)
        bits = self.settings.bits
        return SecureSum(reduce(total, bits), tuple(survivors), self.dropped, self.refused)

    def message(
        self, stage: str, header: Mapping[str, Any], arrays: Mapping[str, _Octets] | None = None
    ) -> bytes:
        return pack({**header, "stage": stage, "session": self.session.hex()}, arrays)

    def accept(
        self,
        stage: str,
        asked: Sequence[str],
        replies: Mapping[str, bytes],
        parse: Callable[[str, Mapping[str, NDArray[Any]]], _Parsed],
    ) -> dict[str, _Parsed]:
        """The answers that are right, in the order of names. The others' owners are noted."""
        most = self.settings.wire_bytes + ROOM * self.settings.participants
        parsed: dict[str, _Parsed] = {}
        for name in asked:
            data = replies.get(name)
            if data is None:
                self.dropped[name] = stage
                continue
            try:
                _, arrays = open_answer(self.directory, (self.session, stage, name), data, most)
                parsed[name] = parse(name, arrays)
            except Malformed as error:
                self.refused[name] = f"{stage}: {error}"
        self.enough(list(parsed))
        return parsed

    def enough(self, remaining: Sequence[str]) -> None:
        if len(remaining) < self.settings.threshold:
            raise self.failed(
                f"only {len(remaining)} participants remain, {self.settings.threshold} are needed"
            )

    def failed(self, text: str) -> SecureSumFailed:
        return SecureSumFailed(f"no secure sum: {text}", self.dropped, self.refused)

    def advert(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> Advert:
        sealing, masking = (
            octets_in(arrays, key, (32,)).tobytes() for key in ("sealing", "masking")
        )
        advert = Advert(name, sealing, masking, octets_in(arrays, "signature", (64,)).tobytes())
        if fault := advert.fault(self.directory, self.session):
            raise Malformed(fault)
        return advert

    def distinct(self, adverts: Mapping[str, Advert]) -> dict[str, Advert]:
        """Without those who use a key that is another's, or twice. Nobody has one by accident."""
        used = [key for a in adverts.values() for key in (a.sealing, a.masking)]
        kept: dict[str, Advert] = {}
        for name, advert in adverts.items():
            if used.count(advert.sealing) > 1 or used.count(advert.masking) > 1:
                self.refused[name] = "advertise: a session key that is there twice"
            else:
                kept[name] = advert
        self.enough(list(kept))
        return kept

    def asking(self, name: str, roster: Roster, dealt: Mapping[str, _Dealt], order: bytes) -> bytes:
        """The message of the masked-input stage: what all others dealt to her, and the order."""
        others = [dealer for dealer in dealt if dealer != name]
        place = roster.index(name) - 1
        sealed = [dealt[d][0][place - (roster.index(d) <= place)].tobytes() for d in others]
        known = [dealt[d][1][place].tobytes() for d in others]
        arrays = {
            "sealed": octets(sealed, len(others), SEALED_BYTES),
            "commitments": octets(known, len(others), 2, 32),
            "order": np.frombuffer(order, np.uint8),
        }
        return self.message("masked-input", {"dealers": list(dealt)}, arrays)

    def add(self, total: Residues, arrays: Mapping[str, NDArray[Any]], told_all: bytes) -> None:
        if octets_in(arrays, "context", (32,)).tobytes() != told_all:
            raise Malformed("had another order, or other partners")
        packed = octets_in(arrays, "masked", (self.settings.wire_bytes,))
        total += unpack_residues(packed, self.settings.length, self.settings.bits)

    def signature(
        self, name: str, arrays: Mapping[str, NDArray[Any]], statement: Sequence[bytes | str]
    ) -> bytes:
        signature = octets_in(arrays, "signature", (64,)).tobytes()
        if not self.directory.verify(name, signature, "survivors", *statement):
            raise Malformed("signed another list of survivors, or had another order")
        return signature

    def unmask(
        self,
        total: Residues,
        roster: Roster,
        dealt: Mapping[str, _Dealt],
        survivors: Sequence[str],
        order: bytes,
        opened: Mapping[str, Mapping[str, Share]],
    ) -> None:
        """Takes off the survivors' own masks, and those that they share with the dropped."""
        for dealer in dealt:
            secret = self.secret(dealer, [shares[dealer] for shares in opened.values()])
            if dealer in survivors:
                if roster.seed_check(secret, dealer) != dealt[dealer][2]:
                    raise self.failed(f"{dealer} dealt shares that do not fit together")
                key = roster.self_key(secret, dealer)
                add_mask(total, key, self.settings.bits, negative=True)
                continue
            if public_half(secret) != roster.by_name[dealer].masking:
                raise self.failed(f"{dealer} dealt shares that do not fit together")
            for name in survivors:
                shared = agree(secret, roster.by_name[name].masking)
                key = roster.pair_key(shared, name, dealer, order)
                add_mask(total, key, self.settings.bits, negative=name < dealer)

    def secret(self, dealer: str, shares: Sequence[Share]) -> bytes:
        try:
            return join(shares, threshold=self.settings.threshold)
        except ValueError:
            raise self.failed(f"{dealer} dealt shares that do not fit together") from None


def _dealt(arrays: Mapping[str, NDArray[Any]], roster: Roster) -> _Dealt:
    number = len(roster.names)
    sealed = octets_in(arrays, "sealed", (number - 1, SEALED_BYTES))
    commitments = octets_in(arrays, "commitments", (number, 2, 32))
    return sealed, commitments, octets_in(arrays, "check", (32,)).tobytes()


def _opened(
    name: str,
    arrays: Mapping[str, NDArray[Any]],
    roster: Roster,
    dealt: Mapping[str, _Dealt],
    survivors: Sequence[str],
) -> dict[str, Share]:
    """One share of each dealer, checked against what the dealer promised."""
    rows, index = octets_in(arrays, "shares", (len(dealt), SHARE_BYTES)), roster.index(name)
    shares: dict[str, Share] = {}
    for dealer, row in zip(dealt, rows, strict=True):
        kind = SELF_SHARE if dealer in survivors else KEY_SHARE
        known = dealt[dealer][1][index - 1, kind].tobytes()
        if roster.commitment(row.tobytes(), dealer, name, kind) != known:
            raise Malformed(f"a share of {dealer}'s secret that is not the one dealt")
        try:
            shares[dealer] = Share.from_bytes(index, row.tobytes())
        except ValueError as error:
            raise Malformed(str(error)) from None
    return shares
