"""The sparse vector technique: its exact law, and published versions that the same check catches.

The law of a session's answers is a sum over the threshold's noise of products of tails; here it is
added up in floating point for given levels, scales and answers, and compared on neighbours.
"""

import json
import math
import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from sfumato.core import SYSTEM, Neighbours, Norm, SeededCoins, Sensitivity
from sfumato.core.events import EpsilonDeltaEvent, event_from_dict
from sfumato.mechanisms.sparse_vector import SparseVector

COUNT = Sensitivity(1.0)
Answers = tuple[bool, ...]


def at_least(m: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Pr[K >= m] for discrete Laplace K: p^m / (1 + p) for m >= 1, by symmetry below."""
    if scale == 0:
        return (m <= 0).astype(float)
    log_p, norm = -1 / scale, math.log1p(math.exp(-1 / scale))
    beyond = np.exp(log_p * np.abs(np.where(m >= 1, m, 1 - m)) - norm)
    return np.where(m >= 1, beyond, 1 - beyond)


def mass(k: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    """Pr[K = k]."""
    return np.exp(-np.abs(k) / scale) * math.tanh(1 / (2 * scale))


@dataclass(frozen=True)
class Scheme:
    """A sparse vector technique, right or wrong, in whole levels (``steps`` to a sensitivity)."""

    steps: int
    threshold_scale: float
    query_scale: float
    positives: float  # how many before it stops
    gives_value: bool = False  # whether a positive answer gives the noisy value itself

    @classmethod
    def of(cls, mechanism: SparseVector, steps: int = 0) -> "Scheme":
        """The mechanism's own, or its noise on a grid of so many steps (which the proof allows)."""
        steps = steps or mechanism.steps
        scales = np.array([mechanism.threshold_scale, mechanism.query_scale])
        return cls(steps, *(scales * steps / mechanism.steps).tolist(), mechanism.positives)

    def probability(self, levels: Sequence[int], answers: Answers) -> float:
        """Of these answers on values so many levels above the threshold.

        If a positive answer gives the value, the probability that the value is at the threshold.
        """
        reach = math.ceil(60 * self.threshold_scale)
        rho = np.arange(-reach, reach + 1)
        total = mass(rho, self.threshold_scale)
        for (level, above), times in Counter(zip(levels, answers, strict=True)).items():
            if above and self.gives_value:
                total = total * ((rho <= 0) * mass(np.array(-level), self.query_scale)) ** times
            else:
                tail = at_least(rho - level, self.query_scale)
                total = total * (tail if above else 1 - tail) ** times
        return float(total.sum())

    def loss(self, one: Sequence[float], other: Sequence[float], answers: Answers) -> float:
        """The log ratio of the answers' probabilities on values in units of the sensitivity."""
        both = [
            self.probability([round(self.steps * value) for value in values], answers)
            for values in (one, other)
        ]
        return math.inf if both[1] == 0 < both[0] else math.log(both[0] / both[1])

    def outcomes(self, length: int) -> set[Answers]:
        """All that a session on ``length`` values may answer."""
        cut = (self.cut(answers) for answers in product([False, True], repeat=length))
        return set(cut)

    def cut(self, answers: Answers) -> Answers:
        for end in range(len(answers)):
            if sum(answers[:end]) >= self.positives:
                return answers[:end]
        return answers


def hardest(scheme: Scheme, negatives: int, positives: int, monotone: bool = False) -> float:
    """The loss on below..below, above..above where every value moves against its answer."""
    # Six steps from the threshold the tails are all but exponential: there they lose most.
    rise = 0.0 if monotone else 1.0  # if all values move the same way, only the negatives do
    one = [6.0] * negatives + [rise - 6.0] * positives
    other = [7.0] * negatives + [-6.0] * positives
    return scheme.loss(one, other, (False,) * negatives + (True,) * positives)


CASES = [(1.0, 1, False), (1.0, 1, True), (0.4, 3, False), (3.0, 2, True), (2.0, 5, False)]
every_case = pytest.mark.parametrize(("epsilon", "positives", "monotone"), CASES)


@every_case
def test_hardest_neighbours_reach_epsilon_and_no_more(epsilon, positives, monotone) -> None:
    """A scale wrong by 10% either way fails."""
    mechanism = SparseVector(epsilon, COUNT, 0.0, positives, monotone)
    losses = [hardest(Scheme.of(mechanism), n, positives, monotone) for n in (1, 10, 100)]
    assert 0.99 * epsilon <= max(losses) <= epsilon * (1 + 1e-9)


@every_case
def test_no_answers_lose_more_than_epsilon(epsilon, positives, monotone) -> None:
    scheme = Scheme.of(SparseVector(epsilon, COUNT, 0.0, positives, monotone), steps=64)
    rng = np.random.default_rng(7)
    for _ in range(6):
        one = rng.integers(-128, 128, size=4) / 64  # whole levels
        other = one + rng.choice([0.0, 1.0] if monotone else [-1.0, 1.0], size=4)
        total = 0.0
        for answers in scheme.outcomes(4):
            length = len(answers)
            loss = scheme.loss(one[:length], other[:length], answers)
            assert abs(loss) <= epsilon * (1 + 1e-9)
            levels = [round(scheme.steps * value) for value in one[:length]]
            total += scheme.probability(levels, answers)
        assert total == pytest.approx(1, rel=1e-9)  # the law is complete


def lyu_figure_1(number: int, epsilon: float, c: int) -> Scheme:
    """The wrong ones of Lyu, Su and Li's figure 1, as described there; steps as ours."""
    steps = 2048
    first = epsilon / 4 if number == 4 else epsilon / 2
    second = epsilon - first
    return {
        3: Scheme(steps, steps / first, c * steps / second, c, gives_value=True),
        4: Scheme(steps, steps / first, steps / second, c),
        5: Scheme(steps, steps / first, 0.0, math.inf),
        6: Scheme(steps, steps / first, steps / second, math.inf),
    }[number]


def test_specimen_3_gives_the_noisy_value_away() -> None:
    scheme = lyu_figure_1(3, epsilon=1.0, c=1)
    negatives = 20
    one, other = [0.0] * negatives + [1.0], [1.0] * negatives + [0.0]
    loss = scheme.loss(one, other, (False,) * negatives + (True,))
    assert loss == pytest.approx((negatives - 1) / 2)  # and so without bound


def test_specimen_4_does_not_scale_noise_by_the_positives() -> None:
    scheme = lyu_figure_1(4, epsilon=1.0, c=10)
    assert hardest(scheme, negatives=30, positives=10) == pytest.approx((1 + 6 * 10) / 4)


def test_specimen_5_has_no_noise_on_the_answers() -> None:
    scheme = lyu_figure_1(5, epsilon=1.0, c=1)
    assert scheme.loss([0, 1], [1, 0], (False, True)) == math.inf


def test_specimen_6_never_stops() -> None:
    scheme = lyu_figure_1(6, epsilon=1.0, c=1)
    losses = [hardest(scheme, n, positives=n) for n in (1, 10, 30)]
    assert losses[1] > 3
    assert losses[2] > losses[1]


@pytest.mark.parametrize(
    "broken", [{"query_scale": 0.9}, {"threshold_scale": 0.5}, {"positives": 4.0}]
)
def test_ours_with_a_constant_broken_is_caught(broken) -> None:
    good = Scheme.of(SparseVector(1.0, COUNT, 0.0, 2))
    changed = {name: getattr(good, name) * factor for name, factor in broken.items()}
    scheme = Scheme(**(good.__dict__ | changed))
    assert hardest(scheme, 300, int(scheme.positives)) > 1.0


@every_case
def test_sessions_follow_the_law(epsilon, positives, monotone) -> None:
    mechanism = SparseVector(epsilon, COUNT, 100.0, positives, monotone)
    scheme, coins, rounds = Scheme.of(mechanism), SeededCoins(13), 2500
    spread = mechanism.query_scale / mechanism.steps
    values = [100 - spread, 100.0, 100 + spread]
    seen = Counter(tuple(mechanism.release(values, coins=coins).value) for _ in range(rounds))
    levels = [mechanism.level(value) for value in values]
    laws = {a: scheme.probability(levels[: len(a)], a) for a in scheme.outcomes(3)}
    outcomes = sorted(laws)
    expected = [rounds * laws[answers] for answers in outcomes]
    assert set(seen) <= set(outcomes)
    assert stats.chisquare([seen[answers] for answers in outcomes], expected).pvalue > 0.01


@every_case
def test_sessions_draw_the_stated_noise(epsilon, positives, monotone, monkeypatch) -> None:
    """Once for the threshold, afresh for each answer; a tie counts as above."""
    drawn: list[float] = []

    def no_noise(scale: float, size: int, coins: object) -> NDArray[np.int64]:
        drawn.append(scale)
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr("sfumato.mechanisms.sparse_vector.discrete_laplace", no_noise)
    mechanism = SparseVector(epsilon, COUNT, 100.0, positives, monotone)
    assert mechanism.release([99, 99.99, 100]).value == [False, False, True]
    assert drawn == [mechanism.threshold_scale] + 3 * [mechanism.query_scale]


@every_case
def test_budget_and_scales(epsilon, positives, monotone) -> None:
    mechanism = SparseVector(epsilon, COUNT, 0.0, positives, monotone)
    first, second = mechanism.split
    assert first + second == epsilon  # exactly, in rationals
    factor = positives if monotone else 2 * positives
    assert float(second / first) == pytest.approx(factor ** (2 / 3))
    assert mechanism.threshold_scale * first >= mechanism.steps
    assert mechanism.query_scale * second >= factor * mechanism.steps
    assert mechanism.threshold_scale == pytest.approx(mechanism.steps / float(first))
    assert mechanism.query_scale == pytest.approx(factor * mechanism.steps / float(second))
    # Rounding to the grid is far below the noise.
    assert min(mechanism.threshold_scale, mechanism.query_scale) > 500


@pytest.mark.parametrize("bound", [1.0, 0.1, 7.3])
def test_one_step_moves_a_level_by_at_most_the_steps(bound) -> None:
    mechanism = SparseVector(1.0, Sensitivity(bound), threshold=0.3)
    rng = np.random.default_rng(3)
    for value in rng.normal(scale=10 * bound, size=200).tolist():
        moved = value + bound
        if moved - value <= bound:
            assert mechanism.level(moved) - mechanism.level(value) <= mechanism.steps
    assert SparseVector(1.0, Sensitivity(bound), bound).level(2 * bound) == mechanism.steps
    assert SparseVector(1.0, Sensitivity(bound), bound).level(bound) == 0


def test_a_session() -> None:
    mechanism = SparseVector(5.0, COUNT, threshold=1000, positives=2)
    session = mechanism.start()
    assert session.private
    assert not any(session.ask(value) for value in (0, 10, 20))
    assert session.ask(2000)
    assert not session.exhausted
    assert session.ask(2000)
    assert session.exhausted
    assert repr(session) == "SparseVectorSession(positives_left=0)"
    with pytest.raises(RuntimeError, match="given its 2 positive answers"):
        session.ask(0)
    with pytest.raises(TypeError, match="secret noise"):
        pickle.dumps(session)
    assert mechanism.release([0, 2000, 0, 2000, 0, 0]).value == [False, True, False, True]
    assert mechanism.release([0, 0]).value == [False, False]


def test_no_data_raises_an_error() -> None:
    mechanism = SparseVector(50.0, COUNT, threshold=0, positives=100, default=-100)
    for odd in (math.nan, math.inf, -math.inf, None, "9", [], 1j):
        assert mechanism.release([odd, 100]).value == [False, True]
    values = [1.7e308, -1.7e308, 10**400, -(10**400), 5e-324]
    assert mechanism.release(values).value[:4] == [True, False, True, False]


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None])
def test_bad_epsilon(epsilon) -> None:
    with pytest.raises(ValueError, match="epsilon must be"):
        SparseVector(epsilon, COUNT, 0.0)


def test_other_bad_parameters() -> None:
    for sensitivity in (1.0, Sensitivity(0.0), Sensitivity(1.0, Norm.L2, dimension=2)):
        with pytest.raises(ValueError, match="sensitivity must be"):
            SparseVector(1.0, sensitivity, 0.0)
    for threshold in (math.nan, math.inf, "0", None):
        with pytest.raises(ValueError, match="threshold must be"):
            SparseVector(1.0, COUNT, threshold)
    for positives in (0, -1, 1.5, "1"):
        with pytest.raises(ValueError, match="positives must be"):
            SparseVector(1.0, COUNT, 0.0, positives)
    with pytest.raises(ValueError, match="monotone must be False under replace-one"):
        SparseVector(1.0, Sensitivity(1.0, neighbours="replace-one"), 0.0, monotone=True)
    with pytest.raises(ValueError, match="default must be"):
        SparseVector(1.0, COUNT, 0.0, default=math.inf)
    with pytest.raises(ValueError, match="epsilon must be larger for 1000000 positives"):
        SparseVector(1e-6, COUNT, 0.0, positives=1_000_000)


def test_event_guarantee_and_stamp() -> None:
    sensitivity = Sensitivity(1.0, neighbours=Neighbours.REPLACE_ONE, unit="person")
    mechanism = SparseVector(0.5, sensitivity, 10.0, positives=3)
    event = mechanism.event
    assert event == EpsilonDeltaEvent(0.5, 0.0, Neighbours.REPLACE_ONE, "person")
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert str(mechanism.guarantee(1e-6)) == "epsilon 0.5, delta 0, replace one person"
    tested = mechanism.release([1, 2, 3], coins=SeededCoins(1))
    assert not tested.private
    assert not mechanism.start(SeededCoins(1)).private
    assert "NOT PRIVATE" in tested.to_dict()["warning"]
    assert tested.value == mechanism.release([1, 2, 3], coins=SeededCoins(1)).value
    assert mechanism.release([1, 2, 3], coins=SYSTEM).private
