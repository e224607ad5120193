"""Secure sums by homomorphic encryption: the server adds ciphertexts that it cannot read.

    >>> agreed = CkksSettings(length=3, participants=2, bound=10.0)
    >>> keys = CkksKeys.generate()                      # one of them makes it, all of them hold it
    >>> clients = {name: CkksClient(name, keys, agreed) for name in ("ann", "bob")}
    >>> server = CkksServer(keys.public(), agreed).collect(["ann", "bob"])
    >>> messages = next(server)
    >>> try:
    ...     server.send({
    ...         name: clients[name].answer(data, lambda order: np.array([1.0, -2.5, 0.25]))
    ...         for name, data in messages.items()
    ...     })
    ... except StopIteration as ended:
    ...     encrypted = ended.value
    >>> clients["bob"].open(encrypted.data).round(6).tolist()
    [2.0, -5.0, 0.5]

Who learns what
    - The **server** learns who takes part and how many numbers there are. It never sees the sum: a
      :class:`CkksPublic` has no way to decrypt, and :class:`CkksServer` takes nothing else.
    - **Every participant** holds the same secret key and learns the sum.
    - **One participant who colludes with the server opens everything**: one key reads each single
      ciphertext. Where that is to be feared, take masks
      (:mod:`~sfumato.federated.secure.masking`).
    - No differential privacy: noise has to be inside the numbers.

**Decrypted sums stay with the holders of the key.** A CKKS decryption carries the noise of its
encryption, and whoever knows a ciphertext and its decryption to full precision can solve for the
secret key (Li and Micciancio, "On the security of homomorphic encryption on approximate numbers",
EUROCRYPT 2021, eprint 2020/1533). The server has all ciphertexts. So the model that is trained this
way stays with the participants: each opens the encrypted sum and takes the step herself.

The server is taken to follow the protocol. It could return one participant's ciphertext as the
"sum"; the others would open it, and have learnt her numbers, though the server would not.

Parameters: ring dimension 4096 and a modulus of 109 bits (60 + 49), at the 128-bit level of the
homomorphic encryption standard; scale 2^40; additions only, so no further keys are made. 2048
numbers take 65,676 bytes. The error of a sum of ten is about 1e-8 and at most 1e-7, whatever
their size, because the noise is on the scale 2^-40; sums must stay below 2^18.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sfumato.core import validation
from sfumato.federated.secure.ckks_keys import SLOTS, CkksKeys, CkksPublic, CkksSettings
from sfumato.federated.secure.driving import Collecting
from sfumato.federated.secure.masking import Refused, SecureSumFailed
from sfumato.federated.secure.masking_rounds import read
from sfumato.federated.wire import Malformed, pack

__all__ = ["CkksClient", "CkksKeys", "CkksPublic", "CkksServer", "CkksSettings", "EncryptedSum"]

Contribution = Callable[[bytes], NDArray[np.float64]]


@final
@dataclass(frozen=True)
class EncryptedSum:
    """What the server gets, and passes on to the participants.

    Attributes:
        data: for :meth:`CkksClient.open`.
        survivors: whose numbers are in it.
        dropped: who did not answer, and at which stage.
        refused: whose answer was not accepted, and why.
    """

    data: bytes = field(repr=False)
    survivors: Sequence[str]
    dropped: Mapping[str, str]
    refused: Mapping[str, str]


@final
class CkksClient:
    """One participant, who holds the secret key.

    Args:
        name: hers.
        keys: the same for all participants.
        settings: what was agreed.
    """

    def __init__(self, name: str, keys: CkksKeys, settings: CkksSettings) -> None:
        self.name, self._keys, self._settings = validation.name("name", name), keys, settings

    def answer(self, message: bytes, contribution: Contribution) -> bytes:
        """Her numbers, clamped and encrypted.

        Args:
            message: from :meth:`CkksServer.collect`.
            contribution: from the server's order to her numbers, as floats.

        Raises:
            Refused: if the message is none, or asks for another key or another agreement.
        """
        try:
            header, arrays = read(message, self._settings.most_order)
        except Malformed as error:
            raise Refused(str(error)) from None
        order = arrays.get("order")
        if header.get("stage") != "encrypt" or order is None or order.dtype != np.uint8:
            raise Refused("no message of a sum by CKKS")
        if header.get("key") != self._keys.fingerprint:
            raise Refused("the server adds under another key")
        if header.get("settings") != asdict(self._settings):
            raise Refused(f"settings {header.get('settings')} are not those that were agreed")
        values = np.asarray(contribution(order.tobytes()), np.float64)
        if values.shape != (self._settings.length,):
            raise ValueError(
                f"contribution must return {self._settings.length} numbers, got {values.shape}"
            )
        bound = self._settings.bound
        values = np.where(np.isfinite(values), values, 0.0).clip(-bound, bound)
        starts = range(0, self._settings.length, SLOTS)
        chunks = [self._keys.encrypt(values[start : start + SLOTS]) for start in starts]
        place = {"session": header.get("session"), "name": self.name}
        return _pack_chunks(chunks, {**place, "key": self._keys.fingerprint})

    def open(self, data: bytes) -> NDArray[np.float64]:
        """The sum. It stays with the holders of the key.

        Raises:
            Refused: if it is none, or under another key.
        """
        try:
            header, arrays = read(data, self._settings.wire_bytes)
            if header.get("key") != self._keys.fingerprint:
                raise Malformed("a sum under another key")
            chunks = _chunks(arrays, self._settings)
            sizes = self._settings.sizes()
            return np.concatenate(
                [self._keys.decrypt(c, size) for c, size in zip(chunks, sizes, strict=True)]
            )
        except Malformed as error:
            raise Refused(str(error)) from None


@final
class CkksServer:
    """Adds ciphertexts. It is given the public half and can do no more.

    Args:
        public: of the participants' key.
        settings: what was agreed.
    """

    def __init__(self, public: CkksPublic, settings: CkksSettings) -> None:
        if not isinstance(public, CkksPublic):
            raise TypeError("public must be CkksPublic: a server never holds the secret key")
        self._public, self._settings = public, settings

    def collect(
        self, participants: Sequence[str], order: bytes = b"", *, least: int = 2
    ) -> Collecting[EncryptedSum]:
        """One encrypted sum, in one stage.

        Args:
            participants: whom to ask.
            order: goes to each one's contribution.
            least: how many must answer for there to be a sum; 2 or above.

        Raises:
            SecureSumFailed: if fewer answer.
        """
        names, settings = sorted(set(participants)), self._settings
        least = validation.at_least("least", least, 2)
        if len(names) < len(participants) or len(names) > settings.participants:
            raise ValueError(
                f"participants must be different, and {settings.participants} at most, "
                f"got {len(participants)}"
            )
        return self._run(names, order, least)

    def _run(self, names: Sequence[str], order: bytes, least: int) -> Collecting[EncryptedSum]:
        session, key, settings = os.urandom(32).hex(), self._public.fingerprint, self._settings
        header = {"stage": "encrypt", "session": session, "key": key, "settings": asdict(settings)}
        message = pack(header, {"order": np.frombuffer(order, np.uint8)})
        replies = yield dict.fromkeys(names, message)
        dropped = {name: "encrypt" for name in names if replies.get(name) is None}
        refused: dict[str, str] = {}
        totals: list[Any] | None = None
        survivors: list[str] = []
        for name in names:
            if name in dropped:
                continue
            try:
                loaded = self._loaded(replies[name], {"session": session, "name": name})
            except Malformed as error:
                refused[name] = f"encrypt: {error}"
                continue
            totals = (
                loaded if totals is None else [a + b for a, b in zip(totals, loaded, strict=True)]
            )
            survivors.append(name)
        if totals is None or len(survivors) < least:
            text = f"no secure sum: only {len(survivors)} participants remain, {least} are needed"
            raise SecureSumFailed(text, dropped, refused)
        data = _pack_chunks([total.serialize() for total in totals], {"key": key})
        return EncryptedSum(data, tuple(survivors), dropped, refused)

    def add(self, one: bytes, two: bytes) -> bytes:
        """The sum of two sums, such as all rounds so far and the latest.

        Raises:
            Refused: if one is none, or under another key.
        """
        try:
            pairs = zip(self._loaded(one, {}), self._loaded(two, {}), strict=True)
            totals = [a + b for a, b in pairs]
        except Malformed as error:
            raise Refused(str(error)) from None
        chunks = [total.serialize() for total in totals]
        return _pack_chunks(chunks, {"key": self._public.fingerprint})

    def _loaded(self, data: bytes, place: Mapping[str, str]) -> list[Any]:
        header, arrays = read(data, self._settings.wire_bytes)
        if header.get("key") != self._public.fingerprint:
            raise Malformed("encrypted under another key")
        if any(header.get(key) != value for key, value in place.items()):
            raise Malformed("an answer to something else, or of someone else")
        chunks = _chunks(arrays, self._settings)
        sizes = self._settings.sizes()
        return [self._public.load(c, size) for c, size in zip(chunks, sizes, strict=True)]


def _pack_chunks(chunks: Sequence[bytes], header: Mapping[str, Any]) -> bytes:
    return pack(
        header, {f"chunk{i}": np.frombuffer(chunk, np.uint8) for i, chunk in enumerate(chunks)}
    )


def _chunks(arrays: Mapping[str, NDArray[Any]], settings: CkksSettings) -> list[bytes]:
    held = [arrays.get(f"chunk{i}") for i in range(settings.chunks)]
    if len(arrays) != len(held) or not all(c is not None and c.dtype == np.uint8 for c in held):
        raise Malformed(f"a message without {settings.chunks} ciphertexts")
    return [chunk.tobytes() for chunk in held if chunk is not None]
