"""``sfumato tune``: what it says, and what it refuses."""

import json

import pytest

from sfumato.cli.main import main


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
    ],
)
def test_mistakes(capsys, arguments, text):
    code, _, err = said(capsys, *arguments)
    assert code == 2
    assert text in " ".join(err.split())
