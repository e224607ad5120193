"""``sfumato attack tensor``: errors as the theorem's, in a table."""

import json

import pytest

from sfumato.cli.main import main


@pytest.fixture
def cli(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as stop:
            main(["attack", "tensor", *arguments])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


SMALL = ("--dimension", "20", "--hidden", "8000", "--batch", "2")


def test_errors_are_small_and_grow_with_noise(cli):
    code, out, _ = cli(*SMALL, "--json")
    found = json.loads(out)
    assert (code, len(found["trials"])) == (0, 3)
    assert found["error"] < 0.3
    assert all(row["signs_right"] == 2 for row in found["trials"])
    _, noisy, _ = cli(*SMALL, "--noise", "2", "--json")
    assert json.loads(noisy)["error"] > 1.3 * found["error"]


def test_a_table(cli):
    code, out, _ = cli(*SMALL, "--activation", "tanh", "--trials", "1")
    assert code == 0
    assert "2 of 2" in out
    assert "in the mean" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--activation", "sine"], "activation must be one of cubic, tanh"),
        (["--trials", "0"], "trials must be"),
        (["--noise", "-1"], "must be"),
    ],
)
def test_mistakes_are_told(cli, options, words):
    code, _, err = cli(*SMALL, *options)
    assert code == 2
    assert words in " ".join(err.split())
