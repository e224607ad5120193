"""The estimators as scikit-learn's, and as ours."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from sfumato.core.randomness import SeededCoins
from sfumato.core.records import Record
from sfumato.learning.erm import (
    PrivateLinearRegression,
    PrivateLinearSVC,
    PrivateLogisticRegression,
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
    return known


@parametrize_with_checks(
    [
        PrivateLogisticRegression(classes="from-labels", coins=SameCoins()),
        PrivateLinearSVC(classes="from-labels", coins=SameCoins()),
        PrivateLinearRegression(coins=SameCoins()),
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
        epsilon=5.0, classes=(0, 1), way=way, coins=SeededCoins(1)
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
    model = kind(epsilon=8.0, classes=("low", "middle", "high"), coins=SeededCoins(1))
    assert model.fit(rows, labels).score(rows, labels) > 0.65
    assert model.coef_.shape == (3, 2)
    assert model.decision_function(rows).shape == (6000, 3)


@pytest.mark.parametrize("way", ["functional", "objective", "output", "sgd"])
def test_a_number_within_bounds(way):
    rng = np.random.default_rng(0)
    rows = rng.random((20_000, 2))
    wages = 10 + 30 * rows[:, 0] - 10 * rows[:, 1]
    model = PrivateLinearRegression(
        epsilon=5.0, target_bounds=(0, 50), way=way, coins=SeededCoins(1)
    )
    assert model.fit(rows, wages).score(rows, wages) > (0.95 if way == "functional" else 0.5)
    assert model.predict(np.full((1, 2), 1e9)).max() <= 50


def test_the_plan_is_known_before_any_row():
    model = PrivateLogisticRegression(epsilon=0.7, delta=0.0, classes=(0, 1), way="output")
    plan = model.plan(columns=5, records=1000)
    assert plan.guarantee.epsilon == pytest.approx(0.7)
    assert "sensitivity" in plan.facts
    fitted = model.fit(np.zeros((1000, 5)), np.zeros(1000))
    assert fitted.record_.event == plan.event
    assert fitted.record_.parameters["plan"]["sensitivity"] == plan.facts["sensitivity"]


def test_the_record_is_public_and_says_who_drew():
    rows, labels = np.random.default_rng(0).random((50, 2)), np.arange(50) % 2
    model = PrivateLogisticRegression(classes=(0, 1)).fit(rows, labels)
    assert model.record_.private
    assert Record.from_dict(json.loads(json.dumps(model.record_.to_dict()))) == model.record_
    tried = PrivateLogisticRegression(classes=(0, 1), coins=SeededCoins(1)).fit(rows, labels)
    assert not tried.record_.private


def test_neighbours_leave_the_same_record():
    """Under add/remove nothing but weights may depend on the rows, their number included."""
    said = set()
    for count in (0, 1, 49, 50, 51):
        rows, labels = np.full((count, 2), 0.3), np.ones(count)
        model = PrivateLogisticRegression(
            classes=(0, 1), neighbours="add-remove", public_size=50, coins=SeededCoins(1)
        )
        said.add(json.dumps(model.fit(rows.reshape(-1, 2), labels).record_.to_dict()))
    assert len(said) == 1


def test_strange_cells_are_replaced_one_by_one():
    rows = np.array([[0.2, np.nan], [np.inf, 0.5], [-np.inf, 7.0], [0.1, 0.2]] * 5)
    strange = np.array([0, 1, 7, 1] * 5)
    known = np.array([0, 1, 0, 1] * 5)
    tidy = np.array([[0.2, 0.5], [0.5, 0.5], [0.5, 1.0], [0.1, 0.2]] * 5)
    made = [
        PrivateLogisticRegression(classes=(0, 1), coins=SeededCoins(1)).fit(x, y).weights_
        for x, y in ((rows, strange), (tidy, known))
    ]
    assert (made[0] == made[1]).all()
    numbers = PrivateLinearRegression(coins=SeededCoins(1)).fit(rows, [np.nan, 0.1, 9, -1] * 5)
    assert np.isfinite(numbers.weights_).all()


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
        ({"regularisation": 0}, "regularisation"),
        ({"public_size": 0}, "public_size"),
        ({"public_size": 5, "way": "sgd"}, "public_size must be left out for 'sgd'"),
    ],
)
def test_bad_parameters_are_named(changes, words):
    model = PrivateLogisticRegression(classes=(0, 1)).set_params(**changes)
    with pytest.raises(ValueError, match=words):
        model.fit(np.zeros((4, 2)), np.zeros(4))


def test_a_clone_has_every_parameter():
    model = PrivateLinearSVC(
        epsilon=3.0, width=0.2, classes=("a", "b"), ledger="x.db", dataset="d", public_size=7
    )
    assert clone(model).get_params() == model.get_params()


def test_saved_and_loaded_without_pickle(tmp_path, table):
    rows, labels = table
    for model in (
        PrivateLogisticRegression(classes=(0, 1), bounds=([0, 0, 0], np.ones(3))),
        PrivateLinearSVC(classes=(0, 1)),
        PrivateLinearRegression(),
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
        PrivateLinearSVC().save(tmp_path / "none")
    with pytest.raises(ValueError, match="must hold an estimator"):
        PrivateLinearSVC.load(tmp_path)


def test_a_file_with_code_in_it_is_not_run(tmp_path, table):
    PrivateLinearRegression().fit(*table).save(tmp_path / "a")

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
        epsilon=0.1, classes=(0, 1), ledger=tmp_path / "l.db", dataset="people", unit="household"
    )
    with pytest.raises(LedgerError, match="protects one record"):
        model.fit(*table)
