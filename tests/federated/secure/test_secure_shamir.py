"""Any threshold of shares gives the secret; fewer are uniform, whatever it is."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as some

from sfumato.core.randomness import SeededCoins
from sfumato.federated.secure.shamir import (
    PRIME,
    SHARE_BYTES,
    Share,
    evaluate,
    join,
    split,
    weights_at_zero,
)


@given(
    secret=some.binary(min_size=32, max_size=32),
    shape=some.integers(2, 9).flatmap(lambda n: some.tuples(some.integers(2, n), some.just(n))),
    seed=some.integers(0, 2**32),
    data=some.data(),
)
def test_any_threshold_of_shares_gives_the_secret(secret, shape, seed, data):
    threshold, count = shape
    shares = split(secret, threshold=threshold, count=count, coins=SeededCoins(seed))
    order = data.draw(some.permutations(shares))
    assert join(order[:threshold], threshold=threshold) == secret
    assert join(order, threshold=threshold) == secret


@pytest.mark.parametrize("secret", [0, 3, 6])
@pytest.mark.parametrize("threshold", [2, 3])
def test_fewer_shares_are_exactly_uniform(secret, threshold):
    """All polynomials over a field of seven: each tuple of t - 1 shares comes equally often."""
    prime, count = 7, 4
    for holders in itertools.combinations(range(1, count + 1), threshold - 1):
        seen = Counter(
            tuple(evaluate([secret, *others], i, prime) for i in holders)
            for others in itertools.product(range(prime), repeat=threshold - 1)
        )
        assert len(seen) == prime ** (threshold - 1)
        assert set(seen.values()) == {1}


@pytest.mark.parametrize("threshold", [2, 3, 4])
def test_as_many_shares_as_the_threshold_are_not(threshold):
    prime = 7
    for others in itertools.product(range(prime), repeat=threshold - 1):
        for holders in itertools.combinations(range(1, 6), threshold):
            weights = weights_at_zero(holders, prime)
            values = [evaluate([4, *others], i, prime) for i in holders]
            assert sum(w * v for w, v in zip(weights, values, strict=True)) % prime == 4


@given(seed=some.integers(0, 2**32), guess=some.binary(min_size=32, max_size=32))
def test_fewer_shares_fit_every_secret(seed, guess):
    """With t - 1 shares there is a polynomial to any guess; a t-th share alone tells them apart."""
    shares = split(b"s" * 32, threshold=3, count=5, coins=SeededCoins(seed))
    # Lagrange through (0, guess), (1, y1), (2, y2), at 3: sum of w_i y_i at 0 solved for y3.
    weights = weights_at_zero([1, 2, 3], PRIME)
    rest = int.from_bytes(guess, "big") - sum(
        w * s.value for w, s in zip(weights, shares[:2], strict=False)
    )
    third = Share(3, rest * pow(weights[2], -1, PRIME) % PRIME)
    assert join([*shares[:2], third], threshold=3) == guess
    assert (third == shares[2]) == (guess == b"s" * 32)


def test_coefficients_come_from_the_whole_field():
    values = [
        share.value
        for seed in range(100)
        for share in split(bytes(32), threshold=2, count=2, coins=SeededCoins(seed))[:1]
    ]
    assert len(set(values)) == 100
    assert max(value.bit_length() for value in values) == 521
    assert 0.4 < sum(value / PRIME for value in values) / 100 < 0.6


def test_shares_as_bytes():
    share = Share(4, PRIME - 1)
    assert len(share.to_bytes()) == SHARE_BYTES
    assert Share.from_bytes(4, share.to_bytes()) == share
    with pytest.raises(ValueError, match="66 bytes"):
        Share.from_bytes(4, b"short")
    with pytest.raises(ValueError, match="prime"):
        Share.from_bytes(4, b"\xff" * SHARE_BYTES)
    with pytest.raises(ValueError, match="prime"):
        Share(1, PRIME)
    with pytest.raises(ValueError, match="index"):
        Share(0, 1)


def test_refusals():
    for changed, match in [
        ({"threshold": 1}, "threshold"),
        ({"threshold": 6}, "count"),
        ({"count": 10**6}, "at most"),
        ({"secret": b"short"}, "32 bytes"),
    ]:
        with pytest.raises(ValueError, match=match):
            split(**{"secret": bytes(32), "threshold": 3, "count": 5, **changed})
    shares = split(bytes(32), threshold=3, count=5)
    with pytest.raises(ValueError, match="at least 3"):
        join(shares[:2], threshold=3)
    with pytest.raises(ValueError, match="different indices"):
        join([shares[0], shares[0], shares[1]], threshold=3)
    with pytest.raises(ValueError, match="belong together"):
        join([shares[0], shares[1], Share(3, 12345)], threshold=3)
    assert "value" not in repr(shares[0])
