"""All participants in this process: for tests, and for simulations of a few hundred of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import final

from sfumato.federated.exchange import Participant, Reply

__all__ = ["InProcess"]


@final
class InProcess:
    """An engine whose participants are objects; they answer in turn.

    Args:
        members: by name. May be changed between exchanges, to let some come and go.
    """

    def __init__(self, members: Mapping[str, Participant]) -> None:
        self.members = dict(members)

    @property
    def private(self) -> bool:
        """Whether nobody draws noise or lots by seeded coins, as far as can be seen from here."""
        coins = [getattr(member, "coins", None) for member in self.members.values()]
        return all(each is None or each.private for each in coins)

    def participants(self) -> Sequence[str]:
        """All of them."""
        return list(self.members)

    def exchange(self, messages: Mapping[str, bytes], *, timeout: float = 600.0) -> Iterator[Reply]:
        """One after the other; an exception is a participant that dropped out."""
        for name, message in messages.items():
            member = self.members.get(name)
            if member is None:
                yield Reply(name, None, "not there")
                continue
            try:
                yield Reply(name, member.answer(message))
            except Exception as error:  # whatever it is, it is hers alone
                yield Reply(name, None, f"{type(error).__name__}: {error}")
