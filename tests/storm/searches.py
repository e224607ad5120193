"""Kind ``searches``: the best of a random number of private runs, killed and gone on with.

Every draw, and every run's beginning, is told before it is used.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tests.storm.children import lines, tell
from tests.storm.children import told as told_in
from tests.storm.storm import Storm

from sfumato.accounting import Trials
from sfumato.data import Dataset, load_dataset, read_declaration
from sfumato.learning.recipes import Rate, Recipe, train, tuning
from sfumato.learning.recipes.search import Search
from sfumato.learning.recipes.tuning import tune
from sfumato.ledger import Budget, Ledger

__all__ = ["search", "searches"]

PEOPLE = "people"


def _search() -> Search:
    candidates = [Recipe("linear", 20, Rate(rate), steps=6) for rate in (0.1, 1.0)]
    return Search(tuple(candidates), Trials(3), epsilon=8.0, delta=1e-3)


def _rows(folder: Path) -> Dataset:
    found = load_dataset(folder / "rows.npz", read_declaration(folder / "rows.toml"))
    return dataclasses.replace(found, test=found.train)


def _write_rows(folder: Path) -> None:
    columns = {f"c{i}": np.random.default_rng(i).random(100) for i in range(3)}
    np.savez(folder / "rows.npz", **columns, label=np.arange(100) % 2)
    (folder / "rows.toml").write_text(
        'label = "label"\nclasses = [0, 1]\nrecords = 100\npublic_test = true\n'
        + "".join(f"[columns.{name}]\nlower = 0\nupper = 1\n" for name in columns)
    )


def search(home: str, run: str, told: str) -> int:
    """A child's work: begins the search, or goes on with it, to its end."""
    torch.set_num_threads(1)
    place, data = Path(run) / "run", _rows(Path(home))
    draw, begin = Search.draw, tuning.train

    def noted_draw(self: Search, coins: Any) -> Any:
        found = draw(self, coins)
        tell(told, draws=len(found))
        return found

    def noted_train(*arguments: Any, out: Path, **more: Any) -> Any:
        tell(told, run=int(out.name))
        return begin(*arguments, out=out, **more)

    Search.draw, tuning.train = noted_draw, noted_train
    begun = (place / "curator" / "request.json").exists()
    tune(
        None if begun else _search(), data, out=place, resume=begun,
        ledger=Path(run) / "privacy.db", dataset=PEOPLE,
    )  # fmt: skip
    return 0


def searches(storm: Storm) -> None:
    """One search after the other."""
    _write_rows(storm.folder)
    data = _rows(storm.folder)
    train(Recipe("linear", 20, Rate(0.1), noise_multiplier=2.0, steps=2), data)
    Trials(3).draw()
    _search().plan(100)  # so that forks need not work it out
    for number in itertools.count():
        if storm.over:
            break
        run = storm.folder / str(number)
        run.mkdir()
        ledger = Ledger(run / "privacy.db")
        ledger.create(PEOPLE, Budget(12.0, 1e-2))
        ledger.close()
        _go_through(storm, run)
        shutil.rmtree(run)
    storm.note_problems()


def _go_through(storm: Storm, run: Path) -> None:
    models: dict[str, bytes] = {}
    for _ in range(200):
        code = storm.strike(search, home=str(storm.folder), run=str(run), told=str(run / "told"))
        ended = (run / "run" / "record.json").exists()
        with storm.expecting(f"looking at {run.name}"):
            models = _judge(storm, run, models, ended)
        if code == 0 or ended:
            return
    storm.find("wrong", f"{run.name} did not come to its end in 200 attempts")


def _judge(storm: Storm, run: Path, before: dict[str, bytes], ended: bool) -> dict[str, bytes]:
    """What a search left behind; its models that are finished."""
    said = told_in(run / "told")
    begun = [line["run"] for line in said if "run" in line]
    ledger = Ledger(run / "privacy.db", create=False)
    for problem in ledger.verify(PEOPLE).problems:
        storm.find("wrong", f"verify: {problem}")
    kinds = [entry.kind for entry in ledger.history(PEOPLE)]
    reading = ledger.status(PEOPLE, declared=False).reading
    ledger.close()
    if max(map(kinds.count, ("reserve", "plan", "commit"))) > 1:
        storm.find("double", f"one search was charged by {kinds}")
    if begun and kinds.count("reserve") != 1:
        storm.find("lost", f"runs were begun, charged by {kinds}")
    if reading > 12.0:
        storm.find("overspent", f"the ledger reads {reading}")
    if ended and kinds.count("commit") != 1:
        storm.find("wrong", f"it ended with {kinds}")
    if begun != sorted(begun):
        storm.find("double", f"runs were begun again behind later ones: {begun}")

    # The draws are the first ones that were kept, and no run is begun by others.
    journal = run / "run" / "curator" / "search.jsonl"
    kept = [json.loads(line)["drawn"] for line in lines(journal) if '"drawn"' in line]
    if len(kept) > 1:
        storm.find("double", f"{len(kept)} draws were kept")
    if begun and (not kept or max(begun) >= len(kept[0])):
        storm.find("overspent", f"runs {begun} were begun, of the draws {kept}")
    if begun and any("draws" in line for line in said[said.index({"run": begun[0]}) :]):
        storm.find("double", "another draw after the first run")
    if ended and set(begun) != set(range(len(kept[0]))):
        storm.find("wrong", f"it ended after runs {set(begun)}, of the draws {kept}")

    # What came to its end is never made again.
    finished = sorted((run / "run" / "curator" / "trials").glob("*/record.json"))
    models = {
        path.parent.name: path.with_name("model.safetensors").read_bytes() for path in finished
    }
    for name, model in before.items():
        if models.get(name) != model:
            storm.find("double", f"run {name} had ended, and was made again")
    return models
