"""``sfumato pretrain``, and training that begins with its file, in pieces."""

import json

import numpy as np
import pytest
import torch

from sfumato.cli.main import main

PRETRAIN = (
    "pretrain --model-option depth=10 --model-option width=1 --side 8 --images 32 --steps 2 "
    "--batch 8 --device cpu"
)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def say(line, capsys, code=0):
    with pytest.raises(SystemExit) as end:
        main(line.split())
    assert end.value.code == code
    return capsys.readouterr()


def test_weights_and_what_they_come_from(capsys, tmp_path):
    told = json.loads(say(f"{PRETRAIN} --out w.safetensors --plot p.png --json", capsys).out)
    assert told["finished"]
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert "no data" in told["source"]
    assert (tmp_path / "w.safetensors").exists()
    again = say(f"{PRETRAIN} --out w.safetensors", capsys, code=2)
    assert "new file" in again.err


def test_in_pieces(capsys, tmp_path):
    told = json.loads(say(f"{PRETRAIN} --out w.safetensors --minutes 0 --json", capsys).out)
    assert not told["finished"]
    assert "1 of 2" in told["stopped"]
    say(f"{PRETRAIN} --out w.safetensors", capsys)
    assert (tmp_path / "w.safetensors").exists()


def test_a_private_run_begins_with_them_and_goes_on(capsys, tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (60, 8, 8, 3)).astype(np.uint8)
    np.savez(tmp_path / "i.npz", images=rows, labels=np.arange(60) % 2)
    declared = 'shape = [8, 8, 3]\nclasses = ["a", "b"]\nrecords = 60\n'
    (tmp_path / "i.toml").write_text(declared)
    say(f"{PRETRAIN} --out w.safetensors", capsys)
    run = (
        "train dp-sgd --data i.npz --declared i.toml --preset wrn --model-option depth=10 "
        "--model-option width=1 --start w.safetensors --augmentations 1 --lot-size 10 --steps 2 "
        "--noise-multiplier 2 --delta 1e-3 --evaluations 0 --small-checkpoints --device cpu "
        "--head-rate 3 "
    )
    stopped = say(run + "--out a --minutes 0 --json", capsys)
    assert "1 of 2" in json.loads(stopped.out)["stopped"]
    say("train resume a --device cpu --json", capsys)
    record = json.loads((tmp_path / "a" / "record.json").read_text())
    assert record["facts"]["steps_lost"] == 0
    assert "no data" in record["facts"]["public_start"]
    assert record["parameters"]["recipe"]["precision"] == "bfloat16"
    assert record["parameters"]["recipe"]["head_rate"] == 3
    for other in ("--start-source x", ""):
        refused = say(run.replace("--start w.safetensors", other) + "--out b", capsys, 2)
        assert "give both" in refused.err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--process photographs", "process must be one of"),
        ("--side 12", "power of two"),
        ("--batch 64", "at most the images"),
    ],
)
def test_bad_options_are_one_line(capsys, more, said):
    told = say(f"{PRETRAIN} {more} --out w.safetensors", capsys, code=2)
    assert said in told.err
    assert len(told.err.strip().splitlines()) == 1
