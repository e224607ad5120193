"""Non-interference of whole runs: on neighbouring tables, with the same coins, only what was
released differs: weights, and what is computed from them and public rows.

Seen are all files with their names, rights and sizes, the record, the ledger, the screen, the logs,
the noise that was asked for and the steps of the learning curve. Of what lies in ``curator/``
(which is for the owner: losses of private rows) names are compared, and the number of points.
"""

import itertools
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from unittest import mock

import numpy as np
import pytest

from sfumato.core.randomness import SeededCoins
from sfumato.data import Examples
from sfumato.learning.features import PrivatePCA, StandardizedScattering
from sfumato.learning.recipes.observing import Shown
from sfumato.ledger import Budget, Ledger

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def observe(toy, recipe, data, folder, capture):
    """Trains with a ledger; returns everything but what was released, and the weights."""
    capsys, caplog = capture
    caplog.clear()
    folder.mkdir()
    ledger = Ledger(folder / "ledger.db", clock=lambda: NOON)
    ledger.create("people", Budget(1e4, 1e-2), unit=recipe.unit)
    noise, out = toy.Noted(), folder / "run"
    numbers = itertools.count()  # for names and tokens, which are drawn for each run
    named = mock.patch("secrets.token_hex", lambda size: f"{next(numbers):0{2 * size}x}")
    with caplog.at_level(logging.DEBUG), named:
        trained = toy.train(
            recipe, data, out=out, noise=noise, ledger=ledger, dataset="people",
            observer=Shown(None),
        )  # fmt: skip
    text = (out / "record.json").read_text()
    results = json.loads((out / "curator" / "results.json").read_text())
    seen = {
        "record": toy.without_released(json.loads(text)),
        "sizes": {p.name: p.stat().st_size for p in out.glob("*.safetensors")},
        "files": toy.files(out),
        "entries": [(e.kind, e.data) for e in ledger.history("people")],
        "head": ledger.head("people").hash,
        "screen": capsys.readouterr(),
        "logs": [(r.name, r.levelno, r.getMessage()) for r in caplog.records],
        "noise": noise.asked,
        "points": [(p.step, p.epsilon) for p in trained.points],
        "curator": {name: len(values) for name, values in results["training"].items()},
        "accuracy": "accuracy" in text,
    }
    ledger.close()
    weights = {n: w.numpy() for n, w in trained.model.state_dict().items()}
    return seen, weights


@pytest.fixture
def capture(capsys, caplog):
    return capsys, caplog


def shorter(rows):
    return Examples(rows.inputs[:-1], rows.labels[:-1])


def other(rows):
    """Another last row, as unlike as can be."""
    inputs, labels = rows.inputs.copy(), rows.labels.copy()
    inputs[-1] = np.nan if inputs.dtype == np.float32 else 255
    labels[-1] = 5
    return Examples(inputs, labels)


CASES = {
    "rows": ((6,), {}),
    "pca": ((6,), {"features": PrivatePCA(3, 8.0), "ema_decay": 0.9, "optimizer": "adam"}),
    "pictures": ((8, 8, 1), {"features": StandardizedScattering(9.0), "steps": 2}),
}


@pytest.mark.parametrize("change", [shorter, other])
@pytest.mark.parametrize("case", CASES)
def test_neighbours_differ_in_released_values_only(toy, tmp_path, capture, case, change):
    shape, options = CASES[case]
    recipe, data = toy.recipe(**({"steps": 12} | options)), toy.data(shape=shape)
    neighbour = replace(data, train=change(data.train))
    one, first = observe(toy, recipe, data, tmp_path / "a", capture)
    two, second = observe(toy, recipe, neighbour, tmp_path / "b", capture)
    for name, value in one.items():
        assert two[name] == value, name
    assert one["screen"] == ("", "")
    assert any((first[n] != second[n]).any() for n in first)  # it was read, and clipped
    again, third = observe(toy, recipe, data, tmp_path / "c", capture)
    assert again == one
    assert all((first[n] == third[n]).all() for n in first)  # the coins are all that is random


def test_neighbours_by_owner(toy, tmp_path, capture):
    """A person more, who has many rows."""
    ids = np.arange(137) % 40
    with_all = toy.with_owners(ids)
    rows = with_all.train
    kept = ids != 0
    without = replace(
        with_all, train=Examples(rows.inputs[kept], rows.labels[kept]), owners=ids[kept]
    )
    recipe = toy.recipe(unit="person", rows_per_owner=3, steps=4)
    one, _ = observe(toy, recipe, with_all, tmp_path / "a", capture)
    two, _ = observe(toy, recipe, without, tmp_path / "b", capture)
    assert one == two


def test_private_rows_to_test_on_leave_no_trace(toy, tmp_path, capture):
    data = toy.data(test_is_public=False)
    recipe = toy.recipe(steps=4)
    one, first = observe(toy, recipe, data, tmp_path / "a", capture)
    for number, test in enumerate((shorter(data.test), other(data.test), toy.rows(900, 9))):
        changed = replace(data, test=test)
        two, second = observe(toy, recipe, changed, tmp_path / f"b{number}", capture)
        assert one == two
        assert all((first[n] == second[n]).all() for n in first)
    names = ("record.json", "model.safetensors")
    for name in names:
        files = [(path / "run" / name).read_bytes() for path in tmp_path.iterdir()]
        assert len(set(files)) == 1
    assert one["accuracy"] is False


@pytest.mark.parametrize("rows", [0, 4, 137])
def test_points_of_the_curve_come_at_steps_that_were_planned(toy, rows):
    """Lots of one row on average, most of them empty."""
    watcher = toy.Watcher()
    trained = toy.train(
        toy.recipe(lot_size=1, steps=23), toy.data(rows), evaluations=5, observer=watcher
    )
    assert [p.step for p in trained.points] == [5, 10, 14, 19, 23]
    assert list(trained.points) == watcher.points
    assert len(trained.record.facts["curve"]) == 5


@pytest.mark.parametrize(
    ("evaluations", "steps"),
    [(0, [4]), (1, [4]), (2, [2, 4]), (4, [1, 2, 3, 4]), (9, [1, 2, 3, 4])],
)
def test_how_many_points_there_are(toy, evaluations, steps):
    trained = toy.train(toy.recipe(steps=4), evaluations=evaluations)
    assert [p.step for p in trained.points] == steps
    assert trained.accuracy == trained.points[-1].accuracy


def test_nothing_to_test_on(toy, tmp_path):
    trained = toy.train(data=toy.data(test=0), out=tmp_path / "a", evaluations=4)
    assert (trained.accuracy, trained.points) == (None, ())
    assert trained.record.facts["test_set"] == "none"
    assert "accuracy" not in trained.record.facts
    assert not (tmp_path / "a" / "curator" / "curve.json").exists()


def test_the_initial_weights_are_public_and_the_coins_are_not(toy):
    """The same seed without the same coins: another model; the record holds the first alone."""
    one, two = (toy.train(coins=SeededCoins(c), noise=toy.Noted(c)) for c in (1, 2))
    assert one.record.to_dict()["parameters"] == two.record.to_dict()["parameters"]
    assert (one.model[1][1].weight != two.model[1][1].weight).all()
    drawn = [toy.train(toy.recipe(seed=None)).record.parameters["recipe"]["seed"] for _ in range(2)]
    assert None not in drawn
    assert drawn[0] != drawn[1]
