"""What tests of private linear models share."""

import numpy as np
import pytest


@pytest.fixture
def table():
    """2,000 rows of three columns in [0, 1], and whether their sum is large."""
    rng = np.random.default_rng(5)
    rows = rng.random((2000, 3))
    return rows, (rows.sum(axis=1) + rng.normal(0, 0.1, 2000) > 1.5).astype(int)
