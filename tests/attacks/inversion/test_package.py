"""The package gives every name it promises, and loads torch only for what needs it."""

import subprocess
import sys

import pytest

from sfumato.attacks import inversion


def test_every_public_name_can_be_had():
    for name in inversion.__all__:
        assert callable(getattr(inversion, name))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = inversion.nonsense


def test_attacks_on_scores_do_without_torch():
    code = (
        "import sys, numpy as np\n"
        "from sfumato.attacks.inversion import CoordinateDifferences, mi_face\n"
        "from sfumato.attacks.targets import Target\n"
        "target = Target.of_scores(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1))\n"
        "found = mi_face(target, [0], (1,), slopes=CoordinateDifferences())\n"
        "print(found.confidence[0] >= 0.99, 'torch' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["True", "False"]
