"""Denoising and sharpening: noise goes, edges stay."""

import numpy as np
import pytest

from sfumato.attacks.inversion.processing import denoise_and_sharpen


def test_specks_go_and_edges_stay():
    clean = np.zeros((2, 1, 12, 12), np.float32)
    clean[:, :, :, 6:] = 0.8
    noisy = clean.copy()
    noisy[0, 0, 3, 2] = noisy[1, 0, 8, 9] = 1.0
    assert denoise_and_sharpen(amount=0)(noisy) == pytest.approx(clean)


def test_sharpening_adds_what_a_blur_takes_away():
    edge = np.zeros((1, 1, 12, 12), np.float32)
    edge[..., 6:] = 0.5
    sharp = denoise_and_sharpen(size=1, amount=1.0, radius=1.0)(edge)[0, 0, 5]
    assert sharp[6] > 0.6  # brighter on the bright side
    assert sharp[5] < -0.1  # darker on the dark one
    twice = denoise_and_sharpen(size=1, amount=2.0, radius=1.0)(edge)[0, 0, 5]
    assert twice - edge[0, 0, 5] == pytest.approx(2 * (sharp - edge[0, 0, 5]), abs=1e-6)
    flat = np.full((1, 4, 4), 0.3, np.float32)
    assert denoise_and_sharpen()(flat) == pytest.approx(flat)


def test_bad_parameters_are_refused():
    for wrong in ({"size": 0}, {"amount": -1}, {"radius": 0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            denoise_and_sharpen(**wrong)
    with pytest.raises(ValueError, match="images must be"):
        denoise_and_sharpen()(np.zeros((3, 4), np.float32))
