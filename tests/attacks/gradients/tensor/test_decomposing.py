import numpy as np
import pytest

from sfumato.attacks.gradients.tensor.decomposing import decompose, jennrich, power_coefficients
from sfumato.attacks.gradients.tensor.network import unit_inputs


def cubes(directions, coefficients):
    return np.einsum("i,ia,ib,ic->abc", coefficients, directions, directions, directions)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_exact_tensors_are_taken_apart_exactly(size):
    """Coefficients of both signs, directions far from orthogonal."""
    random = np.random.default_rng(size)
    directions = unit_inputs(size, size, generator=random)
    coefficients = random.choice([-1.0, 1.0], size) * random.uniform(0.5, 2, size)
    found = decompose(cubes(directions, coefficients), generator=random)
    likeness = np.abs(found.directions @ directions.T)
    order = likeness.argmax(axis=0)
    assert sorted(order) == list(range(size))
    assert likeness[order, np.arange(size)].min() > 1 - 1e-9
    np.testing.assert_allclose(np.abs(found.coefficients[order]), np.abs(coefficients), rtol=1e-5)
    assert found.misfit < 1e-6


def test_one_pair_of_contractions_is_enough():
    random = np.random.default_rng(0)
    directions = unit_inputs(4, 4, generator=random)
    found = jennrich(cubes(directions, [1.0, -2.0, 3.0, -1.0]), generator=random)
    np.testing.assert_allclose(np.abs(found @ directions.T).max(axis=0), 1, atol=1e-9)


def test_noise_is_answered_in_proportion():
    """Noise of 1 % on a tensor's numbers moves directions by about as much; refining helps."""
    random = np.random.default_rng(1)
    directions = np.linalg.qr(random.normal(size=(5, 5)))[0]
    noisy = cubes(directions, np.ones(5)) + 0.01 * random.normal(size=(5, 5, 5))
    rough, fine = (
        decompose(noisy, generator=np.random.default_rng(2), trials=1, sweeps=sweeps)
        for sweeps in (0, 200)
    )
    assert np.abs(fine.directions @ directions.T).max(axis=0).min() > 1 - 1e-3
    assert fine.misfit < 0.05
    assert fine.misfit < 0.9 * rough.misfit


def test_complex_pairs_do_not_stop_it():
    """A tensor of noise has no such terms; what comes out is finite and independent still."""
    random = np.random.default_rng(0)
    noise = random.normal(size=(6, 6, 6))
    found = decompose(noise, generator=random, trials=3)
    assert np.isfinite(found.directions).all()
    assert 0 < found.misfit < 1
    assert np.linalg.norm(found.directions, axis=1) == pytest.approx(1)
    turns = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    even = np.sum([noise.transpose(turn) for turn in turns], axis=0)
    for _ in range(10):
        assert np.linalg.matrix_rank(jennrich(even, generator=random)) == 6


@pytest.mark.parametrize("order", [1, 2, 3])
def test_coefficients_of_any_order(order):
    directions = unit_inputs(3, 3, generator=np.random.default_rng(order))
    wanted = np.array([1.0, -2.0, 0.5])
    letters = "abc"[:order]
    terms = ",".join("i" + one for one in letters)
    moment = np.einsum(f"i,{terms}->{letters}", wanted, *[directions] * order)
    np.testing.assert_allclose(power_coefficients(moment, directions), wanted, atol=1e-9)


def test_shapes_and_counts_are_told():
    random = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"tensor must be k by k by k .*\(2, 2, 3\)"):
        decompose(np.zeros((2, 2, 3)), generator=random)
    with pytest.raises(ValueError, match=r"trials must be .* got 0"):
        decompose(np.ones((2, 2, 2)), generator=random, trials=0)
