"""Every command of the app, a line that works for each, and a folder in which it does."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import typer

from sfumato.cli.main import every_command, main

__all__ = ["LINES", "REFUSED", "leaves", "prepare", "said"]

_TABLE = "--data people.csv --declared people.toml"
_PICTURES = "--data pictures.npz --declared pictures.toml"
_TESTED = f"{_PICTURES} --test tested.npz"
_ASK = (
    "query people.csv --unit person --max-rows 1 --max-groups 1 --domain city=Rome,Oslo "
    "--type age=float64 --dataset asked --budget 5 --budget-delta 1e-5"
)
_PAID = "--ledger privacy.db --dataset people"
_FEW = "--participants 3 --rounds 2 --noise-multiplier 1 --steps 1"
# A line that works, for every command there is: a new command needs one, or its test fails.
LINES = {
    "compare": f"compare {_TABLE} --test people.csv --epsilon 1 --dry-run",
    "tune": f"tune {_TABLE} --epsilon 1 --vary learning-rate=0.1,1 --dry-run",
    "pretrain": "pretrain --out new.safetensors --model wrn --model-option depth=10 "
    "--model-option width=1 --images 8 --side 8 --steps 1 --batch 4 --no-progress",
    "report": "report run",
    "demo": "demo --out taken.txt --no-open",  # a file: no demo of minutes
    "account dp-sgd": "account dp-sgd --noise-multiplier 1 --sample-rate 0.01 --steps 10 "
    "--delta 1e-5",
    "account dp-ftrl": "account dp-ftrl --noise-multiplier 4 --lot-size 10 --records 100 "
    "--delta 1e-5",
    "account laplace": "account laplace --scale 2",
    "account gaussian": "account gaussian --noise-multiplier 2 --delta 1e-5",
    "account exponential": "account exponential --epsilon 0.1 --releases 2",
    "account randomized-response": "account randomized-response --epsilon 1",
    "account pate": "account pate --answers 10 --sigma 40",
    "account laplace-or-gaussian": "account laplace-or-gaussian --epsilon 1 --delta 1e-5",
    "account events": "account events event.json --delta 1e-5",
    "account compare": "account compare --steps 5 --delta 1e-5",
    "calibrate dp-sgd": "calibrate dp-sgd --epsilon 1 --delta 1e-5 --sample-rate 0.01 --steps 10",
    "calibrate dp-ftrl": "calibrate dp-ftrl --epsilon 4 --lot-size 10 --records 100 --delta 1e-5",
    "calibrate laplace": "calibrate laplace --epsilon 1",
    "calibrate gaussian": "calibrate gaussian --epsilon 1 --delta 1e-5",
    "calibrate pate": "calibrate pate --epsilon 1 --teachers 50 --answers 10",
    "attack averaging": "attack averaging --queries 1,10",
    "attack tracing": "attack tracing --people 10 --attributes 20 --trials 2",
    "attack differencing": "attack differencing --rounds 2",
    "attack linkage": "attack linkage",
    "attack membership": f"attack membership --run run {_TESTED} --shadows 0",
    "attack teachers": "attack teachers --run labels --number 1 --others 1",
    "attack compare": "attack compare --out taken.txt --data digits --rows 100 --shadows 4 "
    "--targets 2 --epochs 1 --model linear",
    "attack inversion": f"attack inversion --run run {_TESTED} --steps 1",
    "attack extraction": "attack extraction --run run --budgets 5",
    "attack attribute": "attack attribute --run table --test others.csv --column 0 "
    "--tolerance 0.1 --rows 2",
    "attack exposure": "attack exposure --scores all.csv --canaries canaries.csv --exact",
    "attack gradients": "attack gradients --run run --iterations 1 --trials 1 --batch 1",
    "attack tensor": "attack tensor --dimension 4 --hidden 50 --batch 2 --trials 1",
    "audit mechanism": "audit mechanism laplace --samples 200",
    "audit pate": "audit pate --games 40 --answers 5 --questions 5",
    "audit erm": "audit erm output --samples 200 --rows 20",
    "audit labels": "audit labels --samples 200",
    "audit functional": "audit functional 1 --samples 200 --rows 20",
    "audit adaptive-laplace": "audit adaptive-laplace --samples 200",
    "audit autoencoder": "audit autoencoder none --samples 200 --rows 20 --rounds 1",
    "audit step": "audit step --games 100 --steps 2",
    "audit claims": "audit claims exponential-without-the-2",
    "ledger create": "ledger create new --epsilon 1",
    "ledger show": "ledger show people",
    "ledger history": "ledger history people",
    "ledger verify": "ledger verify people",
    "ledger head": "ledger head people",
    "ledger grant": "ledger grant people ada --epsilon 1",
    "ledger add-table": "ledger add-table people other --unit id",
    "ledger preview": "ledger preview people event.json",
    "query count": f"{_ASK} count --epsilon 0.1",
    "query sum": f"{_ASK} sum age 0 100 --epsilon 0.1",
    "query mean": f"{_ASK} mean age 0 100 --epsilon 0.1",
    "query variance": f"{_ASK} variance age 0 100 --epsilon 0.1",
    "query quantile": f"{_ASK} quantile age 0.5 0 100 --epsilon 0.1 --candidates 10",
    "query median": f"{_ASK} median age 0 100 --epsilon 0.1 --candidates 10",
    "query histogram": f"{_ASK} histogram age --edges 0,50,100 --epsilon 0.1",
    "query crosstab": f"{_ASK} --domain ill=no,yes crosstab city ill --epsilon 0.1",
    "query most-common": f"{_ASK} most-common city --epsilon 0.1",
    "query arg-max": f"{_ASK} arg-max city age 0 100 --epsilon 0.1",
    "query ask": f"{_ASK} ask question.json",
    "query preview": f"{_ASK} preview question.json",
    "data list": "data list",
    "data get": "data get digits",
    "data convert": "data convert people.csv --out converted.parquet",
    "train plain": f"train plain {_TABLE} --model linear --features none --epochs 1 --out new",
    "train pate": f"train pate {_PICTURES} --epsilon 10 --teachers 3 --answers 2 --dry-run",
    "train votes": "train votes labels",
    "train label-dp": f"train label-dp {_TABLE} --epsilon 1 --dry-run",
    "train erm": f"train erm {_TABLE} --epsilon 1 {_PAID} --dry-run",
    "train functional": f"train functional {_TABLE} --epsilon 1 {_PAID} --dry-run",
    "train adaptive-laplace": f"train adaptive-laplace {_TABLE} --epsilon 1 {_PAID} --dry-run",
    "train autoencoder": f"train autoencoder {_TABLE} --epsilon 1 {_PAID} --dry-run",
    "train dp-sgd": f"train dp-sgd {_TABLE} --model linear --features none --epsilon 1 --steps 2 "
    f"--lot-size 10 {_PAID} --dry-run",
    "train resume": "train resume taken.txt",
    "train presets": "train presets",
    "train models": "train models",
    "federate keys": "federate keys ward",
    "federate directory": "federate directory new.json clinic/identity.pub",
    "federate sum-key": "federate sum-key sums.key",
    # no free place to keep things in
    "federate serve": "federate serve federation.json --folder taken.txt --node clinic/node.pub",
    # nobody's certificate
    "federate join": "federate join federation.json --keys clinic --address localhost:1 "
    f"--authority taken.txt {_TABLE}",
    "federate open": "federate open federation.json taken.txt --sum-key taken.txt",
    "federate attack": "federate attack --data digits --quick --only server --out taken.txt",
    "federate plan": f"federate plan planned.json --data digits {_FEW}",
    "federate account": f"federate account {_FEW.rsplit(' --steps', 1)[0]}",
    "federate simulate": f"federate simulate --data digits --rows 60 {_FEW} --out federated "
    "--no-progress",
}
# Those, and others that would take minutes, are refused for their last words.
REFUSED = frozenset(
    {
        "demo", "attack compare", "attack teachers", "train resume", "federate attack",
        "federate join", "federate open", "federate serve",
    }
)  # fmt: skip
_DECLARED = {
    "people.toml": 'label = "ill"\nclasses = ["no", "yes"]\nrecords = 60\n'
    "columns.age = { lower = 0, upper = 100 }\n"
    'columns.city = { categories = ["Rome", "Oslo"] }\n',
    "pictures.toml": 'shape = [8, 8, 1]\nclasses = ["0", "1"]\nrecords = 60\npublic_test = true\n',
}
_FILES = {
    **_DECLARED,
    "taken.txt": "not what is looked for\n",
    "all.csv": "surprise\n" + "".join(f"{n}.5\n" for n in range(20)),
    "canaries.csv": "canary,surprise\npin,3.5\n",
    "question.json": json.dumps({"query": "count", "epsilon": 0.1}),
    "model.py": "def load():\n    return lambda x: [[0.5, 0.5]] * len(x)\n",
}


def leaves() -> dict[str, typer.core.TyperCommand]:
    """The commands that have no commands in them, by what one types."""
    return dict(_walk(every_command(), ""))


def _walk(command, path: str) -> Iterator[tuple[str, typer.core.TyperCommand]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from _walk(inner, f"{path} {name}".strip())


def said(words: list[str]) -> tuple[int, str, str]:
    """A line, run as it is typed: its exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as ended:
            code = ended.code or 0
    return code, out.getvalue(), err.getvalue()


def prepare(folder: Path) -> None:
    """Fills ``folder``, which is the working folder, with what the lines above name."""
    from sfumato.core.events import LaplaceEvent
    from sfumato.ledger import Budget, Ledger

    for name, text in _FILES.items():
        (folder / name).write_text(text)
    (folder / "event.json").write_text(json.dumps(LaplaceEvent(10.0).to_dict()))
    random = np.random.default_rng(0)
    ages = random.integers(0, 101, 60)
    rows = [
        f"{n},{age},{random.choice(['Rome', 'Oslo'])},{'yes' if age > 60 else 'no'}\n"
        for n, age in enumerate(ages)
    ]
    (folder / "people.csv").write_text("person,age,city,ill\n" + "".join(rows))
    (folder / "others.csv").write_text("person,age,city,ill\n71,30.5,Oslo,no\n72,70.5,Rome,yes\n")
    images = random.integers(0, 256, (60, 8, 8, 1)).astype(np.uint8)
    labels = np.array(["0", "1"] * 30)
    np.savez(
        folder / "pictures.npz",
        train_images=images, train_labels=labels, test_images=255 - images, test_labels=labels,
    )  # fmt: skip
    np.savez(folder / "tested.npz", images=images // 2, labels=labels)
    ledger = Ledger("sqlite:///privacy.db")
    for name in ("people", "pictures"):
        ledger.create(name, Budget(20.0, 1e-4))
    ledger.close()
    for line in (
        f"train dp-sgd {_PICTURES} --model linear --features none --epsilon 1 --steps 2 "
        "--lot-size 10 --no-progress --out run",
        f"train dp-sgd {_TABLE} --model linear --features none --epsilon 1 --steps 2 "
        "--lot-size 10 --no-progress --out table",
        f"train pate {_PICTURES} --epsilon 10 --teachers 3 --answers 2 --steps 2 --student "
        "supervised --test-rows 20 --no-progress --out labels",
        f"federate plan federation.json --data digits {_FEW}",
        "federate keys clinic",
        "data get digits",
    ):
        code, _, err = said(shlex.split(line))
        assert code == 0, (line, err)
