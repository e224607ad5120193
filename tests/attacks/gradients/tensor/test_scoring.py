import json

import numpy as np
import pytest

from sfumato.attacks.gradients.tensor.network import unit_inputs
from sfumato.attacks.gradients.tensor.results import TensorReconstruction
from sfumato.attacks.gradients.tensor.scoring import match_inputs


def reconstruction(inputs, width=800):
    count = len(inputs)
    return TensorReconstruction(
        np.asarray(inputs, float), np.ones(count), "tanh", width, 3, 3, "unknown",
        np.ones(count), 0.1, 0.01,
    )  # fmt: skip


def test_order_does_not_matter():
    truth = unit_inputs(5, 7, generator=np.random.default_rng(0))
    order = np.array([3, 0, 4, 1, 2])
    match = match_inputs(reconstruction(truth[order]), truth)
    assert match.order.tolist() == np.argsort(order).tolist()
    assert (match.error, match.error_up_to_sign, match.signs_right) == (0, 0, 1)


def test_the_best_permutation_not_the_nearest_first():
    """Greedily the first true input would take what is the only good match of the second."""
    found = reconstruction([[0.45, 0.0], [0.0, 0.5]])
    match = match_inputs(found, [[0.0, 0.0], [1.0, 0.0]])
    assert match.order.tolist() == [1, 0]
    assert match.error == pytest.approx(np.sqrt((0.5**2 + 0.55**2) / 2))


def test_turned_inputs_are_matched_and_counted():
    truth = unit_inputs(4, 20, generator=np.random.default_rng(1))
    match = match_inputs(reconstruction(truth * [[1], [-1], [1], [-1]]), truth)
    assert match.order.tolist() == [0, 1, 2, 3]
    assert match.signs_right == 0.5
    assert match.error_up_to_sign == 0
    assert match.error == pytest.approx(np.sqrt(2))  # half of them are off by 2


def test_scaled_by_root_of_dimension_by_width():
    match = match_inputs(reconstruction([[1.0, 0.2]], width=200), [[1.0, 0.0]])
    assert match.scaled_error == pytest.approx(0.2 / np.sqrt(2 / 200))


def test_record_and_words():
    match = match_inputs(reconstruction([[1.0, 0.0]]), [[1.0, 0.0]])
    assert (
        str(match) == "error 0.000 (0.00 times sqrt(d/m); signs aside 0.000), 100% of 1 signs right"
    )
    record = json.loads(json.dumps(match.to_dict()))
    assert record["channel"] == "curator"
    assert record["signs_right"] == 1


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"truth must be a table of shape \(1, 2\), got \(2, 2\)"):
        match_inputs(reconstruction([[1.0, 0.0]]), np.eye(2))
