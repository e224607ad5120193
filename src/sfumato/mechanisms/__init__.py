"""Noise, and the event it amounts to.

Each mechanism is a frozen dataclass of public facts that knows its event, guarantee and error
before it sees a value, and draws its noise from :mod:`~sfumato.mechanisms.sampling`, whose laws are
exact.
Start with :mod:`~sfumato.mechanisms.laplace`; the shared contract is
:mod:`~sfumato.mechanisms.base`.
"""
