"""The same key returns the stored answer, never fresh noise."""

import pytest

from sfumato.core.events import LaplaceEvent
from sfumato.ledger import Budget, LedgerError

EVENT = LaplaceEvent(4.0)


@pytest.fixture
def census(ledger):
    ledger.create("census", Budget(1.0))
    return ledger


def test_the_stored_answer_comes_back_and_nothing_is_charged(census):
    with census.spend("census", EVENT, key="k", request={"b": 1, "a": 2}) as spending:
        spending.commit([1.5, None])
    head = census.head("census")
    with census.spend("census", EVENT, key="k", request={"a": 2, "b": 1}) as again:
        assert again.repeated
        assert again.answer == [1.5, None]
        assert again.cost == 0.0
        assert again.left == 0.75
        with pytest.raises(LedgerError, match=r"return spending\.answer"):
            again.commit(7)
        with pytest.raises(LedgerError, match=r"return spending\.answer"):
            again.stop_after(1, "fixed plan")
    assert census.head("census") == head


def test_even_when_the_budget_is_used_up(census):
    with census.spend("census", EVENT, key="k") as spending:
        spending.commit(9)
    with census.spend("census", LaplaceEvent(4 / 3)):
        pass
    with census.spend("census", EVENT, key="k") as again:
        assert again.answer == 9


@pytest.mark.parametrize(
    "change",
    [
        {"event": LaplaceEvent(5.0)},
        {"request": {"q": 2}},
        {"analyst": "bob"},
    ],
)
def test_another_request_with_the_same_key_is_an_error(census, change):
    first = {"event": EVENT, "request": {"q": 1}, "analyst": "ann"}
    with census.spend("census", key="k", **first) as spending:
        spending.commit("only ann's")
    with pytest.raises(LedgerError, match=r"key 'k' was used for another request \(entry 2"):
        census.spend("census", key="k", **(first | change))


@pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1.0, 1), ([{"a": 0}], [{"a": -0.0}])])
def test_whole_numbers_are_the_same_however_they_are_written(census, one, other):
    """Also against what earlier versions stored: entries and their digests are as they were."""
    with census.spend("census", EVENT, key="k", request={"epsilon": one}) as spending:
        spending.commit(7)
    with census.spend("census", EVENT, key="k", request={"epsilon": other}) as again:
        assert again.answer == 7
    assert census.verify("census").ok


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, "1"), (0.5, 0), (2**53, 2.0**53 + 2)])
def test_other_values_are_another_request(census, one, other):
    with census.spend("census", EVENT, key="k", request=[one]) as spending:
        spending.commit(7)
    with pytest.raises(LedgerError, match="another request"):
        census.spend("census", EVENT, key="k", request=[other])


def test_a_key_that_was_charged_without_an_answer_says_so(census):
    census.spend("census", EVENT, key="open")
    with pytest.raises(ZeroDivisionError), census.spend("census", EVENT, key="failed"):
        raise ZeroDivisionError
    for key in ("open", "failed"):
        with pytest.raises(LedgerError, match=r"was charged .* but has no answer.*Use a new key"):
            census.spend("census", EVENT, key=key)
    assert census.status("census").left == 0.5


def test_keys_are_a_datasets_own(census):
    census.create("other", Budget(1.0))
    for name in ("census", "other"):
        with census.spend(name, EVENT, key="k") as spending:
            assert not spending.repeated
            spending.commit(name)


def test_without_a_key_every_request_is_new(census):
    for _ in range(2):
        with census.spend("census", EVENT, request={"q": 1}) as spending:
            assert not spending.repeated
    assert census.status("census").left == 0.5
