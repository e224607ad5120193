"""What tests of auto-encoders share."""

import numpy as np
import pytest

from sfumato.data import Dataset, Examples


def drawn(count, seed):
    """4 by 4 pictures of a lying bar, in the upper or in the lower half, and an upright one."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    pictures = np.zeros((count, 4, 4, 1))
    for picture, label in zip(pictures, labels, strict=True):
        picture[:, rng.integers(4), 0] = rng.integers(1, 5) / 4
        picture[2 * label + rng.integers(2), :, 0] = rng.integers(2, 5) / 4
    return Examples(np.rint(255 * pictures).astype(np.uint8), labels)


@pytest.fixture(scope="session")
def bars():
    """3,000 rows, 500 to test on."""
    return Dataset(
        "bars", drawn(3000, 1), drawn(500, 2), ("upper", "lower"), (4, 4, 1), (0, 255),
        "made up", public_size=3000, test_is_public=True,
    )  # fmt: skip
