"""A card of a model that several trained together names every observer."""

import json

import pytest

from sfumato.cli.main import main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "together"
    with pytest.raises(SystemExit) as ended:
        main(
            ["federate", "simulate", "--data", "digits", "--participants", "4", "--rounds", "2",
             "--work", "gradients", "--noise", "local", "--noise-multiplier", "1", "--out",
             str(folder), "--json"]
        )  # fmt: skip
    assert ended.value.code == 0
    return folder


def test_the_card_says_who_could_learn_what(run, tmp_path, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["report", str(run), "-o", str(tmp_path / "card.md"), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["missing"] == []
    text = (tmp_path / "card.md").read_text()
    for said in (
        "epsilon against: released models", "epsilon against: server", "each participant, in full",
        "rounds sent | 2", "by the server, which sees every contribution",
        "of its test set (public)",
        "sfumato federate simulate --federation",
    ):  # fmt: skip
        assert said in text, said


def test_central_noise_has_no_guarantee_against_the_server(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(
            ["federate", "simulate", "--data", "digits", "--participants", "4", "--rounds", "1",
             "--noise-multiplier", "5", "--out", str(tmp_path / "run"), "--json"]
        )  # fmt: skip
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "card.md")])
    text = (tmp_path / "card.md").read_text()
    assert "| epsilon against: server | no guarantee |" in text
    condition = "another participant is there and answers"
    lead, _, rest = text.partition("Noted beside it: given that ")
    assert "How much the release can depend on any one client" in lead
    assert rest.startswith(condition)
    assert f"| given that | {condition}" in text
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert condition in record["guarantee"]["note"]
