"""Every kind of run that resumes, copied in the middle and continued in both places.

In every order, cut off wherever, and with both places at work at once: the lots (steps, pieces of
labels, candidates, answers, rounds) that were run never exceed those that were charged for, one
place at most comes to the end, and who was refused is refused whenever he tries again.
"""

import itertools
from pathlib import Path

import pytest
import torch
from tests.runs import RUNS

ORDERS = ["".join(order) for n in (1, 2, 3) for order in itertools.product("ab", repeat=n)]
SOME = ["ab", "ba", "abab", "baab"]


@pytest.fixture(params=RUNS)
def kind(request, tmp_path, monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    made = RUNS[request.param](Path(tmp_path), monkeypatch)
    yield made
    assert made.ledger.verify("people").ok
    made.ledger.close()
    torch.set_num_threads(threads)


def check(kind, order):
    """Two lots each in this order, then both to the end, twice."""
    assert kind.go_on("a", 2) == "cut off"
    kind.copy()
    told = {"a": [], "b": []}
    for place in order:
        told[place].append(kind.go_on(place, 1))
    for place in ("a", "b") * 2:
        told[place].append(kind.go_on(place))
    assert kind.read() <= kind.lots
    gone, other = order[0], "ba"[order[0] == "b"]
    assert "refused" not in told[gone][: order.count(gone)]
    assert set(told[other]) == {"refused"}, told


@pytest.mark.parametrize("order", SOME)
def test_copied_and_continued_in_both_places(kind, order):
    check(kind, order)


@pytest.mark.slow
@pytest.mark.parametrize("order", sorted({*ORDERS} - {*SOME}))
def test_copied_and_continued_in_both_places_in_every_order(kind, order):
    check(kind, order)


@pytest.mark.parametrize("gone", ["a", "b"])
def test_both_places_at_work_at_once(kind, gone):
    """Copied while a lot of the first place is at work; then either goes on first."""
    done = []

    def inside():
        if kind.run != 2 or done:
            return
        done.append("copied")
        kind.copy()
        if gone == "b":
            done.append(kind.go_on("b", 2))

    kind.inside = inside
    first = kind.go_on("a", 4)
    assert first == ("refused" if gone == "b" else "cut off")
    second = kind.go_on("b")
    assert second == ("refused" if gone == "a" else "ended")
    for place in ("a", "b"):
        kind.go_on(place)
    assert kind.read() <= kind.lots
