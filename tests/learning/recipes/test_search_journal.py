"""Searches that were cut off: the same draws, finished runs kept, one charge, one release."""

import json
import shutil
from dataclasses import replace

import pytest

from sfumato.accounting import Trials
from sfumato.core.randomness import SYSTEM, SeededCoins
from sfumato.data import load_dataset
from sfumato.learning.recipes import Recipe, load_run
from sfumato.learning.recipes import tuning as tuning_module
from sfumato.learning.recipes.rates import Rate
from sfumato.learning.recipes.search_journal import SearchJournal
from sfumato.learning.recipes.tuning import Search, tune
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import LedgerError

BASE = Recipe("linear", lot_size=300, rate=Rate(1.0), epochs=1, origin="a test")
SEARCH = Search(tuple(replace(BASE, rate=Rate(rate)) for rate in (0.5, 2.0)), Trials(3), 4.0, 1e-4)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.fixture(autouse=True)
def three_runs(monkeypatch):
    monkeypatch.setattr(Trials, "draw", lambda self, coins: 3)


@pytest.fixture
def paid(tmp_path):
    opened = Ledger(tmp_path / "privacy.db")
    opened.create("digits", Budget(20.0, 1e-3))
    yield {"ledger": opened, "dataset": "digits"}
    opened.close()


class CutOffError(BaseException):
    """As if the process had been killed."""


def cut_off(monkeypatch, at, moment="before"):
    """The ``at``-th run of the search dies before it begins, in its middle, or after its end."""
    count, train = [0], tuning_module.train

    def dying(*args, **more):
        count[0] += 1
        if count[0] != at:
            return train(*args, **more)
        if moment == "after":
            train(*args, **more)
        if moment == "middle":  # begun, with checkpoints, and no record
            train(*args, **more)
            (more["out"] / "record.json").unlink()
        raise CutOffError

    monkeypatch.setattr(tuning_module, "train", dying)
    return count


def kinds(paid):
    """Of all entries but turns."""
    entries = paid["ledger"].history(paid["dataset"])
    return [entry.kind for entry in entries if entry.kind != "resume"]


def drawn(folder):
    lines = (folder / "curator" / "search.jsonl").read_text().splitlines()
    return [json.loads(line)["drawn"] for line in lines if "drawn" in line]


def records(folder):
    """The records of the runs that ended, as they lie on disk."""
    return {p.parent.name: p.read_bytes() for p in folder.glob("curator/trials/*/record.json")}


@pytest.mark.parametrize(
    ("at", "moment"), [(1, "before"), (2, "middle"), (3, "middle"), (3, "after")]
)
def test_what_ended_stays_and_what_was_cut_off_is_begun_anew(
    digits, tmp_path, monkeypatch, paid, at, moment
):
    out = tmp_path / "run"
    count = cut_off(monkeypatch, at, moment)
    with pytest.raises(CutOffError):
        tune(SEARCH, digits, out=out, **paid)
    before, left = records(out), paid["ledger"].status("digits").left
    ended = at - (moment != "after")
    assert len(before) == ended
    told = []
    tuned = tune(None, digits, out=out, resume=True, watch=lambda n, *_: told.append(n), **paid)
    assert count[0] == 3 + (moment != "after")
    assert told == [0, 1, 2]
    assert len(drawn(out)) == 1
    after = records(out)
    assert {name: after[name] for name in before} == before  # to the bit
    assert tuned.trials == len(after) == 3
    best = max(json.loads(text)["facts"]["accuracy"] for text in after.values())
    assert tuned.accuracy == best
    assert kinds(paid) == ["open", "reserve", "commit"]
    assert paid["ledger"].status("digits").left == left
    record = load_run(out).record
    assert record.private
    assert record.event == SEARCH.plan(1437).event
    assert all(json.loads(text)["facts"]["steps_lost"] == 0 for text in after.values())


def test_draws_are_kept_not_drawn_again(tmp_path):
    path, coins = tmp_path / "curator" / "search.jsonl", SeededCoins(7)
    first = SearchJournal(path, coins)
    assert not first.begun
    own = first.draws(SEARCH)
    first.close()
    assert path.stat().st_mode & 0o077 == 0
    second = SearchJournal(path, SYSTEM)
    assert (second.begun, second.draws(SEARCH)) == (True, own)
    assert not second.private  # seeded coins before a crash are not forgotten
    second.close()


def test_draws_torn_by_a_crash_were_never_used(tmp_path):
    path = tmp_path / "curator" / "search.jsonl"
    SearchJournal(path, SYSTEM).close()
    with path.open("a") as file:
        file.write('{"drawn":[0,1')
    journal = SearchJournal(path, SYSTEM)
    assert not journal.begun
    own = journal.draws(SEARCH)
    journal.close()
    again = SearchJournal(path, SYSTEM)
    assert again.draws(SEARCH) == own
    again.close()


def test_one_process_at_a_time(tmp_path, digits, paid, monkeypatch):
    cut_off(monkeypatch, 2)
    with pytest.raises(CutOffError):
        tune(SEARCH, digits, out=tmp_path / "run", **paid)
    other = SearchJournal(tmp_path / "run" / "curator" / "search.jsonl", SYSTEM)
    with pytest.raises(ValueError, match="another process is at work"):
        tune(None, digits, out=tmp_path / "run", resume=True, **paid)
    other.close()
    tune(None, digits, out=tmp_path / "run", resume=True, **paid)
    assert kinds(paid) == ["open", "reserve", "commit"]


def test_killed_between_the_charge_and_the_draws_is_charged_once(
    digits, tmp_path, monkeypatch, paid
):
    def dying(self, search):
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(SearchJournal, "draws", dying)
        with pytest.raises(CutOffError):
            tune(SEARCH, digits, out=tmp_path / "run", **paid)
    assert kinds(paid) == ["open", "reserve"]
    assert drawn(tmp_path / "run") == []
    tune(None, digits, out=tmp_path / "run", resume=True, **paid)
    assert kinds(paid) == ["open", "reserve", "commit"]


def test_killed_before_the_charge(digits, tmp_path, monkeypatch, paid):
    def dying(*_, **__):
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "spend", dying)
        with pytest.raises(CutOffError):
            tune(SEARCH, digits, out=tmp_path / "run", **paid)
    assert kinds(paid) == ["open"]
    tune(SEARCH, digits, out=tmp_path / "run", resume=True, **paid)
    assert kinds(paid) == ["open", "reserve", "commit"]


def test_killed_after_the_charge_ended_and_before_the_record(digits, tmp_path, monkeypatch, paid):
    def dying(self, scores):
        raise CutOffError

    with monkeypatch.context() as patched:
        patched.setattr(tuning_module._Searching, "_release", dying)
        with pytest.raises(CutOffError):
            tune(SEARCH, digits, out=tmp_path / "run", **paid)
    assert not (tmp_path / "run" / "record.json").exists()
    shutil.copytree(tmp_path / "run", tmp_path / "older")
    shutil.rmtree(tmp_path / "older" / "curator" / "trials" / "0002")
    tuned = tune(None, digits, out=tmp_path / "run", resume=True, **paid)
    assert tuned.trials == 3
    assert kinds(paid) == ["open", "reserve", "commit"]
    with pytest.raises(LedgerError, match="older copy"):
        tune(None, digits, out=tmp_path / "older", resume=True, **paid)
    assert not (tmp_path / "older" / "record.json").exists()


def test_a_copy_is_no_second_search(digits, tmp_path, monkeypatch, paid):
    cut_off(monkeypatch, 2)
    with pytest.raises(CutOffError):
        tune(SEARCH, digits, out=tmp_path / "run", **paid)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    tune(None, digits, out=tmp_path / "run", resume=True, **paid)
    for _ in range(3):
        with pytest.raises(LedgerError, match="older copy"):
            tune(None, digits, out=tmp_path / "copy", resume=True, **paid)
    assert not (tmp_path / "copy" / "record.json").exists()
    assert not (tmp_path / "copy" / "model.safetensors").exists()


def test_wrong_ways_to_go_on(digits, tmp_path, monkeypatch, paid):
    cut_off(monkeypatch, 2)
    out = tmp_path / "run"
    with pytest.raises(CutOffError):
        tune(SEARCH, digits, out=out, **paid)
    with pytest.raises(LedgerError, match="was charged to 'digits'"):
        tune(None, digits, out=out, resume=True)
    other = Ledger(tmp_path / "other.db")
    other.create("digits", Budget(20.0, 1e-3))
    with pytest.raises(LedgerError, match="holds no charge"):
        tune(None, digits, out=out, resume=True, ledger=other, dataset="digits")
    assert [entry.kind for entry in other.history("digits")] == ["open"]
    with pytest.raises(ValueError, match="got another"):
        tune(replace(SEARCH, epsilon=5.0), digits, out=out, resume=True, **paid)
    with pytest.raises(ValueError, match="cut off: go on with it"):
        tune(SEARCH, digits, out=out, **paid)
    with pytest.raises(ValueError, match="must hold a run"):
        tune(None, digits, out=tmp_path / "nothing", resume=True)
    tune(None, digits, out=out, resume=True, **paid)
    with pytest.raises(ValueError, match="nothing to resume"):
        tune(None, digits, out=out, resume=True, **paid)
    with pytest.raises(ValueError, match="search must be given"):
        tune(None, digits, out=tmp_path / "new")
