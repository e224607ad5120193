"""The best of a random number of runs: what it costs, what leaves, what stays."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from sfumato.accounting import Trials, account, selected_curve
from sfumato.core.randomness import SeededCoins
from sfumato.data import load_dataset
from sfumato.learning.recipes import Recipe, load_run
from sfumato.learning.recipes.rates import Rate
from sfumato.learning.recipes.tuning import Search, tune
from sfumato.ledger import Budget, BudgetExceeded, Ledger

BASE = Recipe("linear", lot_size=300, rate=Rate(1.0), epochs=2, origin="a test")
SIZE = 1437


def search(trials=None, **changes):
    candidates = tuple(replace(BASE, rate=Rate(rate)) for rate in (0.5, 2.0))
    settings = {"candidates": candidates, "trials": trials or Trials(3), "epsilon": 4.0}
    return Search(**settings | {"delta": 1e-4} | changes)


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


def runs_of(count, monkeypatch):
    monkeypatch.setattr(Trials, "draw", lambda self, coins: count)


def test_noise_is_found_by_which_the_whole_costs_epsilon():
    found = search().plan(SIZE)
    assert found.guarantee.epsilon <= 4.0
    assert found.guarantee.epsilon == pytest.approx(4.0, rel=1e-3)
    one = replace(BASE, noise_multiplier=found.noise_multiplier, delta=1e-4).event(SIZE)
    assert account(one, 1e-4).epsilon < 0.7 * found.guarantee.epsilon
    again = account(selected_curve(one, Trials(3)), 1e-4).epsilon
    assert again == pytest.approx(found.guarantee.epsilon, rel=1e-6)


def test_the_dearest_candidate_counts():
    longer = replace(BASE, epochs=6)
    both = search(candidates=(BASE, longer)).plan(SIZE)
    alone = search(candidates=(longer,)).plan(SIZE)
    assert both.noise_multiplier == pytest.approx(alone.noise_multiplier, rel=1e-6)
    assert both.noise_multiplier > search(candidates=(BASE,)).plan(SIZE).noise_multiplier


def numbers(value):
    """All of them, however deep they lie."""
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from numbers(inner)
    elif isinstance(value, int | float):
        yield value


def test_the_best_run_is_released_and_nothing_else(digits, tmp_path, monkeypatch):
    runs_of(3, monkeypatch)
    told = []
    tuned = tune(
        search(), digits, out=tmp_path / "run", watch=lambda n, recipe, score: told.append(score)
    )
    assert tuned.accuracy == max(told)
    assert tuned.trials == len(told) == 3
    public = {path.name for path in (tmp_path / "run").iterdir()}
    assert public == {"record.json", "model.safetensors", "curator"}
    assert (tmp_path / "run" / "curator").stat().st_mode & 0o077 == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["guarantee"]["epsilon"] <= 4.0
    assert record["event"]["kind"] == "rdp-curve"
    # What ran had the noise that the whole search was priced with.
    planned = search().plan(SIZE)
    assert record["parameters"]["plan"]["noise_multiplier"] == planned.noise_multiplier
    assert record["event"] == planned.event.to_dict()
    assert "paid for" in record["facts"]["tuning"]
    assert record["private"] is True
    # How many there were is told nowhere: the law alone is.
    assert record["parameters"]["search"]["trials"] == {"mean": 3, "shape": 1.0}
    planned_before = set(numbers([one.to_dict() for one in search().candidates]))
    others = {score for score in told if score != tuned.accuracy}
    assert not others & (set(numbers(record)) - planned_before)
    read = load_run(tmp_path / "run")
    images = digits.test.inputs[:50]
    best = told.index(tuned.accuracy)
    same = load_run(tmp_path / "run" / "curator" / "trials" / f"{best:04d}")
    np.testing.assert_array_equal(read.scores(images), same.scores(images))


def test_neighbouring_data_leave_the_same_traces(digits, tmp_path, monkeypatch):
    """The same coins, with a record and without: the same files, entries and public facts."""
    runs_of(2, monkeypatch)
    less = replace(digits, train=replace_train(digits))

    def traces(data, name):
        ledger = Ledger(tmp_path / f"{name}.db")
        ledger.create("digits", Budget(20.0, 1e-3))
        tune(
            search(), data, out=tmp_path / name, public_size=SIZE, ledger=ledger, dataset="digits",
            coins=SeededCoins(3),
        )  # fmt: skip
        files = sorted(str(p.relative_to(tmp_path / name)) for p in (tmp_path / name).rglob("*"))
        record = json.loads((tmp_path / name / "record.json").read_text())
        for released in ("accuracy", "curve"):
            record["facts"].pop(released)
        record["parameters"]["recipe"].pop("rate")  # the winner's, and its seed
        record["parameters"]["recipe"].pop("seed")
        return files, record, [entry.kind for entry in ledger.history("digits")]

    assert traces(digits, "with") == traces(less, "without")


def test_a_search_in_json():
    assert Search.from_dict(json.loads(json.dumps(search().to_dict()))) == search()


def replace_train(data):
    return type(data.train)(data.train.inputs[1:], data.train.labels[1:])


def test_candidates_are_drawn_alike():
    own, coins = search(), SeededCoins(5)
    counts, places = [], []
    for _ in range(700):
        drawn = own.draw(coins)
        counts.append(len(drawn))
        places += drawn
    assert min(counts) == 1
    assert 3 - 0.6 < np.mean(counts) < 3 + 0.6  # geometric: six standard deviations of the mean
    half = len(places) / 2
    assert abs(places.count(0) - half) < 6 * math.sqrt(half / 2)


def test_the_ledger_pays_for_the_whole_before_the_first_run(digits, tmp_path, monkeypatch):
    runs_of(1, monkeypatch)
    ledger = Ledger(tmp_path / "privacy.db")
    ledger.create("digits", Budget(20.0, 1e-3))
    seen = []
    tune(
        search(), digits, out=tmp_path / "run", ledger=ledger, dataset="digits",
        watch=lambda *_: seen.append(ledger.status("digits").left),
    )  # fmt: skip
    entries = ledger.history("digits")
    turns = [entry.data["lots"] for entry in entries if entry.kind == "resume"]
    assert turns == list(range(1, search().trials.nearly_most + 1))  # whatever was drawn
    kinds = [entry.kind for entry in entries if entry.kind != "resume"]
    assert kinds == ["open", "reserve", "commit"]
    assert seen[0] < 20.0 - 2.0


def test_a_budget_that_is_too_small_leaves_no_folder(digits, tmp_path):
    ledger = Ledger(tmp_path / "privacy.db")
    ledger.create("digits", Budget(1.0, 1e-5))
    with pytest.raises(BudgetExceeded):
        tune(search(), digits, out=tmp_path / "run", ledger=ledger, dataset="digits")
    assert not (tmp_path / "run").exists()
    assert [entry.kind for entry in ledger.history("digits")] == ["open"]


@pytest.mark.parametrize("change", [{"model": "nonsense"}, {"model_options": {"no": 1}}])
def test_a_candidate_that_cannot_be_trained_costs_nothing(digits, tmp_path, change):
    ledger = Ledger(tmp_path / "privacy.db")
    ledger.create("digits", Budget(20.0, 1e-3))
    wrong = search(candidates=(BASE, replace(BASE, **change)))
    with pytest.raises(ValueError, match=r"nonsense|no"):
        tune(wrong, digits, out=tmp_path / "run", ledger=ledger, dataset="digits")
    assert [entry.kind for entry in ledger.history("digits")] == ["open"]
    assert not (tmp_path / "run").exists()


def test_scores_on_private_rows_are_refused(digits, tmp_path):
    hidden = replace(digits, test_is_public=False)
    with pytest.raises(ValueError, match="public test rows"):
        tune(search(), hidden, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"candidates": ()}, "at least one recipe"),
        ({"candidates": (replace(BASE, epsilon=1.0),)}, "leave epsilon"),
        ({"candidates": (BASE, replace(BASE, unit="person"))}, "one unit"),
        ({"trials": Trials(3, float("inf"))}, "at least one run"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
    ],
)
def test_what_is_no_search(change, said):
    with pytest.raises(ValueError, match=said):
        search(**change)


# --- why a run that was cut off is begun anew -----------------------------------------------------


def best_is(y, runs, gamma):
    """Pr[the best of K runs is y], K geometric; ``runs(j)`` are run j's probabilities of 0, 1, 2.

    Outcomes are ordered; of K = k runs the best is at most y if all of them are.
    """

    def at_most(y):
        total, all_of_them = 0.0, 1.0
        for k in range(1, 5_000):
            all_of_them *= sum(runs(k)[: y + 1])
            total += gamma * (1 - gamma) ** (k - 1) * all_of_them
        return total

    return at_most(y) - (at_most(y - 1) if y else 0.0)


def test_runs_of_one_law_cost_three_times_a_run_and_others_may_cost_more():
    """So a run with lost steps, though it costs no more than a whole one, may not take part.

    Run 1 is nearly always the best there is; the others hardly ever. Each is pure epsilon-DP.
    """
    epsilon, gamma = 1.0, 1e-4
    more = math.exp(epsilon)
    low, high, tiny, small = 0.01, 0.02, 1e-12, 1e-3

    def usual(first):  # between two neighbours: 1 is likelier, 2 less likely
        one, two = (small * more, high / more) if first else (small, high)
        return 1 - one - two, one, two

    def unusual(first):
        below = low * (more if first else 1)
        return below, tiny, 1 - below - tiny

    for law in (usual, unusual):
        ratios = [a / b for a, b in zip(law(True), law(False), strict=True)]
        assert all(1 / more - 1e-9 <= r <= more + 1e-9 for r in ratios)

    def leaks(runs):
        return math.log(best_is(1, runs(True), gamma) / best_is(1, runs(False), gamma))

    alike = leaks(lambda first: lambda _: usual(first))
    mixed = leaks(lambda first: lambda k: unusual(first) if k == 1 else usual(first))
    assert alike <= 3 * epsilon
    assert mixed > 3.7 * epsilon
