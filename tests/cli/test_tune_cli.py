"""``sfumato tune``: what it says, and what it refuses."""

import json

import numpy as np
import pytest

from sfumato.cli.main import main
from sfumato.ledger import Ledger


def said(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["tune", "--data", "digits", "--epsilon", "4", "--delta", "1e-4", *arguments])
    return ended.value.code, *capsys.readouterr()


def test_a_dry_run_says_what_it_would_cost(capsys):
    code, out, _ = said(capsys, "--vary", "learning-rate=0.3,1", "--vary", "lot-size=200,300,400",
                        "--trials", "5", "--dry-run", "--json")  # fmt: skip
    assert code == 0
    found = json.loads(out)
    assert (found["epsilon"], found["candidates"]) == (pytest.approx(4.0, rel=1e-3), 6)
    assert found["trials"] == {"mean": 5.0, "shape": 1.0}


def test_a_search_ends_in_a_run(capsys, tmp_path):
    code, out, err = said(
        capsys, "--vary", "learning-rate=0.3,1", "--vary", "epochs=2", "--trials", "1.5",
        "--preset", "table", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert code == 0, err
    assert "paid for" in " ".join(out.split())
    assert "run 1:" in err
    assert json.loads((tmp_path / "run" / "record.json").read_text())["private"] is True
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "card.md")])
    assert "chosen on this data and paid for" in (tmp_path / "card.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--vary", "noise=1,2"], "OPTION one of"),
        (["--vary", "clip"], "vary must be OPTION=VALUE"),
        (["--vary", "clip=1,x"], "must have numbers for clip"),
        (["--vary", "clip=1", "--vary", "clip=2"], "once"),
        (["--vary", "clip=1", "--trials", "0.5"], "mean must be above 1"),
        (["--vary", "clip=1", "--dataset", "d"], "needs --ledger"),
        (["--vary", "clip=1"], "out must be given"),
        (["--vary", "model=mlp,zzz", "--dry-run"], "model must be one of"),
    ],
)
def test_mistakes(capsys, arguments, text):
    code, _, err = said(capsys, *arguments)
    assert code == 2
    assert text in " ".join(err.split())


# --- going on -------------------------------------------------------------------------------------


def cut_off(capsys, tmp_path, monkeypatch):
    """A search that was interrupted in its second run, by the ledger's own command line."""
    from sfumato.accounting import Trials
    from sfumato.learning.recipes import tuning

    monkeypatch.chdir(tmp_path)
    main_ok("ledger", "create", "digits", "--epsilon", "20", "--delta", "1e-3", "--url", "p.db")
    train, count = tuning.train, []

    def dying(*arguments, **more):
        count.append(1)
        if len(count) == 2:
            raise KeyboardInterrupt
        return train(*arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(tuning, "train", dying)
        patched.setattr(Trials, "draw", lambda self, coins: 2)
        with pytest.raises((SystemExit, KeyboardInterrupt)):
            main(["tune", "--data", "digits", "--epsilon", "4", "--delta", "1e-4", "--vary",
                  "learning-rate=0.3,1", "--vary", "epochs=2", "--preset", "table", "--ledger",
                  "p.db", "--dataset", "digits", "--out", "run"])  # fmt: skip
    capsys.readouterr()
    assert not (tmp_path / "run" / "record.json").exists()


def main_ok(*words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0


@pytest.mark.parametrize("words", [["tune", "--resume", "run"], ["train", "resume", "run"]])
def test_a_search_that_was_cut_off_goes_on(capsys, tmp_path, monkeypatch, words):
    cut_off(capsys, tmp_path, monkeypatch)
    main_ok(*words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["epsilon"] == pytest.approx(4.0, rel=1e-3)
    ledger = Ledger("p.db", create=False)
    kinds = [entry.kind for entry in ledger.history("digits") if entry.kind != "resume"]
    assert kinds == ["open", "reserve", "commit"]
    ledger.close()
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "nothing to resume" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--resume", "nowhere"], "must hold a run"),
        (["--resume", "nowhere", "--data", "digits"], "--data must be left out with --resume"),
        (["--data", "digits"], "--data, --epsilon and --vary must be given"),
    ],
)
def test_mistakes_in_going_on(capsys, words, text):
    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])
    assert ended.value.code == 2
    assert text in " ".join(capsys.readouterr().err.split())


def test_a_run_is_no_search(capsys, tmp_path):
    (tmp_path / "curator").mkdir()
    (tmp_path / "curator" / "request.json").write_text('{"recipe": {}}')
    with pytest.raises(SystemExit) as ended:
        main(["tune", "--resume", str(tmp_path)])
    assert ended.value.code == 2
    assert "sfumato train resume" in " ".join(capsys.readouterr().err.split())


# --- on public data -------------------------------------------------------------------------------


@pytest.fixture
def open_rows(tmp_path):
    """A data set of one's own that is declared public: random digits with their corner marked."""
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 10, 900)
    rows = {f"c{i}": generator.random(900) + (labels == i) for i in range(10)}
    np.savez(tmp_path / "open.npz", **rows, label=labels)
    columns = "".join(f"[columns.c{i}]\nlower = 0\nupper = 2\n" for i in range(10))
    (tmp_path / "open.toml").write_text(
        f'label = "label"\nclasses = {list(range(10))}\nrecords = 900\npublic_test = true\n'
        f"{columns}"
    )
    source = str(tmp_path / "open.npz")
    return ["--on", source, "--on-declared", str(tmp_path / "open.toml"), "--on-test", source]


def test_chosen_on_public_data_and_trained_once(capsys, tmp_path, open_rows):
    out = tmp_path / "run"
    vary = ["--vary", "learning-rate=0.001,1", "--vary", "epochs=3", "--preset", "table"]
    code, printed, err = said(capsys, *vary, *open_rows, "--dry-run", "--json")
    assert code == 0, err
    planned = json.loads(printed)
    assert (planned["epsilon"], planned["candidates"]) == (pytest.approx(4.0, rel=1e-3), 2)
    code, printed, err = said(capsys, *vary, *open_rows, "--repeats", "2", "--out", str(out))
    assert code == 0, err
    assert err.count("on open") == 4
    record = json.loads((out / "record.json").read_text())
    assert record["guarantee"]["epsilon"] == pytest.approx(4.0, rel=1e-3)
    assert record["event"]["kind"] != "rdp-curve"  # one run, at the whole epsilon
    assert record["parameters"]["recipe"]["rate"]["start"] == 1.0
    tuning = record["facts"]["tuning"]
    assert "chosen on open, declared public: the best of 2, tried 2 times each" in tuning
    assert "declared public" in " ".join(printed.split())
    assert "not stated" not in tuning
    request = json.loads((out / "curator" / "request.json").read_text())
    assert request["source"]["data"] == "digits"  # so that sfumato train resume goes on with it


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--on", "digits", "--out", "run"], "other data than the private ones"),
        (["--on", "./digits", "--out", "run"], "other data than the private ones"),
        (["--vary", "lot-size=1000"], "at most the 900 rows"),
        ([], "out must be given"),
        (["--repeats", "0", "--out", "run"], "repeats"),
    ],
)
def test_mistakes_with_public_data(capsys, tmp_path, monkeypatch, open_rows, more, text):
    monkeypatch.chdir(tmp_path)
    own = [] if "--on" in more else open_rows
    if "lot-size=1000" in more:
        more = [*more, "--out", "run"]
    code, _, err = said(capsys, "--vary", "epochs=1", "--preset", "table", *own, *more)
    assert code == 2
    assert text in " ".join(err.split())
    assert not (tmp_path / "run").exists()
