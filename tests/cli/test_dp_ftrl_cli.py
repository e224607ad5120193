"""Correlated noise on the command line: what it costs, how much a target needs, and a run."""

import json

import pytest

from sfumato.core.gaussian_profile import gaussian_epsilon

STREAM = "--lot-size 500 --records 60000 --delta 1e-5"


@pytest.mark.parametrize("correlation", ["banded:16", "tree", "buffered", "independent"])
def test_a_streamed_epoch_is_one_gaussian(run, correlation):
    code, out, _ = run(
        f"account dp-ftrl --noise-multiplier 2 {STREAM} --correlation {correlation} --json"
    )
    found = json.loads(out)
    assert code == 0
    assert found["epsilon"] == pytest.approx(gaussian_epsilon(2.0, 1e-5), rel=1e-3)
    assert (found["neighbours"], found["steps"]) == ("zero-out", 120)
    assert found["correlation"]["kind"] == correlation.partition(":")[0]


def test_calibration_and_its_noise_on_sums(run):
    words = f"calibrate dp-ftrl --epsilon 3 {STREAM} --lots cyclic-poisson"
    code, out, _ = run(f"{words} --correlation banded:16 --json")
    banded = json.loads(out)
    assert code == 0
    assert banded["epsilon"] <= 3
    assert (banded["neighbours"], banded["lots"]["groups"]) == ("add-remove", 16)
    assert banded["vectors_in_memory"] == 15
    _, out, _ = run(f"{words} --correlation banded:1 --json")
    plain = json.loads(out)
    assert banded["prefix_error"]["mean"] < 0.75 * plain["prefix_error"]["mean"]
    code, out, _ = run(f"{words} --correlation banded:16")
    assert code == 0
    assert "15 times the parameters" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--correlation band:3", "correlation must be one of independent, banded:BANDS"),
        ("--correlation banded", "correlation must be one of independent, banded:BANDS"),
        ("--correlation tree:x", "correlation must be one of independent, banded:BANDS"),
        ("--correlation tree --lots cyclic-poisson", "correlation must be banded:BANDS for cyclic"),
        ("--lots poisson", "lots must be streamed or cyclic-poisson"),
        ("--neighbours add-remove", "neighbours must be 'replace-one' or 'zero-out'"),
    ],
)
def test_mistakes_are_one_line(run, words, said):
    code, _, err = run(f"account dp-ftrl --noise-multiplier 2 {STREAM} {words}")
    assert code == 2
    assert said in " ".join(err.split())


def test_a_run_and_its_report(run, folder):
    code, _, err = run(
        "train dp-sgd --data digits --epsilon 8 --lots streamed --neighbours zero-out "
        "--correlation tree --epochs 1 --lot-size 128 --features none --model linear "
        "--no-progress --out a --device cpu"
    )
    assert code == 0, err
    plan = json.loads((folder / "a" / "record.json").read_text())["parameters"]["plan"]
    assert plan["correlation"] == {"kind": "tree", "restart": None}
    assert plan["lots"]["kind"] == "streamed"
    code, _, err = run("report a -o card.md")
    assert code == 0, err
    card = (folder / "card.md").read_text()
    assert "correlated over steps, by tree aggregation" in card
    assert "in the order of the table" in card
