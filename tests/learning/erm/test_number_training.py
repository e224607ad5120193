"""Runs that learn numbers: what they release, who pays, what is measured, and who refuses them."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

from sfumato.core.randomness import SeededCoins
from sfumato.data import Column, Dataset, Examples, Features
from sfumato.learning.comparing import compare
from sfumato.learning.erm import training
from sfumato.learning.erm.measuring import NumberErrors
from sfumato.learning.erm.recipe import ErmRecipe
from sfumato.learning.erm.training import planned, train_erm
from sfumato.learning.label_dp import label_preset, train_label_dp
from sfumato.learning.pate import AnswerPlan, GaussianMax
from sfumato.learning.pate.recipe import PateRecipe
from sfumato.learning.pate.students import make_student
from sfumato.learning.pate.training import train_pate
from sfumato.learning.recipes.loading import load_run
from sfumato.learning.recipes.plain import train_plain
from sfumato.learning.recipes.populations import private_population
from sfumato.learning.recipes.presets import preset
from sfumato.learning.recipes.training import train
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded
from sfumato.mechanisms.gaussian import Gaussian

SIZE, BOUNDS = 2000, (10.0, 70.0)
WAGES = Features(
    (
        Column("schooling", lower=0, upper=20),
        Column("experience", lower=0, upper=50),
        Column("sector", categories=("industry", "services", "state")),
    ),
    "wage",
    label_bounds=BOUNDS,
)
REGRESSION = ErmRecipe("regression", epsilon=1.0)


def examples(rng, count):
    schooling, experience = rng.uniform(0, 20, count), rng.uniform(0, 50, count)
    sector = rng.integers(0, 3, count)
    names = np.array(["industry", "services", "state"])[sector]
    table = {"schooling": schooling, "experience": experience, "sector": names}
    wage = 15 + 1.5 * schooling + 0.3 * experience + 3 * (sector == 0) + rng.normal(0, 3, count)
    return Examples(WAGES.inputs(table, count), WAGES.labels(wage))


def wages(public=True, **changes):
    rng = np.random.default_rng(7)
    made = Dataset(
        "wages", examples(rng, SIZE), examples(rng, 500), (), WAGES.shape, (0.0, 1.0), "made up",
        public_size=SIZE, test_is_public=public, target_bounds=BOUNDS,
    )  # fmt: skip
    return replace(made, **changes)


def classes():
    data = wages()
    parts = {
        name: Examples(part.inputs, (part.labels > 40).astype(np.int64))
        for name, part in (("train", data.train), ("test", data.test))
    }
    return Dataset(
        "rich", **parts, classes=("no", "yes"), shape=data.shape, bounds=data.bounds,
        source="made up", public_size=SIZE, test_is_public=True,
    )  # fmt: skip


def with_row(data, inputs, label):
    train = Examples(
        np.vstack([data.train.inputs, np.array([inputs], np.float32)]),
        np.append(data.train.labels, label),
    )
    return replace(data, train=train)


@pytest.fixture
def ledger(tmp_path):
    book = Ledger(tmp_path / "l.db")
    book.create("wages", Budget(3.0, 1e-4))
    return book


def fitted(data, out, recipe=REGRESSION, **more):
    return train_erm(recipe, data, out=out, declared=WAGES, **more)


# --- what is learnt -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["regression", "ridge"])
def test_it_learns_what_least_squares_would(model, tmp_path):
    data = wages()
    recipe = ErmRecipe(model, epsilon=1000.0)
    trained = fitted(data, tmp_path / "a", recipe, coins=SeededCoins(1))
    inputs = np.column_stack([data.train.inputs, np.ones(SIZE)])
    exact = np.linalg.lstsq(inputs, data.train.labels, rcond=None)[0]
    said = np.column_stack([data.test.inputs, np.ones(500)]) @ exact
    best = math.sqrt(mean_squared_error(data.test.labels, said))
    assert trained.errors.root_mean_squared < 1.02 * best
    assert trained.errors.root_mean_squared < 0.4 * trained.errors.of_the_middle
    assert trained.accuracy is None


@pytest.mark.parametrize("way", ["functional", "objective", "output", "sgd", "input"])
@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_every_way_there_is(way, delta, tmp_path):
    recipe = ErmRecipe("regression", way, epsilon=50.0, delta=delta, neighbours="replace-one")
    trained = fitted(wages(), tmp_path / "a", recipe, coins=SeededCoins(1))
    assert trained.record.guarantee.epsilon <= 50.0
    assert trained.errors.root_mean_squared < trained.errors.of_the_middle


def test_a_run_read_back_tells_the_same_numbers(tmp_path):
    data = wages()
    trained = fitted(data, tmp_path / "a", coins=SeededCoins(1))
    run = load_run(tmp_path / "a")
    inputs = torch.from_numpy(data.test.inputs)
    numbers = run.model(inputs).numpy()
    assert numbers.shape == (500,)
    assert ((numbers >= BOUNDS[0]) & (numbers <= BOUNDS[1])).all()
    found = NumberErrors.of(numbers, data.test.labels, BOUNDS)
    assert found.root_mean_squared == pytest.approx(trained.errors.root_mean_squared, rel=1e-5)
    assert np.array_equal(numbers, trained.model(inputs).numpy())
    assert run.recipe == REGRESSION
    assert run.classes == ()
    assert np.array_equal(run.predict(data.test.inputs), numbers)
    assert "between 10 and 70" in run._repr_html_()
    with pytest.raises(ValueError, match="this run tells numbers"):
        run.scores(data.test.inputs)


def test_rows_are_as_long_as_declared_columns_can_make_them(tmp_path):
    """Three columns and an intercept, however many categories one of them has."""
    trained = fitted(wages(), tmp_path / "a")
    assert trained.record.parameters["plan"]["scaling"]["norm"] == 2.0
    other = fitted(wages(), tmp_path / "b", replace(REGRESSION, norm=3.0))
    assert other.record.parameters["plan"]["scaling"]["norm"] == 3.0
    unknown = train_erm(REGRESSION, wages(), out=tmp_path / "c")
    assert unknown.record.parameters["plan"]["scaling"]["norm"] == pytest.approx(math.sqrt(6))


def test_ridge_has_the_penalty_of_its_name(tmp_path):
    way = planned(ErmRecipe("ridge", alpha=10.0), wages(), WAGES)
    assert way.regularisation == pytest.approx(10 / SIZE)
    assert planned(ErmRecipe("ridge"), wages(), WAGES).regularisation == pytest.approx(1 / SIZE)
    wide = ErmRecipe("ridge", "objective", threshold=0.5)
    assert planned(wide, wages(), WAGES).task.loss.threshold == 0.5


# --- privacy --------------------------------------------------------------------------------------


def released(data, out, monkeypatch, neighbours):
    """What would be noised, and the sensitivity it is noised for."""
    told = []

    def spied(_, values, **__):
        told.append(np.asarray(values))
        return told[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Gaussian, "perturb", spied)
        recipe = replace(REGRESSION, neighbours=neighbours)
        record = fitted(data, out, recipe).record
    return told[-1], record.parameters["plan"]["sensitivity"]


@pytest.mark.parametrize("label", [1e9, -1e9, 70.0])
def test_one_row_more_moves_the_release_by_its_sensitivity_and_no_more(
    label, tmp_path, monkeypatch
):
    """The longest row there can be, with a label as far outside as can be, reaches the bound."""
    data = wages()
    more = with_row(data, [1, 1, 1, 0, 0], label)
    one, bound = released(data, tmp_path / "a", monkeypatch, "add-remove")
    other, _ = released(more, tmp_path / "b", monkeypatch, "add-remove")
    moved = np.linalg.norm(one - other)
    assert 0.99 * bound < moved <= bound


STRANGE = [
    ([np.nan] * 5, np.nan), ([1e30, -1e30, 7, 7, 7], 1e300), ([np.inf] * 5, -np.inf),
    ([1, 1, 1, 1, 1], 70.0), ([0] * 5, 10.0),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "label"), STRANGE)
def test_no_row_moves_the_release_by_more(inputs, label, tmp_path, monkeypatch):
    data = wages()
    worst = data.train.labels.copy()
    other_rows = data.train.inputs.copy()
    other_rows[0], worst[0] = inputs, label
    swapped = replace(data, train=Examples(other_rows, worst))
    for relation, other in (
        ("add-remove", with_row(data, inputs, label)),
        ("replace-one", swapped),
    ):
        one, bound = released(data, tmp_path / f"{relation}-a", monkeypatch, relation)
        two, _ = released(other, tmp_path / f"{relation}-b", monkeypatch, relation)
        assert np.linalg.norm(one - two) <= bound


def test_a_label_outside_counts_as_the_nearer_end(tmp_path):
    def weights(label, name):
        data = with_row(wages(), [0.5, 0.5, 1, 0, 0], label)
        made = fitted(data, tmp_path / name, coins=SeededCoins(3))
        return made.model[1].linear.weight.numpy()

    assert np.array_equal(weights(1e300, "a"), weights(BOUNDS[1], "b"))
    assert np.array_equal(weights(-5, "c"), weights(BOUNDS[0], "d"))
    assert np.array_equal(weights(np.nan, "e"), weights(40.0, "f"))
    assert not np.array_equal(weights(BOUNDS[0], "g"), weights(BOUNDS[1], "h"))


def test_nothing_but_the_weights_depends_on_a_row(tmp_path, ledger, capsys):
    """The same coins, neighbouring tables: files, record, ledger and words are the same."""
    seen = []
    for number, (inputs, label) in enumerate([([0.5] * 5, 30.0), *STRANGE]):
        data, name = with_row(wages(public=False), inputs, label), f"run{number}"
        ledger.create(name, Budget(3.0, 1e-4))
        fitted(data, tmp_path / name, ledger=ledger, dataset=name, coins=SeededCoins(2))
        record = json.loads((tmp_path / name / "record.json").read_text())
        del record["facts"]["ledger"]
        files = sorted(p.relative_to(tmp_path / name) for p in (tmp_path / name).rglob("*"))
        seen.append((record, files, ledger.status(name).left, capsys.readouterr()))
    assert all(one == seen[0] for one in seen)


# --- who pays -------------------------------------------------------------------------------------


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_charge_comes_before_any_label_is_read(neighbours, tmp_path, monkeypatch):
    book = Ledger(tmp_path / "l.db")
    book.create("wages", Budget(3.0, 1e-4), neighbours=neighbours)
    left, read = [], training._labels

    def spied(labels, data):
        left.append(book.status("wages").left)
        return read(labels, data)

    monkeypatch.setattr(training, "_labels", spied)
    recipe = replace(REGRESSION, neighbours=neighbours)
    trained = fitted(wages(), tmp_path / "a", recipe, ledger=book, dataset="wages")
    assert len(left) == 2  # those to train on, those to test on
    assert all(1.9 < one < 2.01 for one in left)
    assert trained.record.facts["ledger"]["dataset"] == "wages"


def test_a_budget_that_is_too_small_reads_nothing_and_leaves_nothing(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "l.db")
    book.create("wages", Budget(0.5, 1e-4))
    monkeypatch.setattr(training, "_labels", lambda *_: pytest.fail("a label was read"))
    with pytest.raises(BudgetExceeded):
        fitted(wages(), tmp_path / "a", ledger=book, dataset="wages")
    assert not (tmp_path / "a").exists()
    assert book.status("wages").left == 0.5


def test_a_run_that_is_cut_off_stays_charged_and_tells_nothing(tmp_path, ledger, monkeypatch):
    def cut_off(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("sfumato.learning.erm.functional.exact_sums", cut_off)
        with pytest.raises(KeyboardInterrupt):
            fitted(wages(), tmp_path / "a", ledger=ledger, dataset="wages")
    assert not (tmp_path / "a" / "record.json").exists()
    assert 1.9 < ledger.status("wages").left < 2.01
    fitted(wages(), tmp_path / "b", ledger=ledger, dataset="wages")
    assert 0.9 < ledger.status("wages").left < 1.01


# --- what is measured -----------------------------------------------------------------------------


def test_errors_are_those_of_the_textbook():
    rng = np.random.default_rng(0)
    truth, told = rng.uniform(*BOUNDS, 300), rng.uniform(*BOUNDS, 300)
    found = NumberErrors.of(told, truth, BOUNDS)
    assert found.root_mean_squared == pytest.approx(math.sqrt(mean_squared_error(truth, told)))
    assert found.mean_absolute == pytest.approx(mean_absolute_error(truth, told))
    assert found.r_squared == pytest.approx(r2_score(truth, told))
    middle = np.full(300, 40.0)
    assert found.of_the_middle == pytest.approx(math.sqrt(mean_squared_error(truth, middle)))


def test_errors_are_finite_whatever_the_labels_are():
    same = NumberErrors.of(np.array([0.2, 0.4]), np.array([0.1, 0.1]), (0.0, 1.0))
    assert same.r_squared is None
    near = NumberErrors.of(np.array([1.0, -1.0]), np.array([0.0, 1e-162]), (-1.0, 1.0))
    assert near.r_squared is None
    wide = NumberErrors.of(np.array([4e307]), np.array([-4e307]), (-4e307, 4e307))
    assert wide.root_mean_squared == pytest.approx(8e307)
    strange = np.array([None, "x", np.inf, 1e9], dtype=object)
    found = NumberErrors.of(np.array([0.5, 0.5, 0.5, 1.0]), strange, (0.0, 1.0))
    assert found.root_mean_squared == 0
    json.dumps([found.to_dict(), wide.to_dict(), near.to_dict()], allow_nan=False)


def test_errors_on_a_public_test_set_are_public(tmp_path):
    trained = fitted(wages(), tmp_path / "a")
    facts = json.loads((tmp_path / "a" / "record.json").read_text())["facts"]
    assert facts["root_mean_squared_error"] == trained.errors.root_mean_squared
    assert facts["error_of_the_middle"] == trained.errors.of_the_middle
    assert facts["test_set"] == "public"
    assert facts["data"]["target_bounds"] == list(BOUNDS)
    assert "accuracy" not in json.dumps(facts)
    assert not (tmp_path / "a" / "curator" / "results.json").exists()


def test_errors_on_private_rows_are_the_curators(tmp_path):
    trained = fitted(wages(public=False), tmp_path / "a")
    text = (tmp_path / "a" / "record.json").read_text()
    assert "error" not in text
    assert "r_squared" not in text
    assert str(trained.errors.root_mean_squared) not in text
    kept = json.loads((tmp_path / "a" / "curator" / "results.json").read_text())
    assert kept == trained.errors.to_dict()
    assert not trained.accuracy_is_public


@pytest.mark.parametrize("public", [True, False])
def test_without_test_rows_nothing_is_measured(public, tmp_path):
    none = Examples(np.zeros((0, 5), np.float32), np.zeros(0))
    trained = fitted(wages(public, test=none), tmp_path / "a")
    assert trained.errors is None
    text = (tmp_path / "a" / "record.json").read_text()
    assert "error" not in text
    assert "accuracy" not in text


# --- who refuses ----------------------------------------------------------------------------------

PATE = PateRecipe(
    AnswerPlan(GaussianMax(2.0), answers=40), student=make_student("supervised", steps=30),
    teachers=8, test_rows=100,
)  # fmt: skip
ENTRIES = {
    "dp-sgd": lambda data, **more: train(preset(None, data, epsilon=1.0), data, **more),
    "plain": lambda data, out, **_: train_plain(preset(None, data, epsilon=1.0), data, out=out),
    "pate": lambda data, **more: train_pate(PATE, data, **more),
    "label-dp": lambda data, **more: train_label_dp(label_preset(data, 1.0), data, **more),
    "erm": lambda data, **more: train_erm(ErmRecipe(), data, **more),
    "erm, planned": lambda data, **_: planned(ErmRecipe("svc"), data),
    "compare": lambda data, out, **more: compare(data, [1.0], out=out, **more),
    "populations": lambda data, **_: private_population(
        preset(None, data, epsilon=1.0), data, np.ones((1, SIZE), dtype=bool)
    ),
}  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_what_is_made_for_classes_refuses_numbers_and_charges_nobody(entry, tmp_path, ledger):
    ledger.create("labels", Budget(3.0), unit="label", neighbours="replace-one")
    whose = "labels" if entry is ENTRIES["label-dp"] else "wages"
    with pytest.raises(ValueError, match=r"labels are numbers .*label_bounds") as refused:
        entry(wages(), out=tmp_path / "a", ledger=tmp_path / "l.db", dataset=whose)
    assert "regression" in str(refused.value)
    assert not list(tmp_path.rglob("record.json"))
    assert not list(tmp_path.rglob("*.safetensors"))
    assert (ledger.status("wages").left, ledger.status("labels").left) == (3.0, 3.0)


@pytest.mark.parametrize("model", ["regression", "ridge"])
def test_models_of_numbers_refuse_classes(model, tmp_path, ledger):
    recipe = ErmRecipe(model)
    for attempt in (
        lambda: train_erm(recipe, classes(), out=tmp_path / "a", ledger=ledger, dataset="wages"),
        lambda: planned(recipe, classes()),
    ):
        with pytest.raises(ValueError, match=r"'logistic' or 'svc' .* declare label_bounds"):
            attempt()
    assert not (tmp_path / "a").exists()
    assert ledger.status("wages").left == 3.0


# --- recipes --------------------------------------------------------------------------------------


def test_recipes_of_before_there_were_numbers_are_read():
    old = ErmRecipe("svc", "output", norm=2.0).to_dict()
    for name in ("alpha", "threshold"):
        del old[name]
    assert ErmRecipe.from_dict(old) == ErmRecipe("svc", "output", norm=2.0)
    usual = ErmRecipe()
    assert (usual.model, usual.way, usual.norm) == ("logistic", "objective", 1.0)


@pytest.mark.parametrize(
    "recipe",
    [
        REGRESSION,
        ErmRecipe("ridge", alpha=3.0),
        ErmRecipe("regression", "output", threshold=0.5, regularisation=0.1, norm=2.0),
    ],
)
def test_recipes_read_back(recipe):
    assert ErmRecipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"alpha": 1.0}, "alpha must be left out but for model 'ridge'"),
        ({"model": "logistic", "alpha": 1.0}, "alpha must be left out"),
        ({"model": "ridge", "alpha": 0}, "alpha must be a finite number above 0"),
        ({"model": "ridge", "regularisation": 0.1}, "regularisation must be left out for ridge"),
        ({"threshold": 1.0}, "threshold must be left out for 'regression' by way 'functional'"),
        ({"model": "svc", "threshold": 1.0}, "threshold must be left out for 'svc'"),
        ({"way": "output", "threshold": -1}, "threshold must be a finite number above 0"),
        ({"model": "line"}, "model must be one of logistic, svc, regression, ridge"),
    ],
)
def test_recipes_that_cannot_be(options, said):
    with pytest.raises(ValueError, match=said):
        ErmRecipe(**({"model": "regression"} | options))
