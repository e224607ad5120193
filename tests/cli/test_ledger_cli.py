"""``sfumato ledger`` as its users call it."""

import json

import pytest

from sfumato.cli.main import main
from sfumato.core.events import GaussianEvent, LaplaceEvent
from sfumato.ledger import Ledger

CREATE = "ledger create census --epsilon 3 --delta 1e-6 --unit person".split()


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SFUMATO_LEDGER", raising=False)


@pytest.fixture
def run(capsys):
    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


@pytest.fixture
def answer(run):
    def call(*words):
        code, out, err = run(*words, "--json")
        assert (code, err) == (0, "")
        return json.loads(out)

    return call


@pytest.fixture
def spent(run):
    run(*CREATE)
    ledger = Ledger("privacy.db")
    for number in range(4):
        event = LaplaceEvent(8.0, unit="person")
        analyst = "ann" if number % 2 else ""
        with ledger.spend("census", event, analyst=analyst, label="rows") as spending:
            spending.commit(number)
    with ledger.spend("census", GaussianEvent(20.0, unit="person")):
        pass
    ledger.close()


def test_create_opens_a_budget_once(answer, run):
    made = answer(*CREATE)
    assert (made["epsilon"], made["delta"], made["unit"]) == (3.0, 1e-6, "person")
    assert made["neighbours"] == "add-remove"
    assert made["opaque_delta"] == 5e-7
    assert answer(*CREATE) == made
    code, _, err = run(*CREATE[:3], "--epsilon", 4, "--unit", "person")
    assert code == 2
    assert err.startswith("sfumato: dataset 'census' exists with other terms")
    code, out, _ = run(*CREATE)
    assert code == 0
    assert "epsilon 3, delta 1e-06, add or remove one person" in out


def test_create_takes_every_term(answer):
    made = answer(
        *"ledger create labels --epsilon 1 --delta 1e-5 --opaque-delta 1e-6 --unit label".split(),
        *"--neighbours replace-one --closed --description x --url sqlite:///other.db".split(),
    )
    assert (made["closed"], made["description"]) == (True, "x")
    assert (made["opaque_delta"], made["neighbours"]) == (1e-6, "replace-one")


def test_show_all_and_one(answer, run, spent):
    everything = answer("ledger", "show")
    assert [data["dataset"] for data in everything["datasets"]] == ["census"]
    one = answer("ledger", "show", "census")
    assert 0 < one["declared"]["epsilon"] <= one["reading"] < one["epsilon"] == 3.0
    code, out, _ = run("ledger", "show")
    assert code == 0
    assert "add or remove one person" in out
    _, out, _ = run("ledger", "show", "census")
    assert "The guarantee is the cap" in out
    assert "declared in advance" in out


def test_a_closed_dataset_is_shown_with_what_is_left_for_its_analysts(answer, run):
    run("ledger", "create", "staff", "--epsilon", 2, "--closed")
    assert answer("ledger", "show", "staff")["left"] == 0.0  # for no one in particular
    _, out, _ = run("ledger", "show")
    assert out.split()[-2] == "2"  # of the dataset
    run("ledger", "grant", "staff", "ann", "--epsilon", 1)
    _, out, _ = run("ledger", "show", "--analyst", "ann")
    assert out.split()[-2] == "1"
    _, out, _ = run("ledger", "show", "--analyst", "bob")
    assert out.split()[-2] == "0"


def test_show_draws_the_burn_down(answer, run, spent, tmp_path):
    assert answer("ledger", "show", "census", "--plot", "b.png")["plot"] == "b.png"
    assert (tmp_path / "b.png").stat().st_size > 5000
    code, _, err = run("ledger", "show", "--plot", "b.png")
    assert (code, "name it" in err) == (2, True)


def test_history_lists_every_entry(answer, run, spent):
    found = answer("ledger", "history", "census")
    assert [entry["kind"] for entry in found["entries"][:3]] == ["open", "reserve", "commit"]
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(found)
    _, out, _ = run("ledger", "history", "census")
    assert "laplace: rows" in out
    assert "0.125" in out


def test_head_and_verify(answer, run, spent, tmp_path):
    head = answer("ledger", "head", "census", "-o", "census.head")
    assert answer("ledger", "verify", "census")["ok"]
    for kept in ("census.head", head["hash"]):
        found = answer("ledger", "verify", "census", "--head", kept)
        assert found["ok"]
        assert head["hash"] in found["against"]
    code, out, _ = run("ledger", "verify", "census", "--head", "0" * 64)
    assert code == 1
    assert "kept head" in out
    code, out, _ = run("ledger", "verify", "census", "--head", "0" * 64, "--json")
    assert code == 1
    assert not json.loads(out)["ok"]
    code, _, err = run("ledger", "verify", "census", "--head", "nowhere.head")
    assert (code, "64 hexadecimal digits" in err) == (2, True)
    _, out, _ = run("ledger", "verify", "census", "--head", "census.head")
    assert "the kept head is among them" in out


def test_grant_and_its_caps(answer, run, spent):
    found = answer("ledger", "grant", "census", "ann", "--epsilon", 1, "--delta", "1e-7")
    assert found["caps"][0]["analyst"] == "ann"
    assert found["left"] == 1.0
    _, out, _ = run("ledger", "show", "census", "--analyst", "ann")
    assert "the cap of 'ann'" in out


def test_preview_spends_nothing(answer, run, spent, tmp_path):
    events = [
        {"kind": "laplace", "noise_multiplier": 10, "unit": "person"},
        {"kind": "gaussian", "noise_multiplier": 1, "unit": "person"},
    ]
    (tmp_path / "events.json").write_text(json.dumps(events))
    before = answer("ledger", "head", "census")
    found = answer("ledger", "preview", "census", "events.json")
    assert [event["passes"] for event in found["events"]] == [True, False]
    assert found["events"][0]["cost"] > 0
    assert not found["passes"]
    assert {"epsilon", "delta", "neighbours", "unit"} <= set(found)
    _, out, _ = run("ledger", "preview", "census", "events.json")
    assert "Nothing was spent" in out
    assert answer("ledger", "head", "census") == before
    (tmp_path / "events.json").write_text("[{}]")
    code, _, err = run("ledger", "preview", "census", "events.json")
    assert (code, "bad event" in err) == (2, True)


@pytest.mark.parametrize("command", ["show", "history", "verify", "head"])
def test_looking_for_a_ledger_leaves_nothing_behind(run, tmp_path, command):
    words = ["ledger", command] + (["census"] if command != "show" else [])
    code, _, err = run(*words)
    assert code == 2
    assert "there is no ledger at 'privacy.db'" in err
    assert list(tmp_path.iterdir()) == []


def test_the_ledger_is_named_by_an_option_or_the_environment(run, monkeypatch, tmp_path):
    run(*CREATE, "--url", "one.db")
    monkeypatch.setenv("SFUMATO_LEDGER", "two.db")
    run(*CREATE)
    assert {path.name for path in tmp_path.glob("*.db")} == {"one.db", "two.db"}
    code, _, err = run("ledger", "show", "nothing")
    assert (code, "it has: 'census'" in err) == (2, True)
