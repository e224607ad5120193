"""Real photographs, small: cut out of the two that come with scikit-learn."""

import numpy as np
import pytest


@pytest.fixture(scope="session")
def photographs():
    """``photographs(count, size)``: (count, 3, size, size) in [0, 1], each of another place."""
    datasets = pytest.importorskip("sklearn.datasets")
    both = [datasets.load_sample_image(name) for name in ("china.jpg", "flower.jpg")]

    def cut(count, size, shrink=3):
        wide, found = size * shrink, []
        places = np.random.default_rng(0).random((count, 2))
        for number, (down, right) in enumerate(places):
            whole = both[number % 2]
            top = int(down * (whole.shape[0] - wide))
            left = int(right * (whole.shape[1] - wide))
            part = whole[top : top + wide, left : left + wide].astype(np.float32) / 255
            found.append(part.reshape(size, shrink, size, shrink, 3).mean(axis=(1, 3)))
        return np.stack(found).transpose(0, 3, 1, 2)

    return cut
