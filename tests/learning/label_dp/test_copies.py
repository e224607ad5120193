"""One charge pays for one report of each label, whoever copies a run's folder, and when."""

import shutil
from dataclasses import replace

import pytest
import torch

from sfumato.data import Examples
from sfumato.learning import durable
from sfumato.learning.label_dp import TopKResponse, label_preset, train_label_dp
from sfumato.learning.label_dp import randomising as randomising_module
from sfumato.learning.label_dp import training as training_module
from sfumato.learning.label_dp.charging import LabelCharge
from sfumato.learning.label_dp.journal import LabelJournal
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Budget, Ledger, LedgerError, WentOnElsewhere

ROWS, PIECE = 300, 50


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(randomising_module, "PIECE", PIECE)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def few(data):
    train = Examples(data.train.inputs[:ROWS], data.train.labels[:ROWS])
    return replace(data, train=train, public_size=ROWS)


@pytest.fixture
def paid(tmp_path):
    """A budget that pays for one run."""
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("labels", Budget(2.0), unit="label", neighbours="replace-one")
    return {"ledger": ledger, "dataset": "labels"}


def recipe_of(data):
    return label_preset(data, 2.0, 2, epochs=1.0)


def counted(monkeypatch, hook=lambda call: None):
    """How many labels are randomised from now on; ``hook`` is called before each piece."""
    real, calls = randomising_module._randomised, []

    def watched(recipe, labels, sets, coins):
        if len(labels) > 1:  # of one label, nobody's, to see that it can be done
            hook(len(calls))
            calls.append(len(labels))
        return real(recipe, labels, sets, coins)

    monkeypatch.setattr(randomising_module, "_randomised", watched)
    return calls


@pytest.mark.parametrize("at", [2, 4, 5])
def test_a_copy_of_a_run_at_work_is_refused_after_it_went_on(
    few, paid, tmp_path, monkeypatch, at
) -> None:
    """Copied within the first stage, at the second and within it; the copy is never published."""
    run, copy = tmp_path / "a", tmp_path / "b"
    killed: list[int] = []

    def copying(call):
        if call == at:
            shutil.copytree(run, copy)
        if call == at + 1 and at < 5 and not killed:
            killed.append(call)
            raise KeyboardInterrupt

    calls = counted(monkeypatch, copying)
    if at < 5:
        with pytest.raises(KeyboardInterrupt):
            train_label_dp(recipe_of(few), few, out=run, **paid)
        with pytest.raises(LedgerError, match="went on elsewhere"):
            train_label_dp(recipe_of(few), few, out=copy, resume=True, **paid)
        train_label_dp(recipe_of(few), few, out=run, resume=True, **paid)
    else:
        train_label_dp(recipe_of(few), few, out=run, **paid)
    with pytest.raises(LedgerError, match=r"went on elsewhere|another record"):
        train_label_dp(recipe_of(few), few, out=copy, resume=True, **paid)
    assert sum(calls) <= ROWS
    assert RunFolder(run).finished
    assert not (copy / "record.json").exists()
    assert not (copy / "model.safetensors").exists()


def test_a_copy_that_goes_on_first_stops_the_run_it_was_taken_from(
    few, paid, tmp_path, monkeypatch
) -> None:
    """While the first process is at work, its copy takes the charge up."""
    run, copy = tmp_path / "a", tmp_path / "b"
    inside: list[int] = []

    def overtaken(call):
        if call == 2 and not inside:
            inside.append(call)
            shutil.copytree(run, copy)
            train_label_dp(recipe_of(few), few, out=copy, resume=True, **paid)

    calls = counted(monkeypatch, overtaken)
    with pytest.raises(LedgerError, match="went on elsewhere"):
        train_label_dp(recipe_of(few), few, out=run, **paid)
    assert sum(calls) == ROWS  # the piece at work is the run's, and lost to the copy
    assert RunFolder(copy).record()["facts"]["labels_lost"] == PIECE
    assert not RunFolder(run).finished


def test_of_two_that_go_on_at_once_one_is_refused(paid, tmp_path) -> None:
    """Both are open; whoever takes the next turn first has the run, and the other one never."""
    event = TopKResponse(1.0).event
    first = LabelJournal(tmp_path / "a", {}, True)
    LabelCharge(paid["ledger"], "labels", "").make(event, {}, first)
    first.close()
    shutil.copy(tmp_path / "a", tmp_path / "b")
    one, two = (LabelJournal(tmp_path / name, {}, True) for name in "ab")
    LabelCharge(paid["ledger"], "labels", "").make(event, {}, one)
    for _ in range(3):
        with pytest.raises(WentOnElsewhere):
            LabelCharge(paid["ledger"], "labels", "").make(event, {}, two)
    assert one.begin(0, 0)
    assert [e.data["lots"] for e in paid["ledger"].history("labels") if e.kind == "resume"] == [
        0,
        1,
    ]


def test_nothing_is_published_that_was_not_committed(few, paid, tmp_path, monkeypatch) -> None:
    def failing(_charge, _record):
        raise LedgerError("the database is away")

    monkeypatch.setattr(LabelCharge, "finish", failing)
    with pytest.raises(LedgerError, match="away"):
        train_label_dp(recipe_of(few), few, out=tmp_path / "a", **paid)
    assert not (tmp_path / "a/record.json").exists()
    assert not (tmp_path / "a/model.safetensors").exists()


def test_cut_off_between_the_commit_and_the_files(few, paid, tmp_path, monkeypatch) -> None:
    real = RunFolder.write_model

    def killed(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, "write_model", killed)
    with pytest.raises(KeyboardInterrupt):
        train_label_dp(recipe_of(few), few, out=tmp_path / "a", **paid)
    monkeypatch.setattr(RunFolder, "write_model", real)
    calls = counted(monkeypatch)
    found = train_label_dp(recipe_of(few), few, out=tmp_path / "a", resume=True, **paid)
    assert not calls
    kept = [e for e in paid["ledger"].history("labels") if e.kind == "commit"]
    assert [entry.data["answer"] for entry in kept] == [found.record.to_dict()]


def cut_off(data, folder, monkeypatch):
    """A run without a ledger that has the reports of its first stage."""

    def killed(*_arguments, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(training_module, "fit_network", killed)
        with pytest.raises(KeyboardInterrupt):
            train_label_dp(recipe_of(data), data, out=folder)


# --- before anything is paid ----------------------------------------------------------------------


def test_mistakes_cost_nothing(few, paid, tmp_path) -> None:
    cases = (
        ({"shares": (0.999, 0.001)}, {}, "every stage has two labels"),
        ({}, {"device": "abacus"}, "abacus"),
    )
    for changes, more, words in cases:
        recipe = label_preset(few, 2.0, 2, **changes)
        with pytest.raises((ValueError, RuntimeError), match=words):
            train_label_dp(recipe, few, out=tmp_path / "a", **(paid | more))
    assert not (tmp_path / "a").exists()
    assert [entry.kind for entry in paid["ledger"].history("labels")] == ["open"]


def test_a_run_without_a_ledger_does_not_get_one_later(few, paid, tmp_path, monkeypatch) -> None:
    cut_off(few, tmp_path / "a", monkeypatch)
    with pytest.raises(ValueError, match="the budget it began with"):
        train_label_dp(recipe_of(few), few, out=tmp_path / "a", resume=True, **paid)
    assert [entry.kind for entry in paid["ledger"].history("labels")] == ["open"]


def test_pieces_of_another_size_are_refused(few, tmp_path, monkeypatch) -> None:
    cut_off(few, tmp_path / "a", monkeypatch)
    monkeypatch.setattr(randomising_module, "PIECE", 2 * PIECE)
    calls = counted(monkeypatch)
    with pytest.raises(ValueError, match="holds those of another"):
        train_label_dp(recipe_of(few), few, out=tmp_path / "a", resume=True)
    assert not calls


def test_stages_of_other_rows_are_refused(few, tmp_path, monkeypatch) -> None:
    real = training_module.split
    cut_off(few, tmp_path / "a", monkeypatch)
    monkeypatch.setattr(training_module, "split", lambda *a: real(*a)[::-1])
    with pytest.raises(ValueError, match="holds those of another"):
        train_label_dp(recipe_of(few), few, out=tmp_path / "a", resume=True)


def test_the_name_of_a_new_journal_is_on_disk(tmp_path, monkeypatch) -> None:
    synced: list = []
    monkeypatch.setattr(durable, "sync_folder", synced.append)
    for _ in range(2):
        LabelJournal(tmp_path / "x/j", {}, True).close()
    assert synced == [tmp_path / "x"]
    durable.sync_folder(tmp_path / "x")
