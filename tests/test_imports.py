"""Importing the package loads nothing heavy, and every public name can be had."""

import pkgutil
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

import sfumato as sf

HEAVY = (
    "torch ibis flwr dp_accounting scipy opendp sqlalchemy pandas matplotlib numpy transformers "
    "peft accelerate"
).split()


def loaded_after(statement):
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(result.stdout.split())


def test_import_sfumato_is_light():
    assert not loaded_after("import sfumato") & set(HEAVY)


def test_the_command_line_starts_without_the_heavy_parts():
    assert not loaded_after("import sfumato.cli.main") & (set(HEAVY) - {"numpy"})


def test_core_and_accounting_do_without_opendp():
    used = loaded_after(
        "import sfumato as sf\nsf.account(sf.dp_sgd(1, 0.1, 10), 1e-5)\nsf.noisy_count(3, 1.0)"
    )
    assert "opendp" not in used


def test_every_public_name_can_be_had():
    for name in sf.__all__:
        assert getattr(sf, name) is not None
    assert set(sf.__all__) <= set(dir(sf))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sf.nonsense


def packages(name="sfumato"):
    yield import_module(name)
    for found in pkgutil.iter_modules(import_module(name).__path__, f"{name}."):
        if found.ispkg:
            yield from packages(found.name)


def test_no_lazy_name_is_hidden_by_a_module_of_the_same_name():
    # Importing a.b sets a's attribute b to the module: a lazy b would never be looked up again.
    for package in packages():
        modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
        for name in modules & set(getattr(package, "__all__", ())):
            import_module(f"{package.__name__}.{name}")
            assert not isinstance(getattr(package, name), ModuleType), (package.__name__, name)
