"""Searches, wrappers and pipelines: refused where scores, folds or scalers are not paid for."""

import joblib
import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_selection import RFE, RFECV, SelectFromModel, SequentialFeatureSelector
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    RandomizedSearchCV,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    cross_validate,
    learning_curve,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.semi_supervised import SelfTrainingClassifier

from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm import (
    ChargedAccuracy,
    PrivateLinearRegression,
    PrivateLogisticRegression,
)
from sfumato.ledger import Budget, Ledger

GRID = {"regularisation": [0.001, 0.1]}


def model(**changes):
    return PrivateLogisticRegression(**{"classes": (0, 1), "bounds": (0, 1)} | changes)


@pytest.fixture
def payer(tmp_path):
    """Who pays: arguments for estimators and scores."""
    path = str(tmp_path / "l.db")
    Ledger(path).create("people", Budget(1e4, 1e-2), neighbours="replace-one")
    return {"ledger": path, "dataset": "people"}


@pytest.fixture
def charged(payer):
    """A search that pays, but for what is changed."""

    def make(kind=GridSearchCV, estimator=None, grid=GRID, **changes):
        settings = {
            "scoring": ChargedAccuracy(0.5, **payer, coins=SeededCoins(2)),
            "cv": KFold(2),
            "error_score": "raise",
        }
        estimator = model(**payer, coins=SeededCoins(1)) if estimator is None else estimator
        return kind(estimator, grid, **settings | changes)

    return make


def entries(payer):
    history = Ledger(payer["ledger"]).history("people")
    return sum(entry.kind == "reserve" for entry in history)


# --- searches -----------------------------------------------------------------------------------


def test_a_grid_search_is_refused(table):
    for scoring in (None, "accuracy", "roc_auc"):
        search = GridSearchCV(model(), GRID, cv=KFold(2), scoring=scoring, error_score="raise")
        with pytest.raises(PermissionError, match="must be paid for"):
            search.fit(*table)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_also_in_other_threads_and_processes(table, charged, payer, backend):
    for search in (
        GridSearchCV(model(), GRID, cv=2, n_jobs=2, error_score="raise"),
        charged(n_jobs=2),
    ):
        with joblib.parallel_backend(backend), pytest.raises(PermissionError, match="n_jobs=None"):
            search.fit(*table)
    assert not entries(payer)


def test_also_in_pipelines(table):
    piped = make_pipeline(Normalizer(), model())
    with pytest.raises(PermissionError, match="must be paid for"):
        cross_val_score(piped, *table, cv=2, error_score="raise")


@pytest.mark.filterwarnings("ignore")
def test_as_scikit_learn_treats_errors_no_score_is_seen(table):
    with pytest.raises(ValueError, match="All the 2 fits failed"):
        cross_val_score(model(), *table, cv=2)
    with pytest.raises(PermissionError):
        cross_val_predict(model(), *table, cv=2)
    with pytest.raises(ValueError, match="fits failed"):
        learning_curve(model(), *table, cv=2)


def test_a_ledger_alone_does_not_pay_for_scores(table, charged):
    for scoring in (None, "accuracy", lambda *_: 0.5):
        with pytest.raises(PermissionError, match="must be paid for"):
            charged(scoring=scoring).fit(*table)


def test_nor_do_charged_scores_pay_for_fits(table, charged):
    with pytest.raises(PermissionError, match="must be paid for"):
        charged(estimator=model()).fit(*table)


def test_nor_one_charged_score_for_others_beside_it(table, charged, payer):
    both = {"paid": ChargedAccuracy(0.5, **payer), "free": "accuracy"}
    with pytest.raises(PermissionError, match="must be paid for"):
        charged(scoring=both, refit="paid").fit(*table)


def test_fits_and_scores_are_paid_from_one_budget(table, charged, payer):
    for other in ({"dataset": "others"}, {"ledger": payer["ledger"] + "2"}):
        with pytest.raises(PermissionError, match="one budget"):
            charged(scoring=ChargedAccuracy(0.5, **payer | other)).fit(*table)
    assert not entries(payer)


def test_a_search_that_pays_for_everything(table, charged, payer):
    search = charged().fit(*table)
    assert search.best_params_["regularisation"] in GRID["regularisation"]
    assert entries(payer) == 4 + 4 + 1  # fits, scores, and the best fitted again
    assert Ledger(payer["ledger"]).status("people").left < 1e4 - 5 - 2 + 1e-6


def test_also_of_a_pipeline_and_at_random(table, charged, payer):
    piped = make_pipeline(Normalizer(), model(**payer))
    grid = {f"privatelogisticregression__{name}": values for name, values in GRID.items()}
    charged(RandomizedSearchCV, piped, grid, n_iter=1, cv=RepeatedKFold(n_splits=2)).fit(*table)
    assert entries(payer) == 20 + 20 + 1


def test_cross_validation_that_pays(table, payer):
    scoring = ChargedAccuracy(0.5, **payer, coins=SeededCoins(2))
    found = cross_val_score(model(**payer), *table, cv=KFold(3), scoring=scoring)
    assert found.shape == (3,)
    assert entries(payer) == 6
    for cv in (None, 3, StratifiedKFold(3)):
        with pytest.raises(PermissionError, match="by their number alone"):
            cross_val_score(model(**payer), *table, cv=cv, scoring=scoring, error_score="raise")
    with pytest.raises(PermissionError, match="must be paid for"):
        cross_validate(model(**payer), *table, cv=KFold(3), scoring=scoring, error_score="raise")
    assert entries(payer) == 6


# --- folds --------------------------------------------------------------------------------------


class Halves(KFold):
    """Not known: it may look at labels."""


@pytest.mark.parametrize(
    "cv",
    [
        2, None, StratifiedKFold(2), Halves(2), [(np.arange(1000), np.arange(1000, 2000))],
        ShuffleSplit(2), ShuffleSplit(2, test_size=0.5),
        ShuffleSplit(2, test_size=9, train_size=0.5),
    ],
    ids=lambda cv: type(cv).__name__,
)  # fmt: skip
def test_folds_that_may_depend_on_labels_are_refused(table, charged, payer, cv):
    with pytest.raises(PermissionError, match=r"cv=KFold\(\.\.\.\)"):
        charged(cv=cv).fit(*table)
    assert not entries(payer)


def test_whatever_the_labels_are(table, charged):
    rows, labels = table
    odd = labels.astype(float)
    odd[0] = 0.5  # scikit-learn would take these for numbers, and not stratify
    with pytest.raises(PermissionError, match="by their number alone"):
        charged(cv=2).fit(rows, odd)


@pytest.mark.parametrize(
    "cv",
    [
        KFold(2, shuffle=True),
        RepeatedKFold(n_splits=2, n_repeats=1),
        ShuffleSplit(2, test_size=100),
        ShuffleSplit(2, test_size=100, train_size=900),
    ],
    ids=lambda cv: type(cv).__name__,
)
def test_folds_by_number_are_not(table, charged, payer, cv):
    charged(cv=cv, refit=False).fit(*table)
    assert entries(payer) == 8


def test_folds_move_when_the_number_of_rows_is_private(table, charged, payer):
    private = model(**payer, neighbours="add-remove", public_size=2000)
    with pytest.raises(PermissionError, match="replace-one"):
        charged(estimator=private).fit(*table)


# --- what is around -----------------------------------------------------------------------------


def test_a_search_that_pays_inside_one_that_does_not(table, charged, payer):
    rows, labels = table
    for outer in (
        GridSearchCV(charged(), {"refit": [True]}, cv=2, error_score="raise"),
        charged(estimator=charged(), grid={"refit": [True]}),
        BaggingClassifier(charged(), n_estimators=2),
        TunedThresholdClassifierCV(charged(), cv=2),
    ):
        with pytest.raises(PermissionError):
            outer.fit(rows, labels)
    for around in (cross_val_score, cross_validate):
        with pytest.raises(PermissionError):
            around(charged(), rows, labels, cv=2, error_score="raise")
    with joblib.parallel_backend("threading"), pytest.raises(PermissionError):
        cross_val_score(charged(), rows, labels, cv=2, n_jobs=2, error_score="raise")
    assert not entries(payer)


WRAPPERS = {
    "RFE": lambda m: RFE(m, n_features_to_select=1),
    "RFECV": lambda m: RFECV(m, cv=2),
    "SequentialFeatureSelector": lambda m: SequentialFeatureSelector(m, cv=2),
    "SelectFromModel": lambda m: make_pipeline(SelectFromModel(m), m),
    "CalibratedClassifierCV": lambda m: CalibratedClassifierCV(m, cv=2),
    "BaggingClassifier": lambda m: BaggingClassifier(m, n_estimators=2),
    "VotingClassifier": lambda m: VotingClassifier([("a", m), ("b", m)]),
    "StackingClassifier": lambda m: StackingClassifier([("a", m)], cv=2),
    "OneVsRestClassifier": OneVsRestClassifier,
    "OneVsOneClassifier": OneVsOneClassifier,
    "OutputCodeClassifier": lambda m: OutputCodeClassifier(m, code_size=20, random_state=0),
    "SelfTrainingClassifier": SelfTrainingClassifier,
    "TunedThresholdClassifierCV": lambda m: TunedThresholdClassifierCV(m, cv=2),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_are_refused(table, payer, wrapper):
    rows, labels = table
    if wrapper == "SelfTrainingClassifier":
        labels = np.where(np.arange(2000) < 50, -1, labels)  # some not labelled
    # Where scikit-learn has caught it, a ValueError that quotes it.
    with pytest.raises((PermissionError, ValueError), match=r"must not fit a private|paid for"):
        WRAPPERS[wrapper](model(**payer)).fit(rows, labels)
    assert not entries(payer)


def test_wrappers_of_many_targets_are_refused(table, payer):
    rows, labels = table
    both = np.column_stack([labels, 1 - labels])
    for wrapper in (MultiOutputClassifier, ClassifierChain):
        with pytest.raises(PermissionError, match=r"sklearn\.multioutput must not fit"):
            wrapper(model(**payer)).fit(rows, both)
    with pytest.raises(PermissionError, match=r"sklearn\.compose must not fit"):
        TransformedTargetRegressor(
            PrivateLinearRegression(bounds=(0, 1), target_bounds=(0, 1), **payer)
        ).fit(rows, labels)
    assert not entries(payer)


def test_also_those_that_work_in_threads(table, payer):
    with joblib.parallel_backend("threading"):
        for wrapper in (
            BaggingClassifier(model(**payer), n_estimators=2, n_jobs=2),
            OneVsRestClassifier(model(**payer), n_jobs=2),
            RFECV(model(**payer), cv=2, n_jobs=2),
        ):
            with pytest.raises(PermissionError, match="must not fit"):
                wrapper.fit(*table)
    assert not entries(payer)


def test_a_charged_score_is_noisy_by_one_over_n(table, payer):
    rows, labels = table
    fitted = model(**payer, coins=SeededCoins(1)).fit(rows, labels)
    scorer = ChargedAccuracy(0.01, **payer, coins=SeededCoins(5))
    found = np.array([scorer(fitted, rows, labels) for _ in range(30)])
    # Laplace noise of scale 1 / (2000 0.01) = 0.05.
    assert np.abs(found - np.median(found)).mean() == pytest.approx(0.05, rel=0.6)


# --- pipelines ----------------------------------------------------------------------------------


def test_a_scaler_of_private_rows_is_refused(table):
    rows, labels = table
    with pytest.raises(PermissionError, match="StandardScaler"):
        make_pipeline(StandardScaler(), model()).fit(rows, labels)
    with pytest.raises(PermissionError, match="step 'standardscaler'"):
        make_pipeline(Normalizer(), StandardScaler(), model()).fit(rows, labels)


def test_also_around_other_pipelines_and_searches(table, charged, payer):
    inner = make_pipeline(Normalizer(), model(**payer))
    for last in (inner, charged()):
        with pytest.raises(PermissionError, match="StandardScaler"):
            make_pipeline(StandardScaler(), last).fit(*table)
    with pytest.raises(PermissionError, match="step 'pipeline'"):
        make_pipeline(make_pipeline(Normalizer(), StandardScaler()), model()).fit(*table)
    assert not entries(payer)


class PolynomialLookalike(StandardScaler):
    """Bears the name of one that is known."""


PolynomialLookalike.__name__ = "PolynomialFeatures"


@pytest.mark.parametrize(
    "step",
    [
        FunctionTransformer(lambda rows: rows - rows.mean(axis=0)),
        GaussianRandomProjection("auto", eps=0.99),
        RBFSampler(gamma="scale"),
        FeatureUnion([("all", StandardScaler())]),
        PolynomialLookalike(),
    ],
    ids=lambda step: type(step).__name__,
)
def test_steps_that_may_learn_from_rows_are_refused(table, step):
    rows = np.tile(table[0], (1, 70))  # as "auto" wants columns
    with pytest.raises(PermissionError, match="FrozenEstimator"):
        Pipeline([("before", step), ("model", model())]).fit(rows, table[1])


def test_steps_that_learn_nothing_of_rows_are_not(table):
    rows, labels = table
    elsewhere = StandardScaler().fit(np.random.default_rng(1).random((100, 3)))
    for before in (
        Normalizer(),
        PolynomialFeatures(2),
        RBFSampler(n_components=3),
        GaussianRandomProjection(2),
        FrozenEstimator(elsewhere),
        FrozenEstimator(FunctionTransformer(np.sqrt)),
        make_pipeline(Normalizer(), "passthrough"),
        "passthrough",
    ):
        piped = make_pipeline(before, model(bounds=(-3, 3), coins=SeededCoins(1)))
        assert piped.fit(rows, labels).predict(rows).shape == (2000,)
