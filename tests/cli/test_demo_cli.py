"""``sfumato demo``: the whole loop, and going on where it was cut off."""

import json
import shutil

import pytest

from sfumato.cli import demo as played
from sfumato.cli.demo_steps import PRIVATE, demo_parts, run_names
from sfumato.learning.runs import RunFolder
from sfumato.ledger import Ledger


def test_every_step_leaves_a_file_of_its_own():
    steps = [step for part in demo_parts("mnist", True, True) for step in part.steps]
    assert len({step.leaves for step in steps}) == len(steps)
    assert all(("--json" in step.command) == step.saves for step in steps)
    private = [step.command for step in steps if step.command.startswith("train dp-sgd")]
    assert len(private) == len(PRIVATE)
    assert all("--ledger privacy.db --dataset mnist" in command for command in private)


def test_other_data_are_refused(run, folder):
    code, _, error = run("demo --data cifar10")
    assert (code, "data must be mnist or digits" in error) == (2, True)
    assert not (folder / "demo").exists()


def test_what_was_cut_off_goes_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train = ["train", "dp-sgd", "--out", "a"]
    assert played._resumed(train) == train
    (tmp_path / "a" / "curator").mkdir(parents=True)
    assert played._resumed(train) == ["train", "resume", "a"]
    plain = ["train", "plain", "--out", "b"]
    RunFolder(tmp_path / "b", public=False).begin({"recipe": {}})
    assert played._resumed(plain) == plain
    assert not (tmp_path / "b").exists()  # without privacy it begins anew
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    assert played._resumed(plain) == plain
    assert (tmp_path / "b" / "thesis.txt").exists()
    assert played._resumed(["audit", "--run", "a"]) == ["audit", "--run", "a"]


def test_a_folder_goes_on_with_the_data_it_began_with(tmp_path):
    played._claim(tmp_path / "d", "mnist")
    played._claim(tmp_path / "d", "mnist")
    with pytest.raises(ValueError, match="holds a demo with mnist"):
        played._claim(tmp_path / "d", "digits")


def test_digits_where_mnist_cannot_be_had(monkeypatch, capsys):
    from sfumato import data

    def nowhere(name, *_):
        if name == "mnist":
            raise OSError("no source answers")

    monkeypatch.setattr(data, "load_dataset", nowhere)
    assert played._available("mnist") == "digits"
    assert "no source answers" in capsys.readouterr().out
    assert played._available("digits") == "digits"


@pytest.mark.slow
@pytest.mark.usefixtures("steady_coins")
def test_the_whole_loop_ends_with_a_report(run, folder, monkeypatch):
    """From seeds: by chance a private run may be right as often as the one that stays hidden."""
    monkeypatch.setattr("secrets.randbits", lambda bits: 1)  # seeds of first weights
    code, out, error = run("demo --data digits --out d --no-open")
    assert code == 0, error
    place = folder / "d"
    for name in run_names():
        assert (place / name / "record.json").exists()
    report, card = (place / f"{name}.html" for name in ("report", "card"))
    assert report.stat().st_mode & 0o077 == 0
    for page in (report, card):
        assert 20_000 < page.stat().st_size < 3_000_000
        assert "Not on record: <code>plain" not in page.read_text()
    accuracy = json.loads((place / "plain" / "curator" / "results.json").read_text())["accuracy"]
    assert str(accuracy) in report.read_text()
    assert str(accuracy) not in card.read_text()
    ledger = Ledger(f"sqlite:///{place / 'privacy.db'}", create=False)
    assert ledger.status("digits").releases == len(PRIVATE)
    assert ledger.status("mothers").releases == 3
    ledger.close()
    again = run("demo --data digits --out d --no-open")
    assert again[0] == 0
    assert again[1].count("done before:") == out.count("$ sfumato ")
    shutil.rmtree(place / "wavelets-1" / "curator")  # somebody tidied up
    (place / "epsilon-3" / "record.json").unlink()
    assert "not on record" in run("report d/epsilon-3 -o x.html")[1]
