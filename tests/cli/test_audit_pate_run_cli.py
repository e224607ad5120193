"""``audit --run`` of a PATE run also plays its noise, with the same fields as ``audit pate``."""

import json

import pytest

from sfumato.learning.pate import aggregators

TRAIN = (
    "train pate --data digits --rows 600 --teachers 6 --kind linear --sigma 3 --answers 20 "
    "--test-rows 100 --student supervised --steps 5 --device cpu --no-progress"
)
AUDIT = "audit --run a --games 400 --confidence 0.999999"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One run for all tests of this file."""
    return tmp_path_factory.mktemp("taught")


@pytest.fixture
def taught(run, folder, same_coins):
    if not (folder / "a").exists():
        with same_coins(0):
            code, _, err = run(f"{TRAIN} --out a")
        assert code == 0, err
    return folder / "a"


@pytest.mark.usefixtures("steady_coins")
@pytest.mark.slow
def test_the_noise_of_a_run_is_played(run, taught):
    code, out, err = run(f"{AUDIT} --json")
    assert code == 0, err
    found = json.loads(out)
    assert found["verdict"] == "consistent"
    assert found["channel"] == "curator"
    assert list(found["noise"]) == ["noise of answers"]
    noise = found["noise"]["noise of answers"]
    assert noise["verdict"] == "consistent"
    assert noise["noise_declared"] == 3
    assert 0 < noise["refutes_noise_below"] < 3 < noise["noise_at_most"]
    assert 0 < noise["noise_as_of_epsilon"] < found["claim"]["epsilon"]
    code, out, err = run("audit pate --answers 1 --teachers 20 --games 400 --json")
    assert code == 0, err
    assert set(noise) == set(json.loads(out)["audits"]["noise of answers"])
    wrong = 2 - found["confidence"] - noise["confidence"]
    assert wrong == pytest.approx(1e-6, rel=1e-3)  # of all together
    assert json.loads((taught / "curator" / "audit.json").read_text()) == found
    shown = run(AUDIT)[1]
    assert "for you alone" in shown
    assert "finds below" in shown


@pytest.mark.usefixtures("steady_coins", "taught")
def test_noise_of_half_the_size_is_found_in_a_run(run, monkeypatch):
    for draw, place in (("add_gaussian", 1), ("noisy_argmax", 2)):
        whole = getattr(aggregators, draw)

        def half(*given, _whole=whole, _place=place):
            return _whole(*given[:_place], given[_place] / 2, *given[_place + 1 :])

        monkeypatch.setattr(aggregators, draw, half)
    code, out, err = run(f"{AUDIT} --json")
    assert code == 0, err
    assert json.loads(out)["noise"]["noise of answers"]["verdict"] == "refuted"
