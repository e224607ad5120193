"""Kind ``queries``: processes ask a protected table through the public door, and die meanwhile.

Most questions have a key, which is asked again after a death. Before rows are read a line is told,
and another one before an answer is given to anybody: both must be covered by charges.
"""

from __future__ import annotations

import json
import random
import secrets
from collections import Counter, defaultdict
from typing import Any

# Loaded before the forks, so that a child soon gets to asking.
import ibis.backends.duckdb.converter
import ibis.formats.pandas
import ibis.formats.pyarrow  # noqa: F401
import pandas as pd
import pyarrow.parquet  # noqa: F401
from tests.storm import children
from tests.storm.children import tell
from tests.storm.storm import Storm

import sfumato as sf
import sfumato.queries.opening
from sfumato.ledger import Budget, BudgetExceeded, Ledger, LedgerError
from sfumato.queries.protected import Protected

__all__ = ["queries"]

_BUDGET, _KEYS, _REFUSED = 6.0, 20, 3
_PRICES = (0.05, 0.1, 0.2)


def ask(url: str, table: str, dataset: str, told: str, seed: int) -> int:
    """A child's work: some questions; its exit code says whether the budget is spent.

    DuckDB's threads do not survive a fork: a child opens the table itself.
    """
    chosen, refused, operation = random.Random(seed), 0, ""
    people = sf.protect(
        table, name=dataset, unit="person", max_rows_per_unit=2, ledger=Ledger(url, create=False),
        same_data_ok=True,
    )  # fmt: skip
    run = Protected._run

    def noted(self: Protected, query: Any, plan: Any) -> Any:
        tell(told, dataset=dataset, op=operation, did="reads")
        return run(self, query, plan)

    Protected._run = noted
    for _ in range(6):
        number = chosen.randrange(_KEYS)
        price, keyed = _PRICES[number % 3], chosen.random() < 0.7
        operation = f"key {number}" if keyed else secrets.token_hex(6)
        key = operation if keyed else ""
        try:
            if number % 2:
                answer = people.where("age > 50").count(epsilon=price, key=key)
            else:
                answer = people.sum("age", 0, 3000, epsilon=price, key=key)
        except BudgetExceeded:
            refused += 1
            if refused == 2:
                return _REFUSED
        except LedgerError as error:
            if "was charged" not in str(error):
                raise
        else:
            facts = {"value": answer.value, "left": answer.left, "price": price, "keyed": keyed}
            tell(told, dataset=dataset, op=operation, did="shown", **facts)
    return 0


def queries(storm: Storm) -> None:
    """Two at a time, a new budget whenever one is spent."""
    table, told = storm.folder / "people.parquet", storm.folder / "told"
    url = f"sqlite:///{storm.folder / 'privacy.db'}"
    pd.DataFrame({"person": [i // 3 for i in range(900)], "age": range(900)}).to_parquet(table)
    ledger, number, dataset = Ledger(url), 0, ""
    ledger.close()
    while not storm.over:
        if not dataset:
            dataset, number = f"people {number}", number + 1
            ledger.create(dataset, Budget(_BUDGET), unit="person")
            ledger.close()
        while storm.at_work < 2:
            storm.start(
                ask, url=url, table=str(table), dataset=dataset, told=str(told),
                seed=storm.random.getrandbits(32),
            )  # fmt: skip
        spent = any(code == _REFUSED for _, code in storm.wait())
        dataset = "" if spent else dataset
    storm.end_all()
    storm.note_problems()
    lines = defaultdict(list)
    for line in children.told(told):
        lines[line["dataset"]].append(line)
    for name in ledger.names():
        with storm.expecting(f"looking at {name}"):
            _judge(storm, ledger, name, lines[name])
    ledger.close()


def _judge(storm: Storm, ledger: Ledger, name: str, told: list[dict[str, Any]]) -> None:
    def find(law: str, what: str) -> None:
        storm.find(law, f"{name}: {what}")

    for problem in ledger.verify(name).problems:
        find("overspent" if "exceeds" in problem else "wrong", f"verify: {problem}")
    entries = ledger.history(name)
    reserved = {e.sequence: e.data for e in entries if e.kind == "reserve"}
    keys = Counter(data["key"] for data in reserved.values() if data["key"])
    stored: dict[str, list[Any]] = defaultdict(list)
    for entry in entries:
        if entry.kind == "commit":
            (answer,) = entry.data["answer"]
            (cell,) = answer["rows"]
            key = reserved[entry.data["reserve"]]["key"]
            stored[key].append(json.dumps([cell["value"], answer["left"]]))

    # Whoever read rows was charged before; a key reads once, and is charged once.
    reads = Counter(line["op"] for line in told if line["did"] == "reads")
    with_key = {op: times for op, times in reads.items() if op.startswith("key ")}
    for operation, times in with_key.items():
        if times > 1:
            find("double", f"{operation} read rows {times} times")
        if not keys[operation]:
            find("lost", f"{operation} read rows, and was not charged")
    without = sum(reads.values()) - sum(with_key.values())
    if without > sum(not data["key"] for data in reserved.values()):
        find("lost", f"{without} questions without a key read rows, of fewer that were charged")
    for key, times in keys.items():
        if times > 1:
            find("double", f"{key} was charged {times} times")

    # What was shown is stored, and the same for everyone who asked by one key.
    shown = [line for line in told if line["did"] == "shown"]
    for line in shown:
        key = line["op"] if line["keyed"] else ""
        if not stored[key]:
            find("lost", f"{line['op']} was answered, and the ledger holds no answer")
        elif json.dumps([line["value"], line["left"]]) not in stored[key]:
            find("wrong", f"{line['op']} was answered {line}, stored is {stored[key][:3]}")

    # By the ledger, and by what was seen.
    status = ledger.status(name, declared=False)
    prices = {line["op"]: line["price"] for line in shown}
    if status.reading > _BUDGET or sum(prices.values()) > _BUDGET * (1 + 1e-9):
        find("overspent", f"the ledger reads {status.reading}, {sum(prices.values())} were shown")
    if status.reading < sum(prices.values()) * (1 - 1e-9):
        find("lost", f"{sum(prices.values())} were shown, the ledger reads {status.reading}")
