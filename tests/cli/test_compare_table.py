"""What ``sfumato compare`` shows on narrow and wide screens."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from sfumato.cli.compare_table import _table
from sfumato.core.guarantee import Guarantee
from sfumato.core.neighbours import Neighbours
from sfumato.learning.comparing.summary import Row

PRICES = (1.0, 3.0, 10.0, 30.0, 100.0)


def compared():
    rows = [
        Row(method, group, epsilon, Guarantee(epsilon, delta, relation), 0.734, 0.015, 3, 12.0)
        for method, group, delta, relation in (
            ("functional-network", "objective", 0.0, Neighbours.ADD_REMOVE),
            ("dp-sgd", "gradient", 1e-5, Neighbours.ADD_REMOVE),
            ("autoencoder", "objective", 1e-5, Neighbours.ADD_REMOVE),
            ("adaptive-laplace", "input", 0.0, Neighbours.REPLACE_ONE),
        )
        for epsilon in PRICES
    ]
    task = SimpleNamespace(neighbours=Neighbours.ADD_REMOVE)
    return SimpleNamespace(rows=rows, plan=SimpleNamespace(task=task))


def shown(width):
    table, below = _table(compared(), "digits", width)
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue(), below


@pytest.mark.parametrize("width", [80, 100])
def test_no_number_is_cut_on_a_narrow_screen_and_guarantees_stand_below(width):
    text, below = shown(width)
    assert text.count("73.4") == text.count("1.5") == 20
    assert "functional-network" in text
    assert below[1:] == [
        "  functional-network (add or remove one record, delta 0)",
        "  dp-sgd, autoencoder (add or remove one record, delta 1e-05)",
        "  adaptive-laplace (replace one record, delta 0)",
    ]


def test_guarantees_are_in_the_table_where_there_is_room():
    text, below = shown(150)
    assert text.count("73.4 ± 1.5") == 20
    assert text.count("add or remove one record") == 3
    assert not below
