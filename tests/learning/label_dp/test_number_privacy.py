"""Runs whose labels are numbers tell each label once, charge first, and show nothing else."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from sfumato.core import SeededCoins
from sfumato.data import Examples
from sfumato.learning.label_dp import (
    OutOfTime,
    RegressionLabels,
    number_preset,
    train_label_dp,
)
from sfumato.learning.label_dp import number_runs as runs_module
from sfumato.learning.label_dp import randomising as randomising_module
from sfumato.learning.label_dp.charging import LabelCharge
from sfumato.learning.label_dp.number_labels import BinnedLabels, halves, read_bins
from sfumato.learning.runs.folder import RunFolder
from sfumato.ledger import Budget, BudgetExceeded, Ledger
from sfumato.ledger.errors import LedgerError
from sfumato.mechanisms.randomized_response import RandomizedResponse

SIZE, BOUNDS = 5000, (10.0, 70.0)


def with_labels(data, labels):
    return replace(data, train=Examples(data.train.inputs, labels))


def journal_of(folder):
    lines = (folder / "curator/reports.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def told_in(folder):
    """Reports in the order of the run's rows."""
    pieces = [e for e in journal_of(folder) if e.get("stage") == 0 and "reports" in e]
    return np.array([report for piece in pieces for report in piece["reports"]])


# --- each label once ------------------------------------------------------------------------------


def test_reports_have_the_law_of_randomised_response(wages, tmp_path) -> None:
    """Of 5,000 labels in a run: a report is the label's own bin as often as it should be."""
    recipe = number_preset(wages, 2.0, histogram_share=0.25)
    found = train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(5))
    bins = read_bins(found.folder)
    assert bins.epsilon == 1.5
    order = load_file(tmp_path / "a/curator/order")["order"].numpy()
    true = BinnedLabels(wages.train.labels, BOUNDS, bins)[order]
    keep = RandomizedResponse(1.5, len(bins.values)).keep
    assert found.record.facts["bins"]["keep"] == keep
    right = (told_in(tmp_path / "a") == true).mean()
    spread = math.sqrt(keep * (1 - keep) / SIZE)
    assert abs(right - keep) < 4 * spread
    more = RandomizedResponse(1.65, len(bins.values)).keep  # a tenth more would be seen
    assert more - keep > 3 * spread


class CountedLabels(np.ndarray):
    """Labels that note who reads which of them."""

    seen: list

    def __getitem__(self, key):
        if isinstance(key, np.ndarray):
            CountedLabels.seen.extend(key.tolist())
        return np.asarray(super().__getitem__(key))


@pytest.fixture
def counted(wages, monkeypatch):
    """The data, whose labels are counted: by places, and as wholes for a histogram."""
    CountedLabels.seen = []
    whole, real = [], RegressionLabels.noisy_histogram

    def watched(self, labels, **more):
        whole.append(len(labels))
        return real(self, labels, **more)

    monkeypatch.setattr(RegressionLabels, "noisy_histogram", watched)
    return with_labels(wages, wages.train.labels.view(CountedLabels)), whole


def killed_at(monkeypatch, call):
    """Kills the process after so many pieces were randomised."""
    real, calls = randomising_module._randomised, []

    def killed(*arguments):
        calls.append(1)
        made = real(*arguments)  # drawn, and seen by no one but whoever kills
        if len(calls) == call:
            raise KeyboardInterrupt
        return made

    monkeypatch.setattr(randomising_module, "_randomised", killed)


def test_a_killed_run_tells_no_label_twice(wages, counted, tmp_path, monkeypatch) -> None:
    data, whole = counted
    recipe = number_preset(wages, 3.0)
    killed_at(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(2))
    before = journal_of(tmp_path / "a")
    found = train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(3), resume=True)
    assert sorted(CountedLabels.seen) == list(range(SIZE))
    assert whole == [SIZE]  # one histogram
    assert journal_of(tmp_path / "a")[: len(before)] == before
    assert found.record.facts["labels_lost"] == randomising_module.PIECE
    assert found.record.facts["prior"].startswith("a noisy histogram")
    assert found.errors is not None
    assert found.errors.root_mean_squared < 0.6 * found.errors.of_the_middle


def test_a_histogram_that_was_being_drawn_is_lost_and_never_drawn_again(
    wages, counted, tmp_path, monkeypatch
) -> None:
    data, whole = counted
    drawn = RegressionLabels.noisy_histogram

    def killed(self, labels, **more):
        drawn(self, labels, **more)
        raise KeyboardInterrupt

    recipe = number_preset(wages, 3.0)
    with monkeypatch.context() as patch:
        patch.setattr(RegressionLabels, "noisy_histogram", killed)
        with pytest.raises(KeyboardInterrupt):
            train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(2))
    found = train_label_dp(recipe, data, out=tmp_path / "a", coins=SeededCoins(3), resume=True)
    assert whole == [SIZE]
    assert sorted(CountedLabels.seen) == list(range(SIZE))
    assert found.record.facts["prior"].startswith("even: the histogram was lost")
    assert found.record.guarantee.epsilon == 3.0  # it is paid for
    assert read_bins(found.folder).epsilon == pytest.approx(2.7)


def test_bins_that_reports_were_made_by_are_kept(wages, tmp_path, monkeypatch) -> None:
    """Gone on with on a machine that would cut otherwise, a run keeps its own bins."""
    recipe = number_preset(wages, 3.0)
    killed_at(monkeypatch, 2)
    with pytest.raises(KeyboardInterrupt):
        train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(2))
    kept = read_bins(RunFolder(tmp_path / "a"))
    other = RegressionLabels(2.7, -1, 1, points=5).bins_for([1, 0, 0, 0, 1])
    monkeypatch.setattr(RegressionLabels, "bins_for", lambda *_: other)
    found = train_label_dp(recipe, wages, out=tmp_path / "a", resume=True)
    assert read_bins(found.folder) == kept


def test_time_runs_out_and_the_run_goes_on(wages, tmp_path) -> None:
    recipe = number_preset(wages, 3.0, network="mlp", epochs=3.0)
    with pytest.raises(OutOfTime):
        train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(1), minutes=1e-9)
    with pytest.raises(ValueError, match="another recipe"):
        train_label_dp(number_preset(wages, 2.0), wages, out=tmp_path / "a", resume=True)
    found = train_label_dp(recipe, wages, out=tmp_path / "a", coins=SeededCoins(1), resume=True)
    whole = train_label_dp(recipe, wages, out=tmp_path / "b", coins=SeededCoins(1))
    assert found.errors == whole.errors
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, found.model.state_dict()[name])
    with pytest.raises(ValueError, match="came to its end"):
        train_label_dp(recipe, wages, out=tmp_path / "a", resume=True)


# --- what depends on a label ----------------------------------------------------------------------

STRANGE = [math.nan, math.inf, -math.inf, 1e300, -1e300, 70.0]


def traces(folder, *, without):
    """Everything a run leaves, but for the values that were released."""
    record = json.loads((folder / "record.json").read_text())
    for name in (*without, "root_mean_squared_error", "r_squared", "mean_absolute_error"):
        record["facts"].pop(name)
    entries = [
        {k: v for k, v in entry.items() if k not in ("name", "reports", "turn")}
        | ({"pieces": len(entry["reports"])} if "reports" in entry else {})
        for entry in journal_of(folder)
    ]
    names = sorted(
        (str(p.relative_to(folder)), p.stat().st_mode) for p in folder.rglob("*") if p.is_file()
    )
    return record, entries, names


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_nothing_but_what_is_released_depends_on_a_label(wages, tmp_path, capfd, share) -> None:
    """Non-interference: the same coins, neighbouring labels, strange ones too."""
    seen, told = [], []
    ledger = Ledger(tmp_path / "l.db")
    for number, label in enumerate([30.0, *STRANGE]):
        labels = wages.train.labels.copy()
        labels[123] = label
        name = f"run{number}"
        ledger.create(name, Budget(3.0), unit="label", neighbours="replace-one")
        recipe = number_preset(wages, 2.0, histogram_share=share, points=16)
        train_label_dp(
            recipe, with_labels(wages, labels), out=tmp_path / name, coins=SeededCoins(6),
            ledger=ledger, dataset=name,
        )  # fmt: skip
        bins = ("bins",) if share else ()
        record, entries, names = traces(tmp_path / name, without=bins)
        entries[0]["facts"].pop("charged")
        kinds = [entry.kind for entry in ledger.history(name)]
        seen.append(
            (record, [e for e in entries if "entry" not in e], names, kinds,
             ledger.status(name).left, capfd.readouterr())
        )  # fmt: skip
        told.append(told_in(tmp_path / name))
    assert all(one == seen[0] for one in seen)
    place = np.flatnonzero(load_file(tmp_path / "run0/curator/order")["order"].numpy() == 123)
    if not share:  # bins are public, so that nobody else's report may differ
        for other in told[1:]:
            assert np.flatnonzero(told[0] != other).tolist() in ([], place.tolist())
    assert all(len(one) == SIZE for one in told)


def test_strange_labels_count_as_the_nearer_bound_or_the_middle(wages, tmp_path) -> None:
    def model(label, name):
        labels = wages.train.labels.copy()
        labels[:2000] = label
        found = train_label_dp(
            number_preset(wages, 3.0), with_labels(wages, labels), out=tmp_path / name,
            coins=SeededCoins(3),
        )  # fmt: skip
        return found.model[1].weight.tolist()

    assert model(1e300, "a") == model(BOUNDS[1], "b")
    assert model(-1e300, "c") == model(BOUNDS[0], "d")
    assert model(math.nan, "e") == model(math.inf, "f") == model(40.0, "g")
    assert model(BOUNDS[0], "h") != model(BOUNDS[1], "i")
    odd = halves(np.array(["x", None, 25, True], dtype=object), BOUNDS)
    assert odd.tolist() == [0.0, 0.0, -0.5, -1.0]


def test_the_order_of_the_rows_does_not_matter(wages, tmp_path) -> None:
    turned = replace(wages, train=Examples(*(part[::-1].copy() for part in wages.train)))
    found = [
        train_label_dp(number_preset(wages, 3.0), data, out=tmp_path / name, coins=SeededCoins(4))
        for name, data in (("a", wages), ("b", turned))
    ]
    assert found[0].record.to_dict() == found[1].record.to_dict()


def test_bounds_of_any_size(wages, tmp_path) -> None:
    """Very far apart, or very near: what is learnt is the same in halves of the range."""
    found = []
    for number, unit in enumerate((1.0, 1e200, 1e-90)):
        parts = {
            name: Examples(part.inputs, part.labels * unit)
            for name, part in (("train", wages.train), ("test", wages.test))
        }
        data = replace(wages, **parts, target_bounds=(10 * unit, 70 * unit))
        made = train_label_dp(
            number_preset(data, 3.0), data, out=tmp_path / f"{number}", coins=SeededCoins(4)
        )
        assert made.errors is not None
        found.append(made.errors.root_mean_squared / unit)
    assert found == pytest.approx([found[0]] * 3, rel=1e-6)


# --- who pays -------------------------------------------------------------------------------------


def test_the_charge_comes_before_any_label_is_read(
    wages, label_budget, tmp_path, monkeypatch
) -> None:
    left, real = [], runs_module.noisy_prior

    def watched(*arguments):
        left.append(label_budget["ledger"].status("labels").left)
        return real(*arguments)

    monkeypatch.setattr(runs_module, "noisy_prior", watched)
    train_label_dp(number_preset(wages, 2.0), wages, out=tmp_path / "a", **label_budget)
    assert left == [pytest.approx(0.5, abs=1e-6)]
    kinds = [entry.kind for entry in label_budget["ledger"].history("labels")]
    assert kinds.count("reserve") == kinds.count("commit") == 1
    assert kinds.count("resume") == 4  # the histogram, and three pieces
    monkeypatch.setattr(runs_module, "noisy_prior", lambda *_: pytest.fail("a label was read"))
    with pytest.raises(BudgetExceeded):
        train_label_dp(number_preset(wages, 2.0), wages, out=tmp_path / "b", **label_budget)
    assert not (tmp_path / "b").exists()
    label_budget["ledger"].create("people", Budget(9.0), unit="person", neighbours="replace-one")
    with pytest.raises(LedgerError, match="open an account for labels"):
        train_label_dp(
            number_preset(wages, 2.0), wages, out=tmp_path / "b", ledger=label_budget["ledger"],
            dataset="people",
        )  # fmt: skip


def test_a_copy_that_would_draw_the_histogram_again_is_refused(
    wages, label_budget, tmp_path, monkeypatch
) -> None:
    """Copied as the charge was made, before the histogram was begun."""
    run, copy, real = tmp_path / "a", tmp_path / "b", LabelCharge.make

    def copying(self, *arguments):
        real(self, *arguments)
        if not copy.exists():
            shutil.copytree(run, copy)

    monkeypatch.setattr(LabelCharge, "make", copying)
    recipe = number_preset(wages, 2.0)
    train_label_dp(recipe, wages, out=run, **label_budget)
    monkeypatch.setattr(
        RegressionLabels, "noisy_histogram", lambda *_, **__: pytest.fail("drawn again")
    )
    with pytest.raises(LedgerError, match="went on elsewhere"):
        train_label_dp(recipe, wages, out=copy, resume=True, **label_budget)
    assert not (copy / "record.json").exists()
