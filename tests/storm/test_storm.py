"""A slice of every storm; and that storms see what is planted."""

import json

import pytest
from tests.databases import server_programs
from tests.storm.kinds import KINDS
from tests.storm.laws import exact_delta
from tests.storm.slices import check, run, storms
from tests.storm.table import table

from sfumato.accounting import account
from sfumato.core.events import GaussianEvent

SHORT = ["spenders", "clock", "full disk", "read-only disk", "queries"]
LONG = {"postgres": 300, "trainings": 120, "searches": 30, "federations": 60}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """All of them in one interpreter, without fresh ones."""
    return storms(SHORT, 8, tmp_path_factory.mktemp("storms"), "--fresh", 0.0)


@pytest.mark.parametrize("kind", SHORT)
def test_nothing_is_overspent_lost_wrong_or_double(short, kind):
    check(short[kind], 8)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_overspent_lost_wrong_or_double_in_longer_storms(kind, tmp_path):
    if kind == "postgres" and not server_programs():
        pytest.skip("PostgreSQL with ICU is not installed: make setup")
    kills = LONG.get(kind, 200)
    check(storms([kind], kills, tmp_path)[kind], kills)


# --- what is planted is seen --------------------------------------------------------------------

SCRIPT = """
import json, sys
from tests.storm.planted import PLANTED
from tests.storm.run import apart

for plant, kind, kills in json.loads(sys.argv[1]):
    found = apart(kind, 4, kills, {"fresh": 0.0}, PLANTED[plant]).broken
    print(json.dumps({law: words[:3] for law, words in found.items() if words}))
"""
PLANTED = [
    ("late_charge", "lost", 8), ("refund_on_error", "lost", 8), ("stale_gate", "overspent", 25),
    ("forgotten_keys", "double", 12), ("forgotten_answers", "lost", 8),
]  # fmt: skip
ELSEWHERE = [
    ("late_charge", "queries", 30, "lost"), ("forgotten_keys", "queries", 30, "double"),
    ("plans_without_keys", "trainings", 20, "wrong"), ("late_charge", "federations", 60, "lost"),
]  # fmt: skip


def found_of(plants):
    """By which laws each plant was found, all in one interpreter."""
    said = run("-W", "ignore", "-c", SCRIPT, json.dumps(plants)).splitlines()
    return {plant: json.loads(line) for (plant, *_), line in zip(plants, said, strict=True)}


@pytest.fixture(scope="module")
def planted():
    return found_of([(plant, "spenders", kills) for plant, _, kills in PLANTED])


@pytest.mark.parametrize(("plant", "law", "kills"), PLANTED)
def test_what_is_planted_is_seen(planted, plant, law, kills):
    assert law in planted[plant]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "kind", "kills", "law"), ELSEWHERE)
def test_what_is_planted_is_seen_in_other_storms(plant, kind, kills, law):
    assert law in found_of([(plant, kind, kills)])[plant]


# --- parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "count", "epsilon"), [(20.0, 50, 1.5), (12.0, 3, 0.5)])
def test_the_sum_of_what_was_seen_is_exact(sigma, count, epsilon):
    delta = exact_delta(epsilon, count / sigma**2)
    assert account([GaussianEvent(sigma)] * count, delta).epsilon == pytest.approx(
        epsilon, rel=1e-3
    )


def test_logs_are_added_up():
    line = {
        "kind": "spenders", "kills": 1000, "late": 5, "how": {"fork": 990, "call": 8, "fresh": 2},
        "others": 1, "overspent": 0, "lost": 0, "wrong": 0, "double": 0, "minutes": 1.6,
    }  # fmt: skip
    *_, one, everything = table([line, line, line | {"kind": "clock"}]).splitlines()
    assert one.startswith("| clock | 1 | 1,000 | 8 | 2 | 5 | 1 |")
    assert everything == "| all | 3 | 3,000 | 24 | 6 | 15 | 3 | 0 | 0 | 0 | 0 | 5 |"
