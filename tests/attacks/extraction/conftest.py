"""Two real models to steal: of cancer (logistic, d = 30) and of digits (softmax, 530 unknowns)."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression

from sfumato.attacks.extraction.linear import LinearModel
from sfumato.attacks.targets import Target


@pytest.fixture(scope="session")
def cancer():
    """A logistic regression on 30 standard features, within -3 and 3."""
    inputs, labels = load_breast_cancer(return_X_y=True)
    inputs = (inputs - inputs.mean(axis=0)) / inputs.std(axis=0)
    model = LogisticRegression().fit(inputs, labels)
    return SimpleNamespace(
        inputs=inputs,
        truth=labels,
        weights=model.coef_[0],
        intercept=model.intercept_[0],
        target=Target.of_scores(model.predict_proba),
        bounds=(-3, 3),
    )


@pytest.fixture(scope="session")
def digits():
    """A softmax regression on the 52 pixels that vary most, 10 classes, within 0 and 1."""
    random = np.random.default_rng(0)
    inputs, labels = load_digits(return_X_y=True)
    inputs = inputs[:, np.sort(np.argsort(inputs.std(axis=0))[-52:])] / 16
    order = random.permutation(len(inputs))
    train, test = order[:900], order[900:]
    model = LogisticRegression(max_iter=2000).fit(inputs[train], labels[train])
    return SimpleNamespace(
        inputs=inputs[test],
        truth=labels[test],
        model=LinearModel(model.coef_, model.intercept_),
        target=Target.of_scores(model.predict_proba),
        bounds=(0, 1),
        uniform=random.uniform(0, 1, (20_000, 52)),
    )
