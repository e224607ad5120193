"""Answers and requests are JSON: what is stored is what is read back, and nothing else passes."""

import functools
import math

import numpy as np
import pytest

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget


def kinds(ledger):
    return [entry.kind for entry in ledger.history("census")]


@pytest.mark.parametrize(
    "value",
    [{9: 1.5, 10: [2.5]}, {2.5: (1, 2)}, {"b": {True: None}}, {"x": np.arange(2)}, [float(10**22)]],
)
def test_what_is_stored_is_what_json_gives_back(ledger, value):
    ledger.create("census", Budget(1.0))
    with ledger.spend("census", LaplaceEvent(4.0), key="k", request=value) as spending:
        spending.commit(value)
    assert ledger.verify("census").ok, ledger.verify("census").problems
    for asked in (value, spending.answer):  # the same request, before and after
        again = ledger.spend("census", LaplaceEvent(4.0), key="k", request=asked)
        assert again.answer == spending.answer


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (math.nan, "finite numbers"),
        ({"x": [math.inf]}, "finite numbers"),
        (np.array([math.nan]), "finite numbers"),
        ([10**5000], "stores JSON"),
        ({1: "a", "1": "b"}, "keys of one kind"),
        ({(1, 2): 3}, "stores JSON"),
        (functools.reduce(lambda inside, _: [inside], range(900), 1), "at most 100 deep"),
    ],
)
def test_what_json_cannot_hold_is_refused_before_anything_is_written(ledger, value, word):
    ledger.create("census", Budget(1.0))
    with pytest.raises(ValueError, match=word):
        ledger.spend("census", LaplaceEvent(4.0), request=value)
    assert kinds(ledger) == ["open"]
    spending = ledger.spend("census", LaplaceEvent(4.0))
    with pytest.raises(ValueError, match=word):
        spending.commit(value)
    assert kinds(ledger) == ["open", "reserve"]
    spending.commit(7)  # it is still open
    assert ledger.verify("census").ok


def test_an_answer_that_is_not_json_fails_and_stays_charged(ledger):
    ledger.create("census", Budget(1.0))
    with (
        pytest.raises(ValueError, match="stores JSON"),
        ledger.spend("census", LaplaceEvent(2.0)) as spending,
    ):
        spending.commit(object())
    assert kinds(ledger)[-1] == "failed"
    with ledger.spend("census", LaplaceEvent(4.0)) as spending:
        spending.commit({"counts": np.arange(3), "mean": np.float64(0.5)})
    assert ledger.history("census")[-1].data["answer"] == {"counts": [0, 1, 2], "mean": 0.5}
