"""The package gives every name it promises, alike, and loads heavy things only when needed."""

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from sfumato import attacks

PACKAGES = ("membership", "extraction", "inversion", "gradients", "gan")


def printed(code):
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_every_public_name_can_be_had():
    for name in attacks.__all__:
        assert getattr(attacks, name).__name__ == name
    assert set(attacks.__all__) <= set(dir(attacks))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = attacks.nonsense


def test_importing_it_loads_nothing_heavy():
    code = "import sys, sfumato.attacks; print(*({'numpy', 'scipy', 'torch'} & set(sys.modules)))"
    assert printed(code) == []


def test_attacks_on_scores_do_without_torch():
    code = (
        "import sys, numpy as np\n"
        "from sfumato.attacks import CoordinateDifferences, Target, invert_with_mi_face\n"
        "from sfumato.attacks import Candidates, extract_by_equations, lira_attack, rmia_attack\n"
        "target = Target.of_scores(lambda x: np.stack([x[:, 0], 1 - x[:, 0]], axis=1))\n"
        "found = invert_with_mi_face(target, [0], (1,), slopes=CoordinateDifferences())\n"
        "print(found.probability[0] >= 0.99, 'torch' in sys.modules)"
    )
    assert printed(code) == ["True", "False"]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_in_the_table_of_its_package(package):
    home = import_module(f"sfumato.attacks.{package}")
    modules = {path.stem for path in Path(home.__file__).parent.glob("*.py")} - {"__init__"}
    assert {name for name in modules if f"\n``{name}``" not in home.__doc__} == set()


def parameters(name):
    return inspect.signature(getattr(attacks, name)).parameters


def taking_a_target():
    return [name for name in attacks.__all__ if name.endswith("_attack") or "_by_" in name
            or "_with_" in name]  # fmt: skip


@pytest.mark.parametrize("name", taking_a_target())
def test_attacks_are_called_alike(name):
    """The target first; then candidates where there is a truth; coins and levels by name."""
    given = parameters(name)
    assert next(iter(given)) == "target"
    if name.endswith("_attack"):
        assert list(given)[1] == "candidates"
        assert given["confidence"].default == 0.95
    assert not {"seed", "level", "points"} & set(given)
    for one in ("generator", "confidence", "classes"):
        if one in given:
            assert given[one].kind is inspect.Parameter.KEYWORD_ONLY
    if "classes" in given:
        assert given["classes"].annotation == "int | None"
