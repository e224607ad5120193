"""``sfumato attack gradients``: defences side by side, from the command line."""

import json

import pytest

from sfumato.cli.defence_options import parsed_defences
from sfumato.cli.main import main
from sfumato.core.gaussian_profile import gaussian_epsilon

ATTACK = ("attack", "gradients", "--network", "leaky-cnn", "--data", "digits", "--method", "dlg")


@pytest.fixture
def cli(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(list(arguments))
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


def test_a_table_of_defences(cli, tmp_path):
    picture = tmp_path / "leaked.png"
    code, out, _ = cli(
        *ATTACK, "--iterations", "80", "--defence", "none", "--defence", "dp-sgd=4",
        "--plot", str(picture),
    )  # fmt: skip
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "no guarantee" in lines["none"]
    assert lines["dp-sgd=4"].rstrip().endswith("4")
    assert "for the curator only" in out
    assert picture.stat().st_size > 1000


def test_json_has_everything(cli):
    code, out, _ = cli(
        *ATTACK, "--iterations", "80", "--batch", "2", "--defence", "clip=1+prune=0.2", "--json"
    )
    assert code == 0
    found = json.loads(out)
    assert (found["channel"], found["batch"], found["data"]) == ("curator", 2, "digits")
    (one,) = found["scenarios"]
    assert one["defence"] == "clipped to 1, pruning 20 %"
    assert len(one["likeness"]["psnr"]) == len(one["labels"]) == 2
    assert one["guarantee"] is None


def test_without_defences_it_is_none(cli):
    code, out, _ = cli(*ATTACK, "--iterations", "60", "--json")
    (one,) = json.loads(out)["scenarios"]
    assert (code, one["asked"], one["right_labels"]) == (0, "none", 1)
    assert one["likeness"]["psnr"][0] > 15


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--data", "digits"], "one of --network, --run or --model must be given"),
        (["--network", "mlp"], "--data must be given with --network"),
        (["--network", "mlp", "--run", "runs/a"], "one of --network, --run or --model"),
        ([*ATTACK[2:], "--defence", "blur=2"], "defence must be of none, noise=DEVIATION"),
        ([*ATTACK[2:], "--defence", "noise=much"], "got 'noise=much'"),
        ([*ATTACK[2:], "--defence", "clip=1@2"], "got 'clip=1@2'"),
        ([*ATTACK[2:], "--defence", "prune=2"], "share must be"),
        ([*ATTACK[2:], "--batch", "0"], "batch must be"),
        ([*ATTACK[2:6], "--method", "lion"], "method must be inverting or dlg, got 'lion'"),
    ],
)
def test_mistakes_are_told(cli, options, words):
    code, _, err = cli("attack", "gradients", *options)
    assert code == 2
    assert words in " ".join(err.split())


def test_defences_as_they_are_written():
    found = parsed_defences("local=3@0.2+dropout=0.5+clip=2+noise=0.1+prune=0.9", 1e-5)
    assert [str(each) for each in found] == [
        "3 local steps", "dropout 50 %", "clipped to 2", "noise 0.1", "pruning 90 %",
    ]  # fmt: skip
    assert found[0].rate == 0.2
    assert parsed_defences("none", 1e-5) == ()
    (private,) = parsed_defences("dp-sgd=3@0.5", 1e-6)
    assert private.clip == 0.5
    assert gaussian_epsilon(private.noise_multiplier, 1e-6) == pytest.approx(3.0, rel=1e-6)
