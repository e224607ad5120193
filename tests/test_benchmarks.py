"""Benchmarks that can be asked for a part run what the part is compared with."""

import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def defences():
    spec = importlib.util.spec_from_file_location("two_layer", FOLDER / "two_layer_defences.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(defences, name):
    """Results as the benchmark writes them, for each strength of a defence."""
    attack = {"tensor": 1.0, "polished": 1.0, "picked": 0.5, "least": None, "distances": [1.0]}
    for strength in defences.LADDERS[name]:
        same = {"defence": name, "strength": strength, "seed": 0}
        yield same | {"kind": "attack"} | attack
        for rate in defences.RATES:
            yield same | {"kind": "utility", "rate": rate, "accuracy": 0.9}


def test_a_part_is_run_with_what_it_is_compared_with(defences):
    jobs = list(defences.jobs(Namespace(only=["noise"], seeds=1)))
    assert {name for name, _, _ in jobs} == {"none", "noise"}


def test_tables_are_of_what_ran_alone(defences):
    ran = [*rows(defences, "none"), *rows(defences, "noise")]
    found = defences.summary(ran)
    assert {name for name, _ in found} == {"none", "noise"}
    assert defences.ran(found) == ["noise"]
    with pytest.raises(SystemExit, match="without a defence"):
        defences.summary(list(rows(defences, "noise")))
