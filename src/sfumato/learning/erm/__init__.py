"""Private empirical risk minimisation: linear models of tables, as scikit-learn estimators.

================================  ==================================================================
:class:`PrivateLogisticRegression`  classes, two or many, and probabilities
:class:`PrivateLinearSVC`           classes, by a rounded hinge
:class:`PrivateLinearRegression`    a number within declared bounds
:class:`PrivateRidge`               the same with scikit-learn's penalty, alpha
================================  ==================================================================

======================  ============================================================================
way                     what is noised
======================  ============================================================================
objective (default)     the objective: a random tilt, then its minimiser
output                  the minimiser
functional              the coefficients of a quadratic objective
sgd                     the last weights of stochastic descent
input                   every row (local privacy)
======================  ============================================================================

Rows are scaled by declared bounds to length 1 at most. ``estimator.plan(columns, records)`` tells
event, guarantee, sensitivity and noise before any row is read.

Symbols: x a row, l a loss, z = x W outputs, G its Lipschitz constant, beta its smoothness, N the
public number of rows, lambda the regularisation of the mean loss and Lambda = N lambda of the sum,
B the tilt, tau the gradient at which a solver stops.
"""

from sfumato.learning.erm.classifiers import (
    FROM_LABELS,
    PrivateLinearSVC,
    PrivateLogisticRegression,
)
from sfumato.learning.erm.regression import PrivateLinearRegression, PrivateRidge
from sfumato.learning.erm.scoring import ChargedAccuracy
from sfumato.learning.erm.tasks import Task, Way
from sfumato.learning.erm.ways import way_names, way_of

__all__ = [
    "FROM_LABELS",
    "ChargedAccuracy",
    "PrivateLinearRegression",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "Task",
    "Way",
    "way_names",
    "way_of",
]
