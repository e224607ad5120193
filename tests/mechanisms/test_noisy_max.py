"""Report noisy max: laws, draws, and its three kinds of noise."""

from collections import Counter

import numpy as np
import pytest
from scipy import integrate, stats

from sfumato.core import SeededCoins, Sensitivity
from sfumato.core.events import EpsilonDeltaEvent, ExponentialEvent
from sfumato.mechanisms.exponential import Exponential
from sfumato.mechanisms.noisy_max import Noise, ReportNoisyMax
from sfumato.mechanisms.permute_and_flip import PermuteAndFlip

VOTE = Sensitivity(1.0, unit="person")
LAWS = {Noise.EXPONENTIAL: stats.expon, Noise.LAPLACE: stats.laplace, Noise.GUMBEL: stats.gumbel_r}
every_noise = pytest.mark.parametrize("noise", list(Noise))


def winning_probabilities(noise: Noise, scores: list[float], scale: float) -> list[float]:
    """The integral of one density and all other distribution functions, by another's quadrature."""
    law = LAWS[noise](scale=scale)

    def integrand(x: float, i: int) -> float:
        below = [law.cdf(x - score) for j, score in enumerate(scores) if j != i]
        return float(law.pdf(x - scores[i]) * np.prod(below))

    limits, kinks = (min(scores) - 60 * scale, max(scores) + 60 * scale), sorted(set(scores))
    return [
        integrate.quad(integrand, *limits, args=(i,), points=kinks, limit=400)[0]
        for i in range(len(scores))
    ]


@every_noise
@pytest.mark.parametrize("monotone", [False, True])
def test_probabilities_are_those_of_noise_of_the_stated_scale(noise, monotone) -> None:
    scores = [4.0, 3.0, 3.0, -2.0]
    scale = 1.5 / 0.8 if monotone else 2 * 1.5 / 0.8
    law = ReportNoisyMax(0.8, Sensitivity(1.5), noise, monotone=monotone).probabilities(scores)
    assert np.allclose(law, winning_probabilities(noise, scores, scale), rtol=1e-5)
    wrong = winning_probabilities(noise, scores, 1.1 * scale)
    assert not np.allclose(law, wrong, rtol=1e-2)


@every_noise
def test_draws_follow_the_probabilities(noise) -> None:
    mechanism = ReportNoisyMax(2.0, VOTE, noise)
    scores, coins, draws = [4.0, 3.0, 1.0], SeededCoins(4), 6000
    seen = Counter(mechanism.release(scores, coins=coins).value for _ in range(draws))
    counts = [seen[i] for i in range(3)]
    assert stats.chisquare(counts, draws * mechanism.probabilities(scores)).pvalue > 0.01
    for wrong in (1.8, 2.2):
        law = ReportNoisyMax(wrong, VOTE, noise).probabilities(scores)
        assert stats.chisquare(counts, draws * law).pvalue < 1e-3


def test_gumbel_is_the_exponential_mechanism_and_exponential_is_permute_and_flip() -> None:
    scores = np.random.default_rng(6).normal(size=12).tolist()
    for noise, same in ((Noise.GUMBEL, Exponential), (Noise.EXPONENTIAL, PermuteAndFlip)):
        ours = ReportNoisyMax(1.3, VOTE, noise).probabilities(scores)
        assert np.array_equal(ours, same(1.3, VOTE).probabilities(scores))


def test_events() -> None:
    where = (VOTE.neighbours, VOTE.unit)
    assert ReportNoisyMax(1.0, VOTE, "gumbel").event == ExponentialEvent(1.0, *where)
    for noise in ("laplace", "exponential"):
        assert ReportNoisyMax(1.0, VOTE, noise).event == EpsilonDeltaEvent(1.0, 0.0, *where)
    assert ReportNoisyMax(1.0, VOTE).noise is Noise.EXPONENTIAL


@pytest.mark.parametrize("noise", ["gaussian", "", None, 1])
def test_bad_noise(noise) -> None:
    with pytest.raises(ValueError, match="noise must be 'exponential', 'laplace' or 'gumbel'"):
        ReportNoisyMax(1.0, VOTE, noise)


def test_exponential_noise_has_the_least_error() -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        scores = rng.normal(scale=3, size=6).tolist()
        error = {noise: ReportNoisyMax(1.0, VOTE, noise).expected_error(scores) for noise in Noise}
        assert error[Noise.EXPONENTIAL] <= min(error[Noise.LAPLACE], error[Noise.GUMBEL])
