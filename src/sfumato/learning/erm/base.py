"""What the private estimators share: declared facts in, one charged release out."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from sfumato.core import validation
from sfumato.core.neighbours import Neighbours
from sfumato.core.randomness import SYSTEM, Coins
from sfumato.core.records import Record, versions
from sfumato.learning.erm.cells import Column, Table
from sfumato.learning.erm.charging import Charge
from sfumato.learning.erm.guarding import refuse_unpaid_search, refuse_unsafe_steps
from sfumato.learning.erm.losses import Loss
from sfumato.learning.erm.rows import RowScaling, declared_columns
from sfumato.learning.erm.tasks import Quadratic, Task, Way
from sfumato.learning.erm.ways import way_of

__all__ = ["PrivateLinear"]

Floats = NDArray[np.float64]


class PrivateLinear(BaseEstimator, ABC):
    """The base of the estimators: how a fit is planned, charged, made and recorded.

    Args:
        epsilon, delta: of one fit; a delta of 0 asks for a pure guarantee.
        way: how: see :func:`~sfumato.learning.erm.ways.way_names`.
        bounds: (lower, upper) of every column, declared; numbers, or a list each. What is outside
            is moved to the end. A fit without them is refused.
        norm: rows of this length, once columns are between -1 and 1, get length 1; longer ones are
            shortened.
        regularisation: lambda, chosen without looking at the rows; by default a function of public
            facts.
        fit_intercept: whether a constant is learnt; it is regularised like everything else.
        neighbours: "replace-one", under which the number of rows is public and taken from them; or
            "add-remove", under which it is private and ``public_size`` must be declared.
        public_size: the declared number of rows, by which losses are divided.
        unit: whom one row belongs to.
        ledger: the address of the one that is charged before a row is read.
        dataset, analyst: whose budget there, and in whose name.
        coins: where noise comes from; None for the operating system. Seeded ones are for tests and
            stamp the record.

    Attributes:
        weights_: (columns, outputs) as learnt, for rows as scaled. Released.
        record_: the public record of the fit.
        guarantee_: what the fit promises.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        way: str = "objective",
        bounds: Any = None,
        norm: float | None = None,
        regularisation: float | None = None,
        fit_intercept: bool = True,
        neighbours: str = "replace-one",
        public_size: int | None = None,
        unit: str = "record",
        ledger: str | Path | None = None,
        dataset: str = "",
        analyst: str = "",
        coins: Coins | None = None,
    ) -> None:
        self.epsilon, self.delta, self.way = epsilon, delta, way
        self.bounds, self.norm, self.regularisation = bounds, norm, regularisation
        self.fit_intercept, self.neighbours = fit_intercept, neighbours
        self.public_size, self.unit = public_size, unit
        self.ledger, self.dataset, self.analyst = ledger, dataset, analyst
        self.coins = coins

    n_features_in_: int

    # --- what a subclass says -------------------------------------------------------------------

    @abstractmethod
    def _loss(self) -> Loss:
        """Of a record."""

    @abstractmethod
    def _quadratic(self) -> Quadratic | None:
        """The polynomial that stands for the loss; None if none does."""

    @abstractmethod
    def _declare_targets(self, y: Column) -> None:
        """Takes up what is declared of the targets, before they are read."""

    @abstractmethod
    def _targets(self, y: NDArray[Any]) -> tuple[NDArray[Any], Floats]:
        """Targets as the loss takes them, and codes as its polynomial does; total."""

    def _usual_norm(self, columns: int) -> float:
        return 1.0

    def _strength(self, records: int) -> float | None:
        """Lambda, for so many rows; None for what the way finds best."""
        return self.regularisation

    # --- before any row is read -----------------------------------------------------------------

    def scaling(self, columns: int) -> RowScaling:
        """What is done to each row of so many columns."""
        if self.bounds is None:  # a usual range would clip what is outside of it, unnoticed
            raise ValueError(
                "bounds must be declared: (lower, upper) of the columns of X, numbers or a list "
                "each, such as bounds=(0, 1) for columns that were scaled to it. They are never "
                "taken from the rows, which would tell of them"
            )
        norm = self._usual_norm(columns) if self.norm is None else self.norm
        return RowScaling.declared(self.bounds, columns, norm, self.fit_intercept)

    def plan(self, columns: int, records: int | None = None) -> Way:
        """The way of a fit: its event, guarantee, sensitivity and noise, from public facts alone.

        Args:
            columns: of X.
            records: the number of rows, where it is public.
        """
        relation = Neighbours.parse(self.neighbours)
        if relation is Neighbours.ZERO_OUT:
            raise ValueError(
                "neighbours must be 'replace-one' or 'add-remove': a row that is blanked out still "
                "counts here, as one at the declared defaults, so that blanking is a replacement. "
                "neighbours='replace-one' covers it"
            )
        size = self.public_size if self.public_size is not None else records
        if self.public_size is None and relation is not Neighbours.REPLACE_ONE:
            raise ValueError(
                f"public_size must be declared with neighbours={relation.value!r}, under which the "
                "number of rows is private: public_size=5000, roughly"
            )
        if size is None:
            raise ValueError("records must be given: how many rows there are")
        if self.way == "sgd" and records is not None and size != records:
            validation.fail("public_size", f"left out for 'sgd', or {records} as there are", size)
        task = Task(
            self._loss(), validation.count("public_size", size), self.scaling(columns).width,
            self.epsilon, self.delta, relation, self.unit, self._strength(size), self._quadratic(),
        )  # fmt: skip
        way = way_of(self.way, task)
        if records is not None:
            way.admit(records)
        return way

    # --- fit ------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Learns privately: charged first, then one release.

        Rows may hold anything: what is outside the bounds is moved to their ends, what is no finite
        number becomes the middle, each cell by itself. Errors are about parameters and shapes. What
        was fitted before stays as it was until all has gone well.

        Args:
            X: an array, a frame or a list of rows. Of lists, a row of another length than declared
                is replaced as a whole, if bounds are declared for each column.
            y: as many labels or numbers.
        """
        refuse_unpaid_search(self)
        refuse_unsafe_steps(self)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        table = X if isinstance(X, Table) else Table.of(X, declared_columns(self.bounds))
        column = y if isinstance(y, Column) else Column.of(y)
        made = copy.copy(self)
        made._fit(table, column)
        vars(self).update(vars(made))
        return self

    def _fit(self, table: Table, column: Column) -> None:
        public = Neighbours.parse(self.neighbours) is Neighbours.REPLACE_ONE
        validate_data(self, table.outline(), ensure_min_samples=int(public))
        records, columns = table.shape
        if records != column.length:
            raise ValueError("y must have as many entries as X has rows: inconsistent lengths")
        self._declare_targets(column)
        way = self.plan(columns, records if public else None)
        scaling, coins = self.scaling(columns), SYSTEM if self.coins is None else self.coins
        charge = Charge(self.ledger, self.dataset, self.analyst)
        charge.make(way.event, self.delta, {"erm": type(self).__name__, "way": self.way})
        targets, codes = self._targets(column.read())
        self.weights_ = way.fit(scaling.rows(table.read()), targets, codes, coins)
        self.scaling_, self.guarantee_ = scaling, way.guarantee
        self.record_ = self._recorded(way, scaling, coins, charge)
        charge.finish(self.record_.to_dict())

    def _recorded(self, way: Way, scaling: RowScaling, coins: Coins, charge: Charge) -> Record:
        task = way.task
        plan = {
            "way": way.name,
            "epsilon": task.epsilon,
            "delta": task.delta,
            "records": task.records,
            "regularisation": way.regularisation,
            "scaling": scaling.to_dict(),
        }
        record = Record(
            "erm",
            {"estimator": type(self).__name__, "plan": plan | way.facts},
            way.event,
            way.guarantee,
            facts={"parameters": task.dimension} | self._public_facts() | charge.facts,
            software=versions("numpy", "scipy", "scikit-learn"),
        )
        record.touch(coins)
        return record

    def _public_facts(self) -> dict[str, Any]:
        return {}

    # --- after ----------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> Floats:
        """(n, outputs), of rows that are scaled as those that were learnt from."""
        check_is_fitted(self, "weights_")
        table = X if isinstance(X, Table) else Table.of(X, usual=self.n_features_in_)
        validate_data(self, table.outline(), reset=False)
        return self.scaling_.rows(table.read()) @ self.weights_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = True
        tags.target_tags.required = True
        return tags

    def save(self, folder: str | Path) -> None:
        """Writes ``estimator.json`` and ``weights.npz`` into a new or empty folder; no pickle."""
        from sfumato.learning.erm.storing import save

        save(self, folder)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """What :meth:`save` wrote. Nothing is unpickled, and no code of the file is run.

        Raises:
            ValueError: if the folder holds another kind of estimator, or none.
        """
        from sfumato.learning.erm.storing import load

        return load(cls, folder)
