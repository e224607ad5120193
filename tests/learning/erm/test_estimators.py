"""The estimators as scikit-learn's, and as ours."""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from sfumato.core.randomness import SeededCoins
from sfumato.core.records import Record
from sfumato.learning.erm import (
    ChargedAccuracy,
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)
from sfumato.ledger import Budget, Ledger
from sfumato.ledger.errors import BudgetExceeded, LedgerError

NO_ERROR = "an error that depends on what is in a row is a release of it: such cells are replaced"


class SameCoins:
    """The same words at every call, so that two fits can be compared; for tests only."""

    private = False

    def __init__(self, seed=0):
        self.seed = seed

    def words(self, count):
        drawn = np.random.Philox(self.seed).random_raw(count)
        return np.asarray(drawn, dtype=np.uint64).reshape(-1)

    def __repr__(self):
        return f"SameCoins({self.seed})"

    def __eq__(self, other):
        return isinstance(other, SameCoins) and other.seed == self.seed

    __hash__ = None


def expected(estimator):
    known = {"check_dtype_object": NO_ERROR}
    if isinstance(estimator, PrivateLinearRegression):
        known["check_supervised_y_no_nan"] = NO_ERROR
        known["check_complex_data"] = NO_ERROR
    return known


@parametrize_with_checks(
    [
        PrivateLogisticRegression(classes="from-labels", coins=SameCoins(), bounds=(0, 1)),
        PrivateLinearSVC(classes="from-labels", coins=SameCoins(), bounds=(0, 1)),
        PrivateLinearRegression(coins=SameCoins(), bounds=(0, 1), target_bounds=(0, 1)),
        PrivateRidge(coins=SameCoins(), bounds=(0, 1), target_bounds=(0, 1)),
    ],
    expected_failed_checks=expected,
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("way", ["objective", "output", "functional", "sgd"])
def test_two_classes(way, table):
    rows, labels = table
    model = PrivateLogisticRegression(
        epsilon=5.0, classes=(0, 1), way=way, coins=SeededCoins(1), bounds=(0, 1)
    ).fit(rows, labels)
    assert model.score(rows, labels) > 0.85
    assert model.predict_proba(rows).sum(axis=1) == pytest.approx(1)
    decided = model.decision_function(rows)
    by_hand = (rows @ model.coef_.T + model.intercept_)[:, 0] * model.scaling_.shortening(rows)
    assert np.allclose(decided, by_hand)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
def test_three_named_classes(kind):
    rng = np.random.default_rng(0)
    rows = rng.random((6000, 2))
    labels = np.array(["low", "middle", "high"])[(rows[:, 0] * 3).astype(int)]
    names = ("low", "middle", "high")
    model = kind(epsilon=8.0, classes=names, bounds=(0, 1), coins=SeededCoins(1))
    assert model.fit(rows, labels).score(rows, labels) > 0.65
    assert model.coef_.shape == (3, 2)
    assert model.decision_function(rows).shape == (6000, 3)


@pytest.mark.parametrize("way", ["functional", "objective", "output", "sgd"])
def test_a_number_within_bounds(way):
    rng = np.random.default_rng(0)
    rows = rng.random((20_000, 2))
    wages = 10 + 30 * rows[:, 0] - 10 * rows[:, 1]
    model = PrivateLinearRegression(
        epsilon=5.0, target_bounds=(0, 50), way=way, coins=SeededCoins(1), bounds=(0, 1)
    )
    assert model.fit(rows, wages).score(rows, wages) > (0.95 if way == "functional" else 0.5)
    assert model.predict(np.full((1, 2), 1e9)).max() <= 50


@pytest.mark.parametrize("alpha", [5.0, 2000.0])
def test_ridge_is_scikit_learns_where_noise_is_small(alpha):
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(0)
    rows = rng.random((20_000, 2))
    wages = 10 + 30 * rows[:, 0] - 10 * rows[:, 1]
    model = PrivateRidge(
        epsilon=1e4, alpha=alpha, target_bounds=(0, 50), coins=SeededCoins(1), bounds=(0, 1)
    )
    found = model.fit(rows, wages).weights_[:, 0]
    scaled = np.column_stack([2 * rows - 1, np.ones(len(rows))]) / np.sqrt(3)
    known = Ridge(alpha=alpha, fit_intercept=False).fit(scaled, (wages - 25) / 25).coef_
    assert found == pytest.approx(known, abs=2e-3)
    assert model.record_.parameters["plan"]["regularisation"] == alpha / 20_000


def test_ridge_needs_a_penalty(tmp_path):
    with pytest.raises(ValueError, match=r"alpha must be .* got 0"):
        PrivateRidge(alpha=0.0, bounds=(0, 1), target_bounds=(0, 1)).fit(
            np.zeros((4, 2)), np.zeros(4)
        )
    kept = PrivateRidge(alpha=3.0, coins=SeededCoins(1), bounds=(0, 1), target_bounds=(0, 1)).fit(
        np.zeros((4, 2)), np.zeros(4)
    )
    kept.save(tmp_path / "kept")
    assert np.array_equal(PrivateRidge.load(tmp_path / "kept").weights_, kept.weights_)


def test_the_plan_is_known_before_any_row():
    model = PrivateLogisticRegression(
        epsilon=0.7, delta=0.0, classes=(0, 1), way="output", bounds=(0, 1)
    )
    plan = model.plan(columns=5, records=1000)
    assert plan.guarantee.epsilon == pytest.approx(0.7)
    assert "sensitivity" in plan.facts
    fitted = model.fit(np.zeros((1000, 5)), np.zeros(1000))
    assert fitted.record_.event == plan.event
    assert fitted.record_.parameters["plan"]["sensitivity"] == plan.facts["sensitivity"]


def test_the_record_is_public_and_says_who_drew():
    rows, labels = np.random.default_rng(0).random((50, 2)), np.arange(50) % 2
    model = PrivateLogisticRegression(classes=(0, 1), bounds=(0, 1)).fit(rows, labels)
    assert model.record_.private
    assert Record.from_dict(json.loads(json.dumps(model.record_.to_dict()))) == model.record_
    tried = PrivateLogisticRegression(classes=(0, 1), coins=SeededCoins(1), bounds=(0, 1)).fit(
        rows, labels
    )
    assert not tried.record_.private


def test_neighbours_leave_the_same_record():
    """Under add/remove nothing but weights may depend on the rows, their number included."""
    said = set()
    for count in (0, 1, 49, 50, 51):
        rows, labels = np.full((count, 2), 0.3), np.ones(count)
        model = PrivateLogisticRegression(
            classes=(0, 1),
            neighbours="add-remove",
            public_size=50,
            coins=SeededCoins(1),
            bounds=(0, 1),
        )
        said.add(json.dumps(model.fit(rows.reshape(-1, 2), labels).record_.to_dict()))
    assert len(said) == 1


def test_strange_cells_are_replaced_one_by_one():
    rows = np.array([[0.2, np.nan], [np.inf, 0.5], [-np.inf, 7.0], [0.1, 0.2]] * 5)
    strange = np.array([0, 1, 7, 1] * 5)
    known = np.array([0, 1, 0, 1] * 5)
    tidy = np.array([[0.2, 0.5], [0.5, 0.5], [0.5, 1.0], [0.1, 0.2]] * 5)
    made = [
        PrivateLogisticRegression(classes=(0, 1), coins=SeededCoins(1), bounds=(0, 1))
        .fit(x, y)
        .weights_
        for x, y in ((rows, strange), (tidy, known))
    ]
    assert (made[0] == made[1]).all()
    numbers = PrivateLinearRegression(
        coins=SeededCoins(1), bounds=(0, 1), target_bounds=(0, 1)
    ).fit(rows, [np.nan, 0.1, 9, -1] * 5)
    assert np.isfinite(numbers.weights_).all()


NO_NUMBERS = [
    "?", None, np.nan, pd.NA, pd.NaT, 1j, [0.1, 0.2], (), {}, np.ones(2), pd.Timedelta(1), 10**400,
    np.timedelta64(1, "ns"), object(),
]  # fmt: skip


def frame(rows):
    try:
        return pd.DataFrame(rows)
    except OverflowError:
        return pd.DataFrame(rows, dtype=object)


TABLES = [list, lambda rows: np.array(rows, dtype=object), frame]


def small(**changes):
    usual = {"classes": (0, 1), "coins": SeededCoins(1), "bounds": (0, 1)}
    return PrivateLogisticRegression(**usual | changes)


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=lambda bad: type(bad).__name__)
@pytest.mark.parametrize("kind", TABLES, ids=["lists", "objects", "frame"])
def test_one_bad_cell_changes_its_own_row_alone(bad, kind):
    rows, labels = [[0.1, True], [0.9, False], [0.3, True], [0.4, False]], [0, 1, 1, 0]
    if kind is not TABLES[1] or not isinstance(bad, list | tuple | np.ndarray):
        strange = kind([*rows[:3], [0.4, bad]])
        tidy = np.array([*rows[:3], [0.4, 0.5]], dtype=float)
        assert (small().fit(strange, labels).weights_ == small().fit(tidy, labels).weights_).all()
        assert (small().fit(tidy, labels).predict(strange) >= 0).all()
    tidy = small().fit(np.array(rows, dtype=float), np.array([0, 1, 1, 0]))
    for told in ([0, 1, 1, bad], pd.Series([0, 1, 1, bad], dtype=object)):
        assert (small().fit(rows, told).weights_ == tidy.weights_).all()
    numbers = PrivateLinearRegression(coins=SeededCoins(1), bounds=(0, 1), target_bounds=(0, 1))
    expected = numbers.fit(rows, np.array([0.2, 1, 1, 0.5])).weights_
    told = PrivateLinearRegression(coins=SeededCoins(1), bounds=(0, 1), target_bounds=(0, 1)).fit(
        rows, [0.2, True, 1, bad]
    )
    assert (told.weights_ == expected).all()


def test_what_others_made_of_a_bad_cell_changes_no_other_row():
    """NumPy and readers of files turn all into texts for the sake of one."""
    rows, labels = np.array([[0.1, 0.2], [0.9, 0.5], [0.3, 0.5]]), np.array([0, 1, 0])
    expected = small().fit(rows, labels).weights_
    texts = np.array([[0.1, 0.2], [0.9, 0.5], [0.3, "?"]])
    assert (small().fit(texts, np.array([0, 1, "?"])).weights_ == expected).all()
    assert (small().fit(pd.DataFrame(texts), ["0", "1", "?"]).weights_ == expected).all()


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (PrivateLogisticRegression(classes=(0, 1)), "bounds"),
        (PrivateLinearSVC(classes=(0, 1)), "bounds"),
        (PrivateLinearRegression(target_bounds=(0, 1)), "bounds"),
        (PrivateRidge(target_bounds=(0, 1)), "bounds"),
        (PrivateLinearRegression(bounds=(0, 1)), "target_bounds"),
        (PrivateRidge(bounds=(0, 1)), "target_bounds"),
    ],
)
def test_nothing_is_clipped_by_bounds_that_nobody_declared(tmp_path, model, missing):
    """Ages between 0 and 1 make a model of nothing, and the budget would be gone."""
    book = Ledger(tmp_path / "l.db")
    book.create("people", Budget(9.0, 1e-4), unit="record", neighbours="replace-one")
    model.set_params(ledger=tmp_path / "l.db", dataset="people")
    with pytest.raises(ValueError, match=f"^{missing} must be declared") as error:
        model.fit([[44.0, 1.0], [71.0, 0.0]] * 10, [0, 1] * 10)
    assert "71" not in str(error.value)
    assert len(book.history("people")) == 1  # nothing was spent


def test_rows_of_other_lengths():
    expected = small().fit(np.array([[0.1, 0.2], [0.5, 0.5], [0.5, 0.5]]), [0, 1, 1]).weights_
    declared = small(bounds=([0, 0], [1, 1]))
    strange = [[0.1, 0.2], [0.777], "x"]
    assert (declared.fit(strange, [0, 1, 1]).weights_ == expected).all()
    assert declared.predict(strange).shape == (3,)
    with pytest.raises(ValueError, match="rows of one length") as error:
        small().fit(strange, [0, 1, 1])
    assert "777" not in str(error.value)
    for shapeless in ([1.777, 2.0], np.array([1.777, 2.0])):
        with pytest.raises(ValueError, match="Expected 2D") as error:
            small().fit(shapeless, [0, 1])
        assert "777" not in str(error.value)


def test_names_of_columns_are_kept_and_cells_are_not_shown():
    frame = pd.DataFrame({"age": [0.1, 0.2], "sex": ["f", "m"]})
    model = small().fit(frame, [0, 1])
    assert model.feature_names_in_.tolist() == ["age", "sex"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"sex": "size"}))


def test_a_plan_is_for_classes_as_they_are_now():
    model = small().fit(np.zeros((20, 2)), np.zeros(20))
    model.set_params(classes=(0, 1, 2))
    assert model.plan(2, 20).task.loss.outputs == 2
    assert model.predict(np.zeros((1, 2))).shape == (1,)  # as it was fitted
    assert model.predict_proba(np.zeros((1, 2))).shape == (1, 2)
    model.fit(np.zeros((20, 2)), np.zeros(20))
    assert model.predict_proba(np.zeros((1, 2))).shape == (1, 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"classes": None}, "classes must be declared"),
        ({"classes": "in data"}, "'from-labels'"),
        ({"classes": (1,)}, "two or more"),
        ({"classes": (1, 1)}, "two or more"),
        ({"epsilon": 0}, "epsilon must be"),
        ({"delta": 1.0}, "delta must be"),
        ({"way": "magic"}, "way must be one of"),
        ({"neighbours": "add-remove"}, "public_size must be declared"),
        ({"bounds": (1, 0)}, "bounds"),
        ({"norm": 0}, "norm"),
        ({"norm": 1e-320}, "norm must be between"),
        ({"bounds": (0, 5e-324)}, "bounds"),
        ({"classes": 3}, "classes must be a list"),
        ({"classes": ((0, 1), (2, 3))}, "two or more different"),
        ({"neighbours": "zero-out", "public_size": 4}, "'replace-one' covers it"),
        ({"regularisation": 0}, "regularisation"),
        ({"public_size": 0}, "public_size"),
        ({"public_size": 5, "way": "sgd"}, "public_size must be left out for 'sgd'"),
    ],
)
def test_bad_parameters_are_named(changes, words):
    model = PrivateLogisticRegression(classes=(0, 1), bounds=(0, 1)).set_params(**changes)
    with pytest.raises(ValueError, match=words):
        model.fit(np.zeros((4, 2)), np.zeros(4))


def test_targets_of_no_width():
    for bounds in ((0, 5e-324), (0, 1e-200), (1, 1), (-1e308, 1e308)):
        with pytest.raises(ValueError, match="target_bounds"):
            PrivateLinearRegression(target_bounds=bounds, bounds=(0, 1)).fit(
                np.zeros((4, 2)), np.zeros(4)
            )


def test_a_clone_has_every_parameter():
    model = PrivateLinearSVC(
        epsilon=3.0,
        width=0.2,
        classes=("a", "b"),
        ledger="x.db",
        dataset="d",
        public_size=7,
        bounds=(0, 1),
    )
    assert clone(model).get_params() == model.get_params()


def test_saved_and_loaded_without_pickle(tmp_path, table):
    rows, labels = table
    for model in (
        PrivateLogisticRegression(classes=(0, 1), bounds=([0, 0, 0], np.ones(3))),
        PrivateLinearSVC(classes=(0, 1), bounds=(0, 1)),
        PrivateLinearRegression(bounds=(0, 1), target_bounds=(0, 1)),
    ):
        model.fit(rows, labels).save(tmp_path / type(model).__name__)
        again = type(model).load(tmp_path / type(model).__name__)
        assert (again.predict(rows) == model.predict(rows)).all()
        assert again.guarantee_ == model.guarantee_
        assert again.record_ == model.record_
    with pytest.raises(ValueError, match="must hold a PrivateLinearSVC"):
        PrivateLinearSVC.load(tmp_path / "PrivateLogisticRegression")
    with pytest.raises(ValueError, match="new or empty"):
        model.save(tmp_path / "PrivateLinearSVC")
    with pytest.raises(ValueError, match="must be fitted"):
        PrivateLinearSVC(bounds=(0, 1)).save(tmp_path / "none")
    with pytest.raises(ValueError, match="must hold an estimator"):
        PrivateLinearSVC.load(tmp_path)


def test_a_file_with_code_in_it_is_not_run(tmp_path, table):
    PrivateLinearRegression(bounds=(0, 1), target_bounds=(0, 1)).fit(*table).save(tmp_path / "a")

    class Harmful:
        def __reduce__(self):
            return (pytest.fail, ("ran",))

    np.savez(tmp_path / "a" / "weights.npz", weights=np.array([Harmful()], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        PrivateLinearRegression.load(tmp_path / "a")
    assert pickle  # what must not be used


# --- the ledger -----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "l.db")
    made.create("people", Budget(1.0, 1e-5), neighbours="replace-one")
    return made


@pytest.mark.parametrize("way", ["objective", "output", "functional"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_fit_is_charged_before_it_reads(ledger, tmp_path, table, way, delta):
    model = PrivateLogisticRegression(
        epsilon=0.6,
        delta=delta,
        way=way,
        classes=(0, 1),
        ledger=tmp_path / "l.db",
        dataset="people",
        bounds=(0, 1),
    )
    model.fit(*table)
    left = ledger.status("people").left
    assert 0.35 < left < 0.41
    assert model.record_.facts["ledger"]["dataset"] == "people"
    before = model.weights_
    with pytest.raises(BudgetExceeded):
        model.fit(*table)
    assert model.weights_ is before
    assert ledger.status("people").left == left
    assert ledger.verify("people").ok


def test_a_budget_of_others_is_refused(ledger, tmp_path, table):
    model = PrivateLogisticRegression(
        epsilon=0.1,
        classes=(0, 1),
        ledger=tmp_path / "l.db",
        dataset="people",
        unit="household",
        bounds=(0, 1),
    )
    with pytest.raises(LedgerError, match="protects one record"):
        model.fit(*table)


def test_classes_are_not_read_off_labels_with_a_ledger(ledger, tmp_path, table):
    model = PrivateLogisticRegression(
        classes="from-labels", ledger=tmp_path / "l.db", dataset="people", bounds=(0, 1)
    )
    with pytest.raises(ValueError, match="declared with a ledger"):
        model.fit(*table)
    assert ledger.status("people").left == 1.0
    assert not hasattr(model, "classes_")
    free = PrivateLogisticRegression(classes="from-labels", bounds=(0, 1)).fit(*table)
    assert "read off the labels" in free.record_.facts["classes_are"]
    for told in ([0, pd.NA, 1, 0], [0, "secret", None, {}], [0, 1, [2, 3], 1]):
        with pytest.raises(ValueError, match="of no one kind") as error:
            free.fit(np.zeros((4, 3)), told)
        assert "secret" not in str(error.value)
    assert free.classes_.tolist() == [0, 1]


def test_too_many_rows_are_refused_before_the_charge(ledger, tmp_path, table):
    to = {"ledger": tmp_path / "l.db", "dataset": "people", "epsilon": 0.1, "delta": 1e-6}
    with pytest.raises(ValueError, match="public_size must be 500 at least"):
        small(public_size=499, **to).fit(*table)
    assert ledger.status("people").left == 1.0


def test_a_refused_fit_leaves_what_was_fitted(ledger, tmp_path, table):
    rows, labels = table
    model = small(epsilon=0.9, delta=1e-6, ledger=tmp_path / "l.db", dataset="people").fit(
        rows, labels
    )
    before = model.predict(rows)
    model.set_params(classes=("a", "b", "c"))
    with pytest.raises(BudgetExceeded):
        model.fit(rows[:, :2], labels)
    assert model.classes_.tolist() == [0, 1]
    assert (model.predict(rows) == before).all()


def test_nothing_is_read_before_the_charge(ledger, tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr("sfumato.learning.erm.cells.as_number", lambda cell: read.append(cell) or 0)
    model = small(epsilon=5.0, ledger=tmp_path / "l.db", dataset="people")
    with pytest.raises(BudgetExceeded):
        model.fit([[0.1, "?"], [0.2, 0.3]], ["x", "y"])
    assert read == []


def test_bad_labels_after_the_charge_are_no_errors(ledger, tmp_path):
    for label in (pd.NA, np.ones(2), 1j, [1, 2]):
        model = small(epsilon=0.1, delta=1e-6, ledger=tmp_path / "l.db", dataset="people")
        model.fit([[0.1, 1j], [0.2, [3]]], [0, label])
    assert ledger.status("people").left == pytest.approx(0.6, abs=0.05)


def test_blanking_is_no_removal_here(tmp_path):
    Ledger(tmp_path / "z.db").create("people", Budget(1.0, 1e-5), neighbours="zero-out")
    to = {"ledger": tmp_path / "z.db", "dataset": "people", "epsilon": 0.1}
    model = small(neighbours="add-remove", public_size=4, **to)
    with pytest.raises(LedgerError, match="neighbours='replace-one'"):
        model.fit(np.zeros((4, 2)), np.zeros(4))


# --- charged scores -------------------------------------------------------------------------------


def test_a_charged_score_is_a_noisy_count_over_n(ledger, tmp_path):
    rows, labels = np.random.default_rng(0).random((40, 2)), [0, 1] * 20
    model = small().fit(rows, labels)
    scorer = ChargedAccuracy(0.02, tmp_path / "l.db", "people", coins=SeededCoins(3))
    found = [scorer(model, rows, labels) * 40 for _ in range(5)]
    assert all(abs(count - round(count)) < 1e-9 and 0 <= count <= 40 for count in found)
    entry = [one for one in ledger.history("people") if one.kind == "reserve"][-1]
    assert "DiscreteLaplace" in str(entry) or "discrete" in str(entry).lower()


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=lambda bad: type(bad).__name__)
def test_a_bad_label_moves_a_score_by_one(tmp_path, bad):
    Ledger(tmp_path / "l.db").create("people", Budget(1e4), neighbours="replace-one")
    rows, labels = [[0.1, True]] * 20, [0] * 20
    model = small().fit(rows, labels)
    scorer = ChargedAccuracy(200.0, tmp_path / "l.db", "people", coins=SeededCoins(3))
    right = scorer(model, rows, [int(model.predict(rows)[0])] * 20)
    told = scorer(model, [*rows[1:], [bad, bad]], [*model.predict(rows)[1:].tolist(), bad])
    assert (right, told) == (1.0, 0.95)
    assert scorer(model, [*rows[1:], bad], model.predict(rows).tolist()) >= 0.95


def test_a_score_is_charged_where_the_fit_is(ledger, tmp_path, table):
    Ledger(tmp_path / "other.db").create("people", Budget(9.0), neighbours="replace-one")
    model = small(epsilon=0.5, delta=1e-6, ledger=tmp_path / "l.db", dataset="people").fit(*table)
    for place, dataset in (("other.db", "people"), ("l.db", "others")):
        with pytest.raises(ValueError, match="must be those of the estimator"):
            ChargedAccuracy(0.1, tmp_path / place, dataset)(make_pipeline(model), *table)
    assert 0 <= ChargedAccuracy(0.1, f"sqlite:///{tmp_path}/l.db", "people")(model, *table) <= 1
    assert ledger.status("people").left < 0.45
    with pytest.raises(ValueError, match="as many as rows"):
        ChargedAccuracy(0.1, tmp_path / "l.db", "people")(model, table[0], [0])
