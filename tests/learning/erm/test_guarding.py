"""Searches and pipelines: refused where scores or scalers would not be paid for."""

import joblib
import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, PolynomialFeatures, StandardScaler

from sfumato.core.randomness import SeededCoins
from sfumato.learning.erm import ChargedAccuracy, PrivateLogisticRegression
from sfumato.ledger import Budget, Ledger

GRID = {"regularisation": [0.001, 0.1]}


def model(**changes):
    return PrivateLogisticRegression(classes=(0, 1), **changes)


def test_a_grid_search_is_refused(table):
    for scoring in (None, "accuracy", "roc_auc"):
        search = GridSearchCV(model(), GRID, cv=2, scoring=scoring, error_score="raise")
        with pytest.raises(PermissionError, match="must be paid for"):
            search.fit(*table)


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_also_in_other_threads_and_processes(table, backend):
    search = GridSearchCV(model(), GRID, cv=2, n_jobs=2, error_score="raise")
    with joblib.parallel_backend(backend), pytest.raises(PermissionError, match="paid for"):
        search.fit(*table)


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


def test_a_ledger_alone_does_not_pay_for_scores(table, tmp_path):
    Ledger(tmp_path / "l.db").create("people", Budget(50.0, 1e-3), neighbours="replace-one")
    search = GridSearchCV(
        model(ledger=tmp_path / "l.db", dataset="people"), GRID, cv=2, error_score="raise"
    )
    with pytest.raises(PermissionError):
        search.fit(*table)


def test_a_search_that_pays_for_everything(table, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("people", Budget(20.0, 1e-3), neighbours="replace-one")
    payer = {"ledger": str(tmp_path / "l.db"), "dataset": "people"}
    scoring = ChargedAccuracy(0.5, **payer, coins=SeededCoins(2))
    fair = model(**payer, coins=SeededCoins(1))
    search = GridSearchCV(fair, GRID, cv=2, scoring=scoring, error_score="raise")
    search.fit(*table)
    assert search.best_params_["regularisation"] in GRID["regularisation"]
    reserved = [entry for entry in ledger.history("people") if entry.kind == "reserve"]
    assert len(reserved) == 4 + 4 + 1  # fits, scores, and the best fitted again
    assert ledger.status("people").left < 20 - 5 - 2 + 1e-6


def test_a_charged_score_is_noisy_by_one_over_n(table, tmp_path):
    ledger = Ledger(tmp_path / "l.db")
    ledger.create("people", Budget(1e4), neighbours="replace-one")
    rows, labels = table
    fitted = model(coins=SeededCoins(1)).fit(rows, labels)
    scorer = ChargedAccuracy(0.01, tmp_path / "l.db", "people", coins=SeededCoins(5))
    found = np.array([scorer(fitted, rows, labels) for _ in range(30)])
    # Laplace noise of scale 1 / (2000 0.01) = 0.05.
    assert np.abs(found - np.median(found)).mean() == pytest.approx(0.05, rel=0.6)


def test_a_scaler_of_private_rows_is_refused(table):
    rows, labels = table
    with pytest.raises(PermissionError, match="StandardScaler"):
        make_pipeline(StandardScaler(), model()).fit(rows, labels)
    with pytest.raises(PermissionError, match="step 'standardscaler'"):
        make_pipeline(Normalizer(), StandardScaler(), model()).fit(rows, labels)


def test_steps_that_learn_nothing_of_rows_are_not(table):
    rows, labels = table
    elsewhere = StandardScaler().fit(np.random.default_rng(1).random((100, 3)))
    for before in (Normalizer(), PolynomialFeatures(2), FrozenEstimator(elsewhere), "passthrough"):
        piped = make_pipeline(before, model(bounds=(-3, 3), coins=SeededCoins(1)))
        assert piped.fit(rows, labels).predict(rows).shape == (2000,)
