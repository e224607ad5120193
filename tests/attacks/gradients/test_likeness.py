"""PSNR and SSIM by their definitions, each image with its own original."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.attacks.gradients.likeness import likeness


def pictures(count=4, seed=0):
    return np.random.default_rng(seed).random((count, 3, 12, 12))


@given(st.permutations(range(4)))
def test_any_order_is_found(order):
    originals = pictures()
    found = likeness(originals[list(order)], originals)
    assert [order[i] for i in found.order] == [0, 1, 2, 3]
    assert found.psnr.min() == 100
    assert found.ssim == pytest.approx(1.0)


@given(st.floats(0.001, 0.4), st.floats(0.5, 300))
def test_psnr_by_its_formula(off, width):
    originals = width * 0.5 * np.ones((1, 1, 8, 8))
    found = likeness(originals + off * width, originals, (0.0, width))
    assert found.psnr[0] == pytest.approx(-20 * np.log10(off), abs=1e-6)


def test_noise_of_a_tenth_is_at_twenty_decibels():
    originals = np.full((2, 1, 64, 64), 0.5)
    noisy = originals + 0.1 * np.random.default_rng(1).standard_normal(originals.shape)
    assert likeness(noisy, originals).psnr == pytest.approx([20, 20], abs=0.3)


def test_what_is_no_number_is_as_far_as_can_be():
    originals = pictures(2)
    broken = originals.copy()
    broken[0] = np.nan
    assert likeness(broken, originals).order.tolist() == [0, 1]


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"images must be as many and of the shape"):
        likeness(pictures(2), pictures(3))
    with pytest.raises(ValueError, match="bounds"):
        likeness(pictures(), pictures(), (1.0, 0.0))
