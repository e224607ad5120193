"""The scattering transform against plain convolutions of the whole image."""

import pytest
import torch
from torch import fft

from sfumato.learning.features.scattering import (
    LARGEST_FOR_MATRICES,
    Scattering,
    filters,
    folded,
)
from sfumato.learning.features.scattering_fourier import FourierCascade
from sfumato.learning.features.scattering_matrices import MatrixCascade
from sfumato.learning.features.wavelets import mirrored


def plain(transform, images):
    """Every convolution at full resolution; sampled at the end."""
    padded = mirrored(images, 2**transform.scales)
    step = 2**transform.scales
    wavelets, average = filters(padded.shape[-2:], transform.scales, transform.orientations)

    def convolved(signal, spectrum):
        return fft.ifft2(fft.fft2(signal) * spectrum)

    found = [padded]
    first = [[convolved(padded, w).abs() for w in own] for own in wavelets]
    found += [u for own in first for u in own]
    for j, own in enumerate(first):
        for k in range(j + 1, transform.scales):
            found += [convolved(u, w).abs() for u in own for w in wavelets[k]]
    averaged = torch.stack([convolved(u, average).real for u in found], 1)
    return averaged[..., ::step, ::step][..., 1:-1, 1:-1]


@pytest.mark.parametrize(("shape", "scales", "orientations"), [
    ((28, 28), 2, 8), ((32, 32), 2, 8), ((16, 24), 3, 4), ((8, 8), 1, 3),
])  # fmt: skip
def test_it_is_what_plain_convolutions_give(shape, scales, orientations):
    """But for aliases: wavelets of coarse scales are sampled more coarsely."""
    transform = Scattering(shape, scales, orientations)
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(1))
    found, expected = transform(images), plain(transform, images)
    assert found.shape == (3, transform.channels, *transform.size)
    assert torch.allclose(found, expected, atol=5e-3)
    assert torch.allclose(found[:, : 1 + orientations], expected[:, : 1 + orientations], atol=1e-5)


def test_wavelets_do_not_answer_to_a_constant():
    transform = Scattering((32, 32))
    found = transform(torch.full((1, 32, 32), 0.7))
    assert torch.allclose(found[:, 0], torch.full((1, 8, 8), 0.7), atol=1e-4)
    assert float(found[:, 1:].abs().max()) < 1e-4


def test_folding_a_spectrum_is_sampling_the_signal():
    signal = torch.rand(2, 16, 16, dtype=torch.float64)
    sampled = fft.ifft2(folded(fft.fft2(signal), 2) / 16).real
    assert torch.allclose(sampled, signal[:, ::4, ::4])


def test_leading_dimensions_and_moved_images():
    transform = Scattering((32, 32))
    images = torch.zeros(2, 3, 32, 32)
    images[..., 12:20, 12:20] = torch.rand(2, 3, 8, 8)
    found = transform(images)
    assert found.shape == (2, 3, 81, 8, 8)
    moved = transform(images.roll(4, -1))
    assert torch.allclose(found.roll(1, -1)[..., 2:-1], moved[..., 2:-1], atol=1e-4)


@pytest.mark.parametrize("shape", [(30, 28), (28, 2)])
def test_sizes_that_do_not_divide_are_errors(shape):
    with pytest.raises(ValueError, match="multiples of 2"):
        Scattering(shape)
    with pytest.raises(ValueError, match="height and width"):
        Scattering((28, 28))(torch.zeros(2, 32, 32))


@pytest.mark.parametrize(("shape", "scales", "orientations"), [
    ((28, 28), 2, 8), ((16, 24), 3, 4), ((8, 8), 3, 2), ((6, 10), 1, 5),
])  # fmt: skip
def test_matrices_and_fourier_transforms_agree(shape, scales, orientations):
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(2))
    one = MatrixCascade(shape, scales, orientations)(images)
    two = FourierCascade(shape, scales, orientations)(images)
    assert torch.allclose(one, two, atol=1e-6)


def test_large_images_go_through_fourier_transforms():
    side = LARGEST_FOR_MATRICES
    transform = Scattering((side, side), 1, 2)
    assert isinstance(transform.cascade, FourierCascade)
    images = torch.rand(transform.cascade.chunk + 1, side, side)
    assert torch.allclose(transform(images), plain(transform, images), atol=5e-3)


def test_an_image_s_features_are_the_same_bits_in_any_company():
    transform = Scattering((28, 28))
    images = torch.rand(100, 28, 28, generator=torch.Generator().manual_seed(3))
    found = transform(images)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(4))
    assert torch.equal(transform(images[order]), found[order])
    for rows in (1, 3, 65):
        assert torch.equal(transform(images[:rows]), found[:rows])
    images[1] = float("nan")
    spoiled = transform(images)
    kept = [row for row in range(100) if row != 1]
    assert torch.equal(spoiled[kept], found[kept])


def test_no_images_at_all():
    assert Scattering((8, 8))(torch.zeros(0, 3, 8, 8)).shape == (0, 3, 81, 2, 2)
