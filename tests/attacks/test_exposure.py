"""Exposure: ranks by their law, a planted secret found, one that was never there left alone."""

import itertools
import json
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.attacks.exposure import (
    Secrets,
    exact_exposure,
    expected_exposure,
    extrapolated_exposure,
    sampled_exposure,
)

PIN = Secrets("my pin is ###.", "0123456789")


def all_of(secrets, **how):
    return list(itertools.chain.from_iterable(secrets.everything(**how)))


class LetterModel:
    """Letters by the four before them, backing off to fewer; counts smoothed."""

    def __init__(self, lines, order=5):
        self.order, self.counts = order, defaultdict(Counter)
        for line in lines:
            text = "~" * order + line
            for place in range(order, len(text)):
                for back in range(order):
                    self.counts[text[place - back : place]][text[place]] += 1
        self.letters = len(set("".join(lines))) + 1

    def chance(self, before, letter):
        found = 1 / self.letters
        for back in range(self.order):
            seen = self.counts.get(before[len(before) - back :])
            if seen is not None:
                found = (seen[letter] + 2 * found) / (seen.total() + 2)
        return found

    def __call__(self, sequences):
        return [
            -sum(
                math.log2(self.chance(("~" * self.order + text)[: self.order + place], letter))
                for place, letter in enumerate(text)
            )
            for text in sequences
        ]


def corpus(random, planted=None, times=0):
    """Lines with many numbers of all kinds, and a secret so many times."""
    words = ["my", "pin", "is", "on", "page", "line", "no", "bus"]
    lines = [" ".join(random.choice(words, 3)) + f" {random.integers(1000)}." for _ in range(1500)]
    return lines + [planted] * times


def test_a_planted_secret_is_exposed_and_the_more_the_oftener():
    random = np.random.default_rng(1)
    planted, never = PIN.draw(2, random)
    bits = []
    for times in (0, 2, 8, 60):
        model = LetterModel(corpus(np.random.default_rng(2), planted, times))
        one, other = exact_exposure(model, [planted, never], PIN)
        bits.append(one.bits)
        assert other.bits < 8
    assert bits == sorted(bits)
    assert bits[0] < 6
    assert bits[-1] == math.log2(1000)
    assert one.rank == 1
    assert one.chance == pytest.approx(1e-3)


def test_secrets_never_planted_have_the_mean_exposure_that_theory_says():
    """300 secrets of a real model; the exposure's standard deviation is 1 / ln 2, too."""
    random = np.random.default_rng(3)
    model = LetterModel(corpus(random))
    found = exact_exposure(model, PIN.draw(300, random), PIN)
    bits = np.array([one.bits for one in found])
    assert bits.mean() == pytest.approx(1 / math.log(2), abs=4 / math.log(2) / math.sqrt(300))
    for b in (1, 2, 3):
        share = 2.0**-b
        assert (bits >= b).mean() == pytest.approx(
            share, abs=4 * math.sqrt(share * (1 - share) / 300)
        )


@given(seed=st.integers(0, 2**32 - 1), blanks=st.integers(1, 3), letters=st.integers(2, 6))
def test_over_the_whole_space_the_mean_exposure_is_exact(seed, blanks, letters):
    secrets = Secrets("#" * blanks, "abcdef"[:letters])
    random = np.random.default_rng(seed)
    told = dict(zip(all_of(secrets), random.random(secrets.size), strict=True))
    found = exact_exposure(lambda texts: [told[text] for text in texts], list(told), secrets)
    mean = np.mean([one.bits for one in found])
    assert mean == pytest.approx(expected_exposure(secrets.size))
    assert sorted(one.rank for one in found) == list(range(1, secrets.size + 1))


def test_the_expected_exposure():
    assert expected_exposure(1) == pytest.approx(0, abs=1e-12)
    assert expected_exposure(4) == pytest.approx(2 - math.log2(24) / 4)
    assert expected_exposure(10**9) == pytest.approx(math.log2(math.e), abs=1e-6)


def test_a_model_that_finds_all_alike_exposes_nothing():
    (found,) = exact_exposure(lambda texts: np.ones(len(texts)), ["my pin is 000."], PIN)
    assert found.rank == 500.5
    assert found.bits == pytest.approx(1, abs=2e-3)
    (guess,) = sampled_exposure(
        lambda texts: np.ones(len(texts)),
        ["my pin is 000."],
        PIN,
        generator=np.random.default_rng(4),
    )
    assert guess.bits == pytest.approx(1, abs=1e-3)
    assert guess.interval[0] == 0


def by_digits(costs):
    """Each digit of a secret costs something; a secret costs the sum."""
    table = np.asarray(costs)

    def surprise(texts):
        return [sum(table[i, int(c)] for i, c in enumerate(text)) for text in texts]

    return surprise


def test_sampled_limits_cover_the_exact_exposure():
    random = np.random.default_rng(5)
    secrets = Secrets("####", "0123456789")
    surprise = by_digits(random.normal(size=(4, 10)))
    canaries = secrets.draw(400, random)
    exact = exact_exposure(surprise, canaries, secrets)
    covered, errors = [], []
    for canary, truth in zip(canaries, exact, strict=True):
        (found,) = sampled_exposure(
            surprise, [canary], secrets, samples=200, confidence=0.9, generator=random
        )
        covered.append(found.interval[0] <= truth.bits <= found.interval[1])
        errors.append(2**-found.bits - 2**-truth.bits)
    assert 0.9 - 0.03 <= np.mean(covered) <= 0.97
    # The share (k + 1) / (n + 1) has the mean (n q + 1) / (n + 1), where q = (rank - 1) / size.
    shares = np.array([2**-truth.bits for truth in exact])
    expected = ((200 * (shares - 1e-4) + 1) / 201 - shares).mean()
    assert np.mean(errors) == pytest.approx(expected, abs=4 * 0.029 / 20)


def test_no_sample_shows_more_than_its_size_allows():
    secrets = Secrets("######", "0123456789")

    def by_heart(texts):
        return [0.0 if text == "123456" else 5.0 + int(text) / 1e6 for text in texts]

    (found,) = sampled_exposure(
        by_heart, ["123456"], secrets, samples=1000, generator=np.random.default_rng(6)
    )
    assert found.bits == pytest.approx(math.log2(1001))
    assert found.interval[1] == pytest.approx(math.log2(10**6))
    # None of 1000 is below: the share is below 1 - 0.025^(1/1000) with this confidence.
    assert found.interval[0] == pytest.approx(-math.log2(1 - 0.025 ** (1 / 1000) + 1e-6))
    (small,) = sampled_exposure(
        by_digits([[0, 1]]), ["0"], Secrets("#", "01"), generator=np.random.default_rng(7)
    )
    assert small.bits <= 1


def test_extrapolation_agrees_with_the_exact_rank_of_a_skew_normal_law():
    """A hundred thousand costs of that law: exposures up to 11.7 bits from a sample of 4000."""
    random = np.random.default_rng(8)
    secrets = Secrets("#####", "0123456789")
    half, whole = random.normal(size=(2, secrets.size))
    costs = 50 + 3 * (0.9 * np.abs(half) + math.sqrt(1 - 0.81) * whole)
    canaries = [f"{np.argsort(costs)[rank - 1]:05d}" for rank in (30, 300, 3000, 30_000)]

    def surprise(texts):
        return costs[[int(text) for text in texts]]

    exact = exact_exposure(surprise, canaries, secrets)
    assert [one.rank for one in exact] == [30, 300, 3000, 30_000]
    found = extrapolated_exposure(surprise, canaries, secrets, samples=4000, generator=random)
    for one, truth in zip(found, exact, strict=True):
        assert one.bits == pytest.approx(truth.bits, rel=0.05, abs=0.1)
    assert found[0].law.p_value > 1e-3


def test_extrapolation_sees_a_secret_that_no_sample_reaches():
    random = np.random.default_rng(9)
    secrets = Secrets("#" * 9, "0123456789")
    costs = random.gamma(2.0, size=(9, 10))

    def surprise(texts):
        plain = by_digits(costs)(texts)
        return [
            cost - 25 if text == "314159265" else cost
            for text, cost in zip(texts, plain, strict=True)
        ]

    planted, never = "314159265", "271828182"
    one, other = extrapolated_exposure(
        surprise, [planted, never], secrets, samples=3000, generator=random
    )
    assert one.bits == pytest.approx(math.log2(10**9))
    assert other.bits < 10
    assert one.rank == 1


def test_formats_of_text_and_of_tokens():
    few = Secrets("a#b#", "xy")
    assert all_of(few, batch=3) == ["axbx", "axby", "aybx", "ayby"]
    assert [few.place(text) for text in ("axbx", "axby", "aybx", "ayby")] == [0, 1, 2, 3]
    tokens = Secrets((7, -1, -1), (10, 20, 30), blank=-1)
    assert tokens.size == 9
    every = all_of(tokens)
    assert every[5] == (7, 20, 30)
    assert [tokens.place(each) for each in every] == list(range(9))
    drawn = Counter(tokens.draw(9000, np.random.default_rng(10)))
    assert len(drawn) == 9
    assert all(abs(count - 1000) < 5 * math.sqrt(1000) for count in drawn.values())


def test_spaces_beyond_floating_point():
    huge = Secrets("#" * 400, "0123456789")
    canary = "7" * 400
    random = np.random.default_rng(11)

    def surprise(texts):
        return [0.0 if text == canary else 400 + random.normal() for text in texts]

    (sampled,) = sampled_exposure(surprise, [canary], huge, samples=100, generator=random)
    assert sampled.interval[1] == pytest.approx(400 * math.log2(10))
    (beyond,) = extrapolated_exposure(surprise, [canary], huge, samples=100, generator=random)
    assert beyond.bits == pytest.approx(400 * math.log2(10))
    assert "of inf" in str(beyond)


def test_results_are_for_the_curator():
    random = np.random.default_rng(12)
    model = by_digits(random.random((2, 10)))
    two = Secrets("##", "0123456789")
    (sampled,) = sampled_exposure(model, ["42"], two, samples=50, generator=random)
    data = json.loads(json.dumps(sampled.to_dict()))
    assert (data["channel"], data["method"], data["samples"]) == ("curator", "sampled", 50)
    assert data["lower"] <= data["bits"] <= data["upper"]
    assert "95%" in str(sampled)
    (far,) = extrapolated_exposure(model, ["42"], two, samples=50, generator=random)
    assert json.loads(json.dumps(far.to_dict()))["law"]["scale"] == far.law.scale
    assert "fit: p" in str(far)


def test_bad_parameters_are_refused():
    def ones(texts):
        return np.ones(len(texts))

    with pytest.raises(ValueError, match="canaries must be of the format"):
        exact_exposure(ones, ["my pin is 1a4."], PIN)
    with pytest.raises(ValueError, match="canaries must be of the format"):
        exact_exposure(ones, ["my pin is 12."], PIN)
    with pytest.raises(ValueError, match="use sampled_exposure"):
        exact_exposure(ones, ["my pin is 123."], PIN, largest=100)
    with pytest.raises(ValueError, match="what surprise returns"):
        exact_exposure(lambda texts: [1.0], ["my pin is 123."], PIN)
    with pytest.raises(ValueError, match="what surprise returns"):
        exact_exposure(lambda texts: ones(texts) * np.nan, ["my pin is 123."], PIN)
    with pytest.raises(ValueError, match="number of blanks"):
        Secrets("none", "01")
    with pytest.raises(ValueError, match="size of the alphabet"):
        Secrets("#", "0")
    with pytest.raises(ValueError, match="alphabet must be different"):
        Secrets("#", "010")
