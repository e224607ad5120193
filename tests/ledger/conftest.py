"""A ledger of one's own for every test, with a clock that can be moved."""

from datetime import UTC, datetime, timedelta

import pytest

from sfumato.ledger import Ledger


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.time = datetime(2026, 1, 15, 12, tzinfo=UTC)

    def __call__(self):
        return self.time

    def forward(self, **length):
        self.time += timedelta(**length)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(url, clock):
    opened = Ledger(url, clock=clock)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_ledger(sqlite_url, clock):
    opened = Ledger(sqlite_url, clock=clock)
    yield opened
    opened.close()
