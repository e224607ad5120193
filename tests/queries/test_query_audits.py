"""Every kind of question, attacked: an answer shows no more than its claim, and nearly as much.

Two tables differ by one person, who holds more rows than may count, each as extreme as the bounds
allow. A question reads both through the bounding of contributions; its aggregate is then released
over and over, as an answer is, and an audit tells the two apart as well as it can. Where noise is
added to whole numbers, these are audited besides, many more of them, before they become a mean or a
variance. With a wrong constant, each of the audits refutes the claim.
"""

import functools
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sfumato.accounting import account
from sfumato.audit.mechanism import audit_mechanism
from sfumato.audit.pairs import audit_law
from sfumato.core import Neighbours, SeededCoins, Sensitivity
from sfumato.core.guarantee import Guarantee
from sfumato.mechanisms import discrete_gaussian, discrete_laplace, laplace, randomized_response
from sfumato.mechanisms.randomized_response import keep_probability
from sfumato.mechanisms.selection import Selection
from sfumato.mechanisms.sparse_vector import SparseVector
from sfumato.queries import (
    ArgMax,
    Count,
    CountUnits,
    Crosstab,
    GroupBy,
    Histogram,
    LocalCount,
    LocalFrequency,
    LocalMean,
    Mean,
    Median,
    MostCommon,
    Quantile,
    Sum,
    Variance,
    noise,
    private_keys,
)
from sfumato.queries.engine import fetch
from sfumato.queries.facts import Facts
from sfumato.queries.measures import UnitCount
from sfumato.queries.noise import Part
from sfumato.queries.protected import _Bounded
from sfumato.queries.sources import open_source
from sfumato.queries.tabulate import exact_counts

KEY = 4_611_686_018_427_387_903
SCHEMA = pa.schema(
    {"person": pa.int64(), "city": pa.string(), "x": pa.float64(), "yes": pa.bool_()}
)
CITIES = ("Rome", "Milan", "Bari")
TWELVE = tuple("abcdefghijkl")
PRICE = {"epsilon": 2.0}
GAUSSIAN = {"epsilon": 3.0, "delta": 1e-5}
ANSWERS, PARTS, FEW = 800, 20_000, 130


def one(city, x, rows=10, yes=True):
    """Rows of the person who comes or goes."""
    return ((99, city, x, yes),) * rows


def others(city, x, people, rows=3):
    return tuple((person, city, x, True) for person in range(people)) * rows


SOME = others("Rome", 1.0, 3, 2)
MUCH = one("Rome", 1e9)
SPREAD = one("Rome", 9.0, 5) + one("Bari", 9.0, 5)
ABROAD = one("Rome", 9.0, 1) + one("Bari", 9.0, 1) + one("Milan", 9.0, 1)
LOW = others("Rome", 0.5, 2)
CROWD = others("a", 5.0, 5)


@dataclass(frozen=True)
class Case:
    """A question on two neighbouring tables, and the shares of its claim that audits must reach.

    ``answers`` by what is released, ``parts`` by the noisy numbers from which that is computed,
    ``law`` by the probabilities of a choice.
    """

    query: Any
    others: tuple
    person: tuple
    answers: float | None = None
    parts: float | None = None
    law: float | None = None
    rows: int = 3
    groups: int = 2
    neighbours: str = "add-remove"
    instead: tuple = ()

    @property
    def gaussian(self):
        return 0 < self.query.delta < 1e-3

    @property
    def plan(self):
        columns = dict(opened(()).schema().items())
        relation = Neighbours.parse(self.neighbours)
        return self.query.plan(Facts(columns, "person", "person", self.rows, self.groups, relation))

    @property
    def worlds(self):
        """Without the person, or with another, and with."""
        return self.others + self.instead, self.others + self.person


@functools.cache
def opened(rows):
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SCHEMA.types, strict=True)]
    return open_source(pa.table(arrays, schema=SCHEMA), name="people").table


@functools.cache
def read(name):
    """What a question reads of both tables, through the bounding of contributions."""
    plan = CASES[name].plan
    bounded = [_Bounded(opened(rows), plan.facts, KEY) for rows in CASES[name].worlds]
    return tuple(fetch(plan.exact(b.table(plan.group_columns)), "testing") for b in bounded)


def by_city(of, **more):
    return GroupBy(("city",), of, **({"keys": CITIES} | more))


def middle(**more):
    return Median("x", 0, 12, **({"candidates": 12, "interval": False} | PRICE | more))


CITY = {"city": CITIES}
PRIVATE = by_city(Count(epsilon=2.0, delta=0.05), keys=None, private_keys=True)
CASES = {
    "count": Case(Count(**PRICE), SOME, MUCH, 0.6, 0.9),
    "count of units": Case(CountUnits(**PRICE), SOME, MUCH, 0.6, 0.9),
    "sum": Case(Sum("x", -2, 5, **PRICE), SOME, MUCH, 0.5, 0.85),
    "sum of negatives": Case(Sum("x", -5, 2, **PRICE), SOME, one("Rome", -1e9), None, 0.85),
    "mean": Case(Mean("x", 0, 5, **PRICE), others("Rome", 1.0, 50), MUCH, 0.3, 0.8),
    "variance": Case(Variance("x", 0, 5, **PRICE), others("Rome", 1.0, 50), MUCH, 0.05, 0.75),
    "histogram": Case(Histogram("x", (0, 2, 2e9), **PRICE), SOME, MUCH, 0.5, 0.85),
    "crosstab": Case(Crosstab(("city", "yes"), CITY, **PRICE), SOME, SPREAD, 0.5, 0.7),
    "count by city": Case(by_city(Count(**PRICE)), SOME, SPREAD, 0.5, 0.85),
    "units by city": Case(by_city(CountUnits(**PRICE)), SOME, ABROAD, 0.4, 0.85),
    "sum by city": Case(by_city(Sum("x", 0, 5, **PRICE)), SOME, SPREAD, None, 0.8),
    "mean by city": Case(by_city(Mean("x", 0, 5, **PRICE)), SOME, SPREAD, None, 0.75),
    "sum, replaced": Case(
        Sum("x", -5, 5, **PRICE), SOME, MUCH, None, 0.85,
        neighbours="replace-one", instead=one("Rome", -1e9),
    ),
    "histogram, replaced": Case(
        Histogram("x", (0, 2, 2e9), **PRICE), SOME, MUCH, None, 0.8,
        neighbours="replace-one", instead=one("Rome", 1.0),
    ),
    "count, Gaussian": Case(Count(**GAUSSIAN), SOME, MUCH, 0.2, 0.8),
    "sum, Gaussian": Case(Sum("x", -2, 5, **GAUSSIAN), SOME, MUCH, None, 0.8),
    "mean, Gaussian": Case(Mean("x", 0, 5, **GAUSSIAN), SOME, MUCH, None, 0.65),
    "histogram, Gaussian": Case(Histogram("x", (0, 2, 2e9), **GAUSSIAN), SOME, MUCH, None, 0.65),
    "units by city, Gaussian": Case(by_city(CountUnits(**GAUSSIAN)), SOME, ABROAD, None, 0.7),
    "most common": Case(MostCommon("city", TWELVE, **PRICE), (), one("c", 1.0), 0.3),
    "two most common": Case(
        MostCommon("city", TWELVE[:4], winners=2, epsilon=4.0), (), one("c", 1.0), 0.2
    ),
    "largest sum": Case(ArgMax("city", "x", 0, 5, TWELVE, **PRICE), (), one("c", 1e9), 0.3),
    "largest sum of any sign": Case(
        ArgMax("city", "x", -5, 5, TWELVE, **PRICE), (), one("c", 1e9), 0.0, law=0.4
    ),
    "median": Case(middle(), LOW, one("Rome", 1.5), 0.3),
    "median with an interval": Case(
        middle(interval=True, candidates=6, epsilon=4.0), LOW, one("Rome", 2.5), 0.15
    ),
    "quantile": Case(
        Quantile("x", 0.9, 0, 12, candidates=12, interval=False, **PRICE),
        others("Rome", 0.5, 9), one("Rome", 1.5), 0.0, law=0.3,
    ),
    "median by city": Case(
        by_city(middle(epsilon=4.0), keys=CITIES[:2]), LOW, one("Rome", 1.5), 0.1
    ),
    "rarely most common": Case(MostCommon("city", TWELVE, **PRICE), CROWD, one("c", 1), law=0.99),
    "rarely largest sum": Case(
        ArgMax("city", "x", 0, 5, TWELVE, **PRICE), CROWD, one("c", 1e9), law=0.99
    ),
    "hardly ever median": Case(
        middle(), others("Rome", 1.5, 4) + others("Rome", 11.5, 3), one("Rome", -1e9), law=0.95
    ),
    "private keys": Case(PRIVATE, others("Rome", 1.0, 3, 1), one("Rome", 1.0), 0.3, groups=1),
    "private key of one's own": Case(
        PRIVATE, others("Rome", 1.0, 3, 1), one("Bari", 1.0), 0.0, groups=1
    ),
}  # fmt: skip
ANSWERED = [name for name, case in CASES.items() if case.answers is not None]
TABULATED = [name for name, case in CASES.items() if case.parts is not None]
CHOSEN = [name for name, case in CASES.items() if case.law is not None]


# --- audits ---------------------------------------------------------------------------------------


def claim_of(plan):
    """What the answer states, or what the ledger charges if that is less."""
    stated = plan.guarantee
    charged = account(plan.event, stated.delta, neighbours=stated.neighbours)
    return min(stated, charged, key=lambda claim: claim.epsilon)


def shown(cells):
    """What a reader sees, as numbers where they are; of private keys, which are there."""
    if cells and cells[0].low is None:
        return tuple(cell.value for cell in cells)
    return tuple(number for cell in cells for number in (cell.value, cell.low, cell.high))


def by_key(cells):
    named = {cell.keys[0]: float(cell.value) for cell in cells}
    return tuple(named.get(key, -99.0) for key in CITIES)


def audit_answers(name, samples=ANSWERS, seed=1):
    """Of what is released, one answer at a time."""
    plan = CASES[name].plan
    coins, seen = SeededCoins(seed), by_key if hasattr(plan, "selection") else shown

    def draw(rows, count):
        return [seen(plan.release(rows, coins)) for _ in range(count)]

    return audited(name, plan, draw, samples)


def audit_parts(name, samples=PARTS, seed=2):
    """Of the noisy whole numbers behind an answer, all cells of all parts, in bulk."""
    plan = CASES[name].plan
    coins, names = SeededCoins(seed), [part.name for part in plan.noise.parts]

    def draw(rows, count):
        exact = exact_counts(rows, plan.axes, names)
        many = {name: np.broadcast_to(exact[name], (count, exact[name].size)) for name in names}
        noisy = plan.noise.add(many, coins)
        return np.concatenate([noisy[name] for name in names], axis=1)

    return audited(name, plan, draw, samples)


def audited(name, plan, draw, samples):
    return audit_mechanism(
        draw, [read(name)], claim=claim_of(plan), samples=samples, gaussian=CASES[name].gaussian
    )


@pytest.mark.parametrize("name", ANSWERED)
def test_answers_show_no_more_than_they_claim_and_nearly_that(name):
    found = audit_answers(name)
    assert not found.refuted
    assert found.epsilon >= CASES[name].answers * found.claim.epsilon


@pytest.mark.parametrize("name", TABULATED)
def test_noisy_parts_show_no_more_than_they_claim_and_nearly_that(name):
    found = audit_parts(name)
    assert not found.refuted
    assert found.epsilon >= CASES[name].parts * found.claim.epsilon


# --- choices, by their exact law ------------------------------------------------------------------


class Scores:
    """In the place of a choice: remembers the scores that it was asked about."""

    def release(self, scores, candidates=None, *, coins):
        self.seen = list(scores.values()) if candidates else list(scores)
        return SimpleNamespace(value=candidates[0] if candidates else 0)


def audit_choice(name):
    """Of the probabilities themselves, which a sample would not show where they are small."""
    plan, scores = CASES[name].plan, []
    for rows in read(name):
        asked = Scores()
        replace(plan, choice=asked).release(rows, SeededCoins(1))
        scores.append(asked.seen)
    return audit_law(plan.choice, pairs=[tuple(scores)], claim=plan.guarantee)


@pytest.mark.parametrize("name", CHOSEN)
def test_the_law_of_a_choice_is_at_its_claim_and_no_further(name):
    found = audit_choice(name)
    assert not found.refuted
    assert found.epsilon >= CASES[name].law * found.claim.epsilon


class Asked:
    """In the place of a search: remembers what it was asked, and finds nothing."""

    def __init__(self):
        self.seen = []

    def start(self, coins):
        self.seen.append([])
        return self

    def ask(self, value):
        self.seen[-1].append(value)
        return False


def audit_search(name):
    """Of the exact law of the two searches for an interval's ends, a quarter of epsilon each."""
    plan, asked = CASES[name].plan, []
    for rows in read(name):
        asked.append(Asked())
        replace(plan, search=asked[-1]).release(rows, SeededCoins(1))
    claim = replace(plan.guarantee, epsilon=plan.guarantee.epsilon / 4)
    pairs = zip(asked[0].seen, asked[1].seen, strict=True)
    return audit_law(plan.search, pairs=pairs, claim=claim)


def test_the_law_of_an_interval_is_at_its_claim_and_no_further():
    found = audit_search("median with an interval")
    assert not found.refuted
    assert found.epsilon >= 0.9 * found.claim.epsilon


@pytest.mark.parametrize("name", CASES)
def test_what_is_charged_covers_what_is_stated(name):
    """Parts that compose to less, by an accountant, may cost less; none costs less by itself."""
    case = CASES[name]
    plan = case.plan
    charged = account(plan.event, plan.guarantee.delta, neighbours=plan.guarantee.neighbours)
    assert charged.delta == plan.guarantee.delta == case.query.delta
    assert charged.epsilon >= (0.7 if name == "mean, Gaussian" else 0.999) * case.query.epsilon


# --- local questions ------------------------------------------------------------------------------

LOCAL = {
    "count": (LocalCount, (1.0,), (True, False)),
    "frequency": (LocalFrequency, (CITIES, 2.0), ("Rome", "Bari")),
    "frequency, not an answer": (LocalFrequency, (CITIES, 2.0), (None, "Bari")),
    "mean": (LocalMean, (0.0, 5.0, 1.0), (-1e9, 1e9)),
}


def audit_reports(name, samples=PARTS):
    """Of one person's report, of one answer or another."""
    kind, arguments, pair = LOCAL[name]
    survey, coins = kind(*arguments), SeededCoins(3)

    def draw(answer, count):
        return survey.perturb([answer] * count, coins)

    return audit_mechanism(draw, [pair], claim=survey.guarantee(), samples=samples)


@pytest.mark.parametrize("name", LOCAL)
def test_reports_show_no_more_than_they_claim_and_nearly_that(name):
    found = audit_reports(name)
    assert not found.refuted
    assert found.epsilon >= 0.85 * found.claim.epsilon


# --- wrong constants ------------------------------------------------------------------------------


def weak_noise(patch, factor=0.7):
    """Noise of the whole numbers, and of local means, that is three tenths too small."""
    for module, name in ((discrete_laplace, "discrete_laplace"), (laplace, "add_laplace"),
                         (discrete_gaussian, "discrete_gaussian")):  # fmt: skip
        patch.setattr(module, name, scaled(getattr(module, name), factor))


def scaled(usual, factor):
    def drawn(*arguments):
        if usual.__name__ == "add_laplace":
            values, scale, *rest = arguments
            return usual(values, factor * scale, *rest)
        scale, *rest = arguments
        return usual(factor * scale, *rest)

    return drawn


def little_sensitivity(patch):
    """What a person adds is taken to be a third less."""
    usual = Facts.sensitivity

    def less(self, l1, l2, dimension, norm):
        return usual(self, round(0.7 * l1), float(round(0.7 * l2)), dimension, norm)

    patch.setattr(Facts, "sensitivity", less)


def unbounded(patch):
    """A person's rows all count."""
    patch.setitem(globals(), "read", read.__wrapped__)
    patch.setattr(_Bounded, "table", lambda self, columns: self.source)


def unbounded_groups(patch):
    """A person is in as many groups as there are."""
    patch.setitem(globals(), "read", read.__wrapped__)
    patch.setattr("sfumato.queries.protected.bound_groups", lambda table, *_: table)


def undoubled(patch):
    """Someone who is replaced is taken to come or go only."""
    patch.setattr(Sensitivity, "under", lambda self, relation: replace(self, neighbours=relation))


def whole_shares(patch):
    """Every part gets the whole budget."""
    usual = noise._mechanism

    def each(part, *rest):
        return usual(replace(part, share=1.0), *rest)

    patch.setattr(noise, "_mechanism", each)


def one_group(patch):
    """A person is taken to count in one group alone."""
    patch.setattr(UnitCount, "parts", lambda self, *_: (Part("n", 1, 1.0),))


def sharp_choice(patch):
    """Scores weigh a tenth more than they may."""
    usual = Selection.log_weights
    patch.setattr(Selection, "log_weights", lambda self, scores: 1.1 * usual(self, scores))


def weak_search(patch):
    """Both noises of a search are a tenth too small."""
    for name in ("threshold_scale", "query_scale"):
        usual = getattr(SparseVector, name).fget
        patch.setattr(SparseVector, name, property(lambda self, usual=usual: 0.9 * usual(self)))


def low_threshold(patch):
    """Keys of private groups show two units too early."""
    usual = private_keys.threshold
    patch.setattr(private_keys, "threshold", lambda *arguments: usual(*arguments) - 2)


def frank(patch):
    """Reports are true as often as 1.4 epsilon would allow."""
    patch.setattr(
        randomized_response, "keep_probability", lambda e, k: keep_probability(1.4 * e, k)
    )


BY_PARTS = [
    *((weak_noise, name) for name in ("count", "count of units", "sum", "mean", "variance")),
    *((weak_noise, name) for name in ("histogram", "crosstab", "units by city", "sum, replaced")),
    *((weak_noise, name) for name in ("count, Gaussian", "histogram, Gaussian")),
    *((little_sensitivity, name) for name in ("count", "sum", "mean", "histogram", "crosstab")),
    *((little_sensitivity, name) for name in ("count, Gaussian", "sum, replaced")),
    *((unbounded, name) for name in ("count", "sum", "histogram", "count by city", "mean")),
    (unbounded_groups, "units by city"),
    (unbounded_groups, "units by city, Gaussian"),
    (undoubled, "sum, replaced"),
    (undoubled, "histogram, replaced"),
    (whole_shares, "mean"),
    (whole_shares, "variance"),
    (whole_shares, "mean, Gaussian"),
    (one_group, "units by city"),
]
BY_ANSWERS = [
    (weak_noise, "count"),
    (weak_noise, "private keys"),
    (low_threshold, "private key of one's own"),
    (unbounded, "most common"),
]


def called(value):
    return getattr(value, "__name__", value)


@pytest.mark.parametrize(("wrong", "name"), BY_PARTS, ids=called)
def test_a_wrong_constant_is_refuted_by_noisy_parts(monkeypatch, wrong, name):
    wrong(monkeypatch)
    assert audit_parts(name).refuted


@pytest.mark.parametrize(("wrong", "name"), BY_ANSWERS, ids=called)
def test_a_wrong_constant_is_refuted_by_answers(monkeypatch, wrong, name):
    wrong(monkeypatch)
    assert audit_answers(name, 2400).refuted


@pytest.mark.parametrize("name", [name for name in CHOSEN if CASES[name].law > 0.9])
@pytest.mark.parametrize("wrong", [sharp_choice, unbounded])
def test_a_wrong_constant_is_refuted_by_the_law_of_a_choice(monkeypatch, wrong, name):
    wrong(monkeypatch)
    assert audit_choice(name).refuted


@pytest.mark.parametrize("wrong", [weak_search, unbounded])
def test_a_wrong_constant_is_refuted_by_the_law_of_an_interval(monkeypatch, wrong):
    wrong(monkeypatch)
    assert audit_search("median with an interval").refuted


@pytest.mark.parametrize("name", LOCAL)
def test_frank_reports_are_refuted(monkeypatch, name):
    weak_noise(monkeypatch)
    frank(monkeypatch)
    assert audit_reports(name).refuted


# --- the whole way --------------------------------------------------------------------------------


def audit_asking(make, query, samples=FEW):
    """From ``protect`` to answers, past the ledger: as many in one request as there are draws."""
    tables = []
    for rows in (SOME, SOME + MUCH):
        listed = [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]
        options = {"unit": "person", "max_rows_per_unit": 3, "max_groups_per_unit": 2}
        tables.append(make(pa.Table.from_pylist(listed, SCHEMA), **options))

    def draw(table, count):
        return [shown(answer.cells) for answer in tables[table].ask(*[query] * count)]

    claim = Guarantee(query.epsilon, 0.0, tables[0].facts.neighbours, "person")
    return audit_mechanism(draw, [(0, 1)], claim=claim, samples=samples)


def test_the_whole_way_from_the_table_to_the_answer(protected):
    found = audit_asking(protected, Count(**PRICE))
    assert not found.refuted
    assert found.epsilon > 0.3


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [unbounded, little_sensitivity, weak_noise])
def test_the_whole_way_with_a_wrong_constant(protected, monkeypatch, wrong):
    wrong(monkeypatch)
    assert audit_asking(protected, Count(**PRICE), 800).refuted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["count", "histogram"])
def test_the_whole_way_at_length(protected, name):
    found = audit_asking(protected, CASES[name].query, 800)
    assert not found.refuted
    assert found.epsilon >= 0.6 * found.claim.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERED)
def test_answers_at_length(name):
    found = audit_answers(name, 20_000)
    assert not found.refuted
    assert found.epsilon >= CASES[name].answers * found.claim.epsilon


@pytest.mark.slow
@pytest.mark.parametrize("name", TABULATED)
def test_noise_a_tenth_too_small_is_refuted_at_length(monkeypatch, name):
    weak_noise(monkeypatch, 0.9)
    assert audit_parts(name, 400_000).refuted
